//! The ownership history of a partition: what `why` prints.

use std::collections::VecDeque;
use std::fmt;

use crate::ids::{Epoch, LogIndex, NodeId};

/// Events kept of a partition; the oldest goes first.
pub const HISTORY_PER_PARTITION_MAX: usize = 16;

/// Why an ownership changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnershipCause {
    /// The partition came to be.
    Created,
    /// A plan gave it to a node.
    Assigned,
    /// A node took it: a claim, or the end of a move.
    Acquired,
    /// Its owner let go of it and still stands as owner, until the next one takes it.
    Released,
    /// It lost its owner and waits for one.
    Unassigned,
}

impl OwnershipCause {
    /// The name users read.
    pub fn as_str(self) -> &'static str {
        match self {
            OwnershipCause::Created => "created",
            OwnershipCause::Assigned => "assigned",
            OwnershipCause::Acquired => "acquired",
            OwnershipCause::Released => "released",
            OwnershipCause::Unassigned => "unassigned",
        }
    }
}

impl fmt::Display for OwnershipCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One step in the life of a partition's ownership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnershipEvent {
    /// The epoch from this step on.
    pub epoch: Epoch,
    /// The owner from this step on.
    pub owner: NodeId,
    /// The owner before; [`NodeId::UNASSIGNED`] when the partition was created.
    pub previous_owner: NodeId,
    /// Why.
    pub cause: OwnershipCause,
    /// Time of the entry, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The entry.
    pub log_index: LogIndex,
}

/// The newest events of one partition, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct History {
    events: VecDeque<OwnershipEvent>,
}

impl History {
    /// Adds the newest event; returns the one that had to go.
    pub(super) fn push(&mut self, event: OwnershipEvent) -> Option<OwnershipEvent> {
        let evicted =
            if self.events.len() == HISTORY_PER_PARTITION_MAX { self.events.pop_front() } else { None };
        self.events.push_back(event);
        evicted
    }

    /// Takes back the last [`push`](Self::push), given what it returned.
    pub(super) fn undo_push(&mut self, evicted: Option<OwnershipEvent>) {
        self.events.pop_back();
        if let Some(oldest) = evicted {
            self.events.push_front(oldest);
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &OwnershipEvent> + ExactSizeIterator {
        self.events.iter()
    }

    pub(super) fn newest(&self) -> Option<&OwnershipEvent> {
        self.events.back()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(epoch: u64) -> OwnershipEvent {
        OwnershipEvent {
            epoch: Epoch::new(epoch).unwrap(),
            owner: NodeId(epoch),
            previous_owner: NodeId(epoch - 1),
            cause: OwnershipCause::Assigned,
            time_ms: 0,
            log_index: LogIndex(epoch),
        }
    }

    #[test]
    fn a_full_history_forgets_its_oldest_event_and_takes_it_back_on_undo() {
        let mut history = History::default();
        for epoch in 1..=HISTORY_PER_PARTITION_MAX as u64 {
            assert_eq!(history.push(event(epoch)), None);
        }
        let before = history.clone();
        let evicted = history.push(event(17));
        assert_eq!(evicted, Some(event(1)));
        assert_eq!(history.iter().next(), Some(&event(2)));
        history.undo_push(evicted);
        assert_eq!(history, before);
    }
}
