//! What the committer has done so far.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts since the committer was started, over all its logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitterStats {
    /// Records written.
    pub records: u64,
    /// Groups written, each in one call.
    pub groups: u64,
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Syncs of a file or a device.
    pub syncs: u64,
    /// The time they took together.
    pub sync_time: Duration,
    /// Preparing, sealing or removing a file failed. Nothing is lost; the next opening does it again.
    pub housekeeping_failures: u64,
}

/// Told how long each sync took that an append waited for.
type SyncObserver = Box<dyn Fn(Duration) + Send + Sync>;

// ORDER: relaxed throughout; each number stands alone.
#[derive(Default)]
pub(crate) struct Stats {
    observer: OnceLock<SyncObserver>,
    records: AtomicU64,
    groups: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
    sync_nanos: AtomicU64,
    housekeeping_failures: AtomicU64,
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl Stats {
    /// Sets who is told; false if somebody is already.
    pub(crate) fn observe(&self, observer: SyncObserver) -> bool {
        self.observer.set(observer).is_ok()
    }

    /// An append waited for a sync of this length.
    pub(crate) fn waited(&self, time: Duration) {
        if let Some(observer) = self.observer.get() {
            observer(time);
        }
    }

    pub(crate) fn wrote(&self, records: u64, bytes: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self, time: Duration) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn housekeeping_failed(&self) {
        self.housekeeping_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> CommitterStats {
        CommitterStats {
            records: self.records.load(Ordering::Relaxed),
            groups: self.groups.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            sync_time: Duration::from_nanos(self.sync_nanos.load(Ordering::Relaxed)),
            housekeeping_failures: self.housekeeping_failures.load(Ordering::Relaxed),
        }
    }
}
