//! Everything that changes the log: one or more records, and the memory in step with them.

use bytes::{Bytes, BytesMut};
use laminar_aof::{AofError, Ticket};

use super::types::LogEntry;
use super::{Freeing, SegmentedLogStore, State, follows, format};
use crate::error::LogError;
use crate::log_id::{LogId, Vote};

impl SegmentedLogStore {
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
    pub fn append(&self, entries: impl AsRef<[LogEntry]>) -> Result<Ticket, LogError> {
        self.append_by(entries.as_ref(), |records| self.inner.aof.append(records))
    }

    /// Appends entries as [`append`](Self::append) does, and leaves it to the caller to have them written
    /// ([`Ticket::assistant`]).
    ///
    /// # Errors
    ///
    /// As `append`.
    pub fn append_to_assist(&self, entries: impl AsRef<[LogEntry]>) -> Result<Ticket, LogError> {
        self.append_by(entries.as_ref(), |records| self.inner.aof.append_to_assist(records))
    }

    fn append_by(
        &self,
        entries: &[LogEntry],
        put: impl FnOnce(Vec<Bytes>) -> Result<Ticket, AofError>,
    ) -> Result<Ticket, LogError> {
        let mut state = self.state_now();
        let mut last = state.last();
        for LogEntry { id, .. } in entries {
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
        for entry in entries {
            let (record, entry) = format::encode_entry(&mut buffer, entry, committed.take());
            records.push(record);
            kept.push(entry);
        }
        self.free(&mut state)?;
        let ticket = put(records)?;
        if !kept.is_empty() {
            state.committed_waits &= state.committed.is_none();
        }
        for (entry, sequence) in kept.into_iter().zip(ticket.sequences()) {
            state.push(entry, sequence);
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
