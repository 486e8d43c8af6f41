//! Pins the wording that users search for, and what each refusal asks of them.

use super::*;
use crate::format::FormatError;

#[test]
fn refusals_read_as_documented() {
    let (partition, producer) = (PartitionId(42), ProducerId(7));
    let epoch = |value| Epoch::new(value).unwrap();
    let cases = [
        (
            Refusal::StaleEpoch {
                partition,
                given: epoch(7),
                given_owner: NodeId(1),
                current: epoch(9),
                owner: NodeId(3),
                since_ms: 0,
                batch_committed: Some(false),
            },
            ErrorKind::Stale,
            "partition 42: write refused, it came under epoch 7 of node 1 and epoch 9 of node 3 is current; refresh the \
             guard",
        ),
        (
            Refusal::NotOwned { partition, given: NodeId(1), owner: NodeId(3), batch_committed: Some(true) },
            ErrorKind::Stale,
            "partition 42: write refused, node 1 does not own it, node 3 does",
        ),
        (
            Refusal::UnknownPartition { partition },
            ErrorKind::Stale,
            "partition 42: write refused, there is no such partition; create it first",
        ),
        (
            Refusal::Destroyed { partition },
            ErrorKind::Stale,
            "partition 42: write refused, it was destroyed; ids are not used again",
        ),
        (
            Refusal::UnknownProducer { producer, forgotten: ProducerId(5) },
            ErrorKind::Invalid,
            "producer 7: append refused, it is not known (those up to 5 may have been forgotten); mint another",
        ),
        (
            Refusal::SequenceGap { producer, given: 5, last: 3 },
            ErrorKind::Invalid,
            "producer 7: append refused, sequence 5 does not follow 3; appends of a producer must arrive in order",
        ),
        (
            Refusal::SequenceReused { producer, given: 5 },
            ErrorKind::Invalid,
            "producer 7: append refused, sequence 5 was used before with other rows, or too long ago to tell",
        ),
        (
            Refusal::BatchBackwards { batch: batch("q", 3).unwrap(), last: 4 },
            ErrorKind::Invalid,
            "query q: batch 3 refused, batch 4 was committed already; batches must not go back",
        ),
        (
            Refusal::TooManyQueries { query: "q".to_owned(), limit: 2 },
            ErrorKind::Overloaded,
            "query q: batch refused, 2 of 2 queries are known (log.queries_max); use the name of one that is known, or drop a \
             stream that is not needed: its queries go with it",
        ),
        (
            Refusal::TooManyPartitions { partition, limit: 2 },
            ErrorKind::Overloaded,
            "partition 42: creation refused, 2 of 2 partitions exist (log.partitions_max)",
        ),
        (
            Refusal::TooManySkips { partition, limit: 2 },
            ErrorKind::Overloaded,
            "partition 42: skip refused, 2 of 2 records are skipped (log.skips_max)",
        ),
        (
            Refusal::NothingToSkip { partition, index: PartitionLogIndex(9), last: PartitionLogIndex(8) },
            ErrorKind::Invalid,
            "partition 42: skip refused, it has no record 9 (its last is 8)",
        ),
        (
            Refusal::StageExpired { block: BlockId(0xab) },
            ErrorKind::Invalid,
            "block 000000000000000000000000000000ab: commit refused, it has expired; stage the rows again",
        ),
        (
            Refusal::OffsetsExhausted { partition },
            ErrorKind::Invalid,
            "partition 42: append refused, its row offsets are used up",
        ),
        (
            Refusal::EndMoved { partition, expected: 7, end: 9 },
            ErrorKind::Invalid,
            "partition 42: commit refused, it expects 7 as the end of the partition and 9 is; look at the rows between",
        ),
        (
            Refusal::Unreadable(FormatError::Value { what: "record", at: 3, found: 9 }),
            ErrorKind::Corrupt,
            "entry refused, it cannot be read: record at byte 3: 9 is not a value it can have",
        ),
        (
            Refusal::AlreadyDecided { given: LogId::new(1, 2), last: LogId::new(3, 4) },
            ErrorKind::Internal,
            "entry 1-2 refused, entries up to 3-4 were decided already; report it",
        ),
    ];
    for (refusal, kind, message) in cases {
        assert_eq!((refusal.kind(), refusal.to_string().as_str()), (kind, message));
    }
}
