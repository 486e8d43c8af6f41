//! The step that balances when nothing but the band and the cap constrain a plan.
//!
//! Live owners are kept. What has to be placed is the orphans (partitions whose owner is gone) and the surplus of
//! nodes above their band; if that is less than what nodes below their band lack, the fullest nodes give the rest. So
//! exactly `max(orphans + surplus, deficit)` partitions move, the fewest the band allows.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::ring::HashRing;
use super::shares::Quota;

/// How many points of the ring are tried for a partition before the neediest node takes it. When most nodes are
/// full a longer walk finds an arbitrary node anyway.
pub(super) const WALK_POINTS_MAX: usize = 64;

/// What is to be placed where: shared by the plain step and the constrained one.
pub(super) struct Problem<'a> {
    pub(super) ring: &'a HashRing,
    pub(super) quotas: &'a [Quota],
    /// Position of each partition on the ring.
    pub(super) hashes: &'a [u64],
    /// The eligible owner of each partition until now.
    pub(super) owners: &'a [Option<u32>],
}

/// How many partitions nodes have, and up to where each may be filled so that enough is left for those that need it
/// more: first everybody gets to `low`, then to the share rounded down, then rounded up.
pub(super) struct Fill<'a> {
    quotas: &'a [Quota],
    pub(super) counts: Vec<u32>,
    /// Partitions still to be placed.
    pub(super) remaining: u32,
    /// What nodes lack up to `low`, and up to `floor`.
    need_low: u32,
    need_floor: u32,
}

impl<'a> Fill<'a> {
    pub(super) fn new(quotas: &'a [Quota], partitions: u32) -> Self {
        let need = |level: fn(&Quota) -> u32| quotas.iter().map(level).sum();
        Fill {
            quotas,
            counts: vec![0; quotas.len()],
            remaining: partitions,
            need_low: need(|quota| quota.low),
            need_floor: need(|quota| quota.floor),
        }
    }

    pub(super) fn add(&mut self, node: usize, size: u32) {
        self.set(node, self.counts[node] + size);
        self.remaining -= size;
    }

    pub(super) fn remove(&mut self, node: usize, size: u32) {
        self.set(node, self.counts[node] - size);
        self.remaining += size;
    }

    fn set(&mut self, node: usize, count: u32) {
        let (quota, before) = (&self.quotas[node], self.counts[node]);
        let lack = |level: u32| (level.saturating_sub(before), level.saturating_sub(count));
        let (low_before, low_after) = lack(quota.low);
        let (floor_before, floor_after) = lack(quota.floor);
        self.need_low = self.need_low - low_before + low_after;
        self.need_floor = self.need_floor - floor_before + floor_after;
        self.counts[node] = count;
    }

    /// Up to how many partitions the node may be filled now.
    pub(super) fn target(&self, node: usize) -> u32 {
        let quota = &self.quotas[node];
        if self.remaining > self.need_floor {
            quota.ceil
        } else if self.remaining > self.need_low {
            quota.floor
        } else {
            quota.low
        }
    }

    /// Nodes sort by this with the neediest first; `None` for one that is at its share.
    fn neediness(&self, node: usize) -> Option<Neediness> {
        let (quota, count) = (&self.quotas[node], self.counts[node]);
        let level = [quota.low, quota.floor, quota.ceil].iter().position(|level| count < *level)?;
        Some(Neediness { level, excess: quota.excess(count), node })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Neediness {
    level: usize,
    excess: i128,
    node: usize,
}

/// The new owner of each partition.
pub(super) fn balance(problem: &Problem<'_>) -> Vec<u32> {
    let quotas = problem.quotas;
    let mut fill = Fill::new(quotas, problem.hashes.len() as u32);
    for owner in problem.owners.iter().flatten() {
        fill.add(*owner as usize, 1);
    }
    let mut owners = problem.owners.to_vec();
    shed(problem, &mut fill, &mut owners);
    place(problem, &mut fill, &owners)
}

/// Takes the surplus, and what the deficit asks for beyond it, from their owners.
fn shed(problem: &Problem<'_>, fill: &mut Fill<'_>, owners: &mut [Option<u32>]) {
    let counts = fill.counts.clone();
    for (node, quota) in problem.quotas.iter().enumerate() {
        fill.remove(node, counts[node].saturating_sub(quota.high));
    }
    let fullest = |fill: &Fill<'_>, node: usize| {
        (fill.counts[node] > problem.quotas[node].low)
            .then(|| (problem.quotas[node].excess(fill.counts[node]), Reverse(node)))
    };
    if fill.remaining < fill.need_low {
        let mut donors: BinaryHeap<_> = (0..counts.len()).filter_map(|node| fullest(fill, node)).collect();
        while fill.remaining < fill.need_low {
            let (_, Reverse(donor)) = donors.pop().expect("the lows add up to no more than the partitions");
            fill.remove(donor, 1);
            donors.extend(fullest(fill, donor));
        }
    }
    let sheds: Vec<u32> = counts.iter().zip(&fill.counts).map(|(before, after)| before - after).collect();
    if sheds.iter().all(|shed| *shed == 0) {
        return;
    }

    // A partition that would rather be on a node that lacks some goes first, one that prefers its owner goes last.
    let reluctance = |partition: usize, owner: u32| {
        let preferred = problem.ring.lookup_index(problem.hashes[partition]).unwrap_or(owner);
        let node = preferred as usize;
        if preferred == owner {
            3
        } else if fill.counts[node] < problem.quotas[node].low {
            0
        } else if fill.counts[node] < fill.target(node) {
            1
        } else {
            2
        }
    };
    let mut owned: Vec<Vec<(u32, u64, usize)>> = vec![Vec::new(); counts.len()];
    for (partition, owner) in owners.iter().enumerate() {
        let Some(owner) = *owner else { continue };
        if sheds[owner as usize] > 0 {
            owned[owner as usize].push((reluctance(partition, owner), problem.hashes[partition], partition));
        }
    }
    for (candidates, shed) in owned.iter_mut().zip(sheds) {
        candidates.sort_unstable();
        for (_, _, partition) in &candidates[..shed as usize] {
            owners[*partition] = None;
        }
    }
}

/// Gives every partition without an owner to the first node on the ring that may be filled further.
fn place(problem: &Problem<'_>, fill: &mut Fill<'_>, owners: &[Option<u32>]) -> Vec<u32> {
    let mut needy: BTreeSet<Neediness> =
        (0..fill.counts.len()).filter_map(|node| fill.neediness(node)).collect();
    let mut place_one = |partition: usize| {
        let node = problem
            .ring
            .walk_indices(problem.hashes[partition], WALK_POINTS_MAX)
            .map(|node| node as usize)
            .find(|&node| fill.counts[node] < fill.target(node))
            .or_else(|| needy.first().map(|neediest| neediest.node))
            .expect("the shares rounded up add up to at least the partitions");
        if let Some(before) = fill.neediness(node) {
            needy.remove(&before);
        }
        fill.add(node, 1);
        needy.extend(fill.neediness(node));
        node as u32
    };
    owners
        .iter()
        .enumerate()
        .map(|(partition, owner)| owner.unwrap_or_else(|| place_one(partition)))
        .collect()
}
