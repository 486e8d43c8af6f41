//! The hash ring: which nodes a partition prefers, in which order.

use std::collections::BTreeSet;

use super::hash::hash_vnode;
use crate::ids::NodeId;

/// The most points a ring holds. The ring is only a preference, so above this all nodes are scaled down alike.
pub const RING_POINTS_MAX: u32 = 1 << 20;

/// A node as the ring sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingNode {
    /// The node.
    pub id: NodeId,
    /// Its failure domain, for [`HashRing::lookup_excluding`].
    pub failure_domain: Option<String>,
    /// How many virtual nodes it has.
    pub points: u32,
}

/// A sorted ring of virtual nodes with an index over the top bits of the hash.
///
/// Points are uniform, so a table with about one bucket a point brings a lookup to within a step or two of its answer.
#[derive(Debug, Clone)]
pub struct HashRing {
    /// Sorted by id, so that equal hashes are in order of node id.
    nodes: Vec<RingNode>,
    hashes: Vec<u64>,
    /// For each point, the index of its node.
    owners: Vec<u32>,
    /// For each value of the top bits, the first point at or after it.
    starts: Vec<u32>,
    shift: u32,
}

impl HashRing {
    /// Builds the ring. If the nodes ask for more than [`RING_POINTS_MAX`] points together, all are scaled down alike
    /// and keep at least one.
    pub fn build(mut nodes: Vec<RingNode>) -> Self {
        nodes.sort_by_key(|node| node.id);
        scale_down(&mut nodes);
        let total: usize = nodes.iter().map(|node| node.points as usize).sum();
        let bits = total.next_power_of_two().trailing_zeros().max(1);
        let shift = 64 - bits;

        // A counting sort by the top bits leaves about one point a bucket; only those few still need comparing.
        let mut starts = vec![0u32; (1 << bits) + 1];
        let hashes_of = |node: &RingNode| {
            let id = node.id;
            (0..node.points).map(move |index| hash_vnode(id, index))
        };
        let unsorted: Vec<(u64, u32)> = (0u32..)
            .zip(&nodes)
            .flat_map(|(owner, node)| hashes_of(node).map(move |hash| (hash, owner)))
            .collect();
        for (hash, _) in &unsorted {
            starts[(hash >> shift) as usize + 1] += 1;
        }
        for bucket in 1..starts.len() {
            starts[bucket] += starts[bucket - 1];
        }
        let mut next = starts.clone();
        let mut points = vec![(0u64, 0u32); total];
        for point in unsorted {
            let slot = &mut next[(point.0 >> shift) as usize];
            points[*slot as usize] = point;
            *slot += 1;
        }
        for range in starts.windows(2) {
            points[range[0] as usize..range[1] as usize].sort_unstable();
        }
        let (hashes, owners) = points.into_iter().unzip();
        HashRing { nodes, hashes, owners, starts, shift }
    }

    /// The node of the first point at or after `hash`, wrapping around; none on an empty ring.
    #[inline]
    pub fn lookup(&self, hash: u64) -> Option<NodeId> {
        self.lookup_index(hash).map(|owner| self.nodes[owner as usize].id)
    }

    /// Like [`HashRing::lookup`], passing over nodes whose failure domain is in `exclude`. A node without a domain is
    /// never excluded.
    pub fn lookup_excluding(&self, hash: u64, exclude: &BTreeSet<String>) -> Option<NodeId> {
        let allowed =
            |node: &&RingNode| node.failure_domain.as_ref().is_none_or(|domain| !exclude.contains(domain));
        self.walk_indices(hash, usize::MAX)
            .map(|owner| &self.nodes[owner as usize])
            .find(allowed)
            .map(|node| node.id)
    }

    /// All nodes of the ring, each once, in the order they are met from `hash` on.
    pub fn walk(&self, hash: u64) -> impl Iterator<Item = NodeId> + '_ {
        self.walk_indices(hash, usize::MAX).map(|owner| self.nodes[owner as usize].id)
    }

    /// How many points the ring has.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// True when no node has a point.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The nodes, by id, with the points they have.
    pub fn nodes(&self) -> &[RingNode] {
        &self.nodes
    }

    /// The memory the ring takes, without the names of failure domains.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.nodes.capacity() * size_of::<RingNode>()
            + self.hashes.capacity() * size_of::<u64>()
            + (self.owners.capacity() + self.starts.capacity()) * size_of::<u32>()
    }

    /// The index, in order of id, of the node that [`HashRing::lookup`] finds.
    #[inline]
    pub(super) fn lookup_index(&self, hash: u64) -> Option<u32> {
        (!self.is_empty()).then(|| self.owners[self.position(hash)])
    }

    /// Indices of distinct nodes over the next `points_max` points from `hash` on.
    pub(super) fn walk_indices(&self, hash: u64, points_max: usize) -> Walk<'_> {
        let position = if self.is_empty() { 0 } else { self.position(hash) };
        Walk {
            ring: self,
            position,
            points_left: points_max.min(self.len()),
            seen: vec![0; self.nodes.len().div_ceil(64)],
            nodes_left: self.nodes.len(),
        }
    }

    #[inline]
    fn position(&self, hash: u64) -> usize {
        let mut position = self.starts[(hash >> self.shift) as usize] as usize;
        while position < self.hashes.len() && self.hashes[position] < hash {
            position += 1;
        }
        if position == self.hashes.len() { 0 } else { position }
    }
}

/// Distinct nodes in ring order; a bitmap remembers which were met.
pub(super) struct Walk<'a> {
    ring: &'a HashRing,
    position: usize,
    points_left: usize,
    seen: Vec<u64>,
    nodes_left: usize,
}

impl Iterator for Walk<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        while self.points_left > 0 && self.nodes_left > 0 {
            let owner = self.ring.owners[self.position];
            self.points_left -= 1;
            self.position = if self.position + 1 == self.ring.len() { 0 } else { self.position + 1 };
            let word = &mut self.seen[owner as usize / 64];
            let bit = 1u64 << (owner % 64);
            if *word & bit == 0 {
                *word |= bit;
                self.nodes_left -= 1;
                return Some(owner);
            }
        }
        None
    }
}

fn scale_down(nodes: &mut [RingNode]) {
    let total: u64 = nodes.iter().map(|node| u64::from(node.points)).sum();
    if total <= u64::from(RING_POINTS_MAX) {
        return;
    }
    for node in nodes.iter_mut().filter(|node| node.points > 0) {
        let scaled = u64::from(node.points) * u64::from(RING_POINTS_MAX) / total;
        node.points = u32::try_from(scaled.max(1)).expect("no more than RING_POINTS_MAX");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(ids: &[u64], points: u32) -> HashRing {
        let node = |id: &u64| RingNode { id: NodeId(*id), failure_domain: None, points };
        HashRing::build(ids.iter().map(node).collect())
    }

    #[test]
    fn lookup_finds_the_first_point_at_or_after_the_hash_and_wraps_around() {
        let ring = ring(&[1, 2, 3], 50);
        for (position, hash) in ring.hashes.iter().enumerate() {
            assert_eq!(ring.lookup_index(*hash), Some(ring.owners[position]));
            let next = ring.owners[(position + 1) % ring.len()];
            assert_eq!(ring.lookup_index(hash + 1), Some(next));
        }
        let first = ring.nodes[ring.owners[0] as usize].id;
        assert_eq!(ring.lookup(u64::MAX), Some(first));
        assert_eq!(ring.lookup(0), Some(first));
    }

    #[test]
    fn lookup_agrees_with_a_plain_search() {
        for points in [1, 2, 7, 1000] {
            let ring = ring(&[9, 4, 7, 5], points);
            assert!(ring.hashes.is_sorted());
            for key in 0..2000u64 {
                let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let plain = ring.hashes.partition_point(|point| *point < hash) % ring.len();
                assert_eq!(ring.position(hash), plain);
            }
        }
    }

    #[test]
    fn an_empty_ring_answers_nobody() {
        let ring = HashRing::build(Vec::new());
        assert!(ring.is_empty());
        assert_eq!(ring.lookup(7), None);
        assert_eq!(ring.lookup_excluding(7, &BTreeSet::new()), None);
        assert_eq!(ring.walk(7).count(), 0);
    }

    #[test]
    fn walk_meets_every_node_once_and_starts_with_the_lookup() {
        let ring = ring(&[10, 20, 30, 40], 20);
        for hash in [0, 1 << 40, u64::MAX / 2, u64::MAX] {
            let walk: Vec<NodeId> = ring.walk(hash).collect();
            assert_eq!(walk.first().copied(), ring.lookup(hash));
            assert_eq!(walk.iter().collect::<BTreeSet<_>>().len(), 4);
            assert_eq!(walk.len(), 4);
        }
    }

    #[test]
    fn excluded_domains_are_passed_over_and_nodes_without_one_never_are() {
        let node = |id, domain: Option<&str>| RingNode {
            id: NodeId(id),
            failure_domain: domain.map(str::to_owned),
            points: 40,
        };
        let with_free = HashRing::build(vec![node(1, Some("a")), node(2, Some("b")), node(3, None)]);
        let domains_only = HashRing::build(vec![node(1, Some("a")), node(2, Some("b"))]);
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        for hash in (0..64).map(|step| step << 58) {
            assert_ne!(with_free.lookup_excluding(hash, &set(&["a"])), Some(NodeId(1)));
            assert_eq!(with_free.lookup_excluding(hash, &set(&["a", "b"])), Some(NodeId(3)));
            assert_eq!(domains_only.lookup_excluding(hash, &set(&["a"])), Some(NodeId(2)));
            assert_eq!(domains_only.lookup_excluding(hash, &set(&["a", "b"])), None);
            assert_eq!(with_free.lookup_excluding(hash, &set(&[])), with_free.lookup(hash));
        }
    }

    #[test]
    fn a_ring_that_would_be_too_large_is_scaled_down_and_keeps_every_node() {
        let huge = RingNode { id: NodeId(1), failure_domain: None, points: u32::MAX };
        let tiny = RingNode { id: NodeId(2), failure_domain: None, points: 1 };
        let ring = HashRing::build(vec![huge, tiny]);
        assert!(ring.len() <= RING_POINTS_MAX as usize + 1);
        assert_eq!(ring.nodes()[1].points, 1);
    }

    #[test]
    fn ten_nodes_of_eight_cores_take_less_than_a_megabyte() {
        let ring = ring(&(1..=10).collect::<Vec<_>>(), 8 * 150);
        assert_eq!(ring.len(), 12_000);
        assert!(ring.memory_bytes() < 1 << 20, "{} bytes", ring.memory_bytes());
    }
}
