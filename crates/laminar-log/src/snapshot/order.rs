//! The one order that frames come in, checked by who writes a snapshot and by who reads it.

use bytes::Bytes;

use super::error::SnapshotError;
use super::frame::{Frame, SnapshotForm, SnapshotHead, SnapshotPartition, SnapshotSummary};
use crate::format::{STORED_HEADER_BYTES, SegmentedRecordHeader, StoredHeader};
use crate::log_id::LogId;

/// What came last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Nothing,
    Head,
    Verdict,
    Partition,
    State,
    Rows,
    PartitionEnd,
    End,
}

impl Stage {
    fn after(self) -> &'static str {
        match self {
            Stage::Nothing => "first",
            Stage::Head => "after the head",
            Stage::Verdict => "after the verdict state",
            Stage::Partition => "after the beginning of a partition",
            Stage::State => "after the state of a partition",
            Stage::Rows => "after the rows of a partition",
            Stage::PartitionEnd => "after the end of a partition",
            Stage::End => "after the end",
        }
    }
}

/// How far a snapshot has come.
#[derive(Debug)]
pub(super) struct Order {
    stage: Stage,
    form: SnapshotForm,
    /// The last entry that the snapshot covers.
    pub(super) log_id: LogId,
    partitions: u32,
    current: Option<SnapshotPartition>,
    /// The place of the next record of the current partition.
    next: u64,
    /// What was seen so far; bytes and hash are filled in by who has them.
    pub(super) seen: SnapshotSummary,
}

impl Order {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Nothing,
            form: SnapshotForm::Local,
            log_id: LogId::default(),
            partitions: 0,
            current: None,
            next: 0,
            seen: SnapshotSummary::default(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::End
    }

    /// Takes the next frame, which begins at `at`.
    pub(super) fn take(&mut self, frame: &Frame, at: u64) -> Result<(), SnapshotError> {
        use Stage::{End, Head, Nothing, Partition, PartitionEnd, Rows, State, Verdict};
        let stage = match (frame, self.stage) {
            (Frame::Head(form, head), Nothing) => {
                self.begin(*form, head);
                Head
            }
            (Frame::Verdict(_), Head | Verdict) => Verdict,
            (Frame::Partition(partition), Verdict | PartitionEnd) => {
                self.partition(partition, at)?;
                Partition
            }
            (Frame::State(_), Partition | State) => State,
            (Frame::Rows(records), Partition | State | Rows) if self.form == SnapshotForm::Streamed => {
                records.iter().try_for_each(|record| self.record(record, at))?;
                Rows
            }
            (Frame::PartitionEnd(_), Partition | State | Rows) => {
                self.partition_end(at)?;
                PartitionEnd
            }
            (Frame::End(summary), Verdict | PartitionEnd) => {
                self.end(summary, at)?;
                End
            }
            (frame, stage) => {
                return Err(SnapshotError::OutOfOrder { at, frame: frame.name(), after: stage.after() });
            }
        };
        self.stage = stage;
        self.seen.frames += 1;
        Ok(())
    }

    fn begin(&mut self, form: SnapshotForm, head: &SnapshotHead) {
        (self.form, self.log_id, self.partitions) = (form, head.log_id, head.partitions);
    }

    fn partition(&mut self, partition: &SnapshotPartition, at: u64) -> Result<(), SnapshotError> {
        let wrong =
            |what, found: u64, expected: u64| Err(SnapshotError::WrongValue { at, what, found, expected });
        let (applied, highest, first) = (partition.applied.0, partition.highest.0, partition.first.0);
        if let Some(before) = &self.current
            && before.partition >= partition.partition
        {
            let expected = u64::from(before.partition.0).saturating_add(1);
            return wrong("the partition", u64::from(partition.partition.0), expected);
        }
        if highest == u64::MAX {
            return wrong("the highest record", highest, highest - 1);
        }
        if applied > highest {
            return wrong("the applied record", applied, highest);
        }
        // What the machine has not seen must be kept.
        if first == 0 || first > applied + 1 {
            return wrong("the first record", first, applied + 1);
        }
        self.seen.partitions += 1;
        self.current = Some(*partition);
        self.next = first;
        Ok(())
    }

    fn record(&mut self, stored: &Bytes, at: u64) -> Result<(), SnapshotError> {
        let bad = |source| SnapshotError::BadFrame { at, frame: "rows", source };
        let wrong =
            |what, found: u64, expected: u64| Err(SnapshotError::WrongValue { at, what, found, expected });
        let header = StoredHeader::decode(stored).map_err(bad)?;
        let record = SegmentedRecordHeader::decode(stored, STORED_HEADER_BYTES).map_err(bad)?;
        let current = self.current.as_ref().expect("rows come within a partition");
        if record.partition != current.partition.0 {
            let expected = u64::from(current.partition.0);
            return wrong("the partition of a record", u64::from(record.partition), expected);
        }
        if header.index.0 != self.next || header.index > current.highest {
            return wrong("the place of a record", header.index.0, self.next.min(current.highest.0));
        }
        if header.log_id.index > self.log_id.index {
            return wrong("the entry of a record", header.log_id.index.0, self.log_id.index.0);
        }
        self.next += 1;
        self.seen.records += 1;
        Ok(())
    }

    fn partition_end(&self, at: u64) -> Result<(), SnapshotError> {
        let highest = self.current.as_ref().map_or(0, |current| current.highest.0);
        if self.form == SnapshotForm::Streamed && self.next != highest + 1 {
            let what = "the place behind the last record";
            return Err(SnapshotError::WrongValue { at, what, found: self.next, expected: highest + 1 });
        }
        Ok(())
    }

    /// Everything that was counted must be what the end and the head say.
    fn end(&self, said: &SnapshotSummary, at: u64) -> Result<(), SnapshotError> {
        let seen = &self.seen;
        let values = [
            ("the number of partitions", u64::from(seen.partitions), u64::from(self.partitions)),
            ("the number of partitions", u64::from(seen.partitions), u64::from(said.partitions)),
            ("the number of frames", seen.frames, said.frames),
            ("the number of records", seen.records, said.records),
            ("the number of bytes", seen.bytes, said.bytes),
            ("the hash of all bytes", seen.hash, said.hash),
        ];
        match values.into_iter().find(|(_, found, expected)| found != expected) {
            None => Ok(()),
            Some((what, found, expected)) => Err(SnapshotError::WrongValue { at, what, found, expected }),
        }
    }
}
