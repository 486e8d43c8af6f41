//! A lane: the logs of one durability, written and synced in rounds.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::committer::Shared;
use crate::config::Durability;
use crate::error::{AofError, FileOperation};
use crate::log::Log;
use crate::log::state::Load;

/// Yields without another caller coming back after which the committer stops waiting for more.
const GATHER_PATIENCE: u32 = 100;
/// From so many waiting bytes on they are written at once, while the committer waits for more.
const WRITE_EARLY_BYTES: u64 = 256 << 10;

/// A caller does not wait for a disk by itself that took longer than this the last time: it may have more patience with the
/// thread, which it can stop waiting for.
const ASSIST_SYNC_MAX: Duration = Duration::from_millis(20);

/// How long a background lane lets more come before it writes.
const NAP: Duration = Duration::from_millis(2);

pub(crate) struct Lane {
    durability: Durability,
    shared: Weak<Shared>,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Appends and bytes that wait to be written.
    appends: AtomicUsize,
    bytes: AtomicU64,
    /// Appends in the round before, which is how many are expected in the next.
    expected: AtomicUsize,
    /// Whether the last sync took too long for callers to assist.
    slow: AtomicBool,
    /// Whether somebody asked for a sync now.
    sync_wanted: AtomicBool,
    /// Whether the thread of a background lane waits for more, and looks by itself when it is up again.
    napping: AtomicBool,
    worker: Mutex<Worker>,
}

#[derive(Default)]
struct Queue {
    /// Logs with something pending, each once.
    ready: Vec<Arc<Log>>,
    stopped: bool,
    /// Whether the thread gets up by itself when a mark is due.
    timed: bool,
    /// Whether it is to look when the next mark is due.
    look: bool,
}

/// What goes on from round to round. Whoever has it runs the next one.
#[derive(Default)]
struct Worker {
    /// Appends that were written and not synced.
    appends: usize,
    /// Logs that were written and not synced, each once.
    unsynced: Vec<Arc<Log>>,
    /// Logs whose synced mark is to be raised when they have been idle since then.
    unmarked: Vec<(Duration, Arc<Log>)>,
    /// When the first of `unsynced` was written.
    unsynced_since: Duration,
}

impl Lane {
    pub(crate) fn new(durability: Durability, shared: Weak<Shared>) -> Arc<Self> {
        Arc::new(Self {
            durability,
            shared,
            queue: Mutex::default(),
            wake: Condvar::new(),
            appends: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            expected: AtomicUsize::new(0),
            slow: AtomicBool::new(false),
            sync_wanted: AtomicBool::new(false),
            napping: AtomicBool::new(false),
            worker: Mutex::default(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a log that has something pending. Its caller either wakes the thread or comes to [`assist`].
    ///
    /// [`assist`]: Self::assist
    pub(crate) fn submit(&self, log: Arc<Log>, wake: bool) {
        self.queue().ready.push(log);
        // ORDER: `is_for_thread` is asked after the queue was locked, and changes before `leave` locks it: either this sees
        // that it is the thread's, or `leave` sees the log.
        let needed = match self.durability {
            // ORDER: as above, with the lock of the queue: a thread that naps looks at the queue when it is up again.
            Durability::Background => !self.napping.load(Ordering::Relaxed),
            Durability::Synced => self.is_for_thread(),
        };
        if wake || needed {
            self.wake.notify_one();
        }
    }

    /// Whether callers leave the next round to the thread: others are expected, or the disk is slow.
    fn is_for_thread(&self) -> bool {
        self.expected.load(Ordering::Relaxed) > 1 || self.slow.load(Ordering::Relaxed)
    }

    /// Counts an append, before the committer can see it.
    pub(crate) fn count_append(&self, bytes: u64) {
        // ORDER: relaxed, these are hints for how long to gather.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.appends.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what is being written.
    pub(crate) fn took(&self, load: Load) {
        self.bytes.fetch_sub(load.bytes, Ordering::Relaxed);
        self.appends.fetch_sub(load.appends, Ordering::Relaxed);
    }

    /// The next round syncs, also in the background.
    pub(crate) fn want_sync(&self) {
        // ORDER: release and acquire, so that the round that sees it also sees what was asked for before.
        self.sync_wanted.store(true, Ordering::Release);
    }

    /// Runs a round on the thread of a caller that waits, if nobody else does and it is not left to the thread.
    pub(crate) fn assist(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        if shared.manual {
            self.want_sync();
            return shared.step();
        }
        if self.durability == Durability::Synced
            && !self.is_for_thread()
            && let Ok(mut worker) = self.worker.try_lock()
        {
            worker.round(self, &shared);
            self.leave(worker);
        }
    }

    /// Lets the next one work. Whoever found the worker taken relies on being seen here.
    fn leave(&self, worker: MutexGuard<'_, Worker>) {
        let unmarked = !worker.unmarked.is_empty();
        drop(worker);
        let mut queue = self.queue();
        // Woken once, the thread gets up for marks until there are none left.
        let look = unmarked && !std::mem::replace(&mut queue.timed, true);
        queue.look |= look;
        if look || !queue.ready.is_empty() {
            self.wake.notify_one();
        }
    }

    /// The thread of this lane.
    pub(crate) fn run(&self) {
        let mut timeout = None;
        loop {
            let stopped = self.wait_for_work(timeout);
            if self.durability == Durability::Background && !stopped {
                self.nap();
            }
            let Some(shared) = self.shared.upgrade() else { return };
            let mut worker = self.worker();
            worker.round(self, &shared);
            worker.tick(self, &shared);
            timeout = worker.next_deadline(&shared);
            if stopped && self.queue().ready.is_empty() {
                worker.sync(self, &shared);
                return;
            }
        }
    }

    fn wait_for_work(&self, timeout: Option<Duration>) -> bool {
        let idle = |queue: &mut Queue| queue.ready.is_empty() && !queue.stopped && !queue.look;
        let mut queue = self.queue();
        queue.timed = queue.look || timeout.is_some();
        let mut queue = match timeout {
            Some(timeout) => {
                self.wake.wait_timeout_while(queue, timeout, idle).unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.wake.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner),
        };
        queue.look = false;
        queue.stopped
    }

    /// Lets more come before it is written behind: nobody waits for it, and waking for each record would cost those who
    /// append more than the writing does.
    fn nap(&self) {
        let queue = self.queue();
        self.napping.store(true, Ordering::Relaxed);
        let undisturbed = |queue: &mut Queue| !queue.stopped && !self.sync_wanted.load(Ordering::Acquire);
        let queue =
            self.wake.wait_timeout_while(queue, NAP, undisturbed).unwrap_or_else(PoisonError::into_inner).0;
        self.napping.store(false, Ordering::Relaxed);
        drop(queue);
    }

    /// Runs a round if there is work for one; says whether there was.
    pub(crate) fn round_if_ready(&self) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let mut worker = self.worker();
        let sync_wanted = self.sync_wanted.load(Ordering::Acquire) && !worker.unsynced.is_empty();
        let ready = sync_wanted || !self.queue().ready.is_empty();
        if ready {
            worker.round(self, &shared);
        }
        ready
    }

    /// Does what is due by the clock.
    pub(crate) fn tick(&self) {
        if let Some(shared) = self.shared.upgrade() {
            self.worker().tick(self, &shared);
        }
    }

    /// Drops a log that is being closed; waits for the round under way.
    pub(crate) fn forget(&self, log: &Log) {
        let mut worker = self.worker();
        worker.unsynced.retain(|other| other.uid != log.uid);
        worker.unmarked.retain(|(_, other)| other.uid != log.uid);
        self.queue().ready.retain(|other| other.uid != log.uid);
        self.leave(worker);
    }

    pub(crate) fn stop(&self) {
        self.queue().stopped = true;
        self.wake.notify_all();
    }
}

impl Worker {
    /// Writes everything that waits, and syncs it where that is due.
    fn round(&mut self, lane: &Lane, shared: &Shared) {
        if lane.durability == Durability::Synced {
            self.gather(lane, shared);
        }
        let sync_wanted = lane.sync_wanted.swap(false, Ordering::Acquire);
        let now = self.write(lane, shared);
        let due =
            shared.config.background_sync_interval.saturating_sub(now.saturating_sub(self.unsynced_since));
        if sync_wanted || lane.durability == Durability::Synced || due.is_zero() {
            self.sync(lane, shared);
        }
    }

    /// Waits a moment for the callers of the last round, who come back together: one sync then serves them all. What
    /// they bring is written meanwhile, if it is much.
    fn gather(&mut self, lane: &Lane, shared: &Shared) {
        let expected = lane.expected.load(Ordering::Relaxed);
        let (mut seen, mut patience) = (0, GATHER_PATIENCE);
        for _ in 0..shared.config.gather_yields_max {
            let came = self.appends + lane.appends.load(Ordering::Relaxed);
            if came >= expected || expected <= 1 || patience == 0 {
                return;
            }
            patience = if came > seen { GATHER_PATIENCE } else { patience - 1 };
            seen = came;
            if lane.bytes.load(Ordering::Relaxed) >= WRITE_EARLY_BYTES {
                self.write(lane, shared);
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Writes everything that waits; returns when.
    fn write(&mut self, lane: &Lane, shared: &Shared) -> Duration {
        let ready = std::mem::take(&mut lane.queue().ready);
        let now = shared.fs.now();
        for log in ready {
            let Some(load) = log.write_pending() else { continue };
            self.appends += load.appends;
            if self.unsynced.is_empty() {
                self.unsynced_since = now;
            }
            if !self.unsynced.iter().any(|other| other.uid == log.uid) {
                self.unsynced.push(log);
            }
            if self.unsynced.len() >= shared.config.unsynced_files_max as usize {
                self.sync(lane, shared);
            }
        }
        now
    }

    /// Syncs every log that was written, and tells who waits.
    fn sync(&mut self, lane: &Lane, shared: &Shared) {
        let logs = std::mem::take(&mut self.unsynced);
        if logs.is_empty() {
            return;
        }
        let begun = shared.fs.now();
        let many = logs.len() >= shared.config.sync_all_files_min as usize;
        if !(many && lane.durability == Durability::Background && sync_devices(shared, &logs)) {
            logs.iter().for_each(|log| log.sync_written());
        }
        let now = shared.fs.now();
        lane.slow.store(now.saturating_sub(begun) > ASSIST_SYNC_MAX, Ordering::Relaxed);
        lane.expected.store(std::mem::take(&mut self.appends), Ordering::Relaxed);
        for log in logs {
            self.unmarked.retain(|(_, other)| other.uid != log.uid);
            self.unmarked.push((now, log));
        }
    }

    /// Raises marks and syncs in the background, where the time has come.
    fn tick(&mut self, lane: &Lane, shared: &Shared) {
        let now = shared.fs.now();
        let idle = shared.config.mark_idle;
        let due = self.unmarked.iter().take_while(|(since, _)| now.saturating_sub(*since) >= idle).count();
        for (_, log) in self.unmarked.drain(..due) {
            // Its outcome is that of the log: whoever appends next learns of it.
            drop(log.raise_mark(false));
        }
        let unsynced_for = now.saturating_sub(self.unsynced_since);
        if !self.unsynced.is_empty() && unsynced_for >= shared.config.background_sync_interval {
            self.sync(lane, shared);
        }
    }

    /// How long until something is due.
    fn next_deadline(&self, shared: &Shared) -> Option<Duration> {
        let now = shared.fs.now();
        let mark = self.unmarked.first().map(|(since, _)| *since + shared.config.mark_idle);
        let sync =
            (!self.unsynced.is_empty()).then(|| self.unsynced_since + shared.config.background_sync_interval);
        mark.into_iter().chain(sync).min().map(|at| at.saturating_sub(now))
    }
}

/// Syncs whole devices in place of many files; false if that cannot be done here.
fn sync_devices(shared: &Shared, logs: &[Arc<Log>]) -> bool {
    let mut devices: Vec<u64> = logs.iter().map(|log| log.device).collect();
    devices.sort_unstable();
    devices.dedup();
    for device in devices {
        let mut logs: Vec<&Arc<Log>> = logs.iter().filter(|log| log.device == device).collect();
        // Bytes first, then the names of files that have none yet, if there are any.
        while !logs.is_empty() {
            let begun = shared.fs.now();
            let outcome = shared.fs.sync_device(device).map_err(Arc::new);
            shared.stats.synced(shared.fs.now().saturating_sub(begun));
            if outcome.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::Unsupported) {
                return false;
            }
            logs.retain(|log| {
                log.device_synced(outcome.clone().map_err(|source| AofError::Io {
                    operation: FileOperation::SyncAll,
                    path: log.folder.dir.clone(),
                    source,
                }))
            });
        }
    }
    true
}
