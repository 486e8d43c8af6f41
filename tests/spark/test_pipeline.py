"""Pipelines that run: each row in the right output, once, through kills and restarts."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nodes import wait_until
from pyspark.errors import PySparkException

import laminar
from laminar.errors import InvalidError, StaleEpochError
from laminar.spark.fence import Transaction
from laminar.spark.pipeline import (
    Check,
    Create,
    FilesSource,
    ParquetSink,
    Pipeline,
    PipelineFile,
    PythonTransform,
    RateSource,
    SqlTransform,
    StreamSink,
    load,
    run,
)
from laminar.spark.pipeline.folders import writing
from spark.conftest import end_node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from laminar.spark.pipeline import Ran

DOCS = Path(__file__).parent.parent.parent / "docs" / "pipelines.md"
SCHEMA = "id long, customer string, amount double"


def put(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """A file of JSON lines, there at once."""
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / f".{name}").rename(folder / name)


def orders(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": first + i, "customer": f"C{i % 3}", "amount": float(i)} for i in range(count)]


def ids(db: laminar.Cluster, path: str) -> list[int]:
    return sorted(db.stream(path).read(columns=["id"]).read_all()["id"].to_pylist())


def one_pipeline(tmp_path: Path, endpoint: str, **fields: Any) -> PipelineFile:
    sinks = fields.pop("sinks", (StreamSink(input="raw", stream="/out", create=Create(partitions=2, key=("id",))),))
    pipeline = Pipeline(
        name="orders",
        sources=(FilesSource(name="raw", path=str(tmp_path / "in"), format="json", schema=SCHEMA),),
        sinks=sinks,
        **{"once": True, **fields},
    )
    return PipelineFile(pipelines=(pipeline,), endpoint=endpoint, checkpoints=str(tmp_path / "checkpoints"))


def test_example_of_the_documentation_runs_and_a_second_run_adds_what_is_new(
    spark: SparkSession, endpoint: str, db: laminar.Cluster, tmp_path: Path
) -> None:
    found = re.search(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "pipeline.toml").write_text(found[1])
    rows: list[dict[str, Any]] = [
        {"id": 1, "customer": " Ann ", "amount": 5.0},
        {"id": 2, "customer": " ", "amount": 7.0},
        {"id": 3, "customer": None, "amount": 7.0},
        {"id": 4, "customer": "Bob", "amount": 0.0},
        {"id": 5, "customer": "Bob", "amount": 500.0},
    ]
    put(tmp_path / "landing", "1.json", rows)
    file = load(tmp_path / "pipeline.toml")
    assert file.endpoint == endpoint
    run(file, spark=spark)
    assert ids(db, "/shop/orders") == [1, 5]
    rejected = db.stream("/shop/rejected").read().read_all().to_pylist()
    assert sorted((row["id"], row["_check"]) for row in rejected) == [(2, "has_customer"), (3, "has_customer")]
    put(tmp_path / "landing", "2.json", [{"id": 6, "customer": "ann", "amount": 100.0}])
    run(file, spark=spark)
    # The second pipeline may have begun before the first had written.
    run(load(tmp_path / "pipeline.toml", only=["totals"]), spark=spark)
    assert ids(db, "/shop/orders") == [1, 5, 6]
    assert ids(db, "/shop/rejected") == [2, 3]
    assert db.stream("/shop/large").get("ann") == {"id": 6, "customer": "ann", "amount": 100.0}
    assert db.stream("/shop/large").get("bob") == {"id": 5, "customer": "bob", "amount": 500.0}


def test_summary_counts_what_was_read_and_written(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", orders(0, 10))
    check = Check(name="large", on="raw", expect="amount >= 4")
    done = run(one_pipeline(tmp_path, endpoint, checks=(check,)), spark=spark)
    (output,) = done.outputs
    assert (output.pipeline, output.target, output.rows_read, output.rows_written) == ("orders", "/out", 10, 6)
    assert not done.stopped


def add_one(frame: DataFrame) -> DataFrame:
    return frame.withColumn("amount", frame.amount + 1)


def test_python_and_sql_transforms_read_each_other_and_what_passed(
    spark: SparkSession, endpoint: str, db: laminar.Cluster, tmp_path: Path
) -> None:
    put(tmp_path / "in", "1.json", orders(0, 10))
    file = one_pipeline(
        tmp_path,
        endpoint,
        transforms=(
            SqlTransform(name="doubled", inputs=("added",), sql="select id, amount * 2 as amount from added"),
            PythonTransform(name="added", inputs=("raw",), python=add_one),
        ),
        checks=(
            Check(name="even", on="raw", expect="id % 2 = 0"),
            Check(name="big", on="doubled", expect="amount > 4"),
        ),
        sinks=(StreamSink(input="doubled", stream="/out", create=Create()),),
    )
    run(file, spark=spark)
    found = {row["id"]: row["amount"] for row in db.stream("/out").read().read_all().to_pylist()}
    assert found == {2: 6.0, 4: 10.0, 6: 14.0, 8: 18.0}


def test_function_of_a_module_beside_the_file_also_runs_in_the_workers(
    spark: SparkSession, endpoint: str, db: laminar.Cluster, tmp_path: Path
) -> None:
    put(tmp_path / "in", "1.json", orders(0, 4))
    (tmp_path / "rules_beside.py").write_text(
        "from pyspark.sql.functions import udf\n\n"
        "def shout(text):\n    return text + '!'\n\n"
        "def clean(frame):\n    return frame.withColumn('customer', udf(shout)('customer'))\n"
    )
    (tmp_path / "pipeline.toml").write_text(
        f"""
        endpoint = "{endpoint}"
        [[pipeline]]
        name = "orders"
        once = true
        source = [{{ name = "raw", kind = "files", path = "in", format = "json", schema = "{SCHEMA}" }}]
        transform = [{{ name = "clean", inputs = ["raw"], python = "rules_beside:clean" }}]
        sink = [{{ input = "clean", stream = "/out", create = {{}} }}]
        """
    )
    run(load(tmp_path / "pipeline.toml"), spark=spark)
    assert set(db.stream("/out").read().read_all()["customer"].to_pylist()) == {"C0!", "C1!", "C2!"}


def test_check_that_fails_ends_the_pipeline_with_the_row_and_nothing_of_the_batch(
    spark: SparkSession, endpoint: str, db: laminar.Cluster, tmp_path: Path
) -> None:
    put(tmp_path / "in", "1.json", orders(0, 10))
    checks = (
        Check(name="odd", on="raw", expect="id % 2 = 0", otherwise="quarantine", to="/odd", create=Create()),
        Check(name="small", on="raw", expect="amount < 8", otherwise="fail"),
    )
    file = one_pipeline(tmp_path, endpoint, checks=checks)
    with pytest.raises(InvalidError, match="check small failed: amount < 8 is not true") as error:
        run(file, spark=spark)
    assert '"id":8' in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("pipeline orders, /")
    assert ids(db, "/out") == []
    assert ids(db, "/odd") == []


def test_streams_of_the_same_name_on_two_clusters_are_written_both(
    spark: SparkSession, endpoint: str, db: laminar.Cluster, tmp_path: Path
) -> None:
    put(tmp_path / "in", "1.json", orders(0, 5))
    other = tmp_path / "other"
    laminar.open(other, detached=True, client_timeout=60.0).close()
    sinks = [StreamSink(input="raw", stream="/out", endpoint=one, create=Create()) for one in (endpoint, str(other))]
    try:
        run(one_pipeline(tmp_path, endpoint, sinks=sinks), spark=spark)
        with laminar.connect(other) as second:
            assert ids(second, "/out") == ids(db, "/out") == list(range(5))
    finally:
        end_node(other)


def test_csv_with_its_columns_in_another_order_ends_the_pipeline(
    spark: SparkSession, endpoint: str, db: laminar.Cluster, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("name,id\n5,7\n")
    pipeline = Pipeline(
        name="orders",
        sources=(FilesSource(name="raw", path=str(tmp_path / "in"), format="csv", schema="id long, name string"),),
        sinks=(StreamSink(input="raw", stream="/out", create=Create()),),
        once=True,
    )
    file = PipelineFile(pipelines=(pipeline,), endpoint=endpoint, checkpoints=str(tmp_path / "checkpoints"))
    with pytest.raises(InvalidError, match="its header has the columns name, id, and id, name are expected"):
        run(file, spark=spark)
    assert ids(db, "/out") == []


def test_parquet_sink_has_each_batch_once_also_if_spark_forgot_it(
    spark: SparkSession, endpoint: str, tmp_path: Path
) -> None:
    folder = tmp_path / "table"
    sink = ParquetSink(input="raw", path=str(folder), fence="/fences/table")
    file = one_pipeline(tmp_path, endpoint, sinks=(sink,))

    def there() -> list[int]:
        files = [path for path in folder.rglob("*.parquet") if "_writing" not in path.parts]
        return sorted(id_ for path in files for id_ in pq.ParquetFile(path).read()["id"].to_pylist())

    put(tmp_path / "in", "1.json", orders(0, 10))
    run(file, spark=spark)
    put(tmp_path / "in", "2.json", orders(10, 10))
    run(file, spark=spark)
    assert there() == list(range(20))
    # As after a crash between the commit and Spark's own note of it: the batch is given again.
    (checkpoint,) = (tmp_path / "checkpoints/orders").iterdir()
    for note in (checkpoint / "commits").glob("*1*"):
        note.unlink()
    run(file, spark=spark)
    assert there() == list(range(20))
    assert spark.read.parquet(str(folder)).count() == 20


def test_parquet_batch_that_two_runs_write_at_once_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    write = writing(ParquetSink(input="raw", path=str(tmp_path / "table"), fence="/fence"))
    # Both look before either has written, as a run that was paused inside the write and its successor.
    runs = [
        threading.Thread(target=write, args=(spark.range(10), 4, Transaction("/fence/orders/query", 4, epoch)))
        for epoch in (7, 8)
    ]
    for run_ in runs:
        run_.start()
    for run_ in runs:
        run_.join()
    (batch,) = (tmp_path / "table/query=query").iterdir()
    assert batch.name == "batch=0000000004"
    assert spark.read.parquet(str(batch)).count() == 10
    assert list((tmp_path / "table/_writing").iterdir()) == []


def test_parquet_sink_removes_what_killed_runs_left_of_batches_that_are_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    hidden = tmp_path / "table/_writing"
    # Of this batch by an earlier run; of one that is not there; by a later run; of another query.
    left = {name: hidden / name for name in ("q.4.6.aa", "q.5.6.aa", "q.4.8.aa", "other.4.6.aa")}
    for folder in left.values():
        folder.mkdir(parents=True)
        (folder / "part.parquet").write_bytes(b"half a file")
    write = writing(ParquetSink(input="raw", path=str(tmp_path / "table"), fence="/fence"))
    write(spark.range(10), 4, Transaction("/fence/orders/q", 4, 7))
    assert sorted(folder.name for folder in hidden.iterdir()) == ["other.4.6.aa", "q.4.8.aa", "q.5.6.aa"]
    write(spark.range(10), 5, Transaction("/fence/orders/q", 5, 9))
    assert [folder.name for folder in hidden.iterdir()] == ["other.4.6.aa"]
    assert spark.read.parquet(str(tmp_path / "table")).count() == 20


def test_parquet_batch_that_cannot_be_written_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write = writing(ParquetSink(input="raw", path=str(tmp_path / "table"), fence="/fence"))
    with pytest.raises(PySparkException):
        write(spark.range(10).selectExpr("assert_true(id < 5)"), 4, Transaction("/fence/orders/q", 4, 7))
    assert list(tmp_path.glob("table/*/*")) == []


def test_deleted_checkpoint_is_refused_until_it_is_allowed(
    spark: SparkSession, endpoint: str, db: laminar.Cluster, tmp_path: Path
) -> None:
    put(tmp_path / "in", "1.json", orders(0, 3))
    run(one_pipeline(tmp_path, endpoint), spark=spark)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(InvalidError, match="adoptQuery"):
        run(one_pipeline(tmp_path, endpoint), spark=spark)
    assert ids(db, "/out") == [0, 1, 2]
    shutil.rmtree(tmp_path / "checkpoints")
    again = StreamSink(input="raw", stream="/out", adopt_query=True)
    run(one_pipeline(tmp_path, endpoint, sinks=(again,)), spark=spark)
    assert ids(db, "/out") == [0, 0, 1, 1, 2, 2]


def test_deleted_checkpoint_with_a_quarantine_goes_on_where_both_allow_it(
    spark: SparkSession, endpoint: str, db: laminar.Cluster, tmp_path: Path
) -> None:
    put(tmp_path / "in", "1.json", orders(0, 4))

    def once(*, adopt: bool) -> None:
        sink = StreamSink(input="raw", stream="/out", create=Create(), adopt_query=adopt)
        aside = Check(
            name="odd",
            on="raw",
            expect="id % 2 = 0",
            otherwise="quarantine",
            to="/odd",
            create=Create(),
            adopt_query=adopt,
        )
        run(one_pipeline(tmp_path, endpoint, sinks=(sink,), checks=(aside,)), spark=spark)

    once(adopt=False)
    shutil.rmtree(tmp_path / "checkpoints")
    once(adopt=True)
    assert ids(db, "/odd") == [1, 1, 3, 3]


def test_wrong_sql_of_one_pipeline_leaves_no_query_running(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", orders(0, 3))
    good = one_pipeline(tmp_path, endpoint, once=False).pipelines[0]
    bad = Pipeline(
        name="bad",
        sources=(RateSource(name="raw"),),
        transforms=(SqlTransform(name="wrong", inputs=("raw",), sql="select no_such from raw"),),
        sinks=(StreamSink(input="wrong", stream="/other", create=Create()),),
    )
    file = PipelineFile(pipelines=(good, bad), endpoint=endpoint, checkpoints=str(tmp_path / "checkpoints"))
    with pytest.raises(InvalidError, match="no_such"):
        run(file, spark=spark)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("laminar-")] == []


def test_run_whose_output_another_writer_claims_ends_with_who_it_was(
    spark: SparkSession, endpoint: str, db: laminar.Cluster, tmp_path: Path
) -> None:
    put(tmp_path / "in", "1.json", orders(0, 10))
    schema = pa.schema({"id": pa.int64(), "customer": pa.string(), "amount": pa.float64()})
    out = db.create_stream("/out", 2, schema, key="id")
    file = one_pipeline(tmp_path, endpoint, once=False)
    ended: list[Ran | BaseException] = []

    def follow() -> None:
        try:
            ended.append(run(file, spark=spark))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            ended.append(error)

    first = threading.Thread(target=follow)
    first.start()
    wait_until("the first run writes", lambda: ended or _rows(db, "/out") == 10, timeout=60)
    assert ended == []
    with out.writer("somebody-else"):
        put(tmp_path / "in", "2.json", orders(10, 10))
        first.join(60)
    assert isinstance(ended[0], StaleEpochError)
    assert "somebody-else" in str(ended[0])
    assert ids(db, "/out") == list(range(10))


def _rows(db: laminar.Cluster, path: str) -> int:
    there = [stream for stream in db.streams(path) if stream.path == path]
    return sum(end for stream in there for _, end in stream.offsets().values())


def test_command_goes_on_after_a_kill_and_stops_by_a_signal(endpoint: str, db: laminar.Cluster, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(
        f"""
        [[pipeline]]
        name = "orders"
        source = [{{ name = "raw", kind = "files", path = "in", format = "json", schema = "{SCHEMA}" }}]
        [[pipeline.check]]
        name = "even"
        on = "raw"
        expect = "id % 2 = 0"
        otherwise = "quarantine"
        to = "/odd"
        create = {{}}
        [[pipeline.sink]]
        input = "raw"
        stream = "/even"
        create = {{ partitions = 2, key = ["id"] }}
        """
    )
    command = [sys.executable, "-m", "laminar", "run", str(tmp_path / "pipeline.toml"), "--at", endpoint, "--json"]
    command += ["--master", "local[2]"]

    def written() -> int:
        return _rows(db, "/even") + _rows(db, "/odd")

    put(tmp_path / "in", "1.json", orders(0, 30))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        wait_until("some rows are there", written, timeout=60)
        first.kill()
    put(tmp_path / "in", "2.json", orders(30, 30))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as second:
        wait_until("all rows are there", lambda: written() >= 60, timeout=60)
        second.send_signal(signal.SIGINT)
        out, err = second.communicate(timeout=40)
    assert second.returncode == 0, err
    assert err == ""
    assert json.loads(out)["stopped"] is True
    assert ids(db, "/even") == list(range(0, 60, 2))
    assert ids(db, "/odd") == list(range(1, 60, 2))
