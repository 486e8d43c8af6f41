//! The guards of a writer, by the stream's own partition numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use laminar_client::{StreamInfo, Writer as ClientWriter};
use laminar_core::guard::PartitionGuardSet;
use laminar_core::ids::PartitionId;
use pyo3::prelude::*;

use super::of_process::Owned;
use super::stream::ordinal;
use super::writer::of_other_process;
use crate::errors::{Raised, of_failure, to_py};
use crate::ids_array::{self, Checks};

/// The guards of a writer, by the stream's partition numbers.
///
/// Checks ask nobody. The node tells of every takeover as it happens; the storage refuses a stale writer also if it was
/// not told.
#[pyclass(frozen, module = "laminar")]
pub(crate) struct WriterGuards {
    writer: Owned<Arc<ClientWriter>>,
}

impl WriterGuards {
    pub(crate) fn new(writer: Arc<ClientWriter>) -> Self {
        WriterGuards { writer: Owned::new(writer) }
    }

    fn writer(&self) -> PyResult<&ClientWriter> {
        Ok(self.writer.get().ok_or_else(of_other_process)?)
    }
}

/// Guards seen through the numbers of a stream.
struct OfStream<'a> {
    guards: &'a PartitionGuardSet,
    info: &'a StreamInfo,
}

impl Checks for OfStream<'_> {
    fn check_many(&self, partitions: impl Iterator<Item = PartitionId>) -> Vec<PartitionId> {
        let fresh = |ordinal: PartitionId| {
            let known = self.info.partitions.get(ordinal.0 as usize);
            known.is_some_and(|known| self.guards.check(PartitionId(known.partition_id)).is_ok())
        };
        partitions.filter(|ordinal| !fresh(*ordinal)).collect()
    }
}

#[pymethods]
impl WriterGuards {
    /// Raise unless this writer owns the partition, as far as this process has heard; asks nobody.
    fn check(&self, partition: &Bound<'_, PyAny>) -> PyResult<()> {
        let (writer, partition) = (self.writer()?, ordinal(partition)?);
        let info = writer.stream().info();
        let id = info.partition_id(partition).map_err(|failure| of_failure(&failure))?;
        let checked = writer.guards().check(PartitionId(id));
        checked.map_err(|error| to_py(Raised::of_stream(error, &info.path, partition)))
    }

    /// The partitions whose check fails, in the order given.
    ///
    /// One-dimensional NumPy and Arrow arrays of 32 or 64 bit integers are read in place.
    fn check_many(&self, partitions: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let writer = self.writer()?;
        let info = writer.stream().info();
        ids_array::check_many(&OfStream { guards: writer.guards(), info: &info }, partitions)
    }

    /// The epoch under which each claimed partition is written.
    #[getter]
    fn epochs(&self) -> PyResult<BTreeMap<u32, u64>> {
        let writer = self.writer()?;
        let info = writer.stream().info();
        let epoch = |partition: u32| {
            let id = info.partition_id(partition).ok()?;
            Some((partition, writer.guards().get(PartitionId(id))?.epoch().get()))
        };
        Ok(writer.partitions().into_iter().filter_map(epoch).collect())
    }

    /// The node id of this run of the writer.
    #[getter]
    fn node_id(&self) -> PyResult<u64> {
        Ok(self.writer()?.node_id())
    }

    /// The writer's name.
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.writer()?.name().to_owned())
    }
}
