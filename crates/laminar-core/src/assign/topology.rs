//! What happened to the cluster that calls for a new plan.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::node::NodeInfo;

/// A change that calls for a new plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopologyChange {
    /// A node came.
    NodeJoined(NodeInfo),
    /// A node went.
    NodeLeft(NodeId),
    /// A node's size, place or state changed.
    NodeUpdated(NodeInfo),
    /// An operator asks for the plan; soft hints are honoured although partitions move for them.
    ManualRebalance,
}

impl TopologyChange {
    /// The nodes after the change. `nodes` may be the list from before or from after it.
    pub fn apply(&self, nodes: &[NodeInfo]) -> Vec<NodeInfo> {
        let changed = match self {
            TopologyChange::NodeJoined(node) | TopologyChange::NodeUpdated(node) => Some(node),
            TopologyChange::NodeLeft(_) | TopologyChange::ManualRebalance => None,
        };
        let replaced = match self {
            TopologyChange::NodeLeft(id) => Some(*id),
            _ => changed.map(|node| node.id),
        };
        nodes.iter().filter(|node| Some(node.id) != replaced).chain(changed).cloned().collect()
    }
}
