//! Every rule and every refusal, one at a time. `tests/it/prop_verdict.rs` has all of them at once, against a model.

use bytes::Bytes;
use laminar_core::error::ErrorKind;
use laminar_core::ids::{Epoch, LogIndex, NodeId, PartitionId};

use super::*;
use crate::entry::{
    Append, BatchId, BlockId, BlockPointer, Change, Entry, Fence, MachineKind, PartitionRecord, Payload,
    Producer, ProducerId, Record, TrimTo,
};
use crate::log_id::{LogId, PartitionLogIndex};

mod batches;
mod ends;
mod order;
mod partitions;
mod places;
mod producers;
mod stages;
mod wording;

/// A log of term 1 whose entries are decided one after the other.
struct Log {
    state: VerdictState,
}

impl Log {
    fn new() -> Self {
        Self::with(VerdictLimits::default())
    }

    fn with(limits: VerdictLimits) -> Self {
        Self { state: VerdictState::new(limits).unwrap() }
    }

    /// Decides the next entry. Whatever is refused must leave nothing behind, and every state must survive its bytes.
    fn decide(&mut self, entry: Entry) -> Decision {
        let id = LogId::new(1, self.state.last_applied().map_or(1, |last| last.index.0 + 1));
        let before = self.state.clone();
        let decision = self.state.decide(id, &entry);
        assert_eq!(self.state.last_applied(), Some(id));
        if matches!(decision.verdict, Verdict::Refused(_)) {
            assert_eq!(decision.accepted, []);
            assert_eq!(VerdictState { last_applied: Some(id), ..before }, self.state);
        }
        assert_eq!(VerdictState::decode(&self.state.encode()).as_ref(), Ok(&self.state));
        decision
    }

    fn records<const N: usize>(&mut self, records: [Record; N]) -> Decision {
        self.decide(entry(records))
    }

    #[track_caller]
    fn accept<const N: usize>(&mut self, records: [Record; N]) -> Vec<AcceptedRecord> {
        let decision = self.records(records);
        accepted(&decision);
        decision.accepted
    }

    #[track_caller]
    fn refuse<const N: usize>(&mut self, records: [Record; N]) -> Refusal {
        refusal(self.records(records))
    }

    #[track_caller]
    fn partition(&self, id: u32) -> &PartitionVerdict {
        self.state.partition(PartitionId(id)).unwrap()
    }
}

fn entry<const N: usize>(records: [Record; N]) -> Entry {
    Entry { time_ms: 1000, producer: None, batch: None, records: records.into() }
}

/// A record of partition `id` by node `owner` at `epoch`.
fn record(id: u32, owner: u64, epoch: u64, change: Change) -> Record {
    let (partition, owner, epoch) = (PartitionId(id), NodeId(owner), Epoch::new(epoch).unwrap());
    Record::Partition(PartitionRecord { partition, owner, epoch, change })
}

fn create(id: u32, owner: u64, epoch: u64) -> Record {
    record(id, owner, epoch, Change::Create(MachineKind::Log))
}

fn append(id: u32, owner: u64, epoch: u64, rows: u32) -> Record {
    let payload = Payload::Inline(Bytes::from_static(b"rows"));
    record(id, owner, epoch, Change::Append(Append { rows, create: None, payload }))
}

fn append_or_create(id: u32, owner: u64, epoch: u64, rows: u32) -> Record {
    let payload = Payload::Inline(Bytes::from_static(b"rows"));
    record(id, owner, epoch, Change::Append(Append { rows, create: Some(MachineKind::Kv), payload }))
}

fn append_block(id: u32, owner: u64, epoch: u64, block: u128) -> Record {
    let pointer =
        BlockPointer { block: BlockId(block), begin: 0, length: 9, checksum: 7, path: "stage/b".to_owned() };
    let payload = Payload::Pointer(Box::new(pointer));
    record(id, owner, epoch, Change::Append(Append { rows: 1, create: None, payload }))
}

fn fence(id: u32, owner: u64, epoch: u64) -> Record {
    record(id, owner, epoch, Change::Fence(Fence { run: 5, metadata_index: 6 }))
}

fn destroy(id: u32, epoch: u64) -> Record {
    record(id, 0, epoch, Change::Destroy)
}

fn trim(id: u32, epoch: u64, to: TrimTo) -> Record {
    record(id, 0, epoch, Change::Trim(to))
}

fn skip(id: u32, epoch: u64, index: u64) -> Record {
    record(id, 0, epoch, Change::Skip(PartitionLogIndex(index)))
}

fn expire<const N: usize>(blocks: [u128; N]) -> Record {
    Record::ExpireStage(blocks.map(BlockId).into())
}

fn producer(id: u64, sequence: u64, checksum: u64) -> Option<Producer> {
    Some(Producer { id: ProducerId(id), sequence, checksum })
}

fn batch(query: &str, number: u64) -> Option<BatchId> {
    Some(BatchId { query: query.to_owned(), number })
}

#[track_caller]
fn accepted(decision: &Decision) -> &Outcome {
    match &decision.verdict {
        Verdict::Accepted(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn duplicate(decision: Decision) -> Outcome {
    assert_eq!(decision.accepted, []);
    match decision.verdict {
        Verdict::Duplicate(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refusal(decision: Decision) -> Refusal {
    match decision.verdict {
        Verdict::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// What a stale record of node 1 at epoch 1 hears from partition 0, which node 2 owns at epoch `current`.
fn stale(current: u64, batch_committed: Option<bool>) -> Refusal {
    Refusal::StaleEpoch {
        partition: PartitionId(0),
        given: Epoch::FIRST,
        given_owner: NodeId(1),
        current: Epoch::new(current).unwrap(),
        owner: NodeId(2),
        since_ms: 1000,
        batch_committed,
    }
}
