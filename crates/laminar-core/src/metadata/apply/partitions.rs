//! The rules of partitions: who may create, take, release and checkpoint one.

use std::cmp::Ordering;

use crate::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};
use crate::metadata::history::{OwnershipCause, OwnershipEvent};
use crate::metadata::journal::Edit;
use crate::metadata::limits::{Bound, InvalidChange, Limit, PARTITIONS_MAX};
use crate::metadata::records::{CheckpointRef, PartitionOwnership, Release, ReleaseInfo, SourceOffsets};
use crate::metadata::response::{CheckpointMark, Rejection};

impl Edit<'_> {
    pub(super) fn create_partition(
        &mut self,
        partition_id: PartitionId,
        first: OwnerEpoch,
    ) -> Result<(), Rejection> {
        if let Some(current) = self.state().partition_map.get(&partition_id) {
            return Err(Rejection::StaleEpoch {
                partition: partition_id,
                expected: None,
                current: current.owner_epoch(),
            });
        }
        if self.state().retired.contains(partition_id) {
            return Err(Rejection::UnknownPartition { partition: partition_id });
        }
        self.check_room_for_partitions(1)?;
        self.set_owner(partition_id, NodeId::UNASSIGNED, first, OwnershipCause::Created);
        Ok(())
    }

    pub(super) fn assign_partition(
        &mut self,
        partition_id: PartitionId,
        expected: OwnerEpoch,
        next: OwnerEpoch,
    ) -> Result<(), Rejection> {
        self.check_handover(partition_id, expected, next)?;
        let cause =
            if next.node_id.is_assigned() { OwnershipCause::Assigned } else { OwnershipCause::Unassigned };
        self.hand_over(partition_id, expected.node_id, next, cause);
        Ok(())
    }

    pub(super) fn acquire_partition(
        &mut self,
        partition_id: PartitionId,
        expected: OwnerEpoch,
        next: OwnerEpoch,
    ) -> Result<(), Rejection> {
        self.check_handover(partition_id, expected, next)?;
        check_assigned(next.node_id)?;
        self.hand_over(partition_id, expected.node_id, next, OwnershipCause::Acquired);
        Ok(())
    }

    pub(super) fn release_partition(
        &mut self,
        partition_id: PartitionId,
        expected: OwnerEpoch,
        release: &Release,
    ) -> Result<(), Rejection> {
        self.check_owner(partition_id, expected)?;
        check_assigned(expected.node_id)?;
        check_source_offsets(&release.source_offsets)?;
        if self.state().pending_releases.contains_key(&partition_id) {
            return Err(Rejection::AlreadyReleased { partition: partition_id, current: expected });
        }
        let OwnerEpoch { node_id, epoch } = expected;
        let info = ReleaseInfo {
            partition_id,
            node_id,
            epoch,
            released_at_ms: self.time_ms,
            release: release.clone(),
        };
        self.set_release(partition_id, Some(info));
        self.push_ownership_event(partition_id, node_id, expected, OwnershipCause::Released);
        Ok(())
    }

    pub(super) fn commit_checkpoint(
        &mut self,
        partition_id: PartitionId,
        expected: OwnerEpoch,
        checkpoint: &CheckpointRef,
    ) -> Result<(), Rejection> {
        self.check_owner(partition_id, expected)?;
        check_assigned(expected.node_id)?;
        if (checkpoint.partition_id, checkpoint.epoch) != (partition_id, expected.epoch) {
            return Err(InvalidChange::CheckpointMismatch {
                partition: partition_id,
                epoch: expected.epoch,
                checkpoint_partition: checkpoint.partition_id,
                checkpoint_epoch: checkpoint.epoch,
            }
            .into());
        }
        Bound::StoragePathBytes.check(checkpoint.storage_path.len())?;
        check_source_offsets(&checkpoint.source_offsets)?;
        let given = mark(checkpoint);
        match self.state().latest_checkpoint(partition_id).map(mark) {
            Some(latest) if given <= latest => {
                Err(Rejection::StaleCheckpoint { partition: partition_id, given, latest })
            }
            _ => {
                self.set_checkpoint(partition_id, Some(checkpoint.clone()));
                Ok(())
            }
        }
    }

    /// The compare of every compare-and-set on a partition (OWN-2).
    pub(super) fn check_owner(&self, partition: PartitionId, expected: OwnerEpoch) -> Result<(), Rejection> {
        let current = self
            .state()
            .partition_map
            .get(&partition)
            .ok_or(Rejection::UnknownPartition { partition })?
            .owner_epoch();
        if current.epoch != expected.epoch {
            return Err(Rejection::StaleEpoch { partition, expected: Some(expected), current });
        }
        if current.node_id != expected.node_id {
            return Err(Rejection::NotOwner { partition, expected, current });
        }
        Ok(())
    }

    /// A new ownership must be of the epoch right after the current one: not before (EPOCH-1), and not further, since
    /// an entry that jumped to the last epoch would leave the partition unassignable for good.
    fn check_handover(
        &self,
        partition: PartitionId,
        current: OwnerEpoch,
        next: OwnerEpoch,
    ) -> Result<(), Rejection> {
        self.check_owner(partition, current)?;
        let following = following(partition, current.epoch)?;
        match next.epoch.cmp(&following) {
            Ordering::Less => Err(Rejection::StaleEpoch { partition, expected: Some(next), current }),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(Rejection::EpochSkipped { partition, epoch: next.epoch, current }),
        }
    }

    /// Gives a partition to its next owner. What the last one left is of an older epoch from here on, and goes.
    pub(super) fn hand_over(
        &mut self,
        partition_id: PartitionId,
        previous: NodeId,
        next: OwnerEpoch,
        cause: OwnershipCause,
    ) {
        self.remove_release(partition_id);
        self.set_owner(partition_id, previous, next, cause);
    }

    pub(super) fn remove_release(&mut self, partition_id: PartitionId) {
        if self.state().pending_releases.contains_key(&partition_id) {
            self.set_release(partition_id, None);
        }
    }

    pub(super) fn set_owner(
        &mut self,
        partition_id: PartitionId,
        previous: NodeId,
        next: OwnerEpoch,
        cause: OwnershipCause,
    ) {
        let OwnerEpoch { node_id, epoch } = next;
        self.set_ownership(
            partition_id,
            Some(PartitionOwnership { node_id, epoch, assigned_at_ms: self.time_ms }),
        );
        self.push_ownership_event(partition_id, previous, next, cause);
    }

    fn push_ownership_event(
        &mut self,
        partition_id: PartitionId,
        previous_owner: NodeId,
        now: OwnerEpoch,
        cause: OwnershipCause,
    ) {
        let event = OwnershipEvent {
            epoch: now.epoch,
            owner: now.node_id,
            previous_owner,
            cause,
            time_ms: self.time_ms,
            log_index: self.log_index,
        };
        self.push_event(partition_id, event);
    }

    pub(super) fn check_room_for_partitions(&self, count: u32) -> Result<(), Rejection> {
        if self.state().partition_map.len() + count as usize > PARTITIONS_MAX {
            return Err(Rejection::LimitReached { limit: Limit::Partitions });
        }
        Ok(())
    }
}

pub(super) fn following(partition: PartitionId, epoch: Epoch) -> Result<Epoch, Rejection> {
    epoch.next().map_err(|_| Rejection::EpochExhausted { partition })
}

pub(super) fn check_assigned(node_id: NodeId) -> Result<(), Rejection> {
    if node_id.is_assigned() { Ok(()) } else { Err(InvalidChange::NodeUnassigned.into()) }
}

fn mark(checkpoint: &CheckpointRef) -> CheckpointMark {
    CheckpointMark { epoch: checkpoint.epoch, checkpoint_id: checkpoint.checkpoint_id }
}

/// A source counts for one at least, so that sources without partitions are bounded too.
fn check_source_offsets(offsets: &SourceOffsets) -> Result<(), InvalidChange> {
    Bound::SourceOffsets.check(offsets.values().map(|partitions| partitions.len().max(1)).sum())?;
    offsets.keys().try_for_each(|name| Bound::SourceNameBytes.check(name.len()))
}
