//! What a run of a writer owns, as far as this process has heard.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use laminar_core::error::{EpochError, InvalidError};
use laminar_core::guard::{PartitionGuard, PartitionGuardSet};
use laminar_core::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};
use laminar_rpc::proto::PartitionDescription;
use laminar_rpc::{ErrorClass, Failure};

use crate::session::lock;

/// The guards of a run and the epochs that it writes under.
pub(crate) struct Ownership {
    guards: Arc<PartitionGuardSet>,
    epochs: Mutex<BTreeMap<u32, u64>>,
}

impl Ownership {
    /// Nothing yet, for a node id that the node minted.
    pub(crate) fn new(node_id: u64) -> Result<Self, Failure> {
        let guards = PartitionGuardSet::new(NodeId(node_id)).map_err(|error| answered(&error))?;
        Ok(Ownership { guards: Arc::new(guards), epochs: Mutex::default() })
    }

    pub(crate) fn node_id(&self) -> u64 {
        self.guards.node_id().0
    }

    pub(crate) fn guards(&self) -> &Arc<PartitionGuardSet> {
        &self.guards
    }

    /// Takes over what a claim granted.
    pub(crate) fn grant(&self, partitions: &[PartitionDescription]) -> Result<(), Failure> {
        let node = self.guards.node_id();
        for partition in partitions {
            let (id, owner) = (partition.partition_id, partition.owner);
            if owner != node.0 {
                let message = format!(
                    "partition id {id}: node {node} claimed it and was told that node {owner} owns it"
                );
                return Err(Failure::internal(message));
            }
            let epoch = Epoch::new(partition.epoch).map_err(|error| answered(&error))?;
            let guard =
                PartitionGuard::new(PartitionId(id), epoch, node).map_err(|error| answered(&error))?;
            self.guards.insert(guard).map_err(|error| answered(&error))?;
            lock(&self.epochs).insert(id, partition.epoch);
        }
        Ok(())
    }

    /// The partitions that were granted, by id.
    pub(crate) fn partition_ids(&self) -> Vec<u32> {
        lock(&self.epochs).keys().copied().collect()
    }

    /// Takes over news of a partition.
    pub(crate) fn hear(&self, partition_id: u32, current: Option<OwnerEpoch>) {
        self.guards.observe(PartitionId(partition_id), current);
    }

    /// The epoch to write under, if the guard is fresh (wall 1).
    pub(crate) fn epoch(&self, partition_id: u32) -> Result<u64, Failure> {
        self.guards.check(PartitionId(partition_id)).map_err(|error| of_guard(&error))?;
        Ok(self.held_epoch(partition_id))
    }

    /// The epoch that was granted last, or 0.
    pub(crate) fn held_epoch(&self, partition_id: u32) -> u64 {
        lock(&self.epochs).get(&partition_id).copied().unwrap_or(0)
    }
}

/// The node answered with ids that cannot be.
fn answered(error: &InvalidError) -> Failure {
    Failure::internal(format!("the node granted what cannot be: {error}; report it"))
}

/// What a guard says, as users see it. The partition is named by the cluster's id.
pub(crate) fn of_guard(error: &EpochError) -> Failure {
    let named = |class| Failure::new(class, error.to_string()).with("partition_id", error.partition().0);
    match error {
        EpochError::StaleEpoch { node, local_epoch, current_epoch, current_owner, .. } => {
            let failure = named(ErrorClass::StaleEpoch)
                .with("node", node.0)
                .with("epoch", local_epoch.get())
                .with("current_epoch", current_epoch.get());
            current_owner.map_or(failure.clone(), |owner| failure.with("owner", owner.0))
        }
        EpochError::UnknownPartition { .. } => named(ErrorClass::UnknownPartition),
        EpochError::NotOwned { node, owner, .. } => {
            let failure = named(ErrorClass::NotOwned).with("node", node.0);
            owner.map_or(failure.clone(), |owner| failure.with("owner", owner.0))
        }
        EpochError::ConditionalPutFailed { expected_epoch, actual_epoch, .. } => {
            named(ErrorClass::StaleEpoch)
                .with("epoch", expected_epoch.get())
                .with("current_epoch", actual_epoch.get())
        }
    }
}

/// An owner and epoch as the node told them; none if the partition is gone.
pub(crate) fn told(owner: u64, epoch: u64) -> Option<OwnerEpoch> {
    Epoch::new(epoch).ok().map(|epoch| OwnerEpoch { node_id: NodeId(owner), epoch })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: u64 = 1 << 32;

    fn granted(partition_id: u32, owner: u64, epoch: u64) -> PartitionDescription {
        PartitionDescription { partition_id, owner, epoch, writer: String::new() }
    }

    #[test]
    fn a_takeover_ends_the_right_to_write() {
        let ownership = Ownership::new(NODE).unwrap();
        ownership.grant(&[granted(100, NODE, 3), granted(101, NODE, 5)]).unwrap();
        assert_eq!((ownership.epoch(100).unwrap(), ownership.epoch(101).unwrap()), (3, 5));
        ownership.hear(100, told(NODE + 1, 4));
        let failure = ownership.epoch(100).unwrap_err();
        assert_eq!(failure.class, ErrorClass::StaleEpoch);
        assert_eq!((failure.number("epoch"), failure.number("current_epoch")), (Some(3), Some(4)));
        assert_eq!(failure.number("partition_id"), Some(100));
        assert_eq!(ownership.epoch(101).unwrap(), 5);
    }

    #[test]
    fn a_partition_that_vanished_cannot_be_written() {
        let ownership = Ownership::new(NODE).unwrap();
        ownership.grant(&[granted(100, NODE, 3)]).unwrap();
        ownership.hear(100, told(0, 0));
        assert_eq!(ownership.epoch(100).unwrap_err().class, ErrorClass::UnknownPartition);
        assert_eq!(ownership.epoch(7).unwrap_err().class, ErrorClass::NotOwned);
    }

    #[test]
    fn a_claim_again_brings_a_later_epoch() {
        let ownership = Ownership::new(NODE).unwrap();
        ownership.grant(&[granted(100, NODE, 3)]).unwrap();
        ownership.hear(100, told(0, 4));
        ownership.grant(&[granted(100, NODE, 5)]).unwrap();
        assert_eq!(ownership.epoch(100).unwrap(), 5);
    }

    #[test]
    fn answers_that_cannot_be_are_errors() {
        assert_eq!(Ownership::new(0).err().unwrap().class, ErrorClass::Internal);
        let ownership = Ownership::new(NODE).unwrap();
        for wrong in [granted(1, NODE + 1, 1), granted(1, NODE, 0)] {
            assert_eq!(ownership.grant(&[wrong]).unwrap_err().class, ErrorClass::Internal);
        }
    }
}
