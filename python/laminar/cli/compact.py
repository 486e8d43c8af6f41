"""``laminar compact``: the newest row of each key, in few large blocks."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from laminar.cli.progress import rows_bar
from laminar.cli.spark import CONF, MASTER, session
from laminar.cli.target import AT, JSON, SECRET, STREAM, check_target
from laminar.cli.units import duration, shown_bytes

if TYPE_CHECKING:
    from laminar.spark.jobs import Compacted

_STYLES = {"compacted": "green", "already compact": "dim", "busy": "yellow"}


def compact(  # noqa: PLR0913 - one argument an option
    stream: str = STREAM,
    *,
    writer: str | None = typer.Option(
        None, "--writer", "-w", metavar="NAME", help="Claim the stream as this writer, which ends whoever holds it."
    ),
    keep_removed: str = typer.Option(
        "24h", "--keep-removed", metavar="TIME", help="How long the removal of a key stays, such as 24h or 0s."
    ),
    grace: str = typer.Option(
        "60s", "--grace", metavar="TIME", help="How long old rows stay for readers that have begun, such as 60s or 0s."
    ),
    master: str = MASTER,
    conf: list[str] = CONF,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Leave the newest row of each key of a kv stream, in few large blocks. Readers and writers go on meanwhile."""
    from laminar.spark import jobs  # noqa: PLC0415 - help needs no Spark

    kept = duration(keep_removed, "--keep-removed").total_seconds()
    waited = duration(grace, "--grace").total_seconds()
    check_target(at)
    # Before Spark starts, which takes seconds.
    jobs.check_compact(stream, endpoint=at, secret=secret, writer=writer)
    with session(f"laminar compact {stream}", master, conf) as spark, rows_bar("compacting") as draw:
        done = jobs.compact(
            stream,
            endpoint=at,
            secret=secret,
            writer=writer,
            keep_removed=kept,
            grace=waited,
            spark=spark,
            progress=draw,
        )
    if as_json:
        typer.echo(json.dumps(_told(done), indent=2))
        return
    console = Console(highlight=False)
    console.print(_table(done))
    if done.busy:
        several = ", ".join(map(str, done.busy))
        note = f"written all the time, and left as they are: partitions {several}; try again, or give --writer"
        console.print(Text(note, style="yellow"))


def _told(done: Compacted) -> dict[str, object]:
    totals = ("rows_before", "rows_after", "bytes_before", "bytes_after", "removed_dropped")
    told = dataclasses.asdict(done)
    return {**told, "seconds": round(done.seconds, 3), **{name: getattr(done, name) for name in totals}}


def _table(done: Compacted) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_footer=len(done.partitions) > 1)
    columns = {
        "partition": "all",
        "rows before": f"{done.rows_before:,}",
        "rows after": f"{done.rows_after:,}",
        "bytes before": shown_bytes(done.bytes_before),
        "bytes after": shown_bytes(done.bytes_after),
        "removed keys dropped": f"{done.removed_dropped:,}",
    }
    for name, total in columns.items():
        table.add_column(name, footer=total, justify="right", no_wrap=True)
    table.add_column("")
    for one in done.partitions:
        table.add_row(
            str(one.partition),
            f"{one.rows_before:,}",
            f"{one.rows_after:,}",
            shown_bytes(one.bytes_before),
            shown_bytes(one.bytes_after),
            f"{one.removed_dropped:,}",
            Text(one.outcome, style=_STYLES[one.outcome]),
        )
    return table


__all__ = ["compact"]
