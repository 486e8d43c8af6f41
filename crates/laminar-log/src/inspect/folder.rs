//! What a folder is, and how its logs are opened without a trace.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use laminar_aof::format::FileName;
use laminar_aof::fs::FileSystem;
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig};
use laminar_core::ids::PartitionId;

use super::fault::{Fault, InspectError, line};
use super::report::LogKind;
use super::watch::Watch;
use crate::error::LogError;
use crate::layout;
use crate::partition_log::{
    PartitionLogConfig, PartitionLogStore, PartitionOpened, list_partitions, partition_folder,
};
use crate::snapshot::SnapshotStore;
use crate::store::{SegmentedLogConfig, SegmentedLogStore, StoreOpened};

/// How often a log is opened that looks different each time: somebody writes to it.
const ATTEMPTS_MAX: u32 = 8;

/// A folder that is looked at.
pub(super) struct Folder {
    pub(super) dir: PathBuf,
    pub(super) kind: LogKind,
    /// The segmented log, if there is one.
    pub(super) raft: Option<PathBuf>,
    /// The folder of the partitions' logs, and the partitions.
    pub(super) partitions: Option<(PathBuf, Vec<PartitionId>)>,
    pub(super) snapshots: Option<SnapshotStore>,
    pub(super) committer: Committer,
    /// Read every record of what is opened, also those that a trailer vouches for.
    pub(super) verify: bool,
}

impl Folder {
    /// Finds out what a folder is.
    pub(super) fn new(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        watch: &Watch,
        verify: bool,
    ) -> Result<Self, InspectError> {
        let fs = watch.over(fs);
        let names = fs
            .list(dir)
            .map_err(|source| InspectError::Folder { dir: dir.to_owned(), source: Arc::new(source) })?;
        let config = CommitterConfig { logs_max: 1 << 24, ..CommitterConfig::default() };
        // No threads: nothing is ever written.
        let committer = Committer::manual(config, Arc::clone(&fs)).map_err(LogError::from)?;
        let mut folder = Self {
            dir: dir.to_owned(),
            kind: LogKind::Replica,
            raft: None,
            partitions: None,
            snapshots: None,
            committer,
            verify,
        };
        let has = |name: &str| names.iter().any(|other| other == name);
        if has(layout::RAFT) || has(layout::PARTITIONS) || has(layout::SNAPSHOTS) {
            folder.raft = has(layout::RAFT).then(|| layout::raft_dir(dir));
            if has(layout::PARTITIONS) {
                let root = layout::partitions_dir(dir);
                let partitions = list_partitions(&folder.committer, &root)?;
                folder.partitions = Some((root, partitions));
            }
            folder.snapshots = has(layout::SNAPSHOTS)
                .then(|| SnapshotStore::open_read_only(fs, &layout::snapshots_dir(dir)));
        } else if names.iter().any(|name| FileName::parse(name).is_some()) {
            folder.one_log();
        } else {
            return Err(InspectError::NotALog { dir: dir.to_owned() });
        }
        Ok(folder)
    }

    /// A folder with the segments of one log: of which kind, its first record and its name tell.
    fn one_log(&mut self) {
        let by_name = partition_of(&self.dir);
        // The second byte of an operation of the segmented log is its version; of a stored record, zero.
        self.kind = match (self.first_record(), &by_name) {
            (Some(record), _) if record.get(1) == Some(&1) => LogKind::SegmentedLog,
            (Some(record), Some(_)) if record.get(1) == Some(&0) => LogKind::PartitionLog,
            _ => LogKind::Files,
        };
        match (self.kind, by_name) {
            (LogKind::SegmentedLog, _) => self.raft = Some(self.dir.clone()),
            (LogKind::PartitionLog, Some((root, partition))) => {
                self.partitions = Some((root, vec![partition]));
            }
            _ => {}
        }
    }

    /// None also if it cannot be read: then it is looked at as files, which tells what is wrong.
    fn first_record(&self) -> Option<bytes::Bytes> {
        let opened = Aof::open_read_only(&self.committer, &self.dir, AofConfig::default());
        let (log, opened) = opened.ok()?;
        log.read(opened.sequences.start).ok()
    }

    /// The name of something in it, for people.
    pub(super) fn name_of(&self, path: &Path) -> String {
        let within = path.strip_prefix(&self.dir).unwrap_or(path);
        let name = if within.as_os_str().is_empty() { path } else { within };
        name.display().to_string()
    }

    pub(super) fn open_raft(&self, dir: &Path) -> Result<(SegmentedLogStore, StoreOpened), LogError> {
        let files = AofConfig { verify_sealed: self.verify, ..AofConfig::default() };
        let config = SegmentedLogConfig { files, cache_bytes_max: 0, ..SegmentedLogConfig::default() };
        // A committer of its own each time, because it may be opened again while a first opening is still in use.
        let fs = self.committer.file_system();
        let committer = Committer::manual(CommitterConfig::default(), Arc::clone(fs))?;
        settled(|| SegmentedLogStore::open_read_only(&committer, dir, config.clone()))
    }

    pub(super) fn open_partition(
        &self,
        root: &Path,
        partition: PartitionId,
    ) -> Result<(PartitionLogStore, PartitionOpened), LogError> {
        let config = PartitionLogConfig { verify_all: self.verify, ..PartitionLogConfig::default() };
        settled(|| PartitionLogStore::open_read_only(&self.committer, root, partition, config.clone()))
    }

    pub(super) fn open_files(&self) -> Result<(Aof, laminar_aof::Opened), LogError> {
        let config = AofConfig { verify_sealed: self.verify, ..AofConfig::default() };
        settled(|| Aof::open_read_only(&self.committer, &self.dir, config.clone()).map_err(LogError::from))
    }

    /// About how many bytes the segments in a folder have.
    pub(super) fn segment_bytes(&self, dir: &Path) -> u64 {
        let fs = self.committer.file_system();
        let length = |path: PathBuf| fs.open(&path, false).and_then(|file| file.length());
        let names = fs.list(dir).unwrap_or_default();
        let segments =
            names.iter().filter(|name| matches!(FileName::parse(name), Some(FileName::Segment(_))));
        segments.map(|name| length(dir.join(name)).unwrap_or(0)).sum()
    }
}

/// The partition whose log this folder is by its name, and the folder it is in.
fn partition_of(dir: &Path) -> Option<(PathBuf, PartitionId)> {
    let (root, name) = (dir.parent()?, dir.file_name()?.to_str()?);
    let partition = PartitionId(u32::from_str_radix(name, 16).ok()?);
    (partition_folder(root, partition) == dir).then(|| (root.to_owned(), partition))
}

/// Does it again until it succeeds, or fails twice alike: a log that somebody else writes to may be looked at between
/// two of his steps, and what was wrong then is not wrong for long.
pub(super) fn settled<T>(mut attempt: impl FnMut() -> Result<T, LogError>) -> Result<T, LogError> {
    let mut before = None;
    for _ in 1..ATTEMPTS_MAX {
        let error = match attempt() {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let said = Some(line(&error));
        if said == before {
            return Err(error);
        }
        before = said;
    }
    attempt()
}

/// Whether a file is simply not there: removed since its folder was listed.
pub(super) fn is_gone(fault: &Fault) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(fault);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::NotFound;
        }
        if let Some(error) = error.downcast_ref::<Arc<io::Error>>() {
            return error.kind() == io::ErrorKind::NotFound;
        }
        source = error.source();
    }
    false
}
