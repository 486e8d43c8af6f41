"""Writes a DataFrame to a stream, once: all of it or nothing.

The driver makes the writer and checks what can be checked before any task runs. Each task stages what it got; nothing
of it can be read. The driver then commits all that was staged as one entry of the log. So a task that fails, is
repeated or runs twice leaves nothing behind but blocks that the collector removes.

Without ``writer`` the write is managed: it goes through unless somebody has claimed the stream. With it the job claims
the stream before its first task, fencing whoever held it, and gives it back at its end.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from laminar.errors import InvalidError, LaminarError
from laminar.spark import clients
from laminar.spark.columns import Columns
from laminar.spark.source import open_stream
from laminar.spark.task import Driver, MicroBatch, Run, TaskMessage
from laminar.spark.watch import Watch
from laminar.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from laminar.spark.options import Place, SinkOptions


def on_executor(place: Place, stream_id: int) -> Stream:
    """The stream that the driver saw, for tasks: they are clients, and never open a folder."""
    return Stream(clients.worker(place.endpoint, secret=place.secret), place.stream, stream_id)


def begin(  # noqa: PLR0913 - who, for what, and on which terms
    stream: Stream, writer: str, of: MicroBatch, driver: Driver, *, adopt_query: bool = False, unbound: bool = False
) -> Run:
    """Claim the stream for a batch of a query, or go on holding it. Unbound, the writer's name stays free."""
    answer = stream._native.begin_batch(
        writer, of.run, of.query, of.batch, adopt_query=adopt_query, unbound=unbound, host=driver.host, pid=driver.pid
    )
    return Run(answer["node_id"], tuple(map(tuple, answer["epochs"])), answer["committed"])


def stage(
    stream: Stream, columns: Columns, batches: Iterable[pa.RecordBatch], block_bytes: int | None
) -> tuple[bytes, int]:
    """Hash, split and stage the rows of one task: the message for the commit, and how many rows."""
    writer = stream._native.task_writer(block_bytes=block_bytes)
    for batch in batches:
        writer.add(columns.fit(batch))
    staged = writer.finish()
    return staged, writer.rows


def watched(batches: Iterable[pa.RecordBatch], watch: Watch) -> Iterator[pa.RecordBatch]:
    """The batches, until the watch sees a takeover."""
    for batch in batches:
        watch.check()
        yield batch


def task_messages(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    """The messages of the tasks. One without a message had nothing to write: Spark commits when all have succeeded."""
    return [message for message in messages if isinstance(message, TaskMessage)]


class BatchWriter(DataSourceArrowWriter):
    """One ``df.write``: made on the driver, copied to each task, and to the process that commits."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:  # noqa: FBT001 - Spark's
        options.check_batch()
        stream = open_stream(options.place)
        if overwrite and stream.machine == "kv":
            raise InvalidError(
                f"stream {stream.path}: mode overwrite needs a stream with machine log, and this one is kv; "
                "append instead, a later row of a key takes the place of the one before",
                stream=stream.path,
            )
        self._options = options
        self._stream_id = stream.stream_id
        self._overwrite = overwrite
        self._columns = Columns.of(stream, schema)
        self._txn = None
        if options.txn_app_id is not None and options.txn_version is not None:
            self._txn = (options.txn_app_id, options.txn_version)
        self._run = self._begun(stream)

    def _begun(self, stream: Stream) -> Run:
        if self._options.writer is None:
            return Run(0, (), committed=self._is_committed(stream))
        run = uuid.uuid4().hex
        # Without a txnAppId nothing is recorded, and a name that nobody else has keeps it from being taken for done.
        query, batch = self._txn or (f"batch-{run}", 0)
        return begin(stream, self._options.writer, MicroBatch(query, batch, run), Driver.here(), unbound=True)

    def _is_committed(self, stream: Stream) -> bool:
        if self._txn is None:
            return False
        query, version = self._txn
        last = stream._native.last_batch(query)
        if last is not None and last > version:
            raise InvalidError(
                f"stream {stream.path}: txnVersion {version} of txnAppId {query!r} is below {last}, which was "
                "committed; versions must not go back, give the next one",
                stream=stream.path,
                value=version,
                limit=last,
            )
        return bool(last == version)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage what one task got."""
        if self._run.committed:
            return TaskMessage(None, self._run, b"", 0)
        stream = on_executor(self._options.place, self._stream_id)
        if self._run.node_id == 0:
            return self._staged(stream, iterator)
        with Watch(stream, self._run, self._txn) as watch:
            return self._staged(stream, watched(iterator, watch))

    def _staged(self, stream: Stream, batches: Iterable[pa.RecordBatch]) -> TaskMessage:
        staged, rows = stage(stream, self._columns, batches, self._options.block_bytes)
        return TaskMessage(None, self._run, staged, rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make what all tasks staged readable, in one entry."""
        stream = open_stream(self._options.place)
        if self._run.committed:
            self._release(stream)
            return
        query, version = self._txn or (None, None)
        stream._native.commit_batch(
            [task.staged for task in task_messages(messages)],
            query=query,
            batch=version,
            node_id=self._run.node_id,
            epochs=self._run.epochs,
            overwrite=self._overwrite,
            # A version is done also if it had no rows.
            record_empty=query is not None,
        )
        self._release(stream)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's
        """Delete nothing: a commit that was sent may still name what was staged. A claim is given back."""
        self._release(open_stream(self._options.place))

    def _release(self, stream: Stream) -> None:
        if self._run.node_id == 0:
            return
        try:
            stream._native.release_run(self._run.node_id)
        except LaminarError:
            # The rows are there, or the job has failed for another reason, which is the one to tell. What was not given
            # back stays closed to managed appends until the next writer comes, and `laminar why` says by whom.
            return


__all__ = ["BatchWriter", "begin", "on_executor", "stage", "task_messages", "watched"]
