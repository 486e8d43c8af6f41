//! What an operator should know of: partitions that stop and go on.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use laminar_core::ids::PartitionId;

use crate::log_id::PartitionLogIndex;

/// Something that happened to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionEvent {
    /// A record could not be applied; the partition waits for `resume` or for a skip record.
    Paused {
        /// The partition.
        partition: PartitionId,
        /// The record.
        index: PartitionLogIndex,
        /// Why.
        reason: String,
    },
    /// It goes on.
    Resumed {
        /// The partition.
        partition: PartitionId,
    },
    /// The partition's own log failed; it is opened again and redone from the segmented log.
    LogFailed {
        /// The partition.
        partition: PartitionId,
        /// Why.
        reason: String,
    },
    /// The partition's own log has everything again.
    LogRepaired {
        /// The partition.
        partition: PartitionId,
    },
}

/// The last events, up to a bound.
#[derive(Debug)]
pub(crate) struct Events {
    max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<PartitionEvent>,
    dropped: u64,
}

impl Events {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, kept: Mutex::default() }
    }

    pub(crate) fn push(&self, event: PartitionEvent) {
        tracing::warn!(?event, "partition event");
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.events.len() >= self.max {
            kept.events.pop_front();
            kept.dropped += 1;
        }
        kept.events.push_back(event);
    }

    /// The events since the last call, and how many were dropped before them.
    pub(crate) fn take(&self) -> (Vec<PartitionEvent>, u64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = std::mem::take(&mut kept.dropped);
        (kept.events.drain(..).collect(), dropped)
    }
}
