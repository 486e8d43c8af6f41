"""Streams through a real node: rows go in by every door and come out as they were."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from nodes import wait_until

import laminar
from laminar import InvalidError, Retention, StreamLimits

SCHEMA = pa.schema([pa.field("order", pa.int64(), nullable=False), ("item", pa.string()), ("price", pa.float64())])
ROWS: list[dict[str, Any]] = [{"order": n, "item": f"item {n}", "price": n / 2} for n in range(10)]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[laminar.Cluster]:
    with laminar.open(tmp_path / "data") as db:
        yield db


@pytest.fixture
def orders(db: laminar.Cluster) -> laminar.Stream:
    return db.create_stream("/shop/orders", partitions=4, schema=SCHEMA, key="order")


def _rows(stream: laminar.Stream, **how: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = stream.read(**how).read_all().to_pylist()
    return sorted(rows, key=lambda row: row["order"])


def _table() -> pa.Table:
    return pa.Table.from_pylist(ROWS, schema=SCHEMA)


def _pandas() -> Any:
    return pytest.importorskip("pandas").DataFrame(ROWS)


def _polars() -> Any:
    return pytest.importorskip("polars").DataFrame(ROWS)


INPUTS: dict[str, Any] = {
    "dicts": lambda: ROWS,
    "table": _table,
    "chunked table": lambda: pa.concat_tables([_table().slice(0, 3), _table().slice(3)]),
    "record batch": lambda: _table().combine_chunks().to_batches()[0],
    "record batch reader": lambda: _table().to_reader(max_chunksize=3),
    "narrower types": lambda: _table().set_column(0, "order", _table()["order"].cast(pa.int32())),
    "other order of columns": lambda: _table().select(["price", "order", "item"]),
    "pandas": _pandas,
    "polars": _polars,
}


@pytest.mark.parametrize("kind", INPUTS)
def test_rows_come_back_as_they_went_in(orders: laminar.Stream, kind: str) -> None:
    appended = orders.append(INPUTS[kind]())
    assert (appended.rows, appended.duplicate) == (10, False)
    assert appended.global_index > 0
    assert sum(end - first for first, end in appended.offsets.values()) == 10
    assert _rows(orders) == ROWS
    assert orders.offsets() == {p: appended.offsets.get(p, (0, 0)) for p in range(4)}


def test_rows_of_a_key_keep_their_order(orders: laminar.Stream) -> None:
    for n in range(20):
        orders.append([{"order": 7, "item": str(n), "price": None}])
    assert [row["item"] for row in orders.read().read_all().to_pylist()] == [str(n) for n in range(20)]


def test_rows_without_a_key_are_spread(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", partitions=3, schema=pa.schema({"n": pa.int64()}))
    for n in range(6):
        stream.append([{"n": n}])
    assert {end - start for start, end in stream.offsets().values()} == {2}


def test_nothing_appended_is_nothing_done(orders: laminar.Stream) -> None:
    assert orders.append([]) == laminar.Appended(0, 0, {})
    assert orders.read().read_all().num_rows == 0


def test_threads_append_side_by_side(orders: laminar.Stream) -> None:
    def append(thread: int) -> None:
        for n in range(25):
            orders.append([{"order": thread * 1000 + n}])

    threads = [threading.Thread(target=append, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [row["order"] for row in _rows(orders)]
    assert found == [thread * 1000 + n for thread in range(8) for n in range(25)]


def test_large_append_is_staged_and_comes_back(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "data", inline_bytes_max=64 << 10) as db:
        stream = db.create_stream(
            "/big", partitions=2, schema=pa.schema({"n": pa.int64(), "text": pa.string()}), key="n"
        )
        table = pa.table({"n": range(50_000), "text": [f"{n * 7919:x}" for n in range(50_000)]})
        assert stream.append(table).rows == 50_000
        assert stream.read().read_all().sort_by("n").to_pylist()[-1] == {"n": 49_999, "text": f"{49_999 * 7919:x}"}
        assert any((tmp_path / "data" / "objects").rglob("*"))


def test_columns_are_projected_and_places_are_told(orders: laminar.Stream) -> None:
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    orders.append(ROWS)
    reader = orders.read(columns=["item"], include_metadata=True)
    assert reader.schema.names == ["item", "_partition", "_offset", "_timestamp", "_epoch"]
    rows = reader.read_all().to_pylist()
    assert {(row["_partition"], row["_offset"]) for row in rows} == {
        (p, offset) for p, (start, end) in orders.offsets().items() for offset in range(start, end)
    }
    assert all(row["_timestamp"] > before and row["_epoch"] >= 1 for row in rows)


def test_batches_have_the_rows_that_are_asked_for(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", schema=pa.schema({"n": pa.int64()}))
    stream.append(pa.table({"n": range(100)}))
    assert [batch.num_rows for batch in stream.read(batch_rows=30)] == [30, 30, 30, 10]


def test_offsets_bound_what_is_read(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", partitions=2, schema=pa.schema({"n": pa.int64()}))
    for n in range(10):
        stream.append([{"n": n}])

    def count(**how: Any) -> int:
        rows: int = stream.read(**how).read_all().num_rows
        return rows

    assert count() == 10
    assert count(partitions=[1]) == 5
    assert count(start=2) == 6
    assert count(start=2, end=4) == 4
    assert count(start={0: 4}) == 6
    assert count(end={0: 0, 1: 1}) == 1
    assert count(start="latest") == 0
    with pytest.raises(InvalidError, match="ends at 5"):
        count(end=6)
    with pytest.raises(laminar.UnknownPartitionError, match="there is no partition 9"):
        count(partitions=[9])


def test_times_bound_what_is_read(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", schema=pa.schema({"n": pa.int64()}))
    stream.append([{"n": 1}])
    # The rows' own times tell where the border is: no clock of the test is needed.
    first = stream.read(include_metadata=True).read_all()["_timestamp"][0].as_py()
    wait_until("a row of a later millisecond", lambda: _later_row(stream, first))
    later = first + timedelta(milliseconds=1)
    rows = stream.read(start=later).read_all().to_pylist()
    assert {"n": 1} not in rows
    assert len(rows) >= 1
    assert {"n": 1} in stream.read(end=later).read_all().to_pylist()
    assert stream.read(start=later + timedelta(days=1)).read_all().num_rows == 0


def _later_row(stream: laminar.Stream, first: datetime) -> bool:
    stream.append([{"n": 2}])
    last: datetime = stream.read(include_metadata=True).read_all()["_timestamp"][-1].as_py()
    return last > first


def test_barrier_is_a_cut_of_all_partitions(orders: laminar.Stream) -> None:
    orders.append(ROWS)
    barrier = orders.barrier()
    orders.append([{"order": 99}])
    assert barrier.global_index > 0
    assert _rows(orders, at=barrier) == ROWS
    assert sum(end for _, end in orders.offsets(at=barrier).values()) == 10
    assert len(_rows(orders)) == 11


def test_follow_gives_rows_as_they_come(orders: laminar.Stream) -> None:
    orders.append([{"order": 1}])
    reader = orders.read(follow=True)
    assert reader.read_next_batch()["order"].to_pylist() == [1]
    appender = threading.Thread(target=orders.append, args=([{"order": 2}],))
    appender.start()
    assert reader.read_next_batch()["order"].to_pylist() == [2]
    appender.join()
    with pytest.raises(InvalidError, match="follow never ends"):
        orders.read(follow=True, end=3)


def test_bytes_are_carried_as_they_are(db: laminar.Cluster) -> None:
    stream = db.create_stream("/bytes", partitions=2)
    assert stream.is_bytes
    stream.append_bytes(1, [b"one", (b"key", b"two")])
    rows = stream.read(partitions=[1]).read_all().to_pylist()
    assert rows == [{"key": None, "value": b"one"}, {"key": b"key", "value": b"two"}]
    stream.append_bytes(None, [(b"a", b"1"), (b"b", b"2")])
    assert stream.read().read_all().num_rows == 4


def test_kv_keeps_the_newest_row_of_a_key(db: laminar.Cluster) -> None:
    stream = db.create_stream("/kv", partitions=3, schema=SCHEMA, key="order", machine="kv")
    stream.append(ROWS)
    stream.append([{"order": 3, "item": "new", "price": None}])
    assert stream.get(3) == {"order": 3, "item": "new", "price": None}
    assert stream.get({"order": 4}) == ROWS[4]
    assert stream.get(12345) is None
    table = stream.scan()
    assert table.schema.names == SCHEMA.names
    assert sorted(row["order"] for row in table.to_pylist()) == list(range(10))


def test_kv_of_several_key_columns(db: laminar.Cluster) -> None:
    schema = pa.schema([("shop", pa.string()), ("n", pa.int32()), ("value", pa.string())])
    stream = db.create_stream("/kv", partitions=2, schema=schema, key=["shop", "n"], machine="kv")
    stream.append([{"shop": "a", "n": 1, "value": "x"}, {"shop": "a", "n": 2, "value": "y"}])
    assert stream.get(("a", 2)) == {"shop": "a", "n": 2, "value": "y"}
    with pytest.raises(InvalidError, match="must have shop, n"):
        stream.get("a")


def test_kv_of_bytes(db: laminar.Cluster) -> None:
    stream = db.create_stream("/kv", partitions=2, machine="kv")
    stream.append_bytes(None, [(b"a", b"1"), (b"b", b"2")])
    stream.append_bytes(None, [(b"a", b"3"), (b"b", None)])
    assert (stream.get(b"a"), stream.get(b"b")) == (b"3", None)
    assert stream.scan().to_pylist() == [{"key": b"a", "value": b"3"}]


def test_get_of_a_log_says_what_it_needs(orders: laminar.Stream) -> None:
    with pytest.raises(InvalidError, match='needs machine "kv"'):
        orders.get(1)
    with pytest.raises(InvalidError, match='machine "kv"'):
        orders.scan()


WRONG: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "unknown column": ([{"order": 1, "itme": "x"}], "no column 'itme'; it has order, item, price", {"column": "itme"}),
    "wrong type": ([{"order": 1}, {"order": "x"}], "row 1, column 'order': 'x'", {"row": 1, "column": "order"}),
    "no dict": ([{"order": 1}, 7], "row 1 is of type int; it must be a dict", {"row": 1}),
    "null key": ([{"order": None}], "order", {}),
    "no rows at all": (7, "rows are of type int", {}),
    "column of another type": (pa.table({"order": ["x"]}), "order", {}),
    "missing column": (pa.table({"item": ["x"]}), "order", {}),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_rows_are_refused_and_nothing_lands(orders: laminar.Stream, kind: str) -> None:
    rows, message, fields = WRONG[kind]
    with pytest.raises(InvalidError, match=message) as raised:
        orders.append(rows)
    assert raised.value.stream == "/shop/orders"
    assert {name: getattr(raised.value, name) for name in fields} == fields
    assert orders.read().read_all().num_rows == 0


def test_limits_of_rows_hold(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", schema=pa.schema({"text": pa.string()}), limits=StreamLimits(row_bytes=1000))
    with pytest.raises(InvalidError, match="1000"):
        stream.append([{"text": "x" * 2000}])
    assert stream.append([{"text": "x" * 100}]).rows == 1
    assert stream.limits == StreamLimits(row_bytes=1000)


def test_naive_times_and_other_positions_are_refused(orders: laminar.Stream) -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - that is what is refused
    for wrong, message in [(naive, "no time zone"), ("never", "start is 'never'|must be earliest"), (1.5, "1.5")]:
        with pytest.raises(InvalidError, match=message):
            orders.read(start=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="columns"):
        orders.read(columns="item")
    with pytest.raises(InvalidError):
        orders.read(columns=["nothing"])


def test_catalogue(db: laminar.Cluster, orders: laminar.Stream) -> None:
    db.create_stream("/shop/returns", schema=SCHEMA)
    db.create_stream("/other")
    assert [stream.path for stream in db.streams("/shop/")] == ["/shop/orders", "/shop/returns"]
    found = db.stream("/shop/orders")
    assert (found.partitions, found.key, found.machine, found.retention) == (4, ["order"], "log", None)
    assert found.schema.equals(SCHEMA)
    assert found == orders
    db.drop_stream("/other")
    assert [stream.path for stream in db.streams()] == ["/shop/orders", "/shop/returns"]
    with pytest.raises(InvalidError, match="/other") as raised:
        db.stream("/other")
    assert raised.value.stream == "/other"


def test_created_again_is_another_stream(db: laminar.Cluster, orders: laminar.Stream) -> None:
    orders.append(ROWS)
    db.drop_stream("/shop/orders")
    again = db.create_stream("/shop/orders", partitions=4, schema=SCHEMA, key="order")
    assert again.stream_id != orders.stream_id
    assert again.read().read_all().num_rows == 0
    with pytest.raises(laminar.EpochError):
        orders.append(ROWS)


def test_exist_ok_returns_the_same_stream_only(db: laminar.Cluster, orders: laminar.Stream) -> None:
    same = db.create_stream("/shop/orders", partitions=4, schema=SCHEMA, key="order", exist_ok=True)
    assert same.stream_id == orders.stream_id
    with pytest.raises(InvalidError, match="another schema, key or machine"):
        db.create_stream("/shop/orders", schema=SCHEMA, key="item", exist_ok=True)
    with pytest.raises(InvalidError):
        db.create_stream("/shop/orders", schema=SCHEMA, key="order")


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "no slash"},
        {"path": ""},
        {"path": "/a", "partitions": 0},
        {"path": "/a", "partitions": "two"},
        {"path": "/a", "schema": SCHEMA, "key": "nothing"},
        {"path": "/a", "machine": "nobody", "schema": None},
        {"path": "/a", "schema": 7},
    ],
    ids=str,
)
def test_streams_that_cannot_be_are_refused(db: laminar.Cluster, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        db.create_stream(**wrong)
    assert db.streams() == []


def test_alter_adds_partitions_and_says_what_it_does_to_keys(orders: laminar.Stream) -> None:
    orders.append(ROWS)
    with pytest.warns(UserWarning, match="keys go to other partitions"):
        orders.alter(partitions=6)
    assert orders.partitions == 6
    orders.append([{"order": n} for n in range(100, 200)])
    assert len(orders.offsets()) == 6
    assert orders.read().read_all().num_rows == 110
    with pytest.raises(InvalidError):
        orders.alter(partitions=2)


def test_alter_of_retention_and_limits(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", retention=Retention(age=timedelta(days=1)))
    assert stream.retention == Retention(age=timedelta(days=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.alter(limits=StreamLimits(row_bytes=5000))
    assert (stream.retention, stream.limits.row_bytes) == (Retention(age=timedelta(days=1)), 5000)
    stream.alter(retention=None)
    assert stream.retention is None
    assert stream.limits.row_bytes == 5000
    wrong: list[dict[str, Any]] = [{"age": timedelta()}, {"bytes": 0}, {"age": 5}]
    for fields in wrong:
        with pytest.raises(InvalidError):
            Retention(**fields)


def test_trim_removes_the_oldest_rows(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", schema=pa.schema({"n": pa.int64()}))
    stream.append(pa.table({"n": range(10)}))
    assert stream.trim(0, 4) == 4
    assert stream.offsets() == {0: (4, 10)}
    assert stream.read().read_all()["n"].to_pylist() == list(range(4, 10))
    with pytest.raises(InvalidError):
        stream.read(start=2).read_all()


def test_retention_by_age_removes_the_oldest_rows(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "data", retention_interval=0.05) as db:
        stream = db.create_stream("/a", retention=Retention(age=timedelta(milliseconds=100)))
        kept = db.create_stream("/kept")
        for target in (stream, kept):
            target.append_bytes(0, [b"old"])
        wait_until("the row is removed", lambda: stream.offsets() == {0: (1, 1)})
        assert kept.offsets() == {0: (0, 1)}


def test_metadata_nodes_status_and_plan(db: laminar.Cluster, orders: laminar.Stream) -> None:
    orders.append(ROWS)
    for consistency in ("linearizable", "local"):
        metadata = db.metadata(consistency)
        assert [stream.path for stream in metadata.streams()] == ["/shop/orders"]
    with pytest.raises(InvalidError, match="consistency"):
        db.metadata("maybe")  # type: ignore[arg-type]
    status = db.status()
    assert (status.streams, status.partition_count, status.paused) == (1, 4, [])
    assert sum(partition.next_offset for partition in status.partitions) == 10
    assert {partition.stream for partition in status.partitions} == {"/shop/orders"}
    assert [node.role for node in db.nodes()] == ["server"]
    assert db.plan().moves == []
    db.snapshot()
    wait_until("both groups have a snapshot", lambda: _has_snapshots(db.status(partitions=False)))


def _has_snapshots(status: laminar.ClusterStatus) -> bool:
    return status.data_group.snapshot_index > 0 and status.metadata_group.snapshot_index > 0


def test_why_tells_who_owned_a_partition(db: laminar.Cluster, orders: laminar.Stream) -> None:
    with orders.writer("ingest", partitions=[2]), pytest.raises(laminar.NotOwnedError):
        orders.append([{"order": n} for n in range(100)])
    (story,) = db.why("/shop/orders", 2)
    assert (story.stream, story.partition) == ("/shop/orders", 2)
    assert "ingest" in [step.writer for step in story.steps]
    assert "writer ingest" in str(story)
    assert len(db.why("/shop/orders")) == 4
    with pytest.raises(InvalidError):
        db.why("/nothing")


def test_partition_that_is_named_twice_is_read_once(db: laminar.Cluster) -> None:
    stream = db.create_stream("/numbers", partitions=2, schema=pa.schema({"n": pa.int64()}), key="n")
    stream.append([{"n": n} for n in range(10)])
    once = stream.read([0]).read_all().num_rows
    assert stream.read([0, 0]).read_all().num_rows == once


def test_machine_that_the_node_does_not_have_is_refused_at_once(db: laminar.Cluster) -> None:
    with pytest.raises(InvalidError, match='the node has no machine "foo", it has log, kv; choose'):
        db.create_stream("/foo", schema=pa.schema({"n": pa.int64()}), machine="foo")
    assert db.streams() == []


def test_stream_with_dictionaries_may_exist_already(db: laminar.Cluster) -> None:
    names = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema({"k": pa.int64(), "name": names, "names": pa.list_(names), "view": pa.list_(pa.string_view())})
    db.create_stream("/names", schema=schema)
    assert db.create_stream("/names", schema=schema, exist_ok=True).schema.field("name").type == pa.string()
    with pytest.raises(InvalidError, match="another schema"):
        db.create_stream("/names", schema=pa.schema({"k": pa.int32()}), exist_ok=True)
