//! The decision of one entry: first everything is checked, then everything stays.

use super::partitions::Origin;
use super::state::VerdictState;
use super::types::{Decision, Outcome, Placed, Refusal, Verdict};
use crate::entry::{Append, BatchId, Change, Entry, PartitionRecord, Payload, ProducerId, Record};
use crate::format::FormatError;
use crate::log_id::LogId;

impl VerdictState {
    /// Decides the entry at `id`. The answer follows from the entries before and from nothing else (APPLY-2).
    ///
    /// A refused entry leaves the state as it was, but for the last applied id. So does a duplicate, except that a batch
    /// which landed before takes the producer's sequence under which it comes again: its producer is told that
    /// it is there, and goes on to the next.
    ///
    /// In this order:
    ///
    /// 1. Of a producer: an append that landed before is answered as it was then, whatever the epoch is now; one that
    ///    does not follow the last is refused (TXN-2).
    /// 2. Epochs and owners of all records, each as the records before it leave the partition (EPOCH-2).
    /// 3. Of a query: the last batch is answered as it was then, and one below it is refused (TXN-1).
    /// 4. Limits of the partitions that it changes, ends that it expects, and blocks that have expired.
    pub fn decide(&mut self, id: LogId, entry: &Entry) -> Decision {
        if let Some(refusal) = self.advance(id) {
            return Decision::of(Verdict::Refused(refusal));
        }
        match self.judge(id, entry) {
            Ok(decision) => {
                self.partitions.keep();
                self.stages.keep();
                decision
            }
            Err(refusal) => {
                self.partitions.take_back();
                self.stages.take_back();
                Decision::of(Verdict::Refused(refusal))
            }
        }
    }

    /// Refuses the entry at `id`, whose bytes cannot be read.
    ///
    /// Every replica must come to the same answer. So an entry that a newer release wrote
    /// ([`FormatError::VersionTooNew`]) must not come here: replicas of that release would accept it. The
    /// replica has to stop before it, until it is upgraded.
    pub fn decide_unreadable(&mut self, id: LogId, error: FormatError) -> Decision {
        let refusal = self.advance(id).unwrap_or(Refusal::Unreadable(error));
        Decision::of(Verdict::Refused(refusal))
    }

    /// Passes over an entry that is not for partitions: a blank one, or a change of membership. Nothing happens if it was
    /// passed or decided before.
    pub fn skip_to(&mut self, id: LogId) {
        self.advance(id);
    }

    /// Each entry is decided once: an entry decided again would find its own traces.
    fn advance(&mut self, given: LogId) -> Option<Refusal> {
        match self.last_applied {
            Some(last) if given.index <= last.index => Some(Refusal::AlreadyDecided { given, last }),
            _ => {
                self.last_applied = Some(given);
                None
            }
        }
    }

    fn judge(&mut self, id: LogId, entry: &Entry) -> Result<Decision, Refusal> {
        entry.batch.as_ref().map_or(Ok(()), check_name)?;
        if let Some(producer) = &entry.producer
            && let Some(outcome) = self.producers.check(producer)?
        {
            return Ok(Decision::of(Verdict::Duplicate(outcome.clone())));
        }
        let mut decision = self.place(id, entry)?;
        if let Some(batch) = &entry.batch
            && let Some(outcome) = self.queries.check(batch, self.limits.queries_max)?
        {
            let outcome = outcome.clone();
            self.partitions.take_back();
            self.remember_append(id, entry, &outcome);
            return Ok(Decision::of(Verdict::Duplicate(outcome)));
        }
        self.pass_stages(entry)?;

        // From here on nothing is refused.
        if let Verdict::Accepted(outcome) = &mut decision.verdict {
            if entry.records.contains(&Record::MintProducer) {
                outcome.minted = Some(ProducerId(id.index.0));
            }
            self.remember_append(id, entry, outcome);
            for record in &entry.records {
                if let Record::ForgetQueries(begin) = record {
                    self.queries.forget(begin, |partition| self.partitions.get(partition).is_some());
                }
            }
            if let Some(batch) = &entry.batch {
                self.queries.remember(batch, outcome.clone());
            }
            if let Some(minted) = outcome.minted {
                self.producers.mint(minted, id.index, self.limits.producers_max);
            }
        }
        Ok(decision)
    }

    /// Epochs, owners, indices and offsets.
    fn place(&mut self, id: LogId, entry: &Entry) -> Result<Decision, Refusal> {
        let origin = Origin {
            limits: &self.limits,
            log_id: id,
            time_ms: entry.time_ms,
            batch_committed: entry
                .batch
                .as_ref()
                .map_or(Some(false), |batch| self.queries.is_committed(batch)),
        };
        let mut accepted = Vec::with_capacity(entry.records.len());
        let mut placed = Vec::with_capacity(entry.records.len());
        let mut positions = Vec::with_capacity(entry.records.len());
        for (position, record) in (0_u32..).zip(&entry.records) {
            let Record::Partition(record) = record else {
                continue;
            };
            let Some(taken) = self.partitions.place(&origin, record)? else {
                continue;
            };
            if let Change::Append(Append { rows, .. }) = record.change {
                let (index, first_offset) = (taken.index, taken.first_offset);
                placed.push(Placed { partition: record.partition, index, first_offset, rows });
            }
            accepted.push(taken);
            positions.push(position);
        }
        let outcome = Outcome { index: id.index, minted: None, placed };
        Ok(Decision { verdict: Verdict::Accepted(outcome), accepted, positions })
    }

    /// Blocks that expire, and blocks that are named, in the order of the entry.
    fn pass_stages(&mut self, entry: &Entry) -> Result<(), Refusal> {
        for record in &entry.records {
            match record {
                Record::ExpireStage(blocks) => self.stages.expire(blocks, self.limits.expired_blocks_max),
                Record::Partition(PartitionRecord {
                    change: Change::Append(Append { payload: Payload::Pointer(pointer), .. }),
                    ..
                }) => self.stages.check(pointer.block)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn remember_append(&mut self, id: LogId, entry: &Entry, outcome: &Outcome) {
        if let Some(producer) = &entry.producer {
            let window = self.limits.producer_window;
            self.producers.remember(producer, outcome.clone(), id.index, window);
        }
    }
}

impl Decision {
    /// A decision that gives workers nothing to do.
    fn of(verdict: Verdict) -> Self {
        Self { verdict, accepted: Vec::new(), positions: Vec::new() }
    }
}

/// A name that no bytes of an entry can have must not get into the state: its snapshot could not be read.
fn check_name(batch: &BatchId) -> Result<(), Refusal> {
    let (found, expected) = (batch.query.len(), BatchId::QUERY_BYTES_MAX);
    if (1..=expected).contains(&found) {
        return Ok(());
    }
    Err(Refusal::Unreadable(FormatError::Length { what: "name of a query", at: 0, found, expected }))
}
