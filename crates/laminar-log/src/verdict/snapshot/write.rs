//! The state to its rows.

use laminar_core::ids::PartitionId;
use prost::Message;

use super::proto::{
    VerdictDestroyed, VerdictExpired, VerdictHead, VerdictLimits, VerdictLogId, VerdictOutcome,
    VerdictPartition, VerdictProducer, VerdictQuery, VerdictRemembered, VerdictRow, verdict_row::Row,
};
use crate::entry::{BlockId, MachineKind};
use crate::log_id::LogId;
use crate::verdict::partition::PartitionVerdict;
use crate::verdict::state::VerdictState;
use crate::verdict::types::Outcome;

pub(super) fn put_rows(buffer: &mut Vec<u8>, state: &VerdictState) {
    put(buffer, Row::Head(head(state)));
    for (id, partition) in state.partitions.iter() {
        put(buffer, Row::Partition(partition_row(id, partition)));
    }
    for (first, last) in state.partitions.destroyed().ranges() {
        put(buffer, Row::Destroyed(VerdictDestroyed { first, last }));
    }
    for (id, producer) in state.producers.iter() {
        let (last_sequence, last_used) = (producer.last_sequence, producer.last_used.0);
        put(buffer, Row::Producer(VerdictProducer { id: id.0, last_sequence, last_used }));
        for remembered in &producer.window {
            let (checksum, outcome) = (remembered.checksum, Some(outcome(&remembered.outcome)));
            put(buffer, Row::Remembered(VerdictRemembered { checksum, outcome }));
        }
    }
    for (query, last) in state.queries.iter() {
        let outcome = Some(outcome(&last.outcome));
        put(buffer, Row::Query(VerdictQuery { query: query.to_owned(), last_batch: last.number, outcome }));
    }
    for block in state.stages.iter() {
        put(buffer, Row::Expired(expired(block)));
    }
}

fn put(buffer: &mut Vec<u8>, row: Row) {
    VerdictRow { row: Some(row) }.encode_length_delimited(buffer).expect("a vector has room for every row");
}

fn head(state: &VerdictState) -> VerdictHead {
    let limits = state.limits();
    VerdictHead {
        last_applied: state.last_applied().map(log_id),
        limits: Some(VerdictLimits {
            producers_max: limits.producers_max,
            producer_window: limits.producer_window,
            queries_max: limits.queries_max,
            partitions_max: limits.partitions_max,
            skips_max: limits.skips_max,
            expired_blocks_max: limits.expired_blocks_max,
        }),
        forgotten_producer: state.producers.forgotten().map(|producer| producer.0),
        expired_floor: state.stages.floor().map(expired),
    }
}

fn partition_row(id: PartitionId, partition: &PartitionVerdict) -> VerdictPartition {
    let (fence_run_high, fence_run_low) = halves(partition.fence_run);
    VerdictPartition {
        partition: id.0,
        epoch: partition.epoch.get(),
        owner: partition.owner.0,
        machine: match partition.machine {
            MachineKind::Log => 1,
            MachineKind::Kv => 2,
            MachineKind::Custom(number) => u32::from(number),
        },
        highest: partition.highest.0,
        next_offset: partition.next_offset,
        start_offset: partition.start_offset,
        last_time_ms: partition.last_time_ms,
        since_ms: partition.since_ms,
        fence_run_high,
        fence_run_low,
        fence_metadata_index: partition.fence_metadata_index,
        created: partition.created.0,
        last_log_id: Some(log_id(partition.last_log_id)),
        skipped: partition.skipped.iter().map(|index| index.0).collect(),
    }
}

fn outcome(outcome: &Outcome) -> VerdictOutcome {
    let placed = &outcome.placed;
    VerdictOutcome {
        index: outcome.index.0,
        minted: outcome.minted.is_some(),
        partitions: placed.iter().map(|placed| placed.partition.0).collect(),
        indices: placed.iter().map(|placed| placed.index.0).collect(),
        first_offsets: placed.iter().map(|placed| placed.first_offset).collect(),
        rows: placed.iter().map(|placed| placed.rows).collect(),
    }
}

fn log_id(id: LogId) -> VerdictLogId {
    VerdictLogId { term: id.term, index: id.index.0 }
}

fn expired(block: BlockId) -> VerdictExpired {
    let (block_high, block_low) = halves(block.0);
    VerdictExpired { block_high, block_low }
}

fn halves(number: u128) -> (u64, u64) {
    ((number >> 64) as u64, number as u64)
}
