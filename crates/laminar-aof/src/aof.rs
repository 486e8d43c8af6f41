//! The log as callers see it.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::committer::{Committer, Running};
use crate::config::AofConfig;
use crate::error::AofError;
use crate::fs::Folder;
use crate::log::Log;
use crate::open::open_log;
use crate::read::{Reader, Record};
use crate::recover::{CutTail, SegmentRange};
use crate::ticket::Ticket;

/// What opening a log found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The records there are.
    pub sequences: Range<u64>,
    /// Where something was cut that had never been synced. Nothing that was acknowledged is gone if the disk told the
    /// truth; a replica should still catch up before it votes or acknowledges.
    pub cut: Option<CutTail>,
    /// Records that were verified one by one; those of sealed segments are trusted unless the configuration asks.
    pub records_verified: u64,
    /// Records that were not known to be on disk, and were written once more and synced.
    pub records_rewritten: u64,
}

/// A segment that holds records of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number, which orders segments and names the file.
    pub id: u64,
    /// The first record that the log has in it.
    pub first: u64,
    /// The one after the last that the log has in it.
    pub end: u64,
    /// Where in the file the records end.
    pub bytes: u64,
    /// How long the file was made.
    pub capacity: u64,
    /// Whether opening found it with an index and a trailer: it will never change.
    pub sealed: bool,
}

/// An append-only log in a folder of its own.
///
/// All methods may be called from any thread. Dropping it closes it; [`close`](Self::close) also says how that went.
pub struct Aof {
    log: Arc<Log>,
    /// Keeps the committer's threads alive.
    committer: Arc<Running>,
    closed: bool,
}

impl Aof {
    /// Opens a log, or makes an empty one. What is reported is on disk.
    ///
    /// # Errors
    ///
    /// Corrupt, if a record or a file that was on disk is damaged or missing. Invalid, if the configuration is out of
    /// its range, the log is open already, or a newer release wrote it. Overloaded, if the disk is full or too many
    /// logs are open. Unavailable, if a file call fails.
    pub fn open(committer: &Committer, dir: &Path, config: AofConfig) -> Result<(Self, Opened), AofError> {
        Self::open_as(committer, dir, config, true)
    }

    /// Opens a log to read it, and changes nothing: an unsynced tail is read as it is found.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_read_only(
        committer: &Committer,
        dir: &Path,
        config: AofConfig,
    ) -> Result<(Self, Opened), AofError> {
        Self::open_as(committer, dir, config, false)
    }

    fn open_as(
        committer: &Committer,
        dir: &Path,
        config: AofConfig,
        writable: bool,
    ) -> Result<(Self, Opened), AofError> {
        let running = &committer.running;
        let folder = Folder { fs: Arc::clone(&running.shared.fs), dir: dir.to_owned() };
        let (log, opened) = open_log(&running.shared, folder, config, writable)?;
        Ok((Self { log, committer: Arc::clone(running), closed: false }, opened))
    }

    /// The records there are, also those that are not on disk yet.
    pub fn sequences(&self) -> Range<u64> {
        let state = self.log.state();
        state.start..state.next
    }

    /// The first sequence that is not known to be on disk. It falls only when records are truncated at the back.
    pub fn synced(&self) -> u64 {
        let state = self.log.state();
        state.synced.max(state.start)
    }

    /// The segments that hold its records, in order. What waits to be written is in none of them.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let state = self.log.state();
        let info = |range: &SegmentRange| SegmentInfo {
            id: range.segment.key.id,
            first: range.extent.first.max(state.start),
            end: range.end.max(state.start),
            bytes: range.extent.data_end,
            capacity: range.segment.capacity,
            sealed: range.sealed,
        };
        state.ranges.iter().map(info).collect()
    }

    /// Why the log does not take any more, if it does not: it must be reopened (LOG-6).
    pub fn failure(&self) -> Option<AofError> {
        self.log.state().failed.clone()
    }

    /// Appends records, which can be read at once; the ticket tells when they are on disk. Never blocks on a disk.
    ///
    /// # Errors
    ///
    /// Overloaded, if too much waits already: wait for a ticket. Invalid, if a record or the batch is too large, or
    /// the log is not open for writing. What stopped the log, if it has failed.
    pub fn append(&self, records: Vec<Bytes>) -> Result<Ticket, AofError> {
        self.log.append(records, Duration::ZERO, true)
    }

    /// Appends records as [`append`](Self::append) does, and leaves it to the caller to have them written: by
    /// [`Ticket::assistant`], or by waiting for the ticket.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn append_to_assist(&self, records: Vec<Bytes>) -> Result<Ticket, AofError> {
        self.log.append(records, Duration::ZERO, false)
    }

    /// Appends records, and waits up to `timeout` while too much waits already.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn append_within(&self, records: Vec<Bytes>, timeout: Duration) -> Result<Ticket, AofError> {
        self.log.append(records, timeout, true)
    }

    /// Appends records and returns when they are on disk. The fastest way for a caller that has nothing else to do.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append) and [`Ticket::wait`].
    pub fn append_and_wait(&self, records: Vec<Bytes>, timeout: Duration) -> Result<Range<u64>, AofError> {
        let ticket = self.log.append(records, timeout, false)?;
        ticket.wait(timeout)?;
        Ok(ticket.sequences())
    }

    /// Has everything appended so far synced now.
    ///
    /// # Errors
    ///
    /// Invalid, if the log is not open for writing. What stopped the log, if it has failed.
    pub fn sync(&self) -> Result<Ticket, AofError> {
        self.log.sync()
    }

    /// Removes the records from `from` on. They are gone for readers at once, and after the ticket also after a crash.
    ///
    /// # Errors
    ///
    /// Invalid, if the log neither has `from` nor ends there. What stopped the log, if it has failed.
    pub fn truncate_back(&self, from: u64) -> Result<Ticket, AofError> {
        self.log.truncate_back(from)
    }

    /// Removes the records before `before`; beyond the end, the log becomes empty and goes on there. They are gone for
    /// readers at once, and after the ticket also after a crash. Files are removed as they become empty.
    ///
    /// A crash before the ticket may leave the log cut or not, but never cut without what was asked for before: a record
    /// that takes the place of those removed can be appended first, and need not be waited for.
    ///
    /// # Errors
    ///
    /// Invalid, if the log is not open for writing. What stopped the log, if it has failed.
    pub fn truncate_front(&self, before: u64) -> Result<Ticket, AofError> {
        self.log.truncate_front(before)
    }

    /// One record, verified.
    ///
    /// # Errors
    ///
    /// Invalid, if the log does not have it. Corrupt, if it is not what was written. Unavailable, if the file cannot
    /// be read.
    pub fn read(&self, sequence: u64) -> Result<Bytes, AofError> {
        self.log.read_one(sequence)
    }

    /// Records in order, verified: those of `sequences`, but no more than `bytes_max` after the first.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_range(&self, sequences: Range<u64>, bytes_max: u64) -> Result<Vec<Record>, AofError> {
        let mut reader = self.reader(sequences.start);
        let (mut records, mut bytes) = (Vec::new(), 0);
        while reader.sequence() < sequences.end && bytes < bytes_max.max(1) {
            let Some(record) = reader.next()? else { break };
            bytes += record.payload.len() as u64;
            records.push(record);
        }
        Ok(records)
    }

    /// A reader that begins with this record.
    pub fn reader(&self, sequence: u64) -> Reader {
        Reader::new(&self.log, sequence, self.log.config.read_chunk_bytes)
    }

    /// A reader for a few records: it reads little more of the file than they take.
    pub fn short_reader(&self, sequence: u64) -> Reader {
        let config = &self.log.config;
        Reader::new(&self.log, sequence, config.index_interval_bytes.min(config.read_chunk_bytes))
    }

    /// Writes and syncs everything, and closes the log.
    ///
    /// # Errors
    ///
    /// What stopped the log, if it has failed or fails now.
    pub fn close(mut self) -> Result<(), AofError> {
        self.close_once()
    }

    fn close_once(&mut self) -> Result<(), AofError> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let outcome = self.finish();
        self.log.release();
        outcome
    }

    fn finish(&self) -> Result<(), AofError> {
        if !self.log.state().writable {
            return Ok(());
        }
        self.log.sync()?.wait(self.committer.shared.config.close_wait)?;
        self.log.raise_mark(true)
    }
}

impl std::fmt::Debug for Aof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.log.fmt(f)
    }
}

impl Drop for Aof {
    fn drop(&mut self) {
        // Whoever wants to know calls `close`.
        drop(self.close_once());
    }
}
