"""``laminar stream``: create, list, describe, change and drop streams."""

from __future__ import annotations

import json
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from laminar.cli.forms import guess_format
from laminar.cli.target import AT, JSON, SECRET, YES, confirm, opened
from laminar.cli.units import counted, duration, shown_bytes, shown_duration, shown_time, size
from laminar.errors import InvalidError
from laminar.stream import UNCHANGED, Retention, StreamLimits

if TYPE_CHECKING:
    import laminar

app = typer.Typer(
    help="Create, list, describe, change and drop streams.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)

_PATH = typer.Argument(..., metavar="PATH", help="The stream's name, such as /shop/orders.")
_AGE = typer.Option(None, "--retention-age", metavar="7d|forever", help="Keep rows so long.")
_BYTES = typer.Option(None, "--retention-bytes", metavar="10GiB|forever", help="Keep so many bytes of each partition.")
_ROW_BYTES = typer.Option(None, "--row-bytes", metavar="64KiB", help="The largest row.")


@app.command()
def create(  # noqa: PLR0913 - one argument an option
    path: str = _PATH,
    *,
    partitions: int = typer.Option(1, "--partitions", "-p", min=1, help="How many partitions."),
    schema: str | None = typer.Option(
        None,
        "--schema",
        metavar="SPEC",
        help="The columns: name:type with commas between; ? after a type means that a value may be missing. "
        "Such as id:int64,name:string?,at:timestamp\\[ms]?. Types are Arrow's, also list<…> and struct<a:…,b:…>.",
    ),
    schema_file: Path | None = typer.Option(
        None, "--schema-file", metavar="FILE", help="Take the columns of this file: Parquet, Arrow, JSON lines or CSV."
    ),
    key: list[str] = typer.Option(
        [], "--key", "-k", metavar="COLUMN", help="Rows of equal keys go to one partition. May be repeated."
    ),
    machine: str = typer.Option("log", "--machine", metavar="log|kv", help="kv keeps the newest row of each key."),
    retention_age: str | None = _AGE,
    retention_bytes: str | None = _BYTES,
    row_bytes: str | None = _ROW_BYTES,
    exist_ok: bool = typer.Option(False, "--exist-ok", help="A stream that is there already and is the same is fine."),
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Create a stream. Without a schema it carries keys and values as bytes. The folder is made if it is not there."""
    from laminar.cli.schema_spec import parse_schema  # noqa: PLC0415 - pyarrow is imported when schemas are there
    from laminar.cli.sources import Source  # noqa: PLC0415

    if schema is not None and schema_file is not None:
        raise InvalidError("--schema and --schema-file both say what the columns are; give one of them")
    columns = None if schema is None else parse_schema(schema)
    if schema_file is not None:
        columns = Source(schema_file, guess_format(schema_file, None)).schema()
    with opened(at, secret, create=True) as db:
        made = db.create_stream(
            path,
            partitions,
            columns,
            key or None,
            machine,
            retention=_retention(retention_age, retention_bytes),
            limits=None if row_bytes is None else StreamLimits(row_bytes=size(row_bytes, "--row-bytes")),
            exist_ok=exist_ok,
        )
        _print_described(made, as_json=as_json)


@app.command("ls")
def list_streams(
    prefix: str = typer.Argument("", metavar="[PREFIX]", help="Only names that begin so."),
    *,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """List streams."""
    with opened(at, secret) as db:
        streams = [_described(stream) for stream in db.streams(prefix)]
    if as_json:
        typer.echo(json.dumps(streams, indent=2))
        return
    console = Console(highlight=False)
    if not streams:
        console.print(f"[dim]no streams{' begin with ' + escape(prefix) if prefix else ''}[/dim]")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (("stream", "left"), ("partitions", "right"), ("rows", "right"), ("machine", "left")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("columns", overflow="fold")
    for told in streams:
        shown = told["schema"] or "key and value as bytes"
        count = str(told["partitions"])
        table.add_row(Text(told["path"]), count, f"{told['rows']:,}", told["machine"], Text(shown))
    console.print(table)


@app.command()
def describe(path: str = _PATH, *, at: str = AT, secret: str | None = SECRET, as_json: bool = JSON) -> None:
    """Show what a stream is: columns, key, partitions, limits."""
    with opened(at, secret) as db:
        _print_described(db.stream(path), as_json=as_json)


@app.command()
def alter(  # noqa: PLR0913 - one argument an option
    path: str = _PATH,
    *,
    partitions: int | None = typer.Option(None, "--partitions", "-p", min=1, help="There can only be more."),
    retention_age: str | None = _AGE,
    retention_bytes: str | None = _BYTES,
    row_bytes: str | None = _ROW_BYTES,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Change a stream; what is not given stays.

    With more partitions, keys go to other partitions than before: the rows of a key are in order before and after the
    change, but not across it, and a kv stream finds only what was written since.
    """
    if partitions is None and retention_age is None and retention_bytes is None and row_bytes is None:
        raise InvalidError("nothing to change; give --partitions, --retention-age, --retention-bytes or --row-bytes")
    with opened(at, secret) as db:
        stream = db.stream(path)
        retention: Any = UNCHANGED
        if retention_age is not None or retention_bytes is not None:
            retention = _retention(retention_age, retention_bytes, stream.retention)
        limits: Any = UNCHANGED
        if row_bytes is not None:
            limits = StreamLimits(row_bytes=size(row_bytes, "--row-bytes"))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            stream.alter(partitions=partitions, retention=retention, limits=limits)
        for warning in said:
            typer.echo(f"laminar: {warning.message}", err=True)
        _print_described(stream, as_json=as_json)


@app.command()
def drop(
    path: str = _PATH, *, yes: bool = YES, at: str = AT, secret: str | None = SECRET, as_json: bool = JSON
) -> None:
    """Drop a stream with all its rows, for good."""
    with opened(at, secret) as db:
        rows = _rows(db.stream(path))
        confirm(f"Drop {path} with {counted(rows, 'row')}, for good?", yes=yes)
        db.drop_stream(path)
    if as_json:
        typer.echo(json.dumps({"dropped": path, "rows": rows}))
    else:
        typer.echo(f"{path} is dropped, with {counted(rows, 'row')}")


def _retention(age: str | None, count: str | None, now: Retention | None = None) -> Retention | None:
    """What was given over what there is."""
    kept_age: timedelta | None = now.age if now else None
    kept_bytes: int | None = now.bytes if now else None
    if age is not None:
        kept_age = None if age == "forever" else duration(age, "--retention-age")
    if count is not None:
        kept_bytes = None if count == "forever" else size(count, "--retention-bytes")
    return None if kept_age is None and kept_bytes is None else Retention(age=kept_age, bytes=kept_bytes)


def _rows(stream: laminar.Stream) -> int:
    return sum(end - first for first, end in stream.offsets().values())


def _described(stream: laminar.Stream) -> dict[str, Any]:
    from laminar.cli.schema_spec import schema_text, type_text  # noqa: PLC0415 - pyarrow is imported when schemas are there

    retention = stream.retention
    return {
        "path": stream.path,
        "stream_id": stream.stream_id,
        "partitions": stream.partitions,
        "rows": _rows(stream),
        "schema": None if stream.is_bytes else schema_text(stream.schema),
        "columns": []
        if stream.is_bytes
        else [
            {"name": field.name, "type": type_text(field.type), "nullable": field.nullable} for field in stream.schema
        ],
        "key": stream.key,
        "machine": stream.machine,
        "retention_age_ms": retention.age // timedelta(milliseconds=1) if retention and retention.age else None,
        "retention_bytes": retention.bytes if retention else None,
        "row_bytes": stream.limits.row_bytes,
        "created_at": stream.created_at.isoformat(),
        "offsets": {str(partition): list(offsets) for partition, offsets in stream.offsets().items()},
    }


def _print_described(stream: laminar.Stream, *, as_json: bool) -> None:
    told = _described(stream)
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    console = Console(highlight=False)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("partitions", str(told["partitions"]))
    grid.add_row("rows", f"{told['rows']:,}")
    grid.add_row("machine", told["machine"])
    grid.add_row("key", Text(", ".join(told["key"]) or "none"))
    grid.add_row("kept", _shown_retention(stream.retention))
    if told["row_bytes"] is not None:
        grid.add_row("largest row", shown_bytes(told["row_bytes"]))
    grid.add_row("created", shown_time(stream.created_at))
    grid.add_row("schema", Text(told["schema"] or "none: key and value as bytes"))
    console.print(Text(stream.path, style="bold"))
    console.print(grid)


def _shown_retention(retention: Retention | None) -> str:
    if retention is None:
        return "for ever"
    parts = [f"for {shown_duration(retention.age)}"] if retention.age is not None else []
    if retention.bytes is not None:
        parts.append(f"up to {shown_bytes(retention.bytes)} a partition")
    return ", ".join(parts)


__all__ = ["app"]
