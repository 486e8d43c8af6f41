//! The files of a folder that is looked at: nothing can be changed through them, what is read is counted, and whoever
//! waits may stop it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use laminar_aof::fs::{File, FileSystem};

/// Told how many bytes of about how many were read, some ten times a second; false stops the reading.
pub type Progress = Arc<dyn Fn(u64, u64) -> bool + Send + Sync>;

const TELL_INTERVAL: Duration = Duration::from_millis(100);

/// How far the reading has come. Clones are the same.
#[derive(Clone)]
pub(super) struct Watch {
    state: Arc<State>,
}

struct State {
    progress: Option<Progress>,
    total: AtomicU64,
    /// Where the current phase begins, how long it should be, and how much of it was read.
    begin: AtomicU64,
    expected: AtomicU64,
    read: AtomicU64,
    stopped: AtomicBool,
    told: Mutex<Option<Duration>>,
}

impl Watch {
    pub(super) fn new(progress: Option<Progress>) -> Self {
        Self {
            state: Arc::new(State {
                progress,
                total: AtomicU64::new(0),
                begin: AtomicU64::new(0),
                expected: AtomicU64::new(0),
                read: AtomicU64::new(0),
                stopped: AtomicBool::new(false),
                told: Mutex::default(),
            }),
        }
    }

    /// The file system, watched.
    pub(super) fn over(&self, fs: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
        Arc::new(WatchedFileSystem { fs, watch: self.clone() })
    }

    /// How much will be read in all phases together.
    pub(super) fn expect(&self, total: u64) {
        self.state.total.store(total, Ordering::Relaxed);
    }

    /// What comes now reads about this much. A phase that read less, or more, ends where the next begins.
    pub(super) fn phase(&self, expected: u64) {
        let State { begin, expected: before, read, .. } = &*self.state;
        begin.fetch_add(before.swap(expected, Ordering::Relaxed), Ordering::Relaxed);
        read.store(0, Ordering::Relaxed);
    }

    /// Whether somebody asked to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.state.stopped.load(Ordering::Relaxed)
    }

    /// Everything was read.
    pub(super) fn finish(&self) {
        let total = self.state.total.load(Ordering::Relaxed);
        self.tell(total, total);
    }

    fn count(&self, bytes: usize, now: Duration) -> io::Result<()> {
        let state = &self.state;
        let read = state.read.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let mut told = state.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| now.saturating_sub(told) >= TELL_INTERVAL) {
            *told = Some(now);
            drop(told);
            let done = state.begin.load(Ordering::Relaxed) + read.min(state.expected.load(Ordering::Relaxed));
            self.tell(done, state.total.load(Ordering::Relaxed));
        }
        if self.is_stopped() { Err(io::Error::other("the reading was stopped")) } else { Ok(()) }
    }

    fn tell(&self, done: u64, total: u64) {
        if let Some(progress) = &self.state.progress
            && !progress(done.min(total), total)
        {
            self.state.stopped.store(true, Ordering::Relaxed);
        }
    }
}

struct WatchedFileSystem {
    fs: Arc<dyn FileSystem>,
    watch: Watch,
}

impl fmt::Debug for WatchedFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedFileSystem").field("fs", &self.fs).finish_non_exhaustive()
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the folder is only looked at"))
}

impl FileSystem for WatchedFileSystem {
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        refused()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.fs.list(dir)
    }

    fn create(&self, _path: &Path) -> io::Result<Arc<dyn File>> {
        refused()
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn File>> {
        if writable {
            return refused();
        }
        let file = self.fs.open(path, false)?;
        Ok(Arc::new(WatchedFile { file, fs: Arc::clone(&self.fs), watch: self.watch.clone() }))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        refused()
    }

    fn device(&self, dir: &Path) -> io::Result<u64> {
        self.fs.device(dir)
    }

    fn sync_device(&self, _device: u64) -> io::Result<()> {
        refused()
    }

    fn entropy(&self) -> io::Result<u64> {
        self.fs.entropy()
    }

    fn now(&self) -> Duration {
        self.fs.now()
    }
}

struct WatchedFile {
    file: Arc<dyn File>,
    fs: Arc<dyn FileSystem>,
    watch: Watch,
}

impl fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl File for WatchedFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.read_at(buffer, offset)?;
        self.watch.count(read, self.fs.now())?;
        Ok(read)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _length: u64) -> io::Result<()> {
        refused()
    }

    fn set_length(&self, _length: u64) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }
}
