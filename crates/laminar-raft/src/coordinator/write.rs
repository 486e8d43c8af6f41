//! Writes: proposed as an append of one row to the group's one partition, and answered by what applying them said.

use std::time::Duration;

use bytes::Bytes;
use laminar_core::ids::{Epoch, LogIndex, NodeId, OwnerEpoch, PartitionId, RequestId};
use laminar_core::metadata::{CheckpointRef, MetadataChange, MetadataLogEntry, MetadataResponse, Release};
use laminar_core::node::{NodeMetadata, NodeRole, NodeState};
use laminar_log::entry::{Append, Change, Entry, PartitionRecord, Payload, Record};
use laminar_log::verdict::Verdict;
use openraft::{AsyncRuntime, Instant};

use super::error::CoordinationError;
use super::machine::{KIND, PARTITION};
use super::{POLL, RaftCoordinator};
use crate::replica::{NotServing, ProposeError, UnknownReason};

/// What became of a change: the entry it was written in, and the answer of applying it.
pub type Written = (LogIndex, MetadataResponse);

impl<R: AsyncRuntime> RaftCoordinator<R> {
    /// Writes an entry and waits until this node has applied it; it is on the disks of a quorum then. A rejection is an
    /// answer, and so is that of a repeated request ([`MetadataResponse::settled`] gives the first one).
    ///
    /// Waits for a leader to be there, for up to `write_timeout`.
    ///
    /// # Errors
    ///
    /// Unavailable with [`CoordinationError::Unknown`]: the entry may take effect. Retry it with the same request id.
    /// Unavailable, Overloaded and Invalid otherwise: nothing was written.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws nothing: the outcome is unknown.
    pub async fn write(&self, entry: MetadataLogEntry) -> Result<Written, CoordinationError> {
        self.write_within(entry, self.inner.config.write_timeout).await
    }

    /// [`write`](Self::write) with a time limit of its own.
    ///
    /// # Errors
    ///
    /// As `write`.
    pub async fn write_within(
        &self,
        entry: MetadataLogEntry,
        timeout: Duration,
    ) -> Result<Written, CoordinationError> {
        let begun = R::Instant::now();
        let payload = Bytes::from(entry.encode());
        let verdict = loop {
            let left = timeout.saturating_sub(begun.elapsed());
            let error = match self.inner.replica.propose_within(as_append(payload.clone()), left).await {
                Ok(verdict) => break verdict,
                Err(error) => error,
            };
            // Nothing was proposed: it may be tried again.
            let may_pass = matches!(
                error,
                ProposeError::NotLeader { leader: None, .. }
                    | ProposeError::NotServing(NotServing::Rebuilding | NotServing::Recovering)
            );
            if !may_pass || begun.elapsed() + POLL >= timeout {
                return Err(self.explain(error, entry.request_id, timeout).await);
            }
            R::sleep(POLL).await;
        };
        let index = match verdict {
            Verdict::Accepted(outcome) | Verdict::Duplicate(outcome) => outcome.index,
            Verdict::Refused(refusal) => {
                return Err(CoordinationError::Refused { source: Box::new(refusal) });
            }
        };
        match self.inner.published.answer(index, entry.request_id) {
            Some(Ok(response)) => Ok((index, response)),
            Some(Err(source)) => Err(CoordinationError::Unreadable { index, source }),
            None => Err(CoordinationError::Unknown {
                request_id: entry.request_id,
                reason: UnknownReason::Forgotten,
            }),
        }
    }

    async fn explain(
        &self,
        error: ProposeError,
        request_id: RequestId,
        waited: Duration,
    ) -> CoordinationError {
        match error {
            ProposeError::NotLeader { leader: None, .. } if !self.is_initialized().await => {
                CoordinationError::NotInitialized { waited }
            }
            ProposeError::NotLeader { leader, address } => CoordinationError::NotLeader { leader, address },
            ProposeError::Overloaded(refusal) => refusal.into(),
            ProposeError::NotServing(error) => error.into(),
            ProposeError::Unknown { reason } => CoordinationError::Unknown { request_id, reason },
        }
    }

    /// Writes one change, with the time of now. A repeated request gets its first answer.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn submit(
        &self,
        request_id: RequestId,
        change: MetadataChange,
    ) -> Result<Written, CoordinationError> {
        let entry = MetadataLogEntry::one(self.time_ms(), request_id, change);
        self.write(entry).await.map(|(index, response)| (index, response.settled()))
    }

    /// Writes changes, all or nothing, with the time of now. A repeated request gets its first answer.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn submit_all(
        &self,
        request_id: RequestId,
        changes: Vec<MetadataChange>,
    ) -> Result<Written, CoordinationError> {
        let entry = MetadataLogEntry::batch(self.time_ms(), request_id, changes);
        self.write(entry).await.map(|(index, response)| (index, response.settled()))
    }

    fn time_ms(&self) -> i64 {
        i64::try_from((self.inner.clock)()).unwrap_or(i64::MAX)
    }

    /// Gives a partition to a node; creates it if nothing is expected.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn assign_partition(
        &self,
        request_id: RequestId,
        partition_id: PartitionId,
        next: OwnerEpoch,
        expected: Option<OwnerEpoch>,
    ) -> Result<Written, CoordinationError> {
        let OwnerEpoch { node_id, epoch } = next;
        let change = MetadataChange::AssignPartition { partition_id, node_id, epoch, expected };
        self.submit(request_id, change).await
    }

    /// Records how the owner left a partition.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn release_partition(
        &self,
        request_id: RequestId,
        partition_id: PartitionId,
        expected: OwnerEpoch,
        release: Release,
    ) -> Result<Written, CoordinationError> {
        let change = MetadataChange::ReleasePartition { partition_id, expected, release };
        self.submit(request_id, change).await
    }

    /// Takes a partition for a node.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn acquire_partition(
        &self,
        request_id: RequestId,
        partition_id: PartitionId,
        next: OwnerEpoch,
        expected: OwnerEpoch,
    ) -> Result<Written, CoordinationError> {
        let OwnerEpoch { node_id, epoch } = next;
        let change = MetadataChange::AcquirePartition { partition_id, node_id, epoch, expected };
        self.submit(request_id, change).await
    }

    /// Makes a checkpoint the latest of its partition.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn commit_checkpoint(
        &self,
        request_id: RequestId,
        expected: OwnerEpoch,
        checkpoint: CheckpointRef,
    ) -> Result<Written, CoordinationError> {
        let partition_id = checkpoint.partition_id;
        let change = MetadataChange::CommitCheckpoint { partition_id, expected, checkpoint };
        self.submit(request_id, change).await
    }

    /// Registers a node; the answer has its id.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn register_node(
        &self,
        request_id: RequestId,
        registration: Registration,
    ) -> Result<Written, CoordinationError> {
        let Registration { node_id, role, rpc_address, raft_address, metadata, expected } = registration;
        let state = NodeState::Active;
        let change = MetadataChange::RegisterNode {
            node_id,
            role,
            state,
            rpc_address,
            raft_address,
            metadata,
            expected,
        };
        self.submit(request_id, change).await
    }

    /// Ends a registration and takes all its partitions from the node.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn deregister_node(
        &self,
        request_id: RequestId,
        node_id: NodeId,
        expected: Option<NodeState>,
    ) -> Result<Written, CoordinationError> {
        self.submit(request_id, MetadataChange::DeregisterNode { node_id, expected }).await
    }
}

/// A node that registers as active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// A server's configured id. `None` mints one, as always for workers.
    pub node_id: Option<NodeId>,
    /// Server or worker.
    pub role: NodeRole,
    /// Where clients and nodes call it.
    pub rpc_address: String,
    /// Where Raft peers call it.
    pub raft_address: String,
    /// Its size and place.
    pub metadata: NodeMetadata,
    /// `None`: it is not registered. A state: it is a server, registered in this state, that comes back.
    pub expected: Option<NodeState>,
}

/// The first write makes the partition. It has one owner and one epoch for ever: who may write is for the metadata's own
/// rules to say.
fn as_append(payload: Bytes) -> Entry {
    let append = Append { rows: 1, create: Some(KIND), payload: Payload::Inline(payload) };
    let record = PartitionRecord {
        partition: PARTITION,
        owner: NodeId::UNASSIGNED,
        epoch: Epoch::FIRST,
        change: Change::Append(append),
    };
    Entry { records: vec![Record::Partition(record)], ..Entry::default() }
}
