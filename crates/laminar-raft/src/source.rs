//! The log as the state machine sees it: there, or closed while its owner opens it again.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use laminar_core::ids::LogIndex;
use laminar_log::{EntrySource, LogError, LogId, SegmentedLogStore};

use crate::convert::to_io;

/// Holds the log of a group for its state machine. Clones are the same holder.
///
/// Partitions read entries again from it long after they were applied, and must not keep a log open that has failed:
/// its owner takes it out before it opens the log again, and puts the new one in.
#[derive(Debug, Clone, Default)]
pub struct LogSource {
    log: Arc<RwLock<Option<SegmentedLogStore>>>,
}

impl LogSource {
    /// With a log that was opened.
    pub fn new(log: SegmentedLogStore) -> Self {
        let source = Self::default();
        source.put(Some(log));
        source
    }

    /// Puts a log in, or takes it out.
    pub fn put(&self, log: Option<SegmentedLogStore>) {
        let mut held = self.log.write().unwrap_or_else(PoisonError::into_inner);
        // The last one is closed without the lock, because that waits for files.
        let old = std::mem::replace(&mut *held, log);
        drop(held);
        drop(old);
    }

    /// The log, unless it was taken out.
    pub fn get(&self) -> Option<SegmentedLogStore> {
        self.log.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns when the entries up to `index` are on this disk, and says up to where they are. LOG-1.
    pub(crate) async fn until_durable(&self, index: u64) -> io::Result<u64> {
        let closed = || io::Error::new(io::ErrorKind::NotConnected, "the segmented log is closed");
        loop {
            let (durable, ticket) = {
                let log = self.get().ok_or_else(closed)?;
                let ticket = log.until_durable(index).map_err(to_io)?;
                (log.state().durable.map(|id| id.index.0), ticket)
            };
            match (ticket, durable) {
                (None, Some(durable)) if durable >= index => return Ok(durable),
                (None, _) => {
                    return Err(io::Error::other("an entry that is to be applied is not in the log"));
                }
                (Some(ticket), _) => ticket.await.map_err(|error| to_io(error.into()))?,
            }
        }
    }
}

impl EntrySource for LogSource {
    fn committed_entry(&self, index: LogIndex) -> Result<(LogId, Bytes), LogError> {
        match self.get() {
            Some(log) => log.committed_entry(index),
            // Whoever asks tries again.
            None => Err(LogError::NoEntry { index: index.0, first: 0, last: 0 }),
        }
    }
}
