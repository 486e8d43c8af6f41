//! What `apply` answers to an entry.

use laminar_core::error::ErrorKind;
use laminar_core::ids::{Epoch, LogIndex, NodeId, PartitionId};
use thiserror::Error;

use crate::entry::{BatchId, BlockId, PartitionRecord, ProducerId};
use crate::log_id::{LogId, PartitionLogIndex};

/// What became of an entry, and what workers have to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What the caller is told.
    pub verdict: Verdict,
    /// Records for the partitions' logs and machines, in order. Empty unless the entry was accepted.
    pub accepted: Vec<AcceptedRecord>,
    /// Which record of the entry each of them is.
    pub positions: Vec<u32>,
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All of it has taken effect.
    Accepted(Outcome),
    /// It had taken effect before; this is what became of it then.
    Duplicate(Outcome),
    /// None of it has taken effect.
    Refused(Refusal),
}

/// What an accepted entry did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The entry's place in the Raft log: the global index.
    pub index: LogIndex,
    /// The producer that it minted.
    pub minted: Option<ProducerId>,
    /// Where its appends are, in the order of the entry.
    pub placed: Vec<Placed>,
}

/// Where the rows of one append are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The partition.
    pub partition: PartitionId,
    /// The record's place in the partition's log.
    pub index: PartitionLogIndex,
    /// The offset of the first row.
    pub first_offset: u64,
    /// How many rows.
    pub rows: u32,
}

/// A record that was accepted, with everything that `apply` gave it. Every accepted record of a partition has a place
/// in the partition's log, rows or not (LOG-2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedRecord {
    /// Its place in the partition's log.
    pub index: PartitionLogIndex,
    /// The offset of its first row, or of the next row if it has none.
    pub first_offset: u64,
    /// The entry that it was accepted from (LOG-4).
    pub log_id: LogId,
    /// The time of its rows; never goes back within a partition.
    pub time_ms: u64,
    /// What it says. For a trim to the end, the offset that this was.
    pub record: PartitionRecord,
}

/// Why an entry was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The epoch is not the partition's.
    #[error(
        "partition {partition}: write refused, it came under epoch {given} of node {given_owner} and epoch {current} \
         of node {owner} is current; refresh the guard"
    )]
    StaleEpoch {
        /// The partition.
        partition: PartitionId,
        /// The epoch that the record came under.
        given: Epoch,
        /// Who sent it.
        given_owner: NodeId,
        /// The partition's epoch.
        current: Epoch,
        /// Its owner.
        owner: NodeId,
        /// When the current epoch began, in milliseconds since 1970.
        since_ms: u64,
        /// Whether the batch had landed before; none if a later one of its query did, and nobody remembers.
        batch_committed: Option<bool>,
    },
    /// The epoch is right and the owner is not.
    #[error("partition {partition}: write refused, node {given} does not own it, node {owner} does")]
    NotOwned {
        /// The partition.
        partition: PartitionId,
        /// Who sent it.
        given: NodeId,
        /// Who owns it.
        owner: NodeId,
        /// Whether the batch had landed before; none if a later one of its query did, and nobody remembers.
        batch_committed: Option<bool>,
    },
    /// There is no such partition.
    #[error("partition {partition}: write refused, there is no such partition; create it first")]
    UnknownPartition {
        /// The partition.
        partition: PartitionId,
    },
    /// The partition was destroyed. Ids are never used again.
    #[error("partition {partition}: write refused, it was destroyed; ids are not used again")]
    Destroyed {
        /// The partition.
        partition: PartitionId,
    },
    /// A producer that was never minted, or was forgotten.
    #[error(
        "producer {}: append refused, it is not known (those up to {} may have been forgotten); mint another",
        .producer.0, .forgotten.0
    )]
    UnknownProducer {
        /// The producer.
        producer: ProducerId,
        /// The highest id that was forgotten.
        forgotten: ProducerId,
    },
    /// A sequence that does not follow the producer's last.
    #[error(
        "producer {}: append refused, sequence {given} does not follow {last}; appends of a producer must arrive in \
         order", .producer.0
    )]
    SequenceGap {
        /// The producer.
        producer: ProducerId,
        /// Its sequence.
        given: u64,
        /// The last accepted one.
        last: u64,
    },
    /// The same sequence with other rows, or one too old to be compared.
    #[error(
        "producer {}: append refused, sequence {given} was used before with other rows, or too long ago to tell",
        .producer.0
    )]
    SequenceReused {
        /// The producer.
        producer: ProducerId,
        /// Its sequence.
        given: u64,
    },
    /// A batch below the query's last one.
    #[error("query {}: batch {} refused, batch {last} was committed already; batches must not go back", .batch.query, .batch.number)]
    BatchBackwards {
        /// The batch.
        batch: BatchId,
        /// The last committed one.
        last: u64,
    },
    /// The number of queries is limited, and none is forgotten while it could write.
    #[error(
        "query {query}: batch refused, {limit} of {limit} queries are known (log.queries_max); use the name of one that is \
         known, or drop a stream that is not needed: its queries go with it"
    )]
    TooManyQueries {
        /// The query.
        query: String,
        /// The limit.
        limit: u32,
    },
    /// The number of partitions is limited.
    #[error(
        "partition {partition}: creation refused, {limit} of {limit} partitions exist (log.partitions_max)"
    )]
    TooManyPartitions {
        /// The partition.
        partition: PartitionId,
        /// The limit.
        limit: u32,
    },
    /// The number of skipped records of a partition is limited.
    #[error("partition {partition}: skip refused, {limit} of {limit} records are skipped (log.skips_max)")]
    TooManySkips {
        /// The partition.
        partition: PartitionId,
        /// The limit.
        limit: u32,
    },
    /// There is no record at this place.
    #[error("partition {partition}: skip refused, it has no record {index} (its last is {last})")]
    NothingToSkip {
        /// The partition.
        partition: PartitionId,
        /// The place.
        index: PartitionLogIndex,
        /// The last place that has one.
        last: PartitionLogIndex,
    },
    /// A staged block that may be deleted already.
    #[error("block {:032x}: commit refused, it has expired; stage the rows again", .block.0)]
    StageExpired {
        /// The block.
        block: BlockId,
    },
    /// A number has reached its end.
    #[error("partition {partition}: append refused, its row offsets are used up")]
    OffsetsExhausted {
        /// The partition.
        partition: PartitionId,
    },
    /// The partition's rows do not end where the entry expects them to: somebody has appended since.
    #[error(
        "partition {partition}: commit refused, it expects {expected} as the end of the partition and {end} is; look at the \
         rows between"
    )]
    EndMoved {
        /// The partition.
        partition: PartitionId,
        /// The end that the entry expects.
        expected: u64,
        /// The end that it is.
        end: u64,
    },
    /// The entry's bytes cannot be understood; nothing of it is applied, by any replica.
    #[error("entry refused, it cannot be read: {0}")]
    Unreadable(crate::format::FormatError),
    /// The entry was decided before; whoever applies the log has lost its place.
    #[error("entry {given} refused, entries up to {last} were decided already; report it")]
    AlreadyDecided {
        /// The entry.
        given: LogId,
        /// The last entry that was decided.
        last: LogId,
    },
}

impl Refusal {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Refusal::StaleEpoch { .. }
            | Refusal::NotOwned { .. }
            | Refusal::UnknownPartition { .. }
            | Refusal::Destroyed { .. } => ErrorKind::Stale,
            Refusal::TooManyQueries { .. }
            | Refusal::TooManyPartitions { .. }
            | Refusal::TooManySkips { .. } => ErrorKind::Overloaded,
            Refusal::UnknownProducer { .. }
            | Refusal::SequenceGap { .. }
            | Refusal::SequenceReused { .. }
            | Refusal::BatchBackwards { .. }
            | Refusal::NothingToSkip { .. }
            | Refusal::StageExpired { .. }
            | Refusal::OffsetsExhausted { .. }
            | Refusal::EndMoved { .. } => ErrorKind::Invalid,
            Refusal::Unreadable(_) => ErrorKind::Corrupt,
            Refusal::AlreadyDecided { .. } => ErrorKind::Internal,
        }
    }
}
