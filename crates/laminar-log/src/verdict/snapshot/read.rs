//! The state from its rows. Reading refuses a state that no log could have led to, because a replica that went on from
//! one would break what the rules rely on.

use std::collections::{BTreeSet, VecDeque};

use laminar_core::ids::{Epoch, LogIndex, NodeId, PartitionId};
use prost::Message;

use super::VerdictSnapshotError;
use super::proto::{
    VerdictDestroyed, VerdictExpired, VerdictHead, VerdictLogId, VerdictOutcome, VerdictPartition,
    VerdictProducer, VerdictQuery, VerdictRemembered, VerdictRow, verdict_row::Row,
};
use crate::entry::{BatchId, BlockId, MachineKind, ProducerId};
use crate::log_id::{LogId, PartitionLogIndex};
use crate::verdict::limits::VerdictLimits;
use crate::verdict::partition::PartitionVerdict;
use crate::verdict::producers::{ProducerVerdict, Remembered};
use crate::verdict::queries::LastBatch;
use crate::verdict::state::VerdictState;
use crate::verdict::types::{Outcome, Placed};

/// What is wrong with a row.
struct Fault(&'static str);

/// The state, and how many rows it took.
pub(super) fn take_rows(mut body: &[u8]) -> Result<(VerdictState, u64), VerdictSnapshotError> {
    let mut row = 0;
    let malformed = |row| move |Fault(reason)| VerdictSnapshotError::Malformed { row, reason };
    let mut reader: Option<Reader> = None;
    while !body.is_empty() {
        let message = VerdictRow::decode_length_delimited(&mut body)
            .map_err(|source| VerdictSnapshotError::Undecodable { row, source })?;
        match (&mut reader, message.row) {
            (None, Some(Row::Head(head))) => reader = Some(Reader::new(head).map_err(malformed(row))?),
            (Some(reader), Some(other)) => reader.take(other).map_err(malformed(row))?,
            _ => return Err(malformed(row)(Fault("it is empty, or comes before the head"))),
        }
        row += 1;
    }
    let reader = reader.ok_or_else(|| malformed(row)(Fault("it has no head")))?;
    Ok((reader.finish().map_err(malformed(row))?, row))
}

struct Reader {
    state: VerdictState,
    last_applied: LogId,
    /// The producer whose appends are being read.
    producer: Option<(ProducerId, ProducerVerdict)>,
}

impl Reader {
    fn new(head: VerdictHead) -> Result<Self, Fault> {
        let limits = need(head.limits, "it has no limits")?;
        let limits = VerdictLimits {
            producers_max: limits.producers_max,
            producer_window: limits.producer_window,
            queries_max: limits.queries_max,
            partitions_max: limits.partitions_max,
            skips_max: limits.skips_max,
            expired_blocks_max: limits.expired_blocks_max,
        };
        let mut state = VerdictState::new(limits).map_err(|_| Fault("a limit is out of its range"))?;
        state.last_applied = head.last_applied.map(log_id);
        state.producers.set_forgotten(head.forgotten_producer.map(ProducerId));
        state.stages.set_floor(head.expired_floor.map(block));
        let last_applied = state.last_applied.unwrap_or_default();
        let forgotten_ahead = head.forgotten_producer.is_some_and(|id| id > last_applied.index.0);
        check(!forgotten_ahead, "a producer was forgotten that is still to be minted")?;
        Ok(Self { state, last_applied, producer: None })
    }

    fn take(&mut self, row: Row) -> Result<(), Fault> {
        check(self.state.last_applied.is_some(), "there is something before the first entry")?;
        if !matches!(row, Row::Remembered(_)) {
            self.end_producer()?;
        }
        match row {
            Row::Head(_) => Err(Fault("it has two heads")),
            Row::Partition(row) => self.partition(row),
            Row::Destroyed(VerdictDestroyed { first, last }) => check(
                self.state.partitions.destroyed_mut().push_range(first, last),
                "destroyed ranges overlap, touch or are out of order",
            ),
            Row::Producer(row) => self.producer(row),
            Row::Remembered(row) => self.remembered(row),
            Row::Query(row) => self.query(row),
            Row::Expired(row) => {
                let room = self.state.stages.len() < self.state.limits.expired_blocks_max as usize;
                check(
                    room && self.state.stages.push(block(row)),
                    "expired blocks are too many, or out of order, or below the floor",
                )
            }
        }
    }

    fn partition(&mut self, row: VerdictPartition) -> Result<(), Fault> {
        let limits = &self.state.limits;
        check(
            self.state.partitions.iter().len() < limits.partitions_max as usize,
            "there are too many partitions",
        )?;
        let skips = row.skipped.len();
        let in_order = row.skipped.is_sorted() && row.skipped.first() != Some(&0);
        let skipped: BTreeSet<_> = row.skipped.into_iter().map(PartitionLogIndex).collect();
        let partition = PartitionVerdict {
            epoch: Epoch::new(row.epoch).map_err(|_| Fault("a partition has epoch 0"))?,
            owner: NodeId(row.owner),
            machine: machine(row.machine)?,
            highest: PartitionLogIndex(row.highest),
            next_offset: row.next_offset,
            start_offset: row.start_offset,
            last_time_ms: row.last_time_ms,
            since_ms: row.since_ms,
            fence_run: whole(row.fence_run_high, row.fence_run_low),
            fence_metadata_index: row.fence_metadata_index,
            created: LogIndex(row.created),
            last_log_id: log_id(need(row.last_log_id, "a partition has no last record")?),
            skipped,
        };
        let (last, last_applied) = (partition.last_log_id, self.last_applied);
        // A skip is a record itself, behind the one that it skips.
        let skips_right = in_order
            && skips == partition.skipped.len()
            && skips <= limits.skips_max as usize
            && partition.skipped.last().is_none_or(|last| *last < partition.highest);
        check(skips_right, "the skipped records of a partition are too many, out of order or not there")?;
        check(partition.highest > PartitionLogIndex::NONE, "a partition has no record")?;
        check(partition.start_offset <= partition.next_offset, "a partition starts behind its end")?;
        check(partition.since_ms <= partition.last_time_ms, "an epoch began behind its last record")?;
        check(
            partition.created <= last.index
                && last.index <= last_applied.index
                && last.term <= last_applied.term,
            "a partition goes beyond the last entry",
        )?;
        check(
            self.state.partitions.push(PartitionId(row.partition), partition),
            "partitions are out of order",
        )
    }

    fn producer(&mut self, row: VerdictProducer) -> Result<(), Fault> {
        let id = ProducerId(row.id);
        let producers = &self.state.producers;
        check(producers.len() < self.state.limits.producers_max as usize, "there are too many producers")?;
        check(producers.last() < Some(id), "producers are out of order")?;
        check(producers.forgotten() != Some(id), "a producer is known and forgotten")?;
        let uses = row.id..=self.last_applied.index.0;
        check(uses.contains(&row.last_used), "a producer was used out of its time")?;
        let last_used = LogIndex(row.last_used);
        let producer =
            ProducerVerdict { last_sequence: row.last_sequence, last_used, window: VecDeque::new() };
        self.producer = Some((id, producer));
        Ok(())
    }

    fn remembered(&mut self, row: VerdictRemembered) -> Result<(), Fault> {
        let outcome = self.outcome(row.outcome)?;
        let (_, producer) = need(self.producer.as_mut(), "an append has no producer")?;
        let room = producer.window.len() < self.state.limits.producer_window as usize;
        check(room, "a producer has too many appends")?;
        producer.window.push_back(Remembered { checksum: row.checksum, outcome });
        Ok(())
    }

    fn end_producer(&mut self) -> Result<(), Fault> {
        let Some((id, producer)) = self.producer.take() else {
            return Ok(());
        };
        let window = u64::from(self.state.limits.producer_window).min(producer.last_sequence);
        check(producer.window.len() as u64 == window, "appends of a producer are missing, or too many")?;
        self.state.producers.insert(id, producer);
        Ok(())
    }

    fn query(&mut self, row: VerdictQuery) -> Result<(), Fault> {
        let limit = self.state.limits.queries_max as usize;
        check(self.state.queries.len() < limit, "there are too many queries")?;
        check(
            (1..=BatchId::QUERY_BYTES_MAX).contains(&row.query.len()),
            "the name of a query is empty or too long",
        )?;
        check(self.state.queries.last_query() < Some(&row.query), "queries are out of order")?;
        let outcome = self.outcome(row.outcome)?;
        self.state.queries.insert(row.query.into(), LastBatch { number: row.last_batch, outcome });
        Ok(())
    }

    fn outcome(&self, row: Option<VerdictOutcome>) -> Result<Outcome, Fault> {
        let row = need(row, "it has no outcome")?;
        check(row.index <= self.last_applied.index.0, "an outcome goes beyond the last entry")?;
        let columns = [row.indices.len(), row.first_offsets.len(), row.rows.len()];
        check(columns == [row.partitions.len(); 3], "the columns of an outcome differ in length")?;
        let places = row.indices.into_iter().zip(row.first_offsets).zip(row.rows);
        let placed =
            row.partitions.into_iter().zip(places).map(|(partition, ((index, first_offset), rows))| Placed {
                partition: PartitionId(partition),
                index: PartitionLogIndex(index),
                first_offset,
                rows,
            });
        Ok(Outcome {
            index: LogIndex(row.index),
            minted: row.minted.then_some(ProducerId(row.index)),
            placed: placed.collect(),
        })
    }

    /// All rows were read: the tables agree with each other.
    fn finish(mut self) -> Result<VerdictState, Fault> {
        self.end_producer()?;
        let partitions = &self.state.partitions;
        let destroyed = partitions.iter().any(|(id, _)| partitions.destroyed().contains(id));
        check(!destroyed, "a partition exists and is destroyed")?;
        Ok(self.state)
    }
}

fn check(right: bool, reason: &'static str) -> Result<(), Fault> {
    if right { Ok(()) } else { Err(Fault(reason)) }
}

fn need<T>(value: Option<T>, reason: &'static str) -> Result<T, Fault> {
    value.ok_or(Fault(reason))
}

fn machine(number: u32) -> Result<MachineKind, Fault> {
    match number {
        1 => Ok(MachineKind::Log),
        2 => Ok(MachineKind::Kv),
        _ => match u8::try_from(number) {
            Ok(number @ 128..) => Ok(MachineKind::Custom(number)),
            _ => Err(Fault("a partition has a machine of no known kind")),
        },
    }
}

fn log_id(row: VerdictLogId) -> LogId {
    LogId::new(row.term, row.index)
}

fn block(row: VerdictExpired) -> BlockId {
    BlockId(whole(row.block_high, row.block_low))
}

fn whole(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}
