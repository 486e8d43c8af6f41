"""Ingest, replay and verify, on a local Spark."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nodes import wait_until

from laminar.errors import InvalidError, NotOwnedError
from laminar.spark.jobs import ingest, replay, verify
from laminar.spark.pipeline import Create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import laminar

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "amount": pa.float64()})


@pytest.fixture
def stream(db: laminar.Cluster) -> laminar.Stream:
    return db.create_stream("/a", 3, SCHEMA, key="id")


def rows(first: int, count: int) -> list[dict[str, object]]:
    return [{"id": first + i, "name": f"n{i}", "amount": i / 2} for i in range(count)]


def ids(stream: laminar.Stream) -> list[int]:
    return sorted(stream.read(columns=["id"]).read_all()["id"].to_pylist())


def write_file(path: Path, first: int, count: int) -> None:
    """A file of rows, of the kind that its name says, there at once."""
    path.parent.mkdir(exist_ok=True)
    table = pa.Table.from_pylist(rows(first, count), SCHEMA)
    hidden = path.with_name("." + path.name)
    if path.suffix == ".parquet":
        pq.write_table(table, hidden)
    elif path.suffix == ".csv":
        lines = [f"{row['amount']},{row['id']},{row['name']}" for row in table.to_pylist()]
        hidden.write_text("\n".join(["amount,id,name", *lines]) + "\n")
    else:
        hidden.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    hidden.rename(path)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_files_go_into_a_stream_with_its_types(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path, suffix: str
) -> None:
    write_file(tmp_path / f"in/a.{suffix}", 0, 40)
    write_file(tmp_path / f"in/b.{suffix}", 40, 2)
    done = ingest(str(tmp_path / "in"), "/a", endpoint=endpoint, spark=spark)
    assert (done.rows, done.duplicate) == (42, False)
    found = sorted(stream.read().read_all().to_pylist(), key=lambda row: row["id"])
    assert found == sorted(rows(0, 40) + rows(40, 2), key=lambda row: int(str(row["id"])))


def test_stream_is_made_with_the_columns_of_the_file(
    spark: SparkSession, endpoint: str, db: laminar.Cluster, tmp_path: Path
) -> None:
    write_file(tmp_path / "a.csv", 0, 10)
    create = Create(partitions=2, key=("id",))
    ingest(str(tmp_path / "a.csv"), "/new", endpoint=endpoint, create=create, spark=spark)
    ingest(str(tmp_path / "a.csv"), "/new", endpoint=endpoint, create=create, spark=spark)
    made = db.stream("/new")
    assert (made.partitions, made.key, made.schema.names) == (2, ["id"], ["amount", "id", "name"])
    assert made.schema.field("amount").type == pa.float64()
    assert ids(made) == sorted([*range(10), *range(10)])


def test_same_transaction_lands_once(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    write_file(tmp_path / "a.parquet", 0, 10)
    source = str(tmp_path / "a.parquet")
    assert not ingest(source, "/a", endpoint=endpoint, txn_id="load-1", spark=spark).duplicate
    again = ingest(source, "/a", endpoint=endpoint, txn_id="load-1", spark=spark)
    assert (again.duplicate, again.rows) == (True, 0)
    assert ids(stream) == list(range(10))
    ingest(source, "/a", endpoint=endpoint, txn_id="load-2", spark=spark)
    assert len(ids(stream)) == 20


def test_value_that_is_not_of_the_type_ends_the_job_and_nothing_lands(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,name,amount\n1,x,1.5\nseven,y,2.5\n")
    with pytest.raises(InvalidError, match="seven"):
        ingest(str(tmp_path / "a.csv"), "/a", endpoint=endpoint, spark=spark)
    (tmp_path / "b.jsonl").write_text('{"id": 1}\n{"id": \n')
    with pytest.raises(InvalidError) as error:
        ingest(str(tmp_path / "b.jsonl"), "/a", endpoint=endpoint, spark=spark)
    assert "\n" not in str(error.value)
    assert ids(stream) == []


def test_column_that_the_stream_does_not_have_is_refused_with_the_nearest(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,nane\n1,x\n")
    with pytest.raises(InvalidError, match="name") as error:
        ingest(str(tmp_path / "a.csv"), "/a", endpoint=endpoint, spark=spark)
    assert "nane" in str(error.value)
    assert "\n" not in str(error.value)
    assert ids(stream) == []


def test_connector_that_is_not_there_is_told_in_one_line(
    spark: SparkSession, endpoint: str, stream: laminar.Stream
) -> None:
    with pytest.raises(InvalidError, match="kafka") as error:
        ingest(
            "orders",
            "/a",
            endpoint=endpoint,
            format="kafka",
            options={"kafka.bootstrap.servers": "127.0.0.1:1"},
            spark=spark,
        )
    assert "\n" not in str(error.value)
    assert ids(stream) == []


#: Follows a folder until it is told to stop, as the command does.
FOLLOWS = [sys.executable, "-m", "laminar", "ingest"]


def test_following_goes_on_after_a_kill_and_stops_by_a_signal(
    endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    write_file(tmp_path / "in/1.parquet", 0, 30)
    command = [*FOLLOWS, str(tmp_path / "in"), "/a", "--follow", "--checkpoint", str(tmp_path / "checkpoint")]
    command += ["--master", "local[2]", "--at", endpoint, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        wait_until("the first rows are there", lambda: len(ids(stream)) == 30, timeout=60)
        first.kill()
    write_file(tmp_path / "in/2.parquet", 30, 30)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as second:
        wait_until("the second rows are there", lambda: len(ids(stream)) == 60, timeout=60)
        second.send_signal(signal.SIGINT)
        out, err = second.communicate(timeout=40)
    assert second.returncode == 0, err
    assert json.loads(out)["stream"] == "/a"
    assert err == ""
    assert ids(stream) == list(range(60))
    # One that stopped as it should gave the stream back.
    assert stream.append(rows(60, 1)).rows == 1


def test_replay_derives_a_stream_and_a_second_run_adds_what_is_new(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    stream.append(rows(0, 100))
    sql = "select id, upper(name) as name from input where id % 2 = 0"
    create = Create(partitions=2, key=("id",))

    def run() -> tuple[int, int]:
        checkpoint = str(tmp_path / "checkpoint")
        done = replay("/a", "/b", endpoint=endpoint, checkpoint=checkpoint, sql=sql, create=create, spark=spark)
        return done.rows_read, done.rows_written

    assert run() == (100, 50)
    derived = stream.cluster.stream("/b")
    assert ids(derived) == list(range(0, 100, 2))
    assert set(derived.read().read_all()["name"].to_pylist()) == {f"N{i}" for i in range(0, 100, 2)}
    assert run() == (0, 0)
    stream.append(rows(100, 10))
    assert run() == (10, 5)
    assert ids(derived) == list(range(0, 110, 2))


def test_replay_that_writes_no_row_gives_the_stream_back(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    stream.append(rows(0, 20))
    checkpoint = str(tmp_path / "checkpoint")
    sql = "select * from input where id < 0"
    replay("/a", "/b", endpoint=endpoint, checkpoint=checkpoint, sql=sql, create=Create(), spark=spark)
    derived = stream.cluster.stream("/b")
    assert derived.append(rows(0, 1)).rows == 1


def test_replay_begins_where_it_is_told(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    stream.append(rows(0, 20))
    offsets = {str(partition): end for partition, (_, end) in stream.offsets().items()}
    stream.append(rows(20, 5))
    create = Create()
    for number, start in enumerate([json.dumps(offsets), "2000-01-01T00:00:00Z", "2999-01-01"]):
        replay(
            "/a",
            f"/b{number}",
            endpoint=endpoint,
            checkpoint=str(tmp_path / str(number)),
            start=start,
            create=create,
            spark=spark,
        )
    found = [ids(stream.cluster.stream(f"/b{number}")) for number in range(3)]
    assert found == [list(range(20, 25)), list(range(25)), []]


def test_replay_without_its_checkpoint_is_refused_and_writes_nothing_twice(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    stream.append(rows(0, 20))
    create = Create()
    replay("/a", "/b", endpoint=endpoint, checkpoint=str(tmp_path / "one"), create=create, spark=spark)
    with pytest.raises(InvalidError, match="adoptQuery"):
        replay("/a", "/b", endpoint=endpoint, checkpoint=str(tmp_path / "two"), create=create, spark=spark)
    assert ids(stream.cluster.stream("/b")) == list(range(20))
    stream.append(rows(20, 5))
    start = json.dumps({str(partition): end for partition, (_, end) in stream.offsets().items()})
    checkpoint = str(tmp_path / "three")
    replay("/a", "/b", endpoint=endpoint, checkpoint=checkpoint, start=start, adopt_query=True, spark=spark)
    stream.append(rows(25, 5))
    replay("/a", "/b", endpoint=endpoint, checkpoint=checkpoint, spark=spark)
    assert ids(stream.cluster.stream("/b")) == [*range(20), *range(25, 30)]


@pytest.mark.parametrize(
    "wrong",
    [
        ("selct 1", "selct"),
        ("select no_such from input", "no_such"),
        ("select * from inputs", "inputs"),
        ("select name, count(*) as n from input group by name", "watermark"),
    ],
    ids=lambda wrong: wrong[1],
)
def test_wrong_sql_is_told_in_one_line(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path, wrong: tuple[str, str]
) -> None:
    sql, said = wrong
    stream.append(rows(0, 2))
    with pytest.raises(InvalidError, match=said) as error:
        replay("/a", "/b", endpoint=endpoint, checkpoint=str(tmp_path), sql=sql, create=Create(), spark=spark)
    assert "\n" not in str(error.value)


def test_replay_into_itself_is_refused(endpoint: str, stream: laminar.Stream, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="is to be replayed into itself"):
        replay(stream.path, stream.path, endpoint=endpoint, checkpoint=str(tmp_path))


def test_ingest_without_a_name_is_refused_while_a_writer_holds_the_stream(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    write_file(tmp_path / "a.parquet", 0, 5)
    with stream.writer("other"), pytest.raises(NotOwnedError, match="other"):
        ingest(str(tmp_path / "a.parquet"), "/a", endpoint=endpoint, spark=spark)
    assert ids(stream) == []


def test_sound_stream_is_verified_whole_while_others_write(
    spark: SparkSession, endpoint: str, stream: laminar.Stream
) -> None:
    for number in range(5):
        stream.append(rows(100 * number, 100))
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            stream.append(rows(0, 10))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = verify("/a", endpoint=endpoint, rows_per_split=70, spark=spark)
    finally:
        ended.set()
        writer.join()
    assert done.fault is None
    assert [one.partition for one in done.partitions] == [0, 1, 2]
    assert sum(one.rows for one in done.partitions) >= 500
    assert all(one.rows == one.end - one.start and one.misplaced == 0 for one in done.partitions)


def test_empty_stream_is_sound(spark: SparkSession, endpoint: str, stream: laminar.Stream) -> None:
    done = verify(stream.path, endpoint=endpoint, spark=spark)
    assert (done.fault, [one.rows for one in done.partitions]) == (None, [0, 0, 0])


def test_damaged_block_is_the_first_bad_place(spark: SparkSession, endpoint: str, db: laminar.Cluster) -> None:
    stream = db.create_stream("/large", 1, pa.schema({"data": pa.binary()}))
    stream.append([{"data": b"small"}])
    # Above what an entry may carry: staged as a block.
    chance = random.Random(7)  # noqa: S311 - bytes that do not compress
    stream.append([{"data": chance.randbytes(1_000_000)} for _ in range(8)])
    blocks = [
        path for path in Path(endpoint, "objects").rglob("*") if path.is_file() and path.stat().st_size > 4_000_000
    ]
    assert len(blocks) == 1
    content = bytearray(blocks[0].read_bytes())
    content[len(content) // 2] ^= 1
    blocks[0].write_bytes(content)
    done = verify("/large", endpoint=endpoint, spark=spark)
    assert done.fault is not None
    assert (done.fault.partition, done.fault.offset) == (0, 1)
