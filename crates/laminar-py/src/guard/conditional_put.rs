//! How a checkpoint is labelled.

use laminar_core::guard::ConditionalPut as Put;
use pyo3::prelude::*;

use crate::args;

/// Who writes a checkpoint, and at which epoch.
///
/// Labels for people and tools that look at objects. What refuses a stale checkpoint is the create-only manifest chain,
/// because a client cannot choose an object's ETag.
///
/// >>> from laminar import PartitionGuard
/// >>> PartitionGuard(42, 7, 1).conditional_put_precondition().as_metadata()
/// [('x-laminar-partition', '42'), ('x-laminar-epoch', '7'), ('x-laminar-node', '1')]
#[pyclass(frozen, module = "laminar")]
pub(crate) struct ConditionalPut {
    pub(super) put: Put,
}

impl ConditionalPut {
    fn key(&self) -> (u32, u64, u64) {
        (self.put.partition_id.0, self.put.epoch.get(), self.put.node_id.0)
    }
}

#[pymethods]
impl ConditionalPut {
    #[new]
    fn new(
        partition_id: &Bound<'_, PyAny>,
        epoch: &Bound<'_, PyAny>,
        node_id: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (partition_id, epoch, node_id) = args::held(partition_id, epoch, node_id)?;
        Ok(Self { put: Put { partition_id, epoch, node_id } })
    }

    /// The partition of the checkpoint.
    #[getter]
    fn partition_id(&self) -> u32 {
        self.put.partition_id.0
    }

    /// The epoch it is written at.
    #[getter]
    fn epoch(&self) -> u64 {
        self.put.epoch.get()
    }

    /// The node that writes it.
    #[getter]
    fn node_id(&self) -> u64 {
        self.put.node_id.0
    }

    /// Metadata pairs for the object.
    fn as_metadata(&self) -> Vec<(String, String)> {
        self.put.as_metadata()
    }

    /// One line that names the ownership; a label only, no store compares it.
    fn s3_condition(&self) -> String {
        self.put.s3_condition()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| self.put == other.get().put)
    }

    fn __hash__(&self) -> u64 {
        super::hash_of(self.key())
    }

    fn __repr__(&self) -> String {
        let (partition, epoch, node) = self.key();
        format!("ConditionalPut(partition_id={partition}, epoch={epoch}, node_id={node})")
    }

    fn __getnewargs__(&self) -> (u32, u64, u64) {
        self.key()
    }
}
