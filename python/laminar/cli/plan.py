"""``laminar plan``: what the assigner would do, without doing it."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from laminar.assignment import AssignmentPlan, ConsistentHashAssigner, NodeInfo, TopologyChange
from laminar.cli.bars import bar_chart
from laminar.cli.cluster_file import ClusterFile, read_cluster_file
from laminar.errors import InvalidError

if TYPE_CHECKING:
    from laminar.assignment import AssignmentConstraints


def plan(  # noqa: PLR0913 - one argument an option
    cluster: Path = typer.Argument(
        ..., metavar="CLUSTER.toml", help="Nodes, partitions, constraints and, if you like, the current map."
    ),
    *,
    join: list[str] = typer.Option([], metavar="ID[:CORES[:DOMAIN]]", help="A node that joins. May be repeated."),
    leave: list[int] = typer.Option([], metavar="ID", help="A node that leaves. May be repeated."),
    weight: list[str] = typer.Option([], metavar="ID=WEIGHT", help="A node's new weight. May be repeated."),
    moves: int = typer.Option(20, min=0, help="How many moves to print."),
    as_json: bool = typer.Option(False, "--json", help="Print the plan as JSON."),
) -> None:
    """Show what a change of the cluster would move. Nothing is changed.

    Without a current map in the file the plan starts from the initial assignment. Several changes make one plan.
    """
    described = read_cluster_file(cluster)
    assigner = ConsistentHashAssigner()
    nodes, constraints, change = _change(described, join, leave, weight)
    current = described.current
    if change is not None and current is None:
        current = dict(
            assigner.initial_assignment(described.partitions, described.nodes, described.constraints).assignments
        )
    if current is None:
        result = assigner.initial_assignment(described.partitions, nodes, constraints)
    else:
        # A partition that the map leaves out has no owner yet: it is new, at the epoch it was created with.
        current = {**dict.fromkeys(described.partitions, (0, 1)), **current}
        result = assigner.rebalance(current, nodes, change or TopologyChange.manual_rebalance(), constraints)
    bands = assigner.bands(len(described.partitions), nodes, constraints)
    if as_json:
        typer.echo(json.dumps(_as_dict(result, nodes, bands), indent=2))
    else:
        _print(described, result, nodes, bands, moves)


def _change(
    described: ClusterFile, join: list[str], leave: list[int], weight: list[str]
) -> tuple[list[NodeInfo], AssignmentConstraints, TopologyChange | None]:
    """The nodes after all changes, and the last change: the assigner compares the map with the nodes it gets."""
    nodes = {node.id: node for node in described.nodes}
    weights = dict(described.weights)
    change = None
    for text in weight:
        node_id, value = _weight(text)
        weights[node_id] = value
        change = TopologyChange.node_updated(_known(nodes, node_id, "--weight"))
    for text in join:
        node = _joining(text)
        if node.id in nodes:
            raise InvalidError(f"--join {text}: node {node.id} is in the cluster already; choose another id")
        nodes[node.id] = node
        change = TopologyChange.node_joined(node)
    for node_id in leave:
        _known(nodes, node_id, "--leave")
        del nodes[node_id]
        change = TopologyChange.node_left(node_id)
    return list(nodes.values()), dataclasses.replace(described.constraints, node_weights=weights), change


def _known(nodes: dict[int, NodeInfo], node_id: int, option: str) -> NodeInfo:
    if node_id not in nodes:
        raise InvalidError(
            f"{option} {node_id}: the cluster has no node {node_id}; it has {', '.join(map(str, sorted(nodes)))}"
        )
    return nodes[node_id]


def _joining(text: str) -> NodeInfo:
    parts = text.split(":")
    if len(parts) > 3 or not all(part.isdecimal() and len(part) <= 20 for part in parts[:2]):
        raise InvalidError(f"--join {text}: must be ID, ID:CORES or ID:CORES:DOMAIN, such as 4:8:az-2")
    cores = int(parts[1]) if len(parts) > 1 else 1
    return NodeInfo(int(parts[0]), cores=cores, failure_domain=parts[2] if len(parts) > 2 else None)


def _weight(text: str) -> tuple[int, float]:
    node_id, equals, value = text.partition("=")
    try:
        if equals and node_id.isdecimal() and len(node_id) <= 20:
            return int(node_id), float(value)
    except ValueError:
        pass
    raise InvalidError(f"--weight {text}: must be ID=WEIGHT, such as 3=0.5")


Bands = dict[int, tuple[float, int, int, int]]


def _domains(result: AssignmentPlan, nodes: list[NodeInfo]) -> Counter[str]:
    domain_of = {node.id: node.failure_domain or "(none)" for node in nodes}
    counts = Counter(dict.fromkeys(sorted(domain_of.values()), 0))
    for node_id, count in result.stats.distribution.items():
        counts[domain_of[node_id]] += count
    return counts


def _as_dict(result: AssignmentPlan, nodes: list[NodeInfo], bands: Bands) -> dict[str, object]:
    as_dict: dict[str, object] = result.to_dict()
    as_dict["bands"] = {
        str(node): {"share": share, "low": low, "high": high, "cap": cap}
        for node, (share, low, high, cap) in bands.items()
    }
    as_dict["failure_domains"] = dict(_domains(result, nodes))
    return as_dict


def _print(described: ClusterFile, result: AssignmentPlan, nodes: list[NodeInfo], bands: Bands, moves_max: int) -> None:
    console = Console()
    stats = result.stats
    console.print(
        f"[bold]{escape(described.name)}[/bold]: {_count(stats.total_partitions, 'partition')} "
        f"on {_count(len(bands), 'node')}, {_count(stats.partitions_moved, 'move')}"
    )
    if result.moves and moves_max:
        table = Table("partition", "from", "to", "epoch", box=None, pad_edge=False, header_style="dim")
        for move in result.moves[:moves_max]:
            source = f"node {move.from_node}" if move.from_node else "nobody"
            table.add_row(
                str(move.partition_id), source, f"node {move.to_node}", f"{move.old_epoch} → {move.new_epoch}"
            )
        console.print()
        console.print(table)
        if len(result.moves) > moves_max:
            console.print(
                f"[dim]… and {len(result.moves) - moves_max} more (--moves {len(result.moves)} shows all)[/dim]"
            )
    rows = [
        (f"node {node}", stats.distribution.get(node, 0), f"share {share:.1f}, band {low} to {high}", low, high)
        for node, (share, low, high, _) in bands.items()
    ]
    console.print("\n[bold]partitions by node[/bold]")
    console.print(bar_chart(rows, most=max(stats.distribution.values(), default=0)))
    domains = _domains(result, nodes)
    if set(domains) - {"(none)"}:
        console.print("\n[bold]partitions by failure domain[/bold]")
        console.print(
            bar_chart([(domain, count, "", 0, count) for domain, count in domains.items()], most=max(domains.values()))
        )
    console.print()
    if stats.violations:
        console.print("[bold yellow]not all wishes are met[/bold yellow]")
        for violation in stats.violations:
            console.print(f"  [yellow]•[/yellow] {escape(violation)}", highlight=False)
    else:
        console.print("[green]all constraints are met[/green]")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
