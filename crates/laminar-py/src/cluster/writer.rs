//! Writers and their batches.

use std::sync::Arc;

use arrow_array::RecordBatch;
use laminar_client::{Batch, Writer as ClientWriter};
use pyo3::prelude::*;

use super::guards::WriterGuards;
use super::in_use::InUse;
use super::of_process::Owned;
use super::runtime::block_on;
use super::stream::ordinal;
use super::{records, rows};
use crate::args;
use crate::errors::{invalid, of_failure};

/// The one writer of partitions. Import ``laminar.Writer``.
#[pyclass(frozen, module = "laminar._native")]
pub(crate) struct Writer {
    writer: Owned<Arc<ClientWriter>>,
}

impl Writer {
    pub(crate) fn new(writer: Arc<ClientWriter>) -> Self {
        Writer { writer: Owned::new(writer) }
    }

    fn writer(&self) -> PyResult<Arc<ClientWriter>> {
        self.writer.get().cloned().ok_or_else(of_other_process)
    }
}

pub(crate) fn of_other_process() -> PyErr {
    invalid(
        "a writer belongs to the process that opened it, and this is a forked one; open a writer of its own"
            .to_owned(),
    )
}

#[pymethods]
impl Writer {
    /// The writer's name.
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.writer()?.name().to_owned())
    }

    /// The node id of this run.
    #[getter]
    fn node_id(&self) -> PyResult<u64> {
        Ok(self.writer()?.node_id())
    }

    /// The partitions of the stream that were claimed.
    #[getter]
    fn partitions(&self) -> PyResult<Vec<u32>> {
        Ok(self.writer()?.partitions())
    }

    /// The guards of the claimed partitions.
    #[getter]
    fn guards(&self) -> PyResult<WriterGuards> {
        Ok(WriterGuards::new(self.writer()?))
    }

    /// Append Arrow data; told as by ``Stream.append``.
    fn append<'py>(&self, py: Python<'py>, rows: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let writer = self.writer()?;
        let batches = rows::batches(rows, &writer.stream().info().path)?;
        let appended = block_on(py, async move { writer.append(&batches).await })?;
        records::appended(py, &appended)
    }

    /// Append values, or pairs of key and value, as bytes; told as by ``Stream.append``.
    fn append_bytes<'py>(
        &self,
        py: Python<'py>,
        partition: Option<&Bound<'_, PyAny>>,
        values: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let partition = partition.map(ordinal).transpose()?;
        let (pairs, writer) = (rows::pairs(values)?, self.writer()?);
        let appended = block_on(py, async move { writer.append_bytes(partition, &pairs).await })?;
        records::appended(py, &appended)
    }

    /// Begin a batch that is committed as one entry, once.
    fn batch(&self, query: &Bound<'_, PyAny>, number: &Bound<'_, PyAny>) -> PyResult<WriterBatch> {
        let writer = self.writer()?;
        let (query, number) = (args::text(query, "query")?, args::number(number, "batch", 0, u64::MAX)?);
        let batch = writer.batch(&query, number).map_err(|failure| of_failure(&failure))?;
        Ok(WriterBatch { writer: Owned::new(writer), batch: InUse::new(batch) })
    }

    /// Remove the rows of a partition before an offset, and return where it begins now.
    fn trim(&self, py: Python<'_>, partition: &Bound<'_, PyAny>, offset: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (partition, offset) = (ordinal(partition)?, args::number(offset, "offset", 0, u64::MAX)?);
        let writer = self.writer()?;
        block_on(py, async move { writer.trim(partition, offset).await })
    }

    /// Give the partitions back. A second time does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let writer = self.writer()?;
        block_on(py, async move { writer.close().await })
    }
}

/// Rows that are committed as one entry, once.
#[pyclass(frozen, module = "laminar._native")]
pub(crate) struct WriterBatch {
    writer: Owned<Arc<ClientWriter>>,
    batch: InUse<Batch>,
}

impl WriterBatch {
    fn writer(&self) -> PyResult<&ClientWriter> {
        Ok(self.writer.get().ok_or_else(of_other_process)?)
    }

    fn collect(&self, py: Python<'_>, batches: Vec<RecordBatch>, partition: Option<u32>) -> PyResult<()> {
        self.batch.with(py, |mut batch| async move {
            let result = batch.append(&batches, partition).await;
            (batch, result)
        })
    }
}

#[pymethods]
impl WriterBatch {
    /// Collect Arrow data; nothing is sent.
    fn append(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        self.collect(py, rows::batches(rows, &self.writer()?.stream().info().path)?, None)
    }

    /// Collect values, or pairs of key and value, as bytes; nothing is sent.
    fn append_bytes(
        &self,
        py: Python<'_>,
        partition: Option<&Bound<'_, PyAny>>,
        values: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let info = self.writer()?.stream().info();
        if !info.is_bytes() {
            return Err(invalid(format!(
                "stream {}: it has a schema, and bytes were given; append rows",
                info.path
            )));
        }
        let partition = partition.map(ordinal).transpose()?;
        self.collect(py, vec![rows::pairs_batch(&rows::pairs(values)?)?], partition)
    }

    /// Commit; told as by ``Stream.append``. After an error whose outcome is unknown it may be called again.
    fn commit<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let appended = self.batch.with(py, |mut batch| async move {
            let result = batch.commit().await;
            (batch, result)
        })?;
        records::appended(py, &appended)
    }
}
