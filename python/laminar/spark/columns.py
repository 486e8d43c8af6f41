"""The columns of a DataFrame, fitted to those of a stream.

Columns go by their names. One that the stream has and the DataFrame has not becomes null, if it may be. A type must be
the stream's, or one whose values the stream's can tell without loss: each value that cannot be told is an error, never
a null and never rounded. What Spark cannot say is reached from what it can: unsigned integers from integers and from
decimals without digits after the point, other units of time from microseconds, other zones from Spark's (an instant
is the same in all).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as kinds
from pyspark.sql.pandas.types import to_arrow_type

from laminar.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from laminar.stream import Stream


class Columns:
    """How the batches of one DataFrame become those of a stream. Made on the driver, used by tasks."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path = path
        self._types = {field.name: field.type for field in schema}
        self._seen: pa.Schema | None = None
        self._todo: list[int] = []

    @classmethod
    def of(cls, stream: Stream, frame: StructType) -> Columns:
        """Check the columns of a DataFrame against those of a stream."""
        wanted = stream.schema
        names = frame.fieldNames()
        for name in names:
            _check_name(stream.path, name, names, wanted)
        for field in wanted:
            if field.name not in names and not field.nullable:
                raise InvalidError(
                    f"stream {stream.path}: column {field.name} may not be null and the DataFrame does not have it; "
                    f"add it (the DataFrame has {', '.join(names) or 'no columns'})",
                    stream=stream.path,
                    column=field.name,
                )
        for column in frame.fields:
            found, expected = _arrow(stream.path, column.name, column.dataType), wanted.field(column.name).type
            if not fits(found, expected):
                raise InvalidError(
                    f"stream {stream.path}: column {column.name} is {column.dataType.simpleString()} in the DataFrame "
                    f"and {expected} in the stream; cast it before writing",
                    stream=stream.path,
                    column=column.name,
                )
        return cls(stream.path, wanted)

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the types of the stream. Nothing is copied where the types are the same."""
        if self._seen is None or not batch.schema.equals(self._seen):
            self._seen = batch.schema
            self._todo = [place for place, field in enumerate(batch.schema) if field.type != self._types[field.name]]
        for place in self._todo:
            name = batch.schema.field(place).name
            batch = batch.set_column(place, name, self._cast(batch.column(place), name))
        return batch

    def _cast(self, column: pa.Array, name: str) -> pa.Array:
        try:
            return column.cast(self._types[name], safe=True)
        except pa.ArrowException as error:
            raise InvalidError(
                f"stream {self._path}: column {name}: a value of type {column.type} does not fit {self._types[name]}: "
                f"{error}; cast or filter it before writing",
                stream=self._path,
                column=name,
            ) from error


def _check_name(path: str, name: str, names: Sequence[str], wanted: pa.Schema) -> None:
    if names.count(name) > 1:
        raise InvalidError(f"column {name} is in the DataFrame twice; rename one", stream=path, column=name)
    if name in wanted.names:
        return
    folded = {other.casefold(): other for other in wanted.names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    hint = f"did you mean {folded[near[0]]}?" if near else f"it has {', '.join(wanted.names)}"
    raise InvalidError(
        f"stream {path}: there is no column {name} in the stream; {hint} (rename or drop the column before writing)",
        stream=path,
        column=name,
    )


def _arrow(path: str, name: str, spark_type: object) -> pa.DataType:
    try:
        return to_arrow_type(spark_type, timezone="UTC")  # type: ignore[arg-type]
    except Exception as error:
        raise InvalidError(
            f"stream {path}: column {name} has a type that Arrow has not: {error}; cast it before writing",
            stream=path,
            column=name,
        ) from error


def fits(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether values of one type may be written as another: those that do not fit are errors, none is changed."""
    if found == expected or kinds.is_null(found):
        return True
    if kinds.is_dictionary(expected):
        return fits(found, expected.value_type)
    return any(
        is_one(found) and is_other(expected) and condition(found, expected) for is_one, is_other, condition in _RULES
    )


def _always(_found: pa.DataType, _expected: pa.DataType) -> bool:
    return True


def _wider_float(found: pa.DataType, expected: pa.DataType) -> bool:
    return bool(found.bit_width <= expected.bit_width)


def _both_zoned_or_not(found: pa.DataType, expected: pa.DataType) -> bool:
    return (found.tz is None) == (expected.tz is None)


def _whole(found: pa.DataType, _expected: pa.DataType) -> bool:
    return bool(found.scale == 0)


def _fields_fit(found: pa.DataType, expected: pa.DataType) -> bool:
    one = [found.field(place) for place in range(found.num_fields)]
    other = [expected.field(place) for place in range(expected.num_fields)]
    return [field.name for field in one] == [field.name for field in other] and _all_fit(one, other)


def _values_fit(found: pa.DataType, expected: pa.DataType) -> bool:
    return fits(found.value_type, expected.value_type)


def _entries_fit(found: pa.DataType, expected: pa.DataType) -> bool:
    return fits(found.key_type, expected.key_type) and fits(found.item_type, expected.item_type)


def _all_fit(one: Sequence[pa.Field], other: Sequence[pa.Field]) -> bool:
    return all(fits(left.type, right.type) for left, right in zip(one, other, strict=True))


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_binary(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_fixed_size_binary(kind)
        or kinds.is_binary_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


_RULES = (
    (kinds.is_integer, kinds.is_integer, _always),
    (kinds.is_decimal, kinds.is_integer, _whole),
    (kinds.is_decimal, kinds.is_decimal, _always),
    (kinds.is_floating, kinds.is_floating, _wider_float),
    (_is_text, _is_text, _always),
    (_is_bytes, _is_bytes, _always),
    (kinds.is_date, kinds.is_date, _always),
    (kinds.is_time, kinds.is_time, _always),
    (kinds.is_duration, kinds.is_duration, _always),
    (kinds.is_timestamp, kinds.is_timestamp, _both_zoned_or_not),
    (_is_list, _is_list, _values_fit),
    (kinds.is_map, kinds.is_map, _entries_fit),
    (kinds.is_struct, kinds.is_struct, _fields_fit),
)

__all__ = ["Columns", "fits"]
