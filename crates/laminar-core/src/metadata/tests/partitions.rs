use super::*;

const P: PartitionId = PartitionId(7);

#[test]
fn an_assignment_that_expects_nothing_creates_the_ownership_record() {
    for first in [owner(3, 1), owner(3, 41), owner(u64::MAX, u64::MAX)] {
        let state = after([create(7, first)]);
        let ownership = state.partition_ownership(P).unwrap();
        assert_eq!(ownership.owner_epoch(), first);
        assert_eq!(ownership.assigned_at_ms, 10);
        assert_eq!(
            (state.partition_epoch(P), state.partition_owner(P)),
            (Some(first.epoch), Some(first.node_id))
        );
    }
}

#[test]
fn a_partition_is_not_created_twice() {
    let mut state = after([create(7, owner(3, 5))]);
    for first in [owner(3, 5), owner(4, 6)] {
        assert_eq!(
            rejected(&mut state, create(7, first)),
            Rejection::StaleEpoch { partition: P, expected: None, current: owner(3, 5) }
        );
    }
}

#[test]
fn a_partition_can_be_created_for_nobody_and_then_assigned() {
    let mut state = after([create(7, owner(0, 1))]);
    assert_eq!(state.partition_owner(P), Some(NodeId::UNASSIGNED));
    assert_eq!(
        apply(&mut state, assign(7, owner(0, 1), owner(3, 2))),
        MetadataResponse::Applied { minted: vec![] }
    );
}

#[test]
fn an_assignment_moves_the_partition_by_exactly_one_epoch() {
    let mut state = after([create(7, owner(3, 5))]);
    let stale = |next| Rejection::StaleEpoch { partition: P, expected: Some(next), current: owner(3, 5) };
    for next in [owner(4, 4), owner(4, 5)] {
        assert_eq!(rejected(&mut state, assign(7, owner(3, 5), next)), stale(next));
        assert_eq!(rejected(&mut state, acquire(7, owner(3, 5), next)), stale(next));
    }
    let skipped = |at| Rejection::EpochSkipped { partition: P, epoch: epoch(at), current: owner(3, 5) };
    for at in [7, u64::MAX] {
        assert_eq!(rejected(&mut state, assign(7, owner(3, 5), owner(4, at))), skipped(at));
        assert_eq!(rejected(&mut state, acquire(7, owner(3, 5), owner(4, at))), skipped(at));
    }
    assert!(apply(&mut state, assign(7, owner(3, 5), owner(4, 6))).is_applied());
    assert_eq!(state.partition_ownership(P).unwrap().owner_epoch(), owner(4, 6));
}

#[test]
fn a_change_that_expects_another_epoch_or_owner_is_rejected_with_what_is_current() {
    let mut state = after([create(7, owner(3, 5))]);
    for expected in [owner(3, 4), owner(3, 6), owner(2, 6)] {
        let stale = Rejection::StaleEpoch { partition: P, expected: Some(expected), current: owner(3, 5) };
        assert_eq!(rejected(&mut state, assign(7, expected, owner(4, 6))), stale);
        assert_eq!(rejected(&mut state, acquire(7, expected, owner(4, 6))), stale);
        assert_eq!(rejected(&mut state, release(7, expected)), stale);
        let epoch = expected.epoch.get();
        assert_eq!(rejected(&mut state, commit(7, expected, checkpoint(7, epoch, 1))), stale);
    }
    let expected = owner(2, 5);
    let not_owner = Rejection::NotOwner { partition: P, expected, current: owner(3, 5) };
    assert_eq!(rejected(&mut state, assign(7, expected, owner(2, 6))), not_owner);
    assert_eq!(rejected(&mut state, acquire(7, expected, owner(2, 6))), not_owner);
    assert_eq!(rejected(&mut state, release(7, expected)), not_owner);
    assert_eq!(rejected(&mut state, commit(7, expected, checkpoint(7, 5, 1))), not_owner);
}

#[test]
fn a_change_of_a_partition_that_is_not_there_is_rejected() {
    let mut state = after([create(8, owner(1, 1))]);
    let unknown = Rejection::UnknownPartition { partition: P };
    assert_eq!(rejected(&mut state, assign(7, owner(1, 1), owner(2, 2))), unknown);
    assert_eq!(rejected(&mut state, acquire(7, owner(1, 1), owner(2, 2))), unknown);
    assert_eq!(rejected(&mut state, release(7, owner(1, 1))), unknown);
    assert_eq!(rejected(&mut state, commit(7, owner(1, 1), checkpoint(7, 1, 1))), unknown);
}

#[test]
fn the_last_epoch_has_no_successor() {
    let last = owner(3, u64::MAX);
    let mut state = after([create(7, owner(3, u64::MAX - 1)), assign(7, owner(3, u64::MAX - 1), last)]);
    let exhausted = Rejection::EpochExhausted { partition: P };
    assert_eq!(rejected(&mut state, assign(7, last, last)), exhausted);
    assert_eq!(rejected(&mut state, acquire(7, last, owner(4, 1))), exhausted);
}

#[test]
fn a_partition_can_be_taken_from_its_owner_and_given_back() {
    let mut state = after([create(7, owner(3, 5)), assign(7, owner(3, 5), owner(0, 6))]);
    assert_eq!(state.partition_owner(P), Some(NodeId::UNASSIGNED));
    let nobody = Rejection::Invalid(InvalidChange::NodeUnassigned);
    assert_eq!(rejected(&mut state, acquire(7, owner(0, 6), owner(0, 7))), nobody);
    assert_eq!(rejected(&mut state, release(7, owner(0, 6))), nobody);
    assert_eq!(rejected(&mut state, commit(7, owner(0, 6), checkpoint(7, 6, 1))), nobody);
    assert!(apply(&mut state, acquire(7, owner(0, 6), owner(3, 7))).is_applied());
}

#[test]
fn a_release_is_kept_until_the_next_owner_acquires_the_partition() {
    let mut state = after([create(7, owner(3, 5)), release(7, owner(3, 5))]);
    let expected = ReleaseInfo {
        partition_id: P,
        node_id: NodeId(3),
        epoch: epoch(5),
        released_at_ms: 20,
        release: left_at(40),
    };
    assert_eq!(state.get_release_info(P, epoch(5)), Some(&expected));
    assert_eq!(state.get_release_info(P, epoch(4)), None);
    assert_eq!(state.get_release_info(P, epoch(6)), None);
    assert_eq!(state.partition_ownership(P).unwrap().owner_epoch(), owner(3, 5));

    assert!(apply(&mut state, acquire(7, owner(3, 5), owner(4, 6))).is_applied());
    assert_eq!(state.get_release_info(P, epoch(5)), None);
    assert!(state.pending_releases().is_empty());
    assert_eq!(state.partition_ownership(P).unwrap().owner_epoch(), owner(4, 6));
}

#[test]
fn an_assignment_drops_a_release_of_the_older_epoch() {
    for next in [owner(4, 6), owner(0, 6)] {
        let state = after([create(7, owner(3, 5)), release(7, owner(3, 5)), assign(7, owner(3, 5), next)]);
        assert!(state.pending_releases().is_empty());
    }
}

#[test]
fn a_partition_is_released_once_an_epoch() {
    let mut state = after([create(7, owner(3, 5)), release(7, owner(3, 5))]);
    assert_eq!(
        rejected(&mut state, release(7, owner(3, 5))),
        Rejection::AlreadyReleased { partition: P, current: owner(3, 5) }
    );
    assert!(apply(&mut state, acquire(7, owner(3, 5), owner(4, 6))).is_applied());
    assert!(apply(&mut state, release(7, owner(4, 6))).is_applied());
}

#[test]
fn an_acquisition_needs_no_release() {
    let state = after([create(7, owner(3, 5)), acquire(7, owner(3, 5), owner(4, 6))]);
    assert_eq!(state.partition_owner(P), Some(NodeId(4)));
}

#[test]
fn a_checkpoint_becomes_the_latest_only_if_it_is_newer() {
    let now = owner(3, 5);
    let mut state = after([create(7, now), commit(7, now, checkpoint(7, 5, 10))]);
    assert_eq!(state.latest_checkpoint(P), Some(&checkpoint(7, 5, 10)));
    for id in [9, 10] {
        let given = CheckpointMark { epoch: epoch(5), checkpoint_id: CheckpointId(id) };
        let latest = CheckpointMark { epoch: epoch(5), checkpoint_id: CheckpointId(10) };
        assert_eq!(
            rejected(&mut state, commit(7, now, checkpoint(7, 5, id))),
            Rejection::StaleCheckpoint { partition: P, given, latest }
        );
    }
    assert!(apply(&mut state, commit(7, now, checkpoint(7, 5, 11))).is_applied());
    // A later epoch is newer whatever the id.
    assert!(apply(&mut state, assign(7, now, owner(4, 6))).is_applied());
    assert!(apply(&mut state, commit(7, owner(4, 6), checkpoint(7, 6, 1))).is_applied());
    assert_eq!(state.latest_checkpoint(P), Some(&checkpoint(7, 6, 1)));
}

#[test]
fn a_checkpoint_of_another_partition_or_epoch_is_rejected() {
    let mut state = after([create(7, owner(3, 5))]);
    for (partition, at) in [(8, 5), (7, 4), (7, 6)] {
        let mismatch = InvalidChange::CheckpointMismatch {
            partition: P,
            epoch: epoch(5),
            checkpoint_partition: PartitionId(partition),
            checkpoint_epoch: epoch(at),
        };
        let given = commit(7, owner(3, 5), checkpoint(partition, at, 1));
        assert_eq!(rejected(&mut state, given), Rejection::Invalid(mismatch));
    }
}

#[test]
fn texts_and_offsets_beyond_their_bounds_are_rejected() {
    let now = owner(3, 5);
    let state = after([create(7, now)]);
    let try_commit = |change: &dyn Fn(&mut CheckpointRef)| {
        let mut given = checkpoint(7, 5, 1);
        change(&mut given);
        let mut trial = state.clone();
        apply(&mut trial, commit(7, now, given)).rejection().cloned()
    };
    let too = |bound, given| Some(Rejection::Invalid(InvalidChange::OutOfRange { bound, given }));
    assert_eq!(try_commit(&|c| c.storage_path = "x".repeat(1024)), None);
    assert_eq!(try_commit(&|c| c.storage_path = "x".repeat(1025)), too(Bound::StoragePathBytes, 1025));
    let offsets = |count| SourceOffsets::from([("s".to_owned(), (0..count).map(|p| (p, 0)).collect())]);
    assert_eq!(try_commit(&|c| c.source_offsets = offsets(10_000)), None);
    assert_eq!(try_commit(&|c| c.source_offsets = offsets(10_001)), too(Bound::SourceOffsets, 10_001));
    let empty = || (0..10_001).map(|source| (source.to_string(), BTreeMap::new())).collect();
    assert_eq!(try_commit(&|c| c.source_offsets = empty()), too(Bound::SourceOffsets, 10_001));
    let named = |bytes| SourceOffsets::from([("s".repeat(bytes), BTreeMap::new())]);
    assert_eq!(try_commit(&|c| c.source_offsets = named(1024)), None);
    assert_eq!(try_commit(&|c| c.source_offsets = named(1025)), too(Bound::SourceNameBytes, 1025));
}

#[test]
fn the_history_tells_every_step_and_forgets_the_oldest() {
    let state = after([
        create(7, owner(3, 5)),
        release(7, owner(3, 5)),
        acquire(7, owner(3, 5), owner(4, 6)),
        assign(7, owner(4, 6), owner(0, 7)),
        assign(7, owner(0, 7), owner(5, 8)),
    ]);
    let told: Vec<_> = state
        .history(P)
        .map(|e| (e.epoch.get(), e.previous_owner.0, e.owner.0, e.cause, e.time_ms, e.log_index.0))
        .collect();
    assert_eq!(
        told,
        [
            (5, 0, 3, OwnershipCause::Created, 10, 1),
            (5, 3, 3, OwnershipCause::Released, 20, 2),
            (6, 3, 4, OwnershipCause::Acquired, 30, 3),
            (7, 4, 0, OwnershipCause::Unassigned, 40, 4),
            (8, 0, 5, OwnershipCause::Assigned, 50, 5),
        ]
    );
    let mut state = after([create(7, owner(1, 1))]);
    for at in 1..=HISTORY_PER_PARTITION_MAX as u64 {
        assert!(apply(&mut state, assign(7, owner(at, at), owner(at + 1, at + 1))).is_applied());
    }
    let epochs: Vec<_> = state.history(P).map(|event| event.epoch.get()).collect();
    assert_eq!(epochs, (2..=17).collect::<Vec<_>>());
    assert_eq!(state.history(PartitionId(8)).count(), 0);
}

#[test]
fn the_partitions_of_a_node_come_in_order() {
    let state = after([
        create(9, owner(3, 1)),
        create(4_000_000_000, owner(3, 1)),
        create(0, owner(3, 1)),
        create(5, owner(4, 1)),
    ]);
    let ids = |ids: &[u32]| ids.iter().copied().map(PartitionId).collect::<Vec<_>>();
    assert_eq!(state.partitions_for_node(NodeId(3)), ids(&[0, 9, 4_000_000_000]));
    assert_eq!(state.partitions_for_node(NodeId(4)), ids(&[5]));
    assert_eq!(state.partitions_for_node(NodeId(5)), []);
}

#[test]
fn the_assigner_sees_unassigned_and_server_partitions_but_no_claimed_one() {
    let worker = NodeId::WORKER_MIN.0;
    let state = after([
        create(0, owner(1, 1)),
        create(1, owner(worker, 3)),
        create(2, owner(2, 1)),
        assign(2, owner(2, 1), owner(0, 2)),
        create(3, owner(worker - 1, 1)),
    ]);
    let seen = [(0, owner(1, 1)), (2, owner(0, 2)), (3, owner(worker - 1, 1))];
    let seen: BTreeMap<_, _> = seen.into_iter().map(|(id, owner)| (PartitionId(id), owner)).collect();
    assert_eq!(state.ownership(), seen);
}
