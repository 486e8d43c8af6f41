//! Old rows go: those older or more than their stream keeps.
//!
//! The clock only decides when a trim is proposed. What it trims is a record in the log, the same on every replica.

use std::collections::BTreeMap;

use laminar_core::ids::PartitionId;
use laminar_core::metadata::Retention;
use laminar_log::entry::{Change, Entry, PartitionRecord, Record, TrimTo};
use laminar_log::partition_log::PartitionLogStore;
use laminar_log::{LogError, PartitionStatus};
use laminar_rpc::Failure;

use super::Node;
use super::row_sizes::RowSizes;
use crate::clock::wall_ms;
use crate::error::of_log;

/// Looks again and again, until the node stops.
pub(super) async fn keep(node: Node) {
    let interval = node.inner.config.retention_interval;
    let mut sizes = BTreeMap::new();
    loop {
        tokio::select! {
            () = node.stopped() => return,
            () = tokio::time::sleep(interval) => {}
        }
        node.trim_old_rows(&mut sizes).await;
    }
}

impl Node {
    /// Trims what is beyond its retention.
    async fn trim_old_rows(&self, sizes: &mut BTreeMap<PartitionId, RowSizes>) {
        let bounded: Vec<(PartitionId, Retention)> = self.inner.metadata.read_local(|metadata| {
            let bounded = metadata.streams("").filter(|stream| stream.retention != Retention::default());
            let ids = |stream: &laminar_core::metadata::StreamDescriptor| {
                stream.partition_ids.iter().flat_map(|range| range.iter()).collect::<Vec<_>>()
            };
            bounded.flat_map(|stream| ids(stream).into_iter().map(|id| (id, stream.retention))).collect()
        });
        let mut before = std::mem::take(sizes);
        for (id, retention) in bounded {
            let counted = before.remove(&id).unwrap_or_default();
            match self.trim_partition(id, retention, counted).await {
                Ok(counted) => drop(sizes.insert(id, counted)),
                // Its records are counted anew, and the other partitions go on.
                Err(failure) if !self.is_stopping() => {
                    tracing::warn!(%failure, partition = id.0, "rows beyond their retention are still there; it is tried again");
                }
                Err(_) => return,
            }
        }
    }

    /// Trims one partition; returns the count that goes on.
    async fn trim_partition(
        &self,
        partition: PartitionId,
        retention: Retention,
        mut sizes: RowSizes,
    ) -> Result<RowSizes, Failure> {
        let machine = self.machine()?;
        let (Some(status), Some(log)) = (machine.status(partition), machine.partition_log(partition)) else {
            return Ok(sizes);
        };
        if status.start_offset == status.next_offset {
            return Ok(sizes);
        }
        let (owner, epoch, start) = (status.owner, status.epoch, status.start_offset);
        let looked = tokio::task::spawn_blocking(move || {
            keep_from(&log, &status, retention, wall_ms(), &mut sizes).map(|from| (from, sizes))
        });
        let (keep_from, sizes) = looked
            .await
            .map_err(|_| Failure::internal("looking for old rows ended unexpectedly; report it"))?
            .map_err(|error| of_log(&error))?;
        if keep_from <= start {
            return Ok(sizes);
        }
        let change = Change::Trim(TrimTo::Offset(keep_from));
        let record = Record::Partition(PartitionRecord { partition, owner, epoch, change });
        // A new owner in between has it refused; the next round names the new epoch.
        drop(self.decide(Entry { records: vec![record], ..Entry::default() }).await?);
        Ok(sizes)
    }
}

/// The first offset that stays. Whole records go: one stays as long as any of its rows does.
fn keep_from(
    log: &PartitionLogStore,
    status: &PartitionStatus,
    retention: Retention,
    now_ms: u64,
    sizes: &mut RowSizes,
) -> Result<u64, LogError> {
    let mut from = status.start_offset;
    if let Some(age_ms) = retention.age_ms {
        // A log that is being repaired may lack the young ones.
        from = from.max(match log.find_time(now_ms.saturating_sub(age_ms), status.highest)? {
            Some(young) => log.header(young)?.first_offset,
            None => status.next_offset,
        });
    }
    if let Some(bytes_max) = retention.bytes {
        from = from.max(sizes.keep_from(log, from, bytes_max)?);
    }
    Ok(from)
}
