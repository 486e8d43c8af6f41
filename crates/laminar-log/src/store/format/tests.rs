//! Records go there and back, their bytes are pinned, and whatever else comes in is refused.

use proptest::prelude::*;

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encode(operation: &Operation) -> Bytes {
    match operation {
        Operation::Entry { entry, committed } => {
            let (record, kept) = encode_entry(&mut BytesMut::new(), entry, *committed);
            assert_eq!(kept, *entry);
            record
        }
        Operation::Vote(vote) => encode_vote(*vote),
        Operation::Committed(committed) => encode_committed(*committed),
        Operation::Truncate(after) => encode_truncate(*after),
        Operation::State(state) => encode_state(state),
    }
}

fn entry(payload: EntryPayload, committed: Option<LogId>) -> Operation {
    Operation::Entry { entry: LogEntry { id: LogId::new(3, 17), payload }, committed }
}

/// A release must read what an older one wrote: these bytes do not change.
#[test]
fn bytes_are_as_documented() {
    let vote = Vote { term: 4, node: NodeId(2), committed: true };
    let state = State { vote: Some(vote), committed: None, purged: Some(LogId::new(3, 9)) };
    let cases = [
        (entry(EntryPayload::Blank, None), "0101000003000000000000001100000000000000"),
        (
            entry(EntryPayload::Normal(Bytes::from_static(b"abc")), None),
            "0101010003000000000000001100000000000000616263",
        ),
        (
            entry(EntryPayload::Membership(Bytes::from_static(b"m")), Some(LogId::new(2, 16))),
            "0101060003000000000000001100000000000000020000000000000010000000000000006d",
        ),
        (Operation::Vote(vote), "0201010004000000000000000200000000000000"),
        (Operation::Committed(Some(LogId::new(3, 9))), "0301010003000000000000000900000000000000"),
        (Operation::Committed(None), "0301000000000000000000000000000000000000"),
        (Operation::Truncate(Some(5)), "040101000500000000000000"),
        (Operation::Truncate(None), "040100000000000000000000"),
        (
            Operation::State(state),
            "05010b00040000000000000002000000000000000000000000000000000000000000000003000000000000000900000000000000",
        ),
    ];
    for (operation, bytes) in cases {
        let record = encode(&operation);
        assert_eq!(hex(&record), bytes);
        assert_eq!(decode(&record).unwrap(), operation);
    }
}

#[test]
fn what_was_never_written_is_refused() {
    let refused = |bytes: &[u8]| decode(&Bytes::copy_from_slice(bytes)).unwrap_err();
    assert!(matches!(refused(&[]), FormatError::Length { found: 0, .. }));
    assert!(matches!(refused(&[9, 1, 0, 0]), FormatError::Value { at: 0, found: 9, .. }));
    assert!(matches!(refused(&[1, 2, 0, 0]), FormatError::VersionTooNew { found: 2, .. }));
    assert!(matches!(refused(&[1, 0, 0, 0]), FormatError::Value { at: 1, found: 0, .. }));
    let mut blank = encode(&entry(EntryPayload::Blank, None)).to_vec();
    blank.push(0);
    assert!(matches!(refused(&blank), FormatError::Length { found: 1, expected: 0, .. }));
    blank[2] = 3;
    assert!(matches!(refused(&blank), FormatError::Value { at: 2, found: 3, .. }));
    let mut truncate = encode_truncate(None).to_vec();
    truncate[4] = 1;
    assert!(matches!(refused(&truncate), FormatError::Value { what: "truncation", at: 4, .. }));
    let last = encode_committed(Some(LogId::new(1, u64::MAX)));
    assert!(matches!(decode(&last), Err(FormatError::Value { at: 12, .. })));
}

fn id() -> impl Strategy<Value = LogId> {
    (any::<u64>(), 0..u64::MAX).prop_map(|(term, index)| LogId::new(term, index))
}

fn vote() -> impl Strategy<Value = Vote> {
    (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(term, node, committed)| Vote {
        term,
        node: NodeId(node),
        committed,
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..50).prop_map(Bytes::from);
    let payload = prop_oneof![
        Just(EntryPayload::Blank),
        bytes().prop_map(EntryPayload::Normal),
        bytes().prop_map(EntryPayload::Membership),
    ];
    let option = |id| proptest::option::of(id);
    prop_oneof![
        (id(), payload, option(id())).prop_map(|(id, payload, committed)| {
            Operation::Entry { entry: LogEntry { id, payload }, committed }
        }),
        vote().prop_map(Operation::Vote),
        option(id()).prop_map(Operation::Committed),
        proptest::option::of(any::<u64>()).prop_map(Operation::Truncate),
        (proptest::option::of(vote()), option(id()), option(id()))
            .prop_map(|(vote, committed, purged)| Operation::State(State { vote, committed, purged })),
    ]
}

proptest! {
    #[test]
    fn records_go_there_and_back(operation in operation()) {
        prop_assert_eq!(decode(&encode(&operation)).unwrap(), operation);
    }

    /// Whatever decodes is encoded to the same bytes: there is one way to write a thing.
    #[test]
    fn any_bytes_are_read_or_refused(kind in 0..7_u8, flags in 0..20_u8, body in proptest::collection::vec(any::<u8>(), 0..60)) {
        let record = Bytes::from([vec![kind, 1, flags, 0], body].concat());
        if let Ok(operation) = decode(&record) {
            prop_assert_eq!(encode(&operation), record);
        }
    }
}
