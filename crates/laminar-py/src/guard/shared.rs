//! A guard and the sets it is in, under all their Python names.
//!
//! In Rust, inserting a guard into a set moves it. In Python both names stay in use, so a guard and the sets it is in
//! share their fate: what one of them hears ends the other (EPOCH-3 through every name).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use laminar_core::error::{EpochError, InvalidError};
use laminar_core::guard::{PartitionGuard as Guard, PartitionGuardSet as GuardSet};
use laminar_core::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};
use laminar_core::metadata::{DeltaMetadata as Metadata, PartitionOwnership};

/// A guard, known to every Python object that stands for it and to the sets it is in.
pub(super) struct Shared {
    pub(super) guard: Guard,
    homes: Mutex<Vec<Weak<Home>>>,
}

impl Shared {
    pub(super) fn new(guard: Guard) -> Arc<Self> {
        Arc::new(Self { guard, homes: Mutex::new(Vec::new()) })
    }

    /// Takes over news of the partition, and passes them to the sets the guard is in.
    pub(super) fn hear(self: &Arc<Self>, current: Option<OwnerEpoch>) {
        self.guard.observe(current);
        let homes: Vec<_> = lock(&self.homes).iter().filter_map(Weak::upgrade).collect();
        for home in homes {
            home.hear_of(self, current);
        }
    }
}

/// The news that end a guard of this epoch with this error.
fn news_of(error: &EpochError, epoch: Epoch) -> Option<OwnerEpoch> {
    let nobody = |epoch: Epoch| Some(OwnerEpoch { node_id: NodeId::UNASSIGNED, epoch });
    match error {
        EpochError::StaleEpoch { current_epoch, .. } => nobody(*current_epoch),
        EpochError::UnknownPartition { .. } => None,
        EpochError::NotOwned { .. } | EpochError::ConditionalPutFailed { .. } => nobody(epoch),
    }
}

/// A set, and the guards that were put into it. Checks look at the set alone and take no lock.
pub(super) struct Home {
    pub(super) set: GuardSet,
    members: Mutex<BTreeMap<PartitionId, Arc<Shared>>>,
}

impl Home {
    pub(super) fn new(set: GuardSet) -> Arc<Self> {
        Arc::new(Self { set, members: Mutex::new(BTreeMap::new()) })
    }

    pub(super) fn get(&self, partition: PartitionId) -> Option<Arc<Shared>> {
        lock(&self.members).get(&partition).cloned()
    }

    pub(super) fn insert(self: &Arc<Self>, shared: &Arc<Shared>) -> Result<(), InvalidError> {
        let (partition, epoch) = (shared.guard.partition_id(), shared.guard.epoch());
        let (replaced, fate) = {
            let mut members = lock(&self.members);
            self.set.insert(shared.guard.clone())?;
            (members.insert(partition, Arc::clone(shared)), self.set.check(partition))
        };
        {
            let mut homes = lock(&shared.homes);
            homes.retain(|home| home.strong_count() > 0 && !home.ptr_eq(&Arc::downgrade(self)));
            homes.push(Arc::downgrade(self));
        }
        if let Some(replaced) = replaced {
            replaced.hear(Some(OwnerEpoch { node_id: self.set.node_id(), epoch }));
        }
        if let Err(error) = fate {
            shared.hear(news_of(&error, epoch));
        }
        Ok(())
    }

    pub(super) fn remove(&self, partition: PartitionId) -> Option<Arc<Shared>> {
        let mut members = lock(&self.members);
        self.set.remove(partition);
        members.remove(&partition)
    }

    /// News that a guard has heard, if it is still the one in this set.
    fn hear_of(&self, shared: &Arc<Shared>, current: Option<OwnerEpoch>) {
        let partition = shared.guard.partition_id();
        let members = lock(&self.members);
        if members.get(&partition).is_some_and(|member| Arc::ptr_eq(member, shared)) {
            self.set.observe(partition, current);
        }
    }

    /// Runs a refresh or a validation, and tells the members what it found of them.
    pub(super) fn ask<T>(
        &self,
        metadata: &Metadata,
        ask: impl FnOnce(&GuardSet, &Metadata) -> Vec<T>,
        partition: impl Fn(&T) -> PartitionId,
    ) -> Vec<T> {
        let (failing, told) = {
            let members = lock(&self.members);
            let failing = ask(&self.set, metadata);
            let told: Vec<_> =
                failing.iter().filter_map(|row| members.get(&partition(row)).cloned()).collect();
            (failing, told)
        };
        // Without the lock: a member passes it on to its other sets, and they may be doing the same.
        for member in told {
            member.hear(ownership(metadata, member.guard.partition_id()));
        }
        failing
    }

    pub(super) fn members(&self) -> Vec<Arc<Shared>> {
        lock(&self.members).values().cloned().collect()
    }
}

pub(super) fn ownership(metadata: &Metadata, partition: PartitionId) -> Option<OwnerEpoch> {
    metadata.partition_ownership(partition).map(PartitionOwnership::owner_epoch)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics between two changes that belong together.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
