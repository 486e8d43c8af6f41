//! Answers of the node as dicts, whose keys are the fields of the dataclasses in `laminar.status`.

use laminar_client::{Appended, CompactCommit, CompactOutcome, CompactedRows, Cut, StreamInfo, Verified};
use laminar_rpc::proto;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use pyo3_arrow::PySchema;

/// A dict of some fields of a value.
macro_rules! dict {
    ($py:expr, $value:expr, $($field:ident),+ $(,)?) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($field), &$value.$field)?;)+
        dict
    }};
}

/// Where rows landed: rows, global index, `{partition: (first, end)}`, whether they had landed before.
pub(crate) fn appended<'py>(py: Python<'py>, appended: &Appended) -> PyResult<Bound<'py, PyAny>> {
    let offsets = PyDict::new(py);
    for (partition, range) in &appended.offsets {
        offsets.set_item(partition, (range.first, range.first + range.rows))?;
    }
    let told = (appended.rows, appended.global_index, offsets, appended.duplicate);
    Ok(told.into_pyobject(py)?.into_any())
}

/// A consistent cut of a stream.
pub(crate) fn cut<'py>(py: Python<'py>, cut: &Cut) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py, cut, global_index, ends, starts, rows, bytes, complete))
}

/// What was found in a range of a partition.
pub(crate) fn verified<'py>(py: Python<'py>, found: &Verified) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(py, found, records, rows, blocks, bytes, first_epoch, last_epoch, misplaced);
    let fault =
        found.fault.as_ref().map(|fault| Ok::<_, PyErr>(dict!(py, fault, offset, what))).transpose()?;
    dict.set_item("fault", fault)?;
    Ok(dict)
}

/// The newest rows of a partition, staged.
pub(crate) fn compacted<'py>(py: Python<'py>, staged: &CompactedRows) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(
        py,
        staged,
        start,
        end,
        records,
        rows,
        bytes,
        rows_kept,
        bytes_kept,
        removed_dropped,
        already_compact,
    );
    dict.set_item("message", PyBytes::new(py, &staged.message))?;
    Ok(dict)
}

/// What became of them.
pub(crate) fn compact_commit<'py>(py: Python<'py>, done: &CompactCommit) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(py, done, rows, bytes, moved);
    dict.set_item("committed", done.outcome == CompactOutcome::Committed)?;
    Ok(dict)
}

pub(crate) fn stream<'py>(py: Python<'py>, info: &StreamInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(py, info, path, stream_id, key, machine, created_at_ms, metadata_index);
    dict.set_item("schema", PySchema::new(info.schema().clone()).into_pyarrow(py)?)?;
    dict.set_item("is_bytes", info.is_bytes())?;
    dict.set_item("retention_age_ms", info.retention.age_ms)?;
    dict.set_item("retention_bytes", info.retention.bytes)?;
    dict.set_item("row_bytes_max", info.limits.row_bytes_max)?;
    let ids: Vec<u32> = info.partitions.iter().map(|partition| partition.partition_id).collect();
    dict.set_item("partition_ids", ids)?;
    Ok(dict)
}

pub(crate) fn hello<'py>(py: Python<'py>, hello: &proto::HelloResponse) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py, hello, version, pid, node_id, folder_epoch, cluster_id, metrics_address))
}

pub(crate) fn status<'py>(py: Python<'py>, status: &proto::StatusResponse) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(py, status, started_at_ms, streams, partition_count, events, resident_bytes);
    dict.set_item("node", hello(py, &status.node.clone().unwrap_or_default())?)?;
    dict.set_item("metadata_group", group(py, &status.metadata_group.clone().unwrap_or_default())?)?;
    dict.set_item("data_group", group(py, &status.data_group.clone().unwrap_or_default())?)?;
    dict.set_item("nodes", list(py, &status.nodes, node)?)?;
    dict.set_item("partitions", list(py, &status.partitions, partition)?)?;
    Ok(dict)
}

fn group<'py>(py: Python<'py>, group: &proto::GroupStatus) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(
        py,
        group,
        phase,
        leader,
        term,
        last_index,
        durable_index,
        committed_index,
        applied_index,
        snapshot_index,
        purged_index,
        recovered,
        rebuilds,
        last_fault,
        snapshot_fault,
    ))
}

fn node<'py>(py: Python<'py>, node: &proto::NodeStatus) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(
        py,
        node,
        node_id,
        role,
        state,
        address,
        writer,
        stream,
        host,
        pid,
        partitions,
        silent_ms,
        registered_at_ms,
    ))
}

fn partition<'py>(py: Python<'py>, partition: &proto::PartitionStatus) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(
        py,
        partition,
        partition_id,
        stream,
        partition,
        owner,
        epoch,
        writer,
        start_offset,
        next_offset,
        applied_index,
        queued,
        paused,
        paused_at,
        repairing,
        machine,
        admission,
        bytes,
    ))
}

/// The stories of partitions.
pub(crate) fn stories<'py>(
    py: Python<'py>,
    stories: &[proto::PartitionStory],
) -> PyResult<Bound<'py, PyList>> {
    list(py, stories, |py, story| {
        let dict = dict!(py, story, partition, partition_id, owner, epoch, writer, refused, refused_since_ms);
        dict.set_item("steps", list(py, &story.steps, step)?)?;
        dict.set_item("last_refused", list(py, &story.last_refused, refused)?)?;
        Ok(dict)
    })
}

fn step<'py>(py: Python<'py>, step: &proto::OwnershipStep) -> PyResult<Bound<'py, PyDict>> {
    Ok(
        dict!(
            py,
            step,
            epoch,
            owner,
            previous_owner,
            cause,
            time_ms,
            metadata_index,
            writer,
            previous_writer,
        ),
    )
}

fn refused<'py>(py: Python<'py>, refused: &proto::RefusedWrite) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py, refused, time_ms, owner, epoch, writer, reason, rows))
}

fn list<'py, T>(
    py: Python<'py>,
    values: &[T],
    record: impl Fn(Python<'py>, &T) -> PyResult<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyList>> {
    let records = values.iter().map(|value| record(py, value)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, records)
}
