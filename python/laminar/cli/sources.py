"""Files that rows are appended from: JSON lines, CSV, Parquet, Arrow; batch by batch, with the place of a wrong value.

A source yields the rows before a wrong line as a last batch and then raises, so that all before it can be appended.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from laminar.cli.forms import Format
from laminar.errors import InvalidError


@dataclass(frozen=True)
class Batch:
    """Rows, the line of each (none if the file has no lines), and how much of the file is read, from 0 to 1."""

    table: pa.Table
    lines: Sequence[int]
    done: float | None


Batches: TypeAlias = Iterator[Batch]


class Source:
    """An open file, or stdin, of a format."""

    def __init__(self, file: Path | None, format_: Format) -> None:
        self.format = format_
        self.name = "stdin" if file is None else str(file)
        self._file = file

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[BinaryIO, int | None]]:
        if self._file is None:
            yield sys.stdin.buffer, None
            return
        try:
            opened = self._file.open("rb")
        except OSError as error:
            raise InvalidError(f"{self.name}: cannot be opened, {error.strerror}") from None
        with opened:
            yield opened, self._file.stat().st_size if self._file.is_file() else None

    def batches(self, schema: pa.Schema, rows: int) -> Batches:
        """At most so many rows at a time, as the schema says."""
        from laminar.cli import text_sources  # noqa: PLC0415 - it needs this module

        with self._open() as (file, size):
            try:
                if self.format is Format.JSONL:
                    yield from text_sources.json_lines(file, schema, rows, self.name, size)
                elif self.format is Format.CSV:
                    yield from text_sources.csv_lines(file, schema, rows, self.name, size)
                else:
                    yield from self._columns(file, rows)
            except pa.ArrowException as error:
                raise self._wrong(error) from error
            except OSError as error:
                raise InvalidError(f"{self.name}: cannot be read, {error.strerror or error}") from error

    def _columns(self, file: BinaryIO, rows: int) -> Batches:
        if self.format is Format.PARQUET:
            parquet = pq.ParquetFile(_seekable(file))
            total, batches = parquet.metadata.num_rows, parquet.iter_batches(batch_size=rows)
        else:
            reader = _arrow_reader(file)
            total, batches = None, _cut(reader, rows)
        done = 0
        for batch in batches:
            done += batch.num_rows
            yield Batch(pa.Table.from_batches([batch]), (), done / total if total else None)

    def schema(self) -> pa.Schema:
        """The schema of the file; of text what its first rows look like. Not of stdin, which is read only once."""
        from laminar.cli import text_sources  # noqa: PLC0415 - it needs this module

        if self._file is None:
            raise InvalidError("the schema of stdin is not known before it is read; create the stream first")
        with self._open() as (file, _):
            try:
                if self.format is Format.PARQUET:
                    found = pq.ParquetFile(_seekable(file)).schema_arrow
                elif self.format is Format.ARROW:
                    found = _arrow_reader(file).schema
                else:
                    found = text_sources.guess_schema(file, is_csv=self.format is Format.CSV)
            except pa.ArrowException as error:
                raise self._wrong(error) from error
            except OSError as error:
                raise InvalidError(f"{self.name}: cannot be read, {error.strerror or error}") from error
        if not found.names:
            raise InvalidError(f"{self.name}: it has no columns to take a schema from; give --schema")
        return found.remove_metadata()

    def _wrong(self, error: Exception) -> InvalidError:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        return InvalidError(f"{self.name}: cannot be read as {self.format.value}, {first}")


def _seekable(file: BinaryIO) -> BinaryIO | pa.BufferReader:
    # Parquet is read from its end: what cannot be wound back must be in memory.
    return file if file.seekable() else pa.BufferReader(file.read())


def _arrow_reader(file: BinaryIO) -> pa.RecordBatchReader | pa.ipc.RecordBatchFileReader:
    if not file.seekable():
        return pa.ipc.open_stream(file)
    magic = file.read(6)
    file.seek(0)
    return pa.ipc.open_file(file) if magic == b"ARROW1" else pa.ipc.open_stream(file)


def _cut(reader: pa.RecordBatchReader | pa.ipc.RecordBatchFileReader, rows: int) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchReader):
        whole: Iterator[pa.RecordBatch] = iter(reader)
    else:
        whole = (reader.get_batch(number) for number in range(reader.num_record_batches))
    for batch in whole:
        for begin in range(0, batch.num_rows, rows):
            yield batch.slice(begin, rows)


__all__ = ["Batch", "Batches", "Source"]
