//! Faults on purpose, over another file system: a disk that is full, that fails or tears writes, that fails syncs.
//!
//! What to do stands in a small text file, so that whoever torments a running process from outside can change it; while
//! the file is not there nothing happens. `laminar chaos` uses it. `torn` has every file torn, `torn partitions` only those
//! below a folder of that name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{File, FileSystem};

/// How often the control file is read.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiskFault {
    /// Nothing.
    #[default]
    None,
    /// There is no room: nothing can be written, made longer or created.
    Full,
    /// Writes fail.
    Writes,
    /// Half of what is written arrives, and the write fails.
    Torn,
    /// Syncs fail.
    Syncs,
}

/// A fault, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Wanted {
    fault: DiskFault,
    /// The name of a folder; everywhere if none.
    below: Option<String>,
}

impl Wanted {
    /// What a control file asks for; nothing if it cannot be understood.
    fn of_text(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let fault = match words.next() {
            Some("full") => DiskFault::Full,
            Some("writes") => DiskFault::Writes,
            Some("torn") => DiskFault::Torn,
            Some("syncs") => DiskFault::Syncs,
            _ => DiskFault::None,
        };
        Wanted { fault, below: words.next().map(str::to_owned) }
    }

    fn at(&self, path: &Path) -> DiskFault {
        let is_below = |name: &String| path.components().any(|part| part.as_os_str() == name.as_str());
        if self.below.as_ref().is_none_or(is_below) { self.fault } else { DiskFault::None }
    }
}

/// A file system that has the faults its control file asks for.
#[derive(Debug, Clone)]
pub struct FaultyFileSystem {
    inner: Arc<dyn FileSystem>,
    control: Arc<Control>,
}

#[derive(Debug)]
struct Control {
    path: PathBuf,
    clock: Arc<dyn FileSystem>,
    seen: Mutex<(Option<Duration>, Wanted)>,
}

impl Control {
    /// What goes wrong with a file or folder.
    fn fault(&self, at: &Path) -> DiskFault {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if seen.0.is_none_or(|at| now.saturating_sub(at) >= LOOK_INTERVAL) {
            let text = std::fs::read_to_string(&self.path);
            *seen = (Some(now), text.map_or_else(|_| Wanted::default(), |text| Wanted::of_text(&text)));
        }
        seen.1.at(at)
    }

    /// Whether something may be made or made longer.
    fn room(&self, at: &Path) -> io::Result<()> {
        if self.fault(at) == DiskFault::Full { Err(full()) } else { Ok(()) }
    }

    fn sync(&self, at: &Path) -> io::Result<()> {
        if self.fault(at) == DiskFault::Syncs { Err(failed("sync")) } else { Ok(()) }
    }
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the disk is full on purpose")
}

fn failed(what: &str) -> io::Error {
    io::Error::other(format!("the {what} fails on purpose"))
}

impl FaultyFileSystem {
    /// Over `inner`, with the faults that the file `control` asks for.
    pub fn new(inner: Arc<dyn FileSystem>, control: PathBuf) -> Self {
        let clock = Arc::clone(&inner);
        Self { inner, control: Arc::new(Control { path: control, clock, seen: Mutex::default() }) }
    }

    fn wrap(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FaultyFile { inner: file, path: path.to_owned(), control: Arc::clone(&self.control) })
    }
}

impl FileSystem for FaultyFileSystem {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.control.room(dir)?;
        self.inner.create_dir(dir)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.control.room(dir)?;
        self.inner.make_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.control.room(path)?;
        Ok(self.wrap(path, self.inner.create(path)?))
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.inner.open(path, writable)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.control.sync(dir)?;
        self.inner.sync_dir(dir)
    }

    fn device(&self, dir: &Path) -> io::Result<u64> {
        self.inner.device(dir)
    }

    fn sync_device(&self, device: u64) -> io::Result<()> {
        self.control.sync(Path::new(""))?;
        self.inner.sync_device(device)
    }

    fn entropy(&self) -> io::Result<u64> {
        self.inner.entropy()
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    path: PathBuf,
    control: Arc<Control>,
}

impl File for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.control.fault(&self.path) {
            DiskFault::Full => Err(full()),
            DiskFault::Writes => Err(failed("write")),
            DiskFault::Torn => {
                self.inner.write_at(&bytes[..bytes.len() / 2], offset)?;
                Err(failed("write"))
            }
            DiskFault::None | DiskFault::Syncs => self.inner.write_at(bytes, offset),
        }
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.control.room(&self.path)?;
        self.inner.allocate(length)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.inner.set_length(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.control.sync(&self.path)?;
        self.inner.sync()
    }
}
