//! Streams.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use laminar_client::{
    Commit, CompactOptions, CompactedRows, CutOptions, End, NewBatch, ReadOptions, Start, StreamHandle,
    TaskOptions,
};
use laminar_rpc::{ErrorClass, Failure};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use pyo3_arrow::PyRecordBatch;

use super::of_process::EachProcess;
use super::reader::{Reader, Source};
use super::runtime::block_on;
use super::task::{self, TaskWriter};
use super::writer::Writer;
use super::{Cluster, batches, records, rows};
use crate::args::{self, Timeout};
use crate::errors::{invalid, of_failure};

// Each process has a handle of its own, and so a producer id of its own.
/// A stream of a cluster. Import ``laminar.Stream``.
#[pyclass(frozen, module = "laminar._native")]
pub(crate) struct Stream {
    cluster: Py<Cluster>,
    path: String,
    /// Which of the streams that had this name; not known before the first call if nobody said so.
    stream_id: OnceLock<u64>,
    handle: Arc<EachProcess<StreamHandle>>,
}

impl Stream {
    pub(crate) fn opened(cluster: Py<Cluster>, handle: StreamHandle) -> Self {
        let info = handle.info();
        let stream_id = OnceLock::from(info.stream_id);
        let handle = cluster.get().keep(Some(handle));
        Stream { cluster, path: info.path.clone(), stream_id, handle }
    }

    /// The handle of this process, with a limit for its calls.
    pub(crate) fn handle(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<StreamHandle> {
        // Asked first: a closed cluster has no streams.
        let client = self.cluster.get().client(py, timeout)?;
        let handle = match self.handle.get() {
            Some(handle) => handle,
            None => {
                let path = self.path.clone();
                let handle = block_on(py, async move { client.stream(&path).await })?;
                let (found, known) =
                    (handle.info().stream_id, self.stream_id.get_or_init(|| handle.info().stream_id));
                if found != *known {
                    return Err(of_failure(&replaced(&self.path)));
                }
                self.handle.set(handle)
            }
        };
        match timeout {
            Some(timeout) => Ok(handle.with_timeout(timeout.0)),
            None => Ok(handle),
        }
    }
}

fn replaced(path: &str) -> Failure {
    let message =
        format!("stream {path}: it was dropped and created again since this handle was made; open it anew");
    Failure::new(ErrorClass::UnknownPartition, message).with("stream", path)
}

fn start(value: &Bound<'_, PyAny>) -> PyResult<Start> {
    if let Ok(word) = value.cast::<PyString>() {
        return match &*word.to_cow()? {
            "earliest" => Ok(Start::Earliest),
            "latest" => Ok(Start::Latest),
            other => {
                Err(invalid(format!("start is {other:?}; it must be earliest, latest, an offset or a time")))
            }
        };
    }
    if value.is_instance_of::<PyDict>() {
        return offsets(value, "start").map(Start::Offsets);
    }
    args::number(value, "start", 0, u64::MAX).map(Start::Time)
}

fn end(value: &Bound<'_, PyAny>) -> PyResult<End> {
    if let Ok(word) = value.cast::<PyString>() {
        return match &*word.to_cow()? {
            "latest" => Ok(End::Latest),
            other => Err(invalid(format!("end is {other:?}; it must be latest, an offset or a time"))),
        };
    }
    if value.is_instance_of::<PyDict>() {
        return offsets(value, "end").map(End::Offsets);
    }
    args::number(value, "end", 0, u64::MAX).map(End::Time)
}

fn offsets(value: &Bound<'_, PyAny>, what: &str) -> PyResult<BTreeMap<u32, u64>> {
    args::pairs(value, what, ordinal, |offset| args::number(offset, "offset", 0, u64::MAX))
}

/// A partition as the stream counts it.
pub(crate) fn ordinal(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    args::number(value, "partition", 0, u32::MAX)
}

pub(crate) fn ordinals(values: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<u32>>> {
    values.map(|values| args::items(values, "partitions", ordinal)).transpose()
}

/// The node id of a run, or nobody's.
fn run_id(value: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
    value.map_or(Ok(0), |value| Ok(args::node_or_nobody(value)?.0))
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (cluster, path, stream_id = None))]
    fn new(cluster: Py<Cluster>, path: &Bound<'_, PyAny>, stream_id: Option<u64>) -> PyResult<Self> {
        let stream_id = stream_id.map_or_else(OnceLock::new, OnceLock::from);
        let path = args::text(path, "path")?;
        let handle = cluster.get().keep(None);
        Ok(Stream { cluster, path, stream_id, handle })
    }

    /// What the stream is: as known, or as the node says now.
    fn describe<'py>(&self, py: Python<'py>, refresh: bool) -> PyResult<Bound<'py, PyDict>> {
        let handle = self.handle(py, None)?;
        let info = match refresh {
            true => block_on(py, async move { handle.refresh().await })?,
            false => handle.info(),
        };
        records::stream(py, &info)
    }

    /// Append Arrow data: rows, global index, ``{partition: (first, end)}`` and whether they had landed before.
    fn append<'py>(
        &self,
        py: Python<'py>,
        rows: &Bound<'_, PyAny>,
        timeout: Option<Timeout>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (batches, handle) = (rows::batches(rows, &self.path)?, self.handle(py, timeout)?);
        let appended = block_on(py, async move { handle.append(&batches).await })?;
        records::appended(py, &appended)
    }

    /// Append values, or pairs of key and value, as bytes; told as by ``append``.
    fn append_bytes<'py>(
        &self,
        py: Python<'py>,
        partition: Option<&Bound<'_, PyAny>>,
        values: &Bound<'_, PyAny>,
        timeout: Option<Timeout>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let partition = partition.map(ordinal).transpose()?;
        let (pairs, handle) = (rows::pairs(values)?, self.handle(py, timeout)?);
        let appended = block_on(py, async move { handle.append_bytes(partition, &pairs).await })?;
        records::appended(py, &appended)
    }

    /// Read rows. ``start`` and ``end`` are a word, ``{partition: offset}``, or a time in ms since 1970.
    #[pyo3(signature = (*, partitions, start, end, at, columns, follow, include_metadata, batch_rows, timeout))]
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        py: Python<'_>,
        partitions: Option<&Bound<'_, PyAny>>,
        start: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
        at: Option<&Bound<'_, PyAny>>,
        columns: Option<Vec<String>>,
        follow: bool,
        include_metadata: bool,
        batch_rows: Option<&Bound<'_, PyAny>>,
        timeout: Option<Timeout>,
    ) -> PyResult<Reader> {
        let options = ReadOptions {
            partitions: ordinals(partitions)?,
            start: self::start(start)?,
            end: self::end(end)?,
            at: at.map(|at| args::number(at, "at", 0, u64::MAX)).transpose()?,
            columns,
            follow,
            include_metadata,
            batch_rows: batch_rows.map(|rows| args::number(rows, "batch_rows", 1, 1 << 24)).transpose()?,
            ..ReadOptions::default()
        };
        let handle = self.handle(py, timeout)?;
        let reader = block_on(py, async move { handle.read(options).await })?;
        Ok(Reader::new(Source::Rows(Box::new(reader))))
    }

    /// Where partitions begin and end; as of a global index, if one is given.
    fn offsets(&self, py: Python<'_>, at: Option<&Bound<'_, PyAny>>) -> PyResult<BTreeMap<u32, (u64, u64)>> {
        let at = at.map(|at| args::number(at, "at", 0, u64::MAX)).transpose()?;
        let handle = self.handle(py, None)?;
        let offsets = block_on(py, async move {
            match at {
                Some(at) => handle.offsets_at(at).await,
                None => handle.offsets().await,
            }
        })?;
        Ok(offsets.into_iter().map(|(partition, range)| (partition, (range.start, range.end))).collect())
    }

    /// Wait until everything that was acknowledged is applied, and return the global index up to which it is.
    fn barrier(&self, py: Python<'_>, timeout: Timeout) -> PyResult<u64> {
        let handle = self.handle(py, None)?;
        Ok(block_on(py, async move { handle.barrier(timeout.0).await })?.global_index)
    }

    /// The furthest consistent cut after ``start``: whole commits, as many as the limits allow and at least one.
    ///
    /// ``bytes`` is counted only with ``bytes_max``.
    #[pyo3(signature = (start, *, rows_max = None, bytes_max = None, at = None, timeout = None))]
    fn cut<'py>(
        &self,
        py: Python<'py>,
        start: &Bound<'_, PyAny>,
        rows_max: Option<&Bound<'_, PyAny>>,
        bytes_max: Option<&Bound<'_, PyAny>>,
        at: Option<&Bound<'_, PyAny>>,
        timeout: Option<Timeout>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let start = offsets(start, "start")?;
        let limit = |value: Option<&Bound<'_, PyAny>>, what, min| {
            value.map(|value| args::number(value, what, min, u64::MAX)).transpose()
        };
        let options = CutOptions {
            rows_max: limit(rows_max, "rows_max", 1)?,
            bytes_max: limit(bytes_max, "bytes_max", 1)?,
            at: limit(at, "at", 0)?,
        };
        let handle = self.handle(py, timeout)?;
        let cut = block_on(py, async move { handle.cut(&start, options).await })?;
        records::cut(py, &cut)
    }

    /// The offset of the first row at or after a time in ms since 1970, or the end, by partition.
    #[pyo3(signature = (time_ms, timeout = None))]
    fn offsets_for_time(
        &self,
        py: Python<'_>,
        time_ms: &Bound<'_, PyAny>,
        timeout: Option<Timeout>,
    ) -> PyResult<BTreeMap<u32, u64>> {
        let time_ms = args::number(time_ms, "time_ms", 0, u64::MAX)?;
        let handle = self.handle(py, timeout)?;
        block_on(py, async move { handle.offsets_at_time(time_ms).await })
    }

    /// Check every record and block of a partition from ``start`` to ``end``, or to what is there now.
    ///
    /// The first place that is not as it must be is ``fault``: ``offset`` and ``what``. Trimmed rows are left out.
    #[pyo3(signature = (partition, start, end = None, timeout = None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        partition: &Bound<'_, PyAny>,
        start: &Bound<'_, PyAny>,
        end: Option<&Bound<'_, PyAny>>,
        timeout: Option<Timeout>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (partition, start) = (ordinal(partition)?, args::number(start, "start", 0, u64::MAX)?);
        let end = end.map(|end| args::number(end, "end", 0, u64::MAX)).transpose()?;
        let handle = self.handle(py, timeout)?;
        let verified = block_on(py, async move { handle.verify(partition, start, end).await })?;
        records::verified(py, &verified)
    }

    /// The newest row of a key, given as a batch of one row of key columns.
    fn get<'py>(&self, py: Python<'py>, key: &Bound<'_, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (mut batches, handle) = (rows::batches(key, &self.path)?, self.handle(py, None)?);
        let Some(key) = batches.pop().filter(|_| batches.is_empty()) else {
            return Err(invalid("a key is one batch of one row".to_owned()));
        };
        let row = block_on(py, async move { handle.get(&key).await })?;
        row.map(|row| PyRecordBatch::new(row).into_pyarrow(py)).transpose()
    }

    /// The newest value of a key of a stream of bytes.
    fn get_bytes<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (key, handle) = (args::bytes(key, "key")?, self.handle(py, None)?);
        let value = block_on(py, async move { handle.get_bytes(&key).await })?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// The newest row of every key.
    fn scan(&self, py: Python<'_>) -> PyResult<Reader> {
        let reader = self.handle(py, None)?.scan().map_err(|failure| of_failure(&failure))?;
        Ok(Reader::new(Source::Scan(reader)))
    }

    /// Remove the rows of a partition before an offset, and return where it begins now.
    fn trim(&self, py: Python<'_>, partition: &Bound<'_, PyAny>, offset: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (partition, offset) = (ordinal(partition)?, args::number(offset, "offset", 0, u64::MAX)?);
        let handle = self.handle(py, None)?;
        block_on(py, async move { handle.trim(partition, offset).await })
    }

    /// The cluster's id of a partition of the stream.
    fn partition_id(&self, py: Python<'_>, partition: &Bound<'_, PyAny>) -> PyResult<u32> {
        let (handle, partition) = (self.handle(py, None)?, ordinal(partition)?);
        let known = handle.info().partition_id(partition);
        // It may have got more partitions since.
        let id = match known {
            Ok(id) => Ok(id),
            Err(_) => block_on(py, async move { handle.refresh().await })?.partition_id(partition),
        };
        id.map_err(|failure| of_failure(&failure))
    }

    /// Claim partitions for this process, fencing whoever held them.
    #[pyo3(signature = (name, *, partitions, timeout))]
    fn writer(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        partitions: Option<&Bound<'_, PyAny>>,
        timeout: Option<Timeout>,
    ) -> PyResult<Writer> {
        let (name, partitions) = (args::text(name, "name")?, ordinals(partitions)?);
        let handle = self.handle(py, timeout)?;
        let writer = block_on(py, async move { handle.writer(&name, partitions.as_deref()).await })?;
        Ok(Writer::new(Arc::new(writer)))
    }

    /// Begin to write the rows of one task. Nothing of them can be read before they are committed.
    #[pyo3(signature = (*, block_bytes = None, partition = None))]
    fn task_writer(
        &self,
        py: Python<'_>,
        block_bytes: Option<&Bound<'_, PyAny>>,
        partition: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<TaskWriter> {
        let block_bytes = block_bytes.map(|bytes| args::number(bytes, "block_bytes", 1, 1 << 30));
        let options = TaskOptions {
            block_bytes: block_bytes.transpose()?,
            partition: partition.map(ordinal).transpose()?,
        };
        TaskWriter::new(self.handle(py, None)?, options)
    }

    /// Commit what tasks wrote as one entry, all or nothing; told as by ``append``.
    #[pyo3(signature = (
        messages, *, query = None, batch = None, node_id = None, epochs = None, overwrite = false, record_empty = false,
        timeout = None,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn commit_batch<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'_, PyAny>,
        query: Option<&Bound<'_, PyAny>>,
        batch: Option<&Bound<'_, PyAny>>,
        node_id: Option<&Bound<'_, PyAny>>,
        epochs: Option<&Bound<'_, PyAny>>,
        overwrite: bool,
        record_empty: bool,
        timeout: Option<Timeout>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let messages = task::messages(messages)?;
        let epochs = epochs.map(task::epochs).transpose()?.unwrap_or_default();
        let batch = batches::named(query, batch)?;
        let node_id = run_id(node_id)?;
        let commit = Commit { batch, node_id, epochs, overwrite, record_empty, ..Commit::default() };
        let handle = self.handle(py, timeout)?;
        let appended = block_on(py, async move { handle.commit_batch(&messages, &commit).await })?;
        records::appended(py, &appended)
    }

    /// Stage the newest row of each key of a partition of a ``kv`` stream, for ``commit_compacted``.
    ///
    /// Keys that were removed more than ``keep_removed`` seconds ago are left out.
    #[pyo3(signature = (partition, keep_removed, *, block_bytes = None))]
    fn compact<'py>(
        &self,
        py: Python<'py>,
        partition: &Bound<'_, PyAny>,
        keep_removed: &Bound<'_, PyAny>,
        block_bytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let partition = ordinal(partition)?;
        let block_bytes =
            block_bytes.map(|bytes| args::number(bytes, "block_bytes", 1, 1 << 30)).transpose()?;
        let keep_removed = args::seconds(keep_removed, "keep_removed")?;
        let handle = self.handle(py, None)?;
        let options = CompactOptions { keep_removed, block_bytes };
        let staged = block_on(py, async move { handle.compact(partition, options).await })?;
        records::compacted(py, &staged)
    }

    /// Append what ``compact`` staged, read up to ``end``. Rows whose key was written since are left out.
    ///
    /// ``committed`` is false if others wrote all the time; then nothing may be trimmed.
    #[pyo3(signature = (partition, message, end, *, node_id = None, epochs = None, timeout = None))]
    #[allow(clippy::too_many_arguments)]
    fn commit_compacted<'py>(
        &self,
        py: Python<'py>,
        partition: &Bound<'_, PyAny>,
        message: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
        node_id: Option<&Bound<'_, PyAny>>,
        epochs: Option<&Bound<'_, PyAny>>,
        timeout: Option<Timeout>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let partition = ordinal(partition)?;
        let message = args::bytes(message, "message")?.into();
        let end = args::number(end, "end", 0, u64::MAX)?;
        let rows = CompactedRows { message, end, ..CompactedRows::default() };
        let epochs = epochs.map(task::epochs).transpose()?.unwrap_or_default();
        let held = Commit { node_id: run_id(node_id)?, epochs, ..Commit::default() };
        let handle = self.handle(py, timeout)?;
        let done = block_on(py, async move { handle.commit_compacted(partition, &rows, &held).await })?;
        records::compact_commit(py, &done)
    }

    /// Begin a batch: claim the whole stream for a run, or go on with it. Every task of the run may ask.
    #[pyo3(signature = (
        writer, run, query, batch, *, adopt_query = false, unbound = false, host = None, pid = None, timeout = None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn begin_batch<'py>(
        &self,
        py: Python<'py>,
        writer: &Bound<'_, PyAny>,
        run: &Bound<'_, PyAny>,
        query: &Bound<'_, PyAny>,
        batch: &Bound<'_, PyAny>,
        adopt_query: bool,
        unbound: bool,
        host: Option<&Bound<'_, PyAny>>,
        pid: Option<&Bound<'_, PyAny>>,
        timeout: Option<Timeout>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let batch = NewBatch {
            writer: args::text(writer, "writer")?,
            run: batches::run(run)?,
            query: args::text(query, "query")?,
            number: batches::number(batch)?,
            adopt_query,
            unbound,
            host: host.map(|host| args::text(host, "host")).transpose()?,
            pid: pid.map(|pid| args::number(pid, "pid", 0, u32::MAX)).transpose()?,
        };
        let handle = self.handle(py, timeout)?;
        let begun = block_on(py, async move { handle.begin_batch(&batch).await })?;
        batches::begun(py, &begun)
    }

    /// Raise as a write would if a run has lost one of its partitions. ``epochs`` are those of ``begin_batch``.
    #[pyo3(signature = (node_id, epochs, *, query = None, batch = None, timeout = None))]
    fn check_run(
        &self,
        py: Python<'_>,
        node_id: &Bound<'_, PyAny>,
        epochs: &Bound<'_, PyAny>,
        query: Option<&Bound<'_, PyAny>>,
        batch: Option<&Bound<'_, PyAny>>,
        timeout: Option<Timeout>,
    ) -> PyResult<()> {
        let (node_id, epochs) = (args::node_or_nobody(node_id)?.0, batches::epochs(epochs)?);
        let (batch, handle) = (batches::named(query, batch)?, self.handle(py, timeout)?);
        block_on(py, async move {
            let batch = batch.as_ref().map(|(query, number)| (query.as_str(), *number));
            handle.check_run(node_id, &epochs, batch).await
        })
    }

    /// The last committed batch of a query on this stream.
    #[pyo3(signature = (query, timeout = None))]
    fn last_batch(
        &self,
        py: Python<'_>,
        query: &Bound<'_, PyAny>,
        timeout: Option<Timeout>,
    ) -> PyResult<Option<u64>> {
        let (query, handle) = (args::text(query, "query")?, self.handle(py, timeout)?);
        block_on(py, async move { handle.last_batch(&query).await })
    }

    /// Give back what a run holds of this stream, by the id that it began its batches with.
    #[pyo3(signature = (run, timeout = None))]
    fn release_begun(
        &self,
        py: Python<'_>,
        run: &Bound<'_, PyAny>,
        timeout: Option<Timeout>,
    ) -> PyResult<()> {
        let (run, handle) = (batches::run(run)?, self.handle(py, timeout)?);
        block_on(py, async move { handle.release_begun(run).await })
    }

    /// Give back what a run holds.
    #[pyo3(signature = (node_id, timeout = None))]
    fn release_run(
        &self,
        py: Python<'_>,
        node_id: &Bound<'_, PyAny>,
        timeout: Option<Timeout>,
    ) -> PyResult<()> {
        let (node_id, handle) = (args::node_or_nobody(node_id)?.0, self.handle(py, timeout)?);
        block_on(py, async move { handle.release_run(node_id).await })
    }
}
