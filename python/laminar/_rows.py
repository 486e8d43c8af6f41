"""Rows of users as Arrow data, without a loop over rows unless something is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from laminar._losses import first_changed
from laminar.errors import InvalidError


def to_arrow(rows: Any, schema: pa.Schema, stream: str) -> Any:
    """Something that speaks the Arrow C interface; Rust makes it fit the schema."""
    if isinstance(rows, list | tuple):
        return _from_dicts(rows, schema, stream)
    if _is_pandas(rows):
        return _from_pandas(rows, schema, stream)
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        return rows
    raise InvalidError(
        f"stream {stream}: rows are of type {type(rows).__name__}; give a list of dicts, a pyarrow Table, RecordBatch "
        "or RecordBatchReader, a pandas or a polars frame",
        stream=stream,
    )


def _is_pandas(rows: Any) -> bool:
    module: str = type(rows).__module__
    return module.split(".", 1)[0] == "pandas" and hasattr(rows, "columns")


def _from_dicts(rows: list[Any] | tuple[Any, ...], schema: pa.Schema, stream: str) -> pa.RecordBatch | pa.Table:
    # Arrow leaves out what the schema does not name; a misspelt column would be lost.
    try:
        unknown = set[Any]().union(*rows).difference(schema.names)
    except TypeError:
        unknown = set()
    wrong = next((place for place, row in enumerate(rows) if not isinstance(row, Mapping)), None)
    if wrong is not None:
        raise InvalidError(
            f"stream {stream}: row {wrong} is of type {type(rows[wrong]).__name__}; it must be a dict",
            stream=stream,
            row=wrong,
        )
    if unknown:
        raise _unknown_column(min(map(str, unknown)), schema, stream)
    try:
        columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _blame(rows, schema, stream, error) from error
    # Arrow splits a column whose bytes are too many for one; a batch is handed over with fewer steps than a table.
    whole = not any(isinstance(column, pa.ChunkedArray) for column in columns)
    return (pa.RecordBatch if whole else pa.Table).from_arrays(columns, schema=_nullable(schema))


def _column(values: list[Any], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """The values as Arrow has them; a `ValueError` if it would have others."""
    column = pa.array(values, type=kind)
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    changed = first_changed(values, whole)
    if changed is not None:
        raise ValueError(f"it would become {_shown(whole[changed].as_py())}")
    return column


def _from_pandas(frame: Any, schema: pa.Schema, stream: str) -> pa.Table:
    # An index that is named like a column is that column.
    named = [name for name in frame.index.names if name in schema.names and name not in frame.columns]
    if named:
        frame = frame.reset_index(level=named)
    columns = list(frame.columns)
    unknown = [column for column in columns if column not in schema.names]
    if unknown:
        raise _unknown_column(str(unknown[0]), schema, stream)
    # Columns that are missing are Rust's to judge: they may be null.
    given = pa.schema([field for field in _nullable(schema) if field.name in columns])
    try:
        return pa.Table.from_pandas(frame, schema=given, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidError(f"stream {stream}: the frame does not fit the schema: {error}", stream=stream) from error


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, each of which may be null: what may not is Rust's to refuse, by name."""
    return pa.schema([field.with_nullable(True) for field in schema])


def _unknown_column(column: str, schema: pa.Schema, stream: str) -> InvalidError:
    known = ", ".join(schema.names)
    return InvalidError(f"stream {stream}: there is no column {column!r}; it has {known}", stream=stream, column=column)


def _blame(rows: Any, schema: pa.Schema, stream: str, error: Exception) -> InvalidError:
    """Finds the value that Arrow could not take: only now are rows looked at one by one."""
    for field in schema:
        for place, row in enumerate(rows):
            try:
                _column([row.get(field.name)], field.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:  # noqa: PERF203 - the one
                return InvalidError(
                    f"stream {stream}: row {place}, column {field.name!r}: {_shown(row.get(field.name))} does not fit "
                    f"{field.type} ({cause})",
                    stream=stream,
                    column=field.name,
                    row=place,
                )
    return InvalidError(f"stream {stream}: the rows do not fit the schema: {error}", stream=stream)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


def key_batch(key: Any, schema: pa.Schema, names: list[str], stream: str) -> pa.RecordBatch:
    """The key columns of one row: a value, a tuple in the order of the key, or a dict."""
    if isinstance(key, Mapping):
        row = dict(key)
    elif isinstance(key, tuple):
        row = dict(zip(names, key, strict=False)) if len(key) == len(names) else {}
    else:
        row = {names[0]: key} if len(names) == 1 else {}
    if set(row) != set(names):
        columns = ", ".join(names)
        raise InvalidError(f"stream {stream}: the key is {_shown(key)}; it must have {columns}", stream=stream)
    of_key = pa.schema([schema.field(name) for name in names])
    try:
        values = [_column([row[field.name]], field.type) for field in of_key]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _blame([row], of_key, stream, error) from error
    return pa.RecordBatch.from_arrays(values, schema=of_key)
