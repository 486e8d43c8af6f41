//! What a node finds after a crash in the middle of something.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use laminar_aof::fs::RealFileSystem;
use laminar_aof::{Committer, CommitterConfig};
use laminar_client::{ErrorClass, Failure, ReadOptions, StreamHandle};
use laminar_core::ids::{NodeId, OwnerEpoch, PartitionId, RequestId};
use laminar_core::metadata::{MetadataChange, MetadataLogEntry};
use laminar_node::{NoMachines, NodeConfig};
use laminar_raft::{CoordinatorParts, RaftCoordinator, RaftCoordinatorConfig, SoleNetwork, TokioRuntime};

use crate::support::{open, open_with, orders, read_ids, rows};

/// The metadata group of a folder that no node has open.
async fn metadata_of(folder: &Path) -> RaftCoordinator<TokioRuntime> {
    let committer =
        Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
    let parts =
        CoordinatorParts { dir: folder.join("metadata"), node: NodeId(1), committer, clock: Arc::new(|| 1) };
    let metadata =
        RaftCoordinator::open(parts, RaftCoordinatorConfig::default(), SoleNetwork::default()).await.unwrap();
    metadata.wait_recovered(Duration::from_secs(10)).await.unwrap();
    metadata
}

/// The claim is in the metadata and the node died before the fence was in the data log: the next one carries it over, and
/// the owner before is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_the_claim_and_the_fence_leaves_the_fence_to_the_next_opening() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    let stream = opened.cluster.create_stream(orders(2)).await.unwrap();
    stream.append(&[rows(0..10)]).await.unwrap();
    let ids: Vec<PartitionId> =
        (0..2).map(|ordinal| PartitionId(stream.info().partition_id(ordinal).unwrap())).collect();
    opened.connector.close().await.unwrap();

    let metadata = metadata_of(folder.path()).await;
    let taker = NodeId(NodeId::WORKER_MIN.0 + 77);
    let owners: Vec<OwnerEpoch> = metadata.read_local(|metadata| {
        ids.iter().map(|id| metadata.partition_ownership(*id).unwrap().owner_epoch()).collect()
    });
    let changes = ids.iter().zip(&owners).map(|(id, owner)| MetadataChange::AcquirePartition {
        partition_id: *id,
        node_id: taker,
        epoch: owner.epoch.next().unwrap(),
        expected: *owner,
    });
    let claim = MetadataLogEntry::batch(1, RequestId(4711), changes.collect());
    assert!(metadata.write(claim).await.unwrap().1.is_applied());
    metadata.shutdown().await.unwrap();

    let again = open(folder.path());
    let stream = again.cluster.stream("/shop/orders").await.unwrap();
    let refused = stream.append(&[rows(10..20)]).await.unwrap_err();
    assert_eq!(refused.class, ErrorClass::NotOwned, "{refused}");
    assert_eq!(refused.number("owner"), Some(taker.0));
    let status = again.cluster.status(true, None).await.unwrap();
    for (partition, before) in status.partitions.iter().zip(&owners) {
        assert_eq!((partition.owner, partition.epoch), (taker.0, before.epoch.get() + 1));
    }
    assert_eq!(read_ids(&stream).await, (0..10).collect::<Vec<_>>());
    again.connector.close().await.unwrap();
}

/// The entry was synced in the Raft log and the partition's own log lost everything: it is redone from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_only_the_raft_log_has_are_redone_into_the_partitions_log() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    let stream = opened.cluster.create_stream(orders(2)).await.unwrap();
    stream.append(&[rows(0..100)]).await.unwrap();
    opened.connector.close().await.unwrap();
    let partitions = folder.path().join("data/partitions");
    assert!(partitions.is_dir());
    std::fs::remove_dir_all(&partitions).unwrap();

    let again = open(folder.path());
    let stream = again.cluster.stream("/shop/orders").await.unwrap();
    assert_eq!(read_ids(&stream).await, (0..100).collect::<Vec<_>>());
    stream.append(&[rows(100..110)]).await.unwrap();
    assert_eq!(read_ids(&stream).await, (0..110).collect::<Vec<_>>());
    again.connector.close().await.unwrap();
}

/// Appends fail while the disk is full, nothing acknowledged is lost, and they go on by themselves when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_go_on_when_a_full_disk_has_room_again() {
    for fault in ["full", "writes", "torn", "syncs"] {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("faults");
        let path = folder.path().join("data");
        let config = NodeConfig { disk_faults: Some(control.clone()), ..NodeConfig::default() };
        let opened = open_with(&path, config, Arc::new(NoMachines));
        let stream = opened.cluster.create_stream(orders(2)).await.unwrap();
        stream.append(&[rows(0..10)]).await.unwrap();

        std::fs::write(&control, fault).unwrap();
        // It takes effect when the node looks next.
        let short = stream.with_timeout(Duration::from_millis(500));
        let mut acknowledged = 10;
        let failure = loop {
            match short.append(&[rows(acknowledged..acknowledged + 10)]).await {
                Ok(_) => acknowledged += 10,
                Err(failure) => break failure,
            }
        };
        assert!(failure.class.is_retryable(), "{fault}: {failure}");
        let unknown = acknowledged..acknowledged + 10;
        let known = |ids: Vec<i64>| ids.into_iter().filter(|id| !unknown.contains(id)).collect::<Vec<_>>();
        std::fs::remove_file(&control).unwrap();
        let after = unknown.end..unknown.end + 10;
        stream.append(&[rows(after.clone())]).await.unwrap();
        let ids = read_ids(&stream).await;
        // Unknown is all or nothing.
        let landed = ids.iter().filter(|id| unknown.contains(id)).count();
        assert!([0, 10].contains(&landed), "{fault}: {ids:?}");
        assert_eq!(known(ids), (0..acknowledged).chain(after.clone()).collect::<Vec<_>>(), "{fault}");
        // A group that had nothing to write since still has the log that failed, and says so when it ends. What was
        // acknowledged is there all the same.
        drop(opened.connector.close().await);
        let again = open(&path);
        let stream = again.cluster.stream("/shop/orders").await.unwrap();
        let ids = read_ids(&stream).await;
        assert_eq!(known(ids), (0..acknowledged).chain(after).collect::<Vec<_>>(), "{fault}");
        again.connector.close().await.unwrap();
    }
}

/// LOG-3: the partition's own log lost rows in a fault and has them again only after its repair. Until then nothing takes
/// its end for the partition's: offsets, cuts and reads at an index tell all acknowledged rows, or that they cannot now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_being_repaired_is_not_taken_for_the_whole_partition() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("faults");
    let config = NodeConfig { disk_faults: Some(control.clone()), ..NodeConfig::default() };
    let opened = open_with(&folder.path().join("node"), config, Arc::new(NoMachines));
    let stream = opened.cluster.create_stream(orders(1)).await.unwrap();
    let short = stream.with_timeout(Duration::from_millis(300));
    // Where the partition ended with each append that was acknowledged, by global index.
    let mut ends: Vec<(u64, u64)> = Vec::new();
    let failure = loop {
        let next = ends.last().map_or(0, |(_, end)| *end as i64);
        match short.append(&[rows(next..next + 10)]).await {
            Ok(appended) => ends.push((appended.global_index, next as u64 + 10)),
            Err(failure) => break failure,
        }
        if ends.len() == 10 {
            // The Raft log goes on.
            std::fs::write(&control, "writes partitions").unwrap();
        }
        assert!(ends.len() < 100_000, "the partition's log does not fail");
    };
    assert!(failure.class.is_retryable() && !failure.outcome_unknown, "{failure}");
    let [.., (at, end), _] = ends[..] else { unreachable!("there are more than ten") };
    let last = ends.last().unwrap().1;
    let right = |told: Result<u64, Failure>, expected: u64| match told {
        Ok(told) => assert_eq!(told, expected),
        Err(failure) => assert_eq!(failure.class, ErrorClass::Unavailable, "{failure}"),
    };
    // The repair tries again and again: at moments the log has everything, until the disk fails it.
    for _ in 0..20 {
        right(short.offsets_at(at).await.map(|told| told[&0].end), end);
        right(short.offsets_at_time(u64::MAX).await.map(|told| told[&0]), last);
        right(read_at(&short, at).await, end);
    }

    std::fs::remove_file(&control).unwrap();
    assert_eq!(stream.offsets_at(at).await.unwrap()[&0].end, end);
    assert_eq!(read_at(&stream, at).await.unwrap(), end);
    opened.connector.close().await.unwrap();
}

/// How many rows a read at an index has.
async fn read_at(stream: &StreamHandle, at: u64) -> Result<u64, Failure> {
    let mut reader = stream.read(ReadOptions { at: Some(at), ..ReadOptions::default() }).await?;
    let mut rows = 0;
    while let Some(batch) = reader.next().await? {
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}
