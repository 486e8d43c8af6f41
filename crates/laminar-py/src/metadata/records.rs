//! Records of the metadata as the dataclasses of `laminar.metadata`.

use laminar_core::ids::CheckpointId;
use laminar_core::metadata::{
    CheckpointRef, OwnershipEvent, PartitionOwnership, ReleaseInfo, SourceOffsets, StreamDescriptor,
};
use laminar_core::node::{NodeInfo, NodeMetadata, NodeRegistration};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::args::{self, field};
use crate::values::class;

const MODULE: &str = "laminar.metadata";

/// Becomes one of our dataclasses.
pub(super) trait ToPython {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

/// Calls a dataclass with fields by name.
macro_rules! make {
    ($py:ident, $module:expr, $name:literal, { $($field:ident: $value:expr),+ $(,)? }) => {{
        let fields = PyDict::new($py);
        $(fields.set_item(stringify!($field), $value)?;)+
        Ok(class($py, $module, $name)?.call((), Some(&fields))?.unbind())
    }};
}

impl ToPython for PartitionOwnership {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        make!(py, MODULE, "PartitionOwnership", {
            node_id: self.node_id.0,
            epoch: self.epoch.get(),
            assigned_at_ms: self.assigned_at_ms,
        })
    }
}

impl ToPython for CheckpointRef {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        make!(py, MODULE, "CheckpointRef", {
            checkpoint_id: self.checkpoint_id.0,
            partition_id: self.partition_id.0,
            epoch: self.epoch.get(),
            storage_path: &self.storage_path,
            source_offsets: self.source_offsets.clone(),
            size_bytes: self.size_bytes,
            created_at_ms: self.created_at_ms,
        })
    }
}

impl ToPython for ReleaseInfo {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        make!(py, MODULE, "ReleaseInfo", {
            partition_id: self.partition_id.0,
            node_id: self.node_id.0,
            epoch: self.epoch.get(),
            released_at_ms: self.released_at_ms,
            final_index: self.release.final_index.0,
            state_hash: self.release.state_hash,
            next_offset: self.release.next_offset,
            checkpoint_id: self.release.checkpoint_id.map(|id| id.0),
            source_offsets: self.release.source_offsets.clone(),
        })
    }
}

impl ToPython for NodeMetadata {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        make!(py, MODULE, "NodeMetadata", {
            cores: self.cores,
            memory_bytes: self.memory_bytes,
            failure_domain: &self.failure_domain,
            tags: self.tags.clone(),
        })
    }
}

impl ToPython for NodeRegistration {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        make!(py, MODULE, "NodeRegistration", {
            node_id: self.node_id.0,
            role: self.role.as_str(),
            state: self.state.as_str(),
            rpc_address: &self.rpc_address,
            raft_address: &self.raft_address,
            metadata: self.metadata.to_python(py)?,
            registered_at_ms: self.registered_at_ms,
            last_updated_ms: self.last_updated_ms,
        })
    }
}

impl ToPython for NodeInfo {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        make!(py, "laminar.assignment", "NodeInfo", {
            id: self.id.0,
            cores: self.cores,
            memory_bytes: self.memory_bytes,
            failure_domain: &self.failure_domain,
            tags: self.tags.clone(),
            state: self.state.as_str(),
            address: &self.address,
        })
    }
}

impl ToPython for StreamDescriptor {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let ids: Vec<u32> =
            self.partition_ids.iter().flat_map(|range| range.iter()).map(|partition| partition.0).collect();
        make!(py, MODULE, "StreamDescriptor", {
            stream_id: self.stream_id.0,
            path: &self.path,
            partition_ids: ids,
            schema: PyBytes::new(py, &self.schema),
            key: &self.key,
            machine: self.machine.as_str(),
            data_group: self.data_group.0,
            created_at_ms: self.created_at_ms,
            retention_ms: self.retention.age_ms,
            retention_bytes: self.retention.bytes,
            row_bytes_max: self.limits.row_bytes_max,
        })
    }
}

impl ToPython for OwnershipEvent {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        make!(py, MODULE, "OwnershipEvent", {
            epoch: self.epoch.get(),
            owner: self.owner.0,
            previous_owner: self.previous_owner.0,
            cause: self.cause.as_str(),
            time_ms: self.time_ms,
            log_index: self.log_index.0,
        })
    }
}

/// `{source: {source partition: offset}}`.
pub(super) fn source_offsets(value: &Bound<'_, PyAny>) -> PyResult<SourceOffsets> {
    args::pairs(
        value,
        "source_offsets",
        |source| args::text(source, "source"),
        |offsets| {
            let number = |value: &Bound<'_, PyAny>| args::number(value, "source offset", 0, u64::MAX);
            let partition = |value: &Bound<'_, PyAny>| args::number(value, "source partition", 0, u32::MAX);
            args::pairs(offsets, "source_offsets", partition, number)
        },
    )
}

pub(super) fn checkpoint_id(value: &Bound<'_, PyAny>) -> PyResult<CheckpointId> {
    args::number(value, "checkpoint_id", 0, u64::MAX).map(CheckpointId)
}

pub(super) fn checkpoint(value: &Bound<'_, PyAny>) -> PyResult<CheckpointRef> {
    let get = |name| field(value, "CheckpointRef", name);
    Ok(CheckpointRef {
        checkpoint_id: checkpoint_id(&get("checkpoint_id")?)?,
        partition_id: args::partition(&get("partition_id")?)?,
        epoch: args::epoch(&get("epoch")?)?,
        storage_path: args::text(&get("storage_path")?, "storage_path")?,
        source_offsets: source_offsets(&get("source_offsets")?)?,
        size_bytes: args::number(&get("size_bytes")?, "size_bytes", 0, u64::MAX)?,
        created_at_ms: args::number(&get("created_at_ms")?, "created_at_ms", i64::MIN, i64::MAX)?,
    })
}
