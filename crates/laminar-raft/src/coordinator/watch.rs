//! A watch of who owns what: resumed by index, and never in the way of applying.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use laminar_core::ids::{LogIndex, OwnerEpoch, PartitionId};

use super::published::Published;

/// What has changed since the event before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    /// The metadata entry that this is as of; a watch that begins after it misses nothing.
    pub index: LogIndex,
    /// Whether these are all partitions there are: what is not here does not exist (any more).
    pub whole: bool,
    /// Who owns each partition now, sorted by partition; none if it is gone.
    pub changes: Vec<(PartitionId, Option<OwnerEpoch>)>,
}

/// Tells changes of ownership on this node, in order. Changes that wait are told together, each partition once.
pub struct OwnershipWatch {
    published: Arc<Published>,
    id: u64,
    after: LogIndex,
    /// Whether the next event is whole, whatever is known.
    from_nothing: bool,
}

impl OwnershipWatch {
    pub(super) fn new(published: Arc<Published>, after: LogIndex) -> Self {
        let id = published.feed().add_watch();
        Self { published, id, after, from_nothing: after == LogIndex::NONE }
    }

    /// The next changes; waits for one. None when the coordinator was shut down.
    ///
    /// The first event is whole if the watch begins with nothing; so is any event when changes were forgotten that it has
    /// not told.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call tells it.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let mut feed = self.published.feed();
        match feed.changes_after(self.after).filter(|_| !self.from_nothing) {
            Some((_, changes)) if changes.is_empty() => {
                if feed.is_closed() {
                    return Poll::Ready(None);
                }
                feed.wake_later(self.id, context.waker());
                Poll::Pending
            }
            Some((index, changes)) => {
                drop(feed);
                self.after = index;
                Poll::Ready(Some(WatchEvent { index, whole: false, changes }))
            }
            None => {
                // Without the feed's lock: applying needs it.
                drop(feed);
                let (index, changes) = self.published.read(|metadata| {
                    let owners = metadata.partition_map().iter();
                    let changes = owners.map(|(id, ownership)| (*id, Some(ownership.owner_epoch())));
                    (metadata.last_applied_log(), changes.collect())
                });
                (self.after, self.from_nothing) = (index, false);
                Poll::Ready(Some(WatchEvent { index, whole: true, changes }))
            }
        }
    }
}

impl Drop for OwnershipWatch {
    fn drop(&mut self) {
        self.published.feed().remove_watch(self.id);
    }
}

impl fmt::Debug for OwnershipWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnershipWatch").field("after", &self.after).finish_non_exhaustive()
    }
}
