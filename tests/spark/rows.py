"""Rows that go in, and a look at what came out: nothing lost, nothing doubled, offsets without a gap."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import laminar

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
STREAM = "/shop/orders"


def create(endpoint: str, path: str = STREAM, *, partitions: int = 3, key: str | None = "id") -> None:
    """A stream for the rows."""
    with laminar.connect(Path(endpoint)) as db:
        db.create_stream(path, partitions=partitions, schema=SCHEMA, key=key)


def table(ids: Iterable[int]) -> pa.Table:
    """Rows with these ids, and a text for each that tells it from others."""
    found = list(ids)
    return pa.table({"id": found, "text": [f"row {number}" for number in found]}, schema=SCHEMA)


def put_file(folder: Path, number: int, ids: Iterable[int]) -> None:
    """A file that Spark reads as the batch of this number: it goes by the time of files."""
    folder.mkdir(exist_ok=True)
    waiting = folder / f".{number:03}.parquet"
    pq.write_table(table(ids), waiting)
    os.utime(waiting, (1_700_000_000 + number, 1_700_000_000 + number))
    waiting.rename(folder / f"{number:03}.parquet")


def put_files(folder: Path, files: int, rows: int) -> list[int]:
    """Files with so many rows each; returns the ids of all."""
    for number in range(files):
        put_file(folder, number, range(number * rows, (number + 1) * rows))
    return list(range(files * rows))


def check(endpoint: str, ids: Iterable[int], path: str = STREAM) -> pa.Table:
    """Compares a stream with what was written to it, row for row, and returns its rows with their offsets."""
    with laminar.connect(Path(endpoint)) as db:
        stream = db.stream(path)
        found = stream.read(include_metadata=True).read_all()
        offsets = stream.offsets()
    expected = sorted(ids)
    assert sorted(found["id"].to_pylist()) == expected
    assert all(row["text"] == f"row {row['id']}" for row in found.select(["id", "text"]).to_pylist())
    for partition, (first, end) in offsets.items():
        there = found.filter(pa.compute.equal(found["_partition"], partition))["_offset"].to_pylist()
        assert there == list(range(first, end)), f"offsets of partition {partition} have gaps"
    return found
