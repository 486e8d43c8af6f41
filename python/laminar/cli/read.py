"""``laminar read``: rows of a stream, as they are or as they come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from laminar.cli.forms import Form, guess_form
from laminar.cli.progress import rows_bar
from laminar.cli.target import AT, SECRET, STREAM, opened
from laminar.cli.units import counted, position
from laminar.errors import InvalidError

if TYPE_CHECKING:
    import pyarrow as pa

    import laminar

#: What a person wants to see at once.
_TABLE_ROWS = 100


def read(  # noqa: PLR0913 - one argument an option
    stream: str = STREAM,
    *,
    partition: list[int] = typer.Option([], "--partition", "-p", min=0, help="Only this one. May be repeated."),
    start: str = typer.Option(
        "earliest", "--start", metavar="PLACE", help="earliest, latest, an offset, a time, or how long ago (15m)."
    ),
    end: str = typer.Option("latest", "--end", metavar="PLACE", help="Up to before this place."),
    at_index: int | None = typer.Option(
        None, "--at-index", min=0, metavar="N", help="All partitions as of this global index: one consistent cut."
    ),
    columns: str | None = typer.Option(None, "--columns", "-c", metavar="A,B", help="Only these columns."),
    limit: int | None = typer.Option(
        None, "--limit", "-n", min=0, help=f"At most so many rows. Of a table {_TABLE_ROWS}, if it is not given."
    ),
    follow: bool = typer.Option(
        False, "--follow", help="Wait for more rows, also of partitions that are added, until Ctrl-C."
    ),
    metadata: bool = typer.Option(False, "--metadata", "-m", help="Add _partition, _offset, _timestamp and _epoch."),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="FILE", help="Into a file: .parquet, .jsonl or .arrow."
    ),
    form: Form | None = typer.Option(None, "--format", "-f", help="On a terminal a table, else JSON lines."),
    as_json: bool = typer.Option(
        False, "--json", help="The same as --format jsonl; with --output, say as JSON what was written."
    ),
    at: str = AT,
    secret: str | None = SECRET,
) -> None:
    """Read rows, partition after partition, each in its order.

    JSON has times as text, bytes as text (or as {"base64": …} if they are none), and null for numbers that JSON does
    not know. A time without a zone is UTC.
    """
    from laminar.cli.sinks import sink_to  # noqa: PLC0415 - pyarrow is imported when rows are there

    chosen = guess_form(output, Form.JSONL if as_json and form is None and output is None else form)
    first: Any = position(start, "--start", ("earliest", "latest"))
    last: Any = position(end, "--end", ("latest",))
    if follow and end != "latest":
        raise InvalidError(f"--follow reads without end, and --end is {end}; give one of them")
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    people = chosen is Form.TABLE and limit is None and not follow
    rows_max = _TABLE_ROWS if people else limit
    written, more = 0, False
    with opened(at, secret) as db:
        source = db.stream(stream)
        reader = source.read(
            partition or None, first, last, at=at_index, columns=names, follow=follow, include_metadata=metadata
        )
        with ExitStack() as stack:
            sink = stack.enter_context(sink_to(output, chosen, reader.schema))
            draw = stack.enter_context(rows_bar("reading")) if output is not None else None
            total = _rows_in(source, partition) if draw is not None and not follow else None
            try:
                for batch, more in _limited(reader, rows_max):  # noqa: B007 - the last is what counts
                    sink.write(batch)
                    written += batch.num_rows
                    if draw is not None:
                        draw(written, min(1.0, written / total) if total else None)
            except KeyboardInterrupt:
                # That is how following ends. What was read is kept.
                if not follow:
                    raise
    _say(written, output, chosen, more=more and people, as_json=as_json)


def _limited(reader: pa.RecordBatchReader, rows_max: int | None) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Batches up to so many rows, and whether there are more."""
    left = rows_max
    if left == 0:
        return
    for batch in reader:
        if left is None or batch.num_rows < left:
            left = None if left is None else left - batch.num_rows
            if batch.num_rows:
                yield batch, False
            continue
        yield batch.slice(0, left), batch.num_rows > left
        return


def _rows_in(stream: laminar.Stream, partitions: list[int]) -> int:
    offsets: dict[int, Any] = stream.offsets()
    return sum(end - first for p, (first, end) in offsets.items() if not partitions or p in partitions)


def _say(written: int, output: Path | None, form: Form, *, more: bool, as_json: bool) -> None:
    """How many rows there were, where that does not stand among them."""
    console = Console(highlight=False)
    if output is not None:
        told = json.dumps({"rows": written, "output": str(output)})
        console.print(
            told if as_json else f"{counted(written, 'row')} written to {output}", markup=False, soft_wrap=True
        )
    elif form is Form.TABLE:
        end = f"the first {written}; --limit shows more" if more else counted(written, "row")
        console.print(f"[dim]{end}[/dim]")


__all__ = ["read"]
