//! The last batch of each query, so that a batch is applied once (TXN-1). None is ever forgotten.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::types::{Outcome, Refusal};
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
        let last = LastBatch { number: batch.number, outcome };
        match self.table.get_mut(batch.query.as_str()) {
            Some(known) => *known = last,
            None => self.insert(batch.query.as_str().into(), last),
        }
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
