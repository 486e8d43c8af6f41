//! Plans that cannot be made, or do not hold.

use std::fmt;

use thiserror::Error;

use super::{ErrorKind, InvalidError};
use crate::ids::{NodeId, PartitionId};

/// No plan could be made, or a plan does not keep to its constraints.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AssignmentError {
    /// Nobody can own a partition.
    #[error("none of {nodes} nodes is active with cores and a weight above 0; wait for a node or add one")]
    NoActiveNodes {
        /// How many nodes were given.
        nodes: u32,
    },
    /// The partitions do not fit into the memory of the nodes.
    #[error("{}", capacity_message(*.node, *.partition, *.needed_bytes, *.available_bytes))]
    InsufficientCapacity {
        /// The node that was given too much, when a plan was checked.
        node: Option<NodeId>,
        /// The partition that is too large for every node, if one is.
        partition: Option<PartitionId>,
        /// What the partitions need together.
        needed_bytes: u128,
        /// What there is for them. May exceed the need when what is free lies where other constraints forbid.
        available_bytes: u128,
    },
    /// A hard constraint cannot be kept, or a plan does not keep it.
    #[error("{constraint}: {reason}")]
    ConstraintViolation {
        /// Which constraint.
        constraint: Constraint,
        /// Why not.
        reason: ConstraintReason,
    },
    /// More partitions than the nodes may have.
    #[error("{}", max_partitions_message(*.node, *.partitions, *.nodes, *.max))]
    MaxPartitionsExceeded {
        /// The node that was given too many, when a plan was checked.
        node: Option<NodeId>,
        /// How many partitions there are.
        partitions: u32,
        /// How many nodes they are for.
        nodes: u32,
        /// How many those nodes may have together.
        max: u64,
    },
    /// A hint of strength 1.0 excludes another hard constraint.
    #[error(
        "affinity hint {hint:?} (strength 1, must be together): {reason}; lower its strength or relax the other \
         constraint"
    )]
    AffinityConflict {
        /// The name of the hint.
        hint: String,
        /// Why its partitions cannot be, or are not, together.
        reason: AffinityReason,
    },
    /// There is nothing to check.
    #[error("the plan has no partitions; there is nothing to check")]
    EmptyPartitionList,
    /// An argument that cannot be right.
    #[error(transparent)]
    Invalid(#[from] InvalidError),
}

impl AssignmentError {
    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            AssignmentError::NoActiveNodes { .. } => ErrorKind::Unavailable,
            AssignmentError::InsufficientCapacity { .. } | AssignmentError::MaxPartitionsExceeded { .. } => {
                ErrorKind::Overloaded
            }
            AssignmentError::ConstraintViolation { .. }
            | AssignmentError::AffinityConflict { .. }
            | AssignmentError::EmptyPartitionList
            | AssignmentError::Invalid(_) => ErrorKind::Invalid,
        }
    }
}

/// The constraint a plan cannot or does not keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constraint {
    /// An anti-affinity group, by name.
    AntiAffinity(String),
    /// `min_failure_domains`.
    FailureDomains,
    /// Every partition is owned by a node that can own it.
    Owner,
    /// Moves agree with the assignments.
    Moves,
    /// The numbers agree with the assignments.
    Stats,
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constraint::AntiAffinity(name) => write!(f, "anti-affinity group {name:?}"),
            Constraint::FailureDomains => f.write_str("min_failure_domains"),
            Constraint::Owner => f.write_str("owner"),
            Constraint::Moves => f.write_str("moves"),
            Constraint::Stats => f.write_str("stats"),
        }
    }
}

/// Why a constraint is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConstraintReason {
    /// More partitions that must be apart than nodes.
    GroupTooLarge {
        /// Members of the group in this plan.
        partitions: u32,
        /// Nodes that can own partitions.
        nodes: u32,
    },
    /// Two partitions that must be apart are together.
    SameNode {
        /// One partition.
        first: PartitionId,
        /// The other.
        second: PartitionId,
        /// Where both are.
        node: NodeId,
    },
    /// Not enough failure domains.
    TooFewDomains {
        /// How many are asked for.
        required: u32,
        /// How many there are, or are used.
        found: u32,
    },
    /// Kept by itself, but not together with the other hard constraints.
    NoPlanFound,
    /// The owner is not an active node with cores and weight.
    OwnerNotEligible {
        /// The partition.
        partition: PartitionId,
        /// Its owner in the plan.
        node: NodeId,
    },
    /// An entry of the plan is filed under another partition, or its move says something else.
    Inconsistent {
        /// The partition.
        partition: PartitionId,
    },
    /// A number of the plan is not what its assignments give.
    Miscounted {
        /// Which number.
        what: &'static str,
        /// What the plan says.
        given: u32,
        /// What its assignments give.
        found: u32,
    },
}

impl fmt::Display for ConstraintReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConstraintReason::GroupTooLarge { partitions, nodes } => {
                write!(f, "{partitions} partitions must be on different nodes and {nodes} nodes are active; add nodes or \
                     shrink the group")
            }
            ConstraintReason::SameNode { first, second, node } => {
                write!(f, "partitions {first} and {second} are both on node {node}; they must be apart")
            }
            ConstraintReason::TooFewDomains { required, found } => {
                write!(f, "{required} failure domains are required and {found} can be used; add nodes in other domains or \
                     lower it")
            }
            ConstraintReason::NoPlanFound => {
                f.write_str("no plan was found that keeps it together with the other constraints; relax one of them or add \
                 nodes")
            }
            ConstraintReason::OwnerNotEligible { partition, node } => {
                write!(f, "partition {partition} is on node {node}, which is not an active node with cores and weight; plan \
                     again with the nodes there are")
            }
            ConstraintReason::Inconsistent { partition } => {
                write!(f, "what the plan says of partition {partition} does not agree with itself; make the plan anew")
            }
            ConstraintReason::Miscounted { what, given, found } => {
                write!(f, "{what} is {given} and the assignments give {found}; make the plan anew")
            }
        }
    }
}

/// Why the partitions of a hint are not together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AffinityReason {
    /// Two of them must be apart.
    SameGroup {
        /// One partition.
        first: PartitionId,
        /// The other.
        second: PartitionId,
        /// The anti-affinity group of both.
        group: String,
    },
    /// Too many for any node.
    TooMany {
        /// How many must be together, counting overlapping hints.
        partitions: u32,
        /// The most any node may have.
        max: u32,
    },
    /// Too large for any node.
    TooMuchMemory {
        /// What they need together, counting overlapping hints.
        needed_bytes: u128,
        /// The most any node has.
        max_bytes: u64,
    },
    /// Possible by itself, but not together with the other hard constraints.
    NoPlanFound,
    /// They could be together, but only by moving partitions that need not move.
    MovesNeeded,
    /// A plan that was checked has them on two nodes.
    Apart {
        /// One partition.
        first: PartitionId,
        /// The other.
        second: PartitionId,
    },
}

impl fmt::Display for AffinityReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AffinityReason::SameGroup { first, second, group } => {
                write!(f, "partitions {first} and {second} must be apart by anti-affinity group {group:?}")
            }
            AffinityReason::TooMany { partitions, max } => {
                write!(f, "{partitions} partitions would be together and no node may have more than {max}")
            }
            AffinityReason::TooMuchMemory { needed_bytes, max_bytes } => {
                write!(
                    f,
                    "its partitions need {needed_bytes} bytes together and no node that may have them offers more than \
                     {max_bytes}"
                )
            }
            AffinityReason::NoPlanFound => {
                f.write_str("no plan was found that keeps it together with the other constraints")
            }
            AffinityReason::MovesNeeded => f.write_str(
                "only moves that are not needed otherwise would bring them together; a manual rebalance may",
            ),
            AffinityReason::Apart { first, second } => {
                write!(f, "partitions {first} and {second} are on different nodes")
            }
        }
    }
}

fn capacity_message(
    node: Option<NodeId>,
    partition: Option<PartitionId>,
    needed: u128,
    available: u128,
) -> String {
    if let Some(partition) = partition {
        return format!(
            "partition {partition} needs {needed} bytes of memory and no active node has more than {available}; \
             add a larger node"
        );
    }
    match node {
        Some(node) => {
            format!("node {node}: its partitions need {needed} bytes and it has {available}; give it fewer")
        }
        None if needed > available => format!(
            "partitions need {needed} bytes of memory and the active nodes have {available}; add nodes or reduce \
             the partitions"
        ),
        None => format!(
            "partitions need {needed} bytes of memory, and the {available} of the active nodes are not where the \
             other constraints let them be used; add nodes, or raise max_partitions_per_node or max_memory_per_node"
        ),
    }
}

fn max_partitions_message(node: Option<NodeId>, partitions: u32, nodes: u32, max: u64) -> String {
    match node {
        Some(node) => format!(
            "node {node} has {partitions} partitions and may have {max} (max_partitions_per_node); give it fewer \
             or raise the limit"
        ),
        None if u64::from(partitions) > max => format!(
            "{partitions} partitions do not fit, {nodes} active nodes may have {max} together \
             (max_partitions_per_node); raise it or add nodes"
        ),
        None => format!(
            "{partitions} partitions do not fit, {nodes} active nodes may have {max} together but not where the \
             other constraints allow (max_partitions_per_node); raise it or add nodes"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins the wording that users search for.
    #[test]
    fn assignment_errors_read_as_documented() {
        let violation =
            |constraint, reason| AssignmentError::ConstraintViolation { constraint, reason }.to_string();
        let capacity = |node, partition, needed_bytes, available_bytes| {
            AssignmentError::InsufficientCapacity { node, partition, needed_bytes, available_bytes }
                .to_string()
        };
        let too_many = |node, partitions, nodes, max| {
            AssignmentError::MaxPartitionsExceeded { node, partitions, nodes, max }.to_string()
        };
        let (p1, p2, node) = (PartitionId(1), PartitionId(2), NodeId(3));
        let group = || Constraint::AntiAffinity("orders".to_owned());
        let found = [
            AssignmentError::NoActiveNodes { nodes: 4 }.to_string(),
            capacity(None, None, 100, 98),
            capacity(None, None, 98, 100),
            capacity(None, Some(p1), 10, 9),
            capacity(Some(node), None, 10, 9),
            too_many(None, 31, 3, 30),
            too_many(None, 9, 3, 9),
            too_many(Some(node), 11, 1, 10),
            violation(group(), ConstraintReason::GroupTooLarge { partitions: 5, nodes: 4 }),
            violation(group(), ConstraintReason::SameNode { first: p1, second: p2, node }),
            violation(Constraint::FailureDomains, ConstraintReason::TooFewDomains { required: 3, found: 2 }),
            violation(group(), ConstraintReason::NoPlanFound),
            AssignmentError::AffinityConflict {
                hint: "pair".to_owned(),
                reason: AffinityReason::SameGroup { first: p1, second: p2, group: "orders".to_owned() },
            }
            .to_string(),
            AssignmentError::EmptyPartitionList.to_string(),
            AssignmentError::from(InvalidError::NodeWeightOutOfRange { node, weight: -1.5 }).to_string(),
            InvalidError::HintStrengthOutOfRange { hint: "h".to_owned(), strength: f64::NAN }.to_string(),
            InvalidError::VirtualNodesOutOfRange { given: 0 }.to_string(),
            InvalidError::NodeDuplicate { node }.to_string(),
            InvalidError::PartitionDuplicate { partition: p1 }.to_string(),
        ];
        let expected = [
            "none of 4 nodes is active with cores and a weight above 0; wait for a node or add one",
            "partitions need 100 bytes of memory and the active nodes have 98; add nodes or reduce the partitions",
            "partitions need 98 bytes of memory, and the 100 of the active nodes are not where the other constraints let \
             them be used; add nodes, or raise max_partitions_per_node or max_memory_per_node",
            "partition 1 needs 10 bytes of memory and no active node has more than 9; add a larger node",
            "node 3: its partitions need 10 bytes and it has 9; give it fewer",
            "31 partitions do not fit, 3 active nodes may have 30 together (max_partitions_per_node); raise it or add \
             nodes",
            "9 partitions do not fit, 3 active nodes may have 9 together but not where the other constraints allow \
             (max_partitions_per_node); raise it or add nodes",
            "node 3 has 11 partitions and may have 10 (max_partitions_per_node); give it fewer or raise the limit",
            "anti-affinity group \"orders\": 5 partitions must be on different nodes and 4 nodes are active; add nodes or \
             shrink the group",
            "anti-affinity group \"orders\": partitions 1 and 2 are both on node 3; they must be apart",
            "min_failure_domains: 3 failure domains are required and 2 can be used; add nodes in other domains or lower it",
            "anti-affinity group \"orders\": no plan was found that keeps it together with the other constraints; relax \
             one of them or add nodes",
            "affinity hint \"pair\" (strength 1, must be together): partitions 1 and 2 must be apart by anti-affinity \
             group \"orders\"; lower its strength or relax the other constraint",
            "the plan has no partitions; there is nothing to check",
            "node 3: weight is -1.5; it must be from 0 to 1000000",
            "affinity hint \"h\": strength is NaN; it must be from 0 (ignored) to 1 (must be together)",
            "virtual_nodes_per_core is 0; it must be from 1 to 10000",
            "node 3 is given twice; give each node once",
            "partition 1 is given twice; give each partition once",
        ];
        assert_eq!(found, expected);
    }
}
