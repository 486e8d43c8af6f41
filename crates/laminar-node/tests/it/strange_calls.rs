//! Requests that no client of ours would send: every call, with fields changed at random, on a node that serves. None may
//! end a task, none is answered as a fault of the node, and afterwards the node works as before.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use laminar_client::{ErrorClass, NewStream};
use laminar_node::{NoMachines, Node, NodeConfig};
use laminar_rpc::proto::laminar_server::Laminar;
use laminar_rpc::{Failure, Message, proto};
use tonic::{Request, Status};

use crate::support::{Opened, calls, open, open_with, orders, read_ids, rows, transport};

/// How often each call is made; `LAMINAR_STRANGE_CALLS` makes it more.
const CALLS: u64 = 150;

/// Numbers that begin something, end something, or are no number of the kind that is meant.
const NUMBERS: [u64; 12] =
    [0, 1, 2, 7, 127, 128, 65_535, u32::MAX as u64, 1 << 32, i64::MAX as u64, u64::MAX - 1, u64::MAX];

/// A generator that a seed repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn number(&mut self) -> u64 {
        if self.next().is_multiple_of(4) { self.next() } else { NUMBERS[self.below(NUMBERS.len())] }
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A field that takes the place of the one with its number, or is added to it.
fn put_field(bytes: &mut Vec<u8>, random: &mut Random, depth: usize) {
    let field = 1 + random.next() % 10;
    match random.next() % 5 {
        0 | 1 => {
            put_varint(bytes, field << 3);
            let number = random.number();
            put_varint(bytes, number);
        }
        2 => {
            put_varint(bytes, field << 3 | 1);
            bytes.extend_from_slice(&random.number().to_le_bytes());
        }
        3 => {
            let length = random.below(40);
            put_varint(bytes, field << 3 | 2);
            put_varint(bytes, length as u64);
            // Texts must be texts, or nothing but the decoder is tried.
            bytes.extend((0..length).map(|_| b'!' + (random.next() % 90) as u8));
        }
        _ => {
            let mut inner = Vec::new();
            if depth > 0 {
                (0..=random.below(3)).for_each(|_| put_field(&mut inner, random, depth - 1));
            }
            put_varint(bytes, field << 3 | 2);
            put_varint(bytes, inner.len() as u64);
            bytes.extend_from_slice(&inner);
        }
    }
}

/// The message with something changed, as often as it takes to be a message again.
fn strange<M: Message + Default>(message: &M, random: &mut Random) -> M {
    loop {
        let mut bytes = message.encode_to_vec();
        for _ in 0..=random.below(3) {
            match random.next() % 4 {
                0 if !bytes.is_empty() => {
                    let at = random.below(bytes.len());
                    bytes[at] = random.next() as u8;
                }
                1 => bytes.truncate(random.below(bytes.len() + 1)),
                _ => put_field(&mut bytes, random, 2),
            }
        }
        if let Ok(message) = M::decode(bytes.as_slice()) {
            return message;
        }
    }
}

/// Makes a call again and again, and fails if the node calls an answer its own fault.
async fn torment<M, F, T>(name: &str, message: M, random: &mut Random, call: impl Fn(M) -> F)
where
    M: Message + Default + Clone + std::fmt::Debug,
    F: Future<Output = Result<T, Status>>,
{
    let rounds = std::env::var("LAMINAR_STRANGE_CALLS").ok().map_or(CALLS, |rounds| rounds.parse().unwrap());
    for _ in 0..rounds {
        let asked = strange(&message, random);
        let answered = tokio::time::timeout(Duration::from_secs(20), call(asked.clone())).await;
        let answered = answered.unwrap_or_else(|_| panic!("{name} was never answered: {asked:?}"));
        if let Err(status) = answered {
            let failure = Failure::from(&status);
            assert_ne!(failure.class, ErrorClass::Internal, "{name}: {failure}\n{asked:?}");
        }
    }
}

/// A run of `kv`, and what the calls below name.
struct Names {
    stream_id: u64,
    partition_id: u32,
    keyed_id: u64,
    keyed_partition_id: u32,
    run: u64,
    epoch: u64,
}

async fn names(node: &Node, opened: &Opened) -> Names {
    let stream = opened.cluster.create_stream(orders(3)).await.unwrap();
    stream.append(&[rows(0..50)]).await.unwrap();
    let keyed = NewStream { path: "/shop/keys".to_owned(), machine: "kv".to_owned(), ..orders(2) };
    let keyed = opened.cluster.create_stream(keyed).await.unwrap();
    keyed.append(&[rows(0..50)]).await.unwrap();
    let register = proto::RegisterWorkerRequest { writer: "w".to_owned(), ..Default::default() };
    let run = node.register_worker(Request::new(register)).await.unwrap().into_inner().node_id;
    let (info, keyed) = (stream.info(), keyed.info());
    let claim = proto::ClaimRequest { stream_id: info.stream_id, node_id: run, ..Default::default() };
    let claimed = node.claim(Request::new(claim)).await.unwrap().into_inner();
    Names {
        stream_id: info.stream_id,
        partition_id: info.partition_id(0).unwrap(),
        keyed_id: keyed.stream_id,
        keyed_partition_id: keyed.partition_id(0).unwrap(),
        run,
        epoch: claimed.partitions[0].epoch,
    }
}

/// Calls each method with changed messages; the names of those that were called.
macro_rules! torment_all {
    ($node:expr, $random:expr, $($name:literal $method:ident $message:expr;)*) => {{
        $(torment($name, $message, $random, |asked| $node.$method(Request::new(asked))).await;)*
        BTreeSet::from([$($name),*])
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strange_requests_are_answered_and_harm_nothing() {
    let seed = std::env::var("LAMINAR_STRANGE_SEED").ok().map_or(0x5eed, |seed| seed.parse().unwrap());
    println!("LAMINAR_STRANGE_SEED={seed}");
    let random = &mut Random(seed);
    let folder = tempfile::tempdir().unwrap();
    let config = NodeConfig { call_timeout: Duration::from_millis(300), ..NodeConfig::default() };
    let opened = open_with(folder.path(), config, Arc::new(NoMachines));
    opened.cluster.streams("").await.unwrap();
    let node = opened.connector.local_node().unwrap();
    let Names { stream_id, partition_id, keyed_id, keyed_partition_id, run, epoch } =
        names(&node, &opened).await;

    let path = "/shop/orders".to_owned();
    let request = Some(proto::RequestId { high: 1, low: 2 });
    let held = proto::PartitionEpoch { partition_id, epoch };
    let batch = Some(proto::Batch { query: "q".to_owned(), number: 3 });
    let append = proto::AppendRequest {
        stream_id,
        owner: run,
        producer: Some(proto::Producer { id: 1, sequence: 1 }),
        rows: vec![proto::PartitionRows {
            partition_id,
            epoch,
            rows: 1,
            payload: Some(proto::partition_rows::Payload::Inline(Bytes::from_static(b"rows"))),
        }],
        batch: batch.clone(),
        commit: Some(proto::Commit {
            overwrite: false,
            partitions: vec![held],
            expected_ends: vec![proto::ExpectedEnd { partition_id, epoch, end_offset: 9 }],
        }),
        ..Default::default()
    };
    let transport = transport(folder.path()).await;
    let append_each = |asked| async {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        transport.append_again(asked, deadline).await.map_err(Status::from)
    };
    torment("AppendEach", append.clone(), random, append_each).await;
    let called = torment_all! { node, random,
        "Hello" hello proto::HelloRequest { client_version: "1".to_owned(), client_id: "c".to_owned() };
        "CreateStream" create_stream proto::CreateStreamRequest {
            path: "/strange".to_owned(), partitions: 2, machine: "log".to_owned(), request, ..Default::default()
        };
        "DescribeStream" describe_stream proto::DescribeStreamRequest { path: path.clone() };
        "ListStreams" list_streams proto::ListStreamsRequest { prefix: "/".to_owned() };
        "AlterStream" alter_stream proto::AlterStreamRequest {
            path: path.clone(), stream_id, retention: Some(proto::Retention::default()), request, ..Default::default()
        };
        "MintProducer" mint_producer proto::MintProducerRequest {};
        "Append" append append;
        "Read" read proto::ReadRequest { stream_id, partition_id, end_offset: Some(9), ..Default::default() };
        "Offsets" offsets proto::OffsetsRequest { stream_id, partition_ids: vec![partition_id], ..Default::default() };
        "Cut" cut proto::CutRequest {
            stream_id, starts: vec![proto::PartitionStart { partition_id, offset: 2 }], rows_max: Some(5), ..Default::default()
        };
        "Barrier" barrier proto::BarrierRequest { stream_id, partition_ids: vec![partition_id], ..Default::default() };
        "Get" get proto::GetRequest {
            stream_id: keyed_id, partition_id: keyed_partition_id, key: Bytes::from_static(b"k"), ..Default::default()
        };
        "Scan" scan proto::ScanRequest { stream_id: keyed_id, partition_id: keyed_partition_id, ..Default::default() };
        "Trim" trim proto::TrimRequest { stream_id, partition_id, offset: 3, owner: run, epoch };
        "RegisterWorker" register_worker proto::RegisterWorkerRequest {
            writer: "w".to_owned(), stream: path.clone(), run: request, host: "h".to_owned(), pid: 1
        };
        "Heartbeat" heartbeat proto::HeartbeatRequest { node_ids: vec![run] };
        "Claim" claim proto::ClaimRequest { stream_id, node_id: run, partition_ids: vec![partition_id], ..Default::default() };
        "BeginBatch" begin_batch proto::BeginBatchRequest {
            stream_id, writer: "s".to_owned(), run: request, batch: batch.clone(), ..Default::default()
        };
        "CheckRun" check_run proto::CheckRunRequest { stream_id, node_id: run, partitions: vec![held], batch: batch.clone() };
        "LastBatch" last_batch proto::LastBatchRequest { stream_id, query: "q".to_owned(), timeout_ms: 5 };
        "Watch" watch proto::WatchRequest { after_index: 2 };
        "Why" why proto::WhyRequest { path: path.clone(), partition: Some(0) };
        "Status" status proto::StatusRequest { partitions: true, stream: path.clone() };
        "Metrics" metrics proto::MetricsRequest::default();
        "Metadata" metadata proto::MetadataRequest { linearizable: true };
        "Resume" resume proto::ResumeRequest { partition_id };
        "Skip" skip proto::SkipRequest { partition_id, index: 1, owner: run, epoch };
        "Snapshot" snapshot proto::SnapshotRequest::default();
        "Release" release proto::ReleaseRequest { node_id: run, request, run: request, stream_id };
        "DropStream" drop_stream proto::DropStreamRequest { path, stream_id, request };
    };
    let called: BTreeSet<&str> = called.into_iter().chain(["AppendEach"]).collect();
    assert_eq!(calls(), called, "a new call is made here too");

    let after =
        opened.cluster.create_stream(NewStream { path: "/after".to_owned(), ..orders(2) }).await.unwrap();
    after.append(&[rows(0..100)]).await.unwrap();
    assert_eq!(read_ids(&after).await, (0..100).collect::<Vec<_>>());
    drop(node);
    opened.connector.close().await.unwrap();

    // What strange calls left in the logs can be opened.
    let again = open(folder.path());
    let after = again.cluster.stream("/after").await.unwrap();
    assert_eq!(read_ids(&after).await, (0..100).collect::<Vec<_>>());
    again.connector.close().await.unwrap();
}
