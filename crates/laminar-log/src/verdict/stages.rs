//! Staged blocks that may be deleted already, so that no commit names them.

use std::collections::BTreeSet;

use super::types::Refusal;
use crate::entry::BlockId;

/// The largest ids of expired blocks, and a floor below which every block counts as expired. Ids grow with time, so
/// what is below the floor is old.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Stages {
    expired: BTreeSet<BlockId>,
    /// The highest id that no longer stands in the set.
    floor: Option<BlockId>,
    /// The steps of the entry that is being decided.
    undo: Vec<Undo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Undo {
    Added(BlockId),
    Evicted { block: BlockId, floor_before: Option<BlockId> },
}

impl Stages {
    pub(super) fn check(&self, block: BlockId) -> Result<(), Refusal> {
        if self.is_expired(block) { Err(Refusal::StageExpired { block }) } else { Ok(()) }
    }

    pub(super) fn is_expired(&self, block: BlockId) -> bool {
        Some(block) <= self.floor || self.expired.contains(&block)
    }

    /// Adds blocks, and leaves the smallest ids to the floor if there are too many.
    pub(super) fn expire(&mut self, blocks: &[BlockId], expired_blocks_max: u32) {
        for block in blocks {
            if self.is_expired(*block) {
                continue;
            }
            self.expired.insert(*block);
            self.undo.push(Undo::Added(*block));
            if self.expired.len() > expired_blocks_max as usize {
                let evicted = self.expired.pop_first();
                let floor_before = std::mem::replace(&mut self.floor, evicted);
                self.undo.extend(evicted.map(|block| Undo::Evicted { block, floor_before }));
            }
        }
    }

    /// The floor that there would be if these blocks, in order, expired too.
    pub(super) fn floor_after(&self, blocks: &[BlockId], expired_blocks_max: u32) -> Option<BlockId> {
        let more: Vec<BlockId> = blocks.iter().filter(|block| !self.is_expired(**block)).copied().collect();
        let over = (self.expired.len() + more.len()).saturating_sub(expired_blocks_max as usize);
        let mut lowest: Vec<BlockId> = self.expired.iter().take(over).copied().collect();
        lowest.extend(more.iter().take(over));
        lowest.sort_unstable();
        over.checked_sub(1).map(|last| lowest[last]).or(self.floor)
    }

    /// What was done since the last call stays.
    pub(super) fn keep(&mut self) {
        super::clear(&mut self.undo);
    }

    /// Takes back what was done since the last [`keep`](Self::keep).
    pub(super) fn take_back(&mut self) {
        while let Some(step) = self.undo.pop() {
            match step {
                Undo::Added(block) => {
                    self.expired.remove(&block);
                }
                Undo::Evicted { block, floor_before } => {
                    self.expired.insert(block);
                    self.floor = floor_before;
                }
            }
        }
        super::clear(&mut self.undo);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.expired.iter().copied()
    }

    pub(super) fn floor(&self) -> Option<BlockId> {
        self.floor
    }

    pub(super) fn set_floor(&mut self, floor: Option<BlockId>) {
        self.floor = floor;
    }

    /// Adds a block above all there are; else it is not added.
    #[must_use]
    pub(super) fn push(&mut self, block: BlockId) -> bool {
        let follows = Some(block) > self.floor && Some(&block) > self.expired.last();
        follows && self.expired.insert(block)
    }

    pub(super) fn len(&self) -> usize {
        self.expired.len()
    }
}
