//! A node in a folder of its own, and clients of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use laminar_client::{
    ClientConfig, Cluster, NewStream, ReadOptions, RemoteConnector, RowReader, StreamHandle,
};
use laminar_node::folder::Endpoint;
use laminar_node::{FolderConnector, NoMachines, NodeConfig, Role};
use tempfile::TempDir;

/// A node that ends with the test.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) connector: Arc<FolderConnector>,
    /// Calls the node without the network.
    pub(crate) local: Cluster,
}

impl Place {
    pub(crate) async fn new() -> Place {
        Place::with(NodeConfig::default()).await
    }

    pub(crate) async fn with(config: NodeConfig) -> Place {
        Place::of(tempfile::tempdir().unwrap(), config).await
    }

    async fn of(folder: TempDir, config: NodeConfig) -> Place {
        let connector = FolderConnector::new(folder.path(), Role::Embedded, config, Arc::new(NoMachines));
        let connector = Arc::new(connector);
        let local = Cluster::new(connector.clone(), ClientConfig::default());
        local.hello().await.unwrap();
        Place { folder, connector, local }
    }

    /// The folder of a node that was closed, opened again.
    pub(crate) async fn reopen(closed: Place) -> Place {
        Place::of(closed.folder, NodeConfig::default()).await
    }

    /// A client over gRPC, as another process would be.
    pub(crate) fn remote(&self) -> Cluster {
        remote(self.folder.path())
    }

    pub(crate) async fn close(self) {
        self.connector.close().await.unwrap();
    }
}

pub(crate) fn remote(folder: &Path) -> Cluster {
    let endpoint = Endpoint::read(folder).unwrap().unwrap();
    let connector = RemoteConnector::new(vec![endpoint.address], Some(endpoint.secret)).unwrap();
    Cluster::new(Arc::new(connector), ClientConfig::default())
}

pub(crate) fn schema() -> SchemaRef {
    let id = Field::new("id", DataType::Int64, false);
    let name = Field::new("name", DataType::Utf8, true);
    Arc::new(Schema::new(vec![id, name]))
}

pub(crate) fn orders(ids: impl IntoIterator<Item = i64>) -> RecordBatch {
    let ids: Vec<i64> = ids.into_iter().collect();
    let names: Vec<String> = ids.iter().map(|id| format!("order {id}")).collect();
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(ids)), Arc::new(StringArray::from(names))])
        .unwrap()
}

pub(crate) async fn create(cluster: &Cluster, path: &str, partitions: u32, machine: &str) -> StreamHandle {
    let new = NewStream {
        path: path.to_owned(),
        partitions,
        schema: Some(schema()),
        key: vec!["id".to_owned()],
        machine: machine.to_owned(),
        ..NewStream::default()
    };
    cluster.create_stream(new).await.unwrap()
}

/// The ids of all rows that a reader gives, in order.
pub(crate) async fn drain(mut reader: RowReader) -> Vec<i64> {
    let mut ids = Vec::new();
    while let Some(batch) = reader.next().await.unwrap() {
        ids.extend(ids_of(&batch));
    }
    ids
}

pub(crate) fn ids_of(batch: &RecordBatch) -> Vec<i64> {
    batch.column_by_name("id").unwrap().as_primitive::<Int64Type>().values().to_vec()
}

/// All ids of a stream, sorted: doubled and lost ones show.
pub(crate) async fn all(stream: &StreamHandle) -> Vec<i64> {
    let mut ids = drain(stream.read(ReadOptions::default()).await.unwrap()).await;
    ids.sort_unstable();
    ids
}

/// Waits for a condition, which must come within ten seconds.
pub(crate) async fn wait_until(label: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {label}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
