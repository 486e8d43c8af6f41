//! The Raft log: entries, vote, committed index and purge point in one append-only file set.
//!
//! The files are a log of *operations* and are never cut at the back (`format.rs`). When Raft takes entries back, that
//! is one more record, so it is ordered with the entries that replace them and cannot endanger the vote. Opening
//! replays the operations (`open.rs`). In memory are the places of the entries (`index.rs`), their sizes (`sizes.rs`), the
//! newest entries (`tail.rs`), and the state.
//!
//! ```text
//!  files   entry 1 | entry 2 | vote | entry 3 | truncate after 1 | entry 2' | entry 3' | state, purged 1 | ...
//!                                                                  ^
//!                                                                  the first that is still needed
//!  log                                              (1 purged)  2', 3'
//! ```
//!
//! Purging first writes the whole state and only when that is on disk gives up older records: a crash in between
//! finds the vote twice rather than never.

mod format;
mod index;
mod open;
mod read;
mod sizes;
mod tail;
mod types;
mod write;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laminar_aof::{Aof, AofError, Committer, SegmentInfo, Ticket};

use self::index::Index;
use self::sizes::Sizes;
use self::tail::Tail;
pub use self::types::{EntryPayload, LogEntry, SegmentedLogConfig, StoreOpened, StoreState};
use crate::error::LogError;
use crate::log_id::{LogId, Vote};

/// The Raft log of a group, on disk.
///
/// Clones are the same log. Whatever returns a [`Ticket`] has taken effect for readers at once, and is on disk when
/// the ticket says so; tickets are fulfilled in the order in which they were given out. After a failed write or sync
/// everything returns that failure until the log is reopened (LOG-6). When the last clone is dropped the log is closed.
#[derive(Clone)]
pub struct SegmentedLogStore {
    inner: Arc<Inner>,
}

struct Inner {
    /// ORDER: taken before any lock of `aof`, so that operations are in the files in the order of the memory.
    state: Mutex<State>,
    aof: Aof,
    config: SegmentedLogConfig,
}

/// The log in memory.
#[derive(Debug)]
struct State {
    index: Index,
    sizes: Sizes,
    tail: Tail,
    vote: Option<Vote>,
    committed: Option<LogId>,
    /// Whether `committed` still has to be written.
    committed_waits: bool,
    purged: Option<LogId>,
    /// What can go once the state record of the last purge is on disk.
    freeing: Option<Freeing>,
}

/// Records before `needed` are of no use once that of `sequence`, a state, is on disk.
#[derive(Debug, Clone, Copy)]
struct Freeing {
    sequence: u64,
    needed: u64,
}

/// Whether an entry can follow the last one. The first of all may have any index.
fn follows(last: Option<LogId>, id: LogId) -> bool {
    id.index.0 < u64::MAX && last.is_none_or(|last| id.index.0 == last.index.0 + 1 && id.term >= last.term)
}

impl State {
    fn new(config: &SegmentedLogConfig) -> Self {
        Self {
            index: Index::default(),
            sizes: Sizes::default(),
            tail: Tail::new(config.cache_bytes_max),
            vote: None,
            committed: None,
            committed_waits: false,
            purged: None,
            freeing: None,
        }
    }

    fn last(&self) -> Option<LogId> {
        self.index.last().or(self.purged)
    }

    /// Takes an entry that has this place in the files.
    fn push(&mut self, entry: LogEntry, sequence: u64) {
        self.index.push(entry.id, sequence);
        self.sizes.push(entry.id.index.0, entry.payload_bytes());
        self.tail.push(entry);
    }

    fn truncate(&mut self, after: Option<u64>) {
        let from = after.map_or(0, |index| index.saturating_add(1));
        self.index.truncate(from);
        self.sizes.truncate(from);
        self.tail.truncate(from);
    }

    fn purge(&mut self, through: LogId) {
        let before = through.index.0.saturating_add(1);
        self.index.purge(before);
        self.sizes.purge(before);
        self.tail.purge(before);
        self.purged = Some(through);
    }

    fn no_entry(&self, index: u64) -> LogError {
        let range = self.index.range();
        LogError::NoEntry { index, first: range.start, last: range.end.saturating_sub(1) }
    }
}

impl SegmentedLogStore {
    /// Opens the log in a folder of its own, or makes an empty one. What is reported is on disk.
    ///
    /// # Errors
    ///
    /// Corrupt, if a record that was on disk is damaged, missing or does not make sense. Invalid, Overloaded and
    /// Unavailable as [`Aof::open`].
    pub fn open(
        committer: &Committer,
        dir: &Path,
        config: SegmentedLogConfig,
    ) -> Result<(Self, StoreOpened), LogError> {
        open::open(committer, dir, config, true)
    }

    /// Opens the log to read it, and changes nothing.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_read_only(
        committer: &Committer,
        dir: &Path,
        config: SegmentedLogConfig,
    ) -> Result<(Self, StoreOpened), LogError> {
        open::open(committer, dir, config, false)
    }

    fn state_now(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the log stands.
    pub fn state(&self) -> StoreState {
        let state = self.state_now();
        // A snapshot has what was purged, and that is on disk.
        let durable = state.index.last_before(self.inner.aof.synced()).or(state.purged);
        StoreState {
            purged: state.purged,
            last: state.last(),
            vote: state.vote,
            committed: state.committed,
            durable,
        }
    }

    /// Whom this replica voted for.
    pub fn vote(&self) -> Option<Vote> {
        self.state_now().vote
    }

    /// The last entry known to be committed.
    pub fn committed(&self) -> Option<LogId> {
        self.state_now().committed
    }

    /// The segments that hold its records, in order.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.inner.aof.segments()
    }

    /// The records of the files, also those that say something else than an entry; and of these, how far they are
    /// known to be on disk.
    pub fn sequences(&self) -> (Range<u64>, u64) {
        (self.inner.aof.sequences(), self.inner.aof.synced())
    }

    /// Why the log does not take any more, if it does not: it must be reopened (LOG-6).
    pub fn failure(&self) -> Option<AofError> {
        self.inner.aof.failure()
    }

    /// A ticket that is fulfilled when the entries up to this index are on disk; none if they are already.
    ///
    /// Raft commits an entry that a quorum has on disk, and this replica need not be in it: whoever applies an entry
    /// waits here first, so that `applied <= durable` (LOG-1).
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn until_durable(&self, index: u64) -> Result<Option<Ticket>, LogError> {
        if self.state().durable.is_some_and(|durable| durable.index.0 >= index) {
            return Ok(None);
        }
        self.sync().map(Some)
    }

    /// The entries of `range` that there are, but no more than `bytes_max` of payload after the first.
    ///
    /// # Errors
    ///
    /// Corrupt, if an entry is not what was written. Unavailable, if the files cannot be read.
    pub fn read(&self, range: Range<u64>, bytes_max: u64) -> Result<Vec<LogEntry>, LogError> {
        read::read(&self.inner, range, bytes_max)
    }

    /// The same, if it can be had without touching the files.
    pub fn read_cached(&self, range: Range<u64>, bytes_max: u64) -> Option<Vec<LogEntry>> {
        read::read_cached(&self.state_now(), range, bytes_max)
    }

    /// The indices that have an entry.
    pub fn indices(&self) -> Range<u64> {
        self.state_now().index.range()
    }

    /// One entry.
    ///
    /// # Errors
    ///
    /// Internal, if the log does not have it. Else as [`read`](Self::read).
    pub fn entry(&self, index: u64) -> Result<LogEntry, LogError> {
        let found = self.read(index..index.saturating_add(1), 0)?;
        found.into_iter().next().ok_or_else(|| self.state_now().no_entry(index))
    }

    /// The place of an entry, with its term; none if the log does not have it.
    pub fn id(&self, index: u64) -> Option<LogId> {
        self.state_now().index.id(index)
    }

    /// How many bytes of the files the entries after one and up to another take, about: up to an entry and 64 KiB less.
    pub fn bytes_between(&self, after: u64, through: u64) -> u64 {
        self.state_now().sizes.between(after, through)
    }

    /// The last entry up to `through` behind which there are no more than about `kept_bytes` up to there; none if there
    /// are no more in all.
    pub fn before_last_bytes(&self, through: u64, kept_bytes: u64) -> Option<u64> {
        self.state_now().sizes.before_last(through, kept_bytes)
    }

    /// The last entry of each term, of those in `range`.
    pub fn last_of_terms(&self, range: Range<u64>) -> Vec<LogId> {
        self.state_now().index.last_of_terms(range)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.committed_waits {
            // Closing syncs it; a lost one is harmless.
            drop(self.aof.append(vec![format::encode_committed(state.committed)]));
        }
    }
}

impl fmt::Debug for SegmentedLogStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentedLogStore")
            .field("files", &self.inner.aof)
            .field("state", &self.state())
            .finish()
    }
}

#[cfg(test)]
mod tests;
