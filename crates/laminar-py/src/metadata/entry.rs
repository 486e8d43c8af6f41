//! Entries.

use laminar_core::ids::{DataGroupId, LogIndex, RequestId, StreamId};
use laminar_core::metadata::{
    EntryBody, MetadataChange, MetadataLogEntry as Entry, Release, Retention, SourceOffsets, StreamLimits,
};
use laminar_core::node::NodeMetadata;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::records::{checkpoint, checkpoint_id, source_offsets};
use crate::args;
use crate::errors::{invalid, to_py};
use crate::values;

type Value<'a, 'py> = &'a Bound<'py, PyAny>;
type Optional<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// A change of the metadata, with its time, its request id and what it expects to find.
///
/// A request id is a whole number, a UUID, a string or bytes; an entry with the same id as one before it changes
/// nothing and is answered with the first answer. Without one, only what the entry expects protects it.
///
/// >>> from laminar import MetadataLogEntry
/// >>> entry = MetadataLogEntry.assign_partition(partition_id=3, node_id=2, epoch=2, expected=(1, 1))
/// >>> entry.kind
/// 'assign_partition'
#[pyclass(frozen, module = "laminar")]
pub(crate) struct MetadataLogEntry {
    pub(crate) entry: Entry,
}

/// An entry of one change, under the header that every constructor takes.
fn entry(time_ms: Optional, request_id: Optional, change: MetadataChange) -> PyResult<MetadataLogEntry> {
    let (time_ms, request_id) = header(time_ms, request_id)?;
    Ok(MetadataLogEntry { entry: Entry::one(time_ms, request_id, change) })
}

fn header(time_ms: Optional, request_id: Optional) -> PyResult<(i64, RequestId)> {
    let time_ms = time_ms.map_or(Ok(0), |time| args::number(time, "time_ms", i64::MIN, i64::MAX))?;
    Ok((time_ms, args::request_id(request_id)?))
}

#[pymethods]
impl MetadataLogEntry {
    /// Give a partition to a node, or to nobody (0). With nothing expected it creates the partition.
    #[staticmethod]
    #[pyo3(signature = (*, partition_id, node_id, epoch, expected = None, time_ms = None, request_id = None))]
    fn assign_partition(
        partition_id: Value,
        node_id: Value,
        epoch: Value,
        expected: Optional,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let change = MetadataChange::AssignPartition {
            partition_id: args::partition(partition_id)?,
            node_id: args::node_or_nobody(node_id)?,
            epoch: args::epoch(epoch)?,
            expected: expected.map(args::owner_epoch).transpose()?,
        };
        entry(time_ms, request_id, change)
    }

    /// Record how the owner left a partition; it stays the owner until another takes over.
    #[staticmethod]
    #[pyo3(signature = (*, partition_id, expected, final_index = None, state_hash = None, next_offset = None,
                        checkpoint_id = None, source_offsets = None, time_ms = None, request_id = None))]
    #[expect(clippy::too_many_arguments, reason = "one argument a field, all by name")]
    fn release_partition(
        partition_id: Value,
        expected: Value,
        final_index: Optional,
        state_hash: Optional,
        next_offset: Optional,
        checkpoint_id: Optional,
        source_offsets: Optional,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let number =
            |value: Optional, what: &str| value.map_or(Ok(0), |value| args::number(value, what, 0, u64::MAX));
        let release = Release {
            final_index: LogIndex(number(final_index, "final_index")?),
            state_hash: number(state_hash, "state_hash")?,
            next_offset: number(next_offset, "next_offset")?,
            checkpoint_id: checkpoint_id.map(self::checkpoint_id).transpose()?,
            source_offsets: source_offsets
                .map_or_else(|| Ok(SourceOffsets::default()), |offsets| self::source_offsets(offsets))?,
        };
        let change = MetadataChange::ReleasePartition {
            partition_id: args::partition(partition_id)?,
            expected: args::owner_epoch(expected)?,
            release,
        };
        entry(time_ms, request_id, change)
    }

    /// Take a partition: a claim, or the end of a move.
    #[staticmethod]
    #[pyo3(signature = (*, partition_id, node_id, epoch, expected, time_ms = None, request_id = None))]
    fn acquire_partition(
        partition_id: Value,
        node_id: Value,
        epoch: Value,
        expected: Value,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let change = MetadataChange::AcquirePartition {
            partition_id: args::partition(partition_id)?,
            node_id: args::node(node_id)?,
            epoch: args::epoch(epoch)?,
            expected: args::owner_epoch(expected)?,
        };
        entry(time_ms, request_id, change)
    }

    /// Make a checkpoint the latest of its partition.
    #[staticmethod]
    #[pyo3(signature = (*, partition_id, checkpoint, expected, time_ms = None, request_id = None))]
    fn commit_checkpoint(
        partition_id: Value,
        checkpoint: Value,
        expected: Value,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let change = MetadataChange::CommitCheckpoint {
            partition_id: args::partition(partition_id)?,
            expected: args::owner_epoch(expected)?,
            checkpoint: self::checkpoint(checkpoint)?,
        };
        entry(time_ms, request_id, change)
    }

    /// Move a node through its life; what it owns stays its own.
    #[staticmethod]
    #[pyo3(signature = (*, node_id, state, metadata = None, expected = None, time_ms = None, request_id = None))]
    fn update_node_state(
        node_id: Value,
        state: Value,
        metadata: Optional,
        expected: Optional,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let change = MetadataChange::UpdateNodeState {
            node_id: args::node(node_id)?,
            state: values::node_state(state)?,
            metadata: metadata.map(values::node_metadata).transpose()?,
            expected: expected.map(values::node_state).transpose()?,
        };
        entry(time_ms, request_id, change)
    }

    /// Register a node: an active server with one core unless told otherwise. The answer has its id.
    #[staticmethod]
    #[pyo3(signature = (*, node_id = None, role = None, state = None, rpc_address = None, raft_address = None,
                        metadata = None, expected = None, time_ms = None, request_id = None))]
    #[expect(clippy::too_many_arguments, reason = "one argument a field, all by name")]
    fn register_node(
        node_id: Optional,
        role: Optional,
        state: Optional,
        rpc_address: Optional,
        raft_address: Optional,
        metadata: Optional,
        expected: Optional,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let address = |value: Optional, what: &str| {
            value.map_or_else(|| Ok(String::new()), |value| args::text(value, what))
        };
        let change = MetadataChange::RegisterNode {
            node_id: node_id.map(args::node).transpose()?,
            role: role
                .map(|role| args::text(role, "node role")?.parse().map_err(to_py))
                .transpose()?
                .unwrap_or_default(),
            state: state.map(values::node_state).transpose()?.unwrap_or_default(),
            rpc_address: address(rpc_address, "rpc_address")?,
            raft_address: address(raft_address, "raft_address")?,
            metadata: metadata
                .map(values::node_metadata)
                .transpose()?
                .unwrap_or(NodeMetadata { cores: 1, ..NodeMetadata::default() }),
            expected: expected.map(values::node_state).transpose()?,
        };
        entry(time_ms, request_id, change)
    }

    /// End a registration and take all its partitions from the node, each at its next epoch.
    #[staticmethod]
    #[pyo3(signature = (*, node_id, expected = None, time_ms = None, request_id = None))]
    fn deregister_node(
        node_id: Value,
        expected: Optional,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let change = MetadataChange::DeregisterNode {
            node_id: args::node(node_id)?,
            expected: expected.map(values::node_state).transpose()?,
        };
        entry(time_ms, request_id, change)
    }

    /// Mark a change of topology.
    #[staticmethod]
    #[pyo3(signature = (*, expected = None, time_ms = None, request_id = None))]
    fn increment_cluster_epoch(
        expected: Optional,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let expected = expected.map(|epoch| args::number(epoch, "cluster epoch", 0, u64::MAX)).transpose()?;
        entry(time_ms, request_id, MetadataChange::IncrementClusterEpoch { expected })
    }

    /// Create a stream; the answer has its id and the ids of its partitions.
    ///
    /// ``machine`` is ``"log"``, ``"kv"`` or the name of an application's machine.
    #[staticmethod]
    #[pyo3(signature = (*, path, partitions, schema = None, key = None, machine = None, data_group = None,
                        retention_ms = None, retention_bytes = None, row_bytes_max = None, time_ms = None,
                        request_id = None))]
    #[expect(clippy::too_many_arguments, reason = "one argument a field, all by name")]
    fn create_stream(
        path: Value,
        partitions: Value,
        schema: Optional,
        key: Optional,
        machine: Optional,
        data_group: Optional,
        retention_ms: Optional,
        retention_bytes: Optional,
        row_bytes_max: Optional,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let change = MetadataChange::CreateStream {
            path: args::text(path, "path")?,
            partitions: args::number(partitions, "partitions", 0, u32::MAX)?,
            schema: schema.map(schema_bytes).transpose()?.unwrap_or_default(),
            key: key.map(key_columns).transpose()?.unwrap_or_default(),
            machine: machine
                .map(|machine| args::text(machine, "machine")?.parse().map_err(to_py))
                .transpose()?
                .unwrap_or_default(),
            data_group: DataGroupId(
                data_group.map_or(Ok(0), |group| args::number(group, "data_group", 0, u32::MAX))?,
            ),
            retention: Retention {
                age_ms: amount(retention_ms, "retention_ms")?,
                bytes: amount(retention_bytes, "retention_bytes")?,
            },
            limits: StreamLimits { row_bytes_max: amount(row_bytes_max, "row_bytes_max")? },
        };
        entry(time_ms, request_id, change)
    }

    /// Add partitions to a stream, up to a new total, or change its retention and limits.
    ///
    /// The answer has the ids of the new partitions. ``expected`` is the stream's id. What is left out stays as it was,
    /// but retention is set as a whole: ``retention_ms=None`` beside ``retention_bytes`` keeps rows of any age, and
    /// ``keep_forever=True`` all rows.
    #[staticmethod]
    #[pyo3(signature = (*, path, expected, partitions = None, retention_ms = None, retention_bytes = None,
                        keep_forever = false, row_bytes_max = None, time_ms = None, request_id = None))]
    #[expect(clippy::too_many_arguments, reason = "one argument a field, all by name")]
    fn alter_stream(
        path: Value,
        expected: Value,
        partitions: Optional,
        retention_ms: Optional,
        retention_bytes: Optional,
        keep_forever: bool,
        row_bytes_max: Optional,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let retention = Retention {
            age_ms: amount(retention_ms, "retention_ms")?,
            bytes: amount(retention_bytes, "retention_bytes")?,
        };
        let is_given = retention != Retention::default();
        if keep_forever && is_given {
            return Err(invalid(
                "keep_forever stands beside retention_ms or retention_bytes; give one or the other"
                    .to_owned(),
            ));
        }
        let row_bytes_max = amount(row_bytes_max, "row_bytes_max")?;
        let change = MetadataChange::AlterStream {
            path: args::text(path, "path")?,
            expected: StreamId(args::number(expected, "stream id", 0, u64::MAX)?),
            partitions: partitions.map(|count| args::number(count, "partitions", 0, u32::MAX)).transpose()?,
            retention: (is_given || keep_forever).then_some(retention),
            limits: row_bytes_max.map(|bytes| StreamLimits { row_bytes_max: Some(bytes) }),
        };
        entry(time_ms, request_id, change)
    }

    /// Remove a stream and its partitions, whose ids are never used again. ``expected`` is its stream id.
    #[staticmethod]
    #[pyo3(signature = (*, path, expected = None, time_ms = None, request_id = None))]
    fn drop_stream(
        path: Value,
        expected: Optional,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let expected =
            expected.map(|id| args::number(id, "stream id", 0, u64::MAX).map(StreamId)).transpose()?;
        entry(time_ms, request_id, MetadataChange::DropStream { path: args::text(path, "path")?, expected })
    }

    /// Bind the name of a writer of a stream to a query. ``expected`` is the query before, ``None`` for none.
    #[staticmethod]
    #[pyo3(signature = (*, path, stream_id, writer, query, expected = None, time_ms = None, request_id = None))]
    fn bind_query(
        path: Value,
        stream_id: Value,
        writer: Value,
        query: Value,
        expected: Optional,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let change = MetadataChange::BindQuery {
            path: args::text(path, "path")?,
            stream_id: StreamId(args::number(stream_id, "stream id", 0, u64::MAX)?),
            writer: args::text(writer, "writer")?,
            query: args::text(query, "query")?,
            expected: expected.map(|query| args::text(query, "expected")).transpose()?,
        };
        entry(time_ms, request_id, change)
    }

    /// Change nothing; the batch that it stands in takes effect only if this is the owner.
    #[staticmethod]
    #[pyo3(signature = (*, partition_id, expected, time_ms = None, request_id = None))]
    fn check_owner(
        partition_id: Value,
        expected: Value,
        time_ms: Optional,
        request_id: Optional,
    ) -> PyResult<Self> {
        let change = MetadataChange::CheckOwner {
            partition_id: args::partition(partition_id)?,
            expected: args::owner_epoch(expected)?,
        };
        entry(time_ms, request_id, change)
    }

    /// All of these in order, or none. The batch's own time and request id hold for all of them.
    #[staticmethod]
    #[pyo3(signature = (entries, *, time_ms = None, request_id = None))]
    fn batch(entries: Value, time_ms: Optional, request_id: Optional) -> PyResult<Self> {
        let (time_ms, request_id) = header(time_ms, request_id)?;
        let changes = args::items(entries, "entries", |entry| {
            let entry = entry.cast::<MetadataLogEntry>();
            let entry =
                entry.map_err(|_| invalid("a batch takes entries of type MetadataLogEntry".to_owned()))?;
            match &entry.get().entry.body {
                EntryBody::One(change) => Ok(change.clone()),
                EntryBody::Batch(_) => {
                    Err(invalid("a batch cannot hold a batch; give its entries".to_owned()))
                }
            }
        })?;
        Ok(Self { entry: Entry::batch(time_ms, request_id, changes) })
    }

    /// The name of the function that made it.
    #[getter]
    fn kind(&self) -> &'static str {
        match &self.entry.body {
            EntryBody::One(change) => change.name(),
            EntryBody::Batch(_) => "batch",
        }
    }

    /// Milliseconds since the Unix epoch, for people, never for decisions.
    #[getter]
    fn time_ms(&self) -> i64 {
        self.entry.time_ms
    }

    /// The id as a number, or ``None``.
    #[getter]
    fn request_id(&self) -> Option<u128> {
        args::request_id_given(self.entry.request_id)
    }

    /// The bytes that stand in the log.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.entry.encode())
    }

    /// The entry that ``encode`` wrote.
    #[staticmethod]
    fn decode(data: Value) -> PyResult<Self> {
        let entry = Entry::decode(&args::bytes(data, "entry")?).map_err(to_py)?;
        Ok(Self { entry })
    }

    fn __eq__(&self, other: Value) -> bool {
        other.cast::<Self>().is_ok_and(|other| self.entry == other.get().entry)
    }

    fn __hash__(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.entry.encode())
    }

    fn __repr__(&self) -> String {
        format!("MetadataLogEntry <{}>", self.entry)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let decode = slf.get_type().getattr("decode")?;
        Ok((decode, (slf.get().encode(slf.py()),)).into_pyobject(slf.py())?.into_any())
    }
}

/// A number that may be left out; whether it is large enough is for `apply` to say.
fn amount(value: Optional, name: &str) -> PyResult<Option<u64>> {
    value.map(|value| args::number(value, name, 0, u64::MAX)).transpose()
}

/// The Arrow IPC bytes of a schema, given as such or as a `pyarrow.Schema`.
fn schema_bytes(schema: Value) -> PyResult<Vec<u8>> {
    match schema.call_method0("serialize") {
        Ok(buffer) => args::bytes(&buffer.call_method0("to_pybytes")?, "schema"),
        Err(_) => args::bytes(schema, "schema"),
    }
}

/// One column by its name, or several.
fn key_columns(key: Value) -> PyResult<Vec<String>> {
    let column = |value: &Bound<'_, PyAny>| args::text(value, "key column");
    if let Ok(one) = key.extract::<String>() { Ok(vec![one]) } else { args::items(key, "key", column) }
}
