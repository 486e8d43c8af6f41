//! openraft writes the log.

use std::io;
use std::sync::Arc;

use laminar_aof::{AofError, Ticket};
use laminar_crew::{in_place, is_in_crew};
use laminar_log::{LogEntry, LogError, SegmentedLogStore};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{AppDataResponse, AsyncRuntime, OptionalSend};

use tracing::Instrument;

use crate::convert::{from_log_id, to_entry, to_io, to_log_id, to_vote};
use crate::types::{GroupConfig, RaftEntry, RaftLogId, RaftVote};

/// The log of a group, as openraft wants it. Clones are the same log.
#[derive(Debug, Clone)]
pub struct RaftLog {
    pub(crate) store: SegmentedLogStore,
    pub(crate) read_bytes_max: u64,
    /// Whoever opens the log again learns from it when no clone is left.
    _lease: Option<Arc<()>>,
}

impl RaftLog {
    /// Payload bytes of the entries that are read at once, unless told otherwise.
    pub const READ_BYTES_MAX: u64 = 4 << 20;

    /// Over a log that was opened.
    pub fn new(store: SegmentedLogStore) -> Self {
        Self::with_read_bytes_max(store, Self::READ_BYTES_MAX)
    }

    /// The same, reading no more than so many bytes of payload at once, or one entry.
    pub fn with_read_bytes_max(store: SegmentedLogStore, read_bytes_max: u64) -> Self {
        Self { store, read_bytes_max, _lease: None }
    }

    /// The same, whose clones hold `lease`.
    pub(crate) fn with_lease(self, lease: Arc<()>) -> Self {
        Self { _lease: Some(lease), ..self }
    }

    /// The log below.
    pub fn store(&self) -> &SegmentedLogStore {
        &self.store
    }

    /// Appends what can be taken at once; waits for the disk while too much waits already. With `assisted` the caller has
    /// it written.
    async fn append_piece(&self, entries: Vec<LogEntry>, assisted: bool) -> io::Result<Ticket> {
        loop {
            let appended =
                if assisted { self.store.append_to_assist(&entries) } else { self.store.append(&entries) };
            match appended {
                Err(LogError::Files(AofError::Overloaded { .. })) => {
                    synced(self.store.sync()).await?;
                }
                outcome => return outcome.map_err(to_io),
            }
        }
    }
}

async fn synced(ticket: Result<Ticket, LogError>) -> io::Result<()> {
    ticket.map_err(to_io)?.await.map_err(|error| to_io(error.into()))
}

/// Entries in pieces of no more than `bytes_max`, or of one entry. There is always one piece.
fn pieces(entries: Vec<LogEntry>, bytes_max: u64) -> Vec<Vec<LogEntry>> {
    let (mut pieces, mut bytes) = (vec![Vec::new()], 0_u64);
    for entry in entries {
        // Small entries count too: each has a header in the files.
        let more = entry.payload_bytes() + 64;
        let last = pieces.last_mut().expect("there is always one");
        if bytes + more > bytes_max && !last.is_empty() {
            bytes = more;
            pieces.push(vec![entry]);
        } else {
            bytes += more;
            last.push(entry);
        }
    }
    pieces
}

impl<R, A> RaftLogStorage<GroupConfig<R, A>> for RaftLog
where
    R: AsyncRuntime,
    A: AppDataResponse,
{
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<GroupConfig<R, A>>> {
        let state = self.store.state();
        Ok(LogState {
            last_purged_log_id: state.purged.map(from_log_id),
            last_log_id: state.last.map(from_log_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &RaftVote) -> io::Result<()> {
        synced(self.store.save_vote(to_vote(vote))).await
    }

    async fn save_committed(&mut self, committed: Option<RaftLogId>) -> io::Result<()> {
        self.store.save_committed(committed.as_ref().map(to_log_id));
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<RaftLogId>> {
        Ok(self.store.committed().map(from_log_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<GroupConfig<R, A>>) -> io::Result<()>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<LogEntry> = entries.into_iter().map(to_entry).collect();
        let span = tracing::trace_span!("append", entries = entries.len());
        let mut last = None;
        let pieces = pieces(entries, self.store.append_bytes_max());
        // In a crew whoever runs its tasks has nothing better to do than to write what they wait for. Of several pieces the
        // first must not wait for the last.
        let assisted = pieces.len() == 1 && is_in_crew();
        for piece in pieces {
            last = Some(self.append_piece(piece, assisted).instrument(span.clone()).await?);
        }
        // Tickets are fulfilled in order: the last one tells of all.
        let last = last.expect("there is always one piece");
        if assisted {
            let assistant = last.assistant();
            // A task of its own: openraft goes on meanwhile, with what it has to send to others.
            drop(R::spawn(async move { in_place(|| assistant.assist()) }));
        }
        last.on_outcome(move |outcome| callback.io_completed(outcome.map_err(|error| to_io(error.into()))));
        Ok(())
    }

    /// Returns when it is on disk: a snapshot may be installed next, and a log that still contradicts it could not
    /// be opened any more.
    async fn truncate_after(&mut self, last_log_id: Option<RaftLogId>) -> io::Result<()> {
        synced(self.store.truncate_after(last_log_id.as_ref().map(to_log_id))).await
    }

    /// Returns before it is on disk: what comes back after a crash is purged again.
    async fn purge(&mut self, log_id: RaftLogId) -> io::Result<()> {
        drop(self.store.purge(to_log_id(&log_id)).map_err(to_io)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use laminar_log::{EntryPayload, LogId};

    use super::*;

    #[test]
    fn pieces_are_bounded_and_leave_nothing_out() {
        let entry = |index: u64, length: usize| LogEntry {
            id: LogId::new(1, index),
            payload: EntryPayload::Normal(vec![0; length].into()),
        };
        let entries: Vec<LogEntry> = [500, 10, 10, 900, 5000, 0]
            .iter()
            .zip(0..)
            .map(|(length, index)| entry(index, *length))
            .collect();
        let cut = pieces(entries.clone(), 1000);
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1, 1, 1]);
        assert_eq!(cut.concat(), entries);
        assert_eq!(pieces(Vec::new(), 1000), vec![Vec::new()]);
    }
}
