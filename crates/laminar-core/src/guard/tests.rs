use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::error::{EpochError, InvalidError};
use crate::ids::{Epoch, NodeId, OwnerEpoch, PartitionId, RequestId};
use crate::metadata::{DeltaMetadata, MetadataChange, MetadataLogEntry};

const P: PartitionId = PartitionId(42);
const ME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(3);

fn epoch(value: u64) -> Epoch {
    Epoch::new(value).unwrap()
}

fn guard(held: u64) -> PartitionGuard {
    PartitionGuard::new(P, epoch(held), ME).unwrap()
}

fn apply(metadata: &mut DeltaMetadata, change: MetadataChange) {
    let response = metadata.apply(&MetadataLogEntry::one(0, RequestId::NONE, change));
    assert!(response.is_applied(), "{response:?}");
}

fn owned_by(owner: NodeId, held: u64) -> DeltaMetadata {
    metadata_of(&[(P, owner, held)])
}

fn metadata_of(owners: &[(PartitionId, NodeId, u64)]) -> DeltaMetadata {
    let mut metadata = DeltaMetadata::new();
    for &(partition_id, node_id, held) in owners {
        let change =
            MetadataChange::AssignPartition { partition_id, node_id, epoch: epoch(held), expected: None };
        apply(&mut metadata, change);
    }
    metadata
}

fn stale(current: u64, current_owner: Option<NodeId>) -> EpochError {
    EpochError::StaleEpoch {
        partition: P,
        node: ME,
        local_epoch: epoch(7),
        current_epoch: epoch(current),
        current_owner,
    }
}

#[test]
fn new_guard_is_fresh_and_tells_what_it_was_made_of() {
    let guard = guard(7);
    assert_eq!(guard.check(), Ok(()));
    assert_eq!((guard.partition_id(), guard.epoch(), guard.node_id()), (P, epoch(7), ME));
    assert_eq!(
        format!("{guard:?}"),
        "PartitionGuard { partition_id: 42, epoch: 7, node_id: 1, fresh: true }"
    );
}

#[test]
fn guard_of_nobody_is_refused() {
    assert_eq!(
        PartitionGuard::new(P, epoch(1), NodeId::UNASSIGNED).err(),
        Some(InvalidError::NodeUnassigned)
    );
}

#[test]
fn every_epoch_up_to_the_last_can_be_guarded() {
    let guard = PartitionGuard::new(P, epoch(u64::MAX), ME).unwrap();
    assert_eq!(guard.check(), Ok(()));
    assert!(!guard.refresh(&DeltaMetadata::new()));
    assert_eq!(guard.check(), Err(EpochError::UnknownPartition { partition: P }));
}

#[test]
fn validation_passes_when_owner_and_epoch_match() {
    assert_eq!(guard(7).validate(&owned_by(ME, 7)), Ok(()));
}

#[test]
fn stale_guard_is_refused_after_reassignment_and_the_check_remembers() {
    let guard = guard(7);
    assert_eq!(guard.validate(&owned_by(OTHER, 9)), Err(stale(9, Some(OTHER))));
    assert_eq!(guard.check(), Err(stale(9, None)));
}

#[test]
fn later_epoch_of_the_same_node_needs_a_new_guard() {
    let guard = guard(7);
    assert!(!guard.refresh(&owned_by(ME, 8)));
    assert_eq!(guard.check(), Err(stale(8, None)));
}

#[test]
fn vanished_partition_poisons_the_guard() {
    let guard = guard(7);
    let unknown = Err(EpochError::UnknownPartition { partition: P });
    assert_eq!(guard.validate(&DeltaMetadata::new()), unknown);
    assert_eq!(guard.check(), unknown);
    assert_eq!(guard.validate(&owned_by(ME, 7)), unknown, "EPOCH-3: an old replica's answer revives nothing");
    assert!(!guard.refresh(&owned_by(OTHER, 9)));
    assert_eq!(guard.check(), unknown, "poisoned is final");
}

#[test]
fn other_owner_at_the_same_epoch_poisons_the_guard() {
    let guard = guard(7);
    let not_owned = |owner| Err(EpochError::NotOwned { partition: P, node: ME, owner });
    assert_eq!(guard.validate(&owned_by(OTHER, 7)), not_owned(Some(OTHER)));
    assert_eq!(guard.check(), not_owned(None));
    assert!(!guard.refresh(&owned_by(ME, 7)), "EPOCH-3");
}

#[test]
fn unassigned_partition_is_not_owned() {
    let owner = Some(NodeId::UNASSIGNED);
    assert_eq!(
        guard(7).validate(&owned_by(NodeId::UNASSIGNED, 7)),
        Err(EpochError::NotOwned { partition: P, node: ME, owner })
    );
}

#[test]
fn metadata_that_is_behind_neither_confirms_nor_ends_the_guard() {
    let guard = guard(7);
    let behind = owned_by(OTHER, 6);
    assert!(guard.validate(&behind).is_err());
    assert!(guard.refresh(&behind));
    assert_eq!(guard.check(), Ok(()));
}

#[test]
fn older_answer_that_arrives_late_changes_nothing() {
    let guard = guard(7);
    assert!(!guard.refresh(&owned_by(OTHER, 9)));
    assert!(!guard.refresh(&owned_by(OTHER, 8)));
    assert_eq!(guard.check(), Err(stale(9, None)));
    assert!(!guard.refresh(&DeltaMetadata::new()));
    assert_eq!(
        guard.check(),
        Err(stale(9, None)),
        "what is stale stays stale, with the error that says more"
    );
}

#[test]
fn refresh_tells_whether_the_node_is_still_the_owner() {
    assert!(guard(7).refresh(&owned_by(ME, 7)));
    assert!(!guard(7).refresh(&owned_by(OTHER, 8)));
    assert!(!guard(7).refresh(&owned_by(OTHER, 7)));
    assert!(!guard(7).refresh(&DeltaMetadata::new()));
}

#[test]
fn deregistering_the_owner_fails_its_guards() {
    let mut metadata = owned_by(ME, 7);
    let guard = guard(7);
    apply(&mut metadata, MetadataChange::DeregisterNode { node_id: ME, expected: None });
    assert_eq!(guard.validate(&metadata), Err(stale(8, Some(NodeId::UNASSIGNED))));
    assert_eq!(guard.check(), Err(stale(8, None)));
}

#[test]
fn conditional_put_names_the_ownership() {
    let put = guard(7).conditional_put_precondition();
    let pairs = [("x-laminar-partition", "42"), ("x-laminar-epoch", "7"), ("x-laminar-node", "1")];
    assert_eq!(put.as_metadata(), pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert_eq!(put.s3_condition(), "epoch-7-partition-42");
}

fn set_of(guards: &[(u32, u64)]) -> PartitionGuardSet {
    let set = PartitionGuardSet::new(ME).unwrap();
    for &(partition, held) in guards {
        set.insert(PartitionGuard::new(PartitionId(partition), epoch(held), ME).unwrap()).unwrap();
    }
    set
}

fn not_owned(partition: u32) -> Result<(), EpochError> {
    Err(EpochError::NotOwned { partition: PartitionId(partition), node: ME, owner: None })
}

#[test]
fn sparse_ids_are_found_and_their_neighbours_are_not() {
    let set = set_of(&[(0, 1), (7, 1), (4_000_000_000, 1), (u32::MAX, 1)]);
    for partition in [0, 7, 4_000_000_000, u32::MAX] {
        assert_eq!(set.check(PartitionId(partition)), Ok(()));
    }
    for partition in [1, 6, 8, 63, 64, 4_000_000_001, u32::MAX - 1] {
        assert_eq!(set.check(PartitionId(partition)), not_owned(partition));
    }
    assert_eq!(set.partition_ids(), [0, 7, 4_000_000_000, u32::MAX].map(PartitionId));
    assert_eq!((set.len(), set.is_empty()), (4, false));
}

#[test]
fn empty_set_owns_nothing() {
    let set = set_of(&[]);
    assert_eq!((set.len(), set.is_empty(), set.node_id()), (0, true, ME));
    assert_eq!(set.check(P), not_owned(42));
    assert_eq!(set.remove(P).map(|_| ()), None);
    assert_eq!(set.refresh_all(&DeltaMetadata::new()), []);
    assert_eq!(PartitionGuardSet::new(NodeId::UNASSIGNED).err(), Some(InvalidError::NodeUnassigned));
}

#[test]
fn guard_of_another_node_is_refused_and_nothing_changes() {
    let set = set_of(&[(42, 7)]);
    let foreign = PartitionGuard::new(P, epoch(9), OTHER).unwrap();
    assert_eq!(
        set.insert(foreign).err(),
        Some(InvalidError::GuardOfOtherNode { partition: P, guard_node: OTHER, set_node: ME })
    );
    assert_eq!(set.get(P).map(|guard| guard.epoch()), Some(epoch(7)));
}

#[test]
fn removed_guard_fails_the_check_and_comes_back_as_it_was() {
    let set = set_of(&[(42, 7)]);
    set.refresh_all(&owned_by(OTHER, 9));
    let removed = set.remove(P).unwrap();
    assert_eq!(removed.check(), Err(stale(9, None)));
    assert_eq!(set.check(P), not_owned(42));
    assert_eq!((set.len(), set.partition_ids()), (0, vec![]));
}

#[test]
fn insert_replaces_and_gives_back_the_older_guard() {
    let set = set_of(&[(42, 7)]);
    set.refresh_all(&owned_by(ME, 8));
    let replaced = set.insert(guard(8)).unwrap().unwrap();
    assert_eq!((replaced.epoch(), replaced.check().is_ok()), (epoch(7), false));
    assert_eq!((set.check(P), set.len()), (Ok(()), 1));
}

#[test]
fn guard_of_an_epoch_the_set_knows_to_be_over_is_stale_from_the_start() {
    let set = set_of(&[(42, 7)]);
    set.refresh_all(&owned_by(OTHER, 9));
    set.remove(P);
    set.insert(guard(7)).unwrap();
    assert_eq!(set.check(P), Err(stale(9, None)));
}

#[test]
fn what_a_set_has_heard_can_be_taken_over_by_another() {
    let set = set_of(&[(1, 1), (42, 7), (4_000_000_000, 2)]);
    set.refresh_all(&metadata_of(&[
        (PartitionId(1), ME, 1),
        (P, OTHER, 9),
        (PartitionId(4_000_000_000), ME, 2),
    ]));
    set.remove(P);
    assert_eq!(set.epochs_seen(), [(P, epoch(9)), (PartitionId(4_000_000_000), epoch(2))]);
    let other = set_of(&[]);
    for (partition, seen) in set.epochs_seen() {
        other.remember(partition, seen);
    }
    other.insert(guard(7)).unwrap();
    assert_eq!(other.check(P), Err(stale(9, None)));
}

#[test]
fn poisoned_and_stale_guards_stay_so_when_inserted() {
    let (lost, gone, late) = (guard(7), guard(7), guard(7));
    lost.refresh(&owned_by(OTHER, 7));
    gone.refresh(&DeltaMetadata::new());
    late.refresh(&owned_by(OTHER, 8));
    for ended in [lost, gone, late] {
        let error = ended.check();
        let set = set_of(&[]);
        set.insert(ended.clone()).unwrap();
        assert_eq!((set.check(P), set.len(), set.partition_ids()), (error.clone(), 1, vec![P]));
        assert_eq!(set.get(P).unwrap().check(), error);
    }
}

#[test]
fn check_many_returns_exactly_what_fails_in_the_order_given() {
    let set = set_of(&[(0, 1), (1, 1), (70, 1), (42, 7), (4_000_000_000, 1)]);
    set.validate_all(&metadata_of(&[
        (PartitionId(0), ME, 1),
        (PartitionId(1), OTHER, 2),
        (PartitionId(70), ME, 1),
        (P, ME, 7),
    ]));
    let asked = [4_000_000_000, 70, 1, 0, 5, 42, 1, 70].map(PartitionId);
    assert_eq!(set.check_many(asked), [4_000_000_000, 1, 5, 1].map(PartitionId));
    assert_eq!(set.check_many([]), []);
}

#[test]
fn validate_all_names_each_reason_and_spares_the_valid() {
    let set = set_of(&[(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]);
    let metadata = metadata_of(&[
        (PartitionId(1), ME, 5),
        (PartitionId(2), OTHER, 6),
        (PartitionId(3), OTHER, 5),
        (PartitionId(5), OTHER, 4),
        (PartitionId(6), ME, 1),
    ]);
    let partition = PartitionId;
    let not_owned =
        |id, owner| EpochError::NotOwned { partition: partition(id), node: ME, owner: Some(owner) };
    let stale_2 = EpochError::StaleEpoch {
        partition: partition(2),
        node: ME,
        local_epoch: epoch(5),
        current_epoch: epoch(6),
        current_owner: Some(OTHER),
    };
    let gone_4 = EpochError::UnknownPartition { partition: partition(4) };
    let expected = vec![
        (partition(2), stale_2),
        (partition(3), not_owned(3, OTHER)),
        (partition(4), gone_4),
        (partition(5), not_owned(5, OTHER)),
    ];
    assert_eq!(set.validate_all(&metadata), expected);
    assert_eq!(set.check_many((1..=5).map(PartitionId)), [2, 3, 4].map(PartitionId), "5 is only unconfirmed");
}

#[test]
fn refresh_all_returns_every_partition_that_is_no_longer_owned() {
    let set = set_of(&[(1, 5), (2, 5), (3, 5)]);
    let newer = metadata_of(&[(PartitionId(1), ME, 5), (PartitionId(2), OTHER, 6), (PartitionId(3), ME, 5)]);
    let older = metadata_of(&[(PartitionId(1), ME, 5), (PartitionId(2), ME, 5), (PartitionId(3), ME, 5)]);
    assert_eq!(set.refresh_all(&newer), [PartitionId(2)]);
    assert_eq!(set.refresh_all(&older), [PartitionId(2)], "EPOCH-3: an old replica's answer revives nothing");
    assert_eq!(set.validate_all(&older).len(), 1);
}

/// Epochs only grow over many transfers, and each transfer ends the guard before it (EPOCH-1, EPOCH-3).
#[test]
fn each_of_many_transfers_ends_the_guard_before_it() {
    let mut metadata = owned_by(NodeId(1), 1);
    let mut ended = Vec::new();
    for turn in 1..=100_u64 {
        let owner = OwnerEpoch { node_id: NodeId(turn), epoch: epoch(turn) };
        let guard = PartitionGuard::new(P, owner.epoch, owner.node_id).unwrap();
        assert_eq!(guard.validate(&metadata), Ok(()));
        let change = MetadataChange::AcquirePartition {
            partition_id: P,
            node_id: NodeId(turn + 1),
            epoch: epoch(turn + 1),
            expected: owner,
        };
        apply(&mut metadata, change);
        ended.push(guard);
        assert!(ended.iter().all(|guard| !guard.refresh(&metadata)));
    }
}

/// Two nodes that both believe they own a partition: the metadata confirms only one of them.
#[test]
fn of_two_claimants_only_one_is_confirmed() {
    let metadata = owned_by(OTHER, 7);
    let mine = guard(7);
    let theirs = PartitionGuard::new(P, epoch(7), OTHER).unwrap();
    assert!(theirs.validate(&metadata).is_ok());
    assert!(mine.validate(&metadata).is_err());
}

/// Aim: readers go on undisturbed while a writer inserts, removes and refreshes flat out.
/// Method: partition 0 is always owned and partition 1 never; a checker thread must see exactly that, however the
/// neighbours in their page change.
#[test]
fn checks_go_on_while_another_thread_inserts_removes_and_refreshes() {
    let set = Arc::new(set_of(&[(0, 1)]));
    let stop = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (set, stop) = (Arc::clone(&set), Arc::clone(&stop));
        move || {
            let mut checks = 0_u64;
            while !stop.load(Ordering::Relaxed) || checks == 0 {
                assert_eq!(set.check(PartitionId(0)), Ok(()));
                assert_eq!(set.check(PartitionId(1)), not_owned(1));
                assert_eq!(set.check_many([PartitionId(0), PartitionId(1)]), [PartitionId(1)]);
                checks += 1;
            }
        }
    });
    let metadata = metadata_of(&[(PartitionId(0), ME, 1), (PartitionId(2), OTHER, 2)]);
    for round in 0..20_000_u32 {
        let neighbour = PartitionId(2 + round % 100 * 50_000);
        set.insert(PartitionGuard::new(neighbour, epoch(1), ME).unwrap()).unwrap();
        set.refresh_all(&metadata);
        set.remove(neighbour);
    }
    stop.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    assert_eq!(set.partition_ids(), [PartitionId(0)]);
}
