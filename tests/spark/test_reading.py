"""What a task does when rows go away under it, or are damaged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import laminar
from laminar.errors import CorruptionError, InvalidError
from laminar.spark.options import Place
from laminar.spark.reading import RowReader
from laminar.spark.schemas import to_spark
from laminar.spark.splits import Split

SCHEMA = pa.schema({"id": pa.int64(), "data": pa.binary()})


@pytest.fixture
def stream(endpoint: str) -> Iterator[laminar.Stream]:
    """Three blocks of four rows each."""
    chance = random.Random(7)  # noqa: S311 - bytes that do not compress
    with laminar.connect(Path(endpoint)) as db:
        stream = db.create_stream("/large", 1, SCHEMA)
        for first in (0, 4, 8):
            stream.append([{"id": first + i, "data": chance.randbytes(1_000_000)} for i in range(4)])
        yield stream


def remove_blocks(endpoint: str, count: int) -> None:
    """As the collector does it with those of trimmed rows."""
    blocks = [path for path in Path(endpoint, "objects").rglob("*") if path.is_file() and path.stat().st_size > 1 << 20]
    for block in sorted(blocks, key=lambda path: path.stat().st_mtime_ns)[:count]:
        block.unlink()


def reader(endpoint: str, stream: laminar.Stream, *, fail: bool) -> RowReader:
    return RowReader(Place.at(endpoint, stream.path), stream.stream_id, to_spark(SCHEMA, stream.path), fail)


def read(rows: RowReader) -> list[int]:
    return [number for batch in rows.read(Split(0, 0, 12)) for number in batch.column(0).to_pylist()]


@pytest.fixture
def trimmed_late(stream: laminar.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node tells a task its records, and the rows are trimmed before the task has fetched their blocks."""
    plain: Callable[..., Iterator[pa.RecordBatch]] = RowReader._range

    def late(rows: RowReader, *where: object) -> Iterator[pa.RecordBatch]:
        try:
            yield from plain(rows, *where)
        except CorruptionError:
            stream.trim(0, 8)
            raise

    monkeypatch.setattr(RowReader, "_range", late)


@pytest.mark.usefixtures("trimmed_late")
def test_block_that_was_collected_under_a_task_is_told_as_removed_rows(endpoint: str, stream: laminar.Stream) -> None:
    remove_blocks(endpoint, 2)
    with pytest.raises(InvalidError, match=r"rows from offset \d to 7 were removed by retention"):
        read(reader(endpoint, stream, fail=True))


@pytest.mark.usefixtures("trimmed_late")
def test_task_that_may_do_without_goes_on_behind_a_collected_block(endpoint: str, stream: laminar.Stream) -> None:
    remove_blocks(endpoint, 2)
    assert read(reader(endpoint, stream, fail=False)) == [8, 9, 10, 11]


@pytest.mark.parametrize("fail", [True, False])
def test_block_that_is_missing_and_not_trimmed_stays_corruption(
    endpoint: str, stream: laminar.Stream, *, fail: bool
) -> None:
    remove_blocks(endpoint, 1)
    with pytest.raises(CorruptionError):
        read(reader(endpoint, stream, fail=fail))
