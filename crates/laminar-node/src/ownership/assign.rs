//! What nobody owns is given to servers, by the assigner.

use std::collections::BTreeMap;

use laminar_core::assign::{AssignmentConstraints, ConsistentHashAssigner, PartitionAssigner};
use laminar_core::ids::{NodeId, OwnerEpoch, PartitionId};
use laminar_core::metadata::{MetadataChange, Rejection};
use laminar_core::node::{NodeMetadata, NodeRole, NodeState};
use laminar_rpc::{ErrorClass, Failure};

use crate::error::of_rejection;
use crate::node::{Node, request_id};

/// How often the metadata is read again when it changes under a plan.
const ATTEMPTS: u32 = 16;

impl Node {
    /// Registers this server, or takes its registration up again.
    pub(crate) async fn register_server(&self) -> Result<(), Failure> {
        let node_id = self.inner.id;
        let known = self.inner.metadata.read_local(|metadata| metadata.node(node_id).map(|node| node.state));
        if known == Some(NodeState::Active) {
            return Ok(());
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let change = MetadataChange::RegisterNode {
            node_id: Some(node_id),
            role: NodeRole::Server,
            state: NodeState::Active,
            rpc_address: String::new(),
            raft_address: String::new(),
            metadata: NodeMetadata {
                cores: u32::try_from(cores).unwrap_or(u32::MAX),
                ..NodeMetadata::default()
            },
            expected: known,
        };
        self.change(request_id(None), vec![change]).await.map(drop)
    }

    /// Gives every partition that waits for an owner to a server.
    pub(crate) async fn assign_unowned(&self) -> Result<(), Failure> {
        for _ in 0..ATTEMPTS {
            let (unowned, servers) = self.inner.metadata.read_local(|metadata| {
                let waiting = metadata.partitions_for_node(NodeId::UNASSIGNED).into_iter();
                let unowned: BTreeMap<PartitionId, OwnerEpoch> = waiting
                    .filter_map(|id| Some((id, metadata.partition_ownership(id)?.owner_epoch())))
                    .collect();
                (unowned, metadata.servers())
            });
            if unowned.is_empty() {
                return Ok(());
            }
            let partitions: Vec<PartitionId> = unowned.keys().copied().collect();
            let plan = ConsistentHashAssigner::new()
                .initial_assignment(&partitions, &servers, &AssignmentConstraints::default())
                .map_err(|error| Failure::new(ErrorClass::NoActiveNodes, error.to_string()))?;
            let mut changes = Vec::with_capacity(unowned.len());
            for (partition_id, expected) in unowned {
                let Some(assigned) = plan.assignments.get(&partition_id) else { continue };
                changes.push(MetadataChange::AssignPartition {
                    partition_id,
                    node_id: assigned.node_id,
                    epoch: expected.epoch.next().map_err(|error| Failure::invalid(error.to_string()))?,
                    expected: Some(expected),
                });
            }
            match self.try_change(request_id(None), changes).await? {
                Ok(_) => return Ok(()),
                // A claim was faster with one of them, or its stream was dropped: look again.
                Err(
                    Rejection::InBatch { .. }
                    | Rejection::StaleEpoch { .. }
                    | Rejection::UnknownPartition { .. },
                ) => {}
                Err(rejection) => return Err(of_rejection(&rejection)),
            }
        }
        Err(Failure::unavailable("partitions wait for an owner and the metadata keeps changing; try again"))
    }
}
