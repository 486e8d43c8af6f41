//! Metadata groups on the simulated runtime: leaders die, disks fail, nodes lag.

use std::time::Duration;

use bytes::Bytes;
use laminar_core::error::ErrorKind;
use laminar_core::ids::{Epoch, LogIndex, NodeId, PartitionId, RequestId};
use laminar_core::metadata::{DeltaMetadata, MetadataLogEntry, Rejection};
use laminar_log::entry::{Append, Change, Entry, MachineKind, PartitionRecord, Payload, Record};
use laminar_log::verdict::Verdict;
use laminar_raft::{CoordinationError, RaftCoordinator, ReplicaPhase};
use openraft::AsyncRuntime;
use openraft_rt_sim::SimRuntime;

use crate::support::{Coordinators, assign, claim, nodes, owner, simulate};

type Group = Coordinators<SimRuntime>;

/// Creates a partition owned by node 1 at epoch 1.
async fn create(node: &RaftCoordinator<SimRuntime>, partition: u32) -> LogIndex {
    let request = RequestId(1 << 64 | u128::from(partition));
    let (index, response) = node.submit(request, assign(partition, None, owner(1, 1))).await.unwrap();
    assert!(response.is_applied(), "{response:?}");
    index
}

/// Takes a partition on, epoch by epoch, trying again with the same request id until there is an answer.
async fn transfer(group: &Group, partition: u32, epoch: u64) {
    let request = RequestId(u128::from(partition) << 32 | u128::from(epoch));
    let entry = MetadataLogEntry::one(0, request, claim(partition, owner(1, epoch), 1));
    loop {
        let leader = group.leader().await;
        match leader.write_within(entry.clone(), Duration::from_millis(400)).await {
            Ok((_, response)) => {
                let response = response.settled();
                assert!(response.is_applied(), "OWN-2: a retry must not meet itself: {response:?}");
                return;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                SimRuntime::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

fn epoch_of(metadata: &DeltaMetadata, partition: u32) -> u64 {
    metadata.partition_epoch(PartitionId(partition)).unwrap().get()
}

#[test]
fn a_leader_is_killed_and_a_retry_with_the_same_request_id_applies_once() {
    let mut unknown = 0;
    for seed in 0..10 {
        unknown += SimRuntime::with_seed(seed).block_on(async move {
            let mut group = Group::start(3, seed).await;
            group.router.delay(Duration::from_micros(50)..Duration::from_millis(3));
            let mut unknown = 0;
            create(&group.leader().await, 0).await;
            for epoch in 1..=8 {
                let leader = group.leader().await;
                let node = leader.node().0;
                let request = RequestId(u128::from(epoch));
                let entry = MetadataLogEntry::one(0, request, claim(0, owner(1, epoch), 1));
                let (writer, proposed) = (leader.clone(), entry.clone());
                let limit = Duration::from_millis(200);
                let writing = SimRuntime::spawn(async move { writer.write_within(proposed, limit).await });
                // The leader dies somewhere on the way.
                SimRuntime::sleep(Duration::from_micros(group.router.draw(6000))).await;
                group.kill(node).await;
                let first = writing.await.unwrap();
                unknown += u32::from(matches!(&first, Err(error) if error.is_unknown()));
                loop {
                    let leader = group.leader().await;
                    match leader.write_within(entry.clone(), Duration::from_millis(400)).await {
                        Ok((_, response)) => {
                            assert!(response.clone().settled().is_applied(), "{response:?}");
                            let repeated =
                                response.rejection().map(Rejection::code) == Some("duplicate_request");
                            assert!(
                                repeated || first.is_err(),
                                "an answer that was given is not given again"
                            );
                            break;
                        }
                        Err(_) => SimRuntime::sleep(Duration::from_millis(10)).await,
                    }
                }
                group.restart(node).await;
            }
            let state = group.agreed().await;
            assert_eq!(epoch_of(&state, 0), 9, "each claim took effect once");
            group.stop().await;
            unknown
        });
    }
    assert!(unknown > 0, "no outcome was ever unknown");
}

#[test]
fn a_group_without_members_makes_callers_wait_and_then_says_so() {
    simulate(3, |seed| async move {
        let group = Group::start_without_members(1, seed).await;
        let node = group.node(1).clone();
        let refused = node.submit(RequestId(1), assign(0, None, owner(1, 1))).await.unwrap_err();
        assert!(matches!(refused, CoordinationError::NotInitialized { .. }), "{refused:?}");
        let refused = node.read_linearizable(|_| ()).await.unwrap_err();
        assert!(matches!(refused, CoordinationError::NotInitialized { .. }), "{refused:?}");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        // One that waits goes on when there are members.
        let waiting = node.clone();
        let writing = SimRuntime::spawn(async move { create(&waiting, 0).await });
        SimRuntime::sleep(Duration::from_millis(300)).await;
        node.initialize(nodes(&[1])).await.unwrap();
        writing.await.unwrap();
        let again = node.initialize(nodes(&[1])).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Invalid);
        group.stop().await;
    });
}

#[test]
fn a_follower_names_the_leader_and_reads_what_the_leader_says_it_must_have() {
    simulate(5, |seed| async move {
        let group = Group::start(3, seed).await;
        group.router.delay(Duration::from_micros(50)..Duration::from_millis(3));
        let leader = group.leader().await;
        create(&leader, 0).await;
        let follower = group.ids.iter().map(|id| group.node(*id)).find(|node| node.node() != leader.node());
        let follower = follower.unwrap();
        let known = || follower.current_leader().is_some().then_some(());
        group.wait_until("the follower knows the leader", known).await;
        match follower.submit(RequestId(2), claim(0, owner(1, 1), 2)).await {
            Err(CoordinationError::NotLeader { leader: Some(named), address }) => {
                assert_eq!((named, address), (leader.node(), Some(format!("node-{named}"))));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            follower.read_linearizable(|_| ()).await,
            Err(CoordinationError::NotLeader { leader: Some(_), .. })
        ));
        for epoch in 1..20 {
            transfer(&group, 0, epoch).await;
            let index = leader.read_index().await.unwrap();
            follower.wait_applied(index, Duration::from_secs(2)).await.unwrap();
            assert_eq!(follower.read_local(|metadata| epoch_of(metadata, 0)), epoch + 1);
            assert_eq!(leader.read_linearizable(|metadata| epoch_of(metadata, 0)).await.unwrap(), epoch + 1);
        }
        // A leader that nobody hears does not answer.
        group.router.isolate(leader.node().0, &group.ids);
        let refused = leader.read_linearizable(|_| ()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
        group.router.heal();
        group.agreed().await;
        group.stop().await;
    });
}

#[test]
fn a_node_that_lags_gets_a_snapshot_and_its_watches_are_told_everything() {
    simulate(5, |seed| async move {
        let mut group = Group::start(3, seed).await;
        create(&group.leader().await, 0).await;
        let leader = group.leader().await.node().0;
        let lagging = group.ids.iter().copied().find(|id| *id != leader).unwrap();
        let seen = group.agreed().await.last_applied_log();
        group.kill(lagging).await;
        for epoch in 1..120 {
            transfer(&group, 0, epoch).await;
        }
        let node = group.leader().await;
        let purged = || node.status().replica.purged.filter(|id| id.index > seen);
        group.wait_until("the log that it needs is gone", purged).await;
        group.restart(lagging).await;
        let mut watch = group.node(lagging).watch(seen);
        let event = watch.next().await.unwrap();
        assert!(event.whole || event.index < LogIndex(40), "{event:?}");
        let state = group.agreed().await;
        assert_eq!(epoch_of(&state, 0), 120);
        transfer(&group, 0, 120).await;
        let mut last = event;
        while last.changes != [(PartitionId(0), Some(owner(1, 121)))] {
            last = watch.next().await.unwrap();
        }
        group.stop().await;
    });
}

#[test]
fn a_disk_that_fails_stops_writes_and_nothing_is_lost_or_goes_back() {
    simulate(10, |seed| async move {
        let mut group = Group::start(1, seed).await;
        create(&group.leader().await, 0).await;
        let mut epoch = 1;
        for _ in 0..3 {
            for _ in 0..20 {
                transfer(&group, 0, epoch).await;
                epoch += 1;
            }
            let node = group.node(1).clone();
            group.break_folder(1, "raft");
            let failed = node.write_within(
                MetadataLogEntry::one(0, RequestId(u128::from(epoch)), claim(0, owner(1, epoch), 1)),
                Duration::from_millis(300),
            );
            assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::Unavailable);
            let down = || (node.status().replica.phase == ReplicaPhase::Rebuilding).then_some(());
            group.wait_until("the group has ended", down).await;
            assert_eq!(node.read_local(|metadata| epoch_of(metadata, 0)), epoch, "local reads go on");
            assert!(node.status().last_fault.is_some());
            group.disks[&1].heal();
            // The claim that failed may have taken effect; the same request settles it.
            transfer(&group, 0, epoch).await;
            epoch += 1;
        }
        let before = group.node(1).read_linearizable(DeltaMetadata::snapshot).await.unwrap();
        group.kill(1).await;
        group.restart(1).await;
        let after = group.node(1).read_linearizable(DeltaMetadata::snapshot).await.unwrap();
        assert!(before == after, "LOG-3");
        group.stop().await;
    });
}

#[test]
fn a_snapshot_that_fails_keeps_the_one_before_shows_and_is_tried_again() {
    simulate(5, |seed| async move {
        let mut group = Group::start(1, seed).await;
        let node = group.leader().await;
        create(&node, 0).await;
        let first = node.snapshot().await.unwrap();
        transfer(&group, 0, 1).await;
        group.break_folder(1, "snapshots");
        let failed = node.snapshot().await.unwrap_err();
        assert!(matches!(failed, CoordinationError::Snapshot { fault: Some(_), .. }), "{failed:?}");
        let status = node.status();
        assert!(status.replica.snapshot_failures > 0 && status.last_fault.is_some(), "{status:?}");
        assert_eq!(status.replica.snapshot.map(|id| id.index), Some(first), "the one before stays");
        // Everything else goes on.
        transfer(&group, 0, 2).await;
        group.disks[&1].heal();
        assert!(node.snapshot().await.unwrap() > first);
        assert_eq!(node.status().last_fault, None);
        let before = node.read_local(DeltaMetadata::snapshot);
        group.kill(1).await;
        group.restart(1).await;
        let after = group.node(1).read_linearizable(DeltaMetadata::snapshot).await.unwrap();
        assert!(before == after);
        group.stop().await;
    });
}

fn raw(bytes: Vec<u8>) -> Entry {
    let payload = Payload::Inline(Bytes::from(bytes));
    let append = Append { rows: 1, create: Some(MachineKind::Custom(200)), payload };
    let record = PartitionRecord {
        partition: PartitionId(0),
        owner: NodeId::UNASSIGNED,
        epoch: Epoch::FIRST,
        change: Change::Append(append),
    };
    Entry { records: vec![Record::Partition(record)], ..Entry::default() }
}

#[test]
fn an_entry_that_cannot_be_read_changes_nothing_and_a_newer_one_stops_the_replica() {
    simulate(3, |seed| async move {
        let mut group = Group::start(1, seed).await;
        let node = group.leader().await;
        let verdict = node.replica().propose(raw(vec![0xFF, 0xFF])).await.unwrap();
        assert!(matches!(verdict, Verdict::Accepted(_)));
        create(&node, 0).await;
        let before = node.read_local(DeltaMetadata::snapshot);
        node.replica().propose(raw(Vec::new())).await.unwrap();
        assert!(node.read_local(DeltaMetadata::snapshot) == before);
        group.kill(1).await;
        group.restart(1).await;
        let node = group.leader().await;
        assert!(node.read_linearizable(DeltaMetadata::snapshot).await.unwrap() == before);
        // Version 2: other replicas may know what it says.
        let outcome = node.replica().propose(raw(vec![0x08, 0x02])).await;
        assert!(outcome.is_err_and(|error| error.is_unknown()));
        let paused = || node.status().paused;
        let reason = group.wait_until("it is paused", paused).await;
        assert!(reason.contains("version 2"), "{reason}");
        assert!(node.read_linearizable(|_| ()).await.is_err(), "it must not pass the entry");
        assert!(node.read_local(DeltaMetadata::snapshot) == before);
        group.stop().await;
    });
}
