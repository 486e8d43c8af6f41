//! Partition assignment: which node should own which partition, with balance and the fewest moves.
//!
//! No hashing alone spreads partitions evenly enough, so two things decide. The **ring** says which nodes a
//! partition prefers; it changes little when nodes come and go. The **band** around each node's share says how many
//! partitions it must and may have: owners stay unless they are gone, above their band, or needed elsewhere.
//!
//! # One plan, through the files in order
//!
//! 1. `consistent.rs` checks the arguments; `cluster.rs` keeps the nodes that can own anything, `shares.rs` gives each
//!    its band, which `memory.rs` may limit, `ring.rs` builds the ring.
//! 2. `balance.rs` keeps, sheds and places when nothing else constrains the plan.
//! 3. Otherwise `rules.rs` resolves the constraints, `bundle.rs` ties together what must be together, `place.rs` finds
//!    room on a `state.rs` that cannot break a hard constraint, `repair.rs` searches on where it finds none,
//!    `settle.rs` improves it, and for small inputs `search.rs` finds the best there is. `solve.rs` decides which soft
//!    hints to take on, and which constraint to name when there is no plan.
//! 4. `plan.rs` is the answer; `validate.rs` checks one, whoever made it.
//!
//! # What a plan puts first
//!
//! Hard constraints (cap, memory, anti-affinity, hints of strength 1, failure domains); then as few partitions as
//! possible outside the bands; then as few moves as possible; then soft hints, the strongest first; then the ring. An
//! initial assignment and a manual rebalance put soft hints before bands and moves.
//!
//! # Invariants
//!
//! 1. Every partition of a plan has exactly one owner, and that node is eligible (OWN-1).
//! 2. A moved partition's epoch is one more than before, a kept one's is the same (EPOCH-1).
//! 3. Without further constraints exactly `max(orphans + surplus, deficit)` partitions move.
//! 4. The same input in any order gives the same plan, byte for byte.

mod balance;
mod bundle;
mod cluster;
mod consistent;
mod constraints;
mod hash;
mod memory;
mod place;
mod plan;
mod repair;
mod ring;
mod rules;
mod search;
mod settle;
mod shares;
mod solve;
mod state;
mod topology;
mod validate;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use consistent::{ConsistentHashAssigner, VIRTUAL_NODES_PER_CORE, VIRTUAL_NODES_PER_CORE_MAX};
pub use constraints::{
    AffinityHint, AntiAffinityGroup, AssignmentConstraints, NODE_WEIGHT_MAX, PartitionMemory,
};
pub use hash::{RING_SEED, hash_partition, hash_vnode};
pub use plan::{AssignmentPlan, AssignmentStats, PartitionAssignment, PartitionMove};
pub use ring::{HashRing, RING_POINTS_MAX, RingNode};
pub use shares::Band;
pub use topology::TopologyChange;

use crate::error::AssignmentError;
use crate::ids::{OwnerEpoch, PartitionId};
use crate::node::NodeInfo;

/// A way of assigning partitions to nodes.
///
/// Implementations are deterministic: a plan is made on one node and replicated, and an operator's dry run must show
/// what the leader will do.
pub trait PartitionAssigner: Send + Sync {
    /// Assigns partitions that have no owner yet, all at epoch 1. No partitions give an empty plan.
    ///
    /// # Errors
    /// Unavailable: no eligible node. Overloaded: cap or memory do not suffice. Invalid: constraints that exclude each
    /// other, or an argument that cannot be right.
    fn initial_assignment(
        &self,
        partitions: &[PartitionId],
        nodes: &[NodeInfo],
        constraints: &AssignmentConstraints,
    ) -> Result<AssignmentPlan, AssignmentError>;

    /// Assigns anew after a change, moving as little as possible. `nodes` may be the list from before or after the
    /// change; an owner that is not eligible (or [`NodeId::UNASSIGNED`](crate::ids::NodeId::UNASSIGNED)) loses its
    /// partitions.
    ///
    /// # Errors
    /// As [`PartitionAssigner::initial_assignment`]; also Invalid: a partition that must move is at its last epoch.
    fn rebalance(
        &self,
        current: &BTreeMap<PartitionId, OwnerEpoch>,
        nodes: &[NodeInfo],
        change: &TopologyChange,
        constraints: &AssignmentConstraints,
    ) -> Result<AssignmentPlan, AssignmentError>;

    /// Checks that a plan keeps every hard constraint and agrees with itself. Bands and soft hints are preferences
    /// and not checked.
    ///
    /// # Errors
    /// The first constraint that is not kept, as the error that making such a plan would give.
    fn validate_plan(
        &self,
        plan: &AssignmentPlan,
        nodes: &[NodeInfo],
        constraints: &AssignmentConstraints,
    ) -> Result<(), AssignmentError>;
}
