"""Consistent cuts and verification as the Spark source and the jobs call them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import laminar
from laminar import InvalidError, _native

SCHEMA = pa.schema([pa.field("order", pa.int64(), nullable=False), ("item", pa.string())])


@pytest.fixture
def db(tmp_path: Path) -> Iterator[laminar.Cluster]:
    with laminar.open(tmp_path / "data", inline_bytes_max=4096) as db:
        yield db


@pytest.fixture
def orders(db: laminar.Cluster) -> laminar.Stream:
    return db.create_stream("/shop/orders", partitions=4, schema=SCHEMA, key="order")


def _native_of(stream: laminar.Stream) -> _native.Stream:
    return stream._native


def _append(stream: laminar.Stream, orders: range) -> None:
    stream.append([{"order": n, "item": f"item {n}"} for n in orders])


def test_a_cut_without_limits_is_the_offsets_at_its_index(orders: laminar.Stream) -> None:
    native = _native_of(orders)
    _append(orders, range(100))
    cut = native.cut({})
    assert cut["ends"] == {p: end for p, (_, end) in orders.offsets(at=cut["global_index"]).items()}
    assert (cut["rows"], cut["complete"], cut["bytes"]) == (100, True, None)
    assert cut["starts"] == dict.fromkeys(range(4), 0)
    _append(orders, range(100, 110))
    assert native.cut({}, at=cut["global_index"])["ends"] == cut["ends"]
    assert native.cut(cut["ends"])["rows"] == 10


@pytest.mark.parametrize("limit", [{"rows_max": 25}, {"bytes_max": 2000}, {"rows_max": 25, "bytes_max": 2000}])
def test_chained_cuts_read_whole_commits_and_everything_once(orders: laminar.Stream, limit: dict[str, int]) -> None:
    native = _native_of(orders)
    for commit in range(20):
        _append(orders, range(commit * 10, commit * 10 + 10))
    start: dict[int, int] = {}
    seen: list[int] = []
    complete = False
    while not complete:
        cut = native.cut(start, **limit)
        rows = orders.read(start=start or "earliest", end=cut["ends"]).read_all()["order"].to_pylist()
        assert len(rows) == cut["rows"]
        assert len(rows) % 10 == 0
        assert len(rows) <= limit.get("rows_max", 200) or len(rows) == 10
        assert cut["bytes"] is None or cut["bytes"] <= limit["bytes_max"] or len(rows) == 10
        seen += rows
        start, complete = cut["ends"], cut["complete"]
    assert sorted(seen) == list(range(200))


def test_a_start_beyond_the_end_names_partition_offset_and_end(orders: laminar.Stream) -> None:
    _append(orders, range(10))
    end = orders.offsets()[2][1]
    with pytest.raises(InvalidError, match=f"partition 2: cut refused, it is to begin at offset {end + 5}") as refused:
        _native_of(orders).cut({2: end + 5})
    assert refused.value.partition == 2


@pytest.mark.parametrize("bad", [{"rows_max": 0}, {"bytes_max": -1}, {"at": "now"}])
def test_bad_limits_are_refused(orders: laminar.Stream, bad: dict[str, int]) -> None:
    with pytest.raises(InvalidError, match="must be a whole number"):
        _native_of(orders).cut({}, **bad)


def test_offsets_for_a_time_are_the_first_row_at_it_or_the_end(orders: laminar.Stream) -> None:
    _append(orders, range(100))
    native = _native_of(orders)
    assert native.offsets_for_time(0) == dict.fromkeys(range(4), 0)
    ends = {p: end for p, (_, end) in orders.offsets().items()}
    assert native.offsets_for_time(2**53) == ends


def test_verify_tells_what_is_there_and_the_first_fault(orders: laminar.Stream, tmp_path: Path) -> None:
    native = _native_of(orders)
    _append(orders, range(10))
    _append(orders, range(10, 2000))
    found = [native.verify(p, 0) for p in range(4)]
    assert sum(part["rows"] for part in found) == 2000
    assert {part["blocks"] for part in found} == {1}
    assert [(part["fault"], part["misplaced"]) for part in found] == [(None, 0)] * 4
    assert all(part["first_epoch"] == part["last_epoch"] > 0 for part in found)
    with pytest.raises(InvalidError, match="ask for less"):
        native.verify(0, 0, 10**9)

    max((tmp_path / "data" / "objects").rglob("*"), key=lambda path: path.stat().st_size * path.is_file()).unlink()
    small = native.verify(1, 0)
    assert small["fault"]["offset"] == small["rows"]
    assert "is not there" in small["fault"]["what"]
