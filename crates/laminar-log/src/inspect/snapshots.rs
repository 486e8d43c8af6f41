//! The snapshots of a replica, looked at and verified.

use std::collections::BTreeMap;

use laminar_core::ids::{Epoch, NodeId, PartitionId};

use super::fault::{Fault, FaultReport};
use super::folder::is_gone;
use super::report::SnapshotReport;
use crate::error::LogError;
use crate::log_id::{LogId, PartitionLogIndex};
use crate::snapshot::{Frame, SnapshotError, SnapshotForm, SnapshotReader, SnapshotStore};
use crate::verdict::VerdictState;

/// One file of a snapshot.
#[derive(Debug, Clone, Copy)]
struct SnapshotFile {
    log_id: LogId,
    to_install: bool,
}

impl SnapshotFile {
    fn all(store: &SnapshotStore) -> Result<Vec<Self>, SnapshotError> {
        let local = store.list()?.into_iter().map(|log_id| Self { log_id, to_install: false });
        let installs = store.list_installs()?.into_iter().map(|log_id| Self { log_id, to_install: true });
        Ok(local.chain(installs).collect())
    }

    fn open(self, store: &SnapshotStore) -> Result<SnapshotReader, SnapshotError> {
        if self.to_install { store.read_install(self.log_id) } else { store.read(self.log_id) }
    }

    fn name(self) -> String {
        let what = if self.to_install { "to install, " } else { "" };
        format!("snapshot ({what}entry {})", self.log_id)
    }

    /// Whether its head says what its name says.
    fn check_head(self, frame: Option<&Frame>) -> Result<u32, SnapshotError> {
        let wrong = |what, found, expected| SnapshotError::WrongValue { at: 0, what, found, expected };
        let Some(Frame::Head(form, head)) = frame else { return Err(SnapshotError::CutShort { at: 0 }) };
        let expected = if self.to_install { SnapshotForm::Streamed } else { SnapshotForm::Local };
        if *form != expected {
            return Err(wrong("the form of the snapshot", *form as u64 + 1, expected as u64 + 1));
        }
        if head.log_id.index != self.log_id.index {
            return Err(wrong("the entry of the snapshot", head.log_id.index.0, self.log_id.index.0));
        }
        if head.log_id.term != self.log_id.term {
            return Err(wrong("the term of the snapshot", head.log_id.term, self.log_id.term));
        }
        Ok(head.partitions)
    }
}

/// What the heads say. Only a file that cannot be read at all is an error.
pub(super) fn look(store: &SnapshotStore) -> Result<Vec<SnapshotReport>, SnapshotError> {
    let mut reports = Vec::new();
    for file in SnapshotFile::all(store)? {
        let mut report = SnapshotReport {
            log_id: file.log_id,
            to_install: file.to_install,
            bytes: 0,
            partitions: 0,
            error: None,
        };
        let head = file.open(store).and_then(|mut reader| {
            report.bytes = reader.length();
            let frame = reader.next()?;
            file.check_head(frame.as_ref())
        });
        match head {
            Ok(partitions) => report.partitions = partitions,
            Err(error) => {
                let fault = Fault::from(error.clone());
                if is_gone(&fault) {
                    continue;
                }
                if !fault.is_in_the_files() {
                    return Err(error);
                }
                report.error = Some(FaultReport::new(file.name(), &fault));
            }
        }
        reports.push(report);
    }
    Ok(reports)
}

/// Whether there is one of a later entry.
pub(super) fn has_newer(store: &SnapshotStore, than: u64) -> bool {
    SnapshotFile::all(store).is_ok_and(|files| files.iter().any(|file| file.log_id.index.0 > than))
}

/// How many bytes all of them have.
pub(super) fn bytes(store: &SnapshotStore) -> u64 {
    let files = SnapshotFile::all(store).unwrap_or_default();
    files.iter().map(|file| file.open(store).map_or(0, |reader| reader.length())).sum()
}

/// What a snapshot says about the last record of a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartitionAt {
    pub(super) highest: PartitionLogIndex,
    pub(super) next_offset: u64,
    pub(super) log_id: LogId,
    pub(super) time_ms: u64,
    pub(super) epoch: Epoch,
    pub(super) owner: NodeId,
}

/// What verified snapshots say.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// The highest entry that any of them covers.
    pub(super) covered: u64,
    /// Whether one came from another replica and is still to be installed: until then the partitions' logs may be
    /// those of before, or rewritten in part.
    pub(super) to_install: bool,
    /// What the newest of this replica says.
    pub(super) partitions: BTreeMap<PartitionId, PartitionAt>,
    pub(super) bytes: u64,
    pub(super) records: u64,
}

/// Reads all of them to their ends. An error comes with the name of the file.
pub(super) fn verify(store: &SnapshotStore) -> Result<Verified, (String, Fault)> {
    let mut verified = Verified::default();
    let list = |error| ("snapshots".to_owned(), Fault::from(error));
    for file in SnapshotFile::all(store).map_err(list)? {
        match verify_one(store, file, &mut verified) {
            Ok(()) => {
                verified.covered = verified.covered.max(file.log_id.index.0);
                verified.to_install |= file.to_install;
            }
            // Removed since: a newer one has taken its place.
            Err(fault) if is_gone(&fault) => {}
            Err(fault) => return Err((file.name(), fault)),
        }
    }
    Ok(verified)
}

fn verify_one(store: &SnapshotStore, file: SnapshotFile, verified: &mut Verified) -> Result<(), Fault> {
    let mut reader = file.open(store)?;
    file.check_head(reader.next()?.as_ref())?;
    let (mut verdict, mut records) = (Vec::new(), 0);
    while let Some(frame) = reader.next()? {
        match frame {
            Frame::Verdict(bytes) => verdict.extend_from_slice(&bytes),
            Frame::End(summary) => records = summary.records,
            _ => {}
        }
    }
    let verdict = VerdictState::decode(&verdict).map_err(LogError::from)?;
    verified.bytes += reader.length();
    verified.records += records;
    if !file.to_install {
        let at = |(id, state): (PartitionId, &crate::verdict::PartitionVerdict)| {
            let at = PartitionAt {
                highest: state.highest,
                next_offset: state.next_offset,
                log_id: state.last_log_id,
                time_ms: state.last_time_ms,
                epoch: state.epoch,
                owner: state.owner,
            };
            (id, at)
        };
        verified.partitions = verdict.partitions().map(at).collect();
    }
    Ok(())
}
