"""Guards: a node's local proof that a partition is still its own."""

from laminar._native import ConditionalPut, PartitionGuard, PartitionGuardSet

__all__ = ["ConditionalPut", "PartitionGuard", "PartitionGuardSet"]
