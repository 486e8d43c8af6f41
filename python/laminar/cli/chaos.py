"""``laminar chaos``: faults against a folder of its own, and the count at the end."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from laminar.errors import InvalidError

if TYPE_CHECKING:
    from laminar.chaos.report import Report
    from laminar.chaos.workload import Progress


def chaos(  # noqa: PLR0913 - one argument an option
    *,
    seconds: float = typer.Option(30.0, min=1.0, help="How long faults go on."),
    clients: int = typer.Option(4, min=1, max=64, help="Client processes at a time."),
    partitions: int = typer.Option(4, min=1, max=1024, help="Partitions of the stream."),
    seed: int | None = typer.Option(None, min=0, help="Repeats the faults and questions of an earlier run."),
    embedded: bool = typer.Option(False, "--embedded", help="The node is in one of the clients, not apart."),
    keep: Path | None = typer.Option(None, metavar="DIR", help="A new folder in which data and histories stay."),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Kill, pause and starve the node and its clients, then prove that nothing was lost or doubled.

    Everything happens in a folder of its own. Exit code 1 means that a rule was broken: the report says which, and the
    data and the histories are kept.
    """
    from laminar.chaos.workload import Chaos, ChaosConfig  # noqa: PLC0415 - only this command needs it

    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InvalidError(f"--keep {keep}: it is there and not an empty folder; name a new one")
    chosen = {} if seed is None else {"seed": seed}
    config = ChaosConfig(
        seconds=seconds, clients=clients, partitions=partitions, detached=not embedded, keep=keep, **chosen
    )
    errors = Console(stderr=True)
    errors.print(f"seed {config.seed}; to repeat: {escape(config.command())}", highlight=False, soft_wrap=True)
    with _display(errors, seconds) as show:
        report = Chaos(config).run(show)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        _print(report)
    if not report.is_good:
        raise typer.Exit(1)


@contextlib.contextmanager
def _display(console: Console, seconds: float) -> Iterator[Callable[[Progress], None]]:
    """A live table on a terminal; elsewhere nothing."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with Live(console=console, transient=True, refresh_per_second=8) as live:
        yield lambda progress: live.update(_live_table(progress, seconds))


def _live_table(progress: Progress, seconds: float) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("[bold]chaos", f"{progress.seconds:.0f} of {seconds:g} s")
    table.add_row("clients", str(progress.clients))
    table.add_row("node", "none" if progress.node is None else f"process {progress.node}")
    table.add_row("operations", ", ".join(f"{count} {outcome}" for outcome, count in progress.outcomes.items()))
    for fault, count in sorted(progress.faults.items()):
        table.add_row(f"[red]{fault}", str(count))
    table.add_row("latest", progress.latest)
    return table


def _print(report: Report) -> None:
    console = Console(soft_wrap=True, highlight=False)
    table = Table("operation", "done", "refused", "unknown")
    told = report.to_dict()
    for kind, outcomes in told["operations"].items():
        table.add_row(kind, *(str(count) for count in outcomes.values()))
    console.print(table)
    for name in ("faults", "errors"):
        counts = ", ".join(f"{count} x {what}" for what, count in told[name].items()) or "none"
        console.print(f"{name}: {escape(counts)}")
    console.print(f"rows: {report.rows}, folder taken {report.folder_epoch} times")
    colour = "green" if report.is_good else "red"
    console.print(
        f"[bold {colour}]refused {told['refused']}, unknown {told['unknown']}, lost {report.lost}, "
        f"doubled {report.doubled}[/]"
    )
    for violation in report.violations:
        console.print(f"[red]violation[/] {escape(str(violation))}")
    if report.kept:
        console.print(f"kept in {escape(report.kept)}")
    console.print(f"repeat: {escape(report.command)}")


__all__ = ["chaos"]
