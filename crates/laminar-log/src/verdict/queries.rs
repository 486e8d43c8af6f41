//! The last batch of each query, so that a batch is applied once (TXN-1).
//!
//! A query is forgotten only when nothing of it can be applied any more: with the partitions that it writes. Whoever has it
//! forgotten ([`Record::ForgetQueries`](crate::entry::Record::ForgetQueries)) has destroyed all of them before, in this log.
//! Ids of partitions are not used again, and epochs and partitions are looked at before queries are: so a batch that comes
//! late, whatever its number, is refused because its partitions are destroyed, and whether its query is known changes nothing.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use laminar_core::ids::PartitionId;

use super::types::{Outcome, Placed, Refusal};
use crate::entry::BatchId;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Queries {
    table: BTreeMap<Box<str>, LastBatch>,
}

/// The last batch of a query, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastBatch {
    pub(super) number: u64,
    pub(super) outcome: Outcome,
}

/// Appends that are remembered one by one. A commit of many tasks has more, and is remembered as long as its query.
const PLACED_MAX: usize = 1024;

/// The outcome with one place for appends of a partition that follow each other, if there are many.
fn short(mut outcome: Outcome) -> Outcome {
    if outcome.placed.len() <= PLACED_MAX {
        return outcome;
    }
    let mut joined: Vec<Placed> = Vec::new();
    let mut last: BTreeMap<PartitionId, usize> = BTreeMap::new();
    for placed in outcome.placed {
        let before = last.get(&placed.partition).map(|at| &mut joined[*at]);
        let follows =
            before.filter(|before| before.first_offset + u64::from(before.rows) == placed.first_offset);
        match follows.and_then(|before| Some((before.rows.checked_add(placed.rows)?, before))) {
            Some((rows, before)) => before.rows = rows,
            None => {
                last.insert(placed.partition, joined.len());
                joined.push(placed);
            }
        }
    }
    outcome.placed = joined;
    outcome
}

impl Queries {
    /// Whether this batch was committed. Only the last of a query is remembered: of one before it nobody knows, because a
    /// query may leave numbers out.
    pub(super) fn is_committed(&self, batch: &BatchId) -> Option<bool> {
        match self.last(&batch.query).map_or(Ordering::Greater, |last| batch.number.cmp(&last.number)) {
            Ordering::Greater => Some(false),
            Ordering::Equal => Some(true),
            Ordering::Less => None,
        }
    }

    /// What became of this batch if it is the last; nothing if it is new.
    pub(super) fn check(&self, batch: &BatchId, queries_max: u32) -> Result<Option<&Outcome>, Refusal> {
        let Some(last) = self.last(&batch.query) else {
            if self.table.len() >= queries_max as usize {
                return Err(Refusal::TooManyQueries { query: batch.query.clone(), limit: queries_max });
            }
            return Ok(None);
        };
        match batch.number.cmp(&last.number) {
            Ordering::Greater => Ok(None),
            Ordering::Equal => Ok(Some(&last.outcome)),
            Ordering::Less => Err(Refusal::BatchBackwards { batch: batch.clone(), last: last.number }),
        }
    }

    pub(super) fn remember(&mut self, batch: &BatchId, outcome: Outcome) {
        let last = LastBatch { number: batch.number, outcome: short(outcome) };
        match self.table.get_mut(batch.query.as_str()) {
            Some(known) => *known = last,
            None => self.insert(batch.query.as_str().into(), last),
        }
    }

    /// Forgets the queries whose names begin so, but for those whose last batch is in a partition that exists.
    pub(super) fn forget(&mut self, begin: &str, exists: impl Fn(PartitionId) -> bool) {
        let names = self.table.range::<str, _>((Bound::Included(begin), Bound::Unbounded));
        let over = |last: &LastBatch| !last.outcome.placed.iter().any(|placed| exists(placed.partition));
        let over: Vec<Box<str>> = names
            .take_while(|(query, _)| query.starts_with(begin))
            .filter(|(_, last)| over(last))
            .map(|(query, _)| query.clone())
            .collect();
        for query in over {
            self.table.remove(&query);
        }
    }

    /// The first query whose name is `name` or behind it.
    pub(super) fn first_from(&self, name: &str) -> Option<&str> {
        let mut names = self.table.range::<str, _>((Bound::Included(name), Bound::Unbounded));
        names.next().map(|(query, _)| &**query)
    }

    pub(super) fn insert(&mut self, query: Box<str>, last: LastBatch) {
        self.table.insert(query, last);
    }

    pub(super) fn last(&self, query: &str) -> Option<&LastBatch> {
        self.table.get(query)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &LastBatch)> {
        self.table.iter().map(|(query, last)| (&**query, last))
    }

    pub(super) fn last_query(&self) -> Option<&str> {
        self.table.last_key_value().map(|(query, _)| &**query)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use laminar_core::ids::LogIndex;

    use super::*;
    use crate::log_id::PartitionLogIndex;

    fn outcome(appends: u64) -> Outcome {
        let placed = (0..appends).map(|at| Placed {
            partition: PartitionId((at % 2) as u32),
            index: PartitionLogIndex(1 + at / 2),
            first_offset: 10 * (at / 2),
            rows: 10,
        });
        Outcome { index: LogIndex(9), minted: None, placed: placed.collect() }
    }

    #[test]
    fn a_commit_of_many_parts_is_remembered_by_partition() {
        assert_eq!(short(outcome(1024)), outcome(1024));
        let many = short(outcome(3000));
        let rows: Vec<_> = many.placed.iter().map(|placed| (placed.first_offset, placed.rows)).collect();
        assert_eq!(rows, [(0, 15_000), (0, 15_000)]);
        assert_eq!(many.index, LogIndex(9));
    }

    #[test]
    fn places_apart_and_more_rows_than_a_place_can_have_stay_apart() {
        let mut apart = outcome(2000);
        apart.placed[1000].first_offset += 1;
        apart.placed[1999].rows = u32::MAX;
        let short = short(apart.clone());
        let sum = |outcome: &Outcome| outcome.placed.iter().map(|placed| u64::from(placed.rows)).sum::<u64>();
        assert_eq!((short.placed.len(), sum(&short)), (5, sum(&apart)));
    }
}
