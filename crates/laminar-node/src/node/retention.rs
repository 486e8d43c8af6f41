//! Old rows go: those older or more than their stream keeps.
//!
//! The clock only decides when a trim is proposed. What it trims is a record in the log, the same on every replica.

use laminar_core::ids::PartitionId;
use laminar_core::metadata::Retention;
use laminar_log::entry::{Change, Entry, PartitionRecord, Record, TrimTo};
use laminar_log::partition_log::PartitionLogStore;
use laminar_log::{LogError, PartitionStatus};
use laminar_rpc::Failure;

use super::Node;
use super::keyed::rows_of;
use crate::clock::wall_ms;
use crate::error::of_log;

/// Looks again and again, until the node stops.
pub(super) async fn keep(node: Node) {
    let interval = node.inner.config.retention_interval;
    loop {
        tokio::select! {
            () = node.stopped() => return,
            () = tokio::time::sleep(interval) => {}
        }
        if let Err(failure) = node.trim_old_rows().await {
            tracing::warn!(%failure, "rows beyond their retention are still there; it is tried again");
        }
    }
}

impl Node {
    /// Trims what is beyond its retention.
    pub(crate) async fn trim_old_rows(&self) -> Result<(), Failure> {
        let bounded: Vec<(PartitionId, Retention)> = self.inner.metadata.read_local(|metadata| {
            let bounded = metadata.streams("").filter(|stream| stream.retention != Retention::default());
            let ids = |stream: &laminar_core::metadata::StreamDescriptor| {
                stream.partition_ids.iter().flat_map(|range| range.iter()).collect::<Vec<_>>()
            };
            bounded.flat_map(|stream| ids(stream).into_iter().map(|id| (id, stream.retention))).collect()
        });
        for (id, retention) in bounded {
            self.trim_partition(id, retention).await?;
        }
        Ok(())
    }

    async fn trim_partition(&self, partition: PartitionId, retention: Retention) -> Result<(), Failure> {
        let machine = self.machine()?;
        let (Some(status), Some(log)) = (machine.status(partition), machine.partition_log(partition)) else {
            return Ok(());
        };
        if status.start_offset == status.next_offset {
            return Ok(());
        }
        let (owner, epoch, start) = (status.owner, status.epoch, status.start_offset);
        let keep_from = tokio::task::spawn_blocking(move || keep_from(&log, &status, retention, wall_ms()))
            .await
            .map_err(|_| Failure::internal("looking for old rows ended unexpectedly; report it"))?
            .map_err(|error| of_log(&error))?;
        if keep_from <= start {
            return Ok(());
        }
        let change = Change::Trim(TrimTo::Offset(keep_from));
        let record = Record::Partition(PartitionRecord { partition, owner, epoch, change });
        // A new owner in between has it refused; the next round names the new epoch.
        self.propose(Entry { records: vec![record], ..Entry::default() }, 0).await?;
        Ok(())
    }
}

/// The first offset that stays. Whole records go: one stays as long as any of its rows does.
fn keep_from(
    log: &PartitionLogStore,
    status: &PartitionStatus,
    retention: Retention,
    now_ms: u64,
) -> Result<u64, LogError> {
    let mut from = status.start_offset;
    if let Some(age_ms) = retention.age_ms {
        from = from.max(match log.find_time(now_ms.saturating_sub(age_ms))? {
            Some(young) => log.header(young)?.first_offset,
            None => status.next_offset,
        });
    }
    if let Some(bytes_max) = retention.bytes {
        // Segments are what takes room on the disk, so they are what is counted.
        let segments = log.segments();
        let mut bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        for segment in &segments[..segments.len().saturating_sub(1)] {
            if bytes <= bytes_max {
                break;
            }
            bytes -= segment.bytes;
            let last = log.record(laminar_log::PartitionLogIndex(segment.end.saturating_sub(1)))?;
            from = from.max(last.first_offset + u64::from(rows_of(&last.record.change)));
        }
    }
    Ok(from)
}
