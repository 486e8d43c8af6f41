//! Rows of one partition, in order, as they are stored: whoever asked decodes them.
//!
//! A read never shows more than what the partition has applied on this node. Records are read where that may block, a
//! few pieces ahead of whoever takes them.

use std::sync::Arc;
use std::time::Duration;

use laminar_core::ids::{LogIndex, PartitionId};
use laminar_log::dispatcher::ClientId;
use laminar_log::entry::{Append, Change, MachineKind, Payload};
use laminar_log::partition_log::{PartitionLogStore, PartitionReader};
use laminar_log::verdict::AcceptedRecord;
use laminar_log::{LogError, PartitionLogIndex, PartitionStatus, SegmentedStateMachine};
use laminar_raft::{NotServing, ReadIndexError};
use laminar_rpc::{ErrorClass, Failure, proto};
use tokio::sync::mpsc;
use tonic::Status;

use super::Node;
use super::append::to_pointer;
use crate::error::{of_log, of_read_index};
use crate::metrics::Figures;
use crate::random;

/// Bytes of rows in one piece.
const PIECE_BYTES: usize = 1 << 20;
/// Records in one piece.
const PIECE_RECORDS: usize = 4096;
/// Pieces that wait for whoever reads.
const PIECES_AHEAD: usize = 4;
/// How long a follower waits before it looks whether the partition is still there.
const FOLLOW_WAIT: Duration = Duration::from_secs(1);
/// How long a read waits for a partition whose own log is being repaired.
const REPAIR_WAIT: Duration = Duration::from_secs(5);

type Pieces = mpsc::Sender<Result<proto::ReadResponse, Status>>;

impl Node {
    pub(crate) fn read(
        &self,
        request: proto::ReadRequest,
    ) -> Result<mpsc::Receiver<Result<proto::ReadResponse, Status>>, Failure> {
        let stream = self.stream_of(request.stream_id, request.partition_id)?;
        let partition = PartitionId(request.partition_id);
        let machine = self.machine()?;
        let status = machine.status(partition).ok_or_else(|| self.vanished(partition))?;
        if request.begin_offset < status.start_offset && request.fail_on_trimmed {
            return Err(self.located(trimmed(partition, request.begin_offset, status.start_offset)));
        }
        let (pieces, receiver) = mpsc::channel(PIECES_AHEAD);
        let (node, reading) = (self.clone(), self.inner.figures.reading());
        drop(stream);
        tokio::spawn(async move {
            let _reading = reading;
            if let Err(failure) = node.read_on(request, partition, machine, &pieces).await {
                let failure = node.located(failure);
                // Nobody reads any more if it cannot be sent.
                drop(pieces.send(Err(failure.into())).await);
            }
        });
        Ok(receiver)
    }

    async fn read_on(
        &self,
        request: proto::ReadRequest,
        partition: PartitionId,
        mut machine: SegmentedStateMachine,
        pieces: &Pieces,
    ) -> Result<(), Failure> {
        let client = ClientId(random::bits128());
        let mut next_offset = request.begin_offset;
        loop {
            let seen = machine.decided_index();
            let status = self.readable(&machine, partition).await?;
            next_offset = next_offset.max(status.start_offset);
            let log = machine.partition_log(partition).ok_or_else(|| self.vanished(partition))?;
            let range = Range {
                partition,
                begin: next_offset,
                end: request.end_offset.unwrap_or(u64::MAX),
                at: request.at_index.map(LogIndex),
                applied: status.applied,
                next_offset: status.next_offset,
                fail_on_trimmed: request.fail_on_trimmed,
                figures: Arc::clone(&self.inner.figures),
            };
            let sender = pieces.clone();
            let read = tokio::task::spawn_blocking(move || range.read(&log, &sender)).await;
            let done =
                read.map_err(|_| Failure::internal("reading rows ended unexpectedly; report it"))??;
            let Some(read_to) = done else { return Ok(()) };
            next_offset = next_offset.max(read_to);
            let over = request.end_offset.is_some_and(|end| next_offset >= end);
            if !request.follow || over || pieces.is_closed() {
                return Ok(());
            }
            // More may be decided that is not for this partition: then there is simply nothing to read.
            let more = machine.barrier(client, &[], LogIndex(seen.0 + 1), FOLLOW_WAIT);
            tokio::select! {
                () = self.stopped() => return Err(Failure::unavailable("the node is shutting down; read on from the next one")),
                () = pieces.closed() => return Ok(()),
                _ = more => {}
            }
            machine = self.machine()?;
        }
    }

    /// Where a partition stands once its own log has everything it applied.
    pub(super) async fn readable(
        &self,
        machine: &SegmentedStateMachine,
        partition: PartitionId,
    ) -> Result<PartitionStatus, Failure> {
        let until = tokio::time::Instant::now() + REPAIR_WAIT;
        loop {
            let status = machine.status(partition).ok_or_else(|| self.vanished(partition))?;
            if status.stored_end.0 > status.applied.0 || status.applied == PartitionLogIndex::NONE {
                return Ok(status);
            }
            if tokio::time::Instant::now() >= until {
                let message = format!(
                    "partition {partition}: its own log is being repaired, and rows of it cannot be read until then; try again"
                );
                return Err(Failure::unavailable(message).with("partition_id", partition.0));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Why a partition is not in the data log: it was dropped, or it is so new that nobody has carried it there yet.
    pub(crate) fn vanished(&self, partition: PartitionId) -> Failure {
        if self.inner.metadata.read_local(|metadata| metadata.stream_of(partition).is_some()) {
            let message = format!("partition {partition}: it is being made; try again");
            return self.located(Failure::unavailable(message).with("partition_id", partition.0));
        }
        let message = format!("partition {partition}: it was dropped");
        self.located(Failure::new(ErrorClass::UnknownPartition, message).with("partition_id", partition.0))
    }

    /// Waits until partitions have applied everything up to a global index; 0 is all that was acknowledged until now.
    pub(crate) async fn wait_for(
        &self,
        client: ClientId,
        partitions: &[PartitionId],
        index: u64,
        timeout: Duration,
    ) -> Result<Reached, Failure> {
        let machine = self.machine()?;
        let index = match index {
            0 => match self.inner.data.read_index().await {
                Ok(index) => index,
                // While its storage is mended the only voter cannot say that it leads; but nobody else can have
                // acknowledged anything, and it acknowledges only what it has decided.
                Err(ReadIndexError::NotServing(NotServing::Rebuilding)) => self.inner.data.decided_index(),
                Err(error) => return Err(of_read_index(&error)),
            },
            given => LogIndex(given),
        };
        self.barrier_unless_paused(&machine, client, partitions, index, timeout).await?;
        Ok(Reached { index, machine })
    }
}

/// An index that partitions have applied.
pub(crate) struct Reached {
    pub(crate) index: LogIndex,
    /// The machine that has: after a fault another may take its place, which has not got there again.
    pub(crate) machine: SegmentedStateMachine,
}

/// What is to be read of a partition.
struct Range {
    partition: PartitionId,
    begin: u64,
    end: u64,
    /// Only what was accepted up to this entry.
    at: Option<LogIndex>,
    /// The last record that may be shown.
    applied: PartitionLogIndex,
    next_offset: u64,
    fail_on_trimmed: bool,
    figures: Arc<Figures>,
}

impl Range {
    /// Sends the rows. Returns the offset behind the last, or `None` if nobody reads any more.
    fn read(&self, log: &PartitionLogStore, pieces: &Pieces) -> Result<Option<u64>, Failure> {
        let first = match log.find_offset(self.begin) {
            Ok(Some(first)) => first,
            Ok(None) => match self.later(log)? {
                Some(first) => first,
                // There is no such row yet.
                None => return Ok(Some(self.begin)),
            },
            Err(error) => return Err(self.failed(&error)),
        };
        let mut reader = log.reader(first);
        let mut read_to = self.begin;
        loop {
            let mut piece = proto::ReadResponse { records: Vec::new(), next_offset: self.next_offset };
            let (mut bytes, mut failed) = (0, None);
            while bytes < PIECE_BYTES && piece.records.len() < PIECE_RECORDS {
                let record = match self.next(&mut reader) {
                    Ok(Some(record)) => record,
                    Ok(None) => break,
                    // What was read before is sent first: so whoever reads knows where the fault is.
                    Err(error) => {
                        failed = Some(self.trimmed_or_failed(log, read_to, &error));
                        break;
                    }
                };
                let Change::Append(Append { rows, payload, .. }) = &record.record.change else { continue };
                read_to = record.first_offset + u64::from(*rows);
                bytes += payload_bytes(payload);
                piece.records.push(stored_rows(&record, *rows, payload));
            }
            let whole = bytes < PIECE_BYTES && piece.records.len() < PIECE_RECORDS;
            self.figures.read_rows.add(piece.records.iter().map(|record| u64::from(record.rows)).sum());
            self.figures.read_bytes.add(bytes as u64);
            if !piece.records.is_empty() && pieces.blocking_send(Ok(piece)).is_err() {
                return Ok(None);
            }
            if let Some(failure) = failed {
                return Err(failure);
            }
            if whole {
                return Ok(Some(read_to));
            }
        }
    }

    /// The first record there is, if it comes after the row that was asked for.
    fn later(&self, log: &PartitionLogStore) -> Result<Option<PartitionLogIndex>, Failure> {
        let header =
            log.header_at(self.begin, PartitionLogIndex::NONE).map_err(|error| self.failed(&error))?;
        match header.filter(|header| header.first_offset > self.begin) {
            Some(header) if self.fail_on_trimmed => {
                Err(trimmed(self.partition, self.begin, header.first_offset))
            }
            header => Ok(header.map(|header| header.index)),
        }
    }

    fn next(&self, reader: &mut PartitionReader) -> Result<Option<AcceptedRecord>, LogError> {
        if reader.index() > self.applied {
            return Ok(None);
        }
        let Some(record) = reader.next()? else { return Ok(None) };
        let beyond = record.first_offset >= self.end || self.at.is_some_and(|at| record.log_id.index > at);
        Ok((!beyond).then_some(record))
    }

    /// A log that begins behind what was read last was trimmed meanwhile; nothing is wrong with it.
    fn trimmed_or_failed(&self, log: &PartitionLogStore, read_to: u64, error: &LogError) -> Failure {
        match log.header_at(read_to, PartitionLogIndex::NONE) {
            Ok(Some(header)) if header.first_offset > read_to => {
                trimmed(self.partition, read_to, header.first_offset)
            }
            _ => self.failed(error),
        }
    }

    fn failed(&self, error: &LogError) -> Failure {
        of_log(error).with("partition_id", self.partition.0)
    }
}

/// Rows that were asked for are not there any more.
fn trimmed(partition: PartitionId, asked: u64, start: u64) -> Failure {
    let message = format!(
        "partition {partition}: read refused, it asks for offset {asked} and rows before {start} were trimmed; begin there"
    );
    Failure::invalid(message).with("partition_id", partition.0).with("start_offset", start)
}

/// The first row that can be read. A machine that keeps what it needs lets its records go without a trim.
pub(super) fn first_readable(log: &PartitionLogStore, status: &PartitionStatus) -> Result<u64, LogError> {
    if status.machine == MachineKind::Log || status.start_offset == status.next_offset {
        return Ok(status.start_offset);
    }
    let first = log.header_at(status.start_offset, status.applied)?;
    let first = first.map_or(status.next_offset, |header| header.first_offset);
    Ok(status.start_offset.max(first))
}

fn payload_bytes(payload: &Payload) -> usize {
    match payload {
        Payload::Inline(bytes) => bytes.len(),
        Payload::Pointer(_) => 128,
    }
}

fn stored_rows(record: &AcceptedRecord, rows: u32, payload: &Payload) -> proto::StoredRows {
    let payload = match payload {
        Payload::Inline(bytes) => proto::stored_rows::Payload::Inline(bytes.clone()),
        Payload::Pointer(pointer) => proto::stored_rows::Payload::Pointer(to_pointer(pointer)),
    };
    proto::StoredRows {
        first_offset: record.first_offset,
        rows,
        time_ms: record.time_ms,
        epoch: record.record.epoch.get(),
        global_index: record.log_id.index.0,
        payload: Some(payload),
    }
}
