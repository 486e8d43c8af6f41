//! What the tests of a node share.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use laminar_client::{ClientConfig, Cluster, NewStream, ReadOptions, StreamHandle, Transport};
use laminar_node::{ApplicationMachines, FolderConnector, NoMachines, NodeConfig, Role};

pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
    ]))
}

pub(crate) fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let names: Vec<String> = ids.clone().map(|id| format!("name {id}")).collect();
    let columns: Vec<arrow_array::ArrayRef> =
        vec![Arc::new(Int64Array::from_iter_values(ids)), Arc::new(StringArray::from(names))];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// The names of all calls of the service.
pub(crate) fn calls() -> BTreeSet<&'static str> {
    let service = include_str!("../../../laminar-rpc/proto/laminar/v1/laminar.proto");
    service.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next()).collect()
}

pub(crate) struct Opened {
    pub(crate) connector: Arc<FolderConnector>,
    pub(crate) cluster: Cluster,
}

/// The way of another process to the node of a folder, also from this one.
pub(crate) async fn transport(path: &Path) -> Transport {
    let endpoint = std::fs::read(path.join("node.json")).unwrap();
    let endpoint: serde_json::Value = serde_json::from_slice(&endpoint).unwrap();
    let [address, secret] = ["address", "secret"].map(|name| endpoint[name].as_str().unwrap());
    Transport::remote(address, Some(secret), None).await.unwrap()
}

/// A folder opened as users do.
pub(crate) fn open(path: &Path) -> Opened {
    let connector =
        Arc::new(FolderConnector::new(path, Role::Embedded, NodeConfig::default(), Arc::new(NoMachines)));
    let cluster = Cluster::new(connector.clone(), ClientConfig::default());
    Opened { connector, cluster }
}

pub(crate) fn orders(partitions: u32) -> NewStream {
    NewStream {
        path: "/shop/orders".to_owned(),
        partitions,
        schema: Some(schema()),
        key: vec!["id".to_owned()],
        machine: "log".to_owned(),
        ..NewStream::default()
    }
}

pub(crate) async fn read_ids(stream: &StreamHandle) -> Vec<i64> {
    let mut reader = stream.read(ReadOptions::default()).await.unwrap();
    let mut ids = Vec::new();
    while let Some(batch) = reader.next().await.unwrap() {
        let column = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap().clone();
        ids.extend(column.values().iter().copied());
    }
    ids.sort_unstable();
    ids
}

/// A folder opened with settings and machines of its own.
pub(crate) fn open_with(path: &Path, config: NodeConfig, machines: Arc<dyn ApplicationMachines>) -> Opened {
    let connector = Arc::new(FolderConnector::new(path, Role::Embedded, config, machines));
    let cluster = Cluster::new(connector.clone(), ClientConfig::default());
    Opened { connector, cluster }
}
