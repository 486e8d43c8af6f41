//! The machine's own files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};

use super::{File, FileSystem};

/// The file system of this machine.
#[derive(Debug, Default)]
pub struct RealFileSystem {
    /// One open folder of each device. `syncfs` reports the errors since its folder was opened, so it is opened before
    /// the first byte is written.
    devices: Mutex<BTreeMap<u64, Arc<fs::File>>>,
}

impl FileSystem for RealFileSystem {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        self.make_dir(dir)?;
        self.sync_dir(parent_of(dir))
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let made = match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_dir(parent_of(dir))?;
                fs::create_dir(dir)
            }
            made => made,
        };
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        // A name that is no text is none of ours.
        fs::read_dir(dir)?
            .filter_map(|entry| entry.map(|e| e.file_name().into_string().ok()).transpose())
            .collect()
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile(fs::File::options().read(true).write(true).create_new(true).open(path)?)))
    }

    fn open(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile(fs::File::options().read(true).write(writable).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        fs::File::open(dir)?.sync_all()
    }

    fn device(&self, dir: &Path) -> io::Result<u64> {
        let opened = fs::File::open(dir)?;
        let device = opened.metadata()?.dev();
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.entry(device).or_insert_with(|| Arc::new(opened));
        Ok(device)
    }

    fn sync_device(&self, device: u64) -> io::Result<()> {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = devices.get(&device).cloned().ok_or(io::ErrorKind::NotFound)?;
        drop(devices);
        #[cfg(target_os = "linux")]
        // It commits the names too: every file system on Linux writes all of its metadata for it.
        return Ok(rustix::fs::syncfs(&dir)?);
        #[cfg(not(target_os = "linux"))]
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{dir:?}: only Linux syncs one file system")))
    }

    fn entropy(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        // Requests of up to 256 bytes are answered whole.
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        Ok(u64::from_le_bytes(bytes))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the clock that everything else asks")]
    fn now(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

/// Where the name of a folder stands.
fn parent_of(dir: &Path) -> &Path {
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[derive(Debug)]
struct RealFile(fs::File);

impl File for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), 0, length) {
            // Not every file system reserves room; the length alone is what recovery needs.
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            other => return Ok(other?),
        }
        if self.length()? < length { self.0.set_len(length) } else { Ok(()) }
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
