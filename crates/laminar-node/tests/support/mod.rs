//! What the tests of a node share.

#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use laminar_client::{ClientConfig, Cluster, NewStream, ReadOptions, StreamHandle};
use laminar_node::{ApplicationMachines, FolderConnector, NoMachines, NodeConfig, Role};

pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
    ]))
}

pub fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let names: Vec<String> = ids.clone().map(|id| format!("name {id}")).collect();
    let columns: Vec<arrow_array::ArrayRef> =
        vec![Arc::new(Int64Array::from_iter_values(ids)), Arc::new(StringArray::from(names))];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// The names of all calls of the service.
pub fn calls() -> BTreeSet<&'static str> {
    let service = include_str!("../../../laminar-rpc/proto/laminar/v1/laminar.proto");
    service.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next()).collect()
}

pub struct Opened {
    pub connector: Arc<FolderConnector>,
    pub cluster: Cluster,
}

/// A folder opened as users do.
pub fn open(path: &Path) -> Opened {
    let connector =
        Arc::new(FolderConnector::new(path, Role::Embedded, NodeConfig::default(), Arc::new(NoMachines)));
    let cluster = Cluster::new(connector.clone(), ClientConfig::default());
    Opened { connector, cluster }
}

pub fn orders(partitions: u32) -> NewStream {
    NewStream {
        path: "/shop/orders".to_owned(),
        partitions,
        schema: Some(schema()),
        key: vec!["id".to_owned()],
        machine: "log".to_owned(),
        ..NewStream::default()
    }
}

pub async fn read_ids(stream: &StreamHandle) -> Vec<i64> {
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
pub fn open_with(path: &Path, config: NodeConfig, machines: Arc<dyn ApplicationMachines>) -> Opened {
    let connector = Arc::new(FolderConnector::new(path, Role::Embedded, config, machines));
    let cluster = Cluster::new(connector.clone(), ClientConfig::default());
    Opened { connector, cluster }
}
