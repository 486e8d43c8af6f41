use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use laminar_core::ids::{NodeId, PartitionId};
use laminar_core::node::NodeState;
use laminar_rpc::proto;
use tokio::time::Instant;

use crate::config::NodeConfig;
use crate::folder::Folder;
use crate::machines::NoMachines;
use crate::node::{Node, lock};

const PARTITIONS: usize = 2;

async fn open(path: &Path, config: NodeConfig) -> (Node, u64) {
    let folder = Folder::take(path, None).unwrap().unwrap();
    let node = Node::open(folder, config, Arc::new(NoMachines)).await.unwrap();
    let request = proto::CreateStreamRequest {
        path: "/orders".to_owned(),
        partitions: PARTITIONS as u32,
        machine: "log".to_owned(),
        ..Default::default()
    };
    let stream = node.create_stream(request).await.unwrap();
    (node, stream.stream_id)
}

async fn register(node: &Node) -> u64 {
    let request = proto::RegisterWorkerRequest {
        writer: "ingest".to_owned(),
        stream: "/orders".to_owned(),
        ..Default::default()
    };
    node.register_worker(request).await.unwrap().node_id
}

fn claim(stream_id: u64, node_id: u64) -> proto::ClaimRequest {
    proto::ClaimRequest { stream_id, node_id, ..Default::default() }
}

fn state(node: &Node, run: u64) -> NodeState {
    node.inner.metadata.read_local(|metadata| metadata.node(NodeId(run)).unwrap().state)
}

fn owned(node: &Node, by: NodeId) -> Vec<PartitionId> {
    node.inner.metadata.read_local(|metadata| metadata.partitions_for_node(by))
}

/// OWN-2: whichever of the two applies first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_released_while_its_claim_is_under_way_owns_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (node, stream_id) = open(folder.path(), NodeConfig::default()).await;
    for _ in 0..50 {
        let run = register(&node).await;
        let release = proto::ReleaseRequest { node_id: run, ..Default::default() };
        let (_, released) = tokio::join!(node.claim(claim(stream_id, run)), node.release(release));
        released.unwrap();
        assert_eq!((state(&node, run), owned(&node, NodeId(run))), (NodeState::Left, vec![]));
        assert!(node.claim(claim(stream_id, run)).await.is_err());
        assert_eq!(owned(&node, node.id()).len(), PARTITIONS);
    }
    node.shutdown().await.unwrap();
}

/// As folders have it that were written before releases looked at what they change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_run_owns_that_is_over_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let (node, stream_id) = open(folder.path(), NodeConfig::default()).await;
    let run = register(&node).await;
    let claimed = node.claim(claim(stream_id, run)).await.unwrap();
    node.update(NodeId(run), NodeState::Left, None).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while owned(&node, node.id()).len() < PARTITIONS {
        assert!(Instant::now() < deadline, "it stays claimed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for before in claimed.partitions {
        let partition = PartitionId(before.partition_id);
        node.carry(&[partition]).await.unwrap();
        let now = node.owner_in_log(partition).unwrap().unwrap();
        assert_eq!((now.node_id, now.epoch.get()), (node.id(), before.epoch + 1));
    }
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_registered_and_was_never_heard_is_over_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let config = NodeConfig { worker_timeout: Duration::from_millis(100), ..NodeConfig::default() };
    let (node, _) = open(folder.path(), config).await;
    let run = register(&node).await;
    // As if the call had been given up before it was noted.
    lock(&node.inner.workers).remove(&NodeId(run));
    let deadline = Instant::now() + Duration::from_secs(30);
    while state(&node, run) != NodeState::Left {
        assert!(Instant::now() < deadline, "it is joining for ever");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.shutdown().await.unwrap();
}
