"""``laminar log``: what a replica has on disk, and whether all of it is as it was written."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from laminar._native import inspect_log, verify_log
from laminar.cli.progress import reading_bar
from laminar.errors import CorruptionError

app = typer.Typer(
    help="Look at the logs of a replica. Nothing is changed, also while it runs.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)

_KINDS = {
    "replica": "a replica",
    "segmented_log": "a segmented log",
    "partition_log": "the log of one partition",
    "files": "the segments of a log",
}
_DIR = typer.Argument(
    ...,
    metavar="DIR",
    help="A replica's folder (with raft, partitions and snapshots in it), or one with segment files.",
)
_JSON = typer.Option(False, "--json", help="Print everything as JSON.")


@app.command()
def inspect(
    folder: Path = _DIR,
    *,
    rows: int = typer.Option(50, min=0, help="How many rows to print of each table."),
    as_json: bool = _JSON,
) -> None:
    """Show segments, ranges, partitions, watermarks and snapshots.

    What cannot be read is shown where it stands; then the exit code is 1.
    """
    with reading_bar("reading") as bar:
        report = json.loads(inspect_log(_resolved(folder), bar))
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _print(report, rows)
    if report["first_error"]:
        raise CorruptionError(report["first_error"]["message"])


@app.command()
def verify(folder: Path = _DIR, *, as_json: bool = _JSON) -> None:
    """Read every record of every log and every snapshot, and stop at the first bad place.

    Checked are checksums, that nothing is missing (LOG-2), that each stored record is in the entry that it names
    (LOG-4), that epochs do not fall (EPOCH-2), and that times do not go back.
    """
    with reading_bar("verifying") as bar:
        report = json.loads(verify_log(_resolved(folder), bar))
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    elif report["ok"]:
        _print_verified(report)
    if not report["ok"]:
        raise CorruptionError(report["first_error"]["message"])


def _resolved(folder: Path) -> Path:
    """The log of a partition is known by the name of its folder, which ``.`` does not have."""
    return folder.resolve()


def _print_verified(report: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console.print(
        f"[green]all of it is as it was written[/green]: {report['records']} records, {_bytes(report['bytes'])}"
    )
    for cut in report["cuts"]:
        console.print(
            f"[yellow]{escape(cut['log'])}[/yellow] has an unsynced tail: its intact part ends before record "
            f"{cut['record']}, in segment {cut['segment']} at byte {cut['byte']}; the next start cuts what follows"
        )
    for ahead in report["ahead"]:
        console.print(
            f"[yellow]partition {ahead['partition']}[/yellow] is ahead of the segmented log from record "
            f"{ahead['record']} on; the next start cuts that, too"
        )


def _print(report: dict[str, Any], rows_max: int) -> None:
    console = Console(highlight=False)
    formats = ", ".join(f"{name} {version}" for name, version in report["formats"].items())
    console.print(f"[bold]{escape(report['dir'])}[/bold]: {_KINDS[report['kind']]} [dim](formats: {formats})[/dim]")
    if report["segmented_log"]:
        _print_segmented_log(console, report["segmented_log"], rows_max)
    if report["partitions"]:
        _print_partitions(console, report["partitions"], rows_max)
    if report["snapshots"]:
        _print_snapshots(console, report["snapshots"], rows_max)
    if report["files"]:
        console.print("\n[bold]log[/bold]")
        _print_files(console, report["files"], rows_max)


def _print_segmented_log(console: Console, log: dict[str, Any], rows_max: int) -> None:
    console.print("\n[bold]segmented log[/bold]")
    if log["error"]:
        console.print(f"  [red]{escape(log['error']['message'])}[/red]", soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 2))
    if log["first_index"] is not None:
        grid.add_row("entries", f"{log['first_index']} to {log['last']['index']}")
    else:
        grid.add_row("entries", "none")
    vote = log["vote"]
    if vote:
        grid.add_row(
            "vote", f"node {vote['node']} in term {vote['term']}{', by a quorum' if vote['committed'] else ''}"
        )
    for name in ("committed", "purged", "last", "durable"):
        grid.add_row(name, _log_id(log[name]))
    console.print(grid)
    _print_files(console, log, rows_max)


def _print_files(console: Console, files: dict[str, Any], rows_max: int) -> None:
    table = _table("segment", "records", "bytes", "of", "")
    for segment in files["segments"][:rows_max]:
        state = "sealed" if segment["sealed"] else "open"
        table.add_row(
            f"{segment['id']:016x}",
            _range(segment["first"], segment["end"]),
            _bytes(segment["bytes"]),
            _bytes(segment["capacity"]),
            state,
        )
    console.print(table)
    _print_more(console, len(files["segments"]), rows_max)
    if files["synced_end"] < files["end"]:
        console.print(f"[yellow]records from {files['synced_end']} on are not known to be on disk yet[/yellow]")
    if files["cut"]:
        console.print(
            f"[yellow]something unsynced stands behind record {files['cut']['record'] - 1}, in segment "
            f"{files['cut']['segment']} at byte {files['cut']['byte']}[/yellow]"
        )


def _print_partitions(console: Console, partitions: list[dict[str, Any]], rows_max: int) -> None:
    console.print("\n[bold]partitions[/bold]")
    table = _table("partition", "segments", "bytes", "records", "synced", "offsets", "epoch", "owner", "entry", "time")
    errors = []
    for log in partitions[:rows_max]:
        if log["error"]:
            errors.append(log["error"]["message"])
            table.add_row(str(log["partition"]), "[red]damaged[/red]")
            continue
        synced = "all" if log["synced_end"] >= log["end"] else f"to {log['synced_end'] - 1}"
        table.add_row(
            str(log["partition"]),
            str(len(log["segments"])),
            _bytes(log["bytes"]),
            _range(log["first"], log["end"]),
            synced if log["cut"] is None else f"{synced}, cut",
            _range(log["first_offset"], log["end_offset"]),
            _epochs(log),
            "?" if log["owner"] is None else f"node {log['owner']}",
            _log_id(log["last_log_id"]),
            _time(log["last_time_ms"]),
        )
    console.print(table)
    _print_more(console, len(partitions), rows_max)
    for message in errors:
        console.print(f"  [red]{escape(message)}[/red]", soft_wrap=True)


def _print_snapshots(console: Console, snapshots: list[dict[str, Any]], rows_max: int) -> None:
    console.print("\n[bold]snapshots[/bold]")
    table = _table("entry", "bytes", "partitions", "")
    for snapshot in snapshots[:rows_max]:
        state = "[yellow]to be installed[/yellow]" if snapshot["to_install"] else ""
        if snapshot["error"]:
            state = "[red]damaged[/red]"
        table.add_row(_log_id(snapshot["log_id"]), _bytes(snapshot["bytes"]), str(snapshot["partitions"]), state)
    console.print(table)
    _print_more(console, len(snapshots), rows_max)


def _print_more(console: Console, count: int, rows_max: int) -> None:
    if count > rows_max:
        console.print(f"[dim]… and {count - rows_max} more (--rows {count} shows all)[/dim]")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _range(first: int | None, end: int | None) -> str:
    if first is None or end is None or first >= end:
        return "none"
    return str(first) if first == end - 1 else f"{first} to {end - 1}"


def _epochs(log: dict[str, Any]) -> str:
    first, last = log["first_epoch"], log["last_epoch"]
    if last is None:
        return ""
    return str(last) if first == last else f"{first} to {last}"


def _log_id(log_id: dict[str, int] | None) -> str:
    return "none" if log_id is None else f"{log_id['term']}-{log_id['index']}"


def _time(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    try:
        at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S")


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
