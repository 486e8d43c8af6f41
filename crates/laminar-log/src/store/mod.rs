//! The Raft log: entries, vote, committed index and purge point in one append-only file set.
//!
//! The files are a log of *operations* and are never cut at the back (`format.rs`). When Raft takes entries back, that
//! is one more record, so it is ordered with the entries that replace them and cannot endanger the vote. Opening
//! replays the operations (`open.rs`). In memory are the places of the entries (`index.rs`), the newest entries
//! (`tail.rs`), and the state.
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
mod tail;
mod types;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use laminar_aof::{Aof, AofError, Committer, Ticket};

use self::index::Index;
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

    fn truncate(&mut self, after: Option<u64>) {
        let from = after.map_or(0, |index| index.saturating_add(1));
        self.index.truncate(from);
        self.tail.truncate(from);
    }

    fn purge(&mut self, through: LogId) {
        let before = through.index.0.saturating_add(1);
        self.index.purge(before);
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

    /// Why the log does not take any more, if it does not: it must be reopened (LOG-6).
    pub fn failure(&self) -> Option<AofError> {
        self.inner.aof.failure()
    }

    /// The most payload bytes that one [`append`](Self::append) should bring, so that it never waits for itself.
    pub fn append_bytes_max(&self) -> u64 {
        self.inner.config.files.pending_bytes_max / 2
    }

    /// Appends entries, which can be read at once. After a crash any first part of them may be there.
    ///
    /// # Errors
    ///
    /// Internal, if they do not follow the last one. Overloaded, if too much waits to be written: wait for a ticket,
    /// [`sync`](Self::sync) gives one. Invalid, if an entry is too large. What stopped the log, if it has failed.
    pub fn append(&self, entries: Vec<LogEntry>) -> Result<Ticket, LogError> {
        let mut state = self.state_now();
        let mut last = state.last();
        for LogEntry { id, .. } in &entries {
            if !follows(last, *id) {
                return Err(LogError::NotConsecutive { given: *id, last });
            }
            last = Some(*id);
        }
        let bytes: u64 = entries.iter().map(LogEntry::payload_bytes).sum();
        let headers = entries.len() * format::ENTRY_BYTES_MAX;
        // A batch that is too large is refused below; there is no need to make room for it.
        let capacity = bytes.min(self.inner.config.files.pending_bytes_max) as usize + headers;
        let mut buffer = BytesMut::with_capacity(capacity);
        let mut committed = state.committed.filter(|_| state.committed_waits);
        let (mut records, mut kept) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
        for entry in &entries {
            let (record, entry) = format::encode_entry(&mut buffer, entry, committed.take());
            records.push(record);
            kept.push(entry);
        }
        let ticket = self.put(&mut state, records)?;
        if !kept.is_empty() {
            state.committed_waits &= state.committed.is_none();
        }
        for (entry, sequence) in kept.into_iter().zip(ticket.sequences()) {
            state.index.push(entry.id, sequence);
            state.tail.push(entry);
        }
        Ok(ticket)
    }

    /// Remembers whom this replica voted for. The vote must not be told before the ticket is fulfilled.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn save_vote(&self, vote: Vote) -> Result<Ticket, LogError> {
        let mut state = self.state_now();
        let ticket = self.write(&mut state, format::encode_vote(vote))?;
        state.vote = Some(vote);
        Ok(ticket)
    }

    /// Remembers what is committed. It is written together with whatever comes next, and costs no sync of its own: a
    /// replica that forgets it learns it again from the leader.
    pub fn save_committed(&self, committed: Option<LogId>) {
        let mut state = self.state_now();
        state.committed_waits |= state.committed != committed;
        state.committed = committed;
    }

    /// Writes what is committed if that still waits: for a log that has become idle, and before it is closed.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn flush_committed(&self) -> Result<Option<Ticket>, LogError> {
        let mut state = self.state_now();
        if !state.committed_waits {
            self.free(&mut state)?;
            return Ok(None);
        }
        let record = format::encode_committed(state.committed);
        let ticket = self.put(&mut state, vec![record])?;
        state.committed_waits = false;
        Ok(Some(ticket))
    }

    /// Takes back the entries after this one, or all there are. They never come back once the ticket is fulfilled, nor
    /// beside any entry that is appended later.
    ///
    /// # Errors
    ///
    /// Internal, if entries were purged that would have to go. Else as [`sync`](Self::sync).
    pub fn truncate_after(&self, last: Option<LogId>) -> Result<Ticket, LogError> {
        let mut state = self.state_now();
        let after = last.map(|last| last.index.0);
        if after < state.purged.map(|purged| purged.index.0) {
            return Err(state.no_entry(after.unwrap_or(0)));
        }
        if after >= state.index.last().map(|last| last.index.0) {
            drop(state);
            return self.sync();
        }
        let ticket = self.write(&mut state, format::encode_truncate(after))?;
        state.truncate(after);
        Ok(ticket)
    }

    /// Takes away the entries up to this one, for good: a snapshot has them. Beyond the last entry the log becomes
    /// empty and goes on behind it. Room is freed with the first operation after the ticket is fulfilled.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn purge(&self, through: LogId) -> Result<Ticket, LogError> {
        let mut state = self.state_now();
        if state.purged.is_some_and(|purged| through.index <= purged.index) {
            drop(state);
            return self.sync();
        }
        let written = format::State { vote: state.vote, committed: state.committed, purged: Some(through) };
        let ticket = self.put(&mut state, vec![format::encode_state(&written)])?;
        let sequence = ticket.sequences().start;
        state.committed_waits = false;
        state.purge(through);
        let needed = state.index.first_sequence().unwrap_or(sequence).min(sequence);
        state.freeing = Some(Freeing { sequence, needed });
        Ok(ticket)
    }

    /// Gives a ticket that is fulfilled when all that was asked for so far is on disk.
    ///
    /// # Errors
    ///
    /// Invalid, if the log is not open for writing. What stopped the log, if it has failed.
    pub fn sync(&self) -> Result<Ticket, LogError> {
        Ok(self.inner.aof.sync()?)
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

    /// The last entry of each term, of those in `range`.
    pub fn last_of_terms(&self, range: Range<u64>) -> Vec<LogId> {
        self.state_now().index.last_of_terms(range)
    }

    /// Writes and syncs everything. The log is closed when the last clone is dropped.
    ///
    /// # Errors
    ///
    /// What stopped the log, if it has failed or fails now.
    pub fn close(self) -> Result<(), LogError> {
        self.flush_committed()?;
        Ok(self.sync()?.wait(self.inner.config.close_wait)?)
    }

    /// Appends a record, with what is committed if that still waits.
    fn write(&self, state: &mut State, record: Bytes) -> Result<Ticket, LogError> {
        let mut records = vec![record];
        if state.committed_waits {
            records.push(format::encode_committed(state.committed));
        }
        let ticket = self.put(state, records)?;
        state.committed_waits = false;
        Ok(ticket)
    }

    fn put(&self, state: &mut State, records: Vec<Bytes>) -> Result<Ticket, LogError> {
        self.free(state)?;
        Ok(self.inner.aof.append(records)?)
    }

    /// Gives up the records that a purge left behind, if its state is on disk: until then they may be the only place
    /// that has the vote.
    fn free(&self, state: &mut State) -> Result<(), LogError> {
        if let Some(Freeing { sequence, needed }) = state.freeing
            && sequence < self.inner.aof.synced()
        {
            // The ticket tells nothing that anybody waits for.
            drop(self.inner.aof.truncate_front(needed)?);
            state.freeing = None;
        }
        Ok(())
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
