//! A snapshot on its way to another replica: the local one, and the rows that the partitions' logs keep.

use std::collections::VecDeque;

use bytes::Bytes;
use laminar_core::ids::PartitionId;

use super::SegmentedStateMachine;
use crate::error::LogError;
use crate::log_id::{LogId, PartitionLogIndex};
use crate::partition_log::{PartitionReader, RecordPin};
use crate::snapshot::{Frame, SnapshotForm, SnapshotReader, SnapshotWriter};

/// A snapshot, piece by piece. Whoever receives the pieces gives them to
/// [`SegmentedStateMachine::install`].
pub trait SnapshotPieces: Send {
    /// The next piece; none at the end.
    ///
    /// # Errors
    ///
    /// Corrupt or Unavailable: the snapshot cannot be read to its end.
    fn next_piece(&mut self) -> Result<Option<Bytes>, LogError>;
}

/// The newest snapshot of a replica, as another one needs it.
pub struct SnapshotStream {
    machine: SegmentedStateMachine,
    reader: SnapshotReader,
    writer: Option<SnapshotWriter<Vec<Bytes>>>,
    ready: VecDeque<Bytes>,
    rows: Option<Rows>,
}

/// The rows of the partition that is being sent.
struct Rows {
    reader: PartitionReader,
    partition: PartitionId,
    highest: PartitionLogIndex,
    /// The hash that ends the partition, once its state was sent.
    end: Option<u64>,
    /// Keeps them from being trimmed meanwhile.
    _pin: RecordPin,
}

impl SegmentedStateMachine {
    /// The newest snapshot, to be sent.
    ///
    /// # Errors
    ///
    /// Corrupt, if it is damaged. Unavailable, if a file call fails.
    pub fn newest_snapshot(&self) -> Result<Option<(LogId, super::Membership, SnapshotStream)>, LogError> {
        let Some((head, reader)) = self.inner.snapshots.newest()? else { return Ok(None) };
        let membership = super::snapshot::decode_membership(&head.membership).unwrap_or_default();
        let stream = SnapshotStream {
            machine: self.clone(),
            reader,
            writer: None,
            ready: VecDeque::new(),
            rows: None,
        };
        Ok(Some((head.log_id, membership, stream)))
    }
}

impl SnapshotPieces for SnapshotStream {
    fn next_piece(&mut self) -> Result<Option<Bytes>, LogError> {
        while self.ready.is_empty() {
            if !self.advance()? {
                return Ok(None);
            }
        }
        Ok(self.ready.pop_front())
    }
}

impl SnapshotStream {
    /// Sends one part more; false at the end.
    fn advance(&mut self) -> Result<bool, LogError> {
        if self.send_row()? {
            return Ok(true);
        }
        let Some(frame) = self.reader.next()? else { return Ok(false) };
        match frame {
            Frame::Head(_, head) => {
                self.writer = Some(SnapshotWriter::new(Vec::new(), SnapshotForm::Streamed, head)?);
            }
            Frame::Verdict(bytes) => self.writer().verdict(&bytes)?,
            Frame::Partition(mut part) => {
                let partition = self.machine.partition(part.partition);
                let log = partition.as_ref().and_then(|partition| partition.state().log.clone());
                let log = log.ok_or(LogError::SnapshotOvertaken { partition: part.partition })?;
                let pin = log.pin(part.first)?;
                // Rows that were trimmed since are not needed: the log goes on with the record that trimmed them.
                part.first = pin.first().max(part.first).min(part.applied.next());
                let reader = log.reader(part.first);
                let (partition, highest) = (part.partition, part.highest);
                self.rows = Some(Rows { reader, partition, highest, end: None, _pin: pin });
                self.writer().partition(part)?;
            }
            Frame::State(piece) => self.writer().state(piece)?,
            // The rows come between the state and the end of a partition.
            Frame::PartitionEnd(hash) => {
                let rows = self.rows.as_mut().expect("the partition comes before its end");
                rows.end = Some(hash);
            }
            Frame::Rows(_) => {}
            Frame::End(_) => {
                let writer = self.writer.take().expect("the head comes first");
                let (pieces, _) = writer.finish()?;
                self.ready.extend(pieces);
                return Ok(true);
            }
        }
        self.drain();
        Ok(true)
    }

    /// Sends a row of the partition whose state was sent, or its end; false if there is none such.
    fn send_row(&mut self) -> Result<bool, LogError> {
        let Some(Rows { end: Some(hash), reader, highest, partition, .. }) = &mut self.rows else {
            return Ok(false);
        };
        if reader.index() > *highest {
            let hash = *hash;
            self.rows = None;
            self.writer().partition_end(hash)?;
        } else {
            let stored = reader.next_stored()?;
            let stored = stored.ok_or(LogError::SnapshotOvertaken { partition: *partition })?;
            self.writer().record(stored)?;
        }
        self.drain();
        Ok(true)
    }

    fn writer(&mut self) -> &mut SnapshotWriter<Vec<Bytes>> {
        self.writer.as_mut().expect("the head comes first")
    }

    fn drain(&mut self) {
        if let Some(writer) = &mut self.writer {
            self.ready.extend(writer.sink().drain(..));
        }
    }
}

impl std::fmt::Debug for SnapshotStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotStream").field("reader", &self.reader).finish_non_exhaustive()
    }
}
