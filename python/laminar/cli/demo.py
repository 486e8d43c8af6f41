"""``laminar demo``: the guard's story, told with the real types in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.panel import Panel

from laminar.assignment import ConsistentHashAssigner, NodeInfo, TopologyChange
from laminar.cli.bars import bar_chart
from laminar.errors import EpochError, InternalError
from laminar.guards import PartitionGuard, PartitionGuardSet
from laminar.metadata import DeltaMetadata, MetadataLogEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARTITIONS = 24
_LOST = 2


def demo() -> None:
    """A node is lost, its partitions move, and its zombie is refused."""
    console = Console(highlight=False)
    nodes = [NodeInfo(number, cores=8, failure_domain=f"az-{number}") for number in (1, 2, 3)]
    assigner = ConsistentHashAssigner()
    metadata = DeltaMetadata()

    console.print(Panel.fit("[bold]Three nodes, one of them a zombie[/bold]", border_style="cyan"))
    _step(console, 1, f"{_PARTITIONS} partitions are assigned to three nodes, each at epoch 1")
    first = assigner.initial_assignment(range(_PARTITIONS), nodes)
    _apply(
        metadata,
        [
            MetadataLogEntry.assign_partition(partition_id=partition, node_id=node, epoch=epoch, time_ms=0)
            for partition, (node, epoch) in first.assignments.items()
        ],
    )
    _spread(console, first.stats.distribution)

    _step(console, 2, f"node {_LOST} guards its partitions and checks before each write")
    guards = PartitionGuardSet(_LOST)
    for partition, (node, epoch) in metadata.ownership().items():
        if node == _LOST:
            guards.insert(PartitionGuard(partition, epoch, _LOST))
    owned = guards.partition_ids()
    console.print(f"   check_many({len(owned)} partitions) → {len(guards.check_many(owned))} refused")

    _step(console, 3, f"node {_LOST} hangs: it is lost to the cluster, and its partitions move under new epochs")
    plan = assigner.rebalance(metadata.ownership(), nodes, TopologyChange.node_left(_LOST))
    _apply(
        metadata,
        [
            MetadataLogEntry.assign_partition(
                partition_id=move.partition_id,
                node_id=move.to_node,
                epoch=move.new_epoch,
                expected=(move.from_node, move.old_epoch),
                time_ms=1_000,
            )
            for move in plan.moves
        ],
    )
    _spread(console, plan.stats.distribution)
    console.print(f"   {len(plan.moves)} moves, which is exactly what node {_LOST} had")

    _step(console, 4, f"node {_LOST} wakes up and wants to go on writing")
    revoked = guards.refresh_all(metadata)
    console.print(f"   refresh_all → {len(revoked)} of {len(owned)} guards are over")
    try:
        guards.check(revoked[0])
    except EpochError as error:
        console.print(f"   [red]✗ {type(error).__name__}[/red] {error}")
    else:
        raise InternalError(f"partition {revoked[0]}: the zombie's guard passed after its epoch was over")

    _step(console, 5, f"node {_LOST} tries to take a partition back with the epoch it remembers")
    answer = metadata.apply(
        MetadataLogEntry.acquire_partition(
            partition_id=revoked[0], node_id=_LOST, epoch=2, expected=(_LOST, 1), time_ms=2_000
        )
    )
    console.print(f"   [red]✗ {answer.reason}[/red] {answer.message}")
    owner = metadata.partition_map[revoked[0]]
    console.print(
        f"\n[green]✓[/green] partition {revoked[0]} has one owner: node {owner.node_id} at epoch {owner.epoch}"
    )


def _step(console: Console, number: int, text: str) -> None:
    console.print(f"\n[bold cyan]{number}[/bold cyan] [bold]{text}[/bold]")


def _spread(console: Console, distribution: Mapping[int, int]) -> None:
    rows = [(f"   node {node}", count, "", 0, count) for node, count in sorted(distribution.items())]
    console.print(bar_chart(rows, most=_PARTITIONS // 2))


def _apply(metadata: DeltaMetadata, entries: list[MetadataLogEntry]) -> None:
    """One batch: a plan is carried out whole or not at all."""
    answer = metadata.apply(MetadataLogEntry.batch(entries, time_ms=0))
    if not answer.applied:
        raise InternalError(f"the metadata refused a plan made from it: {answer.message}")
