use super::*;
use crate::ids::StreamId;

fn stream_minted(response: &MetadataResponse) -> (u64, PartitionRange) {
    match response.minted() {
        [Minted::Stream { stream_id, partitions }] => (stream_id.0, *partitions),
        other => panic!("one stream must be minted: {other:?} {:?}", response.rejection()),
    }
}

#[test]
fn a_new_stream_has_contiguous_partitions_that_wait_at_the_first_epoch() {
    let mut state = DeltaMetadata::new();
    assert_eq!(stream_minted(&apply(&mut state, create_stream("/shop/orders", 3))), (1, range(0, 2)));
    assert_eq!(stream_minted(&apply(&mut state, create_stream("/shop/carts", 2))), (2, range(3, 4)));
    for partition in 0..5 {
        let ownership = state.partition_ownership(PartitionId(partition)).unwrap();
        assert_eq!(ownership.owner_epoch(), owner(0, 1));
    }
    let stream = state.stream("/shop/orders").unwrap();
    assert_eq!((stream.stream_id, stream.partition_ids.as_slice()), (StreamId(1), [range(0, 2)].as_slice()));
    assert_eq!(
        (&stream.machine, stream.data_group, stream.created_at_ms),
        (&StreamMachine::Log, DataGroupId(1), 10)
    );
    assert_eq!((stream.schema.as_slice(), stream.key.len()), ([1, 2, 3].as_slice(), 1));
}

#[test]
fn streams_are_found_by_prefix_and_by_partition() {
    let mut state = after([
        create_stream("/shop/orders", 3),
        create_stream("/shop/carts", 2),
        create_stream("/shops", 1),
        create(100, owner(1, 1)),
    ]);
    let paths = |prefix| state.streams(prefix).map(|stream| stream.path.as_str()).collect::<Vec<_>>();
    assert_eq!(paths("/shop/"), ["/shop/carts", "/shop/orders"]);
    assert_eq!(paths("/shop"), ["/shop/carts", "/shop/orders", "/shops"]);
    assert_eq!(paths("").len(), 3);
    assert_eq!(paths("/x"), [""; 0]);
    let of = |partition| state.stream_of(PartitionId(partition)).map(|stream| stream.path.as_str());
    assert_eq!(
        [of(0), of(2), of(3), of(5)].map(Option::unwrap),
        ["/shop/orders", "/shop/orders", "/shop/carts", "/shops"]
    );
    assert_eq!((of(6), of(100), of(u32::MAX)), (None, None, None));
    assert!(apply(&mut state, drop_stream("/shop/carts")).is_applied());
    assert_eq!(state.stream_of(PartitionId(3)), None);
}

#[test]
fn a_stream_takes_its_ids_around_partitions_assigned_by_number() {
    let mut state = after([create(2, owner(1, 1)), create(u32::MAX, owner(1, 1))]);
    assert_eq!(stream_minted(&apply(&mut state, create_stream("/a", 2))).1, range(0, 1));
    assert_eq!(stream_minted(&apply(&mut state, create_stream("/b", 2))).1, range(3, 4));
    apply(&mut state, create(6, owner(1, 1)));
    // Two do not fit at 5; a later stream does not go back for it.
    assert_eq!(stream_minted(&apply(&mut state, create_stream("/c", 2))).1, range(7, 8));
    assert_eq!(stream_minted(&apply(&mut state, create_stream("/d", 1))).1, range(9, 9));
}

#[test]
fn the_last_partition_id_is_given_out_once() {
    let mut state = DeltaMetadata::new();
    state.counters.partition_id = u64::from(u32::MAX) - 1;
    let limit = Rejection::LimitReached { limit: Limit::PartitionIds };
    assert_eq!(rejected(&mut state, create_stream("/a", 3)), limit);
    assert_eq!(stream_minted(&apply(&mut state, create_stream("/a", 2))).1, range(u32::MAX - 1, u32::MAX));
    assert_eq!(rejected(&mut state, create_stream("/b", 1)), limit);
}

#[test]
fn a_stream_is_not_created_over_another() {
    let mut state = after([create_stream("/a", 1)]);
    assert_eq!(
        rejected(&mut state, create_stream("/a", 2)),
        Rejection::StreamExists { path: "/a".to_owned(), stream_id: StreamId(1) }
    );
    assert!(apply(&mut state, create_stream("/a/b", 2)).is_applied());
}

#[test]
fn a_stream_dropped_and_created_again_has_new_ids_and_restarts_no_epoch() {
    let mut state = after([
        create_stream("/a", 2),
        assign(0, owner(0, 1), owner(3, 2)),
        release(0, owner(3, 2)),
        commit(0, owner(3, 2), checkpoint(0, 2, 1)),
        create_stream("/b", 1),
        drop_stream("/a"),
    ]);
    assert_eq!(state.partition_epoch(PartitionId(0)), None);
    assert_eq!(state.latest_checkpoint(PartitionId(0)), None);
    assert!(state.pending_releases().is_empty());
    assert_eq!(state.history(PartitionId(0)).count(), 0);
    assert_eq!(state.retired_partitions().collect::<Vec<_>>(), [range(0, 1)]);

    assert_eq!(stream_minted(&apply(&mut state, create_stream("/a", 2))), (3, range(3, 4)));
    // An old owner that comes late finds nothing, and its ids cannot be made again.
    let unknown = Rejection::UnknownPartition { partition: PartitionId(0) };
    assert_eq!(rejected(&mut state, release(0, owner(3, 2))), unknown);
    assert_eq!(rejected(&mut state, acquire(0, owner(3, 2), owner(3, 3))), unknown);
    assert_eq!(rejected(&mut state, create(0, owner(3, 9))), unknown);
}

#[test]
fn a_stream_is_dropped_only_if_it_is_the_expected_one() {
    let expecting = |id| MetadataChange::DropStream { path: "/a".to_owned(), expected: Some(StreamId(id)) };
    let mut state = after([create_stream("/a", 1), drop_stream("/a"), create_stream("/a", 1)]);
    assert_eq!(
        rejected(&mut state, expecting(1)),
        Rejection::StreamReplaced { path: "/a".to_owned(), expected: StreamId(1), current: StreamId(2) }
    );
    assert!(apply(&mut state, expecting(2)).is_applied());
    assert_eq!(rejected(&mut state, expecting(2)), Rejection::UnknownStream { path: "/a".to_owned() });
    assert_eq!(state.retired_partitions().collect::<Vec<_>>(), [range(0, 1)]);
}

#[test]
fn a_stream_keeps_to_its_bounds() {
    let state = DeltaMetadata::new();
    let create = |path: &str, partitions, schema, key: Vec<String>| {
        let change = MetadataChange::CreateStream {
            path: path.to_owned(),
            partitions,
            schema: vec![0; schema],
            key,
            machine: StreamMachine::Kv,
            data_group: DataGroupId(0),
            retention: Retention::default(),
            limits: StreamLimits::default(),
        };
        apply(&mut state.clone(), change).rejection().cloned()
    };
    let columns = |count: usize| (0..count).map(|column| format!("c{column}")).collect::<Vec<_>>();
    let too = |bound, given| Some(Rejection::Invalid(InvalidChange::OutOfRange { bound, given }));
    assert_eq!(create("/a", 1, 1 << 20, columns(16)), None);
    assert_eq!(create("/a", PARTITIONS_PER_STREAM_MAX, 0, vec!["c".repeat(256)]), None);
    assert_eq!(create("/a", 0, 0, vec![]), too(Bound::StreamPartitions, 0));
    assert_eq!(create("/a", 100_001, 0, vec![]), too(Bound::StreamPartitions, 100_001));
    assert_eq!(create("/a", u32::MAX, 0, vec![]), too(Bound::StreamPartitions, u64::from(u32::MAX)));
    assert_eq!(create("/a", 1, (1 << 20) + 1, vec![]), too(Bound::SchemaBytes, (1 << 20) + 1));
    assert_eq!(create("/a", 1, 0, columns(17)), too(Bound::KeyColumns, 17));
    assert_eq!(create("/a", 1, 0, vec![String::new()]), too(Bound::KeyColumnBytes, 0));
    assert_eq!(create("/a", 1, 0, vec!["c".repeat(257)]), too(Bound::KeyColumnBytes, 257));
    let column = "c0".to_owned();
    assert_eq!(
        create("/a", 1, 0, vec![column.clone(), "c1".to_owned(), column.clone()]),
        Some(Rejection::Invalid(InvalidChange::KeyRepeated { column }))
    );
    let bad_path =
        |fault| Some(Rejection::Invalid(InvalidChange::StreamPath { path: "/a/".to_owned(), fault }));
    assert_eq!(create("/a/", 1, 0, vec![]), bad_path(PathFault::EmptySegment));
    assert_eq!(
        apply(&mut state.clone(), drop_stream("/a/")).rejection().cloned(),
        bad_path(PathFault::EmptySegment)
    );
}

#[test]
fn the_cluster_holds_so_many_partitions_and_no_more() {
    let full = PARTITIONS_MAX / PARTITIONS_PER_STREAM_MAX as usize;
    let mut state = after((0..full).map(|at| create_stream(&format!("/s{at}"), PARTITIONS_PER_STREAM_MAX)));
    let left = (PARTITIONS_MAX % PARTITIONS_PER_STREAM_MAX as usize) as u32;
    let limit = Limit::Partitions;
    let response = apply(&mut state, create_stream("/more", left + 1));
    assert_eq!(response.rejection(), Some(&Rejection::LimitReached { limit }));
    assert!(apply(&mut state, create_stream("/more", left)).is_applied());
    let response = apply(&mut state, create(u32::MAX, owner(1, 1)));
    assert_eq!(response.rejection(), Some(&Rejection::LimitReached { limit }));
}

fn alter(path: &str, expected: u64, partitions: Option<u32>) -> MetadataChange {
    MetadataChange::AlterStream {
        path: path.to_owned(),
        expected: StreamId(expected),
        partitions,
        retention: None,
        limits: None,
    }
}

#[test]
fn a_stream_grows_by_a_further_range_of_waiting_partitions() {
    let mut state =
        after([create_stream("/a", 2), create_stream("/b", 1), assign(0, owner(0, 1), owner(3, 2))]);
    let response = apply(&mut state, alter("/a", 1, Some(5)));
    assert_eq!(response.minted(), [Minted::Partitions(range(3, 5))]);
    let stream = state.stream("/a").unwrap();
    assert_eq!(stream.partition_ids, [range(0, 1), range(3, 5)]);
    assert_eq!(stream.partition_count(), 5);
    assert_eq!(state.partition_owner(PartitionId(0)), Some(NodeId(3)));
    for partition in 3..6 {
        let partition = PartitionId(partition);
        assert_eq!(state.partition_ownership(partition).unwrap().owner_epoch(), owner(0, 1));
        assert_eq!(state.stream_of(partition).unwrap().path, "/a");
        let events: Vec<_> = state.history(partition).map(|event| event.cause).collect();
        assert_eq!(events, [OwnershipCause::Created]);
    }
    // As many as there are adds none.
    assert_eq!(apply(&mut state, alter("/a", 1, Some(5))).minted(), []);
    assert_eq!(stream_minted(&apply(&mut state, create_stream("/c", 1))).1, range(6, 6));
    assert!(apply(&mut state, drop_stream("/a")).is_applied());
    assert_eq!(state.retired_partitions().collect::<Vec<_>>(), [range(0, 1), range(3, 5)]);
    assert_eq!(state.stream_of(PartitionId(4)), None);
}

#[test]
fn a_stream_is_altered_only_if_it_is_the_expected_one_and_does_not_shrink() {
    let mut state = after([create_stream("/a", 2), drop_stream("/a"), create_stream("/a", 2)]);
    let path = || "/a".to_owned();
    assert_eq!(
        rejected(&mut state, alter("/a", 1, Some(3))),
        Rejection::StreamReplaced { path: path(), expected: StreamId(1), current: StreamId(2) }
    );
    assert_eq!(
        rejected(&mut state, alter("/a", 2, Some(1))),
        Rejection::PartitionsShrunk { path: path(), current: 2, given: 1 }
    );
    assert_eq!(
        rejected(&mut state, alter("/b", 2, None)),
        Rejection::UnknownStream { path: "/b".to_owned() }
    );
    for given in [0, PARTITIONS_PER_STREAM_MAX + 1] {
        let invalid = InvalidChange::OutOfRange { bound: Bound::StreamPartitions, given: u64::from(given) };
        assert_eq!(rejected(&mut state, alter("/a", 2, Some(given))), Rejection::Invalid(invalid));
    }
}

#[test]
fn retention_and_limits_are_set_at_creation_and_altered_one_by_one() {
    let week = Retention { age_ms: Some(604_800_000), bytes: None };
    let small = StreamLimits { row_bytes_max: Some(1024) };
    let mut create = create_stream("/a", 1);
    if let MetadataChange::CreateStream { retention, limits, machine, .. } = &mut create {
        (*retention, *limits) = (week, small);
        *machine = StreamMachine::Custom("sum".to_owned());
    }
    let mut state = after([create]);
    let settings = |state: &DeltaMetadata| {
        let stream = state.stream("/a").unwrap();
        (stream.retention, stream.limits)
    };
    assert_eq!(settings(&state), (week, small));
    assert_eq!(state.stream("/a").unwrap().machine.as_str(), "sum");
    let set = |new_retention, new_limits| {
        let mut change = alter("/a", 1, None);
        if let MetadataChange::AlterStream { retention, limits, .. } = &mut change {
            (*retention, *limits) = (new_retention, new_limits);
        }
        change
    };
    assert_eq!(apply(&mut state, set(Some(Retention::default()), None)).minted(), []);
    assert_eq!(settings(&state), (Retention::default(), small));
    apply(&mut state, set(None, Some(StreamLimits::default())));
    assert_eq!(settings(&state), (Retention::default(), StreamLimits::default()));

    let too_small = |bound| Rejection::Invalid(InvalidChange::OutOfRange { bound, given: 0 });
    let age = Retention { age_ms: Some(0), bytes: None };
    let bytes = Retention { age_ms: None, bytes: Some(0) };
    assert_eq!(rejected(&mut state, set(Some(age), None)), too_small(Bound::RetentionAge));
    assert_eq!(rejected(&mut state, set(Some(bytes), None)), too_small(Bound::RetentionBytes));
    let row = StreamLimits { row_bytes_max: Some(0) };
    assert_eq!(rejected(&mut state, set(None, Some(row))), too_small(Bound::RowBytes));
}

#[test]
fn an_alteration_in_a_refused_batch_is_taken_back() {
    let mut state = after([create_stream("/a", 2)]);
    let before = state.clone();
    let mut settings = alter("/a", 1, Some(4));
    if let MetadataChange::AlterStream { retention, .. } = &mut settings {
        *retention = Some(Retention { age_ms: Some(1), bytes: Some(2) });
    }
    let batch = vec![settings, alter("/a", 1, Some(6)), alter("/a", 1, Some(5))];
    let entry = MetadataLogEntry::batch(0, RequestId::NONE, batch);
    let (response, touched) = state.apply_noting(LogIndex(9), &entry);
    assert_eq!(response.rejection().map(Rejection::code), Some("partitions_shrunk"));
    assert_eq!(touched, []);
    (state.last_applied_log, state.last_applied_time_ms) =
        (before.last_applied_log, before.last_applied_time_ms);
    assert_eq!(state, before);
}

#[test]
fn a_batch_adds_and_creates_so_many_partitions_and_no_more() {
    let state = after([create_stream("/a", 1)]);
    let half = PARTITIONS_PER_STREAM_MAX / 2;
    let batch = |more: u32| {
        let changes = vec![create_stream("/b", half), alter("/a", 1, Some(half + more))];
        state.clone().apply(&MetadataLogEntry::batch(0, RequestId::NONE, changes))
    };
    assert!(batch(1).is_applied());
    let given = u64::from(PARTITIONS_PER_STREAM_MAX) + 1;
    let invalid = Rejection::Invalid(InvalidChange::OutOfRange { bound: Bound::BatchPartitions, given });
    let reason = Box::new(invalid);
    assert_eq!(batch(2).rejection(), Some(&Rejection::InBatch { position: 1, reason }));
}
