//! Reads every record of every log and every snapshot, and stops at the first bad place.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use laminar_aof::fs::FileSystem;
use laminar_core::ids::PartitionId;
use serde::Serialize;

use super::entries::Window;
use super::fault::{Fault, FaultReport, InspectError};
use super::folder::Folder;
use super::partition::PartitionCheck;
use super::report::{AheadReport, CutReport, LogKind};
use super::snapshots::{self, Verified};
use super::watch::{Progress, Watch};
use crate::error::LogError;
use crate::log_id::{LogId, PartitionLogIndex};
use crate::partition_log::partition_folder;
use crate::store::SegmentedLogStore;

/// Payloads of entries that are in memory at a time.
const WINDOW_BYTES: u64 = 16 << 20;

/// What reading everything found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The folder.
    pub dir: String,
    /// What it is.
    pub kind: LogKind,
    /// Whether all of it is as it was written.
    pub ok: bool,
    /// Records that were read and found right, of all logs and snapshots.
    pub records: u64,
    /// The bytes of these logs and snapshots.
    pub bytes: u64,
    /// Logs that end before something that was never synced. That is no damage: opening the replica cuts it, and it
    /// catches up.
    pub cuts: Vec<CutReport>,
    /// Partitions that have stored what was cut off the segmented log. That is no damage either.
    pub ahead: Vec<AheadReport>,
    /// The first bad place; what comes after it was not read.
    pub first_error: Option<FaultReport>,
}

/// Reads all of a folder, and changes nothing.
///
/// Checked are all checksums; that indices and offsets of partitions have no gaps (LOG-2); that each stored record is
/// in the entry that it names, as far as the segmented log still has that (LOG-4); that epochs do not fall and only the
/// current one was accepted (EPOCH-2); that times do not go back; and that the partitions' logs hold what the newest
/// snapshot has seen.
///
/// # Errors
///
/// A bad place is part of the report. Invalid, if the folder is none of ours. Unavailable, if a file cannot be read, or
/// `progress` asked to stop.
pub fn verify(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    progress: Option<Progress>,
) -> Result<VerifyReport, InspectError> {
    let watch = Watch::new(progress);
    let folder = Folder::new(fs, dir, &watch, true)?;
    let report = VerifyReport {
        dir: folder.dir.display().to_string(),
        kind: folder.kind,
        ok: true,
        records: 0,
        bytes: 0,
        cuts: Vec::new(),
        ahead: Vec::new(),
        first_error: None,
    };
    let mut run = Run { folder: &folder, watch: &watch, report };
    let outcome = run.all();
    if watch.is_stopped() {
        return Err(InspectError::Stopped);
    }
    let mut report = run.report;
    match outcome {
        Ok(()) => watch.finish(),
        Err(Bad { log, fault }) if fault.is_in_the_files() => {
            report.ok = false;
            report.first_error = Some(FaultReport::new(log, &fault));
        }
        Err(Bad { fault: Fault::Log(error), .. }) => return Err(error.into()),
        Err(Bad { fault, .. }) => unreachable!("{fault}: it is about the files"),
    }
    Ok(report)
}

/// A bad place, and the log it is in.
struct Bad {
    log: String,
    fault: Fault,
}

fn bad<E: Into<Fault>>(log: &str) -> impl FnOnce(E) -> Bad + '_ {
    |fault| Bad { log: log.to_owned(), fault: fault.into() }
}

struct Run<'a> {
    folder: &'a Folder,
    watch: &'a Watch,
    report: VerifyReport,
}

/// The segmented log, open.
struct Raft {
    log: SegmentedLogStore,
    dir: PathBuf,
    name: String,
    /// Whether something was cut at its end.
    cut: bool,
}

impl Run<'_> {
    fn all(&mut self) -> Result<(), Bad> {
        let folder = self.folder;
        let snapshot_bytes = folder.snapshots.as_ref().map_or(0, snapshots::bytes);
        let raft_bytes = folder.raft.as_ref().map_or(0, |dir| folder.segment_bytes(dir));
        let partition_bytes = folder.partitions.as_ref().map_or(0, |(root, partitions)| {
            partitions.iter().map(|id| folder.segment_bytes(&partition_folder(root, *id))).sum()
        });
        if folder.kind == LogKind::Files {
            return self.files();
        }
        // Every log is read twice, checksums first and what it says then; the segmented log, once more in between.
        self.watch.expect(snapshot_bytes + 2 * partition_bytes + 3 * raft_bytes);
        self.watch.phase(snapshot_bytes);
        let snapshots = match &folder.snapshots {
            Some(store) => snapshots::verify(store).map_err(|(log, fault)| Bad { log, fault })?,
            None => Verified::default(),
        };
        self.report.bytes += snapshots.bytes;
        self.report.records += snapshots.records;
        self.watch.phase(partition_bytes);
        let mut checks = self.open_partitions(&snapshots)?;
        self.watch.phase(2 * raft_bytes);
        let raft = self.open_raft()?;
        self.watch.phase(partition_bytes + raft_bytes);
        let destroyed = self.read_all(raft.as_ref(), &snapshots, &mut checks)?;
        self.missing_partitions(raft.is_some(), &snapshots, &checks, &destroyed)
    }

    /// The segments of a log of which no more is known.
    fn files(&mut self) -> Result<(), Bad> {
        let name = self.folder.name_of(&self.folder.dir);
        let bytes = self.folder.segment_bytes(&self.folder.dir);
        self.watch.expect(2 * bytes);
        self.watch.phase(2 * bytes);
        let (aof, opened) = self.folder.open_files().map_err(bad(&name))?;
        self.report.cuts.extend(opened.cut.map(|cut| CutReport::new(&name, cut)));
        let mut reader = aof.reader(opened.sequences.start);
        while reader.next().map_err(bad(&name))?.is_some() {
            self.report.records += 1;
        }
        self.report.bytes += aof.segments().iter().map(|segment| segment.bytes).sum::<u64>();
        Ok(())
    }

    fn open_partitions(&mut self, snapshots: &Verified) -> Result<Vec<PartitionCheck>, Bad> {
        let Some((root, partitions)) = &self.folder.partitions else { return Ok(Vec::new()) };
        let mut checks = Vec::with_capacity(partitions.len());
        for id in partitions {
            let name = self.partition_name(*id);
            let (log, opened) = self.folder.open_partition(root, *id).map_err(bad(&name))?;
            self.report.cuts.extend(opened.cut.map(|cut| CutReport::new(&name, cut)));
            self.report.bytes += log.segments().iter().map(|segment| segment.bytes).sum::<u64>();
            let at = snapshots.partitions.get(id).copied().filter(|_| !snapshots.to_install);
            checks.push(PartitionCheck::new(log, at));
        }
        Ok(checks)
    }

    fn open_raft(&mut self) -> Result<Option<Raft>, Bad> {
        let Some(dir) = &self.folder.raft else { return Ok(None) };
        let name = self.folder.name_of(dir);
        let (log, opened) = self.folder.open_raft(dir).map_err(bad(&name))?;
        self.report.cuts.extend(opened.cut.map(|cut| CutReport::new(&name, cut)));
        self.report.bytes += log.segments().iter().map(|segment| segment.bytes).sum::<u64>();
        self.report.records += opened.records_read;
        Ok(Some(Raft { log, dir: dir.clone(), name, cut: opened.cut.is_some() }))
    }

    fn partition_name(&self, id: PartitionId) -> String {
        let root = self.folder.partitions.as_ref().map(|(root, _)| partition_folder(root, id));
        root.map_or_else(|| format!("partition {id}"), |dir| self.folder.name_of(&dir))
    }

    /// Reads the partitions' logs along with the segmented log. Says which partitions entries may have destroyed.
    fn read_all(
        &mut self,
        raft: Option<&Raft>,
        snapshots: &Verified,
        checks: &mut [PartitionCheck],
    ) -> Result<BTreeSet<PartitionId>, Bad> {
        let mut destroyed = BTreeSet::new();
        if let Some(raft) = raft {
            let mut indices = raft.log.indices();
            // Of what was purged, only the partitions' logs are left.
            self.read_partitions(checks, &Window::without_entries(indices.start))?;
            let mut log = raft.log.clone();
            while indices.start < indices.end {
                let entries = match log.read(indices.clone(), WINDOW_BYTES) {
                    Ok(entries) => entries,
                    Err(error) => {
                        // A running replica may have purged the entries that were to be read.
                        log = self.reopened(raft, indices.start, error)?;
                        let purged = log.state().purged.map_or(0, |purged| purged.index.0);
                        indices.start = (purged + 1).min(indices.end);
                        self.read_partitions(checks, &Window::without_entries(indices.start))?;
                        continue;
                    }
                };
                let window = Window::decode(entries, &mut destroyed).map_err(bad(&raft.name))?;
                self.read_partitions(checks, &window)?;
                indices.start = window.end;
            }
            let last = raft.log.state().last;
            let covered = last.map_or(0, |last| last.index.0).max(snapshots.covered);
            self.read_partitions(checks, &Window::without_entries(covered.saturating_add(1)))?;
            for check in checks.iter().filter(|check| check.next < check.end) {
                self.ahead(raft, last, check)?;
            }
        }
        self.read_partitions(checks, &Window::without_entries(u64::MAX))?;
        for check in checks {
            check.finish().map_err(|fault| Bad { log: self.partition_name(check.log.partition()), fault })?;
        }
        Ok(destroyed)
    }

    /// What is stored was on disk in the segmented log before. Where that was cut, the next start cuts this too; else
    /// the segmented log has lost something.
    fn ahead(&mut self, raft: &Raft, last: Option<LogId>, check: &PartitionCheck) -> Result<(), Bad> {
        let (partition, index) = (check.log.partition(), check.next);
        if raft.cut {
            self.report.ahead.push(AheadReport { partition, record: index, end: check.end });
            return Ok(());
        }
        let name = self.partition_name(partition);
        let entry = check.log.header(index).map_err(bad(&name))?.log_id;
        Err(Bad { log: name, fault: Fault::Ahead { partition, index, entry, last } })
    }

    fn read_partitions(&mut self, checks: &mut [PartitionCheck], window: &Window) -> Result<(), Bad> {
        for check in checks {
            let read = check.read(window);
            let at = |fault| Bad { log: self.partition_name(check.log.partition()), fault };
            self.report.records += read.map_err(at)?;
        }
        Ok(())
    }

    /// The segmented log once more, if it has moved on past what could not be read.
    fn reopened(&self, raft: &Raft, at: u64, error: LogError) -> Result<SegmentedLogStore, Bad> {
        let (log, _) = self.folder.open_raft(&raft.dir).map_err(bad(&raft.name))?;
        let moved_on = log.state().purged.is_some_and(|purged| purged.index.0 >= at);
        if moved_on { Ok(log) } else { Err(Bad { log: raft.name.clone(), fault: error.into() }) }
    }

    /// What the newest snapshot has seen is there, or was destroyed since.
    fn missing_partitions(
        &self,
        has_log: bool,
        snapshots: &Verified,
        checks: &[PartitionCheck],
        destroyed: &BTreeSet<PartitionId>,
    ) -> Result<(), Bad> {
        if !has_log || snapshots.to_install || self.folder.partitions.is_none() {
            return Ok(());
        }
        let there: BTreeSet<PartitionId> = checks.iter().map(|check| check.log.partition()).collect();
        let gone = |id: &&PartitionId| !there.contains(id) && !destroyed.contains(id);
        let Some(partition) = snapshots.partitions.keys().find(gone) else { return Ok(()) };
        if self.folder.snapshots.as_ref().is_some_and(|store| snapshots::has_newer(store, snapshots.covered))
        {
            // The replica runs, and may have purged the entry that destroyed it.
            return Ok(());
        }
        let (from, to) = (PartitionLogIndex(1), snapshots.partitions[partition].highest.next());
        let fault = LogError::RecordsMissing { partition: *partition, from, to }.into();
        Err(Bad { log: self.partition_name(*partition), fault })
    }
}
