//! The metadata group of one node, on tokio and real files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use laminar_core::error::ErrorKind;
use laminar_core::guard::{PartitionGuard, PartitionGuardSet};
use laminar_core::ids::{DataGroupId, LogIndex, NodeId, OwnerEpoch, PartitionId, RequestId, StreamId};
use laminar_core::metadata::{
    DeltaMetadata, MetadataChange, MetadataLogEntry, MetadataResponse, Minted, Rejection, Release, Retention,
    StreamLimits, StreamMachine,
};
use laminar_core::node::{NodeMetadata, NodeRole};
use laminar_raft::{
    CoordinationError, RaftCoordinator, RaftCoordinatorConfig, RaftSettings, Registration, ReplicaConfig,
    TokioRuntime, WatchEvent,
};
use openraft::AsyncRuntime;

use crate::support::{assign, claim, open_alone, owner};

type Coordinator = RaftCoordinator<TokioRuntime>;

async fn open(dir: &std::path::Path) -> Coordinator {
    open_alone(dir, RaftCoordinatorConfig::default()).await
}

fn create_stream(path: &str, partitions: u32) -> MetadataChange {
    MetadataChange::CreateStream {
        path: path.to_owned(),
        partitions,
        schema: Vec::new(),
        key: Vec::new(),
        machine: StreamMachine::Log,
        data_group: DataGroupId(0),
        retention: Retention::default(),
        limits: StreamLimits::default(),
    }
}

/// Writes a change that must be applied.
async fn applied(coordinator: &Coordinator, request: u128, change: MetadataChange) -> LogIndex {
    let (index, response) = coordinator.submit(RequestId(request), change).await.unwrap();
    assert!(response.is_applied(), "{response:?}");
    index
}

fn current(coordinator: &Coordinator, partition: u32) -> OwnerEpoch {
    let read = |metadata: &DeltaMetadata| metadata.partition_ownership(PartitionId(partition)).cloned();
    coordinator.read_local(read).unwrap().owner_epoch()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_entries_a_snapshot_and_a_restart_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path()).await;
    applied(&coordinator, 1, create_stream("/a", 100)).await;
    let mut request = 1;
    for _ in 0..157 {
        let writes = (0..64).map(|_| {
            request += 1;
            let partition = (request % 100) as u32;
            // The batch has one claim a partition.
            let claim = claim(partition, current(&coordinator, partition), 1 + request as u64 % 7);
            coordinator.submit(RequestId(request), claim)
        });
        for written in join_all(writes).await {
            assert!(written.unwrap().1.is_applied());
        }
    }
    assert!(request > 10_000);
    let reached = coordinator.snapshot().await.unwrap();
    assert!(reached.0 > 10_000);
    applied(&coordinator, request + 1, create_stream("/b", 1)).await;
    let before = coordinator.read_local(DeltaMetadata::snapshot);
    let index = coordinator.applied_index();
    coordinator.shutdown().await.unwrap();

    let coordinator = open(folder.path()).await;
    coordinator.wait_recovered(Duration::from_secs(10)).await.unwrap();
    assert_eq!(coordinator.applied_index(), index);
    let after = coordinator.read_linearizable(DeltaMetadata::snapshot).await.unwrap();
    assert!(after == before, "the same entries give the same bytes (APPLY-2)");
    let status = coordinator.status();
    assert_eq!((status.last_fault, status.paused), (None, None));
    assert!(
        status.replica.purged.is_some_and(|id| id.index.0 > 8000),
        "the log before the snapshot is let go"
    );
    coordinator.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_request_that_comes_twice_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path()).await;
    let registration = || Registration {
        node_id: None,
        role: NodeRole::Worker,
        rpc_address: String::new(),
        raft_address: String::new(),
        metadata: NodeMetadata::default(),
        expected: None,
    };
    let (_, first) = coordinator.register_node(RequestId(7), registration()).await.unwrap();
    let (_, again) = coordinator.register_node(RequestId(7), registration()).await.unwrap();
    assert_eq!(first, again, "OWN-2");
    assert!(matches!(first.minted(), [Minted::Node(_)]));
    assert_eq!(coordinator.read_local(|metadata| metadata.node_states().len()), 1);
    // Also when it comes after a restart.
    coordinator.shutdown().await.unwrap();
    let coordinator = open(folder.path()).await;
    let entry = MetadataLogEntry::batch(0, RequestId(7), vec![create_stream("/a", 1)]);
    let (_, raw) = coordinator.write(entry).await.unwrap();
    assert_eq!(raw.rejection(), Some(&Rejection::DuplicateRequest { first: Box::new(first) }));
    assert_eq!(coordinator.read_local(|metadata| metadata.streams("").count()), 0);
    coordinator.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_acquire_at_once_one_wins_all_and_the_other_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path()).await;
    applied(&coordinator, 1, create_stream("/a", 50)).await;
    for round in 1..20_u64 {
        let expected = current(&coordinator, 0);
        let claim_all = |node: u64| {
            let claims = (0..50).map(|partition| claim(partition, expected, node)).collect();
            coordinator.submit_all(RequestId(u128::from(round * 100 + node)), claims)
        };
        let outcomes = join_all([claim_all(round * 10 + 1), claim_all(round * 10 + 2)]).await;
        let wins: Vec<bool> =
            outcomes.iter().map(|outcome| outcome.as_ref().unwrap().1.is_applied()).collect();
        assert_eq!(wins.iter().filter(|won| **won).count(), 1);
        let winner = NodeId(round * 10 + if wins[0] { 1 } else { 2 });
        assert_eq!(coordinator.read_local(|metadata| metadata.partitions_for_node(winner).len()), 50);
    }
    coordinator.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_only_grow_over_many_transfers_and_a_watch_sees_them_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path()).await;
    applied(&coordinator, 1, create_stream("/a", 4)).await;
    let mut watch = coordinator.watch(LogIndex::NONE);
    let watcher = tokio::spawn(async move {
        let mut seen: BTreeMap<PartitionId, OwnerEpoch> = BTreeMap::new();
        let mut last = LogIndex::NONE;
        while let Some(event) = watch.next().await {
            assert!(event.index > last, "events go forward");
            last = event.index;
            for (partition, now) in event.changes {
                let now = now.unwrap();
                let before = seen.insert(partition, now);
                assert!(before.is_none_or(|before| before.epoch < now.epoch), "EPOCH-1");
            }
        }
        seen
    });
    for transfer in 0..400_u32 {
        let partition = transfer % 4;
        let expected = current(&coordinator, partition);
        let (id, request) = (PartitionId(partition), RequestId(u128::from(transfer) + 10));
        if transfer % 3 == 0 && expected.node_id.is_assigned() {
            let release = Release {
                final_index: LogIndex(1),
                state_hash: 0,
                next_offset: 0,
                checkpoint_id: None,
                source_offsets: BTreeMap::new(),
            };
            let again = RequestId(request.0 + 10_000);
            let (_, released) = coordinator.release_partition(again, id, expected, release).await.unwrap();
            assert!(released.is_applied());
        }
        let next = OwnerEpoch {
            node_id: NodeId(1 + u64::from(transfer) % 5),
            epoch: expected.epoch.next().unwrap(),
        };
        let (_, response) = if transfer % 2 == 0 {
            coordinator.acquire_partition(request, id, next, expected).await.unwrap()
        } else {
            coordinator.assign_partition(request, id, next, Some(expected)).await.unwrap()
        };
        assert!(response.is_applied());
        // What it expected holds no more.
        let late = RequestId(request.0 + 20_000);
        let (_, response) = coordinator.acquire_partition(late, id, next, expected).await.unwrap();
        assert_eq!(response.rejection().map(Rejection::code), Some("stale_epoch"));
    }
    let last: Vec<_> = (0..4).map(|partition| current(&coordinator, partition)).collect();
    assert!(last.iter().all(|owner| owner.epoch.get() == 101));
    coordinator.shutdown().await.unwrap();
    let seen = watcher.await.unwrap();
    assert_eq!(seen.into_values().collect::<Vec<_>>(), last, "a watch that ends has told everything");
}

#[tokio::test]
async fn a_watch_is_resumed_by_index_and_told_everything_if_it_is_too_far_behind() {
    let folder = tempfile::tempdir().unwrap();
    let config = RaftCoordinatorConfig { changes_max: 10, ..RaftCoordinatorConfig::default() };
    let coordinator = open_alone(folder.path(), config).await;
    let mut watch = coordinator.watch(LogIndex::NONE);
    let empty = watch.next().await.unwrap();
    assert_eq!(empty, WatchEvent { index: LogIndex::NONE, whole: true, changes: vec![] });

    let created = applied(&coordinator, 1, create_stream("/a", 3)).await;
    let event = watch.next().await.unwrap();
    assert_eq!((event.index, event.whole, event.changes.len()), (created, false, 3));
    let first = applied(&coordinator, 2, claim(0, owner(0, 1), 7)).await;
    // No change of ownership: nothing to tell.
    let alter = MetadataChange::AlterStream {
        path: "/a".to_owned(),
        expected: StreamId(1),
        partitions: None,
        retention: Some(Retention { age_ms: Some(1), bytes: None }),
        limits: None,
    };
    applied(&coordinator, 3, alter).await;
    let second = applied(&coordinator, 4, claim(0, owner(7, 2), 8)).await;
    // Those that wait are told together, each partition once.
    let merged =
        WatchEvent { index: second, whole: false, changes: vec![(PartitionId(0), Some(owner(8, 3)))] };
    assert_eq!(watch.next().await.as_ref(), Some(&merged));
    assert_eq!(coordinator.watch(first).next().await, Some(merged));

    let dropped = MetadataChange::DropStream { path: "/a".to_owned(), expected: None };
    let gone = applied(&coordinator, 5, dropped).await;
    let changes = (0..3).map(|partition| (PartitionId(partition), None)).collect();
    assert_eq!(watch.next().await, Some(WatchEvent { index: gone, whole: false, changes }));

    // More than is kept: whoever is behind is told everything, and nothing but what exists.
    let large = applied(&coordinator, 6, create_stream("/b", 11)).await;
    for late in [first, gone] {
        let event = coordinator.watch(late).next().await.unwrap();
        assert_eq!((event.index, event.whole, event.changes.len()), (large, true, 11));
        assert!(event.changes.iter().all(|(partition, owner)| partition.0 >= 3 && owner.is_some()));
    }
    // Waiting ends with a change that comes later.
    let mut waiting = coordinator.watch(large);
    let waiter = tokio::spawn(async move { waiting.next().await });
    let last = applied(&coordinator, 7, claim(5, owner(0, 1), 9)).await;
    let changes = vec![(PartitionId(5), Some(owner(9, 2)))];
    assert_eq!(waiter.await.unwrap(), Some(WatchEvent { index: last, whole: false, changes }));

    // A restart applies the log again, and a watch of before goes on where it was.
    coordinator.shutdown().await.unwrap();
    let coordinator = open(folder.path()).await;
    let mut resumed = coordinator.watch(last);
    coordinator.wait_recovered(Duration::from_secs(10)).await.unwrap();
    let newest = applied(&coordinator, 8, claim(6, owner(0, 1), 9)).await;
    let changes = vec![(PartitionId(6), Some(owner(9, 2)))];
    assert_eq!(resumed.next().await, Some(WatchEvent { index: newest, whole: false, changes }));
    // After a snapshot the changes before it are not known any more.
    coordinator.snapshot().await.unwrap();
    coordinator.shutdown().await.unwrap();
    assert_eq!(resumed.next().await, None);
    let coordinator = open(folder.path()).await;
    coordinator.wait_recovered(Duration::from_secs(10)).await.unwrap();
    let event = coordinator.watch(last).next().await.unwrap();
    assert_eq!((event.index, event.whole), (newest, true));
    coordinator.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_are_refreshed_while_checks_go_on_and_local_reads_beside_writes() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path()).await;
    applied(&coordinator, 1, create_stream("/a", 8)).await;
    let me = NodeId(3);
    let claims = (0..8).map(|partition| claim(partition, owner(0, 1), me.0)).collect();
    assert!(coordinator.submit_all(RequestId(2), claims).await.unwrap().1.is_applied());
    let guards = Arc::new(PartitionGuardSet::new(me).unwrap());
    for partition in 0..8 {
        let guard = PartitionGuard::new(PartitionId(partition), owner(0, 2).epoch, me).unwrap();
        coordinator.read_local(|metadata| guard.validate(metadata)).unwrap();
        guards.insert(guard).unwrap();
    }
    let mut watch = coordinator.watch(coordinator.applied_index());
    let watched = Arc::clone(&guards);
    let refresher = tokio::spawn(async move {
        while let Some(event) = watch.next().await {
            for (partition, now) in event.changes {
                watched.observe(partition, now);
            }
        }
    });
    let (stop, checks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let checker = std::thread::spawn({
        let (guards, stop, checks) = (Arc::clone(&guards), Arc::clone(&stop), Arc::clone(&checks));
        let coordinator = coordinator.clone();
        move || {
            let mut ended = [false; 8];
            while !stop.load(Ordering::Relaxed) {
                for (partition, ended) in (0..8).zip(&mut ended) {
                    let refused = guards.check(PartitionId(partition)).is_err();
                    assert!(!*ended || refused, "EPOCH-3: a guard never comes back");
                    *ended = refused;
                }
                coordinator.read_local(|metadata| assert_eq!(metadata.partition_map().len(), 8));
                checks.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    // Another takes them over, one by one.
    for partition in 0..8 {
        let request = 10 + u128::from(partition);
        applied(&coordinator, request, claim(partition, owner(3, 2), 4)).await;
        let before = checks.load(Ordering::Relaxed);
        let poisoned = async {
            while guards.check(PartitionId(partition)).is_ok() || checks.load(Ordering::Relaxed) < before + 2
            {
                TokioRuntime::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), poisoned).await.unwrap();
        let left = guards.check_many((0..8).map(PartitionId));
        assert_eq!(left.len(), partition as usize + 1, "the others are as they were");
    }
    stop.store(true, Ordering::Relaxed);
    checker.join().unwrap();
    coordinator.shutdown().await.unwrap();
    refresher.await.unwrap();
}

#[tokio::test]
async fn a_large_batch_is_one_entry() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path()).await;
    let (_, response) = coordinator
        .submit_all(RequestId(1), (0..90_000).map(|partition| assign(partition, None, owner(1, 1))).collect())
        .await
        .unwrap();
    assert!(response.is_applied());
    let claims: Vec<_> = (0..90_000).map(|partition| claim(partition, owner(1, 1), 2)).collect();
    let encoded = MetadataLogEntry::batch(0, RequestId(2), claims.clone()).encode().len();
    assert!(encoded > 1 << 20, "it is larger than what a data group takes inline");
    assert!(coordinator.submit_all(RequestId(2), claims).await.unwrap().1.is_applied());
    coordinator.shutdown().await.unwrap();
}

#[tokio::test]
async fn after_shutdown_nothing_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path()).await;
    applied(&coordinator, 1, create_stream("/a", 1)).await;
    coordinator.shutdown().await.unwrap();
    let refused = coordinator.submit(RequestId(2), create_stream("/b", 1)).await.unwrap_err();
    assert!(matches!(refused, CoordinationError::NotServing(_)), "{refused:?}");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(coordinator.read_linearizable(|_| ()).await.is_err());
    assert_eq!(coordinator.read_local(|metadata| metadata.streams("").count()), 1);
}

/// Of an answer that fell out of the ring, the metadata still knows the request.
#[tokio::test]
async fn an_answer_that_is_not_kept_is_found_by_its_request() {
    let folder = tempfile::tempdir().unwrap();
    let raft = RaftSettings { group: "metadata".to_owned(), ..RaftSettings::default() };
    let replica = ReplicaConfig { raft, ..RaftCoordinatorConfig::default().replica };
    let config = RaftCoordinatorConfig { replica, answers_max: 0, ..RaftCoordinatorConfig::default() };
    let coordinator = open_alone(folder.path(), config).await;
    let (_, response) = coordinator.submit(RequestId(1), create_stream("/a", 1)).await.unwrap();
    assert!(matches!(response, MetadataResponse::Applied { .. }));
    let forgotten = coordinator.submit(RequestId::NONE, create_stream("/b", 1)).await.unwrap_err();
    assert!(forgotten.is_unknown(), "{forgotten:?}");
    coordinator.shutdown().await.unwrap();
}
