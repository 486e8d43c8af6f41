"""Every type of Arrow, written to a stream and read by Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

import laminar
from laminar.spark import schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UTC = dt.timezone.utc
MICROSECOND = dt.timedelta(microseconds=1)
FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - without a zone
PAIR = pa.struct([("x", pa.int32()), ("y", pa.string())])

#: The type in Arrow, the type that Spark makes of it, and values.
TYPES: dict[str, tuple[pa.DataType, DataType, list[Any]]] = {
    "bool": (pa.bool_(), BooleanType(), [True, False]),
    "int8": (pa.int8(), ByteType(), [-128, 127]),
    "int16": (pa.int16(), ShortType(), [-(2**15), 2**15 - 1]),
    "int32": (pa.int32(), IntegerType(), [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), LongType(), [-(2**63), 2**63 - 1]),
    "uint8": (pa.uint8(), ShortType(), [0, 255]),
    "uint16": (pa.uint16(), IntegerType(), [0, 2**16 - 1]),
    "uint32": (pa.uint32(), LongType(), [0, 2**32 - 1]),
    "uint64": (pa.uint64(), DecimalType(20, 0), [0, 2**64 - 1]),
    "float16": (pa.float16(), FloatType(), [0.5, -65504.0]),
    "float32": (pa.float32(), FloatType(), [0.5, float("inf")]),
    "float64": (pa.float64(), DoubleType(), [0.1, -1.7976931348623157e308]),
    "decimal": (pa.decimal128(38, 18), DecimalType(38, 18), [Decimal("-99999999999999999999.999999999999999999")]),
    "decimal_small": (pa.decimal128(5, 2), DecimalType(5, 2), [Decimal("999.99"), Decimal("-0.01")]),
    "decimal_wide": (pa.decimal256(30, 5), DecimalType(30, 5), [Decimal("-1234567890123456789012345.67891")]),
    "string": (pa.string(), StringType(), ["", "żółw 🐢", "a\x00b"]),
    "large_string": (pa.large_string(), StringType(), ["x" * 100_000]),
    "string_view": (pa.string_view(), StringType(), ["short", "longer than twelve bytes"]),
    "binary": (pa.binary(), BinaryType(), [b"", b"\x00\xff"]),
    "large_binary": (pa.large_binary(), BinaryType(), [b"\x80" * 1000]),
    "binary_view": (pa.binary_view(), BinaryType(), [b"a view of more than twelve bytes"]),
    "fixed_binary": (pa.binary(4), BinaryType(), [b"\x00\x01\x02\x03"]),
    "date32": (pa.date32(), DateType(), [FIRST.date(), LAST.date(), dt.date(1582, 10, 10)]),
    "date64": (pa.date64(), DateType(), [FIRST.date(), LAST.date()]),
    "timestamp_us": (pa.timestamp("us"), TimestampNTZType(), [FIRST, LAST]),
    "timestamp_s": (pa.timestamp("s"), TimestampNTZType(), [dt.datetime(1883, 11, 18, 12)]),  # noqa: DTZ001
    "timestamp_utc": (
        pa.timestamp("us", "UTC"),
        TimestampType(),
        [FIRST.replace(tzinfo=UTC), LAST.replace(tzinfo=UTC)],
    ),
    "timestamp_zone": (pa.timestamp("ms", "Europe/Warsaw"), TimestampType(), [dt.datetime(2026, 3, 29, 1, tzinfo=UTC)]),
    "timestamp_ns": (pa.timestamp("ns", "UTC"), TimestampType(), [dt.datetime(2200, 1, 1, tzinfo=UTC)]),
    "duration": (pa.duration("us"), DayTimeIntervalType(), [dt.timedelta(days=-3, microseconds=1)]),
    "duration_s": (pa.duration("s"), DayTimeIntervalType(), [dt.timedelta(days=10_000)]),
    "list": (pa.list_(pa.int64()), ArrayType(LongType()), [[], [1, None, 3]]),
    "large_list": (pa.large_list(pa.string()), ArrayType(StringType()), [["a", None]]),
    "fixed_list": (pa.list_(pa.int32(), 2), ArrayType(IntegerType()), [[1, 2]]),
    "list_of_uint64": (pa.list_(pa.uint64()), ArrayType(DecimalType(20, 0)), [[2**64 - 1, None]]),
    "struct": (
        PAIR,
        StructType([StructField("x", IntegerType()), StructField("y", StringType())]),
        [{"x": 1, "y": "a"}, {"x": None, "y": None}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), MapType(StringType(), LongType()), [[], [("a", 1), ("b", None)]]),
    "map_of_lists": (
        pa.map_(pa.large_string(), pa.large_list(pa.uint8())),
        MapType(StringType(), ArrayType(ShortType())),
        [[("a", [255, None])]],
    ),
    "nested": (
        pa.list_(pa.struct([("when", pa.list_(pa.timestamp("ms", "UTC")))])),
        ArrayType(StructType([StructField("when", ArrayType(TimestampType()))])),
        [[{"when": [dt.datetime(2026, 1, 1, tzinfo=UTC), None]}], [None]],
    ),
    "dictionary": (pa.dictionary(pa.int16(), pa.string()), StringType(), ["red", "green", "red"]),
    "list_of_dictionary": (pa.list_(pa.dictionary(pa.int8(), pa.string())), ArrayType(StringType()), [["red", None]]),
}


def read(spark: SparkSession, endpoint: str, path: str = "/types", **options: str) -> DataFrame:
    return spark.read.format("laminar").option("endpoint", endpoint).options(**options).load(path)


def test_every_type_comes_back_as_it_was_written(spark: SparkSession, endpoint: str) -> None:
    # Each type has a column; the first row is all null, and short columns end with nulls.
    rows = max(len(values) for _, _, values in TYPES.values()) + 1
    arrays = {
        name: pa.array([None, *values] + [None] * (rows - 1 - len(values)), kind)
        for name, (kind, _, values) in TYPES.items()
    }
    table = pa.table({"row": pa.array(range(rows), pa.int32()), **arrays})
    with laminar.connect(endpoint) as db:
        db.create_stream("/types", schema=table.schema).append(table)

    frame = read(spark, endpoint)
    # Not by collect: Python's local times end before Spark's do.
    found = frame.orderBy("row").toArrow()

    types = {field.name: field.dataType for field in frame.schema}
    assert {name: types[name] for name in TYPES} == {name: spark_type for name, (_, spark_type, _) in TYPES.items()}
    for name, expected in arrays.items():
        assert found.column(name).to_pylist() == expected.to_pylist(), name

    # And back through the sink, into a stream with the types that Spark has.
    with laminar.connect(endpoint) as db:
        copy = db.create_stream("/copy", schema=found.schema)
        frame.write.format("laminar").option("endpoint", endpoint).mode("append").save("/copy")
        written = copy.read().read_all().sort_by("row")
    for name, expected in arrays.items():
        assert written.column(name).to_pylist() == expected.to_pylist(), name


def test_nanoseconds_are_cut_to_microseconds(spark: SparkSession, endpoint: str) -> None:
    schema = pa.schema({"at": pa.timestamp("ns", "UTC"), "took": pa.duration("ns")})
    with laminar.connect(endpoint) as db:
        stream = db.create_stream("/types", schema=schema)
        stream.append(
            pa.table([pa.array([1_999], schema.field(0).type), pa.array([2_001], schema.field(1).type)], schema=schema)
        )
    row = read(spark, endpoint).first()
    assert row is not None
    assert row["at"].replace(tzinfo=UTC) == dt.datetime(1970, 1, 1, tzinfo=UTC) + MICROSECOND
    assert row["took"] == 2 * MICROSECOND


def test_columns_that_are_never_null_stay_so(spark: SparkSession, endpoint: str) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
        ]
    )
    with laminar.connect(endpoint) as db:
        db.create_stream("/types", schema=schema, key="id").append([{"id": 1, "tags": ["a"]}])
    frame = read(spark, endpoint)
    assert not frame.schema["id"].nullable
    assert frame.schema["tags"].dataType == ArrayType(StringType(), containsNull=False)
    assert [tuple(row) for row in frame.collect()] == [(1, ["a"])]


@pytest.mark.parametrize(
    "kind",
    [
        pa.time64("us"),
        pa.time32("s"),
        pa.decimal256(60, 2),
        pa.decimal128(5, -2),
        pa.month_day_nano_interval(),
        pa.list_(pa.time64("ns")),
        pa.struct([("at", pa.time32("ms"))]),
    ],
    ids=str,
)
def test_a_type_that_spark_lacks_is_refused_with_its_column(kind: pa.DataType) -> None:
    schema = pa.schema({"id": pa.int64(), "bad": kind})
    with pytest.raises(laminar.InvalidError, match=r"column 'bad.*leave it out by the option columns") as caught:
        schemas.to_spark(schema, "/types")
    assert caught.value.stream == "/types"
    assert schemas.to_spark(schema, "/types", ["id"]).names == ["id"]


def test_a_stream_of_bytes_has_key_and_value(spark: SparkSession, endpoint: str) -> None:
    with laminar.connect(endpoint) as db:
        db.create_stream("/types").append_bytes(0, [(b"k", b"v"), b"w"])
    found = read(spark, endpoint).collect()
    assert [(row["key"] and bytes(row["key"]), bytes(row["value"])) for row in found] == [(b"k", b"v"), (None, b"w")]
