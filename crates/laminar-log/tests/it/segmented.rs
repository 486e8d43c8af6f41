//! A replica, one behaviour at a time: workers, pauses, barriers, snapshots, installation, destruction.

use std::time::Duration;

use bytes::Bytes;
use laminar_core::error::ErrorKind;
use laminar_core::ids::{Epoch, LogIndex, NodeId, PartitionId};
use laminar_log::dispatcher::{AdmissionState, ClientId};
use laminar_log::entry::{
    Append, Change, Entry, Fence, MachineKind, PartitionRecord, Payload, Record, TrimTo,
};
use laminar_log::machine::{KvOperation, encode_operations};
use laminar_log::verdict::{Refusal, Verdict};
use laminar_log::{BarrierError, PartitionEvent, PartitionLogIndex};

use crate::support::machines::{FORGETFUL, Trouble};
use crate::support::replica::Replica;

const SECOND: Duration = Duration::from_secs(1);

fn record(partition: u32, epoch: u64, change: Change) -> Record {
    let epoch = Epoch::new(epoch).unwrap();
    Record::Partition(PartitionRecord { partition: PartitionId(partition), owner: NodeId(1), epoch, change })
}

/// An append that makes the partition: key-value from 4 on, and applied by a worker if the number is odd.
fn append(partition: u32, text: &str) -> Record {
    let create = if partition >= 4 { MachineKind::Kv } else { MachineKind::Log };
    append_with(partition, text, Some(create))
}

/// An append to a partition that is there.
fn appended(partition: u32, text: &str) -> Record {
    append_with(partition, text, None)
}

fn append_with(partition: u32, text: &str, create: Option<MachineKind>) -> Record {
    let kv = partition >= 4;
    let payload = if kv {
        let (key, value) = text.split_once('=').unwrap();
        let value = (!value.is_empty()).then(|| Bytes::copy_from_slice(value.as_bytes()));
        encode_operations(&[KvOperation { key: Bytes::copy_from_slice(key.as_bytes()), value }])
    } else {
        Bytes::copy_from_slice(text.as_bytes())
    };
    record(partition, 1, Change::Append(Append { rows: 1, create, payload: Payload::Inline(payload) }))
}

fn entry(records: Vec<Record>) -> Entry {
    Entry { time_ms: 1, records, ..Entry::default() }
}

/// Commits one entry and returns its index.
fn commit(replica: &mut Replica, records: Vec<Record>) -> u64 {
    replica.propose(&entry(records));
    replica.commit();
    replica.last()
}

fn answered(replica: &Replica, index: u64) -> bool {
    replica.replies.lock().unwrap().contains_key(&index)
}

fn barrier(replica: &Replica, partitions: &[u32], index: u64, timeout: Duration) -> Result<(), BarrierError> {
    let machine = replica.machine().clone();
    let partitions: Vec<PartitionId> = partitions.iter().copied().map(PartitionId).collect();
    replica
        .runtime
        .block_on(async move { machine.barrier(ClientId(1), &partitions, LogIndex(index), timeout).await })
}

fn get(replica: &Replica, partition: u32, key: &'static str) -> Option<Bytes> {
    let machine = replica.machine().clone();
    let look = async move { machine.with_machine(PartitionId(partition), |kv| kv.get(key.as_bytes())).await };
    replica.runtime.block_on(look).unwrap()
}

#[test]
fn a_reply_comes_when_every_partition_of_the_entry_has_applied_it() {
    let mut replica = Replica::new(1);
    commit(&mut replica, vec![append(0, "a"), append(1, "b"), append(3, "c")]);
    replica.control.set(PartitionId(3), Some(Trouble::Frozen));
    replica.run_for(SECOND);
    let index = commit(&mut replica, vec![append(0, "d"), append(1, "e"), append(3, "f")]);
    replica.run_for(SECOND);
    assert!(!answered(&replica, index), "partition 3 has not applied it");
    replica.control.clear();
    replica.run_for(SECOND);
    let Some(Verdict::Accepted(outcome)) = replica.replies.lock().unwrap().get(&index).cloned() else {
        panic!("it is answered now")
    };
    let places: Vec<(u32, u64, u64)> = outcome
        .placed
        .iter()
        .map(|placed| (placed.partition.0, placed.index.0, placed.first_offset))
        .collect();
    assert_eq!(places, [(0, 2, 1), (1, 2, 1), (3, 2, 1)]);
    replica.settle();
}

#[test]
fn a_frozen_partition_delays_no_other() {
    let mut replica = Replica::new(2);
    commit(&mut replica, vec![append(1, "a"), append(3, "b"), append(5, "k=v")]);
    replica.run_for(SECOND);
    replica.control.set(PartitionId(3), Some(Trouble::Frozen));
    let stuck = commit(&mut replica, vec![append(3, "stuck")]);
    for round in 0..100 {
        let index = commit(&mut replica, vec![append(1, "goes on"), append(5, &format!("k={round}"))]);
        replica.run_for(Duration::from_millis(1));
        assert!(answered(&replica, index));
    }
    assert!(!answered(&replica, stuck));
    assert_eq!(get(&replica, 5, "k").unwrap(), "99");
    // Admission of the one that stands is closed by itself, and opens by itself.
    replica.run_for(60 * SECOND);
    let frozen = replica.dispatcher().view(PartitionId(3)).state;
    assert_eq!(frozen, AdmissionState::Frozen);
    assert_eq!(replica.dispatcher().view(PartitionId(1)).state, AdmissionState::Open);
    assert!(replica.dispatcher().admit(&entry(vec![append(3, "more")])).is_err());
    replica.control.clear();
    replica.run_for(SECOND);
    assert!(answered(&replica, stuck));
    assert!(replica.dispatcher().admit(&entry(vec![append(3, "more")])).is_ok());
    replica.settle();
}

#[test]
fn an_apply_that_fails_is_tried_five_times_and_then_the_partition_pauses() {
    for trouble in [Trouble::Fails(4), Trouble::Panics(4)] {
        let mut replica = Replica::new(3);
        replica.control.set(PartitionId(1), Some(trouble));
        let index = commit(&mut replica, vec![append(1, "a")]);
        replica.run_for(5 * SECOND);
        assert!(answered(&replica, index), "the fifth try succeeds");
        assert_eq!(replica.machine().take_events().0, []);
    }
    let mut replica = Replica::new(3);
    replica.control.set(PartitionId(1), Some(Trouble::Fails(5)));
    let index = commit(&mut replica, vec![append(1, "a")]);
    let other = commit(&mut replica, vec![append(3, "b")]);
    replica.run_for(5 * SECOND);
    assert!(!answered(&replica, index) && answered(&replica, other));
    let (events, _) = replica.machine().take_events();
    let (partition, reason) = (PartitionId(1), "the test said so".to_owned());
    assert_eq!(events, [PartitionEvent::Paused { partition, index: PartitionLogIndex(1), reason }]);
    assert_eq!(replica.dispatcher().view(partition).state, AdmissionState::Paused);
    assert!(replica.machine().resume(partition));
    replica.run_for(SECOND);
    assert!(answered(&replica, index));
    assert_eq!(replica.machine().take_events().0, [PartitionEvent::Resumed { partition }]);
    assert!(!replica.machine().resume(partition), "it is not paused");
    replica.settle();
}

#[test]
fn a_skip_record_takes_a_partition_past_what_it_cannot_apply() {
    let mut replica = Replica::new(4);
    commit(&mut replica, vec![append(4, "k=1"), append(5, "k=1")]);
    let bad = Payload::Inline(Bytes::from_static(b"no operations"));
    for partition in [4, 5] {
        let change = Change::Append(Append { rows: 1, create: None, payload: bad.clone() });
        commit(&mut replica, vec![record(partition, 1, change)]);
        let after = commit(&mut replica, vec![append(partition, "k=2")]);
        replica.run_for(10 * SECOND);
        assert!(!answered(&replica, after));
        let refused = commit(&mut replica, vec![record(partition, 1, Change::Skip(PartitionLogIndex(9)))]);
        assert!(matches!(
            replica.replies.lock().unwrap()[&refused],
            Verdict::Refused(Refusal::NothingToSkip { .. })
        ));
        commit(&mut replica, vec![record(partition, 1, Change::Skip(PartitionLogIndex(2)))]);
        replica.run_for(SECOND);
        assert!(answered(&replica, after));
        assert_eq!(get(&replica, partition, "k").unwrap(), "2");
    }
    replica.settle();
    // And again after a restart, when the record fails before the skip is seen.
    replica.crash(7);
    replica.settle();
    assert_eq!(get(&replica, 5, "k").unwrap(), "2");
}

#[test]
fn a_barrier_waits_for_the_log_and_for_its_partitions_only() {
    let mut replica = Replica::new(5);
    let first = commit(&mut replica, vec![append(1, "a"), append(3, "b")]);
    assert_eq!(barrier(&replica, &[1, 3], first, SECOND), Ok(()));
    replica.control.set(PartitionId(3), Some(Trouble::Frozen));
    let second = commit(&mut replica, vec![append(1, "c"), append(3, "d")]);
    assert_eq!(barrier(&replica, &[1], second, SECOND), Ok(()));
    assert_eq!(barrier(&replica, &[3], first, SECOND), Ok(()), "it has applied that");
    let error = barrier(&replica, &[1, 3], second, SECOND).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        matches!(&error, BarrierError::TimedOut { behind, .. } if behind == &[PartitionId(3)]),
        "{error}"
    );
    assert!(matches!(
        barrier(&replica, &[9], second, SECOND),
        Err(BarrierError::UnknownPartition(PartitionId(9)))
    ));
    // An idle partition is as far as the log is, and the log is not there yet.
    assert!(matches!(barrier(&replica, &[1], second + 5, SECOND), Err(BarrierError::TimedOut { .. })));
    replica.control.clear();
    assert_eq!(barrier(&replica, &[1, 3], second, SECOND), Ok(()));
    // Refused entries count too.
    let stale = commit(&mut replica, vec![record(1, 7, Change::Trim(TrimTo::End))]);
    assert_eq!(barrier(&replica, &[1, 3], stale, SECOND), Ok(()));
}

#[test]
fn a_snapshot_takes_every_partition_at_the_same_index_and_a_frozen_one_blocks_nothing() {
    let mut replica = Replica::new(6);
    commit(&mut replica, vec![append(1, "a"), append(4, "k=1"), append(5, "k=1")]);
    assert!(replica.snapshot(10 * SECOND));
    replica.control.set(PartitionId(5), Some(Trouble::Frozen));
    commit(&mut replica, vec![append(1, "b"), append(4, "k=2"), append(5, "k=2")]);
    let last = commit(&mut replica, vec![append(5, "j=3")]);
    assert!(replica.snapshot(10 * SECOND), "the frozen one enters with its last state");
    assert_eq!(replica.snapshot.unwrap().index.0, last);
    replica.purge();
    replica.run_for(SECOND);
    assert_eq!(replica.store().state().purged.unwrap().index.0, last);
    replica.crash(11);
    replica.settle();
    assert_eq!(get(&replica, 5, "k").unwrap(), "2");
    assert_eq!(get(&replica, 5, "j").unwrap(), "3");
}

#[test]
fn records_stay_below_a_snapshot_unless_the_machine_lets_them_go() {
    let mut replica = Replica::new(6);
    let created =
        [(6, MachineKind::Kv), (8, FORGETFUL)].map(|(id, kind)| record(id, 1, Change::Create(kind)));
    commit(&mut replica, created.into());
    for round in 0..20 {
        let value = format!("k={round}");
        commit(&mut replica, vec![appended(6, &value), appended(8, &value)]);
    }
    assert!(replica.snapshot(10 * SECOND));
    let first = |replica: &Replica, id| replica.machine().partition_log(PartitionId(id)).unwrap().first().0;
    assert_eq!((first(&replica, 6), first(&replica, 8)), (2, 21), "the creation has no rows; the last stays");
    commit(&mut replica, vec![record(6, 1, Change::Trim(TrimTo::Offset(15)))]);
    assert!(replica.snapshot(10 * SECOND));
    assert_eq!(first(&replica, 6), 17);
    replica.crash(12);
    replica.settle();
    for id in [6, 8] {
        assert_eq!(get(&replica, id, "k").unwrap(), "19");
    }
}

#[test]
fn an_empty_and_a_lagging_replica_take_over_a_snapshot() {
    let mut replica = Replica::new(7);
    for round in 0..50 {
        let value = format!("k{}={round}", round % 7);
        commit(&mut replica, vec![append(0, "x"), append(1, "y"), append(4, &value), append(5, &value)]);
    }
    commit(&mut replica, vec![record(0, 1, Change::Trim(TrimTo::Offset(20)))]);
    replica.run_for(SECOND);
    assert!(replica.snapshot(10 * SECOND));
    let behind = {
        let mut other = Replica::new(8);
        commit(&mut other, vec![append(2, "only here"), append(0, "x")]);
        other
    };
    for mut other in [Replica::new(9), behind] {
        let (log_id, _, mut pieces) = replica.machine().newest_snapshot().unwrap().unwrap();
        other.machine().install(log_id, &mut pieces).unwrap();
        assert_eq!(other.machine().verdict_bytes(), replica.machine().verdict_bytes(), "APPLY-2");
        assert_eq!(other.machine().partition_ids(), replica.machine().partition_ids());
        let compare = |other: &Replica| {
            for id in replica.machine().partition_ids() {
                let (ours, theirs) = (
                    other.machine().partition_log(id).unwrap(),
                    replica.machine().partition_log(id).unwrap(),
                );
                let (mut ours, mut theirs) = (ours.reader(ours.first()), theirs.reader(theirs.first()));
                while let Some(record) = theirs.next().unwrap() {
                    assert_eq!(ours.next().unwrap(), Some(record), "partition {id}");
                }
                assert_eq!(ours.next().unwrap(), None);
            }
            for key in ["k0", "k3", "k6"] {
                assert_eq!(get(other, 4, key), get(&replica, 4, key));
                assert_eq!(get(other, 5, key), get(&replica, 5, key));
            }
        };
        compare(&other);
        other.adopt(&replica);
        other.crash(3);
        compare(&other);
    }
}

#[test]
fn a_destroyed_partition_is_gone_with_its_files_and_refuses_what_comes_late() {
    let mut replica = Replica::new(10);
    commit(&mut replica, vec![append(1, "a"), append(2, "b")]);
    replica.run_for(2 * SECOND);
    let files = |replica: &Replica| {
        replica.fs.paths().iter().filter(|path| path.starts_with("/replica/partitions/00000001")).count()
    };
    assert!(files(&replica) > 0);
    replica.control.set(PartitionId(1), Some(Trouble::Frozen));
    let stuck = commit(&mut replica, vec![append(1, "stuck")]);
    commit(&mut replica, vec![record(1, 1, Change::Destroy)]);
    assert!(answered(&replica, stuck), "it was decided, and nobody will apply it");
    assert_eq!(files(&replica), 0);
    let late = commit(&mut replica, vec![append(1, "late")]);
    let refusal = replica.replies.lock().unwrap()[&late].clone();
    assert_eq!(refusal, Verdict::Refused(Refusal::Destroyed { partition: PartitionId(1) }));
    replica.control.clear();
    replica.settle();
    replica.crash(5);
    replica.settle();
    assert_eq!(files(&replica), 0);
}

#[test]
fn a_partition_log_that_fails_stops_only_itself_and_is_redone_when_the_fault_clears() {
    let mut replica = Replica::new(11);
    commit(&mut replica, vec![append(0, "a"), append(1, "b")]);
    replica.run_for(2 * SECOND);
    replica.break_partition_logs(1);
    for _ in 0..20 {
        let index = commit(&mut replica, vec![append(0, "c"), append(1, "d")]);
        replica.run_for(100 * Duration::from_millis(1));
        assert!(answered(&replica, index), "applying does not wait for the partition's own log");
    }
    let (events, _) = replica.machine().take_events();
    assert!(events.iter().any(|event| matches!(event, PartitionEvent::LogFailed { .. })), "{events:?}");
    assert!(!replica.snapshot(5 * SECOND), "purging would leave nothing to redo it from");
    replica.fs.heal();
    replica.run_for(10 * SECOND);
    let (events, _) = replica.machine().take_events();
    assert!(events.contains(&PartitionEvent::LogRepaired { partition: PartitionId(0) }), "{events:?}");
    replica.settle();
}

#[test]
fn after_a_fence_nothing_of_the_old_epoch_or_owner_lands() {
    let mut replica = Replica::new(12);
    commit(&mut replica, vec![append(0, "a")]);
    let fence = |epoch: u64, owner: u64| {
        Record::Partition(PartitionRecord {
            partition: PartitionId(0),
            owner: NodeId(owner),
            epoch: Epoch::new(epoch).unwrap(),
            change: Change::Fence(Fence { run: 1, metadata_index: 9 }),
        })
    };
    commit(&mut replica, vec![fence(2, 5)]);
    let refused = commit(&mut replica, vec![append(0, "zombie")]);
    let Verdict::Refused(error @ Refusal::StaleEpoch { .. }) =
        replica.replies.lock().unwrap()[&refused].clone()
    else {
        panic!("the old owner must be refused")
    };
    assert_eq!(
        error.to_string(),
        "partition 0: write refused, it came under epoch 1 of node 1 and epoch 2 of node 5 is current; refresh the guard"
    );
    // Carried over once more, it changes nothing.
    let again = commit(&mut replica, vec![fence(2, 5)]);
    assert!(matches!(replica.replies.lock().unwrap()[&again], Verdict::Accepted(_)));
    assert_eq!(replica.machine().status(PartitionId(0)).unwrap().highest, PartitionLogIndex(2));
    replica.settle();
}
