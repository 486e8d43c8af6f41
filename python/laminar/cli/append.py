"""``laminar append``: the rows of a file, or of stdin, into a stream."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

from laminar.cli.forms import Format, guess_format
from laminar.cli.progress import rows_bar
from laminar.cli.target import AT, JSON, SECRET, STREAM, opened
from laminar.cli.units import counted
from laminar.errors import InvalidError, LaminarError

if TYPE_CHECKING:
    import laminar
    from laminar.cli.sources import Batch, Source


@dataclass
class _Landed:
    """What is on disk so far."""

    rows: int = 0
    global_index: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, appended: laminar.Appended) -> None:
        self.rows += appended.rows
        self.global_index = max(self.global_index, appended.global_index)
        for partition, (first, end) in appended.offsets.items():
            self.offsets[partition] = (self.offsets.get(partition, (first, end))[0], end)


def append(  # noqa: PLR0913 - one argument an option
    stream: str = STREAM,
    file: Path | None = typer.Argument(None, metavar="[FILE]", help="The file; - or nothing is stdin."),
    *,
    format_: Format | None = typer.Option(
        None, "--format", "-f", help="What the file is. Guessed from its name; stdin is JSON lines."
    ),
    writer: str | None = typer.Option(
        None, "--writer", "-w", metavar="NAME", help="Claim the stream as this writer: whoever wrote it is fenced."
    ),
    batch_rows: int = typer.Option(10_000, "--batch-rows", min=1, max=1_000_000, help="How many rows land at a time."),
    create: bool = typer.Option(
        False, "--create", help="Create the stream if it is not there, with the schema of the file."
    ),
    partitions: int = typer.Option(1, "--partitions", min=1, help="With --create: how many partitions."),
    key: list[str] = typer.Option(
        [], "--key", metavar="COLUMN", help="With --create: rows of equal keys go to one partition. May be repeated."
    ),
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Append the rows of a file, batch by batch. Each batch is on disk before the next is sent.

    JSON lines have one object a line; the first line of CSV names the columns. Times are text such as
    2026-01-31T12:00:00Z. A stream without a schema takes the columns key and value. At a wrong line it stops: what was
    before it is appended, and it says so.
    """
    from laminar.cli.sources import Source  # noqa: PLC0415 - pyarrow is imported when rows are there

    if file == Path("-"):
        file = None
    source = Source(file, guess_format(file, format_))
    begun = time.monotonic()
    with opened(at, secret, create=create) as db:
        # What the file cannot give must not leave a stream behind.
        target = _created(db, stream, source, partitions, key) if create else db.stream(stream)
        landed = _append_all(target, source, writer, batch_rows)
    seconds = time.monotonic() - begun
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "stream": stream,
                    "rows": landed.rows,
                    "partitions": {str(p): list(offsets) for p, offsets in sorted(landed.offsets.items())},
                    "global_index": landed.global_index,
                    "seconds": round(seconds, 3),
                }
            )
        )
        return
    console = Console(highlight=False)
    where = counted(len(landed.offsets), "partition")
    console.print(
        f"[green]{counted(landed.rows, 'row')}[/green] appended to {escape(stream)}, in {where}, "
        f"up to global index {landed.global_index} [dim]({seconds:.1f} s)[/dim]",
        soft_wrap=True,
    )


def _created(db: laminar.Cluster, path: str, source: Source, partitions: int, key: list[str]) -> laminar.Stream:
    there = next((stream for stream in db.streams(path) if stream.path == path), None)
    return there or db.create_stream(path, partitions, source.schema(), key or None)


def _append_all(stream: laminar.Stream, source: Source, writer: str | None, batch_rows: int) -> _Landed:
    landed = _Landed()
    batch: Batch | None = None
    with ExitStack() as stack:
        target = stream if writer is None else stack.enter_context(stream.writer(writer))
        draw = stack.enter_context(rows_bar("appending"))
        try:
            for batch in source.batches(stream.schema, batch_rows):
                landed.add(_append(target, batch, is_bytes=stream.is_bytes))
                draw(landed.rows, batch.done)
                batch = None  # noqa: PLW2901 - what fails from here on is the next one
        except LaminarError as error:
            error.args = (_told(error, batch, source, landed),)
            raise
    return landed


def _append(target: laminar.Stream | laminar.Writer, batch: Batch, *, is_bytes: bool) -> laminar.Appended:
    if not is_bytes:
        return target.append(batch.table)
    columns = batch.table.column_names
    nothing = [None] * batch.table.num_rows
    keys, values = (batch.table.column(name).to_pylist() if name in columns else nothing for name in ("key", "value"))
    return target.append_bytes(None, list(zip(keys, values, strict=True)))


def _told(error: LaminarError, batch: Batch | None, source: Source, landed: _Landed) -> str:
    """The error with its line, and with what was appended before."""
    where = ""
    row = error.row if isinstance(error, InvalidError) else None
    if batch is not None and batch.lines:
        if row is not None and row < len(batch.lines):
            where = f"{source.name}: line {batch.lines[row]}: "
        else:
            where = f"{source.name}: lines {batch.lines[0]} to {batch.lines[-1]}: "
    if not landed.rows:
        return f"{where}{error}; nothing was appended"
    before = f"{counted(landed.rows, 'row')} before it {'was' if landed.rows == 1 else 'were'} appended"
    return f"{where}{error}; {before}, up to global index {landed.global_index}"


__all__ = ["append"]
