//! Carries what the metadata decided into the data log.
//!
//! The metadata says who owns a partition and under which epoch; the data log must say the same before anything of the
//! new epoch can land and nothing of the old one can any more. The carrier compares the two and proposes what is missing:
//!
//! ```text
//!   metadata has it, the log does not          create, with owner and epoch
//!   metadata has a later epoch than the log    fence
//!   the log has it, metadata dropped it        destroy, and its stream's queries are forgotten
//! ```
//!
//! It looks at how things are and not at what happened, so a crash anywhere, or doing it twice, changes nothing: fences
//! apply only if their epoch is greater.

use std::time::Duration;

use laminar_core::ids::{LogIndex, NodeId, PartitionId};
use laminar_core::metadata::DeltaMetadata;
use laminar_log::SegmentedStateMachine;
use laminar_log::entry::{Change, Entry, Fence, PartitionRecord, Record};
use laminar_log::verdict::Refusal;
use laminar_rpc::Failure;

use crate::machines::machine_kind;
use crate::node::Node;
use crate::node::{tag, tags};

/// Records of one entry.
const RECORDS_MAX: usize = 4096;
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);

impl Node {
    /// Carries over what concerns these partitions. When it returns, nothing of an epoch before those that the metadata
    /// had when it was called can land: that is decided in the log (EPOCH-2). Nobody waits until the partitions have
    /// applied it: a paused one must not keep its stream from being taken over or released.
    pub(crate) async fn carry(&self, partitions: &[PartitionId]) -> Result<(), Failure> {
        let mut destroyed = false;
        for some in partitions.chunks(RECORDS_MAX) {
            loop {
                let machine = self.machine()?;
                let records = self.inner.metadata.read_local(|metadata| missing(metadata, &machine, some));
                if records.is_empty() {
                    break;
                }
                destroyed |= records.iter().any(is_destruction);
                match self.decide(Entry { records, ..Entry::default() }).await? {
                    Ok(()) => break,
                    // Another change came first: look again.
                    Err(
                        Refusal::Destroyed { .. }
                        | Refusal::StaleEpoch { .. }
                        | Refusal::UnknownPartition { .. },
                    ) => tokio::task::yield_now().await,
                    Err(refusal) => return Err(Failure::internal(refusal.to_string())),
                }
            }
        }
        if destroyed {
            self.forget_queries_of_dropped().await;
        }
        Ok(())
    }

    /// The stream is gone whether its queries are forgotten now or when the next one is dropped.
    async fn forget_queries_of_dropped(&self) {
        if let Err(failure) = self.forget_queries().await
            && !self.is_stopping()
        {
            tracing::warn!(%failure, "queries of a stream that was dropped are still known; it is tried again with the next");
        }
    }

    /// Carries over everything: after a start, nothing is assumed about what was done before.
    pub(crate) async fn carry_all(&self) -> Result<(), Failure> {
        let mut ids: Vec<PartitionId> = self.inner.data.machine().partition_ids();
        ids.extend(
            self.inner
                .metadata
                .read_local(|metadata| metadata.partition_map().keys().copied().collect::<Vec<_>>()),
        );
        ids.sort_unstable();
        ids.dedup();
        self.carry(&ids).await?;
        // A node that died after it destroyed partitions comes too late to see it.
        self.forget_queries_of_dropped().await;
        Ok(())
    }
}

fn is_destruction(record: &Record) -> bool {
    matches!(record, Record::Partition(PartitionRecord { change: Change::Destroy, .. }))
}

/// What the data log lacks of these partitions.
fn missing(
    metadata: &DeltaMetadata,
    machine: &SegmentedStateMachine,
    partitions: &[PartitionId],
) -> Vec<Record> {
    let metadata_index = metadata.last_applied_log().0;
    let record = |partition| {
        let logged = machine.owner(partition);
        let Some(ownership) = metadata.partition_ownership(partition) else {
            let logged = logged?;
            let (owner, epoch) = (logged.node_id, logged.epoch);
            return Some(PartitionRecord { partition, owner, epoch, change: Change::Destroy });
        };
        let (owner, epoch) = (ownership.node_id, ownership.epoch);
        let change = match logged {
            Some(logged) if logged.epoch >= epoch => return None,
            Some(_) => Change::Fence(Fence { run: run_of(metadata, owner), metadata_index }),
            None if machine.is_destroyed(partition) => return None,
            None => {
                let stream = metadata.stream_of(partition)?;
                Change::Create(machine_kind(&stream.machine))
            }
        };
        Some(PartitionRecord { partition, owner, epoch, change })
    };
    partitions.iter().filter_map(|partition| record(*partition)).map(Record::Partition).collect()
}

/// The run of a writer; 0 of a server.
fn run_of(metadata: &DeltaMetadata, node: NodeId) -> u128 {
    metadata.node(node).and_then(|node| u128::from_str_radix(tag(node, tags::RUN), 16).ok()).unwrap_or(0)
}

/// Carries over every change as it is applied, until the node stops.
pub(crate) async fn carry_changes(node: Node) {
    let mut after = LogIndex::NONE;
    let mut retry = RETRY_MIN;
    let mut watch = node.inner.metadata.watch(after);
    loop {
        let event = tokio::select! {
            () = node.stopped() => return,
            event = watch.next() => event,
        };
        // The group has ended.
        let Some(event) = event else { return };
        let ids: Vec<PartitionId> = event.changes.iter().map(|(id, _)| *id).collect();
        match node.carry(&ids).await {
            Ok(()) => {
                after = event.index;
                retry = RETRY_MIN;
            }
            Err(_) if node.is_stopping() => return,
            Err(failure) => {
                tracing::warn!(%failure, "changes of ownership are not in the data log yet; it is tried again");
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(RETRY_MAX);
                watch = node.inner.metadata.watch(after);
            }
        }
    }
}
