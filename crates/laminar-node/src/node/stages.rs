//! Staged blocks that nothing names are deleted, in an order that loses nothing:
//!
//! 1. Old blocks are looked for that no record names.
//! 2. `ExpireStage` with their ids goes through the log: from there on no commit that names one is accepted.
//! 3. Records are looked through once more, for a commit that came in between.
//! 4. Only what nothing names then is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use laminar_core::ids::PartitionId;
use laminar_log::dispatcher::ClientId;
use laminar_log::entry::{Append, BlockId, Change, Entry, Payload, Record};
use laminar_log::partition_log::PartitionLogStore;
use laminar_log::verdict::Verdict;
use laminar_log::{LogError, PartitionLogIndex, SegmentedStateMachine};
use laminar_rpc::Failure;

use super::Node;
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
    /// Deletes the old blocks that nothing names; returns how many.
    pub(crate) async fn delete_unnamed_blocks(&self) -> Result<usize, Failure> {
        let failed = |error: laminar_store::StoreError| Failure::unavailable(with_causes(&error));
        let (now_ms, age_ms) =
            (wall_ms(), u64::try_from(self.inner.config.stage_age.as_millis()).unwrap_or(u64::MAX));
        let blocks = self.inner.store.list().await.map_err(failed)?;
        let old = blocks.into_iter().filter(|block| block.age_ms(now_ms) >= age_ms);
        let old: BTreeMap<BlockId, String> = old.map(|block| (BlockId(block.id.0), block.path)).collect();
        if old.is_empty() {
            return Ok(0);
        }
        // The others have their turn in the next round.
        let unnamed: BTreeMap<BlockId, String> =
            self.without_named(old).await?.into_iter().take(BLOCKS_MAX).collect();
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
        if let Change::Append(Append { payload: Payload::Pointer(pointer), .. }) = &record.record.change {
            blocks.remove(&pointer.block);
        }
    }
    // A log that has failed meanwhile ends early.
    let read_end = reader.index();
    if read_end <= last && last != PartitionLogIndex::NONE {
        return Err(LogError::NotStoredAgain { partition: log.partition(), stored_end: read_end, last });
    }
    Ok(())
}
