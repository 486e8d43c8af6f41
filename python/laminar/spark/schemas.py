"""The columns of a stream as Spark has them.

| Arrow | Spark |
|---|---|
| bool, int8 to int64, float32, float64 | boolean, byte to long, float, double |
| uint8, uint16, uint32, uint64 | short, int, long, decimal(20, 0): the next type that holds all values |
| float16 | float |
| decimal of up to 38 digits, scale from 0 to its precision | decimal |
| string, large_string, string_view | string |
| binary, large_binary, binary_view, fixed_size_binary | binary |
| date32, date64 | date |
| timestamp with a zone / without | timestamp / timestamp_ntz; nanoseconds are cut to microseconds |
| duration | day-time interval; nanoseconds are cut to microseconds |
| list, large_list, fixed_size_list / map / struct | array / map / struct |
| dictionary | the type of its values |

Refused, because Spark has no type for them: time of day, intervals of months and days, decimals of more than 38 digits
or with a negative scale. Leave such columns out by the option ``columns``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types
from pyspark.sql.pandas.types import to_arrow_schema
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

from laminar.errors import InvalidError

#: The columns that ``includeMetadata`` adds.
METADATA = StructType(
    [
        StructField("_partition", IntegerType(), nullable=False),
        StructField("_offset", LongType(), nullable=False),
        StructField("_timestamp", TimestampType(), nullable=False),
        StructField("_epoch", LongType(), nullable=False),
    ]
)

_SIMPLE: tuple[tuple[Callable[[pa.DataType], bool], type[DataType]], ...] = (
    (types.is_boolean, BooleanType),
    (types.is_int8, ByteType),
    (types.is_int16, ShortType),
    (types.is_int32, IntegerType),
    (types.is_int64, LongType),
    (types.is_uint8, ShortType),
    (types.is_uint16, IntegerType),
    (types.is_uint32, LongType),
    (types.is_float16, FloatType),
    (types.is_float32, FloatType),
    (types.is_float64, DoubleType),
    (types.is_string, StringType),
    (types.is_large_string, StringType),
    (types.is_string_view, StringType),
    (types.is_binary, BinaryType),
    (types.is_large_binary, BinaryType),
    (types.is_binary_view, BinaryType),
    (types.is_fixed_size_binary, BinaryType),
    (types.is_date, DateType),
    (types.is_duration, DayTimeIntervalType),
)


def to_spark(schema: pa.Schema, stream: str, columns: Sequence[str] | None = None) -> StructType:
    """The columns of a stream, or those named, as Spark has them; one that Spark cannot have is an error."""
    names = schema.names if columns is None else columns
    for name in names:
        if name not in schema.names:
            raise _no_column(name, schema.names, stream)
    return StructType([_field(schema.field(name), stream) for name in names])


def to_arrow(schema: StructType) -> pa.Schema:
    """The columns of a Spark frame as Arrow has them; timestamps are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def check_given(given: StructType, offered: StructType, stream: str) -> None:
    """Refuse a schema that a user gave unless its columns are the stream's: some of them, in any order."""
    there = {field.name: field for field in offered}
    for field in given:
        if field.name not in there:
            raise _no_column(field.name, list(there), stream)
        if _nullable(field.dataType) != _nullable(there[field.name].dataType):
            expected, found = there[field.name].dataType.simpleString(), field.dataType.simpleString()
            raise InvalidError(
                f"stream {stream}, column {field.name!r}: the schema given says {found}, and it is {expected}; "
                f"leave the schema out, or give {expected}",
                stream=stream,
                column=field.name,
            )
        if there[field.name].nullable and not field.nullable:
            raise InvalidError(
                f"stream {stream}, column {field.name!r}: the schema given says that it is never null, and it may be; "
                "make it nullable",
                stream=stream,
                column=field.name,
            )


def converter(target: pa.Schema) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """What brings batches of a stream to the columns that Spark expects. Those that fit are not copied."""

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(target):
            return batch
        columns = [_cast(batch.column(field.name), field.type) for field in target]
        return pa.RecordBatch.from_arrays(columns, schema=target)

    return convert


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    if column.type.equals(target):
        return column
    # Not safe only where digits after the microsecond are lost, which Spark does not have.
    return column.cast(target, safe=not _has_nanoseconds(column.type))


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if types.is_timestamp(kind) or types.is_duration(kind):
        return bool(kind.unit == "ns")
    return any(_has_nanoseconds(kind.field(place).type) for place in range(kind.num_fields))


def _field(field: pa.Field, stream: str) -> StructField:
    return StructField(field.name, _spark_type(field.type, stream, field.name), field.nullable)


def _spark_type(kind: pa.DataType, stream: str, column: str) -> DataType:
    for is_kind, spark in _SIMPLE:
        if is_kind(kind):
            return spark()
    if types.is_uint64(kind):
        return DecimalType(20, 0)
    if types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= 38:
        return DecimalType(kind.precision, kind.scale)
    if types.is_timestamp(kind):
        return TimestampNTZType() if kind.tz is None else TimestampType()
    if types.is_dictionary(kind):
        return _spark_type(kind.value_type, stream, column)
    return _nested_type(kind, stream, column)


def _nested_type(kind: pa.DataType, stream: str, column: str) -> DataType:
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return ArrayType(_spark_type(kind.value_type, stream, f"{column}[]"), kind.value_field.nullable)
    if types.is_map(kind):
        return MapType(
            _spark_type(kind.key_type, stream, f"{column}.key"),
            _spark_type(kind.item_type, stream, f"{column}.value"),
            kind.item_field.nullable,
        )
    if types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return StructType(
            [
                StructField(one.name, _spark_type(one.type, stream, f"{column}.{one.name}"), one.nullable)
                for one in fields
            ]
        )
    raise InvalidError(
        f"stream {stream}, column {column!r}: Spark has no type for {kind}; leave it out by the option columns",
        stream=stream,
        column=column,
    )


def _nullable(kind: DataType) -> DataType:
    """The type with everything in it nullable: for comparing."""
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind])
    return kind


def _no_column(name: str, there: Sequence[str], stream: str) -> InvalidError:
    near = difflib.get_close_matches(name, there, n=1)
    if name in METADATA.names:
        hint = "set includeMetadata=true"
    elif near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"it has {', '.join(there)}"
    return InvalidError(f"stream {stream}: there is no column {name!r}; {hint}", stream=stream, column=name)


__all__ = ["METADATA", "check_given", "converter", "to_arrow", "to_spark"]
