"""``laminar bench``: how fast appends and reads are here, with a live display and a summary."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

import laminar
from laminar.cli.bench_load import TELL_SECONDS, Clients, Load, Tally, rows_of
from laminar.cli.bench_workers import Workers
from laminar.cli.target import SECRET, is_address, opened
from laminar.cli.units import counted, shown_bytes
from laminar.errors import InvalidError, UnavailableError

app = typer.Typer(
    help="Measure appends and reads. On a temporary folder, unless --at names another.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)

_AT = typer.Option(
    None,
    "--at",
    "-a",
    metavar="FOLDER|HOST:PORT",
    help="Measure there: a stream of its own is created, and dropped at the end.",
)
_CLIENTS = typer.Option(1, "--clients", "-c", min=1, max=1024, help="How many at once, each a thread.")
_PROCESSES = typer.Option(
    0, "--processes", min=0, max=64, help="So many worker processes, each with its clients, through the node's port."
)
_PARTITIONS = typer.Option(8, "--partitions", "-p", min=1, help="Of the stream.")
_ROW_BYTES = typer.Option(100, "--row-bytes", min=8, max=1 << 20, help="About so many bytes a row.")
_SECONDS = typer.Option(5.0, "--seconds", "-s", min=0.1, max=86_400.0, help="It ends after so long.")
_JSON = typer.Option(False, "--json", help="Print the summary as JSON.")


@app.command()
def append(  # noqa: PLR0913 - one argument an option
    *,
    rows: int = typer.Option(0, "--rows", min=0, help="It ends after so many rows, if that is sooner. 0: never."),
    batch_rows: int = typer.Option(10_000, "--batch-rows", min=1, max=1_000_000, help="Rows in each append."),
    row_bytes: int = _ROW_BYTES,
    clients: int = _CLIENTS,
    processes: int = _PROCESSES,
    partitions: int = _PARTITIONS,
    seconds: float = _SECONDS,
    at: str | None = _AT,
    secret: str | None = SECRET,
    as_json: bool = _JSON,
) -> None:
    """Append batches of rows as fast as they are acknowledged."""
    load = Load("append", "", clients, batch_rows, row_bytes, seconds, rows)
    _measure(load, processes, partitions, at, secret, as_json=as_json)


@app.command()
def latency(  # noqa: PLR0913 - one argument an option
    *,
    rows: int = typer.Option(0, "--rows", min=0, help="It ends after so many rows, if that is sooner. 0: never."),
    row_bytes: int = typer.Option(256, "--row-bytes", min=8, max=1 << 20, help="About so many bytes a row."),
    clients: int = _CLIENTS,
    processes: int = _PROCESSES,
    partitions: int = _PARTITIONS,
    seconds: float = _SECONDS,
    at: str | None = _AT,
    secret: str | None = SECRET,
    as_json: bool = _JSON,
) -> None:
    """Append one row at a time: how long until it is on disk."""
    load = Load("latency", "", clients, 1, row_bytes, seconds, rows)
    _measure(load, processes, partitions, at, secret, as_json=as_json)


@app.command()
def read(  # noqa: PLR0913 - one argument an option
    *,
    rows: int = typer.Option(1_000_000, "--rows", min=1, help="So many rows are appended first, and read back."),
    row_bytes: int = _ROW_BYTES,
    clients: int = _CLIENTS,
    processes: int = _PROCESSES,
    partitions: int = _PARTITIONS,
    seconds: float = _SECONDS,
    at: str | None = _AT,
    secret: str | None = SECRET,
    as_json: bool = _JSON,
) -> None:
    """Read rows back as Arrow, again and again until the time is over. Latency is that of a batch."""
    load = Load("read", "", clients, 10_000, row_bytes, seconds, 0)
    _measure(load, processes, partitions, at, secret, as_json=as_json, fill_rows=rows)


def _measure(  # noqa: PLR0913 - what the commands share
    load: Load,
    processes: int,
    partitions: int,
    at: str | None,
    secret: str | None,
    *,
    as_json: bool,
    fill_rows: int = 0,
) -> None:
    if load.kind == "read" and load.clients > partitions:
        raise InvalidError(
            f"{load.clients} clients read {partitions} partitions, and each reads its own; give fewer clients or more "
            "partitions"
        )
    with _stream_of_its_own(at, secret, partitions) as (stream, where):
        load = replace(load, stream=stream.path, target=where, secret=secret)
        if fill_rows:
            _fill(stream, fill_rows, load.row_bytes)
        with _started(stream, load, processes) as work:
            begun = time.monotonic()
            tally = _run(work, load, quiet=as_json)
        seconds = max(tally.last - begun, 1e-6)
    if tally.error:
        raise UnavailableError(f"the measurement ended early: {tally.error}")
    summary = _summary(load, processes, partitions, tally, seconds)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _print(summary, at or "a temporary folder")


@contextmanager
def _stream_of_its_own(at: str | None, secret: str | None, partitions: int) -> Iterator[tuple[laminar.Stream, str]]:
    import pyarrow as pa  # noqa: PLC0415 - pyarrow is imported when rows are there

    schema = pa.schema({"id": pa.int64(), "payload": pa.binary()})
    path = f"/bench/{uuid.uuid4().hex[:12]}"
    if at is None:
        with tempfile.TemporaryDirectory(prefix="laminar-bench-") as folder, laminar.open(f"{folder}/data") as db:
            yield db.create_stream(path, partitions, schema, key="id"), f"{folder}/data"
        return
    with opened(at, secret, create=True) as db:
        try:
            yield (
                db.create_stream(path, partitions, schema, key="id"),
                at if is_address(at) else str(Path(at).absolute()),
            )
        finally:
            db.drop_stream(path)


def _fill(stream: laminar.Stream, rows: int, row_bytes: int) -> None:
    from laminar.cli.progress import rows_bar  # noqa: PLC0415 - only reading needs it

    batch = rows_of(min(rows, 10_000), row_bytes, seed=0)
    with rows_bar("filling") as draw:
        for begin in range(0, rows, batch.num_rows):
            stream.append(batch.slice(0, rows - begin))
            draw(begin, begin / rows)


@contextmanager
def _started(stream: laminar.Stream, load: Load, processes: int) -> Iterator[Clients | Workers]:
    work: Clients | Workers = Workers(load, processes) if processes else Clients(stream, load)
    try:
        work.start()
        yield work
    finally:
        work.stop()


def _run(work: Clients | Workers, load: Load, *, quiet: bool) -> Tally:
    """Until it is over, or Ctrl-C: then what was measured up to there counts."""
    console = Console(stderr=True, highlight=False)
    whole = Tally()
    begun = before = time.monotonic()
    shown = Live(console=console, auto_refresh=False, transient=True)
    try:
        if console.is_terminal and not quiet:
            shown.start()
        while work.running:
            time.sleep(TELL_SECONDS)
            now = time.monotonic()
            lately = work.take()
            whole.merge(lately)
            if shown.is_started:
                shown.update(_live(whole, lately, now - begun, now - before, load.seconds), refresh=True)
            before = now
    except KeyboardInterrupt:
        pass
    finally:
        if shown.is_started:
            shown.stop()
    work.stop()
    whole.merge(work.take())
    return whole


def _live(whole: Tally, lately: Tally, passed: float, since: float, seconds: float) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        f"[dim]{passed:.1f} of {seconds:.0f} s[/dim]",
        f"[bold]{lately.rows / max(since, 1e-3):,.0f}[/bold] rows/s",
        f"{shown_bytes(int(lately.size / max(since, 1e-3)))}/s",
        f"p50 {_milliseconds(lately.quantile(0.5))}",
        f"p99 {_milliseconds(lately.quantile(0.99))}",
        f"[dim]{counted(whole.rows, 'row')}[/dim]",
    )
    return grid


def _summary(load: Load, processes: int, partitions: int, tally: Tally, seconds: float) -> dict[str, Any]:
    return {
        "bench": load.kind,
        "clients": load.clients * max(1, processes),
        "processes": processes,
        "partitions": partitions,
        "batch_rows": load.batch_rows,
        "row_bytes": load.row_bytes,
        "rows": tally.rows,
        "bytes": tally.size,
        "calls": tally.calls,
        "seconds": round(seconds, 3),
        "rows_per_second": round(tally.rows / seconds, 1),
        "bytes_per_second": round(tally.size / seconds, 1),
        "latency_ms": {
            "p50": round(tally.quantile(0.5) * 1e3, 4),
            "p99": round(tally.quantile(0.99) * 1e3, 4),
            "p99.9": round(tally.quantile(0.999) * 1e3, 4),
            "max": round(tally.longest * 1e3, 4),
        },
    }


def _print(summary: dict[str, Any], where: str) -> None:
    console = Console(highlight=False)
    how = f"{counted(summary['clients'], 'client')}, {counted(summary['partitions'], 'partition')}"
    if summary["processes"]:
        how += f", in {summary['processes']} worker processes"
    console.print(f"[bold]{summary['bench']}[/bold] on {escape(where)}: {how}, rows of {summary['row_bytes']} B")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(justify="right")
    grid.add_row("rows", f"{summary['rows']:,}")
    grid.add_row("seconds", f"{summary['seconds']:.1f}")
    grid.add_row("rows/s", f"[bold green]{summary['rows_per_second']:,.0f}[/bold green]")
    grid.add_row("bytes/s", shown_bytes(int(summary["bytes_per_second"])))
    for name, milliseconds in summary["latency_ms"].items():
        grid.add_row(name, _milliseconds(milliseconds / 1e3))
    console.print(grid)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


__all__ = ["app"]
