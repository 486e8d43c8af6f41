//! A whole replica against a model that keeps everything: random entries, crashes, truncations, snapshots, purges,
//! broken partition logs, machines that stop and fail (LOG-1 to LOG-6, EPOCH-2, APPLY-1, APPLY-2, TXN-1, TXN-2).

use std::time::Duration;

use bytes::Bytes;
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_log::PartitionLogIndex;
use laminar_log::entry::{
    Append, BatchId, BlockId, BlockPointer, Change, Entry, Fence, MachineKind, PartitionRecord, Payload,
    Producer, ProducerId, Record, TrimTo, payload_checksum,
};
use laminar_log::machine::{KvOperation, encode_operations};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::support::machines::Trouble;
use crate::support::replica::Replica;

#[derive(Debug, Clone)]
enum Step {
    Propose(Vec<Change_>),
    Batch(u8, u8, u8),
    Produce(u8, u8, bool),
    Mint,
    Commit,
    Run(u16),
    Truncate(u8),
    Snapshot,
    Purge,
    Crash(u64),
    BreakLogs(u8),
    Heal,
    Trouble(u8, Trouble),
    EndTrouble,
    /// A record that no machine can apply.
    Poison(u8),
    Skip(u8),
}

/// A change, with small numbers so that they meet.
#[derive(Debug, Clone)]
enum Change_ {
    Append { partition: u8, stale: bool, size: u16 },
    Fence { partition: u8 },
    Create { partition: u8 },
    Destroy { partition: u8 },
    Trim { partition: u8, to: u8 },
    Pointer { partition: u8, block: u8 },
    Expire { block: u8 },
}

fn change() -> impl Strategy<Value = Change_> {
    let p = 0..6_u8;
    prop_oneof![
        12 => (p.clone(), prop::bool::weighted(0.1), 0..300_u16)
            .prop_map(|(partition, stale, size)| Change_::Append { partition, stale, size }),
        2 => p.clone().prop_map(|partition| Change_::Fence { partition }),
        1 => p.clone().prop_map(|partition| Change_::Create { partition }),
        1 => (0..40_u8).prop_map(|partition| Change_::Destroy { partition }),
        1 => (p.clone(), any::<u8>()).prop_map(|(partition, to)| Change_::Trim { partition, to }),
        1 => (p, 0..6_u8).prop_map(|(partition, block)| Change_::Pointer { partition: partition & !1, block }),
        1 => (0..6_u8).prop_map(|block| Change_::Expire { block }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let trouble = prop_oneof![
        Just(Trouble::Frozen),
        (1..8_u32).prop_map(Trouble::Fails),
        (1..3_u32).prop_map(Trouble::Panics)
    ];
    prop_oneof![
        12 => vec(change(), 1..4).prop_map(Step::Propose),
        2 => (0..3_u8, 0..6_u8, 0..6_u8).prop_map(|(query, number, partition)| Step::Batch(query, number, partition)),
        3 => (any::<u8>(), 0..6_u8, prop::bool::weighted(0.3)).prop_map(|(p, partition, again)| Step::Produce(p, partition, again)),
        1 => Just(Step::Mint),
        8 => Just(Step::Commit),
        6 => (0..3000_u16).prop_map(Step::Run),
        1 => (1..4_u8).prop_map(Step::Truncate),
        2 => Just(Step::Snapshot),
        2 => Just(Step::Purge),
        2 => any::<u64>().prop_map(Step::Crash),
        1 => (1..5_u8).prop_map(Step::BreakLogs),
        1 => Just(Step::Heal),
        2 => (0..6_u8, trouble).prop_map(|(partition, trouble)| Step::Trouble(partition, trouble)),
        1 => Just(Step::EndTrouble),
        1 => (4..6_u8).prop_map(Step::Poison),
        1 => (4..6_u8).prop_map(Step::Skip),
    ]
}

struct Run {
    replica: Replica,
    serial: u64,
    producers: Vec<(ProducerId, u64)>,
}

impl Run {
    /// Owner and epoch of a partition, as the oracle has them; partition 4 and above are key-value.
    fn record(&self, partition: u8, change: Change) -> PartitionRecord {
        let id = PartitionId(u32::from(partition));
        let current = self.replica.oracle.verdict.partition(id);
        let (owner, epoch) =
            current.map_or((NodeId(1), Epoch::FIRST), |verdict| (verdict.owner, verdict.epoch));
        PartitionRecord { partition: id, owner, epoch, change }
    }

    fn append(&mut self, partition: u8, size: u16) -> Change {
        self.serial += 1;
        let (serial, kv) = (self.serial, partition >= 4);
        let payload: Bytes = if kv {
            let key = Bytes::from(format!("key {}", serial % 5));
            let value = (serial % 7 != 0).then(|| Bytes::from(vec![b'v'; usize::from(size)]));
            encode_operations(&[KvOperation { key, value }])
        } else {
            let mut bytes = vec![b'r'; usize::from(size)];
            bytes.extend_from_slice(&serial.to_le_bytes());
            bytes.into()
        };
        let create = Some(if kv { MachineKind::Kv } else { MachineKind::Log });
        let rows = if kv { 1 } else { u32::from(size % 5) };
        Change::Append(Append { rows, create, payload: Payload::Inline(payload) })
    }

    fn change(&mut self, change: &Change_) -> Record {
        let record = match *change {
            Change_::Append { partition, stale, size } => {
                let append = self.append(partition, size);
                let mut record = self.record(partition, append);
                if stale {
                    record.owner = NodeId(99);
                }
                record
            }
            Change_::Fence { partition } => {
                let mut record =
                    self.record(partition, Change::Fence(Fence { run: 7, metadata_index: self.serial }));
                record.epoch = record.epoch.next().unwrap();
                record.owner = NodeId(self.serial % 3 + 1);
                record
            }
            Change_::Create { partition } => {
                let machine = if partition >= 4 { MachineKind::Kv } else { MachineKind::Log };
                self.record(partition, Change::Create(machine))
            }
            Change_::Destroy { partition } => self.record(partition, Change::Destroy),
            Change_::Trim { partition, to } => {
                let end = self.replica.oracle.verdict.partition(PartitionId(u32::from(partition)));
                let to = match to {
                    0..8 => TrimTo::End,
                    to => TrimTo::Offset(end.map_or(0, |verdict| verdict.next_offset * u64::from(to) / 255)),
                };
                self.record(partition, Change::Trim(to))
            }
            Change_::Pointer { partition, block } => {
                let pointer = BlockPointer {
                    block: BlockId(u128::from(block)),
                    begin: 0,
                    length: 10,
                    checksum: self.serial,
                    path: format!("blocks/{block}"),
                };
                let append = Append { rows: 3, create: None, payload: Payload::Pointer(Box::new(pointer)) };
                self.record(partition.min(2), Change::Append(append))
            }
            Change_::Expire { block } => return Record::ExpireStage(vec![BlockId(u128::from(block))]),
        };
        Record::Partition(record)
    }

    fn propose(&mut self, producer: Option<(ProducerId, u64)>, batch: Option<BatchId>, records: Vec<Record>) {
        let producer =
            producer.map(|(id, sequence)| Producer { id, sequence, checksum: payload_checksum(&records) });
        self.serial += 1;
        let time_ms = 1_000_000 + self.serial * 10 - (self.serial % 3) * 25;
        self.replica.propose(&Entry { time_ms, producer, batch, records });
    }

    /// Skips the record that a partition stands at, if it is one that no machine can apply.
    fn skip(&mut self, id: PartitionId) -> bool {
        let Some(status) = self.replica.machine().status(id).filter(|status| status.paused.is_some()) else {
            return false;
        };
        let next = PartitionLogIndex(status.applied.0 + 1);
        let record = &self.replica.oracle.records[&id][next.0 as usize - 1];
        let Change::Append(Append { payload: Payload::Inline(bytes), .. }) = &record.record.change else {
            return false;
        };
        if !bytes.starts_with(b"neither") {
            return false;
        }
        let record = self.record(id.0 as u8, Change::Skip(next));
        self.propose(None, None, vec![Record::Partition(record)]);
        true
    }

    /// Skips whatever cannot be applied, so that everything else can.
    fn skip_all(&mut self) {
        self.replica.end_troubles();
        while self.replica.machine().partition_ids().into_iter().any(|id| self.skip(id)) {
            self.replica.end_troubles();
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Propose(changes) => {
                let records = changes.iter().map(|change| self.change(change)).collect();
                self.propose(None, None, records);
            }
            Step::Batch(query, number, partition) => {
                let append = self.append(*partition, 20);
                let record = Record::Partition(self.record(*partition, append));
                let batch = BatchId { query: format!("query {query}"), number: u64::from(*number) };
                self.propose(None, Some(batch), vec![record]);
            }
            Step::Produce(which, partition, again) => {
                if self.producers.is_empty() {
                    return;
                }
                let at = usize::from(*which) % self.producers.len();
                let (id, last) = self.producers[at];
                let sequence = if *again { last.max(1) } else { last + 1 };
                self.producers[at].1 = sequence;
                let append = self.append(*partition, 30);
                let record = Record::Partition(self.record(*partition, append));
                self.propose(Some((id, sequence)), None, vec![record.clone()]);
                if *again {
                    self.propose(Some((id, sequence)), None, vec![record]);
                }
            }
            Step::Mint => {
                self.producers.push((ProducerId(self.replica.last() + 1), 0));
                self.propose(None, None, vec![Record::MintProducer]);
            }
            Step::Commit => self.replica.commit(),
            Step::Run(millis) => self.replica.run_for(Duration::from_millis(u64::from(*millis))),
            Step::Truncate(back) => self.replica.truncate(u64::from(*back)),
            Step::Snapshot => drop(self.replica.snapshot(Duration::from_secs(4))),
            Step::Purge => self.replica.purge(),
            Step::Crash(seed) => self.replica.crash(*seed),
            Step::BreakLogs(every) => self.replica.break_partition_logs(u64::from(*every)),
            Step::Heal => self.replica.fs.heal(),
            Step::Trouble(partition, trouble) => {
                self.replica.control.set(PartitionId(u32::from(*partition)), Some(*trouble));
            }
            Step::EndTrouble => self.replica.control.clear(),
            Step::Poison(partition) => {
                let payload = Payload::Inline(Bytes::from_static(b"neither key nor value"));
                let append = Append { rows: 1, create: Some(MachineKind::Kv), payload };
                let record = self.record(*partition, Change::Append(append));
                self.propose(None, None, vec![Record::Partition(record)]);
            }
            Step::Skip(partition) => drop(self.skip(PartitionId(u32::from(*partition)))),
        }
        self.replica.check();
    }
}

fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/prop_segmented.regressions");
    let failure_persistence = Some(Box::new(FileFailurePersistence::Direct(path)) as Box<_>);
    ProptestConfig { failure_persistence, max_shrink_iters: 20_000, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_replica_holds_what_was_decided(seed in any::<u64>(), steps in vec(step(), 1..80)) {
        let mut run = Run { replica: Replica::new(seed), serial: 0, producers: Vec::new() };
        for step in &steps {
            run.apply(step);
        }
        run.skip_all();
        run.replica.settle();
        run.replica.crash(seed);
        run.replica.settle();
    }
}
