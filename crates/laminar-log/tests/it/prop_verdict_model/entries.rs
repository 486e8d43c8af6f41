//! Random entries that are often right, often nearly right, and sometimes wrong. A plan is drawn without knowing the
//! state, and made an entry against the model as it is then.

use bytes::Bytes;
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_log::PartitionLogIndex;
use laminar_log::entry::{
    Append, BatchId, BlockId, BlockPointer, Change, Entry, Fence, MachineKind, PartitionRecord, Payload,
    Producer, ProducerId, Record, TrimTo,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{Model, next_offset, ownership};

/// One step of a log.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Entry(EntryPlan),
    /// An entry from before, as it was: a retry, or a late one.
    Again(Index),
    Unreadable,
    /// A blank entry, or a change of membership.
    Blank,
    /// The second replica goes on from its own snapshot.
    Restart,
}

#[derive(Debug, Clone)]
pub(crate) struct EntryPlan {
    time_ms: u64,
    producer: Option<ProducerPlan>,
    batch: Option<(u8, BatchPlan)>,
    records: Vec<RecordPlan>,
}

#[derive(Debug, Clone)]
struct ProducerPlan {
    which: Index,
    known: bool,
    /// Added to the sequence that would be right.
    off: i64,
    checksum: u64,
}

#[derive(Debug, Clone)]
enum BatchPlan {
    Next(u64),
    Same,
    Back,
}

#[derive(Debug, Clone)]
enum RecordPlan {
    Partition {
        partition: PartitionPlan,
        epoch_off: i64,
        owner_off: u64,
        change: ChangePlan,
    },
    Expire(Vec<u128>),
    /// How the names of queries begin.
    Forget(&'static str),
    Mint,
    Noop,
}

#[derive(Debug, Clone)]
enum PartitionPlan {
    Any(u32),
    /// One that exists, if any does.
    Live(Index),
}

#[derive(Debug, Clone)]
enum ChangePlan {
    Append {
        rows: u32,
        create: Option<MachineKind>,
        block: Option<u128>,
    },
    Fence,
    Create(MachineKind),
    Destroy,
    Trim(Option<u64>),
    Skip(u64),
    /// Added to the end there is.
    ExpectEnd(i64),
}

pub(crate) fn steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => entry_plan().prop_map(Step::Entry),
        6 => any::<Index>().prop_map(Step::Again),
        1 => Just(Step::Unreadable),
        1 => Just(Step::Blank),
        1 => Just(Step::Restart),
    ];
    vec(step, 1..max)
}

fn entry_plan() -> impl Strategy<Value = EntryPlan> {
    let off = prop_oneof![8 => Just(0_i64), 1 => Just(1), 3 => -4..0_i64];
    let producer = (any::<Index>(), prop::bool::weighted(0.9), off, 0..3_u64)
        .prop_map(|(which, known, off, checksum)| ProducerPlan { which, known, off, checksum });
    let number = prop_oneof![
        4 => (1..3_u64).prop_map(BatchPlan::Next),
        2 => Just(BatchPlan::Same),
        1 => Just(BatchPlan::Back),
    ];
    let batch = (0..5_u8, number);
    let parts =
        (0..50_u64, option::weighted(0.4, producer), option::weighted(0.4, batch), vec(record_plan(), 0..5));
    parts.prop_map(|(time_ms, producer, batch, records)| EntryPlan { time_ms, producer, batch, records })
}

fn record_plan() -> impl Strategy<Value = RecordPlan> {
    let epoch_off = prop_oneof![40 => Just(0_i64), 1 => Just(-1), 1 => Just(1)];
    let owner_off = prop_oneof![40 => Just(0_u64), 1 => Just(1)];
    let which = prop_oneof![
        1 => (0..12_u32).prop_map(PartitionPlan::Any),
        5 => any::<Index>().prop_map(PartitionPlan::Live),
    ];
    let partition =
        (which, epoch_off, owner_off, change_plan()).prop_map(|(partition, epoch_off, owner_off, change)| {
            RecordPlan::Partition { partition, epoch_off, owner_off, change }
        });
    prop_oneof![
        24 => partition,
        2 => vec(block(), 0..4).prop_map(RecordPlan::Expire),
        1 => prop::sample::select(vec!["query-1", "query-2", "query-", "other"]).prop_map(RecordPlan::Forget),
        2 => Just(RecordPlan::Mint),
        1 => Just(RecordPlan::Noop),
    ]
}

/// Blocks above others, so that few are below the floor.
fn block() -> impl Strategy<Value = u128> {
    (0..40_u128).prop_map(|block| block << 60)
}

fn machine() -> impl Strategy<Value = MachineKind> {
    prop_oneof![Just(MachineKind::Log), Just(MachineKind::Kv), (128..=255_u8).prop_map(MachineKind::Custom)]
}

fn change_plan() -> impl Strategy<Value = ChangePlan> {
    let append = (0..4_u32, option::weighted(0.7, machine()), option::weighted(0.2, block()));
    prop_oneof![
        24 => append.prop_map(|(rows, create, block)| ChangePlan::Append { rows, create, block }),
        4 => Just(ChangePlan::Fence),
        3 => machine().prop_map(ChangePlan::Create),
        1 => Just(ChangePlan::Destroy),
        3 => option::of(0..20_u64).prop_map(ChangePlan::Trim),
        4 => (0..8_u64).prop_map(ChangePlan::Skip),
        4 => prop_oneof![6 => Just(0_i64), 1 => -1..2_i64].prop_map(ChangePlan::ExpectEnd),
    ]
}

impl EntryPlan {
    /// The entry that this is at the model's place in the log.
    pub(crate) fn entry(&self, model: &Model) -> Entry {
        Entry {
            time_ms: self.time_ms,
            producer: self.producer.as_ref().and_then(|plan| plan.producer(model)),
            batch: self.batch.as_ref().map(|(query, plan)| {
                let query = format!("query-{query}");
                let last = model.last_batch(&query).map_or(0, |(last, _)| last);
                let number = match plan {
                    BatchPlan::Next(more) => last + more,
                    BatchPlan::Same => last,
                    BatchPlan::Back => last.saturating_sub(1),
                };
                BatchId { query, number }
            }),
            records: self.records.iter().map(|plan| plan.record(model)).collect(),
        }
    }
}

impl ProducerPlan {
    fn producer(&self, model: &Model) -> Option<Producer> {
        let known: Vec<_> = model.producers.iter().filter(|known| !known.forgotten || !self.known).collect();
        let (id, next) = if self.known {
            let known = known.get(self.which.index(known.len().max(1)))?;
            (known.id, known.appends.len() as i64 + 1)
        } else {
            // One more than there are: an id that was never minted.
            let any = known.get(self.which.index(known.len() + 1));
            any.map_or((ProducerId(1 << 40), 1), |known| (known.id, known.appends.len() as i64 + 1))
        };
        let sequence = u64::try_from(next + self.off).unwrap_or(0);
        Some(Producer { id, sequence, checksum: self.checksum })
    }
}

impl PartitionPlan {
    fn id(&self, model: &Model) -> PartitionId {
        let live: Vec<_> = model.live().collect();
        match self {
            PartitionPlan::Any(id) => PartitionId(*id),
            PartitionPlan::Live(_) if live.is_empty() => PartitionId(0),
            PartitionPlan::Live(which) => live[which.index(live.len())],
        }
    }
}

impl RecordPlan {
    fn record(&self, model: &Model) -> Record {
        let (partition, epoch_off, owner_off, change) = match self {
            RecordPlan::Partition { partition, epoch_off, owner_off, change } => {
                (partition.id(model), epoch_off, owner_off, change)
            }
            RecordPlan::Expire(blocks) => {
                return Record::ExpireStage(blocks.iter().copied().map(BlockId).collect());
            }
            RecordPlan::Forget(begin) => return Record::ForgetQueries((*begin).to_owned()),
            RecordPlan::Mint => return Record::MintProducer,
            RecordPlan::Noop => return Record::Noop,
        };
        let past = model.records.get(&partition).filter(|past| !past.is_empty());
        let (current, owner) = past.map_or((1, 1), |past| (ownership(past).0.get(), ownership(past).1.0));
        let (up, next_owner) = if matches!(change, ChangePlan::Fence) { (1, 1) } else { (0, 0) };
        let epoch = current.saturating_add_signed(epoch_off + up).max(1);
        Record::Partition(PartitionRecord {
            partition,
            owner: NodeId((owner + owner_off + next_owner) % 4),
            epoch: Epoch::new(epoch).unwrap(),
            change: change.change(epoch, past.map_or(0, |past| next_offset(past))),
        })
    }
}

impl ChangePlan {
    fn change(&self, epoch: u64, end: u64) -> Change {
        match self {
            ChangePlan::Append { rows, create, block } => {
                let payload = match block {
                    None => Payload::Inline(Bytes::from_static(b"rows of an append")),
                    Some(block) => Payload::Pointer(Box::new(BlockPointer {
                        block: BlockId(*block),
                        begin: 3,
                        length: 4,
                        checksum: 5,
                        path: "stage/block".to_owned(),
                    })),
                };
                Change::Append(Append { rows: *rows, create: *create, payload })
            }
            ChangePlan::Fence => Change::Fence(Fence { run: u128::from(epoch) << 70, metadata_index: epoch }),
            ChangePlan::Create(machine) => Change::Create(*machine),
            ChangePlan::Destroy => Change::Destroy,
            ChangePlan::Trim(to) => Change::Trim(to.map_or(TrimTo::End, TrimTo::Offset)),
            ChangePlan::Skip(index) => Change::Skip(PartitionLogIndex(*index)),
            ChangePlan::ExpectEnd(off) => Change::ExpectEnd(end.saturating_add_signed(*off)),
        }
    }
}
