//! Runs of writers: registered, heard, and counted as failed when they are not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use laminar_core::ids::{NodeId, RequestId};
use laminar_core::metadata::{MetadataChange, Minted};
use laminar_core::node::{NodeMetadata, NodeRegistration, NodeRole, NodeState};
use laminar_rpc::{Failure, proto};
use tokio::time::Instant;

use crate::node::{Node, lock, request_id, tags};

/// The longest name of a writer, in bytes.
const WRITER_BYTES_MAX: usize = 256;

impl Node {
    pub(crate) async fn register_worker(
        &self,
        request: proto::RegisterWorkerRequest,
    ) -> Result<proto::RegisterWorkerResponse, Failure> {
        check_writer(&request.writer)?;
        let run = request_id(request.run.as_ref());
        let tags = BTreeMap::from([
            (tags::WRITER.to_owned(), request.writer),
            (tags::STREAM.to_owned(), request.stream),
            (tags::HOST.to_owned(), request.host),
            (tags::PID.to_owned(), request.pid.to_string()),
            (tags::RUN.to_owned(), format!("{:032x}", run.0)),
        ]);
        let node_id = self.register(run, tags).await?;
        Ok(proto::RegisterWorkerResponse { node_id: node_id.0 })
    }

    /// Registers a run with the tags that say what it is.
    pub(super) async fn register(
        &self,
        request_id: RequestId,
        tags: BTreeMap<String, String>,
    ) -> Result<NodeId, Failure> {
        let change = MetadataChange::RegisterNode {
            node_id: None,
            role: NodeRole::Worker,
            state: NodeState::Joining,
            rpc_address: String::new(),
            raft_address: String::new(),
            metadata: NodeMetadata { tags, ..NodeMetadata::default() },
            expected: None,
        };
        let response = self.change(request_id, vec![change]).await?;
        let Some(Minted::Node(node_id)) = response.minted().first() else {
            // The answer is that of another change which had the same id.
            let message =
                "a run was registered under an id that another request has had; give it one of its own";
            return Err(Failure::invalid(message));
        };
        lock(&self.inner.workers).insert(*node_id, Instant::now());
        Ok(*node_id)
    }

    pub(crate) fn heartbeat(&self, request: &proto::HeartbeatRequest) -> proto::HeartbeatResponse {
        let ended = self.inner.metadata.read_local(|metadata| {
            let over = |id: &&u64| {
                metadata
                    .node(NodeId(**id))
                    .is_none_or(|node| matches!(node.state, NodeState::Failed | NodeState::Left))
            };
            request.node_ids.iter().filter(over).copied().collect::<Vec<_>>()
        });
        let mut heard = lock(&self.inner.workers);
        for id in request.node_ids.iter().filter(|id| !ended.contains(id)) {
            heard.insert(NodeId(*id), Instant::now());
        }
        proto::HeartbeatResponse { ended }
    }

    /// Workers that were never heard count as heard now. Those of before a restart need time to find the node; of one
    /// whose call was given up while it registered, nobody will hear again, and its time begins to run.
    pub(crate) fn adopt_workers(&self) {
        let mut workers = self.workers_in(NodeState::Joining);
        workers.extend(self.workers_in(NodeState::Active));
        let mut heard = lock(&self.inner.workers);
        for node_id in workers {
            heard.entry(node_id).or_insert_with(Instant::now);
        }
    }

    fn workers_in(&self, state: NodeState) -> Vec<NodeId> {
        self.inner.metadata.read_local(|metadata| {
            let nodes = metadata.node_states().values();
            nodes
                .filter(|node| node.role == NodeRole::Worker && node.state == state)
                .map(|node| node.node_id)
                .collect()
        })
    }

    /// Marks workers as failed that were not heard, and as over those that own nothing any more; forgets the oldest
    /// of those that are over.
    async fn look_at_workers(&self) -> Result<(), Failure> {
        self.adopt_workers();
        let timeout = self.inner.config.worker_timeout;
        let silent: Vec<NodeId> = {
            let mut heard = lock(&self.inner.workers);
            let silent =
                heard.iter().filter(|(_, heard)| heard.elapsed() > timeout).map(|(id, _)| *id).collect();
            heard.retain(|_, heard| heard.elapsed() <= timeout);
            silent
        };
        for node_id in silent {
            let state =
                self.inner.metadata.read_local(|metadata| metadata.node(node_id).map(|node| node.state));
            let next = match state {
                Some(NodeState::Active) => NodeState::Failed,
                // It never claimed anything.
                Some(NodeState::Joining) => NodeState::Left,
                _ => continue,
            };
            tracing::info!(
                node = node_id.0,
                "a writer was not heard for {timeout:?}; what it claimed stays claimed"
            );
            self.update(node_id, next, state).await?;
        }
        self.end_runs().await?;
        let over = self.workers_in(NodeState::Left);
        let spare = over.len().saturating_sub(self.inner.config.workers_kept_max);
        for node_id in over.into_iter().take(spare) {
            let change = MetadataChange::DeregisterNode { node_id, expected: Some(NodeState::Left) };
            drop(self.try_change(request_id(None), vec![change]).await?);
        }
        Ok(())
    }

    /// Ends runs that own nothing any more, and takes from those that are over what they still own: nobody writes
    /// under them or gives it back, so it would stay claimed for good.
    async fn end_runs(&self) -> Result<(), Failure> {
        // All at one index. A run that claimed and owns nothing gets nothing any more, so it can be ended afterwards.
        let (idle, over) = self.inner.metadata.read_local(|metadata| {
            let owners = metadata.partition_map().values().map(|ownership| ownership.node_id);
            let owners: BTreeSet<NodeId> = owners.filter(|owner| owner.is_worker()).collect();
            let claimed = |node: &&NodeRegistration| {
                node.role == NodeRole::Worker && matches!(node.state, NodeState::Active | NodeState::Failed)
            };
            let claimed = metadata.node_states().values().filter(claimed);
            let idle = claimed.filter(|node| !owners.contains(&node.node_id));
            let idle: Vec<(NodeId, NodeState)> = idle.map(|node| (node.node_id, node.state)).collect();
            let is_over =
                |owner: &NodeId| metadata.node(*owner).is_none_or(|node| node.state == NodeState::Left);
            (idle, owners.into_iter().filter(is_over).collect::<Vec<_>>())
        });
        for (node_id, state) in idle {
            self.update(node_id, NodeState::Left, Some(state)).await?;
        }
        for node_id in over {
            tracing::warn!(node = node_id.0, "a writer is over and still owns partitions; they are released");
            self.release_run(node_id).await?;
        }
        Ok(())
    }

    pub(super) async fn update(
        &self,
        node_id: NodeId,
        state: NodeState,
        expected: Option<NodeState>,
    ) -> Result<(), Failure> {
        let change = MetadataChange::UpdateNodeState { node_id, state, metadata: None, expected };
        // It may have been heard, or have gone, meanwhile.
        drop(self.try_change(request_id(None), vec![change]).await?);
        Ok(())
    }
}

/// Whether a writer can be called so.
pub(super) fn check_writer(writer: &str) -> Result<(), Failure> {
    if (1..=WRITER_BYTES_MAX).contains(&writer.len()) {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "writer name is {} bytes long; it must be from 1 to {WRITER_BYTES_MAX}",
        writer.len()
    )))
}

/// Looks after workers until the node stops.
pub(crate) async fn watch_workers(node: Node) {
    let interval =
        (node.inner.config.worker_timeout / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
    loop {
        tokio::select! {
            () = node.stopped() => return,
            () = tokio::time::sleep(interval) => {}
        }
        if let Err(failure) = node.look_at_workers().await
            && !node.is_stopping()
        {
            tracing::warn!(%failure, "writers could not be looked after; it is tried again");
        }
    }
}
