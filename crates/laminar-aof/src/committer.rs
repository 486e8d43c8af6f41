//! The one committer of a process: three threads, however many logs there are.
//!
//! ```text
//!  append ---> Log (pending) ---> Lane::Synced      write all, sync all, tell all   thread laminar-aof-sync
//!                            `--> Lane::Background  write all; sync once a while    thread laminar-aof-behind
//!                                       |
//!                                       `---> Housekeeper  next segment, early syncs, trailers, removal   laminar-aof-files
//! ```
//!
//! Instead of the thread, a caller that waits may run a round itself: alone, it is faster without a change of threads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::config::{CommitterConfig, Durability};
use crate::error::AofError;
use crate::fs::FileSystem;
use crate::handles::Handles;
use crate::housekeeping::Housekeeper;
pub(crate) use crate::lane::Lane;
use crate::stats::{CommitterStats, Stats};

/// What all logs of a committer share.
pub(crate) struct Shared {
    pub(crate) config: CommitterConfig,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) handles: Handles,
    pub(crate) stats: Stats,
    pub(crate) housekeeper: Housekeeper,
    /// Whether callers run the rounds, because there are no threads.
    pub(crate) manual: bool,
    synced: Arc<Lane>,
    background: Arc<Lane>,
    uids: AtomicU64,
    open: Mutex<BTreeSet<PathBuf>>,
}

impl Shared {
    fn new(config: CommitterConfig, fs: Arc<dyn FileSystem>, manual: bool) -> Result<Arc<Self>, AofError> {
        config.check()?;
        Ok(Arc::new_cyclic(|shared: &Weak<Shared>| Self {
            handles: Handles::new(config.open_files_max),
            synced: Lane::new(Durability::Synced, shared.clone()),
            background: Lane::new(Durability::Background, shared.clone()),
            config,
            fs,
            manual,
            stats: Stats::default(),
            housekeeper: Housekeeper::default(),
            uids: AtomicU64::new(0),
            open: Mutex::default(),
        }))
    }

    pub(crate) fn new_uid(&self) -> u64 {
        self.uids.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn lane(&self, durability: Durability) -> &Arc<Lane> {
        match durability {
            Durability::Synced => &self.synced,
            Durability::Background => &self.background,
        }
    }

    /// Claims a folder for one log.
    pub(crate) fn register(&self, dir: &Path) -> Result<(), AofError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.contains(dir) {
            return Err(AofError::AlreadyOpen { dir: dir.to_owned() });
        }
        if open.len() >= self.config.logs_max as usize {
            return Err(AofError::TooManyLogs { logs: self.config.logs_max });
        }
        open.insert(dir.to_owned());
        Ok(())
    }

    pub(crate) fn deregister(&self, dir: &Path) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(dir);
    }

    /// Runs everything there is to do, on the thread that calls.
    pub(crate) fn step(&self) {
        while self.synced.round_if_ready() | self.background.round_if_ready() | self.housekeeper.run_ready() {
        }
    }
}

/// Writes and syncs for all logs that are opened with it. One a process is enough.
///
/// Clones are the same committer. When the last of them and of its logs is dropped, what waits is written and the
/// threads end.
#[derive(Clone)]
pub struct Committer {
    pub(crate) running: Arc<Running>,
}

pub(crate) struct Running {
    pub(crate) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Committer {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// Invalid, if a setting is out of its range. Unavailable, if a thread cannot be started.
    pub fn start(config: CommitterConfig, fs: Arc<dyn FileSystem>) -> Result<Self, AofError> {
        let shared = Shared::new(config, fs, false)?;
        let mut running = Running { shared: Arc::clone(&shared), threads: Vec::new() };
        for (name, durability) in
            [("laminar-aof-sync", Durability::Synced), ("laminar-aof-behind", Durability::Background)]
        {
            let lane = Arc::clone(shared.lane(durability));
            running.spawn(name, move || lane.run())?;
        }
        let files = Arc::clone(&shared);
        running.spawn("laminar-aof-files", move || files.housekeeper.run())?;
        Ok(Self { running: Arc::new(running) })
    }

    /// Starts no thread: work is done by [`step`](Self::step) and by whoever waits for a ticket. For tests and
    /// simulations, which must decide what happens when.
    ///
    /// # Errors
    ///
    /// Invalid, if a setting is out of its range.
    pub fn manual(config: CommitterConfig, fs: Arc<dyn FileSystem>) -> Result<Self, AofError> {
        let shared = Shared::new(config, fs, true)?;
        Ok(Self { running: Arc::new(Running { shared, threads: Vec::new() }) })
    }

    /// Does all that waits, on the thread that calls: writes, syncs what is synced at once or is due, keeps house, and
    /// raises the marks of logs that are idle by the file system's clock.
    pub fn step(&self) {
        self.running.shared.step();
        for durability in [Durability::Synced, Durability::Background] {
            self.running.shared.lane(durability).tick();
        }
        self.running.shared.step();
    }

    /// The files that its logs are in.
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.running.shared.fs
    }

    /// Has `observer` told how long each sync took that appends waited for. From the committer's threads, which it must not
    /// keep. Only the first one counts; false if there was one.
    pub fn observe_syncs(&self, observer: impl Fn(Duration) + Send + Sync + 'static) -> bool {
        self.running.shared.stats.observe(Box::new(observer))
    }

    /// What was done so far.
    pub fn stats(&self) -> CommitterStats {
        self.running.shared.stats.read()
    }
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committer").field("config", &self.running.shared.config).finish_non_exhaustive()
    }
}

impl Running {
    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), AofError> {
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(spawned.map_err(|source| AofError::NoThread { source: Arc::new(source) })?);
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.synced.stop();
        self.shared.background.stop();
        self.shared.housekeeper.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has told so already; its tickets time out.
            drop(thread.join());
        }
    }
}
