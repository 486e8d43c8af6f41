//! The metadata.

pub(crate) mod entry;
mod records;
pub(crate) mod response;

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use laminar_core::error::FormatError;
use laminar_core::metadata::{DeltaMetadata as Metadata, EntryBody};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use self::entry::MetadataLogEntry;
use self::records::ToPython;
use self::response::MetadataResponse;
use crate::args;
use crate::errors::to_py;
use crate::gate::detached;

/// From this many changes on a batch is worth letting other threads run.
const CHANGES_HEAVY: usize = 16;

// The metadata, behind a lock because `apply` changes it. No lock is held while Python code runs.
/// The cluster's metadata: streams, owners and epochs, nodes, checkpoints.
///
/// The same entries in the same order give the same state and the same snapshot, byte for byte.
///
/// >>> from laminar import DeltaMetadata, MetadataLogEntry
/// >>> metadata = DeltaMetadata()
/// >>> metadata.apply(MetadataLogEntry.assign_partition(partition_id=3, node_id=1, epoch=1)).applied
/// True
/// >>> metadata.partition_owner(3)
/// 1
#[pyclass(frozen, module = "laminar")]
pub(crate) struct DeltaMetadata {
    metadata: RwLock<Metadata>,
}

impl DeltaMetadata {
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Metadata) -> T) -> T {
        // `apply` does not panic on any entry; were it to, the state would be as of its last step.
        look(&self.metadata.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state of a snapshot.
    pub(crate) fn of_snapshot(py: Python<'_>, snapshot: &[u8]) -> Result<Self, FormatError> {
        py.detach(|| Metadata::restore(snapshot)).map(Self::of)
    }

    fn of(metadata: Metadata) -> Self {
        Self { metadata: RwLock::new(metadata) }
    }

    /// A dict of records, copied under the lock and built after it.
    fn dict<'py, K: Copy + Ord, V: Clone + ToPython>(
        &self,
        py: Python<'py>,
        number: impl Fn(K) -> u64,
        records: impl FnOnce(&Metadata) -> &BTreeMap<K, V>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let records = self.read(|metadata| records(metadata).clone());
        let by_id = PyDict::new(py);
        for (id, record) in &records {
            by_id.set_item(number(*id), record.to_python(py)?)?;
        }
        Ok(by_id)
    }
}

fn to_python<T: ToPython>(py: Python<'_>, record: Option<T>) -> PyResult<Option<Py<PyAny>>> {
    record.map(|record| record.to_python(py)).transpose()
}

#[pymethods]
impl DeltaMetadata {
    #[new]
    fn new() -> Self {
        Self::of(Metadata::new())
    }

    /// Apply an entry, or reject it and change nothing.
    fn apply(&self, py: Python<'_>, entry: &MetadataLogEntry) -> MetadataResponse {
        let heavy = matches!(&entry.entry.body, EntryBody::Batch(changes) if changes.len() >= CHANGES_HEAVY);
        let response = detached(py, heavy, || {
            self.metadata.write().unwrap_or_else(PoisonError::into_inner).apply(&entry.entry)
        });
        MetadataResponse { response }
    }

    /// The current epoch of a partition.
    fn partition_epoch(&self, partition_id: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let partition = args::partition(partition_id)?;
        Ok(self.read(|metadata| metadata.partition_epoch(partition)).map(|epoch| epoch.get()))
    }

    /// The owner of a partition; 0 if it waits for one, ``None`` if there is no such partition.
    fn partition_owner(&self, partition_id: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let partition = args::partition(partition_id)?;
        Ok(self.read(|metadata| metadata.partition_owner(partition)).map(|node| node.0))
    }

    /// Owner, epoch and since when.
    fn partition_ownership(
        &self,
        py: Python<'_>,
        partition_id: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let partition = args::partition(partition_id)?;
        to_python(py, self.read(|metadata| metadata.partition_ownership(partition).cloned()))
    }

    /// The partitions a node owns, in ascending order.
    fn partitions_for_node(&self, node_id: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let node = args::node_or_nobody(node_id)?;
        let partitions = self.read(|metadata| metadata.partitions_for_node(node));
        Ok(partitions.into_iter().map(|partition| partition.0).collect())
    }

    /// ``{partition: (node, epoch)}`` of what the assigner may move; what workers claimed is left out.
    fn ownership(&self) -> BTreeMap<u32, (u64, u64)> {
        let owners = self.read(Metadata::ownership);
        owners
            .into_iter()
            .map(|(partition, owner)| (partition.0, (owner.node_id.0, owner.epoch.get())))
            .collect()
    }

    /// How the owner of this epoch left the partition, until the next owner has taken it.
    fn get_release_info(
        &self,
        py: Python<'_>,
        partition_id: &Bound<'_, PyAny>,
        epoch: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let (partition, epoch) = (args::partition(partition_id)?, args::epoch(epoch)?);
        to_python(py, self.read(|metadata| metadata.get_release_info(partition, epoch).cloned()))
    }

    /// The newest checkpoint of a partition.
    fn latest_checkpoint(
        &self,
        py: Python<'_>,
        partition_id: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let partition = args::partition(partition_id)?;
        to_python(py, self.read(|metadata| metadata.latest_checkpoint(partition).cloned()))
    }

    /// A registered node.
    fn node(&self, py: Python<'_>, node_id: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let node = args::node_or_nobody(node_id)?;
        to_python(py, self.read(|metadata| metadata.node(node).cloned()))
    }

    /// The registered servers, as the assigner takes them.
    fn servers(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.read(Metadata::servers).into_iter().map(|node| node.to_python(py)).collect()
    }

    /// The stream of this path.
    fn stream(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let path = args::text(path, "path")?;
        to_python(py, self.read(|metadata| metadata.stream(&path).cloned()))
    }

    /// The streams whose path starts with the prefix, in the order of paths.
    #[pyo3(signature = (prefix = None))]
    fn streams(&self, py: Python<'_>, prefix: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let prefix = prefix.map_or_else(|| Ok(String::new()), |prefix| args::text(prefix, "prefix"))?;
        let streams: Vec<_> = self.read(|metadata| metadata.streams(&prefix).cloned().collect());
        streams.into_iter().map(|stream| stream.to_python(py)).collect()
    }

    /// The stream a partition belongs to.
    fn stream_of(&self, py: Python<'_>, partition_id: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let partition = args::partition(partition_id)?;
        to_python(py, self.read(|metadata| metadata.stream_of(partition).cloned()))
    }

    /// The query that a writer's name is bound to on a stream.
    fn bound_query(&self, path: &Bound<'_, PyAny>, writer: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let (path, writer) = (args::text(path, "path")?, args::text(writer, "writer")?);
        Ok(self.read(|metadata| {
            let stream_id = metadata.stream(&path)?.stream_id;
            metadata.bound_query(stream_id, &writer).map(str::to_owned)
        }))
    }

    /// The last changes of a partition's ownership, oldest first.
    fn history(&self, py: Python<'_>, partition_id: &Bound<'_, PyAny>) -> PyResult<Vec<Py<PyAny>>> {
        let partition = args::partition(partition_id)?;
        let events: Vec<_> = self.read(|metadata| metadata.history(partition).cloned().collect());
        events.into_iter().map(|event| event.to_python(py)).collect()
    }

    /// Who owns each partition.
    #[getter]
    fn partition_map<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.dict(py, |partition| partition.0.into(), Metadata::partition_map)
    }

    /// The newest checkpoint of each partition that has one.
    #[getter]
    fn latest_checkpoints<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.dict(py, |partition| partition.0.into(), Metadata::latest_checkpoints)
    }

    /// Releases that no new owner has answered yet.
    #[getter]
    fn pending_releases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.dict(py, |partition| partition.0.into(), Metadata::pending_releases)
    }

    /// The registered nodes.
    #[getter]
    fn node_states<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.dict(py, |node| node.0, Metadata::node_states)
    }

    /// Grows with every change of topology.
    #[getter]
    fn cluster_epoch(&self) -> u64 {
        self.read(Metadata::cluster_epoch)
    }

    /// The index of the last entry applied, rejected ones too.
    #[getter]
    fn last_applied_log(&self) -> u64 {
        self.read(Metadata::last_applied_log).0
    }

    /// The time of that entry.
    #[getter]
    fn last_applied_time_ms(&self) -> i64 {
        self.read(Metadata::last_applied_time_ms)
    }

    /// The whole state, versioned and checksummed.
    fn snapshot<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &detached(py, true, || self.read(Metadata::snapshot)))
    }

    /// The state of a snapshot; ``CorruptionError`` if its bytes are not what was written.
    #[staticmethod]
    fn restore(py: Python<'_>, snapshot: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = args::bytes(snapshot, "snapshot")?;
        Self::of_snapshot(py, &bytes).map_err(to_py)
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> bool {
        let Ok(other) = other.cast::<Self>() else { return false };
        let other = other.get();
        // One lock at a time: two threads that compare a with b and b with a must not wait for each other.
        detached(py, true, || {
            let theirs = other.read(Metadata::clone);
            self.read(|ours| *ours == theirs)
        })
    }

    // The metadata changes, so it must not be found by a hash it had before.
    #[classattr]
    const __hash__: Option<Py<PyAny>> = None;

    fn __repr__(&self) -> String {
        self.read(|metadata| {
            format!(
                "DeltaMetadata <{} partitions, {} nodes, {} streams, cluster epoch {}, {} entries applied>",
                metadata.partition_map().len(),
                metadata.node_states().len(),
                metadata.streams("").count(),
                metadata.cluster_epoch(),
                metadata.last_applied_log()
            )
        })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let restore = slf.get_type().getattr("restore")?;
        Ok((restore, (slf.get().snapshot(slf.py()),)).into_pyobject(slf.py())?.into_any())
    }
}
