//! Claims: a run takes partitions for itself, and fences whoever had them.
//!
//! A run claims once, right after it registered: the same batch that takes the partitions moves its registration from
//! joining to active, so a second claim of the run finds it active and takes nothing new. So a run that was superseded can
//! never win back what it lost. A run that only missed its heartbeats is failed, still owns what it claimed, and goes on.
//!
//! A claim may still be on its way through the log when its run is released: whoever asked for it gave up, and cannot
//! withdraw it. Both are compare-and-sets on the same registration (OWN-2), a claim from joining to active, a release from
//! the state that it read to left, so whichever applies first has the other refused:
//!
//! ```text
//!   release, claim    the claim finds the run left and takes nothing, now and for ever: nothing leads out of left
//!   claim, release    the release finds the run active, looks again, and gives back what the claim took
//! ```
//!
//! So no run is left and owns something. A folder may have one from before this held: `workers.rs` releases it.

use laminar_core::ids::{NodeId, PartitionId, RequestId};
use laminar_core::metadata::{
    DeltaMetadata, MetadataChange, PartitionOwnership, Rejection, StreamDescriptor,
};
use laminar_core::node::NodeState;
use laminar_rpc::{ErrorClass, Failure, proto, utc};
use tokio::time::Instant;

use crate::error::of_rejection;
use crate::node::{Node, gone, holder, lock, request_id, writer_name};

/// How often a release looks again when the metadata changes under it.
const RELEASE_ATTEMPTS: u32 = 16;

/// What is found before a claim.
struct Found {
    state: NodeState,
    owners: Vec<(PartitionId, PartitionOwnership)>,
}

impl Node {
    pub(crate) async fn claim(&self, request: proto::ClaimRequest) -> Result<proto::ClaimResponse, Failure> {
        let node_id = NodeId(request.node_id);
        self.current().await?;
        let stream = self.stream_by_id(request.stream_id)?;
        let ids = partitions_of(&stream, &request.partition_ids)?;
        let found = self.find_for_claim(node_id, &ids)?;
        let previous: Vec<proto::PartitionDescription> = self.describe_owners(&found.owners);
        match found.state {
            NodeState::Joining => self.take(node_id, &found, request_id(request.request.as_ref())).await?,
            NodeState::Active | NodeState::Failed => self.go_on(node_id, &found).await?,
            NodeState::Draining | NodeState::Left => return Err(self.superseded(node_id, &found)),
        }
        // What the metadata decided must be in the data log before the run writes anything.
        self.carry(&ids).await?;
        lock(&self.inner.workers).insert(node_id, Instant::now());
        let owners = self.ownerships(&ids)?;
        if let Some((partition, ownership)) =
            owners.iter().find(|(_, ownership)| ownership.node_id != node_id)
        {
            return Err(self.lost(node_id, *partition, ownership));
        }
        let metadata_index = self.inner.metadata.read_local(|metadata| metadata.last_applied_log().0);
        Ok(proto::ClaimResponse { partitions: self.describe_owners(&owners), previous, metadata_index })
    }

    /// Takes the partitions, all or none.
    async fn take(&self, node_id: NodeId, found: &Found, request: RequestId) -> Result<(), Failure> {
        let mut changes = vec![MetadataChange::UpdateNodeState {
            node_id,
            state: NodeState::Active,
            metadata: None,
            expected: Some(NodeState::Joining),
        }];
        for (partition_id, ownership) in &found.owners {
            changes.push(MetadataChange::AcquirePartition {
                partition_id: *partition_id,
                node_id,
                epoch: ownership.epoch.next().map_err(|error| Failure::invalid(error.to_string()))?,
                expected: ownership.owner_epoch(),
            });
        }
        match self.try_change(request, changes).await? {
            Ok(_) => {
                self.inner.figures.claimed(found.owners.iter().any(|(_, owner)| owner.node_id.is_worker()));
                Ok(())
            }
            Err(rejection) => Err(self.lost_race(node_id, &rejection)),
        }
    }

    /// A run that claimed before: it goes on with what it still owns, and takes nothing new.
    async fn go_on(&self, node_id: NodeId, found: &Found) -> Result<(), Failure> {
        if found.owners.iter().any(|(_, ownership)| ownership.node_id != node_id) {
            return Err(self.superseded(node_id, found));
        }
        if found.state == NodeState::Failed {
            let change = MetadataChange::UpdateNodeState {
                node_id,
                state: NodeState::Active,
                metadata: None,
                expected: Some(NodeState::Failed),
            };
            self.change(request_id(None), vec![change]).await?;
        }
        Ok(())
    }

    pub(crate) async fn release(
        &self,
        request: proto::ReleaseRequest,
    ) -> Result<proto::ReleaseResponse, Failure> {
        let named = match &request.run {
            Some(run) => {
                self.current().await?;
                self.run_of(request.stream_id, run)
            }
            None => Some(NodeId(request.node_id)),
        };
        // A run that is not known has nothing to give back.
        let Some(node_id) = named else { return Ok(proto::ReleaseResponse {}) };
        if !node_id.is_worker() {
            return Err(Failure::invalid(format!(
                "node {node_id}: release refused, it is no run of a writer"
            )));
        }
        self.release_run(node_id).await?;
        lock(&self.inner.workers).remove(&node_id);
        Ok(proto::ReleaseResponse {})
    }

    /// Gives back everything that a run owns, and ends it. The new epochs fence whatever of it is still under way
    /// (EPOCH-2).
    pub(super) async fn release_run(&self, node_id: NodeId) -> Result<(), Failure> {
        for _ in 0..RELEASE_ATTEMPTS {
            self.current().await?;
            let (known, owned) = self.inner.metadata.read_local(|metadata| {
                let owned = metadata.partitions_for_node(node_id);
                let owned =
                    owned.into_iter().filter_map(|id| Some((id, metadata.partition_ownership(id)?.clone())));
                (metadata.node(node_id).map(|node| node.state), owned.collect::<Vec<_>>())
            });
            let ends = known.filter(|state| *state != NodeState::Left);
            if owned.is_empty() && ends.is_none() {
                return Ok(());
            }
            let mut changes = Vec::with_capacity(owned.len() + 1);
            for (partition_id, ownership) in &owned {
                changes.push(MetadataChange::AssignPartition {
                    partition_id: *partition_id,
                    node_id: self.inner.id,
                    epoch: ownership.epoch.next().map_err(|error| Failure::invalid(error.to_string()))?,
                    expected: Some(ownership.owner_epoch()),
                });
            }
            if let Some(state) = ends {
                changes.push(MetadataChange::UpdateNodeState {
                    node_id,
                    state: NodeState::Left,
                    metadata: None,
                    // What was read above, so that a claim in between is seen.
                    expected: Some(state),
                });
            }
            match self.try_change(request_id(None), changes).await? {
                // Then it is looked again: the stream may have got partitions, and the run taken them.
                Ok(_) => {
                    let ids: Vec<PartitionId> = owned.iter().map(|(id, _)| *id).collect();
                    self.carry(&ids).await?;
                }
                Err(rejection) if is_overtaken(&rejection) => {}
                Err(rejection) => return Err(of_rejection(&rejection)),
            }
        }
        let message = format!("node {node_id}: not released, what it owns keeps changing; release it again");
        Err(Failure::unavailable(message).with("node", node_id.0))
    }

    pub(crate) fn stream_by_id(&self, stream_id: u64) -> Result<StreamDescriptor, Failure> {
        let found = self.inner.metadata.read_local(|metadata| {
            metadata.streams("").find(|stream| stream.stream_id.0 == stream_id).cloned()
        });
        found.ok_or_else(|| {
            let message = format!("stream {stream_id}: refused, it was dropped; open it again");
            Failure::new(ErrorClass::UnknownPartition, message)
        })
    }

    fn find_for_claim(&self, node_id: NodeId, ids: &[PartitionId]) -> Result<Found, Failure> {
        let state = self.inner.metadata.read_local(|metadata| metadata.node(node_id).map(|node| node.state));
        let state = state.filter(|_| node_id.is_worker()).ok_or_else(|| {
            Failure::invalid(format!(
                "node {node_id}: claim refused, it is not registered as a run of a writer; register it"
            ))
        })?;
        Ok(Found { state, owners: self.ownerships(ids)? })
    }

    pub(super) fn ownerships(
        &self,
        ids: &[PartitionId],
    ) -> Result<Vec<(PartitionId, PartitionOwnership)>, Failure> {
        self.inner.metadata.read_local(|metadata| owners_of(metadata, ids))
    }

    pub(super) fn describe_owners(
        &self,
        owners: &[(PartitionId, PartitionOwnership)],
    ) -> Vec<proto::PartitionDescription> {
        self.inner.metadata.read_local(|metadata| {
            let one = |(id, ownership): &(PartitionId, PartitionOwnership)| proto::PartitionDescription {
                partition_id: id.0,
                owner: ownership.node_id.0,
                epoch: ownership.epoch.get(),
                writer: writer_name(metadata, ownership.node_id),
            };
            owners.iter().map(one).collect()
        })
    }

    /// The run claimed before and has lost something since.
    fn superseded(&self, node_id: NodeId, found: &Found) -> Failure {
        match found.owners.iter().find(|(_, ownership)| ownership.node_id != node_id) {
            Some((partition, ownership)) => self.lost(node_id, *partition, ownership),
            None => Failure::new(
                ErrorClass::StaleEpoch,
                format!("node {node_id}: claim refused, this run is over; start the writer again"),
            )
            .with("node", node_id.0),
        }
    }

    fn lost(&self, node_id: NodeId, partition: PartitionId, now: &PartitionOwnership) -> Failure {
        let (name, held_by) = self
            .inner
            .metadata
            .read_local(|metadata| (writer_name(metadata, now.node_id), holder(metadata, now.node_id)));
        let since_ms = u64::try_from(now.assigned_at_ms).unwrap_or(0);
        let message = format!(
            "partition {partition}: claim refused, {held_by} took it over with epoch {} at {}; this run is over, start the \
             writer again",
            now.epoch,
            utc(since_ms)
        );
        self.located(
            Failure::new(ErrorClass::StaleEpoch, message)
                .with("partition_id", partition.0)
                .with("current_epoch", now.epoch.get())
                .with("node", node_id.0)
                .with("owner", now.node_id.0)
                .with("writer", name)
                .with("since_ms", since_ms),
        )
    }

    /// Another claim came first. It is not tried again by itself: the other may be the one that should have it.
    fn lost_race(&self, node_id: NodeId, rejection: &Rejection) -> Failure {
        let reason = match rejection {
            Rejection::InBatch { reason, .. } => reason,
            other => other,
        };
        match reason {
            Rejection::StaleEpoch { partition, current, .. }
            | Rejection::NotOwner { partition, current, .. } => {
                let (name, held_by) = self.inner.metadata.read_local(|metadata| {
                    (writer_name(metadata, current.node_id), holder(metadata, current.node_id))
                });
                let message = format!(
                    "partition {partition}: claim refused, {held_by} claimed it at the same time and was first (epoch {}); \
                     nothing was taken, claim again if it should lose",
                    current.epoch
                );
                self.located(
                    Failure::new(ErrorClass::StaleEpoch, message)
                        .with("partition_id", partition.0)
                        .with("current_epoch", current.epoch.get())
                        .with("node", node_id.0)
                        .with("owner", current.node_id.0)
                        .with("writer", name),
                )
            }
            other => of_rejection(other),
        }
    }
}

/// Who owns these partitions.
pub(super) fn owners_of(
    metadata: &DeltaMetadata,
    ids: &[PartitionId],
) -> Result<Vec<(PartitionId, PartitionOwnership)>, Failure> {
    let one = |id: &PartitionId| Some((*id, metadata.partition_ownership(*id)?.clone()));
    let all: Option<Vec<_>> = ids.iter().map(one).collect();
    all.ok_or_else(|| {
        Failure::new(ErrorClass::UnknownPartition, "claim refused, the stream was dropped; open it again")
    })
}

/// Whether a change was refused only because another came first: what there is to do is looked at again.
fn is_overtaken(rejection: &Rejection) -> bool {
    match rejection {
        Rejection::InBatch { reason, .. } => is_overtaken(reason),
        Rejection::StaleEpoch { .. }
        | Rejection::NotOwner { .. }
        | Rejection::UnknownPartition { .. }
        | Rejection::NodeStateChanged { .. }
        | Rejection::UnknownNode { .. } => true,
        _ => false,
    }
}

/// The partitions that are asked for, or all of the stream's; each once.
fn partitions_of(stream: &StreamDescriptor, asked: &[u32]) -> Result<Vec<PartitionId>, Failure> {
    let all: Vec<PartitionId> = stream.partition_ids.iter().flat_map(|range| range.iter()).collect();
    if asked.is_empty() {
        return Ok(all);
    }
    let mut ids: Vec<PartitionId> = asked.iter().copied().map(PartitionId).collect();
    ids.sort_unstable();
    ids.dedup();
    match ids.iter().find(|id| !all.contains(id)) {
        Some(id) => Err(gone(stream.stream_id.0, *id)),
        None => Ok(ids),
    }
}
