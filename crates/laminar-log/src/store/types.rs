//! What the Raft log holds and says about itself.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::{AofConfig, CutTail, Durability};

use crate::log_id::{LogId, Vote};

/// One entry of the Raft log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its place.
    pub id: LogId,
    /// What it holds.
    pub payload: EntryPayload,
}

impl LogEntry {
    /// Bytes of its payload.
    pub fn payload_bytes(&self) -> u64 {
        self.payload.bytes().map_or(0, |bytes| bytes.len() as u64)
    }
}

/// What an entry of the Raft log holds. The log does not look into it.
#[derive(Clone, PartialEq, Eq)]
pub enum EntryPayload {
    /// Nothing: a leader writes one at the start of its term.
    Blank,
    /// An encoded [`Entry`](crate::entry::Entry), or whatever the group agrees on.
    Normal(Bytes),
    /// The members of the group.
    Membership(Bytes),
}

impl EntryPayload {
    /// Its bytes, if it has any.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            EntryPayload::Blank => None,
            EntryPayload::Normal(bytes) | EntryPayload::Membership(bytes) => Some(bytes),
        }
    }
}

impl fmt::Debug for EntryPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryPayload::Blank => f.write_str("Blank"),
            EntryPayload::Normal(bytes) => write!(f, "Normal({} bytes)", bytes.len()),
            EntryPayload::Membership(bytes) => write!(f, "Membership({} bytes)", bytes.len()),
        }
    }
}

/// How the Raft log is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentedLogConfig {
    /// Its files. Appends are synced at once, whatever is said here.
    pub files: AofConfig,
    /// Payload bytes of the newest entries that are kept in memory, for replication and apply.
    pub cache_bytes_max: u64,
    /// How long closing waits for the disk.
    pub close_wait: Duration,
}

impl Default for SegmentedLogConfig {
    fn default() -> Self {
        Self {
            files: AofConfig { durability: Durability::Synced, ..AofConfig::default() },
            cache_bytes_max: 8 << 20,
            close_wait: Duration::from_secs(30),
        }
    }
}

/// What opening the Raft log found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOpened {
    /// What the log holds, all of it on disk.
    pub state: StoreState,
    /// Where something was cut that had never been synced. A replica that sees this neither votes nor acknowledges
    /// until it has caught up.
    pub cut: Option<CutTail>,
    /// Records that were read to find the state.
    pub records_read: u64,
    /// Records that were not known to be on disk, and were written once more and synced.
    pub records_rewritten: u64,
}

/// Where the Raft log stands: `purged <= durable <= last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreState {
    /// The last entry that was purged.
    pub purged: Option<LogId>,
    /// The last entry; if there is none, the last that was purged.
    pub last: Option<LogId>,
    /// Whom this replica voted for.
    pub vote: Option<Vote>,
    /// The last entry known to be committed; may be behind after a crash.
    pub committed: Option<LogId>,
    /// The last entry that is on disk. It falls only when a truncation takes entries away, which were never committed.
    pub durable: Option<LogId>,
}
