"""Fences sinks that have no owner of their own: ``foreachBatch`` functions that write to Delta, a database or files.

A stream keeps who may write, and which batches are done. It needs no rows: create one for each target.

    laminar.open("./data", detached=True).create_stream("/fences/orders")
    query = df.writeStream.foreachBatch(fenced("/fences/orders", "orders", write, endpoint="./data"))

Around each call of the function: the run claims the stream for (query, batch); a batch that is recorded is skipped;
the function runs; ownership is checked again; the batch is recorded. What this cannot do is stop a process that was
paused inside the function, after the first check and before its own write: nothing outside the target can. So the
function gets a transaction to hand to the target, whose epoch grows with every takeover: a target that compares it
refuses the late write itself. Without that the guarantee is at least once, with takeovers seen before and after.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar.errors import InvalidError
from laminar.spark.sink import begin
from laminar.spark.source import open_stream
from laminar.spark.task import BATCH, QUERY, RUN, Driver, MicroBatch, Run, micro_batch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from laminar.spark.options import Place


@dataclass(frozen=True)
class Transaction:
    """What a target needs to refuse a batch that it has, or a writer that is over."""

    #: The same for all runs of a query: Delta's ``txnAppId``.
    app_id: str
    #: The batch: grows by one, and is the same when a batch is repeated. Delta's ``txnVersion``.
    version: int
    #: Grows with every takeover: a target must refuse a writer with a lower one than it has seen.
    epoch: int

    @property
    def id(self) -> str:
        """Names this attempt of this batch; a later epoch sorts after an earlier one."""
        return f"{self.epoch:020d}-{self.version:020d}"


FencedFunction = Callable[["DataFrame", int, Transaction], object]


class Fenced:
    """A function for ``foreachBatch``. Made by ``laminar.spark.fenced``."""

    def __init__(self, place: Place, name: str, fn: FencedFunction, *, adopt_query: bool) -> None:
        if not name:
            raise InvalidError("the writer has no name; give one that stays the same over restarts of the query")
        self._place = place
        self._name = name
        self._fn = fn
        self._adopt_query = adopt_query
        self._held: Run | None = None
        # A stream that is not there is told now, and not when the first rows come.
        open_stream(place)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write one micro-batch, unless it is recorded."""
        of = _micro_batch(frame, batch)
        stream = open_stream(self._place)
        # The function runs in the driver's own process.
        driver = Driver(socket.gethostname(), os.getpid())
        run = begin(stream, self._name, of, driver, adopt_query=self._adopt_query)
        if run.node_id:
            self._held = run
        if run.committed:
            return
        self._fn(frame, batch, self._transaction(run, of))
        native = stream._native
        native.check_run(run.node_id, run.epochs, query=of.query, batch=of.batch)
        native.commit_batch(
            [], query=of.query, batch=of.batch, node_id=run.node_id, epochs=run.epochs, record_empty=True
        )

    def _transaction(self, run: Run, of: MicroBatch) -> Transaction:
        # One claim takes all partitions, so the epoch of any one of them grows with each. The first is always there.
        return Transaction(
            app_id=f"{self._place.stream}/{self._name}/{of.query}", version=of.batch, epoch=run.epochs[0][2]
        )

    def release(self) -> None:
        """Give the stream back, after the query has ended for good. Whoever claims it need not wait for this."""
        if self._held is not None:
            open_stream(self._place)._native.release_run(self._held.node_id)
            self._held = None


def _micro_batch(frame: DataFrame, batch: int) -> MicroBatch:
    try:
        context = frame.sparkSession.sparkContext
    except Exception as error:
        raise InvalidError(
            "fenced needs a classic Spark session: Spark Connect does not tell a foreachBatch function the run of its "
            "query; run the query on the driver itself"
        ) from error
    of = micro_batch_of({name: context.getLocalProperty(name) for name in (QUERY, BATCH, RUN)})
    if of.batch != batch:
        raise InvalidError(f"foreachBatch was called for batch {batch} in a job of batch {of.batch}")
    return of


__all__ = ["Fenced", "FencedFunction", "Transaction"]
