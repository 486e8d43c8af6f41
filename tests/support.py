"""What several test modules need."""

from __future__ import annotations

import laminar


def assign(
    metadata: laminar.DeltaMetadata,
    partition: int,
    node: int,
    epoch: int,
    expected: tuple[int, int] | None = None,
) -> laminar.MetadataResponse:
    return metadata.apply(
        laminar.MetadataLogEntry.assign_partition(
            partition_id=partition, node_id=node, epoch=epoch, expected=expected, time_ms=1
        )
    )


def metadata_of(owners: dict[int, tuple[int, int]]) -> laminar.DeltaMetadata:
    """Metadata in which each partition has this owner at this epoch."""
    metadata = laminar.DeltaMetadata()
    for partition, (node, epoch) in owners.items():
        assert assign(metadata, partition, node, epoch).applied
    return metadata


def guards_of(node: int, guards: dict[int, int]) -> laminar.PartitionGuardSet:
    """A set of fresh guards, ``{partition: epoch}``."""
    guard_set = laminar.PartitionGuardSet(node)
    for partition, epoch in guards.items():
        guard_set.insert(laminar.PartitionGuard(partition, epoch, node))
    return guard_set


def nodes_of(count: int, cores: int = 8) -> list[laminar.NodeInfo]:
    return [laminar.NodeInfo(number, cores=cores) for number in range(1, count + 1)]
