"""``laminar run``: the pipelines of a file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from laminar.cli.spark import CONF, MASTER, PACKAGE, session
from laminar.cli.target import JSON, SECRET

if TYPE_CHECKING:
    from laminar.spark.jobs.queries import Running
    from laminar.spark.pipeline import PipelineFile, Ran


def run(  # noqa: PLR0913 - one argument an option
    file: Path = typer.Argument(..., metavar="PIPELINE", help="pipeline.toml, or pipeline.py with pipelines in it."),
    *,
    dry_run: bool = typer.Option(False, "--dry-run", "-n", help="Check the file, and show what would run."),
    only: list[str] = typer.Option([], "--only", metavar="NAME", help="Run this pipeline. May be repeated."),
    at: str | None = typer.Option(
        None,
        "--at",
        "-a",
        envvar="LAMINAR_AT",
        metavar="FOLDER|HOST:PORT",
        help="In place of the endpoint of the file.",
    ),
    secret: str | None = SECRET,
    master: str = MASTER,
    conf: list[str] = CONF,
    package: list[str] = PACKAGE,
    as_json: bool = JSON,
) -> None:
    """Run the pipelines of a file together, exactly once. Ctrl-C stops them; the next run goes on where they ended."""
    from laminar.spark import pipeline  # noqa: PLC0415 - help needs no Spark

    loaded = pipeline.load(file, endpoint=at, only=only)
    if dry_run:
        _show_plan(loaded, as_json=as_json)
        return
    pipeline.check_streams(loaded, secret=secret)
    console = Console(stderr=True, highlight=False)
    live = Live(console=console, transient=True, auto_refresh=False)
    with session("laminar run", master, conf, package) as spark, live:
        done = pipeline.run(
            loaded,
            secret=secret,
            spark=spark,
            drawn=(lambda running: live.update(_progress(running), refresh=True)) if console.is_terminal else None,
        )
    _show(done, as_json=as_json)


def _show_plan(loaded: PipelineFile, *, as_json: bool) -> None:
    from laminar.spark.pipeline.picture import graph_tree, plan, plan_table  # noqa: PLC0415

    if as_json:
        typer.echo(json.dumps(plan(loaded), indent=2))
        return
    console = Console(highlight=False)
    console.print(plan_table(loaded))
    for one in loaded.pipelines:
        console.print()
        console.print(graph_tree(one))


def _progress(running: Sequence[Running]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("query", "batches", "rows read"):
        table.add_column(name, justify="left" if name == "query" else "right")
    for one in running:
        table.add_row(Text(one.name), f"{one.batches:,}", f"{one.rows:,}")
    return table


def _show(done: Ran, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(done)))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("pipeline", "output", "rows read", "rows written", "batches"):
        table.add_column(name, justify="left" if name in ("pipeline", "output") else "right")
    for one in done.outputs:
        written = "" if one.rows_written is None else f"{one.rows_written:,}"
        table.add_row(Text(one.pipeline), Text(one.target), f"{one.rows_read:,}", written, f"{one.batches:,}")
    console = Console(highlight=False)
    console.print(table)
    console.print(f"[dim]{'stopped' if done.stopped else 'done'} after {done.seconds:.1f} s[/dim]")


__all__ = ["run"]
