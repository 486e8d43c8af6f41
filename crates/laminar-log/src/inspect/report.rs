//! What a folder holds, in types that can be printed as JSON.

use std::path::Path;
use std::sync::Arc;

use laminar_aof::fs::FileSystem;
use laminar_aof::{CutTail, SegmentInfo};
use laminar_core::ids::{NodeId, PartitionId};
use serde::Serialize;

use super::fault::{Fault, FaultReport, InspectError};
use super::folder::Folder;
use super::snapshots;
use super::watch::{Progress, Watch};
use crate::entry::Change;
use crate::error::LogError;
use crate::format::FORMAT_VERSION;
use crate::log_id::{LogId, PartitionLogIndex, Vote};
use crate::partition_log::{PartitionLogStore, partition_folder, rows};
use crate::snapshot::SNAPSHOT_VERSION;

/// Records at the end of a partition's log that are read to find its owner.
const OWNER_RECORDS_MAX: u64 = 16;

/// What a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    /// A replica's: the segmented log, the partitions' logs, snapshots.
    Replica,
    /// The segmented log alone.
    SegmentedLog,
    /// The log of one partition.
    PartitionLog,
    /// The segments of a log, of which no more can be said.
    Files,
}

/// What a folder holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InspectReport {
    /// The folder.
    pub dir: String,
    /// What it is.
    pub kind: LogKind,
    /// The versions of its formats.
    pub formats: Formats,
    /// The Raft log.
    pub segmented_log: Option<SegmentedLogReport>,
    /// The partitions' logs, by partition.
    pub partitions: Vec<PartitionReport>,
    /// The snapshots, oldest first.
    pub snapshots: Vec<SnapshotReport>,
    /// A log that is neither.
    pub files: Option<FilesReport>,
    /// The first thing that could not be read, also where it stands.
    pub first_error: Option<FaultReport>,
}

/// The versions that are read; a folder with a newer one is refused, and there is no older one yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Formats {
    /// Segment files.
    pub segments: u32,
    /// Entries and stored records.
    pub records: u8,
    /// Snapshots.
    pub snapshots: u8,
}

impl Formats {
    const READ: Formats = Formats {
        segments: laminar_aof::format::FORMAT_VERSION,
        records: FORMAT_VERSION,
        snapshots: SNAPSHOT_VERSION,
    };
}

/// A segment of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SegmentReport {
    /// Its number, which names the file.
    pub id: u64,
    /// Its first record.
    pub first: u64,
    /// The one after its last.
    pub end: u64,
    /// Where in the file the records end.
    pub bytes: u64,
    /// How long the file was made.
    pub capacity: u64,
    /// Whether it will never change.
    pub sealed: bool,
}

impl From<SegmentInfo> for SegmentReport {
    fn from(info: SegmentInfo) -> Self {
        let SegmentInfo { id, first, end, bytes, capacity, sealed } = info;
        Self { id, first, end, bytes, capacity, sealed }
    }
}

/// Where an intact log ends and something stands behind it that was never synced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CutReport {
    /// The log, within the folder.
    pub log: String,
    /// The segment's id.
    pub segment: u64,
    /// The record after the last intact one.
    pub record: u64,
    /// Where in the segment's file the intact records end.
    pub byte: u64,
}

impl CutReport {
    pub(super) fn new(log: &str, cut: CutTail) -> Self {
        Self { log: log.to_owned(), segment: cut.segment, record: cut.sequence, byte: cut.byte }
    }
}

/// Records that a partition stored from entries that were cut off the segmented log: the next start cuts them too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AheadReport {
    /// The partition.
    pub partition: PartitionId,
    /// The first such record.
    pub record: PartitionLogIndex,
    /// The one after the last.
    pub end: PartitionLogIndex,
}

/// The files of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FilesReport {
    /// Its segments.
    pub segments: Vec<SegmentReport>,
    /// Its first record.
    pub first: u64,
    /// The one after its last.
    pub end: u64,
    /// The first that is not known to be on disk.
    pub synced_end: u64,
    /// Bytes in use, of all segments.
    pub bytes: u64,
    /// Bytes that the segments were made for.
    pub capacity: u64,
    /// Where its intact part ends, if something stands behind it.
    pub cut: Option<CutReport>,
}

impl FilesReport {
    fn new(segments: Vec<SegmentInfo>, sequences: std::ops::Range<u64>, synced_end: u64) -> Self {
        Self {
            first: sequences.start,
            end: sequences.end,
            synced_end,
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            capacity: segments.iter().map(|segment| segment.capacity).sum(),
            segments: segments.into_iter().map(SegmentReport::from).collect(),
            cut: None,
        }
    }
}

/// The Raft log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SegmentedLogReport {
    /// Its files: their records are operations, of which entries are one kind.
    #[serde(flatten)]
    pub files: FilesReport,
    /// Whom the replica voted for.
    pub vote: Option<Vote>,
    /// The last entry known to be committed; may be behind.
    pub committed: Option<LogId>,
    /// The last entry that was purged.
    pub purged: Option<LogId>,
    /// The last entry; if there is none, the last that was purged.
    pub last: Option<LogId>,
    /// The last entry known to be on disk.
    pub durable: Option<LogId>,
    /// The index of the first entry there is.
    pub first_index: Option<u64>,
    /// What is wrong with it: then nothing else is known.
    pub error: Option<FaultReport>,
}

/// The log of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionReport {
    /// The partition.
    pub partition: PartitionId,
    /// Its files: their records are those of the partition.
    #[serde(flatten)]
    pub files: FilesReport,
    /// The first row there is.
    pub first_offset: Option<u64>,
    /// The row after the last.
    pub end_offset: Option<u64>,
    /// The epoch of the first record.
    pub first_epoch: Option<u64>,
    /// The epoch of the last record.
    pub last_epoch: Option<u64>,
    /// The owner under that epoch, if one of the last records names it.
    pub owner: Option<NodeId>,
    /// The entry of the last record.
    pub last_log_id: Option<LogId>,
    /// The time of the last record, in milliseconds since 1970.
    pub last_time_ms: Option<u64>,
    /// What is wrong with it: then nothing else is known.
    pub error: Option<FaultReport>,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotReport {
    /// The last entry that it covers.
    pub log_id: LogId,
    /// Whether it came from another replica and is still to be installed.
    pub to_install: bool,
    /// How long its file is.
    pub bytes: u64,
    /// How many partitions it has.
    pub partitions: u32,
    /// What is wrong with it.
    pub error: Option<FaultReport>,
}

/// Says what a folder holds, and changes nothing. What is damaged is told where it stands; the rest is told as it is.
///
/// # Errors
///
/// Invalid, if the folder is none of ours. Unavailable, if a file cannot be read, or `progress` asked to stop.
pub fn inspect(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    progress: Option<Progress>,
) -> Result<InspectReport, InspectError> {
    let watch = Watch::new(progress);
    let folder = Folder::new(fs, dir, &watch, false)?;
    let report = look(&folder, &watch);
    if watch.is_stopped() {
        return Err(InspectError::Stopped);
    }
    watch.finish();
    report
}

fn look(folder: &Folder, watch: &Watch) -> Result<InspectReport, InspectError> {
    // The segmented log is read to its end, after its tail was scanned; of the others hardly anything.
    let raft_bytes = folder.raft.as_ref().map_or(0, |dir| 2 * folder.segment_bytes(dir));
    watch.expect(raft_bytes);
    watch.phase(raft_bytes);
    let mut report = InspectReport {
        dir: folder.dir.display().to_string(),
        kind: folder.kind,
        formats: Formats::READ,
        segmented_log: None,
        partitions: Vec::new(),
        snapshots: Vec::new(),
        files: None,
        first_error: None,
    };
    if let Some(dir) = &folder.raft {
        let log = folder.name_of(dir);
        report.segmented_log = Some(match segmented_log(folder, dir, &log) {
            Ok(found) => found,
            Err(error) => {
                SegmentedLogReport { error: Some(told(log, error)?), ..SegmentedLogReport::default() }
            }
        });
    }
    if let Some((root, partitions)) = &folder.partitions {
        for id in partitions {
            let log = folder.name_of(&partition_folder(root, *id));
            report.partitions.push(match partition(folder, root, *id, &log) {
                Ok(found) => found,
                Err(error) => {
                    PartitionReport { error: Some(told(log, error)?), ..PartitionReport::empty(*id) }
                }
            });
        }
    }
    if let Some(store) = &folder.snapshots {
        report.snapshots = snapshots::look(store).map_err(LogError::from)?;
    }
    if folder.kind == LogKind::Files {
        let log = folder.name_of(&folder.dir);
        match folder.open_files() {
            Ok((aof, opened)) => {
                let cut = opened.cut.map(|cut| CutReport::new(&log, cut));
                let files = FilesReport::new(aof.segments(), aof.sequences(), aof.synced());
                report.files = Some(FilesReport { cut, ..files });
            }
            Err(error) => report.first_error = Some(told(log, error)?),
        }
    }
    let errors = report.segmented_log.iter().filter_map(|log| log.error.as_ref());
    let errors = errors.chain(report.partitions.iter().filter_map(|log| log.error.as_ref()));
    let mut errors = errors.chain(report.snapshots.iter().filter_map(|snapshot| snapshot.error.as_ref()));
    report.first_error = report.first_error.take().or_else(|| errors.next().cloned());
    Ok(report)
}

/// What is wrong with a log; a file that cannot be read at all is another matter.
fn told(log: String, error: LogError) -> Result<FaultReport, InspectError> {
    let fault = Fault::Log(error.clone());
    if fault.is_in_the_files() { Ok(FaultReport::new(log, &fault)) } else { Err(error.into()) }
}

fn segmented_log(folder: &Folder, dir: &Path, log: &str) -> Result<SegmentedLogReport, LogError> {
    let (store, opened) = folder.open_raft(dir)?;
    let (sequences, synced) = store.sequences();
    let files = FilesReport::new(store.segments(), sequences, synced);
    let indices = store.indices();
    Ok(SegmentedLogReport {
        files: FilesReport { cut: opened.cut.map(|cut| CutReport::new(log, cut)), ..files },
        vote: opened.state.vote,
        committed: opened.state.committed,
        purged: opened.state.purged,
        last: opened.state.last,
        durable: opened.state.durable,
        first_index: (!indices.is_empty()).then_some(indices.start),
        error: None,
    })
}

impl PartitionReport {
    fn empty(partition: PartitionId) -> Self {
        Self {
            partition,
            files: FilesReport::default(),
            first_offset: None,
            end_offset: None,
            first_epoch: None,
            last_epoch: None,
            owner: None,
            last_log_id: None,
            last_time_ms: None,
            error: None,
        }
    }
}

fn partition(folder: &Folder, root: &Path, id: PartitionId, log: &str) -> Result<PartitionReport, LogError> {
    let (store, opened) = folder.open_partition(root, id)?;
    let files = FilesReport::new(store.segments(), opened.first.0..opened.end.0, store.synced_end().0);
    let mut report = PartitionReport {
        files: FilesReport { cut: opened.cut.map(|cut| CutReport::new(log, cut)), ..files },
        ..PartitionReport::empty(id)
    };
    if opened.first < opened.end {
        let first = store.record(opened.first)?;
        let last = store.record(PartitionLogIndex(opened.end.0 - 1))?;
        report.first_offset = Some(first.first_offset);
        report.end_offset = Some(last.first_offset.saturating_add(rows(&last.record)));
        report.first_epoch = Some(first.record.epoch.get());
        report.last_epoch = Some(last.record.epoch.get());
        report.owner = owner(&store, opened.first.0, opened.end.0)?;
        report.last_log_id = Some(last.log_id);
        report.last_time_ms = Some(last.time_ms);
    }
    Ok(report)
}

/// The owner, as the last record says that must come from it.
fn owner(store: &PartitionLogStore, first: u64, end: u64) -> Result<Option<NodeId>, LogError> {
    for index in (first.max(end.saturating_sub(OWNER_RECORDS_MAX))..end).rev() {
        let record = store.record(PartitionLogIndex(index))?.record;
        if matches!(record.change, Change::Append(_) | Change::Fence(_) | Change::Create(_)) {
            return Ok(Some(record.owner));
        }
    }
    Ok(None)
}
