use super::*;
use crate::ids::StreamId;

#[test]
fn a_writer_is_bound_by_compare_and_set() {
    let mut state = after([create_stream("/a", 1), bind("/a", 1, "w", None, "q")]);
    assert_eq!(state.bound_query(StreamId(1), "w"), Some("q"));
    let changed = |expected: Option<&str>, current: Option<&str>| Rejection::QueryChanged {
        path: "/a".to_owned(),
        writer: "w".to_owned(),
        expected: expected.map(str::to_owned),
        current: current.map(str::to_owned),
    };
    assert_eq!(rejected(&mut state, bind("/a", 1, "w", None, "r")), changed(None, Some("q")));
    assert_eq!(rejected(&mut state, bind("/a", 1, "w", Some("x"), "r")), changed(Some("x"), Some("q")));
    let other = match rejected(&mut state, bind("/a", 1, "v", Some("q"), "r")) {
        Rejection::QueryChanged { writer, current, .. } => (writer, current),
        rejection => panic!("{rejection}"),
    };
    assert_eq!(other, ("v".to_owned(), None));
    assert!(apply(&mut state, bind("/a", 1, "w", Some("q"), "q")).is_applied());
    assert!(apply(&mut state, bind("/a", 1, "w", Some("q"), "r")).is_applied());
    assert_eq!(state.bound_queries().collect::<Vec<_>>(), [(StreamId(1), "w", "r")]);
}

#[test]
fn a_binding_names_its_stream_and_goes_with_it() {
    let mut state = after([create_stream("/a", 1), create_stream("/b", 1)]);
    for change in
        [bind("/a", 1, "w", None, "q"), bind("/b", 2, "w", None, "r"), bind("/b", 2, "v", None, "q")]
    {
        assert!(apply(&mut state, change).is_applied());
    }
    assert_eq!(rejected(&mut state, bind("/c", 1, "w", None, "q")).code(), "unknown_stream");
    assert_eq!(rejected(&mut state, bind("/b", 1, "w", None, "q")).code(), "stream_replaced");
    assert!(apply(&mut state, drop_stream("/a")).is_applied());
    let left: Vec<_> = state.bound_queries().collect();
    assert_eq!(left, [(StreamId(2), "v", "q"), (StreamId(2), "w", "r")]);
    assert!(apply(&mut state, create_stream("/a", 1)).is_applied());
    assert_eq!(state.bound_query(StreamId(3), "w"), None);
}

#[test]
fn names_of_writers_and_queries_have_their_limits() {
    let mut state = after([create_stream("/a", 1)]);
    let long = "x".repeat(256);
    assert!(apply(&mut state, bind("/a", 1, &long, None, &long)).is_applied());
    for (bound, writer, query) in [
        (Bound::WriterBytes, String::new(), "q".to_owned()),
        (Bound::WriterBytes, format!("{long}x"), "q".to_owned()),
        (Bound::QueryBytes, "w".to_owned(), String::new()),
        (Bound::QueryBytes, "w".to_owned(), format!("{long}x")),
    ] {
        let given = writer.len().max(query.len()) as u64;
        let given = if given == 1 { 0 } else { given };
        let invalid = InvalidChange::OutOfRange { bound, given };
        assert_eq!(rejected(&mut state, bind("/a", 1, &writer, None, &query)), Rejection::Invalid(invalid));
    }
}

#[test]
fn so_many_writers_are_bound_and_no_more() {
    let mut state = after([create_stream("/a", 1)]);
    for writer in 0..BOUND_QUERIES_MAX {
        state.bound_queries.insert((StreamId(1), format!("w{writer}")), "q".to_owned());
    }
    let limit = Rejection::LimitReached { limit: Limit::BoundQueries };
    assert_eq!(rejected(&mut state, bind("/a", 1, "one more", None, "q")), limit);
    assert!(apply(&mut state, bind("/a", 1, "w7", Some("q"), "r")).is_applied());
}

#[test]
fn a_batch_that_checks_an_owner_takes_effect_only_if_it_holds() {
    let mut state = after([create(0, owner(1, 1)), create(1, owner(2, 1))]);
    let check = |expected| MetadataChange::CheckOwner { partition_id: PartitionId(0), expected };
    let claim = |expected| {
        let changes = vec![check(expected), acquire(1, owner(2, 1), owner(3, 2))];
        MetadataLogEntry::batch(0, RequestId::NONE, changes)
    };
    for (expected, code) in [(owner(1, 2), "stale_epoch"), (owner(2, 1), "not_owner")] {
        assert_eq!(state.apply(&claim(expected)).rejection().map(Rejection::code), Some(code));
    }
    assert_eq!(state.partition_owner(PartitionId(1)), Some(NodeId(2)));
    let before = state.partition_ownership(PartitionId(0)).cloned();
    let (answer, touched) = state.apply_noting(LogIndex(10), &claim(owner(1, 1)));
    assert!(answer.is_applied());
    assert_eq!(touched, [PartitionId(1)]);
    assert_eq!(state.partition_ownership(PartitionId(0)).cloned(), before);
    let unknown = MetadataChange::CheckOwner { partition_id: PartitionId(9), expected: owner(1, 1) };
    assert_eq!(rejected(&mut state, unknown).code(), "unknown_partition");
}
