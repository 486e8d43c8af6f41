"""Finds values that Arrow changed when it made a column of Python objects: it cuts 1.9 to 1, and a time to its day."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def first_changed(values: Sequence[Any], column: pa.Array) -> int | None:
    """The place of the first value that is not in the column as it was given."""
    kind = column.type
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return _first_overflown(values, column)
    if _may_lose(kind):
        return _first_unequal(values, column)
    if not pa.types.is_nested(kind):
        return None
    changed = (place for place, value in enumerate(values) if _has_changed_inside(value, kind))
    return next(changed, None) if _has_loser(kind) else None


def _may_lose(kind: pa.DataType) -> bool:
    temporal = pa.types.is_temporal(kind) and getattr(kind, "unit", "s") != "ns"
    return bool(pa.types.is_integer(kind) or temporal)


def _has_loser(kind: pa.DataType) -> bool:
    """Whether a type has parts that values may be lost in."""
    if pa.types.is_nested(kind):
        return any(_has_loser(kind.field(place).type) for place in range(kind.num_fields))
    return _may_lose(kind) or pa.types.is_float16(kind) or pa.types.is_float32(kind)


def _first_overflown(values: Sequence[Any], column: pa.Array) -> int | None:
    if not pc.any(pc.is_inf(column)).as_py():
        return None
    stored = column.to_pylist()
    return next(
        (
            place
            for place, (given, kept) in enumerate(zip(values, stored, strict=True))
            if kept is not None and math.isinf(kept) and not math.isinf(float(given))
        ),
        None,
    )


def _first_unequal(values: Sequence[Any], column: pa.Array) -> int | None:
    stored = column.to_pylist()
    if stored == values:
        return None
    pairs = enumerate(zip(values, stored, strict=True))
    return next((place for place, (given, kept) in pairs if not _is_same(given, kept)), None)


def _is_same(given: Any, kept: Any) -> bool:
    # A null of another library, and a number in the column's own unit, are taken as they are.
    if kept is None or (isinstance(given, int) and not isinstance(kept, int)):
        return True
    if isinstance(given, dt.datetime) and isinstance(kept, dt.datetime):
        given, kept = _in_utc(given), _in_utc(kept)
    return bool(given == kept)


def _in_utc(moment: dt.datetime) -> dt.datetime:
    if moment.tzinfo is None:
        return moment
    return moment.astimezone(dt.timezone.utc).replace(tzinfo=None)


def _has_changed_inside(value: Any, kind: pa.DataType) -> bool:
    """Whether a part of one nested value is changed."""
    if value is None:
        return False
    for field, parts in _parts(value, kind):
        given = list(parts)
        if first_changed(given, pa.array(given, type=field.type)) is not None:
            return True
    return False


def _parts(value: Any, kind: pa.DataType) -> Iterable[tuple[pa.Field, Iterable[Any]]]:
    if pa.types.is_struct(kind):
        if isinstance(value, Mapping):
            yield from ((field, [value.get(field.name)]) for field in kind)
    elif pa.types.is_map(kind):
        pairs = list(value.items() if isinstance(value, Mapping) else value)
        yield kind.key_field, [key for key, _ in pairs]
        yield kind.item_field, [item for _, item in pairs]
    elif hasattr(kind, "value_field"):
        yield kind.value_field, value
