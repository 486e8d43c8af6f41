use super::*;
use crate::error::FormatError;
use crate::metadata::dedup::Requests;

fn healthy() -> DeltaMetadata {
    let mut state = after([
        create_stream("/a", 2),
        create_stream("/b", 1),
        create_stream("/gone", 1),
        drop_stream("/gone"),
        assign(0, owner(0, 1), owner(3, 2)),
        release(0, owner(3, 2)),
        commit(0, owner(3, 2), checkpoint(0, 2, 1)),
        register(Some(3), NodeRole::Server, None),
        register(None, NodeRole::Worker, None),
        bind("/a", 1, "ingest", None, "q"),
    ]);
    state.apply(&MetadataLogEntry::batch(0, RequestId(5), vec![]));
    state
}

/// What `restore` says of a healthy state that was broken by `damage`.
fn refusal(damage: impl FnOnce(&mut DeltaMetadata)) -> &'static str {
    let mut state = healthy();
    damage(&mut state);
    match DeltaMetadata::restore(&state.snapshot()) {
        Err(FormatError::Malformed { what: "metadata snapshot", reason }) => reason,
        other => panic!("the state must be refused: {other:?}"),
    }
}

#[test]
fn a_healthy_state_is_restored() {
    assert_eq!(DeltaMetadata::restore(&healthy().snapshot()), Ok(healthy()));
    assert_eq!(DeltaMetadata::restore(&DeltaMetadata::new().snapshot()), Ok(DeltaMetadata::new()));
}

#[test]
fn a_state_whose_partition_tables_disagree_is_refused() {
    let p = PartitionId;
    assert_eq!(refusal(|s| s.retired.insert(range(1, 1))), "a dropped partition still has an owner");
    assert_eq!(refusal(|s| drop(s.history.remove(&p(1)))), "a partition has no history");
    assert_eq!(
        refusal(|s| s.partition_map.get_mut(&p(0)).unwrap().epoch = epoch(3)),
        "the history of a partition does not end with its owner"
    );
    assert_eq!(
        refusal(|s| s.last_applied_log = LogIndex(2)),
        "the history of a partition goes beyond the last entry"
    );
    assert_eq!(
        refusal(|s| drop(s.latest_checkpoints.insert(p(9), checkpoint(9, 1, 1)))),
        "a checkpoint is of no partition"
    );
    assert_eq!(
        refusal(|s| drop(s.latest_checkpoints.insert(p(0), checkpoint(0, 3, 1)))),
        "a checkpoint is of an epoch to come"
    );
    let release = healthy().pending_releases[&p(0)].clone();
    let release_of = |partition| ReleaseInfo { partition_id: p(partition), ..release.clone() };
    assert_eq!(
        refusal(|s| drop(s.pending_releases.insert(p(9), release_of(9)))),
        "a release is of no partition"
    );
    assert_eq!(
        refusal(|s| drop(s.pending_releases.insert(p(1), release_of(1)))),
        "a partition without an owner was released"
    );
    assert_eq!(
        refusal(|s| assert!(s.partition_map.remove(&p(2)).is_some())),
        "a stream has a partition that does not exist"
    );
}

#[test]
fn a_state_with_wrong_streams_is_refused() {
    let with = |change: &dyn Fn(&mut StreamDescriptor)| {
        refusal(|s| {
            let mut stream = s.streams.remove("/b").unwrap();
            change(&mut stream);
            s.streams.insert(stream);
        })
    };
    assert_eq!(
        with(&|b| b.path = "b".to_owned()),
        "a stream has a path, schema, key or setting that is not allowed"
    );
    assert_eq!(with(&|b| b.partition_ids.clear()), "a stream stands twice or has no partitions");
    assert_eq!(with(&|b| b.partition_ids = vec![range(1, 2)]), "two streams share a partition or an id");
    assert_eq!(with(&|b| b.stream_id = crate::ids::StreamId(1)), "two streams share a partition or an id");
}

#[test]
fn a_state_that_would_give_out_an_id_again_is_refused() {
    let again = "an id in use could be given out again";
    assert_eq!(refusal(|s| s.counters.partition_id = 3), again);
    assert_eq!(refusal(|s| s.counters.partition_id = (1 << 32) + 1), again);
    assert_eq!(refusal(|s| s.counters.stream_id = 2), again);
    assert_eq!(refusal(|s| s.counters.stream_id = u64::MAX), again);
    assert_eq!(refusal(|s| s.counters.server_id = 3), again);
    assert_eq!(refusal(|s| s.counters.server_id = NodeId::WORKER_MIN.0 + 1), again);
    assert_eq!(refusal(|s| s.counters.worker_id = NodeId::WORKER_MIN.0), again);
    assert_eq!(refusal(|s| s.last_applied_log = LogIndex(u64::MAX)), again);
}

#[test]
fn a_state_with_wrong_bindings_is_refused() {
    let with = |stream_id, writer: &str, query: &str| {
        let key = (crate::ids::StreamId(stream_id), writer.to_owned());
        refusal(|s| drop(s.bound_queries.insert(key, query.to_owned())))
    };
    assert_eq!(with(9, "w", "q"), "a writer of no stream is bound to a query");
    let name = "a writer or the query that it is bound to has a name that is not allowed";
    assert_eq!(with(1, "", "q"), name);
    assert_eq!(with(1, "w", &"q".repeat(257)), name);
}

#[test]
fn a_table_of_requests_that_holds_a_repetition_is_refused() {
    let first = Box::new(MetadataResponse::Applied { minted: vec![] });
    let duplicate = MetadataResponse::Rejected(Rejection::DuplicateRequest { first });
    let with = |response: MetadataResponse| {
        refusal(|s| {
            s.requests = Requests::default();
            s.requests.remember(RequestId(1), response);
        })
    };
    assert_eq!(with(duplicate), "a repeated request is remembered as if it were the first");
}
