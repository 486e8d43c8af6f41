//! The rules of nodes: who may register, change and leave, and what leaving does to what they own.

use std::collections::BTreeSet;

use super::partitions::{check_assigned, following};
use crate::ids::{NodeId, OwnerEpoch};
use crate::metadata::DeltaMetadata;
use crate::metadata::history::OwnershipCause;
use crate::metadata::journal::Edit;
use crate::metadata::limits::{Bound, InvalidChange, Limit, NODES_MAX};
use crate::metadata::response::{Minted, Rejection};
use crate::node::{NodeMetadata, NodeRegistration, NodeRole, NodeState};

impl Edit<'_> {
    pub(super) fn update_node_state(
        &mut self,
        node_id: NodeId,
        state: NodeState,
        metadata: Option<&NodeMetadata>,
        expected: Option<NodeState>,
    ) -> Result<(), Rejection> {
        if let Some(metadata) = metadata {
            check_node_metadata(metadata)?;
        }
        let mut node = self.state().node(node_id).ok_or(Rejection::UnknownNode { node_id })?.clone();
        check_node_state(&node, expected)?;
        node.state = state;
        if let Some(metadata) = metadata {
            node.metadata = metadata.clone();
        }
        node.last_updated_ms = self.time_ms;
        self.set_node(node_id, Some(node));
        Ok(())
    }

    /// The id that a node may register with.
    pub(super) fn admit_node(
        &self,
        node_id: Option<NodeId>,
        role: NodeRole,
        expected: Option<NodeState>,
    ) -> Result<NodeId, Rejection> {
        let node_id = match (node_id, role) {
            (Some(node_id), NodeRole::Worker) => return Err(InvalidChange::WorkerIdGiven { node_id }.into()),
            (Some(node_id), NodeRole::Server) if !node_id.is_assigned() || node_id.is_worker() => {
                return Err(InvalidChange::ServerId { node_id }.into());
            }
            (None, _) if expected.is_some() => return Err(InvalidChange::ReregistrationWithoutId.into()),
            (Some(node_id), NodeRole::Server) => node_id,
            (None, NodeRole::Server) => self
                .state()
                .unused_node_id(self.state().counters.server_id)
                .filter(|node_id| !node_id.is_worker())
                .ok_or(Rejection::LimitReached { limit: Limit::ServerIds })?,
            (None, NodeRole::Worker) => self
                .state()
                .unused_node_id(self.state().counters.worker_id)
                .ok_or(Rejection::LimitReached { limit: Limit::WorkerIds })?,
        };
        match (self.state().node(node_id), expected) {
            (Some(node), None) => Err(Rejection::NodeExists { node_id, state: node.state }),
            (Some(node), expected) => check_node_state(node, expected).map(|()| node_id),
            (None, Some(_)) => Err(Rejection::UnknownNode { node_id }),
            (None, None) if self.state().node_states.len() >= NODES_MAX => {
                Err(Rejection::LimitReached { limit: Limit::Nodes })
            }
            (None, None) => Ok(node_id),
        }
    }

    pub(super) fn register_node(&mut self, node: NodeRegistration) {
        let mut counters = self.state().counters;
        let counter = match node.role {
            NodeRole::Server => &mut counters.server_id,
            NodeRole::Worker => &mut counters.worker_id,
        };
        *counter = (*counter).max(node.node_id.0 + 1);
        self.set_counters(counters);
        self.minted.push(Minted::Node(node.node_id));
        self.set_node(node.node_id, Some(node));
    }

    pub(super) fn deregister_node(
        &mut self,
        node_id: NodeId,
        expected: Option<NodeState>,
    ) -> Result<(), Rejection> {
        // Unassigned partitions have node 0 as their owner; it cannot lose them.
        check_assigned(node_id)?;
        let owned = self.state().partitions_for_node(node_id);
        match self.state().node(node_id) {
            Some(node) => check_node_state(node, expected)?,
            None if owned.is_empty() || expected.is_some() => return Err(Rejection::UnknownNode { node_id }),
            None => {}
        }
        let mut unassigned = Vec::with_capacity(owned.len());
        for partition_id in owned {
            let epoch = following(partition_id, self.state().partition_map[&partition_id].epoch)?;
            unassigned.push((partition_id, OwnerEpoch { node_id: NodeId::UNASSIGNED, epoch }));
        }
        let cluster_epoch = self.next_cluster_epoch()?;

        for (partition_id, next) in unassigned {
            self.hand_over(partition_id, node_id, next, OwnershipCause::Unassigned);
        }
        self.set_node(node_id, None);
        self.set_cluster_epoch(cluster_epoch);
        Ok(())
    }

    pub(super) fn increment_cluster_epoch(&mut self, expected: Option<u64>) -> Result<(), Rejection> {
        let current = self.state().cluster_epoch;
        match expected {
            Some(expected) if expected != current => {
                Err(Rejection::ClusterEpochChanged { expected, current })
            }
            _ => {
                let next = self.next_cluster_epoch()?;
                self.set_cluster_epoch(next);
                Ok(())
            }
        }
    }

    fn next_cluster_epoch(&self) -> Result<u64, Rejection> {
        self.state()
            .cluster_epoch
            .checked_add(1)
            .ok_or(Rejection::LimitReached { limit: Limit::ClusterEpochs })
    }
}

impl DeltaMetadata {
    /// The lowest id from `next` on that no node is registered with and no partition names as its owner: a partition
    /// may be assigned to an unregistered id, and a new node must not find itself owner of it.
    fn unused_node_id(&self, next: u64) -> Option<NodeId> {
        let owners: BTreeSet<NodeId> = self
            .partition_map
            .values()
            .map(|ownership| ownership.node_id)
            .filter(|node_id| node_id.0 >= next)
            .collect();
        (next..u64::MAX)
            .map(NodeId)
            .find(|node_id| !owners.contains(node_id) && !self.node_states.contains_key(node_id))
    }
}

fn check_node_state(node: &NodeRegistration, expected: Option<NodeState>) -> Result<(), Rejection> {
    match expected {
        Some(expected) if expected != node.state => {
            Err(Rejection::NodeStateChanged { node_id: node.node_id, expected, current: node.state })
        }
        _ => Ok(()),
    }
}

pub(super) fn check_node_metadata(metadata: &NodeMetadata) -> Result<(), InvalidChange> {
    Bound::FailureDomainBytes.check(metadata.failure_domain.as_ref().map_or(0, String::len))?;
    Bound::Tags.check(metadata.tags.len())?;
    metadata.tags.iter().try_for_each(|(name, value)| Bound::TagBytes.check(name.len() + value.len()))
}
