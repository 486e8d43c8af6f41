//! Which node is the master of a partition.

use std::collections::BTreeSet;

use laminar_core::ids::{NodeId, PartitionId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The seed of the master hash. Changing it would move most masters of every cluster.
pub const MASTER_SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// How the master of a partition is chosen. The same members give the same master on every node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MasterPolicy {
    /// The member whose hash with the partition is highest. A member that joins or leaves moves only its own.
    #[default]
    HashOfMembership,
    /// This node while it is a member, else nobody.
    Fixed(NodeId),
    /// Nobody.
    Disabled,
}

impl MasterPolicy {
    /// The master of a partition among `members`.
    pub fn master(&self, partition: PartitionId, members: &BTreeSet<NodeId>) -> Option<NodeId> {
        match self {
            // Ties go to the lowest node: members come in order, and `max_by_key` would take the last.
            MasterPolicy::HashOfMembership => {
                members.iter().rev().copied().max_by_key(|node| weight(*node, partition))
            }
            MasterPolicy::Fixed(node) => members.contains(node).then_some(*node),
            MasterPolicy::Disabled => None,
        }
    }
}

/// xxh3 of the node id (8 bytes) followed by the partition (4 bytes), little-endian.
fn weight(node: NodeId, partition: PartitionId) -> u64 {
    let mut bytes = [0u8; 12];
    bytes[..8].copy_from_slice(&node.0.to_le_bytes());
    bytes[8..].copy_from_slice(&partition.0.to_le_bytes());
    xxh3_64_with_seed(&bytes, MASTER_SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(nodes: impl IntoIterator<Item = u64>) -> BTreeSet<NodeId> {
        nodes.into_iter().map(NodeId).collect()
    }

    #[test]
    fn masters_are_the_same_in_every_release() {
        let three = members(1..=3);
        let masters: Vec<u64> = (0..12)
            .map(|id| MasterPolicy::HashOfMembership.master(PartitionId(id), &three).unwrap().0)
            .collect();
        assert_eq!(masters, GOLDEN);
    }

    const GOLDEN: [u64; 12] = [1, 3, 1, 2, 2, 2, 1, 2, 1, 3, 2, 2];

    #[test]
    fn a_leaving_member_moves_its_own_partitions_only_and_all_get_a_fair_share() {
        let (five, four) = (members(1..=5), members(1..=4));
        let mut counts = [0u32; 6];
        for id in 0..5000 {
            let before = MasterPolicy::HashOfMembership.master(PartitionId(id), &five).unwrap();
            let after = MasterPolicy::HashOfMembership.master(PartitionId(id), &four).unwrap();
            assert!(before == after || before == NodeId(5));
            counts[before.0 as usize] += 1;
        }
        assert!(counts[1..].iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn fixed_and_disabled() {
        let three = members(1..=3);
        assert_eq!(MasterPolicy::Fixed(NodeId(2)).master(PartitionId(7), &three), Some(NodeId(2)));
        assert_eq!(MasterPolicy::Fixed(NodeId(9)).master(PartitionId(7), &three), None);
        assert_eq!(MasterPolicy::Disabled.master(PartitionId(7), &three), None);
        assert_eq!(MasterPolicy::HashOfMembership.master(PartitionId(7), &members([])), None);
    }
}
