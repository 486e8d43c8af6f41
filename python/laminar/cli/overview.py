"""``laminar status``, ``metrics``, ``partitions`` and ``nodes``: what a node does, and with what."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from laminar.cli.target import AT, JSON, SECRET, opened
from laminar.cli.units import counted, printable, shown_bytes, shown_time
from laminar.errors import LaminarError

if TYPE_CHECKING:
    import laminar
    from laminar.status import ClusterStatus, GroupStatus, NodeStatus, PartitionStatus

_WATCH_SECONDS = 1.0
_PAUSED_ROWS = 20
_EVENT_ROWS = 10


def status(
    *,
    watch: bool = typer.Option(False, "--watch", "-w", help="Look again each second, until Ctrl-C."),
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Show the node, its groups, writers, paused partitions and what happened lately."""
    with opened(at, secret) as db:
        if not watch:
            told = db.status()
            if as_json:
                typer.echo(_json(told, indent=2))
            else:
                Console(highlight=False).print(_shown(told))
            return
        try:
            _watch(db.status, as_json=as_json)
        except KeyboardInterrupt:
            # That is how watching ends.
            return


def _watch(look: Callable[[], ClusterStatus], *, as_json: bool) -> None:
    console = Console(highlight=False)
    if as_json or not console.is_terminal:
        while True:
            told = look()
            if as_json:
                typer.echo(_json(told))
            else:
                console.print(_shown(told))
            time.sleep(_WATCH_SECONDS)
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            try:
                shown = _shown(look())
            except LaminarError as error:
                # A node that comes back is worth waiting for.
                if not error.retryable:
                    raise
                shown = Text(str(error), style="red")
            live.update(shown, refresh=True)
            time.sleep(_WATCH_SECONDS)


def metrics(
    place: str | None = typer.Argument(None, metavar="[PLACE]", help="The same as --at: a folder, or an address."),
    *,
    at: str = AT,
    secret: str | None = SECRET,
) -> None:
    """Print what the node counted, in the format that Prometheus reads."""
    with opened(place or at, secret) as db:
        typer.echo(db.metrics(), nl=False)


def partitions(
    stream: str | None = typer.Argument(None, metavar="[STREAM]", help="Only those of this stream."),
    *,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """List partitions with owner, epoch, offsets and what waits."""
    with opened(at, secret) as db:
        if stream is not None:
            # A name that is wrong is an error, not an empty list.
            db.stream(stream)
        told = db.status(stream).partitions
    if as_json:
        typer.echo(json.dumps([_plain(one) for one in told], indent=2))
        return
    console = Console(highlight=False)
    console.print(_partition_table(told) if told else Text("no partitions", style="dim"))


def nodes(*, at: str = AT, secret: str | None = SECRET, as_json: bool = JSON) -> None:
    """List the servers, and the runs of writers."""
    with opened(at, secret) as db:
        told = db.nodes()
    if as_json:
        typer.echo(json.dumps([_plain(one) for one in told], indent=2))
        return
    Console(highlight=False).print(_node_table(told))


def _json(told: ClusterStatus, indent: int | None = None) -> str:
    return json.dumps(_plain(told), indent=indent)


def _plain(told: Any) -> dict[str, Any]:
    return dataclasses.asdict(told, dict_factory=_dated)


def _dated(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in items}


def _shown(told: laminar.ClusterStatus) -> RenderableType:
    node = told.node
    up = datetime.now(timezone.utc) - told.started_at
    head = Text.assemble(
        (f"node {node.node_id}", "bold"),
        f"  process {node.pid}, laminar {node.version}, up {_ago(up)}, {shown_bytes(told.resident_bytes)} of memory\n",
        (f"cluster {node.cluster_id}, folder epoch {node.folder_epoch}", "dim"),
    )
    counts = Text(f"{counted(told.streams, 'stream')}, {counted(told.partition_count, 'partition')}")
    parts: list[RenderableType] = [head, counts, Text(), _group_table(told)]
    writers = [one for one in told.nodes if one.writer]
    if writers:
        parts += [Text("\nwriters", style="bold"), _node_table(writers)]
    paused = told.paused
    if paused:
        parts += [Text(f"\n{counted(len(paused), 'partition')} paused", style="bold red"), *_paused(paused)]
    if told.events:
        parts.append(Text("\nlately", style="bold"))
        parts += [Text(printable(f"  {event}")) for event in told.events[-_EVENT_ROWS:]]
    return Group(*parts)


def _group_table(told: ClusterStatus) -> Table:
    table = _table(
        "group", "", "leader", ">term", ">last", ">durable", ">committed", ">applied", ">snapshot", ">purged"
    )
    groups: Sequence[tuple[str, GroupStatus]] = (("metadata", told.metadata_group), ("data", told.data_group))
    faults: list[tuple[str, str]] = []
    for name, group in groups:
        well = group.phase == "running" or (group.recovered and not group.last_fault)
        table.add_row(
            name,
            Text(group.phase, style="green" if well else "yellow"),
            f"node {group.leader}" if group.leader else "none",
            *(
                str(number)
                for number in (
                    group.term,
                    group.last_index,
                    group.durable_index,
                    group.committed_index,
                    group.applied_index,
                    group.snapshot_index,
                    group.purged_index,
                )
            ),
        )
        faults += [(name, fault) for fault in (group.last_fault, group.snapshot_fault) if fault]
    for name, fault in faults:
        table.add_row(name, Text(printable(fault), style="red"))
    return table


def _paused(paused: Sequence[PartitionStatus]) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text(printable(f"  {one.stream} {one.partition}, at record {one.paused_at}: {one.paused}"))
        for one in paused[:_PAUSED_ROWS]
    ]
    if len(paused) > _PAUSED_ROWS:
        lines.append(Text(f"  … and {len(paused) - _PAUSED_ROWS} more (laminar partitions shows all)", style="dim"))
    lines.append(Text("  laminar resume tries again, laminar skip leaves the record out", style="dim"))
    return lines


def _node_table(told: Sequence[NodeStatus]) -> Table:
    table = _table(">node", "role", "state", "writer", "stream", ">partitions", "process", ">silent", "since")
    for one in told:
        table.add_row(
            str(one.node_id),
            Text(printable(one.role)),
            Text(one.state, style="green" if one.state == "active" else "yellow"),
            Text(printable(one.writer)),
            Text(printable(one.stream)),
            str(one.partitions),
            Text(f"{one.pid} on {one.host}" if one.pid else one.address),
            _ago(timedelta(milliseconds=one.silent_ms)) if one.silent_ms else "",
            shown_time(one.registered_at),
        )
    return table


def _partition_table(told: Sequence[PartitionStatus]) -> Table:
    table = _table("stream", ">partition", ">id", "owner", ">epoch", ">from", ">next", ">bytes", ">queued", "state")
    for one in told:
        state = one.admission
        style = "green" if state == "open" else "yellow"
        if one.paused:
            state, style = f"paused at {one.paused_at}: {one.paused}", "red"
        elif one.repairing:
            state, style = "repairing", "yellow"
        table.add_row(
            Text(printable(one.stream)),
            str(one.partition),
            str(one.partition_id),
            Text(_owner(one)),
            str(one.epoch),
            str(one.start_offset),
            str(one.next_offset),
            shown_bytes(one.bytes),
            str(one.queued),
            Text(printable(state), style=style),
        )
    return table


def _owner(one: PartitionStatus) -> str:
    if one.writer:
        return f"{printable(one.writer)} (node {one.owner})"
    return f"node {one.owner}" if one.owner else "nobody"


def _table(*columns: str) -> Table:
    """Columns whose names begin with > stand at the right."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return table


def _ago(passed: timedelta) -> str:
    seconds = max(0.0, passed.total_seconds())
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"


__all__ = ["metrics", "nodes", "partitions", "status"]
