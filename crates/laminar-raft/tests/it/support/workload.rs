//! What clients write to a data group, and what must be there afterwards.
//!
//! Each write carries a number of its own. Producers and batches try again until they have a verdict: their writes must
//! be there once. Plain appends are not tried again: once if acknowledged, once or never if their outcome is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_log::dispatcher::ClientId;
use laminar_log::entry::{
    Append, BatchId, Change, Entry, MachineKind, PartitionRecord, Payload, Producer, ProducerId, Record,
    payload_checksum,
};
use laminar_log::machine::{KvOperation, encode_operations};
use laminar_log::verdict::{AcceptedRecord, Refusal, Verdict};
use laminar_raft::ProposeError;
use openraft::{AsyncRuntime, Instant};

use super::replicas::Replicas;

pub(crate) const PARTITIONS: u32 = 6;

/// One write, until its outcome is known.
#[derive(Debug, Clone)]
struct Write {
    serial: u64,
    entry: Entry,
    who: Who,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Plain,
    Producer(usize),
    Query(usize),
}

#[derive(Debug, Default)]
struct ProducerState {
    id: Option<ProducerId>,
    sequence: u64,
    pending: Option<Write>,
}

#[derive(Debug, Default)]
struct QueryState {
    number: u64,
    pending: Option<Write>,
}

/// The clients.
#[derive(Debug, Default)]
pub(crate) struct Workload {
    serial: u64,
    producers: Vec<ProducerState>,
    queries: Vec<QueryState>,
    /// The partitions of each write that must be there once.
    pub(crate) done: BTreeMap<u64, Vec<u32>>,
    /// Those that may be there once.
    unknown: BTreeMap<u64, Vec<u32>>,
}

fn append(partition: u32, serial: u64, length: usize) -> Record {
    let text = format!("{serial:08}");
    let (machine, payload) = if partition % 2 == 1 {
        let (key, value) = (Bytes::from(text), Bytes::from(vec![b'v'; length]));
        (MachineKind::Kv, encode_operations(&[KvOperation { key, value: Some(value) }]))
    } else {
        (MachineKind::Log, Bytes::from([text.into_bytes(), vec![b'.'; length]].concat()))
    };
    Record::Partition(PartitionRecord {
        partition: PartitionId(partition),
        owner: NodeId(1),
        epoch: Epoch::FIRST,
        change: Change::Append(Append { rows: 1, create: Some(machine), payload: Payload::Inline(payload) }),
    })
}

fn partitions_of(entry: &Entry) -> Vec<u32> {
    let id = |record: &Record| match record {
        Record::Partition(record) => Some(record.partition.0),
        _ => None,
    };
    entry.records.iter().filter_map(id).collect()
}

pub(crate) fn plain(partition: u32, serial: u64, length: usize) -> Entry {
    Entry { records: vec![append(partition, serial, length)], ..Entry::default() }
}

impl Workload {
    pub(crate) fn new() -> Self {
        let producers = (0..3).map(|_| ProducerState::default()).collect();
        let queries = (0..2).map(|_| QueryState::default()).collect();
        Self { producers, queries, ..Self::default() }
    }

    /// The next write of somebody.
    fn next<R: AsyncRuntime>(&mut self, replicas: &Replicas<R>) -> Option<Write> {
        let draw = |below| replicas.router.draw(below);
        let length = draw(200) as usize;
        self.serial += 1;
        let serial = self.serial;
        let partition = |salt: u64| ((draw(u64::from(PARTITIONS)) + salt) % u64::from(PARTITIONS)) as u32;
        match draw(4) {
            0 => {
                let who = draw(3) as usize;
                let state = &mut self.producers[who];
                if let Some(pending) = &state.pending {
                    return Some(pending.clone());
                }
                let Some(id) = state.id else {
                    let entry = Entry { records: vec![Record::MintProducer], ..Entry::default() };
                    return Some(Write { serial, entry, who: Who::Producer(who) });
                };
                state.sequence += 1;
                let mut entry = plain(partition(0), serial, length);
                let checksum = payload_checksum(&entry.records);
                entry.producer = Some(Producer { id, sequence: state.sequence, checksum });
                let write = Write { serial, entry, who: Who::Producer(who) };
                state.pending = Some(write.clone());
                Some(write)
            }
            1 => {
                let who = draw(2) as usize;
                let state = &mut self.queries[who];
                if let Some(pending) = &state.pending {
                    return Some(pending.clone());
                }
                state.number += 1 + draw(2);
                let first = partition(0);
                let second = (first + 1 + draw(u64::from(PARTITIONS) - 1) as u32) % PARTITIONS;
                let entry = Entry {
                    batch: Some(BatchId { query: format!("query-{who}"), number: state.number }),
                    records: vec![append(first, serial, length), append(second, serial, length)],
                    ..Entry::default()
                };
                let write = Write { serial, entry, who: Who::Query(who) };
                state.pending = Some(write.clone());
                Some(write)
            }
            _ => Some(Write { serial, entry: plain(partition(0), serial, length), who: Who::Plain }),
        }
    }

    /// So many writes at once to whoever leads; says how many were acknowledged.
    pub(crate) async fn write<R: AsyncRuntime>(&mut self, replicas: &Replicas<R>, count: usize) -> usize {
        let back = replicas.router.draw(50);
        replicas.clock.store(1_000_000 + self.serial * 20 - back, Ordering::Relaxed);
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..count {
            let Some(write) = self.next(replicas) else { continue };
            // Writes of one producer or query come in order.
            if write.who == Who::Plain || writes.iter().all(|other| other.who != write.who) {
                writes.push(write);
            }
        }
        let Some(leader) = replicas.leader() else {
            R::sleep(Duration::from_millis(20)).await;
            return 0;
        };
        let replica = replicas.replica(leader);
        let outcomes = join_all(writes.iter().map(|write| replica.propose(write.entry.clone()))).await;
        let outcomes: Vec<_> = outcomes.into_iter().collect();
        let acknowledged = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        for (write, outcome) in writes.into_iter().zip(outcomes) {
            self.take(write, outcome);
        }
        if acknowledged == 0 {
            // One that cannot lead refuses at once.
            R::sleep(Duration::from_millis(5)).await;
        }
        acknowledged
    }

    fn take(&mut self, write: Write, outcome: Result<Verdict, ProposeError>) {
        let partitions = partitions_of(&write.entry);
        let outcome = match outcome {
            Ok(Verdict::Accepted(outcome) | Verdict::Duplicate(outcome)) => outcome,
            // The first try of a producer may come after its second, which must have landed then.
            Ok(Verdict::Refused(refusal @ Refusal::SequenceGap { .. })) => {
                panic!("{write:?}: {refusal}")
            }
            Ok(Verdict::Refused(refusal)) => panic!("{write:?}: {refusal}"),
            Err(error) => {
                if error.is_unknown() && write.who == Who::Plain {
                    self.unknown.insert(write.serial, partitions);
                }
                return;
            }
        };
        match write.who {
            Who::Plain => {}
            Who::Producer(who) => {
                let state = &mut self.producers[who];
                if let Some(minted) = outcome.minted {
                    state.id = Some(minted);
                    return;
                }
                state.pending = None;
            }
            Who::Query(who) => self.queries[who].pending = None,
        }
        self.done.insert(write.serial, partitions);
    }

    pub(crate) async fn write_until_done<R: AsyncRuntime>(&mut self, replicas: &Replicas<R>, count: usize) {
        let goal = self.done.len() + count;
        let begun = R::Instant::now();
        while self.done.len() < goal {
            self.write(replicas, 4).await;
            if begun.elapsed() > Duration::from_secs(30) {
                let all: Vec<_> = replicas.members.values().map(|member| member.replica.status()).collect();
                panic!("{} of {goal} written; {all:#?}", self.done.len());
            }
        }
    }

    /// Every writer gets its verdict.
    pub(crate) async fn finish<R: AsyncRuntime>(&mut self, replicas: &Replicas<R>) {
        let begun = R::Instant::now();
        let waits = |workload: &Self| {
            workload.producers.iter().any(|state| state.pending.is_some())
                || workload.queries.iter().any(|state| state.pending.is_some())
        };
        while waits(self) {
            self.write(replicas, 4).await;
            assert!(begun.elapsed() < Duration::from_secs(60), "writers wait for a verdict: {self:?}");
        }
    }

    /// Faults are over: all replicas agree, and have everything that was acknowledged, once.
    pub(crate) async fn check<R: AsyncRuntime>(&mut self, replicas: &mut Replicas<R>) {
        replicas.router.heal();
        for id in replicas.ids.clone() {
            replicas.disks[&id].heal();
            if !replicas.members.contains_key(&id) {
                replicas.restart(id).await;
            }
        }
        self.write_until_done(replicas, 3).await;
        self.finish(replicas).await;
        let last = replicas
            .wait_until("all replicas decided the same", || {
                let all = replicas.ids.iter().map(|id| replicas.replica(*id).status());
                let all: Vec<_> = all.map(|status| (status.applied, status.last)).collect();
                all.iter().all(|one| *one == all[0] && one.0 == one.1).then_some(all[0].0)
            })
            .await;
        let last = last.expect("something was written").index;
        replicas
            .wait_until("all logs of partitions work again", || {
                let works = |id: &u64| {
                    let machine = replicas.replica(*id).machine();
                    let log_works = |partition| {
                        machine.partition_log(partition).is_some_and(|log| log.failure().is_none())
                    };
                    machine.partition_ids().into_iter().all(log_works)
                };
                replicas.ids.iter().all(works).then_some(())
            })
            .await;
        let mut states = Vec::new();
        for id in &replicas.ids {
            let machine = replicas.replica(*id).machine();
            let ids = machine.partition_ids();
            machine.barrier(ClientId(1), &ids, last, Duration::from_secs(10)).await.unwrap();
            let mut hashes = Vec::new();
            for partition in &ids {
                let hash = machine.with_machine(*partition, |machine| machine.state_hash()).await;
                hashes.push((*partition, hash));
            }
            states.push((machine.verdict_bytes(), hashes));
        }
        for (id, state) in replicas.ids.iter().zip(&states) {
            assert_eq!(state.1, states[0].1, "APPLY-2: machines of node {id}");
            assert_eq!(state.0, states[0].0, "APPLY-2: verdict state of node {id}");
        }
        self.check_logs(replicas).await;
    }

    /// LOG-2, LOG-3, LOG-4, TXN-1, TXN-2.
    async fn check_logs<R: AsyncRuntime>(&self, replicas: &Replicas<R>) {
        for partition in (0..PARTITIONS).map(PartitionId) {
            let mut longest: BTreeMap<u64, AcceptedRecord> = BTreeMap::new();
            for id in &replicas.ids {
                let machine = replicas.replica(*id).machine();
                let Some(status) = machine.status(partition) else { continue };
                assert!(status.snapshot <= status.applied && status.applied == status.highest, "LOG-1");
                let log = machine.partition_log(partition).unwrap();
                let mut expected = log.first();
                let mut reader = log.reader(expected);
                while let Some(record) = reader.next().unwrap() {
                    assert_eq!(record.index, expected, "LOG-2: node {id}, partition {partition}");
                    expected = expected.next();
                    let known = longest.entry(record.index.0).or_insert_with(|| record.clone());
                    assert_eq!(*known, record, "LOG-4: node {id}, partition {partition}");
                }
                assert_eq!(expected, status.highest.next(), "LOG-2: node {id}, partition {partition}");
                self.check_once(*id, partition, &machine, &longest).await;
            }
        }
    }

    async fn check_once(
        &self,
        node: u64,
        partition: PartitionId,
        machine: &laminar_log::SegmentedStateMachine,
        records: &BTreeMap<u64, AcceptedRecord>,
    ) {
        let serials: Vec<u64> = if partition.0 % 2 == 1 {
            let all = machine.with_machine(partition, |machine| machine.scan()).await.unwrap();
            all.iter().map(|(key, _)| number(key)).collect()
        } else {
            let payload = |record: &AcceptedRecord| match &record.record.change {
                Change::Append(Append { payload: Payload::Inline(bytes), .. }) => Some(number(bytes)),
                _ => None,
            };
            records.values().filter_map(payload).collect()
        };
        let unique: BTreeSet<u64> = serials.iter().copied().collect();
        assert_eq!(unique.len(), serials.len(), "node {node}, partition {partition}: written twice");
        let rows = machine.status(partition).unwrap().next_offset;
        assert_eq!(rows, serials.len() as u64, "LOG-2: node {node}, partition {partition}: offsets");
        for (serial, _) in self.done.iter().filter(|(_, to)| to.contains(&partition.0)) {
            assert!(unique.contains(serial), "LOG-3: node {node}, partition {partition}: {serial} is lost");
        }
        for serial in &unique {
            let known = self.done.get(serial).or(self.unknown.get(serial));
            let known = known.is_some_and(|to| to.contains(&partition.0));
            assert!(known, "node {node}, partition {partition}: nobody wrote {serial}");
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    std::str::from_utf8(&bytes[..8]).unwrap().parse().unwrap()
}
