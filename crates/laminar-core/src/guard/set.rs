//! All guards of one node.

use std::collections::btree_map;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::PartitionGuard;
use super::observation::{Observation, Poison};
use super::page::{Leaf, Page, PageTable, Slot, SlotState};
use super::sync::{AtomicUsize, Ordering};
use crate::error::{EpochError, InvalidError};
use crate::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};
use crate::metadata::{DeltaMetadata, PartitionOwnership};

/// The guards of all partitions a node owns.
///
/// `check`, `check_many`, `len` and `partition_ids` never lock and never wait, also while another thread inserts,
/// removes or refreshes. Those that change the set take turns.
///
/// The set remembers the newest epoch it has heard of each partition, also after the guard was removed: a guard of an
/// earlier epoch that is inserted late is stale from the start.
pub struct PartitionGuardSet {
    node_id: NodeId,
    table: PageTable,
    len: AtomicUsize,
    writer: Mutex<()>,
}

impl PartitionGuardSet {
    /// An empty set for a node.
    ///
    /// # Errors
    /// Invalid: `node_id` is [`NodeId::UNASSIGNED`], which owns nothing.
    pub fn new(node_id: NodeId) -> Result<Self, InvalidError> {
        if !node_id.is_assigned() {
            return Err(InvalidError::NodeUnassigned);
        }
        Ok(Self { node_id, table: PageTable::new(), len: AtomicUsize::new(0), writer: Mutex::new(()) })
    }

    /// The node that all guards of the set belong to.
    pub fn node_id(&self) -> NodeId {
        self.node_id
    }

    /// Takes a guard in and gives back the one it replaces.
    ///
    /// # Errors
    /// Invalid: the guard belongs to another node; nothing is changed.
    pub fn insert(&self, guard: PartitionGuard) -> Result<Option<PartitionGuard>, InvalidError> {
        let partition = guard.partition_id();
        if guard.node_id() != self.node_id {
            let (guard_node, set_node) = (guard.node_id(), self.node_id);
            return Err(InvalidError::GuardOfOtherNode { partition, guard_node, set_node });
        }
        let _turn = self.turn();
        let slot = self.table.slot_or_new(partition);
        let replaced = self.guard_in(partition, slot);
        slot.put(guard.epoch(), guard.seen());
        if replaced.is_none() {
            self.len.fetch_add(1, Ordering::AcqRel);
        }
        Ok(replaced)
    }

    /// Gives the guard back, as stale or fresh as it is. From then on checks of its partition answer "not owned".
    pub fn remove(&self, partition_id: PartitionId) -> Option<PartitionGuard> {
        let _turn = self.turn();
        let slot = self.table.slot(partition_id)?;
        let guard = self.guard_in(partition_id, slot)?;
        slot.take();
        self.len.fetch_sub(1, Ordering::AcqRel);
        Some(guard)
    }

    /// A copy of the guard of a partition, as stale or fresh as it is.
    pub fn get(&self, partition_id: PartitionId) -> Option<PartitionGuard> {
        let _turn = self.turn();
        self.guard_in(partition_id, self.table.slot(partition_id)?)
    }

    /// Is the guard of this partition fresh, as far as this process has heard? Asks nobody.
    ///
    /// # Errors
    /// Stale: there is no guard, a later epoch was seen, or the guard is poisoned.
    #[inline]
    pub fn check(&self, partition_id: PartitionId) -> Result<(), EpochError> {
        match self.table.slot(partition_id) {
            Some(slot) => self.check_slot(partition_id, slot),
            None => Err(self.not_owned(partition_id)),
        }
    }

    /// Checks many partitions and returns those whose check fails, in the order given.
    #[inline]
    pub fn check_many(&self, partition_ids: impl IntoIterator<Item = PartitionId>) -> Vec<PartitionId> {
        let mut failing = Vec::new();
        // Most ids share a leaf, so the path to it is walked once. No partition has the first number.
        let (mut number, mut leaf): (u32, Option<&Leaf>) = (u32::MAX, None);
        for partition in partition_ids {
            let wanted = PageTable::leaf_number(partition);
            if wanted != number {
                (number, leaf) = (wanted, self.table.leaf(wanted));
            }
            let slot = leaf.and_then(|leaf| leaf.slot(partition));
            let fresh = slot.is_some_and(|slot| self.check_slot(partition, slot).is_ok());
            if !fresh {
                failing.push(partition);
            }
        }
        failing
    }

    /// Asks the metadata to confirm every guard and returns those it does not, with the reason, by partition id.
    pub fn validate_all(&self, metadata: &DeltaMetadata) -> Vec<(PartitionId, EpochError)> {
        let mut failing = Vec::new();
        self.observe_all(metadata, |partition, slot, epoch, observation| {
            let refusal = observation.refusal(partition, self.node_id, epoch);
            let refusal = refusal.or_else(|| self.check_slot(partition, slot).err());
            failing.extend(refusal.map(|error| (partition, error)));
        });
        failing
    }

    /// Takes over what the metadata knows of every guard and returns the partitions that are no longer fresh, by id.
    pub fn refresh_all(&self, metadata: &DeltaMetadata) -> Vec<PartitionId> {
        let mut revoked = Vec::new();
        self.observe_all(metadata, |partition, slot, _, _| {
            if !slot.is_fresh() {
                revoked.push(partition);
            }
        });
        revoked
    }

    /// Takes over what some replica says of one partition (`None`: it has no such partition); true while its guard is
    /// fresh. News of partitions without a guard are forgotten.
    pub fn observe(&self, partition_id: PartitionId, current: Option<OwnerEpoch>) -> bool {
        let _turn = self.turn();
        let slot = self.table.slot(partition_id);
        slot.is_some_and(|slot| self.hear(slot, current).is_some() && slot.is_fresh())
    }

    /// How many guards the set holds, stale ones too.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// True if the set holds no guard.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The partitions with a guard, stale ones too, in ascending order.
    pub fn partition_ids(&self) -> Vec<PartitionId> {
        self.table.pages().flat_map(Page::guards).map(|(partition, _)| partition).collect()
    }

    /// The newest epoch heard of each partition, those whose guard was removed too, in ascending order. Together with
    /// the guards this is all a set knows; [`remember`](Self::remember) takes it over elsewhere.
    pub fn epochs_seen(&self) -> Vec<(PartitionId, Epoch)> {
        self.table.pages().flat_map(Page::epochs_seen).collect()
    }

    /// Takes over that a partition has reached an epoch: guards of earlier ones are stale.
    pub fn remember(&self, partition_id: PartitionId, epoch: Epoch) {
        let _turn = self.turn();
        self.table.slot_or_new(partition_id).raise(epoch);
    }

    /// Updates every slot from the metadata and hands each to `then`.
    fn observe_all(
        &self,
        metadata: &DeltaMetadata,
        mut then: impl FnMut(PartitionId, &Slot, Epoch, Observation),
    ) {
        let _turn = self.turn();
        for page in self.table.pages() {
            let (first, last) = page.range();
            // Guards and metadata are both in the order of ids, so one walk over the page's range meets them all.
            let mut known = OwnershipWalk::new(metadata.partition_map().range(first..=last));
            for (partition, slot) in page.guards() {
                if let Some((epoch, observation)) = self.hear(slot, known.find(partition)) {
                    then(partition, slot, epoch, observation);
                }
            }
        }
    }

    /// Lets the guard in a slot, if there is one, take over news of its partition. Under the writer lock.
    fn hear(&self, slot: &Slot, current: Option<OwnerEpoch>) -> Option<(Epoch, Observation)> {
        let epoch = slot.epoch()?;
        let observation = Observation::of(current, self.node_id, epoch);
        match observation {
            Observation::Confirmed | Observation::Behind { .. } => {}
            Observation::Superseded { epoch, .. } => slot.raise(epoch),
            Observation::OwnedByOther { .. } => slot.poison(Poison::OwnedByOther),
            Observation::Vanished => slot.poison(Poison::Vanished),
        }
        Some((epoch, observation))
    }

    #[inline]
    fn check_slot(&self, partition: PartitionId, slot: &Slot) -> Result<(), EpochError> {
        if slot.is_fresh() { Ok(()) } else { self.explain(partition, slot) }
    }

    /// The error of a slot that did not look fresh, or `Ok` if a writer has just put a fresh guard in.
    #[cold]
    fn explain(&self, partition: PartitionId, slot: &Slot) -> Result<(), EpochError> {
        match slot.read() {
            SlotState::Fresh => Ok(()),
            SlotState::Absent | SlotState::Poisoned(Poison::OwnedByOther) => Err(self.not_owned(partition)),
            SlotState::Poisoned(Poison::Vanished) => Err(EpochError::UnknownPartition { partition }),
            SlotState::Stale { held, seen } => Err(EpochError::StaleEpoch {
                partition,
                node: self.node_id,
                local_epoch: held,
                current_epoch: seen,
                current_owner: None,
            }),
        }
    }

    #[cold]
    fn not_owned(&self, partition: PartitionId) -> EpochError {
        EpochError::NotOwned { partition, node: self.node_id, owner: None }
    }

    /// The guard in a slot. Under the writer lock, so the parts belong together.
    fn guard_in(&self, partition: PartitionId, slot: &Slot) -> Option<PartitionGuard> {
        let epoch = slot.epoch()?;
        let guard = PartitionGuard::new(partition, epoch, self.node_id)
            .expect("the set was made for a node that is not 0");
        match slot.read() {
            SlotState::Stale { seen, .. } => guard.advance(seen),
            SlotState::Poisoned(poison) => guard.end_by(poison),
            SlotState::Fresh | SlotState::Absent => {}
        }
        Some(guard)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        // Each slot is whole between any two of its stores, so a panic under the lock leaves nothing to repair.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds ownerships for ascending partition ids in one pass.
struct OwnershipWalk<'a> {
    rest: std::iter::Peekable<btree_map::Range<'a, PartitionId, PartitionOwnership>>,
}

impl<'a> OwnershipWalk<'a> {
    fn new(range: btree_map::Range<'a, PartitionId, PartitionOwnership>) -> Self {
        Self { rest: range.peekable() }
    }

    fn find(&mut self, partition: PartitionId) -> Option<OwnerEpoch> {
        while self.rest.next_if(|(known, _)| **known < partition).is_some() {}
        self.rest.next_if(|(known, _)| **known == partition).map(|(_, ownership)| ownership.owner_epoch())
    }
}

impl fmt::Debug for PartitionGuardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionGuardSet")
            .field("node_id", &self.node_id.0)
            .field("len", &self.len())
            .finish()
    }
}
