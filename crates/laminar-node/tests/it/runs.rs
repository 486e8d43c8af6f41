//! Runs of a query on a stream of a folder.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use laminar_client::proto::laminar_server::Laminar;
use laminar_client::{Alteration, BegunBatch, Cluster, Failure, NewBatch, NewStream, StreamHandle, proto};
use laminar_node::{FolderConnector, NoMachines, Node, NodeConfig};
use tonic::Request;

use crate::support::{Opened, open, open_with, orders};

pub(crate) struct Runs {
    connector: Arc<FolderConnector>,
    cluster: Cluster,
    node: Node,
    pub(crate) stream: StreamHandle,
}

impl Runs {
    pub(crate) async fn open(folder: &Path, partitions: u32) -> Self {
        Self::create(open(folder), partitions).await
    }

    /// On a node that counts runs as failed soon.
    pub(crate) async fn open_impatient(folder: &Path, partitions: u32) -> Self {
        let config = NodeConfig { worker_timeout: Duration::from_millis(300), ..NodeConfig::default() };
        Self::create(open_with(folder, config, Arc::new(NoMachines)), partitions).await
    }

    async fn create(opened: Opened, partitions: u32) -> Self {
        let stream = opened.cluster.create_stream(orders(partitions)).await.unwrap();
        Self::on(opened, stream)
    }

    fn on(opened: Opened, stream: StreamHandle) -> Self {
        let Opened { connector, cluster } = opened;
        let node = connector.local_node().unwrap();
        Runs { connector, cluster, node, stream }
    }

    pub(crate) async fn reopen(self, folder: &Path) -> Self {
        self.connector.close().await.unwrap();
        let opened = open(folder);
        let stream = opened.cluster.stream("/shop/orders").await.unwrap();
        Self::on(opened, stream)
    }

    /// The same node with another stream.
    pub(crate) async fn other_stream(&self, path: &str) -> Self {
        let new = NewStream { path: path.to_owned(), ..orders(2) };
        let stream = self.cluster.create_stream(new).await.unwrap();
        let (connector, cluster) = (self.connector.clone(), self.cluster.clone());
        Runs { connector, cluster, node: self.node.clone(), stream }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) async fn close(self) {
        self.connector.close().await.unwrap();
    }

    pub(crate) async fn begin(&self, run: u128, batch: u64) -> Result<BegunBatch, Failure> {
        self.begin_as(run, "q", batch, false).await
    }

    pub(crate) async fn begin_as(
        &self,
        run: u128,
        query: &str,
        number: u64,
        adopt_query: bool,
    ) -> Result<BegunBatch, Failure> {
        let batch = NewBatch {
            writer: "ingest".to_owned(),
            run,
            query: query.to_owned(),
            number,
            adopt_query,
            unbound: false,
            host: None,
            pid: None,
        };
        self.stream.begin_batch(&batch).await
    }

    pub(crate) async fn begin_named(
        &self,
        run: u128,
        writer: &str,
        query: &str,
        number: u64,
    ) -> Result<BegunBatch, Failure> {
        let (writer, query) = (writer.to_owned(), query.to_owned());
        let batch = NewBatch {
            writer,
            run,
            query,
            number,
            adopt_query: false,
            unbound: false,
            host: None,
            pid: None,
        };
        self.stream.begin_batch(&batch).await
    }

    /// Commits a row to every partition.
    pub(crate) async fn commit(
        &self,
        begun: &BegunBatch,
        number: u64,
    ) -> Result<proto::AppendResponse, Failure> {
        self.commit_as(begun, "q", number).await
    }

    pub(crate) async fn commit_as(
        &self,
        begun: &BegunBatch,
        query: &str,
        number: u64,
    ) -> Result<proto::AppendResponse, Failure> {
        let rows = begun.epochs.iter().map(|held| proto::PartitionRows {
            partition_id: held.partition_id,
            epoch: held.epoch,
            rows: 1,
            payload: Some(proto::partition_rows::Payload::Inline(bytes::Bytes::from_static(b"row"))),
        });
        let request = proto::AppendRequest {
            stream_id: self.stream.info().stream_id,
            batch: Some(proto::Batch { query: query.to_owned(), number }),
            owner: begun.node_id,
            rows: rows.collect(),
            ..Default::default()
        };
        let answer = self.node.append(Request::new(request)).await;
        answer.map(tonic::Response::into_inner).map_err(|status| Failure::from(&status))
    }

    pub(crate) async fn rows(&self) -> u64 {
        self.stream.offsets().await.unwrap().values().map(|range| range.end).sum()
    }

    pub(crate) async fn grow(&self, partitions: u32) {
        let more = Alteration { partitions: Some(partitions), ..Alteration::default() };
        self.cluster.alter(&self.stream, more).await.unwrap();
        self.stream.refresh().await.unwrap();
    }

    /// Waits until the node says that a run is in this state.
    pub(crate) async fn wait_for_state(&self, node_id: u64, state: &str) {
        let until = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let status = self.cluster.status(false, None).await.unwrap();
            let found = status.nodes.iter().find(|node| node.node_id == node_id);
            if found.is_some_and(|node| node.state == state) {
                return;
            }
            assert!(tokio::time::Instant::now() < until, "run {node_id} is {found:?} and not {state}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Whether a run has every partition now, under the epochs that it was told.
pub(crate) async fn holds_all(runs: &Runs, begun: &BegunBatch) -> bool {
    runs.stream.check_run(begun.node_id, &begun.epochs, None).await.is_ok()
}
