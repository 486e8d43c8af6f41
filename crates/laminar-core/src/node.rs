//! What is known of a node: its capacity, its state, and its registration in the metadata.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::InvalidError;
use crate::ids::NodeId;

/// Where a node stands in its life. Only an active server is given partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Registered, still catching up.
    Joining,
    /// Takes and keeps partitions.
    #[default]
    Active,
    /// Keeps what it has until it is moved away, takes nothing new.
    Draining,
    /// Gone on purpose.
    Left,
    /// Gone without saying so.
    Failed,
}

impl NodeState {
    /// All states, in the order of a node's life.
    pub const ALL: [NodeState; 5] =
        [NodeState::Joining, NodeState::Active, NodeState::Draining, NodeState::Left, NodeState::Failed];

    /// The name users write and read.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Joining => "joining",
            NodeState::Active => "active",
            NodeState::Draining => "draining",
            NodeState::Left => "left",
            NodeState::Failed => "failed",
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for NodeState {
    type Err = InvalidError;

    fn from_str(text: &str) -> Result<Self, InvalidError> {
        NodeState::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| InvalidError::NodeStateUnknown { given: text.to_owned() })
    }
}

/// What a node is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// Holds data; the assigner places partitions on it.
    #[default]
    Server,
    /// One run of a writer; owns by claim only, never by assignment.
    Worker,
}

impl NodeRole {
    /// The name users write and read.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeRole::Server => "server",
            NodeRole::Worker => "worker",
        }
    }
}

impl fmt::Display for NodeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for NodeRole {
    type Err = InvalidError;

    fn from_str(text: &str) -> Result<Self, InvalidError> {
        match text {
            "server" => Ok(NodeRole::Server),
            "worker" => Ok(NodeRole::Worker),
            _ => Err(InvalidError::NodeRoleUnknown { given: text.to_owned() }),
        }
    }
}

/// What a node brings: its size and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeMetadata {
    /// Cores for partition work. A node with none is given nothing.
    pub cores: u32,
    /// Memory for partitions; 0 means not stated, and sets no limit.
    pub memory_bytes: u64,
    /// Rack or availability zone.
    pub failure_domain: Option<String>,
    /// Free labels.
    pub tags: BTreeMap<String, String>,
}

impl NodeMetadata {
    /// What the assigner needs to know of the node.
    pub fn to_node_info(&self, id: NodeId, state: NodeState, address: &str) -> NodeInfo {
        NodeInfo {
            id,
            cores: self.cores,
            memory_bytes: self.memory_bytes,
            failure_domain: self.failure_domain.clone(),
            tags: self.tags.clone(),
            state,
            address: address.to_owned(),
        }
    }
}

/// A node as the metadata knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRegistration {
    /// The node.
    pub node_id: NodeId,
    /// Server or worker.
    pub role: NodeRole,
    /// Where it stands in its life.
    pub state: NodeState,
    /// Where clients and nodes call it.
    pub rpc_address: String,
    /// Where Raft peers call it.
    pub raft_address: String,
    /// Its size and place.
    pub metadata: NodeMetadata,
    /// Time of the entry that registered it, in milliseconds since the Unix epoch.
    pub registered_at_ms: i64,
    /// Time of the last entry that changed it.
    pub last_updated_ms: i64,
}

impl NodeRegistration {
    /// What the assigner needs to know of the node.
    pub fn to_node_info(&self) -> NodeInfo {
        self.metadata.to_node_info(self.node_id, self.state, &self.rpc_address)
    }
}

/// A server as the assigner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The node; never [`NodeId::UNASSIGNED`].
    pub id: NodeId,
    /// Cores for partition work. A node with none is given nothing.
    pub cores: u32,
    /// Memory for partitions; 0 means not stated, and sets no limit.
    pub memory_bytes: u64,
    /// Rack or availability zone.
    pub failure_domain: Option<String>,
    /// Free labels.
    pub tags: BTreeMap<String, String>,
    /// Only active nodes are given partitions.
    pub state: NodeState,
    /// Where it is called.
    pub address: String,
}

impl NodeInfo {
    /// An active node with `cores` cores and nothing else stated.
    pub fn new(id: NodeId, cores: u32) -> Self {
        NodeMetadata { cores, ..NodeMetadata::default() }.to_node_info(id, NodeState::Active, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_roles_are_read_back_from_their_names() {
        for state in NodeState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        for role in [NodeRole::Server, NodeRole::Worker] {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert_eq!(
            "gone".parse::<NodeState>(),
            Err(InvalidError::NodeStateUnknown { given: "gone".to_owned() })
        );
        assert_eq!("".parse::<NodeRole>(), Err(InvalidError::NodeRoleUnknown { given: String::new() }));
    }
}
