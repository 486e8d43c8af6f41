//! Files in memory that can fail, tear, stall, lie and lose power.
//!
//! Each file has the bytes that programs see and the bytes that are on its disk. A sync brings the first to the
//! second; a power cut leaves the second, with whichever unsynced pages, lengths and names the test lets survive.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{File, FileSystem};
use crate::error::FileOperation;

/// What reaches a disk, or does not, as a whole.
const PAGE_BYTES: usize = 4096;

/// One call, as the hook of a test sees it before it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCall {
    /// Which call.
    pub operation: FileOperation,
    /// On which file or folder; for a sync of everything, empty.
    pub path: PathBuf,
    /// How many calls came before it.
    pub number: u64,
}

/// What to do to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens, and this error is returned. A failed sync leaves the pages clean: later syncs succeed, and
    /// the bytes are on no disk. One of a device is reported by the next sync of each file that lost bytes, too.
    Fail(io::ErrorKind),
    /// A write reaches this many bytes, then fails.
    Tear(usize, io::ErrorKind),
    /// A sync that does nothing and says it did.
    Lie,
    /// It does what it should, and takes so long by the file system's clock.
    Delay(Duration),
}

/// Something that a power cut may or may not keep.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Survival {
    /// A page of a file that was written and not synced.
    Page(PathBuf, u64),
    /// A file's new length.
    Length(PathBuf),
    /// A name that was made, changed or removed.
    Name(PathBuf),
}

type Hook = Box<dyn FnMut(&FileCall) -> Option<Fault> + Send>;

/// A file system in memory.
#[derive(Clone, Default)]
pub struct MemoryFileSystem {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Default)]
struct Disk {
    files: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    dirs: BTreeSet<PathBuf>,
    /// Folders that were made, and would be gone after a power cut with all that is in them.
    new_dirs: BTreeSet<PathBuf>,
    /// Folders that were removed, and would be there again after a power cut.
    removed_dirs: BTreeSet<PathBuf>,
    next_inode: u64,
    entropy: u64,
    now: Duration,
    calls: u64,
    /// Handles of an earlier time do not work after a power cut.
    boots: u64,
    room: Option<u64>,
    hook: Option<Hook>,
}

#[derive(Default, Clone)]
struct Inode {
    seen: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<u64>,
    /// What the next sync reports: bytes were lost by one of the whole device.
    lost: Option<io::ErrorKind>,
}

impl Inode {
    fn keep_page(&mut self, page: u64) {
        let begin = page as usize * PAGE_BYTES;
        let end = (begin + PAGE_BYTES).min(self.seen.len());
        if begin < end {
            self.durable.resize(self.durable.len().max(end), 0);
            self.durable[begin..end].copy_from_slice(&self.seen[begin..end]);
        }
    }

    fn keep_all(&mut self) {
        for page in std::mem::take(&mut self.dirty) {
            self.keep_page(page);
        }
        self.durable.resize(self.seen.len(), 0);
    }
}

impl MemoryFileSystem {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks `hook` before each call what to do to it. A hook that waits delays the call, and every other one.
    pub fn on_call(&self, hook: impl FnMut(&FileCall) -> Option<Fault> + Send + 'static) {
        self.disk().hook = Some(Box::new(hook));
    }

    /// Every call does what it should from now on.
    pub fn heal(&self) {
        let mut disk = self.disk();
        disk.hook = None;
        disk.room = None;
    }

    /// Only so many bytes fit from now on, all files together.
    pub fn limit_room(&self, bytes: u64) {
        self.disk().room = Some(bytes);
    }

    /// How many bytes all files have.
    pub fn used(&self) -> u64 {
        self.disk().used()
    }

    /// How many calls were made so far.
    pub fn calls(&self) -> u64 {
        self.disk().calls
    }

    /// Moves the clock on.
    pub fn advance(&self, time: Duration) {
        self.disk().now += time;
    }

    /// What a power cut now could keep or lose.
    pub fn unsynced(&self) -> Vec<Survival> {
        self.disk().unsynced()
    }

    /// Cuts the power; chance decides what survives, the same for the same seed.
    pub fn power_cut_seeded(&self, seed: u64) {
        let mut bits = seed | 1;
        self.power_cut(|_| {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            bits & 1 == 1
        });
    }

    /// Cuts the power: what was not synced is lost, unless `survives` says otherwise. Open files stop working.
    pub fn power_cut(&self, mut survives: impl FnMut(&Survival) -> bool) {
        let disk = &mut *self.disk();
        for survival in disk.unsynced() {
            let survives = survives(&survival);
            match survival {
                Survival::Name(path) if survives => disk.keep_name(&path),
                Survival::Name(_) => {}
                Survival::Page(path, page) if survives => disk.inode_mut(&path).keep_page(page),
                Survival::Length(path) if survives => {
                    let inode = disk.inode_mut(&path);
                    inode.durable.resize(inode.seen.len(), 0);
                }
                Survival::Page(..) | Survival::Length(_) => {}
            }
        }
        for dir in std::mem::take(&mut disk.new_dirs) {
            disk.dirs.retain(|other| !other.starts_with(&dir));
            disk.durable_names.retain(|path, _| !path.starts_with(&dir));
        }
        disk.names = disk.durable_names.clone();
        let removed = std::mem::take(&mut disk.removed_dirs);
        disk.dirs.extend(removed.into_iter().chain(parents(&disk.names)));
        let kept: BTreeSet<u64> = disk.names.values().copied().collect();
        disk.files.retain(|inode, _| kept.contains(inode));
        for inode in disk.files.values_mut() {
            inode.seen = inode.durable.clone();
            inode.dirty.clear();
            inode.lost = None;
        }
        disk.boots += 1;
    }

    /// The bytes of a file as programs see them.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.disk();
        disk.names.get(path).map(|inode| disk.files[inode].seen.clone())
    }

    /// Replaces a file, on the disk too: damage, or a file from elsewhere.
    pub fn set_bytes(&self, path: &Path, bytes: Vec<u8>) {
        let disk = &mut *self.disk();
        let inode = disk.names.get(path).copied().unwrap_or_else(|| disk.new_inode(path));
        disk.keep_name(path);
        disk.dirs.extend(path.parent().map(Path::to_owned));
        disk.new_dirs.retain(|dir| !path.starts_with(dir));
        disk.files.insert(inode, Inode { seen: bytes.clone(), durable: bytes, ..Inode::default() });
    }

    /// The names of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.disk().names.keys().cloned().collect()
    }

    /// A disk of its own with the same content, all of it durable.
    pub fn copy(&self) -> Self {
        let copy = Self::new();
        for path in self.paths() {
            copy.set_bytes(&path, self.bytes(&path).unwrap_or_default());
        }
        // Identities must not come again in the copy.
        copy.disk().entropy = self.disk().entropy;
        copy
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    fn used(&self) -> u64 {
        self.files.values().map(|inode| inode.seen.len() as u64).sum()
    }

    fn new_inode(&mut self, path: &Path) -> u64 {
        self.next_inode += 1;
        self.files.insert(self.next_inode, Inode::default());
        self.names.insert(path.to_owned(), self.next_inode);
        self.next_inode
    }

    fn inode_mut(&mut self, path: &Path) -> &mut Inode {
        let inode = self.names[path];
        self.files.get_mut(&inode).expect("every name has a file")
    }

    fn keep_name(&mut self, path: &Path) {
        self.removed_dirs.remove(path);
        self.new_dirs.remove(path);
        match self.names.get(path) {
            Some(inode) => drop(self.durable_names.insert(path.to_owned(), *inode)),
            None => drop(self.durable_names.remove(path)),
        }
    }

    fn unsynced(&self) -> Vec<Survival> {
        let mut found = Vec::new();
        for (path, inode) in &self.names {
            let inode = &self.files[inode];
            found.extend(inode.dirty.iter().map(|page| Survival::Page(path.clone(), *page)));
            if inode.seen.len() != inode.durable.len() {
                found.push(Survival::Length(path.clone()));
            }
        }
        let changed = |path: &&PathBuf| self.names.get(*path) != self.durable_names.get(*path);
        let names: BTreeSet<&PathBuf> =
            self.names.keys().chain(self.durable_names.keys()).filter(changed).collect();
        let dirs = self.removed_dirs.iter().chain(&self.new_dirs);
        found.extend(names.into_iter().chain(dirs).cloned().map(Survival::Name));
        found
    }

    /// Makes names durable: those in a folder, or all of them.
    fn keep_names(&mut self, dir: Option<&Path>) {
        let files = self.names.keys().chain(self.durable_names.keys());
        let known = files.chain(&self.removed_dirs).chain(&self.new_dirs);
        let inside = known.filter(|path| dir.is_none() || path.parent() == dir);
        for path in inside.cloned().collect::<BTreeSet<PathBuf>>() {
            self.keep_name(&path);
        }
    }

    /// Counts the call and asks the hook. `Ok(Some)` is a fault that the call itself carries out.
    fn call(&mut self, operation: FileOperation, path: &Path) -> io::Result<Option<Fault>> {
        let call = FileCall { operation, path: path.to_owned(), number: self.calls };
        self.calls += 1;
        match self.hook.as_mut().and_then(|hook| hook(&call)) {
            Some(Fault::Delay(time)) => {
                self.now += time;
                Ok(None)
            }
            Some(Fault::Fail(kind)) if !matches!(operation, FileOperation::Sync | FileOperation::SyncAll) => {
                Err(kind.into())
            }
            fault => Ok(fault),
        }
    }

    fn grow(&mut self, inode: u64, length: usize) -> io::Result<()> {
        let grown = length.saturating_sub(self.files[&inode].seen.len()) as u64;
        if grown > 0 && self.room.is_some_and(|room| self.used() + grown > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inode = self.files.get_mut(&inode).expect("the caller has it open");
        inode.seen.resize(inode.seen.len().max(length), 0);
        Ok(())
    }

    fn write(&mut self, inode: u64, bytes: &[u8], offset: usize) -> io::Result<()> {
        self.grow(inode, offset + bytes.len())?;
        let inode = self.files.get_mut(&inode).expect("the caller has it open");
        inode.seen[offset..offset + bytes.len()].copy_from_slice(bytes);
        inode.dirty.extend((offset / PAGE_BYTES) as u64..(offset + bytes.len()).div_ceil(PAGE_BYTES) as u64);
        Ok(())
    }

    fn sync(&mut self, inode: u64, fault: Option<&Fault>) -> io::Result<()> {
        let inode = self.files.get_mut(&inode).expect("the caller has it open");
        match fault {
            Some(Fault::Fail(kind)) => {
                inode.dirty.clear();
                Err((*kind).into())
            }
            Some(Fault::Lie) => Ok(()),
            _ if inode.lost.is_some() => {
                inode.dirty.clear();
                Err(inode.lost.take().expect("there is one").into())
            }
            _ => {
                inode.keep_all();
                Ok(())
            }
        }
    }

    fn sync_all(&mut self, fault: Option<&Fault>) -> io::Result<()> {
        match fault {
            Some(Fault::Fail(kind)) => {
                for inode in self.files.values_mut().filter(|inode| !inode.dirty.is_empty()) {
                    inode.dirty.clear();
                    inode.lost = Some(*kind);
                }
                Err((*kind).into())
            }
            Some(Fault::Lie) => Ok(()),
            _ => {
                self.files.values_mut().for_each(Inode::keep_all);
                self.keep_names(None);
                Ok(())
            }
        }
    }
}

fn parents(names: &BTreeMap<PathBuf, u64>) -> impl Iterator<Item = PathBuf> {
    names.keys().filter_map(|path| path.parent().map(Path::to_owned))
}

impl fmt::Debug for MemoryFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFileSystem").field("names", &self.disk().names).finish_non_exhaustive()
    }
}

impl FileSystem for MemoryFileSystem {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.call(FileOperation::CreateDir, dir)?;
        for dir in dir.ancestors() {
            disk.removed_dirs.remove(dir);
            disk.dirs.insert(dir.to_owned());
        }
        Ok(())
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.call(FileOperation::CreateDir, dir)?;
        for above in dir.ancestors().skip(1) {
            disk.removed_dirs.remove(above);
            disk.dirs.insert(above.to_owned());
        }
        if disk.dirs.insert(dir.to_owned()) && !disk.removed_dirs.remove(dir) {
            disk.new_dirs.insert(dir.to_owned());
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut disk = self.disk();
        disk.call(FileOperation::List, dir)?;
        if !disk.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = disk.names.keys().chain(&disk.dirs).filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut disk = self.disk();
        disk.call(FileOperation::Create, path)?;
        if disk.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if path.parent().is_some_and(|dir| !disk.dirs.contains(dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inode = disk.new_inode(path);
        Ok(Arc::new(MemoryFile { fs: self.clone(), path: path.to_owned(), inode, boot: disk.boots }))
    }

    fn open(&self, path: &Path, _writable: bool) -> io::Result<Arc<dyn File>> {
        let mut disk = self.disk();
        disk.call(FileOperation::Open, path)?;
        let inode = *disk.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { fs: self.clone(), path: path.to_owned(), inode, boot: disk.boots }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.call(FileOperation::Rename, from)?;
        let inode = disk.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        disk.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.call(FileOperation::Remove, path)?;
        disk.names.remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        disk.call(FileOperation::Remove, dir)?;
        if !disk.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if disk.names.keys().chain(&disk.dirs).any(|path| path.parent() == Some(dir)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        disk.dirs.remove(dir);
        disk.new_dirs.remove(dir);
        disk.removed_dirs.insert(dir.to_owned());
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.disk();
        if disk.call(FileOperation::SyncDir, dir)? == Some(Fault::Lie) {
            return Ok(());
        }
        disk.keep_names(Some(dir));
        Ok(())
    }

    fn device(&self, _dir: &Path) -> io::Result<u64> {
        Ok(1)
    }

    fn sync_device(&self, _device: u64) -> io::Result<()> {
        let mut disk = self.disk();
        let fault = disk.call(FileOperation::SyncAll, Path::new(""))?;
        disk.sync_all(fault.as_ref())
    }

    fn entropy(&self) -> io::Result<u64> {
        let mut disk = self.disk();
        disk.entropy += 1;
        // Spread over all bits, and never the same twice.
        Ok(disk.entropy.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn now(&self) -> Duration {
        self.disk().now
    }
}

struct MemoryFile {
    fs: MemoryFileSystem,
    path: PathBuf,
    inode: u64,
    boot: u64,
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryFile({})", self.path.display())
    }
}

impl MemoryFile {
    /// The disk, if the power was on since the file was opened.
    fn call(&self, operation: FileOperation) -> io::Result<(MutexGuard<'_, Disk>, Option<Fault>)> {
        let mut disk = self.fs.disk();
        if disk.boots != self.boot {
            return Err(io::Error::other("the power was cut since this file was opened"));
        }
        let fault = disk.call(operation, &self.path)?;
        Ok((disk, fault))
    }
}

impl File for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        let (disk, _) = self.call(FileOperation::Length)?;
        Ok(disk.files[&self.inode].seen.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (disk, _) = self.call(FileOperation::Read)?;
        let bytes = disk.files[&self.inode].seen.get(offset as usize..).unwrap_or_default();
        let filled = bytes.len().min(buffer.len());
        buffer[..filled].copy_from_slice(&bytes[..filled]);
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (mut disk, fault) = self.call(FileOperation::Write)?;
        match fault {
            Some(Fault::Tear(reached, kind)) => {
                disk.write(self.inode, &bytes[..reached.min(bytes.len())], offset as usize)?;
                Err(kind.into())
            }
            _ => disk.write(self.inode, bytes, offset as usize),
        }
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let (mut disk, _) = self.call(FileOperation::Allocate)?;
        disk.grow(self.inode, length as usize)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let (mut disk, _) = self.call(FileOperation::SetLength)?;
        disk.grow(self.inode, length as usize)?;
        let inode = disk.files.get_mut(&self.inode).expect("it is open");
        inode.seen.truncate(length as usize);
        inode.dirty.retain(|page| page * (PAGE_BYTES as u64) < length);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let (mut disk, fault) = self.call(FileOperation::Sync)?;
        disk.sync(self.inode, fault.as_ref())
    }
}
