"""Values and columns of files on their way into a stream: as they are, or the job ends."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nodes import wait_until

import laminar
from laminar.errors import InvalidError
from laminar.spark.jobs import ingest
from laminar.spark.jobs.work import failure
from laminar.spark.pipeline import Create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSI = "spark.sql.ansi.enabled"
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "small": pa.int8(),
        "price": pa.decimal128(5, 2),
        "large": pa.decimal128(38, 4),
        "count": pa.uint64(),
        "ratio": pa.float32(),
        "day": pa.date32(),
        "local": pa.timestamp("us"),
        "time": pa.timestamp("us", "UTC"),
    }
)


@pytest.fixture
def stream(endpoint: str) -> Iterator[laminar.Stream]:
    with laminar.connect(Path(endpoint)) as db:
        yield db.create_stream("/a", 1, SCHEMA)


def rows(stream: laminar.Stream) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stream.read().read_all().to_pylist()
    return found


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_text_is_told_exactly_in_the_types_of_the_stream(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path, suffix: str
) -> None:
    given = {
        "id": "7",
        "small": "-128",
        "price": "1.230",
        "large": "12345678901234567890123456789.0001",
        "count": "18446744073709551615",
        "ratio": "0.5",
        "day": "2026-01-31",
        "local": "2026-01-31T12:30:00.123456",
        "time": "2026-01-31T12:30:00+02:00",
    }
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        path.write_text(",".join(given) + "\n" + ",".join(given.values()) + "\n")
    else:
        # Numbers as numbers, with all their digits.
        numbers = ("id", "small", "price", "large", "count", "ratio")
        texts = {name: text if name in numbers else json.dumps(text) for name, text in given.items()}
        path.write_text("{" + ", ".join(f'"{name}": {text}' for name, text in texts.items()) + "}\n")
    ingest(str(path), "/a", endpoint=endpoint, spark=spark)
    local = dt.datetime(2026, 1, 31, 12, 30, 0, 123456)  # noqa: DTZ001 - the stream has it without a zone
    assert rows(stream) == [
        {
            "id": 7,
            "small": -128,
            "price": Decimal("1.23"),
            "large": Decimal("12345678901234567890123456789.0001"),
            "count": 18446744073709551615,
            "ratio": 0.5,
            "day": dt.date(2026, 1, 31),
            "local": local,
            "time": dt.datetime(2026, 1, 31, 10, 30, tzinfo=dt.timezone.utc),
        }
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        ("id", "seven"),
        ("id", "1.7"),
        ("small", "128"),
        ("price", "1.239"),
        ("price", "12.5e-4"),
        ("price", "1000.00"),
        ("large", "0.00001"),
        ("count", "1.5"),
        ("ratio", "1e39"),
        ("day", "2026-01-31 12:30"),
        ("local", "2026-01-31T12:30:00Z"),
        ("time", "12:30:00"),
        ("time", "2026-01-31T12:30:00.1234567Z"),
    ],
    ids=":".join,
)
def test_text_that_would_become_null_or_another_value_ends_the_job(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path, wrong: tuple[str, str]
) -> None:
    column, text = wrong
    (tmp_path / "a.csv").write_text(f"{column}\n{text}\n")
    before = spark.conf.get(ANSI)
    for ansi in ("true", "false"):
        spark.conf.set(ANSI, ansi)
        try:
            with pytest.raises(InvalidError, match=f"column {column}: ") as error:
                ingest(str(tmp_path / "a.csv"), "/a", endpoint=endpoint, spark=spark)
        finally:
            spark.conf.set(ANSI, str(before))
        assert text in str(error.value)
        assert "\n" not in str(error.value)
    assert rows(stream) == []


def test_number_of_json_that_does_not_fit_ends_the_job(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    for number, (column, text) in enumerate([("id", "1.7"), ("price", "1.239"), ("count", "-1")]):
        path = tmp_path / f"{number}.json"
        path.write_text(f'{{"{column}": {text}}}\n')
        with pytest.raises(InvalidError, match=column):
            ingest(str(path), "/a", endpoint=endpoint, spark=spark)
    assert rows(stream) == []


def test_column_of_another_type_than_text_is_left_to_the_sink_which_refuses_what_is_lost(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1.7]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidError, match="column id is double in the DataFrame and int64 in the stream"):
        ingest(str(tmp_path / "a.parquet"), "/a", endpoint=endpoint, spark=spark)
    pq.write_table(pa.table({"price": pa.array([Decimal("1.239")])}), tmp_path / "b.parquet")
    with pytest.raises(InvalidError, match="column price"):
        ingest(str(tmp_path / "b.parquet"), "/a", endpoint=endpoint, spark=spark)
    pq.write_table(pa.table({"id": pa.array([3], pa.int32())}), tmp_path / "c.parquet")
    ingest(str(tmp_path / "c.parquet"), "/a", endpoint=endpoint, spark=spark)
    assert [row["id"] for row in rows(stream)] == [3]


def test_decimals_inside_json_are_not_rounded(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    with laminar.connect(Path(endpoint)) as db:
        kind = pa.struct({"price": pa.decimal128(5, 2), "sizes": pa.list_(pa.float64())})
        stream = db.create_stream("/nested", 1, pa.schema({"what": kind}))
        (tmp_path / "a.json").write_text('{"what": {"price": 1.23, "sizes": [5]}}\n')
        ingest(str(tmp_path / "a.json"), "/nested", endpoint=endpoint, spark=spark)
        (tmp_path / "b.json").write_text('{"what": {"price": 1.239, "sizes": [5]}}\n')
        with pytest.raises(InvalidError, match="column what"):
            ingest(str(tmp_path / "b.json"), "/nested", endpoint=endpoint, spark=spark)
        assert rows(stream) == [{"what": {"price": Decimal("1.23"), "sizes": [5.0]}}]


def test_times_are_read_by_the_pattern_that_is_given(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("day\n31/01/2026\n")
    ingest(str(tmp_path / "a.csv"), "/a", endpoint=endpoint, options={"dateFormat": "dd/MM/yyyy"}, spark=spark)
    assert [row["day"] for row in rows(stream)] == [dt.date(2026, 1, 31)]


def test_csv_files_with_their_columns_in_another_order_end_the_job(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("id,small\n1,2\n")
    (tmp_path / "in/b.csv").write_text("small,id\n3,4\n")
    with pytest.raises(InvalidError, match="its header has the columns small, id, and id, small are expected"):
        ingest(str(tmp_path / "in"), "/a", endpoint=endpoint, spark=spark)
    assert rows(stream) == []


def test_column_that_only_some_parquet_files_have_is_read(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "in/a.parquet")
    pq.write_table(pa.table({"id": [2], "small": pa.array([3], pa.int8())}), tmp_path / "in/b.parquet")
    ingest(str(tmp_path / "in"), "/a", endpoint=endpoint, spark=spark)
    assert sorted((row["id"], row["small"]) for row in rows(stream) if row["id"] == 2) == [(2, 3)]


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_column_of_the_stream_that_comes_with_a_later_file_is_followed(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path, suffix: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()

    def put(number: int, row: dict[str, int]) -> None:
        hidden = folder / f".{number}.{suffix}"
        if suffix == "json":
            hidden.write_text(json.dumps(row) + "\n")
        else:
            pq.write_table(pa.Table.from_pylist([row]), hidden)
        hidden.rename(folder / f"{number}.{suffix}")

    put(1, {"id": 1})
    ended: list[object] = []

    def follow() -> None:
        try:
            checkpoint = str(tmp_path / "checkpoint")
            ended.append(ingest(str(folder), "/a", endpoint=endpoint, follow=True, checkpoint=checkpoint, spark=spark))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            ended.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    wait_until("the first row is there", lambda: ended or len(rows(stream)) == 1, timeout=60)
    put(2, {"id": 2, "count": 5})
    wait_until("the second row is there", lambda: ended or len(rows(stream)) == 2, timeout=60)
    for query in spark.streams.active:
        query.stop()
    thread.join(60)
    assert not isinstance(ended[0], BaseException), ended
    assert {row["id"]: row["count"] for row in rows(stream)} == {1: None, 2: 5}


def test_csv_whose_types_were_guessed_goes_into_the_stream_again_with_other_guesses(
    spark: SparkSession, endpoint: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("amount\n1.5\n")
    (tmp_path / "b.csv").write_text("amount\n2\n")
    for name in ("a.csv", "b.csv"):
        ingest(str(tmp_path / name), "/new", endpoint=endpoint, create=Create(), spark=spark)
    with laminar.connect(Path(endpoint)) as db:
        assert sorted(row["amount"] for row in rows(db.stream("/new"))) == [1.5, 2.0]


def test_what_is_wrong_with_a_file_is_told_before_that_it_could_not_be_read() -> None:
    text = (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a.json.  SQLSTATE: KD001\n"
        "Caused by: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected.  SQLSTATE: 22023"
    )
    told = failure(RuntimeError(text))
    assert isinstance(told, InvalidError)
    assert str(told) == "Spark refused it: Malformed records are detected."
