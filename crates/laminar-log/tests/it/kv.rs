//! The kv machine against a map, through snapshots and hostile bytes (APPLY-2).

use std::collections::BTreeMap;

use bytes::Bytes;
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_log::entry::{
    Append, BlockId, BlockPointer, Change, Fence, MachineKind, PartitionRecord, Payload, TrimTo,
};
use laminar_log::machine::{
    Applying, KvMachine, KvOperation, MachineError, PartitionStateMachine, decode_operations,
    encode_operations,
};
use laminar_log::verdict::AcceptedRecord;
use laminar_log::{LogId, PartitionLogIndex};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

fn apply(machine: &mut KvMachine, change: Change) -> Result<(), MachineError> {
    let record = AcceptedRecord {
        index: PartitionLogIndex(1),
        first_offset: 0,
        log_id: LogId::new(1, 1),
        time_ms: 0,
        record: PartitionRecord { partition: PartitionId(1), owner: NodeId(1), epoch: Epoch::FIRST, change },
    };
    match machine.apply(&record) {
        Applying::Done(done) => done,
        Applying::Later(_) => panic!("a kv machine is immediate"),
    }
}

fn inline(rows: u32, payload: impl Into<Bytes>) -> Change {
    Change::Append(Append { rows, create: None, payload: Payload::Inline(payload.into()) })
}

fn write(operations: &[KvOperation]) -> Change {
    inline(operations.len() as u32, encode_operations(operations))
}

fn set(key: &'static str, value: &'static str) -> KvOperation {
    KvOperation { key: key.into(), value: Some(value.into()) }
}

fn operation() -> impl Strategy<Value = KvOperation> {
    let key = prop_oneof![vec(0..4_u8, 0..3), vec(any::<u8>(), 0..40)];
    (key, proptest::option::weighted(0.7, vec(any::<u8>(), 0..100)))
        .prop_map(|(key, value)| KvOperation { key: key.into(), value: value.map(Bytes::from) })
}

fn machine(operations: &[KvOperation]) -> KvMachine {
    let mut machine = KvMachine::new();
    apply(&mut machine, write(operations)).unwrap();
    machine
}

proptest! {
    #[test]
    fn machine_is_a_map_and_its_hash_is_that_of_its_content(entries in vec(vec(operation(), 0..20), 0..20)) {
        let (mut machine, mut model) = (KvMachine::new(), BTreeMap::new());
        for operations in &entries {
            apply(&mut machine, write(operations)).unwrap();
            for KvOperation { key, value } in operations {
                match value {
                    Some(value) => drop(model.insert(key.clone(), value.clone())),
                    None => drop(model.remove(key)),
                }
            }
        }
        prop_assert_eq!(machine.scan(), model.clone().into_iter().collect::<Vec<_>>());
        prop_assert!(model.iter().all(|(key, value)| machine.get(key).as_ref() == Some(value)));
        let content: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
        prop_assert_eq!(machine.bytes(), (content + 128 * model.len()) as u64);
        // Another way to the same content ends in the same bytes.
        let direct: Vec<KvOperation> =
            model.into_iter().rev().map(|(key, value)| KvOperation { key, value: Some(value) }).collect();
        let direct = self::machine(&direct);
        prop_assert_eq!(machine.state_hash(), direct.state_hash());
        prop_assert_eq!(machine.snapshot(), direct.snapshot());
        prop_assert_eq!(machine, direct);
    }

    #[test]
    fn snapshots_restore_what_was_there(before in vec(operation(), 0..50), others in vec(operation(), 0..9)) {
        let (machine, mut other) = (machine(&before), self::machine(&others));
        other.restore(&machine.snapshot()).unwrap();
        prop_assert_eq!(&other, &machine);
        prop_assert_eq!(other.state_hash(), machine.state_hash());
    }

    #[test]
    fn operations_go_there_and_back(operations in vec(operation(), 0..20)) {
        prop_assert_eq!(decode_operations(&encode_operations(&operations)), Ok(operations));
    }

    #[test]
    fn any_payload_is_applied_or_changes_nothing(payload in vec(any::<u8>(), 0..60), rows in 0..4_u32) {
        let mut machine = machine(&[set("a", "1"), set("b", "2")]);
        let before = machine.clone();
        if apply(&mut machine, inline(rows, payload)).is_err() {
            prop_assert_eq!(machine, before);
        }
    }

    #[test]
    fn cut_payloads_are_refused(operations in vec(operation(), 1..5), at in any::<Index>()) {
        let payload = encode_operations(&operations);
        let cut = payload.slice(..at.index(payload.len()));
        let mut machine = KvMachine::new();
        prop_assert!(apply(&mut machine, inline(operations.len() as u32, cut)).is_err());
        prop_assert!(machine.is_empty());
    }

    #[test]
    fn damaged_snapshots_are_refused_and_change_nothing(
        operations in vec(operation(), 0..20), at in any::<Index>(), bit in 0..8_u8,
    ) {
        let state = machine(&operations).snapshot();
        let mut machine = machine(&[set("a", "1")]);
        let before = machine.clone();
        let mut flipped = state[0].to_vec();
        flipped[at.index(state[0].len())] ^= 1 << bit;
        let cut = state[0].slice(..at.index(state[0].len()));
        for damaged in [vec![flipped.into()], vec![cut], vec![], [state.clone(), state].concat()] {
            prop_assert!(machine.restore(&damaged).is_err());
            prop_assert_eq!(&machine, &before);
        }
    }

    #[test]
    fn hostile_snapshots_never_panic(pieces in vec(vec(any::<u8>(), 0..80), 0..3)) {
        let pieces: Vec<Bytes> = pieces.into_iter().map(Bytes::from).collect();
        prop_assert!(KvMachine::new().restore(&pieces).is_err());
    }
}

#[test]
fn large_states_are_cut_into_pieces_that_are_all_needed() {
    let value = Bytes::from(vec![7; 100_000]);
    let key = |n: u32| Bytes::from(format!("key {n:04}"));
    let operations: Vec<KvOperation> =
        (0..50).map(|n| KvOperation { key: key(n), value: Some(value.clone()) }).collect();
    let machine = machine(&operations);
    let pieces = machine.snapshot();
    assert_eq!(pieces.len(), 5);
    assert!(pieces.iter().all(|piece| piece.len() < (1 << 20) + 200_000));
    let mut restored = KvMachine::new();
    for missing in 0..5 {
        let mut some = pieces.clone();
        some.remove(missing);
        assert!(restored.restore(&some).is_err());
        let mut swapped = pieces.clone();
        swapped.swap(missing, (missing + 1) % 5);
        assert!(restored.restore(&swapped).is_err());
    }
    assert!(restored.is_empty());
    restored.restore(&pieces).unwrap();
    assert_eq!(restored, machine);
}

#[test]
fn other_records_change_nothing() {
    let mut machine = machine(&[set("a", "1")]);
    let before = machine.clone();
    for change in [
        Change::Fence(Fence { run: 1, metadata_index: 1 }),
        Change::Create(MachineKind::Kv),
        Change::Trim(TrimTo::End),
        Change::Skip(PartitionLogIndex(1)),
        Change::ExpectEnd(1),
        Change::Destroy,
        inline(0, Bytes::new()),
    ] {
        apply(&mut machine, change).unwrap();
    }
    assert_eq!(machine, before);
    assert!(machine.is_immediate() && machine.keeps_rows() && machine.must_agree());
}

#[test]
fn refusals_say_what_is_wrong() {
    let mut machine = KvMachine::new();
    let mut refused = |change| apply(&mut machine, change).unwrap_err().to_string();
    assert_eq!(
        refused(inline(3, encode_operations(&[set("a", "1")]))),
        "kv payload: 1 operations in an append of 3 rows"
    );
    assert_eq!(
        refused(inline(1, vec![1, 0, 0, 0, 9, 0, 0, 0, b'k', b'v'])),
        "kv payload, operation 0 at byte 0: it is cut short"
    );
    let pointer = BlockPointer { block: BlockId(7), begin: 0, length: 1, checksum: 0, path: String::new() };
    let payload = Payload::Pointer(Box::new(pointer));
    assert_eq!(
        refused(Change::Append(Append { rows: 1, create: None, payload })),
        "kv payload: it is in block 00000000000000000000000000000007, and a kv machine takes operations in the \
         entry only"
    );
    assert_eq!(machine.restore(&[]).unwrap_err().to_string(), "kv snapshot: it has no pieces");
}

/// These bytes are on disks and in other replicas: they must not change.
#[test]
fn bytes_and_hash_are_what_they_were() {
    let gone = KvOperation { key: "b".into(), value: None };
    let payload = encode_operations(&[set("a", "xy"), gone]);
    assert_eq!(&payload[..], b"\x01\0\0\0\x02\0\0\0axy\x01\0\0\0\xff\xff\xff\xffb");
    let machine = machine(&[set("a", "xy"), set("b", "")]);
    let piece = machine.snapshot().remove(0);
    assert_eq!(&piece[..4], b"\x01\x01\0\0");
    assert_eq!(&piece[8..], b"\0\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\0\0axy\x01\0\0\0\0\0\0\0b");
    assert_eq!(u32::from_le_bytes(piece[4..8].try_into().unwrap()), 1_635_964_664);
    assert_eq!(
        (KvMachine::new().state_hash(), machine.state_hash()),
        (8_376_124_999_220_038_186, 17_289_344_533_490_995_340)
    );
}
