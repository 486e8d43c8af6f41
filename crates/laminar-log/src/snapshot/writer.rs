//! Writes a snapshot, part by part.

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::error::SnapshotError;
use super::format::{FRAME_BYTES_MAX, PART_BYTES, encode_frame};
use super::frame::{Frame, SnapshotForm, SnapshotHead, SnapshotPartition, SnapshotSummary};
use super::order::Order;
use crate::log_id::LogId;

/// Where the bytes of a snapshot go.
pub trait SnapshotSink {
    /// Takes the next bytes.
    ///
    /// # Errors
    ///
    /// Of the sink; the snapshot is then worth nothing.
    fn write(&mut self, bytes: Bytes) -> Result<(), SnapshotError>;
}

impl SnapshotSink for Vec<u8> {
    fn write(&mut self, bytes: Bytes) -> Result<(), SnapshotError> {
        self.extend_from_slice(&bytes);
        Ok(())
    }
}

/// Whoever sends them takes them out between two parts.
impl SnapshotSink for Vec<Bytes> {
    fn write(&mut self, bytes: Bytes) -> Result<(), SnapshotError> {
        self.push(bytes);
        Ok(())
    }
}

/// Writes a snapshot: the verdict state, then partition after partition, in order.
pub struct SnapshotWriter<S> {
    sink: S,
    order: Order,
    hash: Xxh3,
    /// Records that wait for their frame.
    records: Vec<Bytes>,
    records_bytes: usize,
}

impl<S> std::fmt::Debug for SnapshotWriter<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotWriter").field("order", &self.order).finish_non_exhaustive()
    }
}

impl<S: SnapshotSink> SnapshotWriter<S> {
    /// Begins a snapshot.
    ///
    /// # Errors
    ///
    /// Those of the sink, here and in every other method. Internal, if parts come in a wrong order.
    pub fn new(sink: S, form: SnapshotForm, head: SnapshotHead) -> Result<Self, SnapshotError> {
        let mut writer =
            Self { sink, order: Order::new(), hash: Xxh3::new(), records: Vec::new(), records_bytes: 0 };
        writer.put(Frame::Head(form, head))?;
        Ok(writer)
    }

    /// Adds to the verdict state. Every snapshot has one; a reader gets it in pieces of another length.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn verdict(&mut self, bytes: &Bytes) -> Result<(), SnapshotError> {
        let mut rest = bytes.clone();
        loop {
            let piece = rest.split_to(rest.len().min(PART_BYTES));
            self.put(Frame::Verdict(piece))?;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Begins a partition.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn partition(&mut self, partition: SnapshotPartition) -> Result<(), SnapshotError> {
        self.put(Frame::Partition(partition))
    }

    /// Adds a piece of the state of the partition's machine; a reader gets the same pieces.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). Invalid, if the piece is longer than [`FRAME_BYTES_MAX`].
    pub fn state(&mut self, piece: Bytes) -> Result<(), SnapshotError> {
        self.put(Frame::State(piece))
    }

    /// Adds a record of the partition's log as it is stored there; streamed form only.
    ///
    /// # Errors
    ///
    /// As [`state`](Self::state).
    pub fn record(&mut self, stored: Bytes) -> Result<(), SnapshotError> {
        let length = 4 + stored.len();
        if self.records_bytes + length > FRAME_BYTES_MAX {
            self.flush_records()?;
        }
        self.records_bytes += length;
        self.records.push(stored);
        if self.records_bytes >= PART_BYTES { self.flush_records() } else { Ok(()) }
    }

    /// Ends a partition, whose machine's state has this hash.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn partition_end(&mut self, state_hash: u64) -> Result<(), SnapshotError> {
        self.flush_records()?;
        self.put(Frame::PartitionEnd(state_hash))
    }

    /// Ends the snapshot. It is whole then, and durable if the sink makes it so.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn finish(mut self) -> Result<(S, SnapshotSummary), SnapshotError> {
        self.order.seen.hash = self.hash.digest();
        let summary = self.order.seen;
        self.put(Frame::End(summary))?;
        Ok((self.sink, summary))
    }

    /// The last entry that the snapshot covers.
    pub fn log_id(&self) -> LogId {
        self.order.log_id
    }

    /// Where the bytes went.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    fn flush_records(&mut self) -> Result<(), SnapshotError> {
        if self.records.is_empty() {
            return Ok(());
        }
        self.records_bytes = 0;
        let records = std::mem::take(&mut self.records);
        self.put(Frame::Rows(records))
    }

    fn put(&mut self, frame: Frame) -> Result<(), SnapshotError> {
        let at = self.order.seen.bytes;
        let (header, body) = encode_frame(&frame)?;
        self.order.take(&frame, at).map_err(|source| SnapshotError::Misused { source: Box::new(source) })?;
        for part in [header, body] {
            self.hash.update(&part);
            self.order.seen.bytes += part.len() as u64;
            if !part.is_empty() {
                self.sink.write(part)?;
            }
        }
        Ok(())
    }
}
