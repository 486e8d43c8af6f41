//! One guard.

use std::fmt;

use super::ConditionalPut;
use super::observation::{Observation, Poison};
use super::sync::{AtomicU32, AtomicU64, Ordering};
use crate::error::{EpochError, InvalidError};
use crate::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};
use crate::metadata::{DeltaMetadata, PartitionOwnership};

/// A cached epoch of this value fails every check. No epoch is 0, so no later observation can undo it.
const POISONED: u64 = 0;

/// Proof that a node owns a partition at an epoch, as far as this process has heard.
///
/// Dropping a guard frees it and tells nobody: ownership ends in the metadata, by a release or by a later epoch.
///
/// ```
/// use laminar_core::guard::PartitionGuard;
/// use laminar_core::ids::{Epoch, NodeId, PartitionId};
///
/// let guard = PartitionGuard::new(PartitionId(3), Epoch::new(7)?, NodeId(1))?;
/// assert!(guard.check().is_ok());
/// # Ok::<(), laminar_core::error::InvalidError>(())
/// ```
pub struct PartitionGuard {
    partition_id: PartitionId,
    /// A [`Poison`] once `cached_epoch` is [`POISONED`]; only chooses the error.
    poison: AtomicU32,
    epoch: Epoch,
    node_id: NodeId,
    /// The newest epoch heard of, or [`POISONED`]. The guard is fresh while it equals `epoch`. It starts there, grows
    /// or is poisoned, and does nothing else, so it never comes back (EPOCH-3).
    cached_epoch: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<PartitionGuard>() <= 40, "a guard is at most 40 bytes");

impl PartitionGuard {
    /// A fresh guard for an ownership that the metadata granted.
    ///
    /// # Errors
    /// Invalid: `node_id` is [`NodeId::UNASSIGNED`], which owns nothing.
    pub fn new(partition_id: PartitionId, epoch: Epoch, node_id: NodeId) -> Result<Self, InvalidError> {
        if !node_id.is_assigned() {
            return Err(InvalidError::NodeUnassigned);
        }
        Ok(Self {
            partition_id,
            poison: AtomicU32::new(0),
            epoch,
            node_id,
            cached_epoch: AtomicU64::new(epoch.get()),
        })
    }

    /// Is the guard fresh, as far as this process has heard? One atomic load; asks nobody.
    ///
    /// # Errors
    /// Stale: a later epoch was seen, or the guard is poisoned.
    #[inline]
    pub fn check(&self) -> Result<(), EpochError> {
        // ORDER: Acquire pairs with the Release in `advance` and `poison`, so that whoever sees the guard end also sees
        // what its ender did before, such as the reason.
        let cached = self.cached_epoch.load(Ordering::Acquire);
        if cached == self.epoch.get() { Ok(()) } else { Err(self.failure(cached)) }
    }

    /// Does the metadata confirm this ownership? For checkpoints and reconciliation; `check` is for each write.
    ///
    /// The guard takes over what it learns, so a failure here also fails every later `check`, except where the metadata
    /// is older than the guard: then it cannot confirm, and the guard stays as it was.
    ///
    /// # Errors
    /// Stale: the metadata has a later epoch, another owner or no such partition, or the guard had ended before.
    pub fn validate(&self, metadata: &DeltaMetadata) -> Result<(), EpochError> {
        match self.hear(self.ownership_in(metadata)).refusal(self.partition_id, self.node_id, self.epoch) {
            None => self.check(),
            Some(refusal) => Err(refusal),
        }
    }

    /// Takes over what the metadata knows; true while the guard is fresh.
    pub fn refresh(&self, metadata: &DeltaMetadata) -> bool {
        self.observe(self.ownership_in(metadata))
    }

    /// Takes over what some replica says of the partition (`None`: it has no such partition), in whatever order such
    /// news arrives; true while the guard is fresh.
    pub fn observe(&self, current: Option<OwnerEpoch>) -> bool {
        self.hear(current);
        self.check().is_ok()
    }

    /// The labels of a conditional PUT by this owner.
    pub fn conditional_put_precondition(&self) -> ConditionalPut {
        ConditionalPut { partition_id: self.partition_id, epoch: self.epoch, node_id: self.node_id }
    }

    /// The guarded partition.
    pub fn partition_id(&self) -> PartitionId {
        self.partition_id
    }

    /// The epoch the guard holds.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The node the guard was made for.
    pub fn node_id(&self) -> NodeId {
        self.node_id
    }

    fn ownership_in(&self, metadata: &DeltaMetadata) -> Option<OwnerEpoch> {
        metadata.partition_ownership(self.partition_id).map(PartitionOwnership::owner_epoch)
    }

    fn hear(&self, current: Option<OwnerEpoch>) -> Observation {
        let observation = Observation::of(current, self.node_id, self.epoch);
        match observation {
            Observation::Confirmed | Observation::Behind { .. } => {}
            Observation::Superseded { epoch, .. } => self.advance(epoch),
            Observation::OwnedByOther { .. } => self.end_by(Poison::OwnedByOther),
            Observation::Vanished => self.end_by(Poison::Vanished),
        }
        observation
    }

    /// Raises the cached epoch; an older answer that arrives late changes nothing, a poisoned guard stays poisoned.
    pub(super) fn advance(&self, seen: Epoch) {
        let mut cached = self.cached_epoch.load(Ordering::Relaxed);
        while cached != POISONED && cached < seen.get() {
            // ORDER: Release, for whoever acquires the new value in `check`.
            let exchange = self.cached_epoch.compare_exchange_weak(
                cached,
                seen.get(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            match exchange {
                Ok(_) => return,
                Err(now) => cached = now,
            }
        }
    }

    /// Poisons a fresh guard. One that is stale already stays so: it fails either way, and its error says more.
    pub(super) fn end_by(&self, poison: Poison) {
        self.poison.store(poison as u32, Ordering::Relaxed);
        // ORDER: Release, so that whoever sees the guard poisoned also sees why. A failed exchange means that the guard
        // had ended already.
        let _ = self.cached_epoch.compare_exchange(
            self.epoch.get(),
            POISONED,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    /// The newest epoch heard of, or why the guard is poisoned.
    pub(super) fn seen(&self) -> Result<Epoch, Poison> {
        self.decode(self.cached_epoch.load(Ordering::Acquire))
    }

    fn decode(&self, cached: u64) -> Result<Epoch, Poison> {
        Epoch::new(cached).map_err(|_| {
            if self.poison.load(Ordering::Relaxed) == Poison::Vanished as u32 {
                Poison::Vanished
            } else {
                Poison::OwnedByOther
            }
        })
    }

    #[cold]
    fn failure(&self, cached: u64) -> EpochError {
        let (partition, node) = (self.partition_id, self.node_id);
        match self.decode(cached) {
            Ok(current_epoch) => EpochError::StaleEpoch {
                partition,
                node,
                local_epoch: self.epoch,
                current_epoch,
                current_owner: None,
            },
            Err(Poison::OwnedByOther) => EpochError::NotOwned { partition, node, owner: None },
            Err(Poison::Vanished) => EpochError::UnknownPartition { partition },
        }
    }
}

impl Clone for PartitionGuard {
    /// A guard of its own, as stale or fresh as this one is now.
    fn clone(&self) -> Self {
        Self {
            partition_id: self.partition_id,
            // ORDER: `cached_epoch` is read first, with Acquire, so a poisoned copy has its reason.
            cached_epoch: AtomicU64::new(self.cached_epoch.load(Ordering::Acquire)),
            poison: AtomicU32::new(self.poison.load(Ordering::Relaxed)),
            epoch: self.epoch,
            node_id: self.node_id,
        }
    }
}

impl fmt::Debug for PartitionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionGuard")
            .field("partition_id", &self.partition_id.0)
            .field("epoch", &self.epoch.get())
            .field("node_id", &self.node_id.0)
            .field("fresh", &self.check().is_ok())
            .finish()
    }
}
