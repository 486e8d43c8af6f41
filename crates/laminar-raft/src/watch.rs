//! The watch channel of openraft's groups on a crew.
//!
//! openraft tells its figures several times for each write, to channels that hardly anybody listens to. tokio's has eight lists of
//! listeners, each with a lock, so that thousands of them do not meet; going through these took a tenth of what a small
//! write costs beside the disk. This one has one list.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use openraft::async_runtime::watch::{RecvError, SendError, Watch, WatchReceiver, WatchSender};
use openraft::{OptionalSend, OptionalSync};
use tokio::sync::Notify;

/// Channels that keep the last value.
#[derive(Debug)]
pub struct CrewWatch;

#[derive(Debug)]
struct Channel<T> {
    value: RwLock<T>,
    /// How often the value was changed. Raised with the lock held, so that a value and its version belong together.
    version: AtomicU64,
    changed: Notify,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

impl<T> Channel<T> {
    fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn version(&self) -> u64 {
        // ORDER: acquire, with the release of a change; whoever waits has asked to be told before looking.
        self.version.load(Ordering::Acquire)
    }
}

/// Changes the value.
#[derive(Debug)]
pub struct CrewWatchSender<T>(Arc<Channel<T>>);

/// Sees the value, and waits for changes.
#[derive(Debug)]
pub struct CrewWatchReceiver<T> {
    channel: Arc<Channel<T>>,
    seen: u64,
}

impl Watch for CrewWatch {
    type Sender<T: OptionalSend + OptionalSync> = CrewWatchSender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = CrewWatchReceiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = RwLockReadGuard<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Self::Sender<T>, Self::Receiver<T>) {
        let channel = Arc::new(Channel {
            value: RwLock::new(init),
            version: AtomicU64::new(0),
            changed: Notify::new(),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
        });
        (CrewWatchSender(Arc::clone(&channel)), CrewWatchReceiver { channel, seen: 0 })
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<CrewWatch, T> for CrewWatchSender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        // ORDER: relaxed; a receiver that is dropped meanwhile does not miss the value.
        if self.0.receivers.load(Ordering::Relaxed) == 0 {
            return Err(SendError(value));
        }
        self.send_if_modified(|current| {
            *current = value;
            true
        });
        Ok(())
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        let modified = modify(&mut value);
        if modified {
            self.0.version.fetch_add(1, Ordering::Release);
        }
        drop(value);
        if modified {
            self.0.changed.notify_waiters();
        }
        modified
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.0.borrow()
    }

    fn subscribe(&self) -> CrewWatchReceiver<T> {
        // ORDER: relaxed; only whether there are any matters.
        self.0.receivers.fetch_add(1, Ordering::Relaxed);
        CrewWatchReceiver { channel: Arc::clone(&self.0), seen: self.0.version() }
    }
}

impl<T> Clone for CrewWatchSender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for CrewWatchSender<T> {
    fn drop(&mut self) {
        // ORDER: whoever sees that none is left also sees what the last one sent.
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<CrewWatch, T> for CrewWatchReceiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            // Before it is looked: a change that comes in between is told too.
            let told = self.channel.changed.notified();
            let gone = self.channel.senders.load(Ordering::Acquire) == 0;
            let version = self.channel.version();
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if gone {
                return Err(RecvError(()));
            }
            told.await;
        }
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.channel.borrow()
    }

    fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        let value = self.channel.borrow();
        self.seen = self.channel.version();
        value
    }
}

impl<T> Clone for CrewWatchReceiver<T> {
    fn clone(&self) -> Self {
        self.channel.receivers.fetch_add(1, Ordering::Relaxed);
        Self { channel: Arc::clone(&self.channel), seen: self.seen }
    }
}

impl<T> Drop for CrewWatchReceiver<T> {
    fn drop(&mut self) {
        self.channel.receivers.fetch_sub(1, Ordering::Relaxed);
    }
}
