//! What must hold of a log's decisions, seen from outside: nothing but the entries and the answers is looked at.

use std::collections::BTreeMap;

use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_log::LogId;
use laminar_log::entry::{Change, Entry, Record};
use laminar_log::verdict::{AcceptedRecord, Decision, Outcome, Verdict};

/// Follows a log. Each check says which invariant does not hold.
#[derive(Default)]
pub(crate) struct Invariants {
    partitions: BTreeMap<PartitionId, Seen>,
    /// The producers' sequences that were taken, and what was answered then.
    sequences: BTreeMap<(u64, u64), Outcome>,
    /// The last batch of each query that was accepted, and what became of it.
    batches: BTreeMap<String, (u64, Outcome)>,
    minted: u64,
}

struct Seen {
    epoch: Epoch,
    owner: NodeId,
    index: u64,
    next_offset: u64,
    time_ms: u64,
    destroyed: bool,
}

impl Invariants {
    pub(crate) fn check(&mut self, id: LogId, entry: &Entry, decision: &Decision) -> Result<(), String> {
        let outcome = match &decision.verdict {
            Verdict::Accepted(outcome) => outcome,
            Verdict::Duplicate(_) | Verdict::Refused(_) if decision.accepted.is_empty() => {
                return self.check_duplicate(entry, &decision.verdict);
            }
            _ => return Err(format!("{id}: it was not accepted, and workers have something to do")),
        };
        for taken in &decision.accepted {
            if taken.log_id != id {
                return Err(format!("LOG-4: {id} gave out a record of {}", taken.log_id));
            }
            self.check_record(taken)?;
        }
        self.check_whole(id, entry, decision, outcome)?;
        if let Some(producer) = &entry.producer
            && self.sequences.insert((producer.id.0, producer.sequence), outcome.clone()).is_some()
        {
            return Err(format!("TXN-2: {id} applied {producer:?} again"));
        }
        for record in &entry.records {
            if let Record::ForgetQueries(begin) = record {
                self.forget(begin);
            }
        }
        if let Some(batch) = &entry.batch {
            let before = self.batches.insert(batch.query.clone(), (batch.number, outcome.clone()));
            if before.is_some_and(|(last, _)| last >= batch.number) {
                return Err(format!("TXN-1: {id} applied {batch:?} again or out of order"));
            }
        }
        match outcome.minted {
            Some(minted) if minted.0 <= self.minted => Err(format!("{id}: producer ids went back")),
            Some(minted) => {
                self.minted = minted.0;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A batch may come again once no partition that has its rows is there.
    fn forget(&mut self, begin: &str) {
        let partitions = &self.partitions;
        let is_there = |id: &PartitionId| partitions.get(id).is_some_and(|seen| !seen.destroyed);
        self.batches.retain(|query, (_, last)| {
            !query.starts_with(begin) || last.placed.iter().any(|placed| is_there(&placed.partition))
        });
    }

    /// What is called a duplicate was accepted before, with the same answer.
    fn check_duplicate(&mut self, entry: &Entry, verdict: &Verdict) -> Result<(), String> {
        let Verdict::Duplicate(outcome) = verdict else {
            return Ok(());
        };
        let sequence = entry.producer.map(|producer| (producer.id.0, producer.sequence));
        if let Some(before) = sequence.and_then(|sequence| self.sequences.get(&sequence)) {
            return if before == outcome { Ok(()) } else { Err("TXN-2: another answer".to_owned()) };
        }
        let last =
            entry.batch.as_ref().and_then(|batch| Some((batch.number, self.batches.get(&batch.query)?)));
        match last {
            Some((number, (last, before))) if number == *last && before == outcome => {
                self.sequences.extend(sequence.map(|sequence| (sequence, outcome.clone())));
                Ok(())
            }
            _ => Err(format!("TXN-1, TXN-2: {entry:?} is called a duplicate and was never accepted")),
        }
    }

    fn check_record(&mut self, taken: &AcceptedRecord) -> Result<(), String> {
        let record = &taken.record;
        let partition = record.partition;
        let Some(seen) = self.partitions.get_mut(&partition) else {
            if (taken.index.0, taken.first_offset) != (1, 0) {
                return Err(format!("LOG-2: partition {partition} begins at {}", taken.index));
            }
            let next_offset = rows(taken);
            let (epoch, owner, time_ms) = (record.epoch, record.owner, taken.time_ms);
            let seen = Seen { epoch, owner, index: 1, next_offset, time_ms, destroyed: false };
            self.partitions.insert(partition, seen);
            return Ok(());
        };
        if seen.destroyed {
            return Err(format!("EPOCH-1: partition {partition} came back"));
        }
        if taken.index.0 != seen.index + 1 || taken.first_offset != seen.next_offset {
            return Err(format!("LOG-2: partition {partition} has a gap or a repeat at {}", taken.index));
        }
        if taken.time_ms < seen.time_ms {
            return Err(format!("APPLY-2: the time of partition {partition} went back"));
        }
        let right = match record.change {
            Change::Fence(_) => record.epoch > seen.epoch,
            Change::Destroy => record.epoch >= seen.epoch,
            Change::Append(_) => (record.epoch, record.owner) == (seen.epoch, seen.owner),
            _ => record.epoch == seen.epoch,
        };
        if !right {
            return Err(format!("EPOCH-2: partition {partition} at {} took {record:?}", seen.epoch));
        }
        seen.index += 1;
        seen.next_offset += rows(taken);
        seen.time_ms = taken.time_ms;
        seen.epoch = record.epoch;
        seen.destroyed = record.change == Change::Destroy;
        if matches!(record.change, Change::Fence(_)) {
            seen.owner = record.owner;
        }
        Ok(())
    }

    /// All appends of an accepted entry are there, in its order, and the outcome says where.
    fn check_whole(
        &self,
        id: LogId,
        entry: &Entry,
        decision: &Decision,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let appends = entry.records.iter().filter_map(|record| match record {
            Record::Partition(record) if matches!(record.change, Change::Append(_)) => Some(record),
            _ => None,
        });
        let taken = decision.accepted.iter().filter(|taken| matches!(taken.record.change, Change::Append(_)));
        let taken: Vec<_> = taken.collect();
        let whole = appends.eq(taken.iter().map(|taken| &taken.record));
        let placed = outcome
            .placed
            .iter()
            .map(|placed| (placed.partition, placed.index, placed.first_offset, u64::from(placed.rows)));
        let places =
            taken.iter().map(|taken| (taken.record.partition, taken.index, taken.first_offset, rows(taken)));
        if whole && placed.eq(places) && outcome.index == id.index {
            return Ok(());
        }
        Err(format!("TXN-1: {id} took effect in part"))
    }
}

fn rows(taken: &AcceptedRecord) -> u64 {
    match &taken.record.change {
        Change::Append(append) => u64::from(append.rows),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use laminar_core::ids::LogIndex;
    use laminar_log::PartitionLogIndex;
    use laminar_log::entry::{Append, BatchId, Fence, PartitionRecord, Payload, Producer, ProducerId};
    use laminar_log::verdict::Placed;

    use super::*;

    /// An append of two rows to partition 0, by node 1 at epoch 5, as entry `index`.
    fn append(index: u64, place: u64, first_offset: u64) -> (LogId, Entry, Decision) {
        let log_id = LogId::new(1, index);
        let (partition, place) = (PartitionId(0), PartitionLogIndex(place));
        let payload = Payload::Inline(Bytes::new());
        let change = Change::Append(Append { rows: 2, create: None, payload });
        let record = PartitionRecord { partition, owner: NodeId(1), epoch: Epoch::new(5).unwrap(), change };
        let placed = vec![Placed { partition, index: place, first_offset, rows: 2 }];
        let outcome = Outcome { index: LogIndex(index), minted: None, placed };
        let entry = Entry {
            time_ms: 9,
            producer: Some(Producer { id: ProducerId(1), sequence: index, checksum: 0 }),
            batch: Some(BatchId { query: "q".to_owned(), number: index }),
            records: vec![Record::Partition(record.clone())],
        };
        let taken = AcceptedRecord { index: place, first_offset, log_id, time_ms: 9, record };
        (
            log_id,
            entry,
            Decision { verdict: Verdict::Accepted(outcome), accepted: vec![taken], positions: vec![] },
        )
    }

    /// What the checker says to the second entry of a log, changed like this.
    fn second(change: impl Fn(&mut (LogId, Entry, Decision))) -> Result<(), String> {
        let mut invariants = Invariants::default();
        let (id, entry, decision) = append(1, 1, 0);
        invariants.check(id, &entry, &decision)?;
        let mut step = append(2, 2, 2);
        change(&mut step);
        invariants.check(step.0, &step.1, &step.2)
    }

    #[test]
    fn every_violation_is_caught() {
        second(|_| {}).unwrap();
        type Step = (LogId, Entry, Decision);
        type Change = fn(&mut Step);
        let cases: [(&str, Change); 11] = [
            ("LOG-2", |step| *step = append(2, 3, 2)),
            ("LOG-2", |step| *step = append(2, 2, 1)),
            ("LOG-2", |step| *step = append(2, 1, 0)),
            ("LOG-4", |step| step.2.accepted[0].log_id = LogId::new(1, 1)),
            ("APPLY-2", |step| step.2.accepted[0].time_ms = 8),
            ("EPOCH-2", |step| step.2.accepted[0].record.epoch = Epoch::new(4).unwrap()),
            ("EPOCH-2", |step| step.2.accepted[0].record.owner = NodeId(2)),
            ("EPOCH-2", |step| {
                let fence = Fence { run: 0, metadata_index: 0 };
                step.2.accepted[0].record.change = super::Change::Fence(fence);
            }),
            ("TXN-1: 1-2 took effect in part", |step| step.2.accepted.clear()),
            ("TXN-1", |step| step.1.batch.as_mut().unwrap().number = 1),
            ("TXN-2", |step| step.1.producer.as_mut().unwrap().sequence = 1),
        ];
        for (at, (expected, change)) in cases.into_iter().enumerate() {
            let found = second(change).unwrap_err();
            assert!(found.starts_with(expected), "case {at}: {found}");
        }
        let refused = |step: &mut Step| step.2.verdict = Verdict::Duplicate(Outcome::default());
        assert!(second(refused).unwrap_err().contains("workers have something to do"));
        let invented = |step: &mut Step| {
            step.2 = Decision {
                verdict: Verdict::Duplicate(Outcome::default()),
                accepted: vec![],
                positions: vec![],
            };
        };
        assert!(second(invented).unwrap_err().contains("never accepted"));
    }
}
