//! A deliberately simple model of the verdict: it keeps everything forever, copies itself before each entry, and works
//! out from the whole past what it needs to know.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use laminar_core::ids::{Epoch, LogIndex, NodeId, PartitionId};
use laminar_log::LogId;
use laminar_log::PartitionLogIndex;
use laminar_log::entry::{
    BatchId, Change, Entry, PartitionRecord, Payload, Producer, ProducerId, Record, TrimTo,
};
use laminar_log::verdict::{AcceptedRecord, Decision, Outcome, Placed, Refusal, Verdict, VerdictLimits};

pub(crate) mod entries;
pub(crate) mod invariants;

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) limits: VerdictLimits,
    /// Every accepted record of every partition there ever was.
    pub(crate) records: BTreeMap<PartitionId, Vec<AcceptedRecord>>,
    pub(crate) destroyed: BTreeSet<PartitionId>,
    pub(crate) producers: Vec<ModelProducer>,
    pub(crate) batches: Vec<(BatchId, Outcome)>,
    /// Every block that ever expired.
    pub(crate) expired: BTreeSet<u128>,
}

#[derive(Clone)]
pub(crate) struct ModelProducer {
    pub(crate) id: ProducerId,
    pub(crate) last_used: u64,
    pub(crate) appends: Vec<(u64, Outcome)>,
    pub(crate) forgotten: bool,
}

enum Answer {
    Duplicate(Outcome),
    /// Of its batch: its sequence is taken all the same.
    DuplicateBatch(Outcome),
    Refused(Refusal),
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Answer::Refused(refusal)
    }
}

impl Model {
    pub(crate) fn new(limits: VerdictLimits) -> Self {
        Self {
            limits,
            records: BTreeMap::new(),
            destroyed: BTreeSet::new(),
            producers: Vec::new(),
            batches: Vec::new(),
            expired: BTreeSet::new(),
        }
    }

    pub(crate) fn decide(&mut self, id: LogId, entry: &Entry) -> Decision {
        let before = self.clone();
        let answer = match self.apply(id, entry) {
            Ok(decision) => return decision,
            Err(answer) => answer,
        };
        *self = before;
        let verdict = match answer {
            Answer::Refused(refusal) => Verdict::Refused(refusal),
            Answer::Duplicate(outcome) => Verdict::Duplicate(outcome),
            Answer::DuplicateBatch(outcome) => {
                self.note_append(id, entry, &outcome);
                Verdict::Duplicate(outcome)
            }
        };
        Decision { verdict, accepted: vec![], positions: vec![] }
    }

    fn apply(&mut self, id: LogId, entry: &Entry) -> Result<Decision, Answer> {
        if let Some(producer) = &entry.producer {
            self.check_producer(producer)?;
        }
        let last = entry.batch.as_ref().and_then(|batch| self.last_batch(&batch.query));
        let committed = match last.as_ref().map(|(last, _)| entry.batch.as_ref().unwrap().number.cmp(last)) {
            Some(Ordering::Less) => None,
            Some(Ordering::Equal) => Some(true),
            Some(Ordering::Greater) | None => Some(false),
        };
        let mut accepted = vec![];
        for record in &entry.records {
            if let Record::Partition(record) = record {
                accepted.extend(self.apply_record(id, entry.time_ms, record, committed)?);
            }
        }
        if let Some(batch) = &entry.batch {
            match last {
                Some((last, outcome)) if last == batch.number => return Err(Answer::DuplicateBatch(outcome)),
                Some((last, _)) if last > batch.number => {
                    return Err(Refusal::BatchBackwards { batch: batch.clone(), last }.into());
                }
                Some(_) => {}
                None => {
                    let queries: BTreeSet<_> = self.batches.iter().map(|(batch, _)| &batch.query).collect();
                    let limit = self.limits.queries_max;
                    if queries.len() == limit as usize {
                        return Err(Refusal::TooManyQueries { query: batch.query.clone(), limit }.into());
                    }
                }
            }
        }
        for record in &entry.records {
            match record {
                Record::ExpireStage(blocks) => self.expired.extend(blocks.iter().map(|block| block.0)),
                Record::Partition(PartitionRecord { change: Change::Append(append), .. }) => {
                    if let Payload::Pointer(pointer) = &append.payload
                        && self.is_expired(pointer.block.0)
                    {
                        return Err(Refusal::StageExpired { block: pointer.block }.into());
                    }
                }
                _ => {}
            }
        }
        let mints = entry.records.iter().any(|record| matches!(record, Record::MintProducer));
        let placed = accepted.iter().filter_map(|taken| match &taken.record.change {
            Change::Append(append) => Some(Placed {
                partition: taken.record.partition,
                index: taken.index,
                first_offset: taken.first_offset,
                rows: append.rows,
            }),
            _ => None,
        });
        let outcome = Outcome {
            index: id.index,
            minted: mints.then_some(ProducerId(id.index.0)),
            placed: placed.collect(),
        };
        self.note_append(id, entry, &outcome);
        if mints {
            self.mint(id.index);
        }
        for record in &entry.records {
            if let Record::ForgetQueries(begin) = record {
                self.forget(begin);
            }
        }
        if let Some(batch) = &entry.batch {
            self.batches.push((batch.clone(), outcome.clone()));
        }
        Ok(Decision { verdict: Verdict::Accepted(outcome), accepted, positions: vec![] })
    }

    fn check_producer(&self, given: &Producer) -> Result<(), Answer> {
        let producer = given.id;
        let Some(known) = self.producers.iter().find(|known| known.id == producer && !known.forgotten) else {
            let forgotten = self.producers.iter().filter(|known| known.forgotten).map(|known| known.id).max();
            let forgotten = forgotten.unwrap_or(ProducerId(0));
            return Err(Refusal::UnknownProducer { producer, forgotten }.into());
        };
        let (sequence, last) = (given.sequence, known.appends.len() as u64);
        if sequence == last + 1 {
            return Ok(());
        }
        if sequence == 0 || sequence > last {
            return Err(Refusal::SequenceGap { producer, given: sequence, last }.into());
        }
        let (checksum, outcome) = &known.appends[sequence as usize - 1];
        if *checksum == given.checksum && sequence + u64::from(self.limits.producer_window) > last {
            return Err(Answer::Duplicate(outcome.clone()));
        }
        Err(Refusal::SequenceReused { producer, given: sequence }.into())
    }

    fn note_append(&mut self, id: LogId, entry: &Entry, outcome: &Outcome) {
        if let Some(producer) = &entry.producer {
            let known = self.producers.iter_mut().find(|known| known.id == producer.id).unwrap();
            known.appends.push((producer.checksum, outcome.clone()));
            known.last_used = id.index.0;
        }
    }

    fn mint(&mut self, at: LogIndex) {
        self.producers.push(ModelProducer {
            id: ProducerId(at.0),
            last_used: at.0,
            appends: vec![],
            forgotten: false,
        });
        let mut known: Vec<_> = self.producers.iter_mut().filter(|known| !known.forgotten).collect();
        if known.len() > self.limits.producers_max as usize {
            known.sort_by_key(|known| (known.last_used, known.id));
            known[0].forgotten = true;
        }
    }

    /// One that expired, or that is not above the smallest of those which no longer fit.
    pub(crate) fn is_expired(&self, block: u128) -> bool {
        let floor = self.expired.iter().rev().nth(self.limits.expired_blocks_max as usize);
        self.expired.contains(&block) || floor.is_some_and(|floor| block <= *floor)
    }

    /// Queries go whose last batch put rows into no partition that exists.
    fn forget(&mut self, begin: &str) {
        let live: BTreeSet<PartitionId> = self.live().collect();
        let queries: BTreeSet<String> = self.batches.iter().map(|(batch, _)| batch.query.clone()).collect();
        for query in queries.into_iter().filter(|query| query.starts_with(begin)) {
            let (_, last) = self.last_batch(&query).expect("it has batches");
            if last.placed.iter().all(|placed| !live.contains(&placed.partition)) {
                self.batches.retain(|(batch, _)| batch.query != query);
            }
        }
    }

    pub(crate) fn last_batch(&self, query: &str) -> Option<(u64, Outcome)> {
        let last = self.batches.iter().rev().find(|(batch, _)| batch.query == query);
        last.map(|(batch, outcome)| (batch.number, outcome.clone()))
    }

    fn apply_record(
        &mut self,
        id: LogId,
        time_ms: u64,
        record: &PartitionRecord,
        committed: Option<bool>,
    ) -> Result<Option<AcceptedRecord>, Refusal> {
        match self.check_record(record, committed) {
            Ok(None) => Ok(None),
            Ok(Some(change)) => {
                let past = self.records.entry(record.partition).or_default();
                let taken = AcceptedRecord {
                    index: PartitionLogIndex(past.len() as u64 + 1),
                    first_offset: next_offset(past),
                    log_id: id,
                    time_ms: past.last().map_or(time_ms, |last| last.time_ms.max(time_ms)),
                    record: PartitionRecord { change, ..record.clone() },
                };
                past.push(taken.clone());
                if record.change == Change::Destroy {
                    self.destroyed.insert(record.partition);
                }
                Ok(Some(taken))
            }
            Err((refusal, is_limit)) => {
                if is_limit && committed != Some(false) {
                    return Ok(None);
                }
                Err(refusal)
            }
        }
    }

    /// The change that takes effect, or why none does, and whether that is for a limit.
    fn check_record(
        &mut self,
        record: &PartitionRecord,
        batch_committed: Option<bool>,
    ) -> Result<Option<Change>, (Refusal, bool)> {
        let partition = record.partition;
        if self.destroyed.contains(&partition) {
            return match record.change {
                Change::Destroy => Ok(None),
                _ => Err((Refusal::Destroyed { partition }, false)),
            };
        }
        let exists = self.live().filter(|id| *id != partition).count();
        let Some(past) = self.records.get(&partition) else {
            let makes = match &record.change {
                Change::Create(_) => true,
                Change::Append(append) => append.create.is_some(),
                Change::Destroy => {
                    self.destroyed.insert(partition);
                    return Ok(None);
                }
                _ => false,
            };
            let limit = self.limits.partitions_max;
            return match makes {
                false => Err((Refusal::UnknownPartition { partition }, false)),
                true if exists >= limit as usize => {
                    Err((Refusal::TooManyPartitions { partition, limit }, true))
                }
                true => Ok(Some(record.change.clone())),
            };
        };
        let (current, owner, since_ms) = ownership(past);
        let stale = Refusal::StaleEpoch {
            partition,
            given: record.epoch,
            given_owner: record.owner,
            current,
            owner,
            since_ms,
            batch_committed,
        };
        let (given, highest) = (record.owner, past.len() as u64);
        match &record.change {
            Change::Create(_) => Ok(None),
            Change::Fence(_) => Ok((record.epoch > current).then(|| record.change.clone())),
            Change::Destroy if record.epoch < current => Err((stale, false)),
            Change::Destroy => Ok(Some(Change::Destroy)),
            _ if record.epoch != current => Err((stale, false)),
            Change::Append(_) | Change::ExpectEnd(_) if given != owner => {
                Err((Refusal::NotOwned { partition, given, owner, batch_committed }, false))
            }
            Change::Append(_) => Ok(Some(record.change.clone())),
            Change::ExpectEnd(expected) => {
                let (expected, end) = (*expected, next_offset(past));
                if expected == end {
                    return Ok(None);
                }
                Err((Refusal::EndMoved { partition, expected, end }, true))
            }
            Change::Trim(to) => {
                let to = match to {
                    TrimTo::Offset(offset) => *offset,
                    TrimTo::End => u64::MAX,
                };
                let to = to.min(next_offset(past));
                Ok((to > start_offset(past)).then_some(Change::Trim(TrimTo::Offset(to))))
            }
            Change::Skip(index) => {
                let (last, limit) = (PartitionLogIndex(highest), self.limits.skips_max);
                if !(1..=highest).contains(&index.0) {
                    return Err((Refusal::NothingToSkip { partition, index: *index, last }, true));
                }
                let skipped = skipped(past);
                if skipped.contains(index) {
                    return Ok(None);
                }
                if skipped.len() == limit as usize {
                    return Err((Refusal::TooManySkips { partition, limit }, true));
                }
                Ok(Some(record.change.clone()))
            }
        }
    }

    /// Partitions that exist.
    pub(crate) fn live(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.records.keys().copied().filter(|id| !self.destroyed.contains(id))
    }
}

/// Epoch, owner and since when.
pub(crate) fn ownership(past: &[AcceptedRecord]) -> (Epoch, NodeId, u64) {
    let fence = past.iter().rev().find(|taken| matches!(taken.record.change, Change::Fence(_)));
    let last = fence.unwrap_or(&past[0]);
    (last.record.epoch, last.record.owner, last.time_ms)
}

pub(crate) fn next_offset(past: &[AcceptedRecord]) -> u64 {
    let rows = past.iter().map(|taken| match &taken.record.change {
        Change::Append(append) => u64::from(append.rows),
        _ => 0,
    });
    rows.sum()
}

pub(crate) fn start_offset(past: &[AcceptedRecord]) -> u64 {
    let trims = past.iter().filter_map(|taken| match &taken.record.change {
        Change::Trim(TrimTo::Offset(offset)) => Some(*offset),
        _ => None,
    });
    trims.max().unwrap_or(0)
}

pub(crate) fn skipped(past: &[AcceptedRecord]) -> BTreeSet<PartitionLogIndex> {
    let skips = past.iter().filter_map(|taken| match &taken.record.change {
        Change::Skip(index) => Some(*index),
        _ => None,
    });
    skips.collect()
}
