"""Sinks that have no owner of their own, for ``laminar.spark.fenced``: a folder of Parquet, and a Delta table.

**Parquet.** A batch is written to a hidden folder, synced, and renamed to ``query=…/batch=…``. A rename onto a folder
that is there fails, and a batch of a query always has the same rows; so a batch appears whole and once, whoever else
writes, also if a run was paused inside the write. This needs a file system whose rename is atomic: a disk, or one that
is mounted.

**Delta.** The batch is appended with ``txnAppId`` and ``txnVersion``, so Delta skips it if it has it.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from laminar.spark.pipeline.model import DeltaSink, ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from laminar.spark.fence import FencedFunction, Transaction

_THERE = (errno.ENOTEMPTY, errno.EEXIST)


def writing(sink: ParquetSink | DeltaSink) -> FencedFunction:
    """The function that writes a batch to the sink."""
    return partial(_write_parquet, sink) if isinstance(sink, ParquetSink) else partial(_write_delta, sink)


def _write_parquet(sink: ParquetSink, frame: DataFrame, batch: int, transaction: Transaction) -> None:
    # The last part of the application's id is the id of the query, which its checkpoint keeps.
    query = transaction.app_id.rsplit("/", 1)[-1]
    final = Path(sink.path, f"query={query}", f"batch={batch:010d}")
    if final.exists():
        return
    hidden = Path(sink.path, "_writing", f"{transaction.id}-{uuid.uuid4().hex}")
    frame.write.options(**sink.options).parquet(f"file://{hidden}")
    for file in (*hidden.iterdir(), hidden):
        _sync(file)
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        hidden.rename(final)
    except OSError as error:
        if error.errno not in _THERE:
            raise
        # Another run put the same batch there. Its rows are these rows.
        shutil.rmtree(hidden)
    _sync(final.parent)


def _write_delta(sink: DeltaSink, frame: DataFrame, _batch: int, transaction: Transaction) -> None:
    (
        frame.write.format("delta")
        .mode("append")
        .options(**sink.options)
        .option("txnAppId", transaction.app_id)
        .option("txnVersion", str(transaction.version))
        .save(sink.path)
    )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = ["writing"]
