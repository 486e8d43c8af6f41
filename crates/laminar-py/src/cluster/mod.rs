//! Clusters: the node of a folder, or a running cluster, and what is asked of it.

mod batches;
mod guards;
mod in_use;
mod machines;
mod of_process;
mod reader;
mod records;
mod rows;
mod runtime;
mod serve;
mod settings;
mod stream;
mod task;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arrow_schema::SchemaRef;
use laminar_client::{
    Alteration, ClientConfig, Cluster as Client, ClusterPin, Connector, NewStream, RemoteConnector,
    StreamHandle,
};
use laminar_node::{FolderConnector, NodeConfig, Role};
use laminar_rows::StreamSchema;
use laminar_rpc::proto::{Retention, StreamLimits};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use pyo3_arrow::PySchema;

pub(crate) use self::guards::WriterGuards;
pub(crate) use self::reader::Reader;
pub(crate) use self::serve::run_node;
pub(crate) use self::settings::node_settings;
pub(crate) use self::stream::Stream;
pub(crate) use self::task::TaskWriter;
pub(crate) use self::writer::{Writer, WriterBatch};

use self::machines::PythonMachines;
use self::of_process::EachProcess;
use self::runtime::{block_on, existing_runtime, runtime};
use crate::args::{self, Timeout};
use crate::errors::{invalid, of_failure, to_py};
use crate::metadata::DeltaMetadata;

/// What a handle was opened with, so that a forked child can open it anew.
enum Target {
    Folder { path: PathBuf, role: Role, config: Box<NodeConfig>, machines: Arc<PythonMachines> },
    Addresses { addresses: String, secret: Option<String> },
}

/// What a process has of a cluster.
#[derive(Clone)]
struct Opened {
    client: Client,
    folder: Option<Arc<FolderConnector>>,
}

// Nothing is connected before the first call, and a forked child connects for itself.
/// The node of a folder, or a running cluster. Import ``laminar.Cluster``.
#[pyclass(frozen, module = "laminar._native")]
pub(crate) struct Cluster {
    target: Target,
    timeout: Duration,
    client_id: String,
    /// Also a forked child's: it must not go on in another cluster either.
    pin: ClusterPin,
    closed: AtomicBool,
    opened: EachProcess<Opened>,
    /// Where the streams of this handle keep their own. The lock is taken with the GIL held and never kept without it.
    handles: Mutex<Vec<Weak<EachProcess<StreamHandle>>>>,
}

impl Cluster {
    fn new(target: Target, timeout: Timeout, client_id: String, cluster_id: Option<String>) -> Self {
        Cluster {
            target,
            timeout: timeout.0,
            client_id,
            pin: cluster_id.map_or_else(ClusterPin::default, ClusterPin::of),
            closed: AtomicBool::new(false),
            opened: EachProcess::new(None),
            handles: Mutex::new(Vec::new()),
        }
    }

    fn opened(&self, py: Python<'_>) -> PyResult<Opened> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(invalid("the handle is closed; open it again".to_owned()));
        }
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let config = ClientConfig {
            timeout: self.timeout,
            cluster: self.pin.clone(),
            // A forked child is a client of its own.
            client_id: format!("{}-{}", self.client_id, std::process::id()),
            ..ClientConfig::default()
        };
        // Whoever waits for a node does its work meanwhile: in this process the node's, else the connection's.
        let crew = runtime(py)?.crew.clone();
        let (connector, folder): (Arc<dyn Connector>, _) = match &self.target {
            Target::Addresses { addresses, secret } => {
                let connector = RemoteConnector::parse(addresses, secret.clone());
                let connector = connector.map_err(|failure| of_failure(&failure))?;
                (Arc::new(connector.with_crew(crew)), None)
            }
            Target::Folder { path, role, config, machines } => {
                serve::stop_at_exit(py)?;
                let machines = Arc::clone(machines);
                let config = NodeConfig { crew: Some(crew), ..NodeConfig::clone(config) };
                let connector = Arc::new(FolderConnector::new(path, role.clone(), config, machines));
                (Arc::clone(&connector) as _, Some(connector))
            }
        };
        Ok(self.opened.set(Opened { client: Client::new(connector, config), folder }))
    }

    /// A place for the handle of a stream, which the end of this cluster's handle lets go of.
    pub(crate) fn keep(&self, handle: Option<StreamHandle>) -> Arc<EachProcess<StreamHandle>> {
        let slot = Arc::new(EachProcess::new(handle));
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|slot| slot.strong_count() > 0);
        handles.push(Arc::downgrade(&slot));
        slot
    }

    /// The client of this process, with a limit for its calls.
    pub(crate) fn client(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Client> {
        let client = self.opened(py)?.client;
        match timeout {
            Some(timeout) => Ok(client.with_timeout(timeout.0)),
            None => Ok(client),
        }
    }
}

impl Drop for Cluster {
    /// A node in this process ends with its last handle, also if nobody closed it.
    fn drop(&mut self) {
        if let (Some(opened), Some(runtime)) = (self.opened.take(), existing_runtime())
            && let Some(folder) = opened.folder
        {
            runtime.spawn(async move { drop(folder.close().await) });
        }
    }
}

#[pymethods]
impl Cluster {
    /// The node of a folder; ``role`` is embedded, detached or client.
    #[staticmethod]
    #[pyo3(signature = (path, role, *, command, machines, settings, timeout, client_id, cluster_id))]
    #[allow(clippy::too_many_arguments)]
    fn of_folder(
        path: &Bound<'_, PyAny>,
        role: &str,
        command: Vec<String>,
        machines: BTreeMap<String, Py<PyAny>>,
        settings: &Bound<'_, PyDict>,
        timeout: Timeout,
        client_id: String,
        cluster_id: Option<String>,
    ) -> PyResult<Self> {
        let role = match role {
            "embedded" => Role::Embedded,
            "detached" => Role::Detached(command),
            "client" => Role::ClientOnly,
            _ => return Err(invalid(format!("role is {role:?}; it must be embedded, detached or client"))),
        };
        let path = args::path(path, "path")?;
        let config = Box::new(settings::config(settings)?);
        let machines = Arc::new(PythonMachines { classes: machines });
        Ok(Cluster::new(Target::Folder { path, role, config, machines }, timeout, client_id, cluster_id))
    }

    /// A running cluster, by its addresses.
    #[staticmethod]
    #[pyo3(signature = (addresses, *, secret, timeout, client_id, cluster_id))]
    fn of_addresses(
        addresses: String,
        secret: Option<String>,
        timeout: Timeout,
        client_id: String,
        cluster_id: Option<String>,
    ) -> PyResult<Self> {
        RemoteConnector::parse(&addresses, secret.clone()).map_err(|failure| of_failure(&failure))?;
        Ok(Cluster::new(Target::Addresses { addresses, secret }, timeout, client_id, cluster_id))
    }

    /// The id of the cluster that this handle is of; ``None`` before the first connection, unless it was given.
    #[getter]
    fn cluster_id(&self) -> Option<&str> {
        self.pin.get()
    }

    /// Who is there; connects if there is no connection.
    fn hello<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let client = self.client(py, None)?;
        let hello = block_on(py, async move { client.hello().await })?;
        records::hello(py, &hello)
    }

    /// End the handle. A node in this process ends with its last handle.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.closed.store(true, Ordering::SeqCst);
        // A handle of a stream keeps the session, which would go on telling a detached node that it is needed.
        let handles = std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        for slot in handles.iter().filter_map(Weak::upgrade) {
            drop(slot.take());
        }
        match self.opened.take().and_then(|opened| opened.folder) {
            Some(folder) => block_on(py, async move { folder.close().await }),
            None => Ok(()),
        }
    }

    /// Create a stream.
    #[pyo3(signature = (path, partitions, *, schema, key, machine, retention, row_bytes_max))]
    #[allow(clippy::too_many_arguments)]
    fn create_stream(
        slf: &Bound<'_, Self>,
        path: &Bound<'_, PyAny>,
        partitions: &Bound<'_, PyAny>,
        schema: Option<&Bound<'_, PyAny>>,
        key: Vec<String>,
        machine: String,
        retention: (Option<u64>, Option<u64>),
        row_bytes_max: Option<u64>,
    ) -> PyResult<Stream> {
        let py = slf.py();
        let new = NewStream {
            path: args::text(path, "path")?,
            partitions: args::number(partitions, "partitions", 1, u32::MAX)?,
            schema: schema.map(arrow_schema).transpose()?,
            key,
            machine,
            retention: retention_of(retention),
            limits: StreamLimits { row_bytes_max },
        };
        let client = slf.get().client(py, None)?;
        let handle = block_on(py, async move { client.create_stream(new).await })?;
        Ok(Stream::opened(slf.clone().unbind(), handle))
    }

    /// The streams whose names begin so, each with its id, in order.
    fn streams(&self, py: Python<'_>, prefix: &Bound<'_, PyAny>) -> PyResult<Vec<(String, u64)>> {
        let prefix = args::text(prefix, "prefix")?;
        let client = self.client(py, None)?;
        let streams = block_on(py, async move { client.streams(&prefix).await })?;
        Ok(streams.into_iter().map(|info| (info.path, info.stream_id)).collect())
    }

    /// Drop a stream with all its rows.
    fn drop_stream(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let path = args::text(path, "path")?;
        let client = self.client(py, None)?;
        block_on(py, async move { client.drop_stream(&path).await })
    }

    /// Change a stream; what is ``None`` stays.
    #[pyo3(signature = (stream, *, partitions, retention, row_bytes_max))]
    fn alter(
        &self,
        py: Python<'_>,
        stream: &Stream,
        partitions: Option<&Bound<'_, PyAny>>,
        retention: Option<(Option<u64>, Option<u64>)>,
        row_bytes_max: Option<(Option<u64>,)>,
    ) -> PyResult<()> {
        let partitions =
            partitions.map(|count| args::number(count, "partitions", 1, u32::MAX)).transpose()?;
        let alteration = Alteration {
            partitions,
            retention: retention.map(retention_of),
            limits: row_bytes_max.map(|(row_bytes_max,)| StreamLimits { row_bytes_max }),
        };
        let (client, handle) = (self.client(py, None)?, stream.handle(py, None)?);
        block_on(py, async move { client.alter(&handle, alteration).await })
    }

    /// What the node does; with partitions, of one stream or of all.
    #[pyo3(signature = (*, partitions, stream))]
    fn status<'py>(
        &self,
        py: Python<'py>,
        partitions: bool,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let stream = stream.map(|stream| args::text(stream, "stream")).transpose()?;
        let client = self.client(py, None)?;
        let status = block_on(py, async move { client.status(partitions, stream.as_deref()).await })?;
        records::status(py, &status)
    }

    /// What the node counted, as text in the format that Prometheus reads.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        let client = self.client(py, None)?;
        block_on(py, async move { client.metrics().await })
    }

    /// The story of a partition of a stream, or of all.
    fn why<'py>(
        &self,
        py: Python<'py>,
        path: &Bound<'_, PyAny>,
        partition: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let path = args::text(path, "stream")?;
        let partition =
            partition.map(|partition| args::number(partition, "partition", 0, u32::MAX)).transpose()?;
        let client = self.client(py, None)?;
        let stories = block_on(py, async move { client.why(&path, partition).await })?;
        records::stories(py, &stories)
    }

    /// The metadata as the node knows it.
    fn metadata(&self, py: Python<'_>, linearizable: bool) -> PyResult<DeltaMetadata> {
        let client = self.client(py, None)?;
        let metadata = block_on(py, async move { client.metadata(linearizable).await })?;
        DeltaMetadata::of_snapshot(py, &metadata.snapshot).map_err(to_py)
    }

    /// Let a paused partition, by the cluster's id, try again; false if it was not paused.
    fn resume(&self, py: Python<'_>, partition_id: u32) -> PyResult<bool> {
        let client = self.client(py, None)?;
        block_on(py, async move { client.resume(partition_id).await })
    }

    /// Leave out a record that its machine cannot apply, of a partition by the cluster's id.
    fn skip(&self, py: Python<'_>, partition_id: u32, index: &Bound<'_, PyAny>) -> PyResult<()> {
        let index = args::number(index, "index", 1, u64::MAX)?;
        let client = self.client(py, None)?;
        block_on(py, async move { client.skip(partition_id, index).await })
    }

    /// Have a group, metadata or data, build a snapshot.
    fn snapshot(&self, py: Python<'_>, group: String) -> PyResult<()> {
        let client = self.client(py, None)?;
        block_on(py, async move { client.snapshot(&group).await })
    }
}

fn retention_of((age_ms, bytes): (Option<u64>, Option<u64>)) -> Retention {
    Retention { age_ms, bytes }
}

/// The schema as a stream of it has it: dictionaries by value.
#[pyfunction]
pub(crate) fn stored_schema<'py>(py: Python<'py>, schema: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let stored = StreamSchema::from_arrow(arrow_schema(schema)?, &[]);
    let stored = stored.map_err(|error| invalid(error.to_string()))?;
    Ok(PySchema::new(stored.arrow().clone()).into_pyarrow(py)?.into_any())
}

fn arrow_schema(schema: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let refused = |error: PyErr| invalid(format!("schema is not an Arrow schema: {error}"));
    Ok(schema.extract::<PySchema>().map_err(refused)?.into_inner())
}
