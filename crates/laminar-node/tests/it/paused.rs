//! A partition whose machine fails stands still, and nothing else does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use laminar_client::{ErrorClass, Failure, NewStream, ReadOptions, StreamHandle};
use laminar_core::ids::PartitionId;
use laminar_log::entry::Change;
use laminar_log::machine::{Applying, MachineError, PartitionStateMachine};
use laminar_log::verdict::AcceptedRecord;
use laminar_node::{ApplicationMachines, NodeConfig};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::support::{Opened, open_with, orders, read_ids, rows};

const NONE: u32 = u32::MAX;
const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(30);

/// Cannot apply rows of one partition, and says so when it may.
#[derive(Clone)]
struct Failing {
    partition: u32,
    fails: Arc<AtomicU32>,
    may: watch::Receiver<bool>,
}

impl PartitionStateMachine for Failing {
    fn apply<'a>(&'a mut self, record: &'a AcceptedRecord) -> Applying<'a> {
        let is_append = matches!(record.record.change, Change::Append(_));
        if !is_append || self.fails.load(Ordering::Acquire) != self.partition {
            return Applying::Done(Ok(()));
        }
        let mut may = self.may.clone();
        Applying::Later(Box::pin(async move {
            drop(may.wait_for(|may| *may).await);
            Err(MachineError { reason: "a bad row".to_owned() })
        }))
    }

    fn snapshot(&self) -> Vec<Bytes> {
        Vec::new()
    }

    fn restore(&mut self, _state: &[Bytes]) -> Result<(), MachineError> {
        Ok(())
    }

    fn state_hash(&self) -> u64 {
        0
    }
}

impl ApplicationMachines for Failing {
    fn make(&self, _name: &str, partition: PartitionId) -> Option<Box<dyn PartitionStateMachine>> {
        Some(Box::new(Failing { partition: partition.0, ..self.clone() }))
    }

    fn names(&self) -> Vec<String> {
        vec!["failing".to_owned()]
    }
}

struct Setup {
    opened: Opened,
    stream: StreamHandle,
    /// The cluster's id of the partition that fails.
    partition_id: u32,
    may: watch::Sender<bool>,
}

/// A stream of four partitions, one of which fails.
async fn set_up(path: &Path) -> Setup {
    let (may, receiver) = watch::channel(false);
    let fails = Arc::new(AtomicU32::new(NONE));
    let machines = Failing { partition: NONE, fails: fails.clone(), may: receiver };
    let mut config = NodeConfig::default();
    config.data.segmented.apply_attempts_max = 1;
    let opened = open_with(path, config, Arc::new(machines));
    let stream = opened.cluster.create_stream(NewStream { machine: "failing".to_owned(), ..orders(4) }).await;
    let partition_id = opened.cluster.status(true, None).await.unwrap().partitions[1].partition_id;
    fails.store(partition_id, Ordering::Release);
    Setup { opened, stream: stream.unwrap(), partition_id, may }
}

impl Setup {
    /// The record that the partition stands at, once it does; and after `above`.
    async fn paused_at(&self, above: u64) -> u64 {
        let deadline = Instant::now() + LONG;
        loop {
            let status = self.opened.cluster.status(true, None).await.unwrap();
            let found = status.partitions.iter().find(|status| status.partition_id == self.partition_id);
            match found.unwrap().paused_at {
                at if at > above => return at,
                _ => assert!(Instant::now() < deadline, "it does not pause"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn read_fails(&self) -> Failure {
        let stream = self.stream.with_timeout(SHORT);
        let failure = match stream.read(ReadOptions::default()).await {
            Ok(mut reader) => reader.next().await.err(),
            Err(failure) => Some(failure),
        };
        failure.expect("rows that are not applied cannot be read")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_paused_partition_is_told_that_it_is_paused() {
    let folder = tempfile::tempdir().unwrap();
    let setup = set_up(folder.path()).await;
    setup.may.send_replace(true);
    let stream = setup.stream.with_timeout(SHORT);
    let failure = stream.append(&[rows(0..100)]).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::Unavailable, true), "{failure}");
    assert!(failure.message.contains("partition 1: the rows are in the log and wait"), "{failure}");
    assert!(failure.message.contains("a bad row; resume the partition"), "{failure}");
    assert_eq!(failure.number("paused_at"), Some(setup.paused_at(0).await));

    let refused = stream.append(&[rows(100..200)]).await.unwrap_err();
    assert_eq!((refused.class, refused.outcome_unknown), (ErrorClass::Unavailable, false), "{refused}");
    assert!(refused.message.contains("partition 1: append refused, it is paused since 20"), "{refused}");

    let failure = setup.read_fails().await;
    assert_eq!(failure.class, ErrorClass::Unavailable, "{failure}");
    assert!(failure.message.contains("partition 1: it is paused since 20"), "{failure}");
    setup.opened.connector.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_with_a_paused_partition_changes_hands() {
    let folder = tempfile::tempdir().unwrap();
    let setup = set_up(folder.path()).await;
    setup.may.send_replace(true);
    setup.stream.with_timeout(SHORT).append(&[rows(0..100)]).await.unwrap_err();
    let at = setup.paused_at(0).await;
    let stream = setup.stream.with_timeout(LONG);
    for name in ["first", "second"] {
        let began = Instant::now();
        let writer = stream.writer(name, None).await.unwrap();
        assert_eq!(writer.partitions().len(), 4);
        writer.close().await.unwrap();
        assert!(began.elapsed() < LONG / 3, "it waited for the paused partition");
    }
    assert_eq!(setup.paused_at(0).await, at);
    setup.opened.cluster.skip(setup.partition_id, at).await.unwrap();
    assert_eq!(read_ids(&stream).await.len(), 100);
    setup.opened.connector.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_skipped_though_the_next_one_is_bad_too() {
    let folder = tempfile::tempdir().unwrap();
    let setup = set_up(folder.path()).await;
    // Each has a handle of its own: appends of one go one after the other.
    let append = |ids: std::ops::Range<i64>| {
        let cluster = setup.opened.cluster.clone();
        tokio::spawn(async move {
            let stream = cluster.stream("/shop/orders").await?;
            stream.with_timeout(LONG).append(&[rows(ids)]).await
        })
    };
    let appends = [append(0..100), append(100..200)];
    let deadline = Instant::now() + LONG;
    loop {
        let status = setup.opened.cluster.status(true, None).await.unwrap();
        let found = status.partitions.iter().find(|status| status.partition_id == setup.partition_id);
        if found.unwrap().queued == 2 {
            break;
        }
        assert!(Instant::now() < deadline, "the rows are not there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    setup.may.send_replace(true);
    let first = setup.paused_at(0).await;
    let began = Instant::now();
    setup.opened.cluster.skip(setup.partition_id, first).await.unwrap();
    assert!(began.elapsed() < LONG / 3, "it waited for the paused partition");
    let second = setup.paused_at(first).await;
    setup.opened.cluster.skip(setup.partition_id, second).await.unwrap();
    for append in appends {
        append.await.unwrap().unwrap();
    }
    setup.opened.connector.close().await.unwrap();
}
