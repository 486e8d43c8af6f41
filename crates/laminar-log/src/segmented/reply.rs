//! Replies: an entry is answered when every partition it touches has applied it.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::verdict::Verdict;

/// Called once, with what became of an entry.
pub type Reply = Box<dyn FnOnce(Verdict) + Send>;

/// The reply to one entry, held by the records that have not been applied yet.
pub(crate) struct EntryReply {
    remaining: AtomicUsize,
    reply: Mutex<Option<(Verdict, Reply)>>,
}

impl EntryReply {
    /// A reply that is sent when `parts` records are done; none if nobody waits for it.
    pub(crate) fn new(verdict: Verdict, parts: usize, reply: Option<Reply>) -> Option<Arc<Self>> {
        let reply = reply?;
        if parts == 0 {
            reply(verdict);
            return None;
        }
        Some(Arc::new(Self { remaining: AtomicUsize::new(parts), reply: Mutex::new(Some((verdict, reply))) }))
    }

    /// One record is done; the last one sends the reply.
    pub(crate) fn part_done(&self) {
        // ORDER: acquire and release, so that whoever is told sees what every worker did.
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some((verdict, reply)) = self.reply.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            reply(verdict);
        }
    }
}

impl fmt::Debug for EntryReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryReply").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}
