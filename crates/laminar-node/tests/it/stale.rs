//! Every call that changes something refuses a stale epoch, a superseded run, or a stream that was replaced.

use std::collections::BTreeSet;

use laminar_client::ErrorClass;
use laminar_node::Node;
use laminar_rpc::proto::laminar_server::Laminar;
use laminar_rpc::{Failure, proto};
use tonic::{Request, Status};

use crate::support::{Opened, calls, open, orders, read_ids, rows, transport};

/// Calls that change nothing of streams, rows and ownership.
const READING: [&str; 16] = [
    "Hello",
    "DescribeStream",
    "ListStreams",
    "Read",
    "Offsets",
    "Barrier",
    "Cut",
    "Get",
    "Scan",
    "Watch",
    "Why",
    "Status",
    "Metrics",
    "Metadata",
    "CheckRun",
    "LastBatch",
];
/// Calls that name no epoch because there is none yet: what they make is new.
const MAKING: [&str; 3] = ["CreateStream", "MintProducer", "RegisterWorker"];
/// Calls that give nobody anything: a run is heard, a group writes a snapshot, a partition tries its next record again.
const HARMLESS: [&str; 3] = ["Heartbeat", "Snapshot", "Resume"];
/// Calls that must refuse what is stale. Each has a case below.
const CHANGING: [&str; 9] =
    ["Append", "AppendEach", "Trim", "Skip", "Claim", "Release", "BeginBatch", "AlterStream", "DropStream"];

#[test]
fn every_call_of_the_service_is_accounted_for() {
    let known: BTreeSet<&str> = READING.into_iter().chain(MAKING).chain(HARMLESS).chain(CHANGING).collect();
    assert_eq!(
        calls(),
        known,
        "a new call must be put into one of the lists, and get a case if it changes something"
    );
}

struct Stale {
    opened: Opened,
    node: Node,
    stream_id: u64,
    partition_id: u32,
    /// The run that was superseded, and the epoch it had.
    run: u64,
    epoch: u64,
}

/// A stream whose first writer was taken over by a second, and was dropped nowhere.
async fn superseded(folder: &std::path::Path) -> Stale {
    let opened = open(folder);
    let stream = opened.cluster.create_stream(orders(1)).await.unwrap();
    let node = opened.connector.local_node().unwrap();
    let info = stream.info();
    let (stream_id, partition_id) = (info.stream_id, info.partition_id(0).unwrap());
    stream.append(&[rows(0..10)]).await.unwrap();
    let run = register(&node, "first").await;
    let epoch = claim(&node, stream_id, run).await.unwrap().partitions[0].epoch;
    let second = register(&node, "second").await;
    claim(&node, stream_id, second).await.unwrap();
    Stale { opened, node, stream_id, partition_id, run, epoch }
}

async fn register(node: &Node, writer: &str) -> u64 {
    let request = proto::RegisterWorkerRequest { writer: writer.to_owned(), ..Default::default() };
    node.register_worker(Request::new(request)).await.unwrap().into_inner().node_id
}

async fn claim(node: &Node, stream_id: u64, node_id: u64) -> Result<proto::ClaimResponse, Status> {
    let request = proto::ClaimRequest { stream_id, node_id, ..Default::default() };
    node.claim(Request::new(request)).await.map(tonic::Response::into_inner)
}

/// A run that holds the stream for its first batch.
async fn begin(node: &Node, stream_id: u64, run: u64) -> Result<proto::BeginBatchResponse, Status> {
    let request = proto::BeginBatchRequest {
        stream_id,
        writer: "spark".to_owned(),
        run: Some(proto::RequestId { high: 0, low: run }),
        batch: Some(proto::Batch { query: "q".to_owned(), number: 0 }),
        ..Default::default()
    };
    node.begin_batch(Request::new(request)).await.map(tonic::Response::into_inner)
}

fn refused<T: std::fmt::Debug>(call: &str, outcome: Result<T, Status>) -> Failure {
    let failure = Failure::from(&outcome.expect_err(call));
    assert!(!failure.outcome_unknown, "{call}: {failure}");
    failure
}

fn append(stale: &Stale, owner: u64, epoch: u64) -> proto::AppendRequest {
    proto::AppendRequest {
        stream_id: stale.stream_id,
        owner,
        rows: vec![proto::PartitionRows {
            partition_id: stale.partition_id,
            epoch,
            rows: 1,
            payload: Some(proto::partition_rows::Payload::Inline(bytes::Bytes::from_static(b"late"))),
        }],
        ..Default::default()
    }
}

/// An append over the call that stays open.
async fn append_each(
    folder: &std::path::Path,
    request: proto::AppendRequest,
) -> Result<proto::AppendResponse, Status> {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    transport(folder).await.append_again(request, deadline).await.map_err(Status::from)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_changing_call_of_a_superseded_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let stale = superseded(folder.path()).await;
    let Stale { node, run, epoch, partition_id, stream_id, .. } = &stale;
    let stream = stale.opened.cluster.stream("/shop/orders").await.unwrap();

    let failure = refused("Append", node.append(Request::new(append(&stale, *run, *epoch))).await);
    assert_eq!(failure.class, ErrorClass::StaleEpoch, "{failure}");
    assert_eq!(failure.number("epoch"), Some(*epoch));
    assert_eq!(failure.number("current_epoch"), Some(epoch + 1));
    // The right epoch under another owner, and an epoch that nobody has yet, are no better.
    let failure = refused("Append", node.append(Request::new(append(&stale, *run, epoch + 1))).await);
    assert_eq!(failure.class, ErrorClass::NotOwned, "{failure}");
    refused("Append", node.append(Request::new(append(&stale, *run, epoch + 2))).await);
    let failure = refused("Append", node.append(Request::new(append(&stale, 0, 0))).await);
    assert_eq!(failure.class, ErrorClass::NotOwned, "{failure}");

    let failure = refused("AppendEach", append_each(folder.path(), append(&stale, *run, *epoch)).await);
    assert_eq!(failure.class, ErrorClass::StaleEpoch, "{failure}");
    assert_eq!(failure.number("current_epoch"), Some(epoch + 1));
    let failure = refused("AppendEach", append_each(folder.path(), append(&stale, 0, 0)).await);
    assert_eq!(failure.class, ErrorClass::NotOwned, "{failure}");

    // A commit that only expects an end is refused for its epoch, whatever the end is.
    let expecting = |epoch: u64, end_offset: u64| {
        let expected_ends = vec![proto::ExpectedEnd { partition_id: *partition_id, epoch, end_offset }];
        let commit = Some(proto::Commit { expected_ends, ..Default::default() });
        proto::AppendRequest { rows: Vec::new(), commit, ..append(&stale, *run, epoch) }
    };
    for end in [10, 99] {
        let failure = refused("Append", node.append(Request::new(expecting(*epoch, end))).await);
        assert_eq!(failure.class, ErrorClass::StaleEpoch, "{failure}");
        let failure = refused("Append", node.append(Request::new(expecting(epoch + 1, end))).await);
        assert_eq!(failure.class, ErrorClass::NotOwned, "{failure}");
    }
    assert_eq!(
        refused("Append", node.append(Request::new(expecting(0, 10))).await).class,
        ErrorClass::Invalid
    );

    let trim = proto::TrimRequest {
        stream_id: *stream_id,
        partition_id: *partition_id,
        offset: 5,
        owner: *run,
        epoch: *epoch,
    };
    assert_eq!(refused("Trim", node.trim(Request::new(trim)).await).class, ErrorClass::StaleEpoch);
    let trim = proto::TrimRequest { owner: 0, epoch: 0, ..trim };
    assert_eq!(refused("Trim", node.trim(Request::new(trim)).await).class, ErrorClass::NotOwned);
    let skip = proto::SkipRequest { partition_id: *partition_id, index: 1, owner: *run, epoch: *epoch };
    assert_eq!(refused("Skip", node.skip(Request::new(skip)).await).class, ErrorClass::StaleEpoch);

    let failure = refused("Claim", claim(node, *stream_id, *run).await);
    assert_eq!(failure.class, ErrorClass::StaleEpoch, "{failure}");

    // The first run of a query is superseded by the second, and that one by a writer again.
    begin(node, *stream_id, 1).await.unwrap();
    begin(node, *stream_id, 2).await.unwrap();
    assert_eq!(refused("BeginBatch", begin(node, *stream_id, 1).await).class, ErrorClass::StaleEpoch);
    let third = register(node, "third").await;
    claim(node, *stream_id, third).await.unwrap();
    assert_eq!(refused("BeginBatch", begin(node, *stream_id, 2).await).class, ErrorClass::StaleEpoch);
    let before = node.metadata(Request::new(proto::MetadataRequest::default())).await.unwrap().into_inner();

    // A release of a run that owns nothing any more takes nothing from the one that does.
    node.release(Request::new(proto::ReleaseRequest { node_id: *run, ..Default::default() })).await.unwrap();
    let after = node.metadata(Request::new(proto::MetadataRequest::default())).await.unwrap().into_inner();
    let owner = |answer: &proto::MetadataResponse| {
        let metadata = laminar_core::metadata::DeltaMetadata::restore(&answer.snapshot).unwrap();
        metadata.partition_ownership(laminar_core::ids::PartitionId(*partition_id)).unwrap().owner_epoch()
    };
    assert_eq!(owner(&before), owner(&after));
    assert_eq!(read_ids(&stream).await, (0..10).collect::<Vec<_>>());
    stale.opened.connector.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_changing_call_on_a_stream_that_was_replaced_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let stale = superseded(folder.path()).await;
    let Stale { node, run, epoch, partition_id, stream_id, .. } = &stale;
    stale.opened.cluster.drop_stream("/shop/orders").await.unwrap();
    let again = stale.opened.cluster.create_stream(orders(1)).await.unwrap();
    again.append(&[rows(100..105)]).await.unwrap();

    for (owner, epoch) in [(*run, *epoch), (0, 0)] {
        let failure = refused("Append", node.append(Request::new(append(&stale, owner, epoch))).await);
        assert_eq!(failure.class, ErrorClass::UnknownPartition, "{failure}");
        let failure = refused("AppendEach", append_each(folder.path(), append(&stale, owner, epoch)).await);
        assert_eq!(failure.class, ErrorClass::UnknownPartition, "{failure}");
    }
    let trim = proto::TrimRequest {
        stream_id: *stream_id,
        partition_id: *partition_id,
        offset: 5,
        ..Default::default()
    };
    assert_eq!(refused("Trim", node.trim(Request::new(trim)).await).class, ErrorClass::UnknownPartition);
    let skip = proto::SkipRequest { partition_id: *partition_id, index: 1, owner: 0, epoch: 0 };
    assert_eq!(refused("Skip", node.skip(Request::new(skip)).await).class, ErrorClass::UnknownPartition);
    assert_eq!(refused("Claim", claim(node, *stream_id, *run).await).class, ErrorClass::UnknownPartition);
    assert_eq!(refused("BeginBatch", begin(node, *stream_id, 1).await).class, ErrorClass::UnknownPartition);
    let alter = proto::AlterStreamRequest {
        path: "/shop/orders".to_owned(),
        stream_id: *stream_id,
        partitions: Some(4),
        ..Default::default()
    };
    refused("AlterStream", node.alter_stream(Request::new(alter)).await);
    let drop_it =
        proto::DropStreamRequest { path: "/shop/orders".to_owned(), stream_id: *stream_id, request: None };
    refused("DropStream", node.drop_stream(Request::new(drop_it)).await);
    node.release(Request::new(proto::ReleaseRequest { node_id: *run, ..Default::default() })).await.unwrap();

    assert_eq!(again.refresh().await.unwrap().partition_count(), 1);
    assert_eq!(read_ids(&again).await, (100..105).collect::<Vec<_>>());
    stale.opened.connector.close().await.unwrap();
}
