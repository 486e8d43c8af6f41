"""``laminar demo``: a zombie is refused, and every row is counted."""

from __future__ import annotations

import importlib.util
import json

import typer
from rich.console import Console

from laminar.cli import demo_plain, demo_spark


def demo(
    *,
    plain: bool = typer.Option(False, "--plain", help="Two writer processes instead of two Spark drivers: no Java."),
    pause: float = typer.Option(2.0, "--pause", min=0.0, max=60.0, help="How long the first one hangs, in seconds."),
    as_json: bool = typer.Option(False, "--json", help="Print what was counted as JSON."),
) -> None:
    """A Spark driver hangs, a second takes over, the first wakes up and is refused. Then every row is counted.

    The same is done to a query that appends to Parquet, and a table compares what came out of both. It runs in a
    temporary folder with processes of its own, and leaves nothing behind.
    """
    console = Console(highlight=False, quiet=as_json)
    if not plain and importlib.util.find_spec("pyspark") is None:
        console.print(
            "[yellow]PySpark is not installed (pip install 'laminar[spark]'): two plain writers instead[/yellow]"
        )
        plain = True
    told = (demo_plain if plain else demo_spark).run(console, pause)
    if as_json:
        typer.echo(json.dumps(told, indent=2))


__all__ = ["demo"]
