//! When enough replicas have a record.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use laminar_core::ids::NodeId;

use crate::log_id::PartitionLogIndex;

/// Decides whether these replicas are enough; `true` for a set must mean `true` for every larger one.
pub type CustomAcks = dyn Fn(&BTreeSet<NodeId>) -> bool + Send + Sync;

/// When enough replicas have a record.
#[derive(Clone, Default)]
pub enum AckPolicy {
    /// More than half of the members.
    #[default]
    Majority,
    /// So many members. With 0 nobody is waited for; with more than there are, nothing is ever enough.
    Threshold(u32),
    /// Each of these nodes, member or not. With none, nobody is waited for.
    Fixed(BTreeSet<NodeId>),
    /// What this function says of the members that have it.
    Custom(Arc<CustomAcks>),
}

impl fmt::Debug for AckPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AckPolicy::Majority => f.write_str("Majority"),
            AckPolicy::Threshold(count) => f.debug_tuple("Threshold").field(count).finish(),
            AckPolicy::Fixed(nodes) => f.debug_tuple("Fixed").field(nodes).finish(),
            AckPolicy::Custom(_) => f.write_str("Custom"),
        }
    }
}

impl AckPolicy {
    /// Whether an acknowledgement of `node` can matter.
    pub(super) fn counts(&self, node: NodeId, members: &BTreeSet<NodeId>) -> bool {
        match self {
            AckPolicy::Fixed(nodes) => nodes.contains(&node),
            AckPolicy::Majority | AckPolicy::Threshold(_) | AckPolicy::Custom(_) => members.contains(&node),
        }
    }

    /// The last record that enough replicas have, if `acks` says how far each replica is and `highest` is the last
    /// record there is.
    pub(super) fn satisfied(
        &self,
        acks: &[(NodeId, PartitionLogIndex)],
        members: &BTreeSet<NodeId>,
        highest: PartitionLogIndex,
    ) -> PartitionLogIndex {
        let reached = match self {
            AckPolicy::Majority => nth_highest(acks, members.len() / 2 + 1),
            AckPolicy::Threshold(0) => highest,
            AckPolicy::Threshold(count) => nth_highest(acks, usize::try_from(*count).unwrap_or(usize::MAX)),
            AckPolicy::Fixed(nodes) if nodes.is_empty() => highest,
            AckPolicy::Fixed(nodes) => nth_highest(acks, nodes.len()),
            AckPolicy::Custom(enough) => highest_enough(acks, enough.as_ref()),
        };
        // Acknowledgements may come before the entry has landed here.
        reached.min(highest)
    }
}

/// The index that `count` replicas have reached.
fn nth_highest(acks: &[(NodeId, PartitionLogIndex)], count: usize) -> PartitionLogIndex {
    let mut reached: Vec<PartitionLogIndex> = acks.iter().map(|(_, index)| *index).collect();
    reached.sort_unstable_by(|a, b| b.cmp(a));
    count.checked_sub(1).and_then(|nth| reached.get(nth)).copied().unwrap_or(PartitionLogIndex::NONE)
}

/// The highest index for which the replicas that have reached it are enough.
fn highest_enough(acks: &[(NodeId, PartitionLogIndex)], enough: &CustomAcks) -> PartitionLogIndex {
    let mut by_index: Vec<_> = acks.iter().map(|(node, index)| (*index, *node)).collect();
    by_index.sort_unstable_by(|a, b| b.cmp(a));
    let mut have = BTreeSet::new();
    let mut next = by_index.iter().peekable();
    while let Some((index, node)) = next.next() {
        have.insert(*node);
        let last_of_index = next.peek().is_none_or(|(following, _)| following != index);
        if last_of_index && enough(&have) {
            return *index;
        }
    }
    PartitionLogIndex::NONE
}
