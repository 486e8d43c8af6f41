//! Wrong arguments and configurations.

use thiserror::Error;

use crate::ids::{NodeId, PartitionId};

/// An argument or a configuration that cannot be right.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidError {
    /// Epoch 0 is reserved.
    #[error("epoch is 0; epochs start at 1")]
    EpochZero,
    /// There is no epoch after the last one.
    #[error("epoch is {}, the last there is; the partition cannot change its owner again", u64::MAX)]
    EpochExhausted,
    /// Node 0 is nobody.
    #[error("node id is 0, which means nobody; node ids start at 1")]
    NodeUnassigned,
    /// A guard of one node cannot join the set of another.
    #[error(
        "partition {partition}: the guard belongs to node {guard_node} and the set to node {set_node}; \
         insert it into the set of its own node"
    )]
    GuardOfOtherNode {
        /// The guard's partition.
        partition: PartitionId,
        /// The node the guard was made for.
        guard_node: NodeId,
        /// The node the set was made for.
        set_node: NodeId,
    },
    /// Not one of the five states.
    #[error("node state is {given:?}; it must be joining, active, draining, left or failed")]
    NodeStateUnknown {
        /// What was given.
        given: String,
    },
    /// Not one of the two roles.
    #[error("node role is {given:?}; it must be server or worker")]
    NodeRoleUnknown {
        /// What was given.
        given: String,
    },
    /// Neither one of the two machines nor a name that an application's machine can have.
    #[error(
        "stream machine is {given:?}; it must be log, kv, or the name of a machine: 1 to 64 letters from a to z, digits, _ \
         or -"
    )]
    StreamMachineUnknown {
        /// What was given.
        given: String,
    },
    /// A node stands twice in a list.
    #[error("node {node} is given twice; give each node once")]
    NodeDuplicate {
        /// The node.
        node: NodeId,
    },
    /// A partition stands twice in a list.
    #[error("partition {partition} is given twice; give each partition once")]
    PartitionDuplicate {
        /// The partition.
        partition: PartitionId,
    },
    /// A weight is negative, too large or not a number.
    #[error("node {node}: weight is {weight}; it must be from 0 to {}", crate::assign::NODE_WEIGHT_MAX)]
    NodeWeightOutOfRange {
        /// The node.
        node: NodeId,
        /// What was given.
        weight: f64,
    },
    /// A strength is negative, too large or not a number.
    #[error(
        "affinity hint {hint:?}: strength is {strength}; it must be from 0 (ignored) to 1 (must be together)"
    )]
    HintStrengthOutOfRange {
        /// The name of the hint.
        hint: String,
        /// What was given.
        strength: f64,
    },
    /// Too few or too many points on the ring.
    #[error(
        "virtual_nodes_per_core is {given}; it must be from 1 to {}",
        crate::assign::VIRTUAL_NODES_PER_CORE_MAX
    )]
    VirtualNodesOutOfRange {
        /// What was given.
        given: u32,
    },
}
