//! Open files, kept for a while: thousands of logs share a bounded number of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::AofError;
use crate::fs::{Folder, OpenFile};
use crate::segment::Segment;

/// A log of this process and one of its segments.
type Key = (u64, u64);

/// The files used last, up to a bound. A file that is dropped here stays open for whoever still uses it.
#[derive(Debug)]
pub(crate) struct Handles {
    limit: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    files: BTreeMap<Key, (u64, OpenFile)>,
    by_age: BTreeMap<u64, Key>,
    clock: u64,
}

impl Used {
    fn touch(&mut self, key: Key) -> Option<OpenFile> {
        let (age, file) = self.files.get_mut(&key)?;
        self.clock += 1;
        self.by_age.remove(age);
        self.by_age.insert(self.clock, key);
        *age = self.clock;
        Some(file.clone())
    }

    fn remove(&mut self, key: Key) {
        if let Some((age, _)) = self.files.remove(&key) {
            self.by_age.remove(&age);
        }
    }
}

impl Handles {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit: limit as usize, used: Mutex::default() }
    }

    /// The file of a segment, opened if it is not.
    pub(crate) fn get(
        &self,
        log: u64,
        folder: &Folder,
        segment: &Segment,
        writable: bool,
    ) -> Result<OpenFile, AofError> {
        let key = (log, segment.key.id);
        if let Some(file) = self.used().touch(key) {
            return Ok(file);
        }
        let file = segment.open(folder, writable)?;
        self.put(log, segment, file.clone());
        Ok(file)
    }

    /// Keeps a file, in place of the one unused for longest if there are too many.
    pub(crate) fn put(&self, log: u64, segment: &Segment, file: OpenFile) {
        let key = (log, segment.key.id);
        let mut used = self.used();
        used.remove(key);
        if used.files.len() >= self.limit
            && let Some((_, oldest)) = used.by_age.pop_first()
        {
            used.files.remove(&oldest);
        }
        used.clock += 1;
        let age = used.clock;
        used.by_age.insert(age, key);
        used.files.insert(key, (age, file));
    }

    /// Closes the file of a segment that is gone.
    pub(crate) fn forget(&self, log: u64, segment: u64) {
        self.used().remove((log, segment));
    }

    /// Closes all files of a log.
    pub(crate) fn forget_log(&self, log: u64) {
        let mut used = self.used();
        let keys: Vec<Key> = used.files.range((log, 0)..=(log, u64::MAX)).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| used.remove(key));
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::format::{SegmentHeader, SegmentKey};
    use crate::fs::MemoryFileSystem;

    #[test]
    fn the_files_unused_for_longest_are_closed_first() {
        let fs = MemoryFileSystem::new();
        let folder = Folder { fs: Arc::new(fs.clone()), dir: PathBuf::from("/log") };
        let segment =
            |id| Segment::scanned(&SegmentHeader { key: SegmentKey::new(id, 1), capacity: 0 }, Vec::new());
        (0..4).for_each(|id| fs.set_bytes(&folder.path(&segment(id).file_name()), Vec::new()));
        let handles = Handles::new(2);
        let opened = |log, id| {
            let before = fs.calls();
            handles.get(log, &folder, &segment(id), false).unwrap();
            fs.calls() > before
        };
        assert_eq!([opened(0, 0), opened(0, 1), opened(0, 0), opened(0, 2)], [true, true, false, true]);
        assert_eq!([opened(0, 0), opened(0, 1), opened(0, 2)], [false, true, true]);
        handles.forget(0, 2);
        assert!(opened(0, 2) && !opened(0, 1));
        handles.forget_log(0);
        assert!(opened(0, 1) && opened(1, 1));
        assert_eq!(handles.used().files.len(), 2);
    }
}
