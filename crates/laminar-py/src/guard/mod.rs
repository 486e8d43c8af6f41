//! Guards.

mod conditional_put;
mod shared;

use std::sync::Arc;

use laminar_core::error::EpochError;
use laminar_core::guard::{PartitionGuard as Guard, PartitionGuardSet as GuardSet};
use laminar_core::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};
use pyo3::prelude::*;
use pyo3::types::PyString;

pub(crate) use self::conditional_put::ConditionalPut;
use self::shared::{Home, Shared, ownership};
use crate::args;
use crate::errors::{to_object, to_py};
use crate::gate::detached;
use crate::ids_array;
use crate::metadata::DeltaMetadata;

/// The hash of partition, epoch and node.
fn hash_of((partition, epoch, node): (u32, u64, u64)) -> u64 {
    epoch.wrapping_mul(31).wrapping_add(node).wrapping_mul(31).wrapping_add(partition.into())
}

/// From this many guards on a refresh is worth letting other threads run.
const GUARDS_HEAVY: usize = 256;

/// Proof that a node owns a partition at an epoch, as far as this process has heard.
///
/// Dropping a guard frees it and tells nobody: ownership ends in the metadata. A guard that was found stale never
/// becomes fresh again, also not in a copy that was pickled.
///
/// >>> from laminar import PartitionGuard
/// >>> guard = PartitionGuard(42, 7, 1)
/// >>> guard.check()
/// >>> guard
/// PartitionGuard(partition_id=42, epoch=7, node_id=1) <fresh>
#[pyclass(frozen, module = "laminar")]
pub(crate) struct PartitionGuard {
    shared: Arc<Shared>,
}

impl PartitionGuard {
    fn guard(&self) -> &Guard {
        &self.shared.guard
    }

    fn key(&self) -> (u32, u64, u64) {
        (self.guard().partition_id().0, self.guard().epoch().get(), self.guard().node_id().0)
    }
}

#[pymethods]
impl PartitionGuard {
    #[new]
    fn new(
        partition_id: &Bound<'_, PyAny>,
        epoch: &Bound<'_, PyAny>,
        node_id: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (partition, epoch, node) = args::held(partition_id, epoch, node_id)?;
        let guard = Guard::new(partition, epoch, node).map_err(to_py)?;
        Ok(Self { shared: Shared::new(guard) })
    }

    /// Raise unless the guard is fresh; asks nobody.
    ///
    /// Raises ``StaleEpochError`` if a later epoch was seen, ``NotOwnedError`` or ``UnknownPartitionError`` if the
    /// owner changed or the partition vanished without one.
    fn check(&self) -> PyResult<()> {
        self.guard().check().map_err(to_py)
    }

    /// Raise unless the metadata confirms this ownership; what is learnt here also fails every later ``check``.
    fn validate(&self, metadata: &DeltaMetadata) -> PyResult<()> {
        let (verdict, current) = metadata.read(|metadata| {
            (self.guard().validate(metadata), ownership(metadata, self.guard().partition_id()))
        });
        self.shared.hear(current);
        verdict.map_err(to_py)
    }

    /// Take over what the metadata knows; true while the guard is fresh.
    fn refresh(&self, metadata: &DeltaMetadata) -> bool {
        let current = metadata.read(|metadata| ownership(metadata, self.guard().partition_id()));
        self.shared.hear(current);
        self.guard().check().is_ok()
    }

    /// Labels for an object written under this ownership.
    fn conditional_put_precondition(&self) -> ConditionalPut {
        ConditionalPut { put: self.guard().conditional_put_precondition() }
    }

    /// The guarded partition.
    #[getter]
    fn partition_id(&self) -> u32 {
        self.guard().partition_id().0
    }

    /// The epoch the guard holds.
    #[getter]
    fn epoch(&self) -> u64 {
        self.guard().epoch().get()
    }

    /// The node the guard was made for.
    #[getter]
    fn node_id(&self) -> u64 {
        self.guard().node_id().0
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| {
            let other = other.get();
            self.key() == other.key() && self.guard().check() == other.guard().check()
        })
    }

    fn __hash__(&self) -> u64 {
        // Equal guards have the same key; whether they are fresh may change, so it stays out.
        hash_of(self.key())
    }

    fn __repr__(&self) -> String {
        let (partition, epoch, node) = self.key();
        let fate = match self.guard().check() {
            Ok(()) => "fresh".to_owned(),
            Err(EpochError::StaleEpoch { current_epoch, .. }) => {
                format!("stale, epoch {current_epoch} is current")
            }
            Err(EpochError::UnknownPartition { .. }) => "stale, the partition is gone".to_owned(),
            Err(_) => "stale, owned by another".to_owned(),
        };
        format!("PartitionGuard(partition_id={partition}, epoch={epoch}, node_id={node}) <{fate}>")
    }

    // A guard that has ended stays so on the other side (EPOCH-3): what ended it travels as the state.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let ended_by = match slf.get().guard().check() {
            Ok(()) => None,
            Err(EpochError::StaleEpoch { current_epoch, .. }) => {
                Some(current_epoch.get().into_pyobject(py)?.into_any())
            }
            Err(EpochError::UnknownPartition { .. }) => Some(PyString::new(py, VANISHED).into_any()),
            Err(_) => Some(PyString::new(py, OWNED_BY_OTHER).into_any()),
        };
        Ok((slf.get_type(), slf.get().key(), ended_by).into_pyobject(py)?.into_any())
    }

    fn __setstate__(&self, ended_by: &Bound<'_, PyAny>) -> PyResult<()> {
        let nobody = |epoch| Some(OwnerEpoch { node_id: NodeId::UNASSIGNED, epoch });
        self.shared.hear(match ended_by.extract::<String>() {
            Ok(word) if word == VANISHED => None,
            Ok(_) => nobody(self.guard().epoch()),
            Err(_) => nobody(args::epoch(ended_by)?),
        });
        Ok(())
    }
}

const VANISHED: &str = "vanished";
const OWNED_BY_OTHER: &str = "owned_by_other";

/// The guards of all partitions a node owns.
///
/// Checks never lock and never wait, also while another thread inserts, removes or refreshes. The set remembers the
/// newest epoch it has heard of each partition: a guard of an earlier one is stale from the start.
///
/// >>> from laminar import PartitionGuard, PartitionGuardSet
/// >>> guards = PartitionGuardSet(1)
/// >>> guards.insert(PartitionGuard(3, 1, 1))
/// >>> guards.check_many([3, 4])
/// [4]
#[pyclass(frozen, module = "laminar")]
pub(crate) struct PartitionGuardSet {
    home: Arc<Home>,
}

impl PartitionGuardSet {
    fn set(&self) -> &GuardSet {
        &self.home.set
    }

    fn is_heavy(&self) -> bool {
        self.set().len() >= GUARDS_HEAVY
    }
}

#[pymethods]
impl PartitionGuardSet {
    #[new]
    fn new(node_id: &Bound<'_, PyAny>) -> PyResult<Self> {
        let set = GuardSet::new(args::node(node_id)?).map_err(to_py)?;
        Ok(Self { home: Home::new(set) })
    }

    /// The node that all guards of the set belong to.
    #[getter]
    fn node_id(&self) -> u64 {
        self.set().node_id().0
    }

    /// Take a guard in, in place of an older one of its partition. From then on the two end together.
    fn insert(&self, guard: &PartitionGuard) -> PyResult<()> {
        self.home.insert(&guard.shared).map_err(to_py)
    }

    /// Give the guard back; checks of its partition then raise ``NotOwnedError``.
    fn remove(&self, partition_id: &Bound<'_, PyAny>) -> PyResult<Option<PartitionGuard>> {
        let removed = self.home.remove(args::partition(partition_id)?);
        Ok(removed.map(|shared| PartitionGuard { shared }))
    }

    /// The guard of a partition; it stays in the set.
    fn get(&self, partition_id: &Bound<'_, PyAny>) -> PyResult<Option<PartitionGuard>> {
        let member = self.home.get(args::partition(partition_id)?);
        Ok(member.map(|shared| PartitionGuard { shared }))
    }

    /// Raise unless the guard of this partition is there and fresh; asks nobody.
    fn check(&self, partition_id: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set().check(args::partition(partition_id)?).map_err(to_py)
    }

    /// The partitions whose check fails, in the order given.
    ///
    /// One-dimensional NumPy and Arrow arrays of 32 or 64 bit integers are read in place.
    fn check_many(&self, partition_ids: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        ids_array::check_many(self.set(), partition_ids)
    }

    /// The partitions that the metadata does not confirm, each with the error.
    fn validate_all(&self, py: Python<'_>, metadata: &DeltaMetadata) -> Vec<(u32, Py<PyAny>)> {
        let failing = detached(py, self.is_heavy(), || {
            metadata
                .read(|metadata| self.home.ask(metadata, GuardSet::validate_all, |(partition, _)| *partition))
        });
        failing.into_iter().map(|(partition, error)| (partition.0, to_object(py, error))).collect()
    }

    /// Take over what the metadata knows and return the partitions that are no longer fresh.
    fn refresh_all(&self, py: Python<'_>, metadata: &DeltaMetadata) -> Vec<u32> {
        let revoked = detached(py, self.is_heavy(), || {
            metadata.read(|metadata| self.home.ask(metadata, GuardSet::refresh_all, |partition| *partition))
        });
        revoked.into_iter().map(|partition| partition.0).collect()
    }

    /// True if the set holds no guard.
    fn is_empty(&self) -> bool {
        self.set().is_empty()
    }

    /// The partitions with a guard, stale ones too, in ascending order.
    fn partition_ids(&self) -> Vec<u32> {
        self.set().partition_ids().into_iter().map(|partition| partition.0).collect()
    }

    fn __len__(&self) -> usize {
        self.set().len()
    }

    fn __contains__(&self, partition_id: &Bound<'_, PyAny>) -> bool {
        args::partition(partition_id).is_ok_and(|partition| self.home.get(partition).is_some())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let state = |set: &Self| -> Vec<_> {
            let members = set.home.members();
            members
                .iter()
                .map(|member| (member.guard.partition_id(), member.guard.epoch(), member.guard.check()))
                .collect()
        };
        other.cast::<Self>().is_ok_and(|other| {
            self.set().node_id() == other.get().set().node_id() && state(self) == state(other.get())
        })
    }

    // A set changes, so it must not be found by a hash it had before.
    #[classattr]
    const __hash__: Option<Py<PyAny>> = None;

    fn __repr__(&self) -> String {
        let failing = self.set().check_many(self.set().partition_ids()).len();
        format!(
            "PartitionGuardSet(node_id={}) <{} guards, {failing} stale>",
            self.set().node_id(),
            self.set().len()
        )
    }

    // What was heard of partitions whose guard is gone travels too: an old guard must be stale there as well.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let home = &slf.get().home;
        let guards: Vec<_> = home.members().into_iter().map(|shared| PartitionGuard { shared }).collect();
        let seen: Vec<_> =
            home.set.epochs_seen().into_iter().map(|(id, epoch)| (id.0, epoch.get())).collect();
        Ok((slf.get_type(), (slf.get().node_id(),), (guards, seen)).into_pyobject(slf.py())?.into_any())
    }

    fn __setstate__(&self, state: (Vec<PyRef<'_, PartitionGuard>>, Vec<(u32, u64)>)) -> PyResult<()> {
        let (guards, seen) = state;
        guards.iter().try_for_each(|guard| self.insert(guard))?;
        for (partition, epoch) in seen {
            self.set().remember(PartitionId(partition), Epoch::new(epoch).map_err(to_py)?);
        }
        Ok(())
    }
}
