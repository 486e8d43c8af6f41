use super::*;

fn batch(state: &mut DeltaMetadata, changes: Vec<MetadataChange>) -> MetadataResponse {
    state.apply(&MetadataLogEntry::batch(500, RequestId::NONE, changes))
}

/// One of everything that can be undone, on a state where each has something to undo.
fn every_change() -> (DeltaMetadata, Vec<MetadataChange>) {
    let mut state = after([
        create_stream("/old", 4),
        create(50, owner(3, 1)),
        create(51, owner(3, 1)),
        register(Some(3), NodeRole::Server, None),
        release(50, owner(3, 1)),
        commit(50, owner(3, 1), checkpoint(50, 1, 1)),
        create_stream("/older", 1),
        drop_stream("/older"),
        bind("/old", 1, "ingest", None, "q"),
    ]);
    for at in 1..20 {
        assert!(apply(&mut state, assign(0, owner(at - 1, at), owner(at, at + 1))).is_applied());
    }
    let changes = vec![
        assign(0, owner(19, 20), owner(20, 21)),
        release(0, owner(20, 21)),
        acquire(50, owner(3, 1), owner(4, 2)),
        commit(50, owner(4, 2), checkpoint(50, 2, 1)),
        create(60, owner(9, 3)),
        register(None, NodeRole::Worker, None),
        register(Some(8), NodeRole::Server, None),
        register(Some(3), NodeRole::Server, Some(NodeState::Active)),
        MetadataChange::UpdateNodeState {
            node_id: NodeId(8),
            state: NodeState::Draining,
            metadata: None,
            expected: Some(NodeState::Active),
        },
        deregister(3),
        MetadataChange::IncrementClusterEpoch { expected: Some(1) },
        MetadataChange::CheckOwner { partition_id: PartitionId(50), expected: owner(4, 2) },
        bind("/old", 1, "ingest", Some("q"), "q2"),
        bind("/old", 1, "other", None, "q"),
        drop_stream("/old"),
        create_stream("/old", 2),
        create_stream("/new", 2),
        drop_stream("/new"),
    ];
    (state, changes)
}

#[test]
fn a_batch_applies_its_changes_in_order_and_gives_all_that_was_minted() {
    let (mut state, changes) = every_change();
    let response = batch(&mut state, changes);
    let minted: Vec<_> = response.minted().iter().map(|minted| format!("{minted:?}")).collect();
    assert_eq!(minted.len(), 5, "{response:?}");
    assert_eq!(response.minted()[1], Minted::Node(NodeId(8)));
    assert_eq!(state.cluster_epoch(), 2);
    assert_eq!(state.stream("/new"), None);
    assert_eq!(state.partition_ownership(PartitionId(50)).unwrap().owner_epoch(), owner(4, 2));
    assert_eq!(state.partition_ownership(PartitionId(50)).unwrap().assigned_at_ms, 500);
}

#[test]
fn a_batch_whose_last_change_is_rejected_leaves_the_state_as_it_was() {
    let (before, changes) = every_change();
    for length in 0..=changes.len() {
        let mut state = before.clone();
        let mut attempt = changes[..length].to_vec();
        attempt.push(assign(999, owner(1, 1), owner(2, 2)));
        let reason = Box::new(Rejection::UnknownPartition { partition: PartitionId(999) });
        assert_eq!(
            batch(&mut state, attempt).rejection(),
            Some(&Rejection::InBatch { position: length as u32, reason })
        );
        (state.last_applied_log, state.last_applied_time_ms) =
            (before.last_applied_log, before.last_applied_time_ms);
        assert_eq!(state, before, "after {length} changes");
    }
}

#[test]
fn of_two_claims_one_wins_all_and_the_other_nothing() {
    let mut state = after((0..10).map(|partition| create(partition, owner(1, 1))));
    let claim = |node| (0..10).map(|p| acquire(p, owner(1, 1), owner(node, 2))).collect::<Vec<_>>();
    assert!(batch(&mut state, claim(2)).is_applied());
    let mut late = claim(3);
    late.rotate_left(5);
    assert_eq!(batch(&mut state, late).rejection().map(Rejection::code), Some("stale_epoch"));
    assert_eq!(state.partitions_for_node(NodeId(2)).len(), 10);
    assert_eq!(state.partitions_for_node(NodeId(3)).len(), 0);
}

#[test]
fn a_batch_is_one_request() {
    let mut state = after([create(0, owner(1, 1))]);
    let entry = MetadataLogEntry::batch(
        0,
        RequestId(4),
        vec![register(None, NodeRole::Worker, None), acquire(0, owner(1, 1), owner(2, 2))],
    );
    let first = state.apply(&entry);
    assert!(first.is_applied());
    assert_eq!(
        state.apply(&entry).rejection(),
        Some(&Rejection::DuplicateRequest { first: Box::new(first) })
    );
    assert_eq!(state.node_states().len(), 1);
}

#[test]
fn an_empty_batch_changes_nothing_and_is_applied() {
    let mut state = DeltaMetadata::new();
    assert!(batch(&mut state, vec![]).is_applied());
}

#[test]
fn a_batch_holds_so_many_changes_and_no_more() {
    let mut state = DeltaMetadata::new();
    let increments = |count| vec![MetadataChange::IncrementClusterEpoch { expected: None }; count];
    assert!(batch(&mut state, increments(BATCH_CHANGES_MAX)).is_applied());
    let response = batch(&mut state, increments(BATCH_CHANGES_MAX + 1));
    let invalid =
        InvalidChange::OutOfRange { bound: Bound::BatchChanges, given: BATCH_CHANGES_MAX as u64 + 1 };
    assert_eq!(response.rejection(), Some(&Rejection::Invalid(invalid)));
    assert_eq!(state.cluster_epoch(), BATCH_CHANGES_MAX as u64);
}

#[test]
fn a_run_claims_the_largest_stream_in_one_batch() {
    let mut state =
        after([create_stream("/large", PARTITIONS_PER_STREAM_MAX), register(None, NodeRole::Worker, None)]);
    let node_id = *state.node_states().keys().next().unwrap();
    let mut changes = vec![MetadataChange::UpdateNodeState {
        node_id,
        state: NodeState::Active,
        metadata: None,
        expected: None,
    }];
    for (partition_id, ownership) in state.partition_map() {
        changes.push(MetadataChange::AcquirePartition {
            partition_id: *partition_id,
            node_id,
            epoch: ownership.epoch.next().unwrap(),
            expected: ownership.owner_epoch(),
        });
    }
    assert!(batch(&mut state, changes).is_applied());
    assert_eq!(state.partitions_for_node(node_id).len(), PARTITIONS_PER_STREAM_MAX as usize);
}

#[test]
fn a_batch_creates_so_many_partitions_and_no_more() {
    let mut state = DeltaMetadata::new();
    let half = PARTITIONS_PER_STREAM_MAX / 2;
    let too_many = vec![create_stream("/a", half), drop_stream("/a"), create_stream("/b", half + 1)];
    let invalid = InvalidChange::OutOfRange { bound: Bound::BatchPartitions, given: 100_001 };
    assert_eq!(batch(&mut state, too_many).rejection(), Some(&Rejection::Invalid(invalid)));
    assert!(batch(&mut state, vec![create_stream("/a", half), create_stream("/b", half)]).is_applied());
}
