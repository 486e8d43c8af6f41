//! Staged blocks that nothing names are deleted, in an order that loses nothing:
//!
//! 1. Blocks are looked for that no record names, and that are old or were named before.
//! 2. `ExpireStage` with their ids goes through the log: from there on no commit that names one is accepted.
//! 3. Records are looked through once more, for a commit that came in between.
//! 4. Only what nothing names then is deleted.
//!
//! Nothing is lost whichever blocks are chosen; the choice is about whom step 2 refuses. A task may be about to commit a block
//! that was never named, so that one must be old. One that was named has been committed, and a block is committed once: its
//! records are gone with their stream, or were trimmed. Whoever sends that commit again is told that it landed, before anybody
//! looks at blocks. Which blocks were named is remembered in memory only: a node that was opened since learns it when it looks
//! through the records, and of those that went before that it knows nothing, so they must be old.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use laminar_core::ids::PartitionId;
use laminar_log::dispatcher::ClientId;
use laminar_log::entry::{Append, BlockId, Change, Entry, Payload, Record};
use laminar_log::partition_log::PartitionLogStore;
use laminar_log::verdict::Verdict;
use laminar_log::{LogError, PartitionLogIndex, SegmentedStateMachine};
use laminar_rpc::Failure;
use laminar_store::StagedBlock;

use super::{Node, lock};
use crate::clock::wall_ms;
use crate::error::{of_log, with_causes};
use crate::random;

/// Blocks that expire with one entry.
const BLOCKS_MAX: usize = 1000;

/// Looks again and again, until the node stops.
pub(super) async fn collect(node: Node) {
    loop {
        tokio::select! {
            () = node.stopped() => return,
            () = tokio::time::sleep(node.inner.config.stage_interval) => {}
        }
        if let Err(failure) = node.delete_unnamed_blocks().await
            && !node.is_stopping()
        {
            tracing::warn!(%failure, "staged blocks that nothing names are still there; it is tried again");
        }
    }
}

impl Node {
    /// Remembers that records name these blocks.
    pub(super) fn remember_named(&self, blocks: Vec<BlockId>) {
        if !blocks.is_empty() {
            lock(&self.inner.named_blocks).extend(blocks);
        }
    }

    /// Deletes the blocks that nothing names any more, and the old ones that nothing ever did; returns how many.
    pub(crate) async fn delete_unnamed_blocks(&self) -> Result<usize, Failure> {
        let failed = |error: laminar_store::StoreError| Failure::unavailable(with_causes(&error));
        let age_ms = u64::try_from(self.inner.config.stage_age.as_millis()).unwrap_or(u64::MAX);
        let old_ms = wall_ms().checked_sub(age_ms);
        let listed = self.inner.store.list().await.map_err(failed)?;
        let is_old = |block: &StagedBlock| Some(block.written_ms.max(0) as u64) <= old_ms;
        let old: BTreeSet<BlockId> =
            listed.iter().filter(|block| is_old(block)).map(|block| BlockId(block.id.0)).collect();
        let listed: BTreeMap<BlockId, String> =
            listed.into_iter().map(|block| (BlockId(block.id.0), block.path)).collect();
        if listed.is_empty() {
            return Ok(0);
        }
        // Before the records are looked through: what is named by then is found there.
        let mut named_before = std::mem::take(&mut *lock(&self.inner.named_blocks));
        named_before.retain(|block| listed.contains_key(block));
        let looked = self.without_named(listed.clone()).await;
        if let Ok(unnamed) = &looked {
            named_before.extend(listed.keys().filter(|block| !unnamed.contains_key(block)));
        }
        lock(&self.inner.named_blocks).extend(named_before.iter().copied());
        let may_go = |block: &BlockId| old.contains(block) || named_before.contains(block);
        // The others have their turn in the next round.
        let mut unnamed: BTreeMap<BlockId, String> =
            looked?.into_iter().filter(|(block, _)| may_go(block)).take(BLOCKS_MAX).collect();
        let ids: Vec<BlockId> = unnamed.keys().copied().collect();
        // The log knows so many expired blocks one by one, and takes all below for expired: these must be old.
        let floor = self.machine()?.stage_floor_after(&ids);
        if floor.is_some_and(|floor| Some(laminar_store::BlockId(floor.0).time_ms()) > old_ms) {
            unnamed.retain(|block, _| old.contains(block));
        }
        if unnamed.is_empty() {
            return Ok(0);
        }
        let expire = Record::ExpireStage(unnamed.keys().copied().collect());
        match self.propose(Entry { records: vec![expire], ..Entry::default() }, 0).await? {
            Verdict::Accepted(_) | Verdict::Duplicate(_) => {}
            Verdict::Refused(refusal) => return Err(Failure::internal(refusal.to_string())),
        }
        let ids = self.machine()?.partition_ids();
        self.wait_for(ClientId(random::bits128()), &ids, 0, self.timeout(0)).await?;
        let unnamed = self.without_named(unnamed).await?;
        for path in unnamed.values() {
            self.inner.store.delete(path).await.map_err(failed)?;
        }
        self.inner.figures.staged_blocks_deleted.add(unnamed.len() as u64);
        Ok(unnamed.len())
    }

    /// Takes out the blocks that a stored record names. Fails if that cannot be known of any partition.
    async fn without_named(
        &self,
        blocks: BTreeMap<BlockId, String>,
    ) -> Result<BTreeMap<BlockId, String>, Failure> {
        let machine = Arc::new(self.machine()?);
        let looked = tokio::task::spawn_blocking(move || {
            let mut blocks = blocks;
            for partition in machine.partition_ids() {
                take_out_named(&machine, partition, &mut blocks)?;
            }
            Ok(blocks)
        });
        looked
            .await
            .map_err(|_| Failure::internal("looking through records ended unexpectedly; report it"))?
    }
}

/// The blocks that records name.
pub(super) fn blocks_of(records: &[Record]) -> Vec<BlockId> {
    let block = |record: &Record| match record {
        Record::Partition(record) => block_of(&record.change),
        _ => None,
    };
    records.iter().filter_map(block).collect()
}

fn block_of(change: &Change) -> Option<BlockId> {
    match change {
        Change::Append(Append { payload: Payload::Pointer(pointer), .. }) => Some(pointer.block),
        _ => None,
    }
}

fn take_out_named(
    machine: &SegmentedStateMachine,
    partition: PartitionId,
    blocks: &mut BTreeMap<BlockId, String>,
) -> Result<(), Failure> {
    // One that was destroyed meanwhile names nothing.
    let Some(status) = machine.status(partition) else { return Ok(()) };
    // A log that could not be opened, or lacks what was applied, would be taken to name nothing.
    let whole = status.stored_end > status.highest && !status.repairing;
    let Some(log) = machine.partition_log(partition).filter(|_| whole) else {
        return Err(Failure::unavailable(format!(
            "partition {partition}: its own log is not whole, so the blocks that it names are not known; none is deleted until \
             it is repaired"
        )));
    };
    take_out_named_by(&log, status.highest, blocks).map_err(|error| of_log(&error))
}

fn take_out_named_by(
    log: &PartitionLogStore,
    last: PartitionLogIndex,
    blocks: &mut BTreeMap<BlockId, String>,
) -> Result<(), LogError> {
    // Nothing that is read goes away meanwhile.
    let _pin = log.pin(log.first())?;
    let mut reader = log.reader(log.first());
    while let Some(record) = reader.next()? {
        if let Some(block) = block_of(&record.record.change) {
            blocks.remove(&block);
        }
    }
    // A log that has failed meanwhile ends early.
    let read_end = reader.index();
    if read_end <= last && last != PartitionLogIndex::NONE {
        return Err(LogError::NotStoredAgain { partition: log.partition(), stored_end: read_end, last });
    }
    Ok(())
}
