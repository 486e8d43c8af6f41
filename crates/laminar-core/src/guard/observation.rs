//! What the metadata tells about one ownership: the rule that single guards and guard sets share.

use crate::error::EpochError;
use crate::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};

/// The metadata's answer to "does this node still own the partition at this epoch?".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Observation {
    /// Yes, exactly so.
    Confirmed,
    /// The metadata is older than the guard: it neither confirms nor ends it.
    Behind { owner: NodeId },
    /// A later epoch has begun.
    Superseded { epoch: Epoch, owner: NodeId },
    /// The epoch is the same and the owner is not: this node never had it, or the metadata was rewritten.
    OwnedByOther { owner: NodeId },
    /// There is no such partition.
    Vanished,
}

impl Observation {
    pub(super) fn of(current: Option<OwnerEpoch>, node: NodeId, epoch: Epoch) -> Self {
        let Some(current) = current else { return Observation::Vanished };
        let owner = current.node_id;
        if current.epoch > epoch {
            Observation::Superseded { epoch: current.epoch, owner }
        } else if current.epoch < epoch {
            Observation::Behind { owner }
        } else if owner != node {
            Observation::OwnedByOther { owner }
        } else {
            Observation::Confirmed
        }
    }

    /// Why `validate` refuses, or `None` if the metadata confirms the guard that `local_epoch` and `node` stand for.
    pub(super) fn refusal(
        self,
        partition: PartitionId,
        node: NodeId,
        local_epoch: Epoch,
    ) -> Option<EpochError> {
        match self {
            Observation::Confirmed => None,
            Observation::Superseded { epoch, owner } => Some(EpochError::StaleEpoch {
                partition,
                node,
                local_epoch,
                current_epoch: epoch,
                current_owner: Some(owner),
            }),
            Observation::Behind { owner } | Observation::OwnedByOther { owner } => {
                Some(EpochError::NotOwned { partition, node, owner: Some(owner) })
            }
            Observation::Vanished => Some(EpochError::UnknownPartition { partition }),
        }
    }
}

/// Why a guard was poisoned. Stored beside it as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Poison {
    OwnedByOther = 1,
    Vanished = 2,
}
