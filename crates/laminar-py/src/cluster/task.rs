//! What tasks write, and how it is committed.

use std::collections::BTreeMap;

use bytes::Bytes;
use laminar_client::{StreamHandle, TaskOptions, TaskWriter as ClientTaskWriter};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::in_use::InUse;
use super::rows;
use super::stream::ordinal;
use crate::args;
use crate::errors::{invalid, of_failure};

/// What one task writes: encoded as it comes, and staged while more comes.
#[pyclass(frozen, module = "laminar._native")]
pub(crate) struct TaskWriter {
    path: String,
    writer: InUse<ClientTaskWriter>,
}

impl TaskWriter {
    pub(crate) fn new(stream: StreamHandle, options: TaskOptions) -> PyResult<Self> {
        let path = stream.info().path.clone();
        let writer = ClientTaskWriter::new(stream, options).map_err(|failure| of_failure(&failure))?;
        Ok(TaskWriter { path, writer: InUse::new(writer) })
    }
}

#[pymethods]
impl TaskWriter {
    /// Add Arrow data.
    fn add(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let batches = rows::batches(rows, &self.path)?;
        self.writer.with(py, |mut writer| async move {
            let result = writer.add(&batches).await;
            (writer, result)
        })
    }

    /// Wait until everything is staged, and return the message for ``Stream.commit_batch``.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let message = self.writer.with(py, |mut writer| async move {
            let result = writer.finish().await;
            (writer, result)
        })?;
        Ok(PyBytes::new(py, &message))
    }

    /// How many rows were added.
    #[getter]
    fn rows(&self) -> PyResult<u64> {
        self.writer.look(ClientTaskWriter::rows)
    }

    /// Their bytes, before they were encoded.
    #[getter]
    fn bytes(&self) -> PyResult<u64> {
        self.writer.look(ClientTaskWriter::bytes)
    }
}

/// Messages of tasks.
pub(crate) fn messages(values: &Bound<'_, PyAny>) -> PyResult<Vec<Bytes>> {
    args::items(values, "messages", |value| args::bytes(value, "a message").map(Bytes::from))
}

/// The epochs of a run by partition id, from triples of partition, partition id and epoch.
pub(crate) fn epochs(values: &Bound<'_, PyAny>) -> PyResult<BTreeMap<u32, u64>> {
    let epochs = args::items(values, "epochs", |value| {
        let triple = value.cast::<PyTuple>().ok().filter(|triple| triple.len() == 3).ok_or_else(|| {
            invalid("an item of epochs must be a tuple of partition, partition id and epoch".to_owned())
        })?;
        ordinal(&triple.get_item(0)?)?;
        let id = args::number(&triple.get_item(1)?, "partition id", 0, u32::MAX)?;
        Ok((id, args::number(&triple.get_item(2)?, "epoch", 1, u64::MAX)?))
    })?;
    Ok(epochs.into_iter().collect())
}
