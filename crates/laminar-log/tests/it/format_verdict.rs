//! The bytes of a verdict snapshot: those of release 0.1 stay readable, and are written as they were.
//!
//! `LAMINAR_WRITE_GOLDEN=1 cargo test --release -p laminar-log --test it format_verdict` writes `tests/data/0.1/` anew. That
//! is right only as long as 0.1 is not released.

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_log::entry::{
    Append, BatchId, BlockId, Change, Entry, Fence, MachineKind, PartitionRecord, Payload, Producer,
    ProducerId, Record, TrimTo,
};
use laminar_log::verdict::{Verdict, VerdictCounts, VerdictLimits, VerdictState};
use laminar_log::{LogId, PartitionLogIndex};

fn record(partition: u32, owner: u64, epoch: u64, change: Change) -> Record {
    let (partition, owner, epoch) = (PartitionId(partition), NodeId(owner), Epoch::new(epoch).unwrap());
    Record::Partition(PartitionRecord { partition, owner, epoch, change })
}

fn append(partition: u32, owner: u64, epoch: u64, rows: u32) -> Record {
    let payload = Payload::Inline(Bytes::from_static(b"rows"));
    let change = Change::Append(Append { rows, create: Some(MachineKind::Kv), payload });
    record(partition, owner, epoch, change)
}

/// A state with something in every table and every field.
fn state() -> VerdictState {
    let limits = VerdictLimits {
        producers_max: 2,
        producer_window: 2,
        expired_blocks_max: 2,
        ..VerdictLimits::default()
    };
    let mut state = VerdictState::new(limits).unwrap();
    let producer = |sequence| Some(Producer { id: ProducerId(2), sequence, checksum: u64::MAX - sequence });
    let batch = |query: &str, number| Some(BatchId { query: query.to_owned(), number });
    let plain = |records| Entry { time_ms: 1_771_200_000_000, producer: None, batch: None, records };
    let blocks = [1 << 90, 2 << 90, u128::MAX].map(BlockId);
    let entries = [
        plain(vec![
            record(0, 1, 1, Change::Create(MachineKind::Log)),
            record(u32::MAX, 2, 3, Change::Create(MachineKind::Custom(200))),
            Record::MintProducer,
        ]),
        plain(vec![Record::MintProducer, append(300, (1 << 32) + 1, u64::MAX, u32::MAX)]),
        plain(vec![append(300, (1 << 32) + 1, u64::MAX, 7), append(1, 1, 1, 0)]),
        Entry { producer: producer(1), ..plain(vec![append(0, 1, 1, 100), append(1, 1, 1, 2)]) },
        Entry { producer: producer(2), batch: batch("orders/ingest", 17), ..plain(vec![append(0, 1, 1, 5)]) },
        Entry {
            time_ms: 1_771_200_000_999,
            ..plain(vec![
                record(0, (1 << 32) + 2, 9, Change::Fence(Fence { run: u128::MAX - 1, metadata_index: 77 })),
                record(0, 0, 9, Change::Trim(TrimTo::Offset(40))),
                record(0, 0, 9, Change::Skip(PartitionLogIndex(2))),
                record(0, 0, 9, Change::Skip(PartitionLogIndex(1))),
            ])
        },
        Entry {
            producer: producer(3),
            batch: batch("carts", 0),
            ..plain(vec![Record::MintProducer, Record::ExpireStage(blocks.to_vec())])
        },
        plain((4..9).map(|id| record(id, 0, 1, Change::Destroy)).collect()),
        plain(vec![record(1, 0, 2, Change::Destroy), Record::Noop]),
    ];
    for (index, entry) in (1..).zip(&entries) {
        let decision = state.decide(LogId::new(1 + index / 4, index), entry);
        assert!(matches!(decision.verdict, Verdict::Accepted(_)), "{index}: {decision:?}");
    }
    state
}

/// In hexadecimal, 64 bytes a line. Written anew only when asked to.
fn golden(now: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/0.1/verdict_snapshot.hex");
    if std::env::var_os("LAMINAR_WRITE_GOLDEN").is_some() {
        let line = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, now.chunks(64).map(line).collect::<String>()).unwrap();
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    text.lines().flat_map(|line| line.as_bytes().chunks(2).map(byte).collect::<Vec<_>>()).collect()
}

#[test]
fn the_snapshot_of_release_0_1_is_read_and_written_as_it_was() {
    let state = state();
    let expected = VerdictCounts { partitions: 3, destroyed: 6, producers: 2, queries: 2, expired_blocks: 2 };
    assert_eq!(state.counts(), expected);
    let golden = golden(&state.encode());
    assert_eq!(golden, state.encode());
    assert_eq!(VerdictState::decode(&golden), Ok(state));
}

#[test]
fn a_state_before_the_first_entry_is_read_back() {
    let state = VerdictState::new(VerdictLimits::default()).unwrap();
    assert_eq!(VerdictState::decode(&state.encode()), Ok(state));
}
