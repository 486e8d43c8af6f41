"""Rows of text: JSON lines and CSV. Blocks are read at Arrow's speed; only a wrong line is looked at closely."""

from __future__ import annotations

import csv
import difflib
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from laminar.cli.schema_spec import type_text
from laminar.cli.sources import Batch, Batches
from laminar.cli.units import counted
from laminar.errors import InvalidError

#: A batch ends at so many bytes of text, however few rows they are.
_BATCH_BYTES_MAX = 16 << 20
_LINE_BYTES_MAX = 64 << 20
_GUESS_BYTES = 1 << 20

_MISSING = "the value is missing, and the column must have one"

_NOT_READ = (pa.ArrowException, ValueError, TypeError, OverflowError)


def json_lines(file: BinaryIO, schema: pa.Schema, rows: int, name: str, size: int | None) -> Batches:
    """One object a line. Empty lines are left out."""
    done = 0
    for lines in _blocks(file, rows, name):
        done += sum(len(line) for _, line in lines)
        filled = [(number, line) for number, line in lines if line.strip()]
        numbers, texts = [number for number, _ in filled], [line for _, line in filled]
        fraction = done / size if size else None
        if not texts:
            continue
        try:
            yield Batch(_parsed(texts, schema), numbers, fraction)
        except _NOT_READ:
            good = _good_lines(texts, schema)
            if good:
                yield Batch(_parsed(texts[:good], schema), numbers[:good], fraction)
            _blame(texts[good], schema, f"{name}: line {numbers[good]}")


def _blocks(file: BinaryIO, rows: int, name: str) -> Iterator[list[tuple[int, bytes]]]:
    lines: list[tuple[int, bytes]] = []
    size = number = 0
    while line := file.readline(_LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > _LINE_BYTES_MAX:
            if lines:
                yield lines
            raise InvalidError(f"{name}: line {number} is longer than {_LINE_BYTES_MAX} bytes")
        lines.append((number, line))
        size += len(line)
        if len(lines) >= rows or size >= _BATCH_BYTES_MAX:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _parsed(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    text = b"".join(line.rstrip(b"\r\n") + b"\n" for line in lines)
    written = pa.schema([field.with_type(_written(field.type)).with_nullable(True) for field in schema])
    table = pa_json.read_json(
        io.BytesIO(text),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=written, unexpected_field_behavior="error"),
    )
    # Two objects on a line, or one on two, would move every line number after it.
    if table.num_rows != len(lines):
        raise ValueError
    columns = [_cast(table.column(field.name), field.type) for field in schema]
    if any(column.null_count and not field.nullable for field, column in zip(schema, columns, strict=True)):
        raise ValueError
    return pa.table(columns, names=schema.names)


def _written(data_type: Any) -> Any:
    """The type that JSON has in its place: Arrow reads days and hours as numbers only, people write them as text."""
    if pa.types.is_date(data_type) or pa.types.is_time(data_type):
        return pa.string()
    if pa.types.is_duration(data_type):
        return pa.int64()
    if pa.types.is_list(data_type):
        return pa.list_(_written(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_written(field.type)).with_nullable(True) for field in data_type])
    return data_type


def _cast(column: Any, data_type: Any) -> Any:
    """What was read as text, or as a number, as its type."""
    if pa.types.is_time(data_type) and pa.types.is_string(column.type):
        # Arrow makes times of a day from text only as part of a moment.
        moment = pc.binary_join_element_wise("1970-01-01", column, "T")
        return moment.cast(pa.timestamp(data_type.unit)).cast(data_type)
    if pa.types.is_duration(data_type):
        return column.cast(pa.int64()).cast(data_type)
    return column.cast(data_type)


def _good_lines(lines: Sequence[bytes], schema: pa.Schema) -> int:
    """How many lines come before the first that cannot be read."""
    low, high = 0, len(lines)
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            _parsed(lines[low:middle], schema)
        except _NOT_READ:
            high = middle
        else:
            low = middle
    return low


def _blame(line: bytes, schema: pa.Schema, where: str) -> NoReturn:
    """Says what is wrong with a line."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidError(f"{where}, character {error.colno}: not JSON, {error.msg}") from None
    except (ValueError, RecursionError):
        raise InvalidError(f"{where}: not JSON in UTF-8") from None
    if not isinstance(row, dict):
        raise InvalidError(f"{where}: it is {_shown(row)}; it must be an object with columns")
    for column in row:
        if column not in schema.names:
            raise unknown_column(column, schema, where)
    for field in schema:
        value = row.get(field.name)
        if value is None and not field.nullable:
            raise InvalidError(f"{where}, column {field.name!r}: {_MISSING}", column=field.name)
        try:
            _parsed([json.dumps({field.name: value}).encode()], pa.schema([field]))
        except _NOT_READ:
            raise InvalidError(
                f"{where}, column {field.name!r}: {_shown(value)} does not fit {type_text(field.type)}",
                column=field.name,
            ) from None
    raise InvalidError(f"{where}: it cannot be read; each column may stand once, and one object on a line")


def csv_lines(file: BinaryIO, schema: pa.Schema, rows: int, name: str, size: int | None) -> Batches:
    """The first line names the columns. An empty value of a column that is not text is a missing one."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    csv.field_size_limit(_LINE_BYTES_MAX)
    reader = csv.reader(text, strict=True)
    try:
        header = _row(reader, name)
        if header is None:
            return
        _check_header(header, schema, f"{name}: line 1")
        wrong: InvalidError | None = None
        while wrong is None:
            block, numbers, wrong = _csv_block(reader, len(header), rows, name)
            if block:
                good, wrong_value = _columns(block, header, schema, numbers, name)
                wrong = wrong_value or wrong
                if good.num_rows:
                    yield Batch(good, numbers[: good.num_rows], _done(file, size))
            elif wrong is None:
                return
        raise wrong
    finally:
        # The file is its owner's to close.
        text.detach()


def _row(reader: Any, name: str) -> list[str] | None:
    before = reader.line_num
    try:
        row: list[str] = next(reader)
    except StopIteration:
        return None
    except csv.Error as error:
        raise InvalidError(f"{name}: line {before + 1}: not CSV, {error}") from None
    except UnicodeDecodeError:
        raise InvalidError(f"{name}: after line {before}: not UTF-8") from None
    return row


def _csv_block(reader: Any, width: int, rows: int, name: str) -> tuple[list[list[str]], list[int], InvalidError | None]:
    block: list[list[str]] = []
    numbers: list[int] = []
    size = 0
    while len(block) < rows and size < _BATCH_BYTES_MAX:
        first_line = reader.line_num + 1
        try:
            row = _row(reader, name)
        except InvalidError as error:
            return block, numbers, error
        if row is None:
            break
        if not row:
            continue
        if len(row) != width:
            said = (
                f"{name}: line {first_line}: {counted(len(row), 'value')}, and line 1 names {counted(width, 'column')}"
            )
            return block, numbers, InvalidError(said)
        block.append(row)
        numbers.append(first_line)
        size += sum(map(len, row))
    return block, numbers, None


def _check_header(header: list[str], schema: pa.Schema, where: str) -> None:
    for column in header:
        if column not in schema.names:
            raise unknown_column(column, schema, where)
        if header.count(column) > 1:
            raise InvalidError(f"{where}: column {column!r} is named twice", column=column)
        if pa.types.is_nested(schema.field(column).type):
            kind = type_text(schema.field(column).type)
            raise InvalidError(
                f"{where}: column {column!r} is {kind}, which CSV cannot hold; use JSON lines or Parquet"
            )
    for field in schema:
        if field.name not in header and not field.nullable:
            raise InvalidError(f"{where}, column {field.name!r}: {_MISSING}", column=field.name)


def _columns(
    block: list[list[str]], header: list[str], schema: pa.Schema, numbers: list[int], name: str
) -> tuple[pa.Table, InvalidError | None]:
    """The rows before the first wrong value, and what is wrong with it."""
    good, wrong = len(block), None
    texts = dict(zip(header, map(list, zip(*block, strict=True)), strict=True))
    columns: dict[str, Any] = {}
    for column, values in texts.items():
        field = schema.field(column)
        try:
            columns[column] = _column(values[:good], field)
        except _NOT_READ:
            bad = next(place for place, value in enumerate(values) if not _is_read(value, field))
            columns[column] = _column(values[:bad], field)
            good = bad
            what = f"{_shown(values[bad])} does not fit {type_text(field.type)}" if values[bad] else _MISSING
            wrong = InvalidError(f"{name}: line {numbers[bad]}, column {column!r}: {what}", column=column)
    return pa.table({column: values.slice(0, good) for column, values in columns.items()}), wrong


def _column(values: list[str], field: pa.Field) -> Any:
    data_type = field.type
    text = pa.array(values, pa.string())
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return text.cast(data_type)
    filled = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    if filled.null_count and not field.nullable:
        raise ValueError
    return _cast(filled, data_type)


def _is_read(value: str, field: pa.Field) -> bool:
    try:
        _column([value], field)
    except _NOT_READ:
        return False
    return True


def _done(file: BinaryIO, size: int | None) -> float | None:
    return min(1.0, file.tell() / size) if size else None


def guess_schema(file: BinaryIO, *, is_csv: bool) -> pa.Schema:
    """What the first megabyte looks like, cut at a line's end."""
    head = file.read(_GUESS_BYTES)
    if len(head) == _GUESS_BYTES and b"\n" in head:
        head = head[: head.rindex(b"\n") + 1]
    if is_csv:
        return pa_csv.read_csv(io.BytesIO(head), read_options=pa_csv.ReadOptions(block_size=len(head) + 1)).schema
    return pa_json.read_json(io.BytesIO(head), read_options=pa_json.ReadOptions(block_size=len(head) + 1)).schema


def unknown_column(column: str, schema: pa.Schema, where: str) -> InvalidError:
    """The error of a column that the stream does not have."""
    near = difflib.get_close_matches(column, schema.names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(schema.names)}"
    return InvalidError(f"{where}: the stream has no column {_shown(column)} ({hint})", column=column)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


__all__ = ["csv_lines", "guess_schema", "json_lines", "unknown_column"]
