"""Where rows that are read go: a table for people, JSON lines, Parquet, Arrow."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from laminar.cli.forms import Form
from laminar.cli.units import printable
from laminar.errors import InvalidError


class Sink(Protocol):
    """Takes batches of rows."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch."""


@contextlib.contextmanager
def sink_to(output: Path | None, form: Form, schema: pa.Schema) -> Iterator[Sink]:
    """A sink to stdout, or to a file that is there only when all of it is."""
    if output is None:
        if form is Form.TABLE:
            yield _TableSink(schema)
            return
        with _sink(sys.stdout.buffer, form, schema) as sink:
            yield sink
        sys.stdout.buffer.flush()
        return
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        try:
            file = part.open("wb")
        except OSError as error:
            raise InvalidError(f"--output {output}: cannot be written, {error.strerror}") from None
        with file, _sink(file, form, schema) as sink:
            yield sink
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _sink(file: IO[bytes], form: Form, schema: pa.Schema) -> Iterator[Sink]:
    if form is Form.JSONL:
        yield _JsonLinesSink(file)
        return
    # Arrow closes what it is given; stdout is not its to close.
    kept = pa.PythonFile(_Kept(file), mode="w")
    if form is Form.PARQUET:
        with pq.ParquetWriter(kept, schema) as parquet:
            yield _ArrowSink(parquet)
    else:
        with pa.ipc.new_file(kept, schema) as arrow:
            yield _ArrowSink(arrow)


class _Kept:
    """A file that stays open when it is closed."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.flush()


class _ArrowSink:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)


class _JsonLinesSink:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        rows = rows_of(batch)
        try:
            text = "".join(_ENCODER.encode(row) + "\n" for row in rows)
        except ValueError:
            # There is a number that JSON does not know.
            text = "".join(_ENCODER.encode(plain(row)) + "\n" for row in rows)
        self._file.write(text.encode("utf-8", "replace"))
        # Whoever follows wants to see rows when they come.
        self._file.flush()


class _TableSink:
    """Tables of one batch after another, with the names once."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._console = Console(highlight=False)
        self._begun = False

    def write(self, batch: pa.RecordBatch) -> None:
        table = Table(box=None, pad_edge=False, header_style="dim", show_header=not self._begun)
        self._begun = True
        for field in self._schema:
            number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
            table.add_column(Text(field.name), justify="right" if number else "left", overflow="ellipsis", no_wrap=True)
        for row in rows_of(batch):
            table.add_row(*(_cell(value) for value in row.values()))
        self._console.print(table)


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch. Nanoseconds, which Python has no type for, are text; durations count their unit."""
    columns = [_for_python(column) for column in batch.columns]
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    return rows


def _for_python(column: pa.Array) -> pa.Array:
    data_type = column.type
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        return pc.replace_substring(column.cast(pa.string()), " ", "T")
    if pa.types.is_time64(data_type) and data_type.unit == "ns":
        return column.cast(pa.string())
    return column.cast(pa.int64()) if pa.types.is_duration(data_type) else column


def _cell(value: Any) -> Text:
    value = plain(value)
    if value is None:
        return Text("null", style="dim")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Text(printable(text))


def plain(value: Any) -> Any:  # noqa: PLR0911 - one return a kind of value
    """A value as JSON has it: times as text, bytes as text or base64, and no number that JSON does not know."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        return _short(value.isoformat()).replace("+00:00", "Z")
    if isinstance(value, date | clock):
        return _short(value.isoformat())
    if isinstance(value, timedelta):
        return value / timedelta(seconds=1)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value


def _short(text: str) -> str:
    """Milliseconds with three digits: Arrow does not take more than a type has."""
    return re.sub(r"(\.\d{3})000", r"\1", text)


# What it cannot write by itself it asks for: most rows need no other walk through them.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=plain)


__all__ = ["Sink", "plain", "rows_of", "sink_to"]
