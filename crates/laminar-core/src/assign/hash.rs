//! Where nodes and partitions stand on the ring.
//!
//! xxh3 is stable by specification, the seed is fixed and the input is little-endian bytes, so a plan is the same on
//! every platform and in every release. Golden vectors in the tests hold us to it.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ids::{NodeId, PartitionId};

/// The seed of every position on the ring. Changing it would move most partitions of every cluster.
pub const RING_SEED: u64 = 0x517C_C1B7_2722_0A95;

/// The position of one virtual node: the node id (8 bytes) followed by its index (4 bytes).
pub fn hash_vnode(node: NodeId, index: u32) -> u64 {
    let mut bytes = [0u8; 12];
    bytes[..8].copy_from_slice(&node.0.to_le_bytes());
    bytes[8..].copy_from_slice(&index.to_le_bytes());
    xxh3_64_with_seed(&bytes, RING_SEED)
}

/// The position of a partition: its id (4 bytes).
pub fn hash_partition(partition: PartitionId) -> u64 {
    xxh3_64_with_seed(&partition.0.to_le_bytes(), RING_SEED)
}
