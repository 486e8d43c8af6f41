"""Sinks that have no owner of their own, for ``laminar.spark.fenced``: a folder of Parquet, and a Delta table.

**Parquet.** A batch is written to a hidden folder, synced, and renamed to ``query=…/batch=…``. A rename onto a folder
that is there fails, and a batch of a query always has the same rows; so a batch appears whole and once, whoever else
writes, also if a run was paused inside the write. This needs a file system whose rename is atomic: a disk, or one that
is mounted. What a run leaves in ``_writing`` when it is killed is removed by the next that puts the batch in place.

**Delta.** The batch is appended with ``txnAppId`` and ``txnVersion``, so Delta skips it if it has it.
"""

from __future__ import annotations

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

#: Where batches are written before they are renamed. Spark does not read folders that begin so.
_WRITING = "_writing"


def writing(sink: ParquetSink | DeltaSink) -> FencedFunction:
    """The function that writes a batch to the sink."""
    return partial(_write_parquet, sink) if isinstance(sink, ParquetSink) else partial(_write_delta, sink)


def _write_parquet(sink: ParquetSink, frame: DataFrame, batch: int, transaction: Transaction) -> None:
    # The last part of the application's id is the id of the query, which its checkpoint keeps.
    query = transaction.app_id.rsplit("/", 1)[-1]
    final = _final(sink, query, batch)
    hidden = Path(sink.path, _WRITING, f"{query}.{batch}.{transaction.epoch}.{uuid.uuid4().hex}")
    if not final.exists():
        try:
            _put(sink, frame, hidden, final)
        except Exception:
            shutil.rmtree(hidden, ignore_errors=True)
            # Another run put the same batch there. Its rows are these rows.
            if not final.exists():
                raise
    _sync(final.parent)
    _clear(sink, query, transaction.epoch)


def _final(sink: ParquetSink, query: str, batch: int) -> Path:
    return Path(sink.path, f"query={query}", f"batch={batch:010d}")


def _put(sink: ParquetSink, frame: DataFrame, hidden: Path, final: Path) -> None:
    frame.write.options(**sink.options).parquet(f"file://{hidden}")
    for file in (*hidden.iterdir(), hidden):
        _sync(file)
    final.parent.mkdir(parents=True, exist_ok=True)
    hidden.rename(final)


def _clear(sink: ParquetSink, query: str, epoch: int) -> None:
    """Remove what earlier runs of the query left when they were killed.

    Only of batches that are in place: a run that was paused inside one of those can put nothing there any more, however
    much of its hidden folder is gone. Of another batch it could still rename half of its rows into place.
    """
    for left in Path(sink.path, _WRITING).glob(f"{query}.*.*.*"):
        _, batch, earlier, _ = left.name.rsplit(".", 3)
        if int(earlier) < epoch and _final(sink, query, int(batch)).exists():
            shutil.rmtree(left, ignore_errors=True)


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
