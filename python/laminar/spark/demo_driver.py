"""The Spark driver of ``laminar demo``: two streaming queries over the same files, into laminar and into Parquet.

It is what people write, but for one thing: with a number as last argument both queries stop inside that batch, say so,
and wait for the file ``go``. So the story is the same every time.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laminar.spark.session import local_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_SCHEMA = "id long, amount double"
_POLL_SECONDS = 0.02
_LAMINAR_ERROR = re.compile(r"laminar\.errors\.(\w+): (.+)")


def main(folder: str, endpoint: str, stream: str, name: str, hangs_in: int | None) -> None:
    """Run both queries to the end of the input, or of their luck."""
    spark = local_session(f"laminar-demo-{name}")
    files = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).json(f"{folder}/input")
    queries = {
        "laminar": _laminar_query(files, folder, endpoint, stream, hangs_in),
        "parquet": _parquet_query(files, folder, hangs_in),
    }
    while queries:
        for query_name, query in list(queries.items()):
            _say_held(folder, query_name, hangs_in)
            if not query.isActive:
                _say({"ended": query_name, **_error_of(query)})
                del queries[query_name]
        time.sleep(_POLL_SECONDS)
    spark.stop()


def _laminar_query(files: DataFrame, folder: str, endpoint: str, stream: str, hangs_in: int | None) -> StreamingQuery:
    rows = files if hangs_in is None else files.mapInArrow(_hanging(folder, hangs_in), _SCHEMA)
    return (
        rows.writeStream.format("laminar")
        .option("endpoint", endpoint)
        .option("writer", "orders-ingest")
        .option("checkpointLocation", f"{folder}/checkpoints/laminar")
        .trigger(availableNow=True)
        .start(stream)
    )


def _parquet_query(files: DataFrame, folder: str, hangs_in: int | None) -> StreamingQuery:
    def append(rows: DataFrame, batch: int) -> None:
        if batch == hangs_in:
            _hold(folder, "parquet")
        rows.write.mode("append").parquet(f"{folder}/parquet")
        if batch == hangs_in:
            _say({"wrote": batch})

    return (
        files.writeStream.foreachBatch(append)
        .option("checkpointLocation", f"{folder}/checkpoints/parquet")
        .trigger(availableNow=True)
        .start()
    )


def _hanging(folder: str, batch: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def hang(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - this runs in a worker

        context = TaskContext.get()
        if context is not None and context.getLocalProperty("streaming.sql.batchId") == str(batch):
            _hold(folder, "laminar")
        yield from batches

    return hang


def _hold(folder: str, query: str) -> None:
    """Say that this batch is begun, and wait for the file that lets it go on."""
    (Path(folder) / f"held-{query}").touch()
    while not (Path(folder) / "go").exists():
        time.sleep(_POLL_SECONDS)


def _say_held(folder: str, query: str, hangs_in: int | None) -> None:
    held = Path(folder) / f"held-{query}"
    if hangs_in is not None and held.exists():
        held.unlink()
        _say({"held": query})


def _error_of(query: StreamingQuery) -> dict[str, Any]:
    error = query.exception()
    if error is None:
        return {"error": None, "message": None}
    text = str(error)
    found = _LAMINAR_ERROR.search(text)
    if found is not None:
        return {"error": found[1], "message": found[2].strip()}
    return {"error": type(error).__name__, "message": text.strip().splitlines()[0]}


def _say(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _folder, _endpoint, _stream, _name, *_rest = sys.argv[1:]
    main(_folder, _endpoint, _stream, _name, int(_rest[0]) if _rest else None)
