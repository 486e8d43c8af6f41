//! Entries of every kind go there and back; whatever else comes in is refused and nothing panics.

use bytes::Bytes;
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::entry::{
    Append, BatchId, BlockId, BlockPointer, Change, Entry, Fence, MachineKind, PartitionRecord, Payload,
    Producer, ProducerId, Record, TrimTo,
};
use crate::log_id::{LogId, PartitionLogIndex};
use crate::verdict::AcceptedRecord;

fn machine() -> impl Strategy<Value = MachineKind> {
    prop_oneof![Just(MachineKind::Log), Just(MachineKind::Kv), (128..=255_u8).prop_map(MachineKind::Custom)]
}

fn payload() -> impl Strategy<Value = Payload> {
    let pointer = (any::<u128>(), any::<u64>(), any::<u64>(), any::<u64>(), "[a-zé/]{0,12}");
    prop_oneof![
        vec(any::<u8>(), 0..100).prop_map(|bytes| Payload::Inline(bytes.into())),
        pointer.prop_map(|(block, begin, length, checksum, path)| {
            Payload::Pointer(Box::new(BlockPointer { block: BlockId(block), begin, length, checksum, path }))
        }),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<u32>(), proptest::option::of(machine()), payload())
            .prop_map(|(rows, create, payload)| Change::Append(Append { rows, create, payload })),
        (any::<u128>(), any::<u64>())
            .prop_map(|(run, metadata_index)| Change::Fence(Fence { run, metadata_index })),
        machine().prop_map(Change::Create),
        Just(Change::Destroy),
        Just(Change::Trim(TrimTo::End)),
        any::<u64>().prop_map(|offset| Change::Trim(TrimTo::Offset(offset))),
        any::<u64>().prop_map(|index| Change::Skip(PartitionLogIndex(index))),
        any::<u64>().prop_map(Change::ExpectEnd),
    ]
}

fn partition_record() -> impl Strategy<Value = PartitionRecord> {
    (any::<u32>(), any::<u64>(), 1..=u64::MAX, change()).prop_map(|(partition, owner, epoch, change)| {
        PartitionRecord {
            partition: PartitionId(partition),
            owner: NodeId(owner),
            epoch: Epoch::new(epoch).unwrap(),
            change,
        }
    })
}

pub(crate) fn entry() -> impl Strategy<Value = Entry> {
    let record = prop_oneof![
        6 => partition_record().prop_map(Record::Partition),
        1 => vec(any::<u128>().prop_map(BlockId), 0..4).prop_map(Record::ExpireStage),
        1 => any::<String>().prop_map(Record::ForgetQueries),
        1 => Just(Record::MintProducer),
        1 => Just(Record::Noop),
    ];
    let producer = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(id, sequence, checksum)| Producer {
        id: ProducerId(id),
        sequence,
        checksum,
    });
    let batch = ("[a-zß]{1,40}", any::<u64>()).prop_map(|(query, number)| BatchId { query, number });
    (any::<u64>(), proptest::option::of(producer), proptest::option::of(batch), vec(record, 0..5))
        .prop_map(|(time_ms, producer, batch, records)| Entry { time_ms, producer, batch, records })
}

proptest! {
    #[test]
    fn entries_go_there_and_back(entry in entry()) {
        prop_assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
    }

    #[test]
    fn stored_records_go_there_and_back(
        record in partition_record(),
        numbers in any::<[u64; 5]>(),
    ) {
        let [index, first_offset, term, raft_index, time_ms] = numbers;
        let record = AcceptedRecord {
            index: PartitionLogIndex(index),
            first_offset,
            log_id: LogId::new(term, raft_index),
            time_ms,
            record,
        };
        let bytes = encode_stored(&record);
        prop_assert_eq!(decode_stored(&bytes), Ok(record));
    }

    #[test]
    fn any_changed_bit_and_any_cut_is_refused(entry in entry(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let bytes = encode_entry(&entry);
        let at = at.index(bytes.len());
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << bit;
        prop_assert!(decode_entry(&flipped.into()).is_err());
        prop_assert!(decode_entry(&bytes.slice(..at)).is_err());
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let _ = decode_entry(&bytes);
        let _ = decode_stored(&bytes);
        let _ = SegmentedRecordHeader::decode(&bytes, 0);
    }
}

/// In hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_entry_with_a_condition_is_written_as_it_was() {
    let record = |change| {
        let (partition, owner, epoch) = (PartitionId(3), NodeId(1 << 32), Epoch::new(9).unwrap());
        Record::Partition(PartitionRecord { partition, owner, epoch, change })
    };
    let payload = Payload::Inline(Bytes::from_static(b"rows"));
    let append = Change::Append(Append { rows: 2, create: None, payload });
    let records = vec![record(Change::ExpectEnd(0x0102_0304_0506_0708)), record(append)];
    let entry = Entry { time_ms: 1_771_200_000_000, producer: None, batch: None, records };
    let bytes = encode_entry(&entry);
    let golden = concat!(
        "010000002617e48302000000000000000030bf639c010000",
        "010a0000030000000000000001000000090000000000000008000000519e18d10807060504030201",
        "0101000003000000000000000100000009000000000000000c00000095f6b3e20200000000000000726f7773",
    );
    assert_eq!(hex(&bytes), golden);
    assert_eq!(decode_entry(&bytes), Ok(entry));
}
