//! The verdict state, and what can be read of it.

use laminar_core::ids::{LogIndex, PartitionId};

use super::limits::VerdictLimits;
use super::partition::PartitionVerdict;
use super::partitions::Partitions;
use super::producers::Producers;
use super::queries::Queries;
use super::stages::Stages;
use super::types::Outcome;
use crate::entry::{BatchId, BlockId, ProducerId};
use crate::log_id::LogId;
use crate::setting::SettingOutOfRange;

/// Everything that decides what becomes of the next entry: epochs and owners, indices and offsets, and what was
/// applied before. Replicas that decided the same entries have equal states (APPLY-2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictState {
    pub(super) limits: VerdictLimits,
    pub(super) last_applied: Option<LogId>,
    pub(super) partitions: Partitions,
    pub(super) producers: Producers,
    pub(super) queries: Queries,
    pub(super) stages: Stages,
}

/// How much a [`VerdictState`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerdictCounts {
    /// Partitions that exist.
    pub partitions: usize,
    /// Ids of destroyed partitions.
    pub destroyed: u64,
    /// Producers that are known.
    pub producers: usize,
    /// Queries whose last batch is known.
    pub queries: usize,
    /// Expired blocks that are known by id.
    pub expired_blocks: usize,
}

impl VerdictState {
    /// The state before the first entry.
    ///
    /// # Errors
    ///
    /// Invalid: a limit is out of its range.
    pub fn new(limits: VerdictLimits) -> Result<Self, SettingOutOfRange> {
        limits.check()?;
        Ok(Self {
            limits,
            last_applied: None,
            partitions: Partitions::default(),
            producers: Producers::default(),
            queries: Queries::default(),
            stages: Stages::default(),
        })
    }

    /// Its limits. After [`decode`](Self::decode), those of the state that was encoded.
    pub fn limits(&self) -> &VerdictLimits {
        &self.limits
    }

    /// The last entry that was decided or passed over.
    pub fn last_applied(&self) -> Option<LogId> {
        self.last_applied
    }

    /// A partition that exists.
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionVerdict> {
        self.partitions.get(id)
    }

    /// The partitions that exist, by id.
    pub fn partitions(&self) -> impl ExactSizeIterator<Item = (PartitionId, &PartitionVerdict)> {
        self.partitions.iter()
    }

    /// Whether a partition was destroyed.
    pub fn is_destroyed(&self, id: PartitionId) -> bool {
        self.partitions.destroyed().contains(id)
    }

    /// Whether a commit that names this block would be refused.
    pub fn is_expired(&self, block: BlockId) -> bool {
        self.stages.is_expired(block)
    }

    /// The highest block that would count as expired because others of its time are, if these expired too: the log knows
    /// only the last ones by id. They must be in order.
    pub fn stage_floor_after(&self, blocks: &[BlockId]) -> Option<BlockId> {
        self.stages.floor_after(blocks, self.limits.expired_blocks_max)
    }

    /// The last batch of a query, and the entry that committed it.
    pub fn last_batch(&self, query: &str) -> Option<(u64, LogIndex)> {
        self.queries.last(query).map(|last| (last.number, last.outcome.index))
    }

    /// The first query whose last batch is known, of those whose names are `name` or behind it.
    pub fn first_query_from(&self, name: &str) -> Option<&str> {
        self.queries.first_from(name)
    }

    /// What became of a batch, if it is the last of its query.
    pub fn committed(&self, batch: &BatchId) -> Option<&Outcome> {
        self.queries.last(&batch.query).filter(|last| last.number == batch.number).map(|last| &last.outcome)
    }

    /// The last sequence of a producer that is known; 0 if it appended nothing yet.
    pub fn last_sequence(&self, producer: ProducerId) -> Option<u64> {
        self.producers.get(producer).map(|known| known.last_sequence)
    }

    /// How much it holds.
    pub fn counts(&self) -> VerdictCounts {
        VerdictCounts {
            partitions: self.partitions.iter().len(),
            destroyed: self.partitions.destroyed().count(),
            producers: self.producers.len(),
            queries: self.queries.len(),
            expired_blocks: self.stages.len(),
        }
    }
}
