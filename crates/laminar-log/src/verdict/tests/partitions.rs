//! Epochs, owners, creation and destruction.

use super::*;

const P: PartitionId = PartitionId(0);

#[test]
fn only_the_current_epoch_and_owner_append_epoch_2() {
    let mut log = Log::new();
    log.accept([create(0, 1, 1)]);
    log.accept([append(0, 1, 1, 3)]);
    let not_owned =
        Refusal::NotOwned { partition: P, given: NodeId(9), owner: NodeId(1), batch_committed: Some(false) };
    assert_eq!(log.refuse([append(0, 9, 1, 1)]), not_owned);
    // An epoch to come is refused as well: its fence has not been applied yet.
    assert!(matches!(log.refuse([append(0, 1, 2, 1)]), Refusal::StaleEpoch { .. }));
    log.accept([fence(0, 2, 4)]);
    assert_eq!(log.refuse([append(0, 1, 1, 1)]), stale(4, Some(false)));
    log.accept([append(0, 2, 4, 1)]);
    let partition = log.partition(0);
    assert_eq!((partition.epoch.get(), partition.owner), (4, NodeId(2)));
    assert_eq!((partition.fence_run, partition.fence_metadata_index), (5, 6));
}

#[test]
fn a_fence_that_does_not_raise_the_epoch_is_ignored_and_its_entry_accepted() {
    let mut log = Log::new();
    log.accept([create(0, 1, 3)]);
    for epoch in [1, 2, 3] {
        assert_eq!(log.accept([fence(0, 7, epoch)]), []);
    }
    let partition = log.partition(0);
    assert_eq!((partition.owner, partition.fence_run, partition.highest.0), (NodeId(1), 0, 1));
    assert_eq!(log.accept([fence(0, 7, 3), append(0, 1, 3, 1)])[0].index, PartitionLogIndex(2));
}

#[test]
fn trims_and_skips_look_at_the_epoch_and_not_at_the_owner() {
    let mut log = Log::new();
    log.accept([create(0, 1, 2), append(0, 1, 2, 5)]);
    for epoch in [1, 3] {
        assert!(matches!(log.refuse([trim(0, epoch, TrimTo::End)]), Refusal::StaleEpoch { .. }));
        assert!(matches!(log.refuse([skip(0, epoch, 1)]), Refusal::StaleEpoch { .. }));
    }
    assert_eq!(log.accept([trim(0, 2, TrimTo::Offset(1)), skip(0, 2, 1)]).len(), 2);
}

#[test]
fn records_of_unknown_partitions_are_refused() {
    let mut log = Log::new();
    for record in [append(0, 1, 1, 1), fence(0, 1, 1), trim(0, 1, TrimTo::End), skip(0, 1, 1)] {
        assert_eq!(log.refuse([record]), Refusal::UnknownPartition { partition: P });
    }
}

#[test]
fn creating_what_exists_is_ignored_whatever_the_epoch() {
    let mut log = Log::new();
    assert_eq!(log.accept([create(0, 1, 2)]).len(), 1);
    for epoch in [1, 2, 3] {
        assert_eq!(log.accept([create(0, 9, epoch)]), []);
    }
    let partition = log.partition(0);
    assert_eq!((partition.epoch.get(), partition.owner, partition.created), (2, NodeId(1), LogIndex(1)));
}

#[test]
fn an_append_makes_a_partition_that_was_never_there() {
    let mut log = Log::new();
    let taken = log.accept([append_or_create(0, 1, 3, 2), append_or_create(0, 1, 3, 4)]);
    assert_eq!(taken.iter().map(|record| record.first_offset).collect::<Vec<_>>(), [0, 2]);
    let partition = log.partition(0);
    assert_eq!((partition.epoch.get(), partition.owner, partition.machine), (3, NodeId(1), MachineKind::Kv));
    assert_eq!((partition.highest.0, partition.next_offset), (2, 6));
    log.accept([fence(0, 2, 4)]);
    assert!(matches!(log.refuse([append_or_create(0, 1, 3, 1)]), Refusal::StaleEpoch { .. }));
}

#[test]
fn a_destroyed_partition_hands_on_its_end_and_refuses_what_comes_late() {
    let mut log = Log::new();
    log.accept([create(0, 1, 2), append(0, 1, 2, 5)]);
    assert!(matches!(log.refuse([destroy(0, 1)]), Refusal::StaleEpoch { .. }));
    let taken = log.accept([destroy(0, 3)]);
    assert_eq!((taken.len(), taken[0].index, taken[0].first_offset), (1, PartitionLogIndex(3), 5));
    assert_eq!(log.state.partition(P), None);
    assert!(log.state.is_destroyed(P));
    assert_eq!(log.accept([destroy(0, 1)]), [], "destroying twice is ignored");
    for record in [append_or_create(0, 1, 9, 1), create(0, 1, 9), fence(0, 1, 9), skip(0, 9, 1)] {
        assert_eq!(log.refuse([record]), Refusal::Destroyed { partition: P });
    }
}

#[test]
fn destroying_what_was_never_there_leaves_a_tombstone_only() {
    let mut log = Log::new();
    assert_eq!(log.accept([destroy(0, 1)]), []);
    assert_eq!(log.refuse([create(0, 1, 1)]), Refusal::Destroyed { partition: P });
    assert_eq!(log.state.counts(), VerdictCounts { destroyed: 1, ..VerdictCounts::default() });
}

#[test]
fn the_number_of_partitions_is_limited_and_destroying_makes_room() {
    let mut log = Log::with(VerdictLimits { partitions_max: 2, ..VerdictLimits::default() });
    log.accept([create(0, 1, 1), create(1, 1, 1)]);
    let refused = Refusal::TooManyPartitions { partition: PartitionId(2), limit: 2 };
    assert_eq!(log.refuse([create(2, 1, 1)]), refused);
    assert_eq!(log.refuse([append_or_create(2, 1, 1, 1)]), refused);
    log.accept([destroy(0, 1), create(2, 1, 1)]);
    assert_eq!(log.state.partitions().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn records_see_what_those_before_them_in_the_entry_did() {
    let mut log = Log::new();
    let taken = log.accept([create(0, 1, 1), append(0, 1, 1, 2), fence(0, 2, 2), append(0, 2, 2, 3)]);
    assert_eq!(taken.iter().map(|record| record.index.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(matches!(log.refuse([fence(0, 3, 3), append(0, 2, 2, 1)]), Refusal::StaleEpoch { .. }));
    assert_eq!(log.refuse([destroy(0, 2), append(0, 2, 2, 1)]), Refusal::Destroyed { partition: P });
}

#[test]
fn a_refusal_at_the_end_takes_back_every_kind_of_change() {
    let mut log = Log::new();
    log.accept([create(0, 1, 1), append(0, 1, 1, 9), create(1, 1, 1), skip(1, 1, 1), expire([3])]);
    // `decide` of the log compares the states.
    let refused = log.refuse([
        append(0, 1, 1, 2),
        trim(0, 1, TrimTo::Offset(4)),
        skip(0, 1, 2),
        fence(0, 2, 2),
        destroy(0, 2),
        skip(1, 1, 2),
        append_or_create(2, 1, 1, 1),
        destroy(3, 1),
        expire([1, 2]),
        Record::MintProducer,
        append(9, 1, 1, 1),
    ]);
    assert_eq!(refused, Refusal::UnknownPartition { partition: PartitionId(9) });
}
