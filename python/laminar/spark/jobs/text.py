"""Text cast to the types of a stream, without loss.

Spark's casts of text round decimals, cut the time off dates, the zone off local times and all after the microsecond,
take today for a time without a date, and make numbers infinite that are too large for a float. Each of these ends the
job, as what is no value at all does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, DecimalType

_DIGITS_MAX = 38
_SHOWN_LENGTH = 100
#: What the casts of Spark would leave out or make up, as it looks in text.
_LOST = {
    "date": r"\S[ T]\S",
    "timestamp": r"\.\d{6}\d*[1-9]|^\s*T?\d{1,2}:",
    "timestamp_ntz": r"\.\d{6}\d*[1-9]|^\s*T?\d{1,2}:|:\d.*[A-Za-z+-]",
}


def cast_text(text: Column, kind: DataType, where: str) -> Column:
    """The text as another type; one that is not null and cannot be told in it raises, whatever Spark is set to."""
    from pyspark.sql import functions  # noqa: PLC0415 - PySpark is imported when a job runs
    from pyspark.sql.types import DecimalType, FractionalType  # noqa: PLC0415

    value = text.try_cast(kind)
    lost = value.isNull()
    if isinstance(kind, DecimalType):
        lost |= _is_rounded(text, value, kind)
    elif isinstance(kind, FractionalType):
        lost |= (functions.abs(value) == float("inf")) & ~functions.lower(text).contains("inf")
    elif kind.typeName() in _LOST:
        lost |= text.rlike(_LOST[kind.typeName()])
    said = functions.concat(
        functions.lit(f"{where}: "),
        functions.substring(text, 1, _SHOWN_LENGTH),
        functions.lit(f" cannot be told as {kind.simpleString()} without loss; correct it, or leave the row out"),
    )
    return functions.when(text.isNotNull() & lost, functions.raise_error(said).cast(kind)).otherwise(value)


def _is_rounded(text: Column, value: Column, kind: DecimalType) -> Column:
    from pyspark.sql.functions import lit  # noqa: PLC0415
    from pyspark.sql.types import DecimalType  # noqa: PLC0415

    wide = DecimalType(_DIGITS_MAX, _DIGITS_MAX - (kind.precision - kind.scale))
    with_exponent = text.rlike("[eE]")
    # The digits of 1.5e-3 cannot be counted; where no wider type is left to compare with, it is refused.
    differs = text.try_cast(wide) != value if wide.scale > kind.scale else lit(True)
    return (with_exponent & differs) | (~with_exponent & text.rlike(rf"\.\d{{{kind.scale}}}\d*[1-9]"))


__all__ = ["cast_text"]
