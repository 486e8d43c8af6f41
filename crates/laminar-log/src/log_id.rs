//! Places in the logs, and the vote of a replica.

use std::fmt;

use laminar_core::ids::{LogIndex, NodeId};
use serde::Serialize;

/// A place in the Raft log, and the term of the leader that put an entry there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct LogId {
    /// The leader's term; at most one leader has it.
    pub term: u64,
    /// The place.
    pub index: LogIndex,
}

impl LogId {
    /// The place `index` as the leader of `term` filled it.
    pub fn new(term: u64, index: u64) -> Self {
        Self { term, index: LogIndex(index) }
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.index)
    }
}

/// A place in the log of one partition. The first record has 1; 0 means that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct PartitionLogIndex(pub u64);

impl PartitionLogIndex {
    /// Before the first record.
    pub const NONE: PartitionLogIndex = PartitionLogIndex(0);

    /// The place behind this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for PartitionLogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whom a replica gave its vote in a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Vote {
    /// The term.
    pub term: u64,
    /// The candidate, or the leader.
    pub node: NodeId,
    /// Whether a quorum gave it: then it is the leader.
    pub committed: bool,
}
