//! A partial placement of bundles on nodes that never breaks the cap, memory or anti-affinity.

use std::collections::BTreeMap;

use super::balance::{Fill, Problem, WALK_POINTS_MAX};
use super::bundle::{Bundle, Bundler};
use super::rules::Rules;

/// Not placed.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Into how many steps a node's memory is divided where nodes are filled evenly.
const MEMORY_LEVELS: u128 = 64;

/// What is to be solved.
pub(super) struct Model<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) rules: &'a Rules<'a>,
    pub(super) bundles: Vec<Bundle>,
    /// The soft hints that steer, as the bundles they would have together; the strongest first.
    pub(super) soft_hints: Vec<Vec<u32>>,
    /// The soft hints of each bundle.
    pub(super) hints_of: Vec<Vec<u32>>,
    /// Partitions need most of the memory there is, so nodes must be filled evenly for all to fit.
    memory_is_scarce: bool,
}

impl<'a> Model<'a> {
    /// `steering` are the soft hints, by index, that the placement should meet where it costs nothing.
    pub(super) fn new(
        problem: &'a Problem<'a>,
        rules: &'a Rules<'a>,
        bundler: &Bundler,
        steering: &[usize],
    ) -> Self {
        let bundles = bundler.bundles(rules, problem.owners, problem.hashes);
        let mut bundle_of = vec![0; rules.partitions.len()];
        for (index, bundle) in (0u32..).zip(&bundles) {
            for member in &bundle.members {
                bundle_of[*member as usize] = index;
            }
        }
        let mut hints_of = vec![Vec::new(); bundles.len()];
        let mut soft_hints = Vec::new();
        for hint in steering.iter().map(|index| &rules.soft_hints[*index]) {
            let mut together: Vec<u32> =
                hint.partitions.iter().map(|partition| bundle_of[*partition as usize]).collect();
            together.sort_unstable();
            together.dedup();
            for bundle in &together {
                hints_of[*bundle as usize].push(soft_hints.len() as u32);
            }
            soft_hints.push(together);
        }
        let (needed, available) = rules.memory_totals();
        Model { problem, rules, bundles, soft_hints, hints_of, memory_is_scarce: needed * 10 > available * 9 }
    }

    /// The node of each partition, from the node of each bundle.
    pub(super) fn owners(&self, node_of: &[u32]) -> Vec<u32> {
        let mut owners = vec![NOWHERE; self.rules.partitions.len()];
        for (bundle, node) in self.bundles.iter().zip(node_of) {
            for member in &bundle.members {
                owners[*member as usize] = *node;
            }
        }
        owners
    }
}

/// Where bundles are, and what nodes have.
pub(super) struct State<'m> {
    pub(super) model: &'m Model<'m>,
    pub(super) fill: Fill<'m>,
    pub(super) node_of: Vec<u32>,
    /// The bundles of each node, in no order of meaning.
    pub(super) on: Vec<Vec<u32>>,
    /// Where a bundle stands in the list of its node.
    slot_of: Vec<u32>,
    memory: Vec<u128>,
    /// For each group the nodes it is on, and the bundle there.
    occupants: Vec<BTreeMap<u32, u32>>,
    /// How many bundles are in each failure domain.
    domain_bundles: Vec<u32>,
}

impl<'m> State<'m> {
    pub(super) fn new(model: &'m Model<'m>) -> Self {
        let nodes = model.rules.quotas.len();
        State {
            model,
            fill: Fill::new(model.rules.quotas, model.rules.partitions.len() as u32),
            node_of: vec![NOWHERE; model.bundles.len()],
            on: vec![Vec::new(); nodes],
            slot_of: vec![0; model.bundles.len()],
            memory: vec![0; nodes],
            occupants: vec![BTreeMap::new(); model.rules.groups.len()],
            domain_bundles: vec![0; model.rules.domains_found as usize],
        }
    }

    pub(super) fn bundle(&self, bundle: u32) -> &'m Bundle {
        &self.model.bundles[bundle as usize]
    }

    /// True if the cap and the memory of the node allow the bundle once `gone` have left it.
    pub(super) fn has_room_without(&self, bundle: u32, node: u32, gone: &[u32]) -> bool {
        let (node, bundle) = (node as usize, self.bundle(bundle));
        let count: u32 = gone.iter().map(|other| self.bundle(*other).size()).sum();
        let memory: u128 = gone.iter().map(|other| self.bundle(*other).memory).sum();
        self.fill.counts[node] - count + bundle.size() <= self.model.rules.quotas[node].cap
            && self.memory[node] - memory + bundle.memory <= u128::from(self.model.rules.memory_limits[node])
    }

    /// How full the node's memory is, in steps coarse enough to leave the ring a say; 0 where memory is not scarce.
    pub(super) fn memory_level(&self, node: u32) -> u32 {
        if !self.model.memory_is_scarce {
            return 0;
        }
        let limit = u128::from(self.model.rules.memory_limits[node as usize]);
        let level = (self.memory[node as usize] * MEMORY_LEVELS).checked_div(limit).unwrap_or(MEMORY_LEVELS);
        u32::try_from(level).expect("no node is filled above its limit")
    }

    /// The bundles on `node` that must be apart from `bundle`.
    pub(super) fn rivals(&self, bundle: u32, node: u32) -> impl Iterator<Item = u32> + '_ {
        self.bundle(bundle)
            .groups
            .iter()
            .filter_map(move |group| self.occupants[*group as usize].get(&node).copied())
    }

    /// True if placing the bundle there breaks no hard constraint.
    pub(super) fn fits(&self, bundle: u32, node: u32) -> bool {
        self.has_room_without(bundle, node, &[]) && self.rivals(bundle, node).next().is_none()
    }

    pub(super) fn place(&mut self, bundle: u32, node: u32) {
        let moved = self.bundle(bundle);
        self.fill.add(node as usize, moved.size());
        self.memory[node as usize] += moved.memory;
        for group in &moved.groups {
            self.occupants[*group as usize].insert(node, bundle);
        }
        if let Some(domain) = self.model.rules.domains[node as usize] {
            self.domain_bundles[domain as usize] += 1;
        }
        self.slot_of[bundle as usize] = self.on[node as usize].len() as u32;
        self.on[node as usize].push(bundle);
        self.node_of[bundle as usize] = node;
    }

    pub(super) fn take(&mut self, bundle: u32) {
        let moved = self.bundle(bundle);
        let node = self.node_of[bundle as usize];
        self.fill.remove(node as usize, moved.size());
        self.memory[node as usize] -= moved.memory;
        for group in &moved.groups {
            self.occupants[*group as usize].remove(&node);
        }
        if let Some(domain) = self.model.rules.domains[node as usize] {
            self.domain_bundles[domain as usize] -= 1;
        }
        let slot = self.slot_of[bundle as usize] as usize;
        let list = &mut self.on[node as usize];
        list.swap_remove(slot);
        if let Some(filler) = list.get(slot) {
            self.slot_of[*filler as usize] = slot as u32;
        }
        self.node_of[bundle as usize] = NOWHERE;
    }

    pub(super) fn shift(&mut self, bundle: u32, node: u32) {
        self.take(bundle);
        self.place(bundle, node);
    }

    pub(super) fn domains_used(&self) -> u32 {
        self.domain_bundles.iter().filter(|bundles| **bundles > 0).count() as u32
    }

    /// The failure domains in use, as far as they are asked for.
    pub(super) fn domains_needed(&self) -> u32 {
        self.domains_used().min(self.model.rules.domains_min)
    }

    /// True if nothing of the node's failure domain is in use.
    pub(super) fn opens_domain(&self, node: u32) -> bool {
        self.model.rules.domains[node as usize]
            .is_some_and(|domain| self.domain_bundles[domain as usize] == 0)
    }

    /// By how many partitions all nodes together are outside their bands.
    pub(super) fn violation(&self) -> u32 {
        self.model
            .rules
            .quotas
            .iter()
            .zip(&self.fill.counts)
            .map(|(quota, count)| quota.violation(*count))
            .sum()
    }

    pub(super) fn moves(&self) -> u32 {
        let placed = self.model.bundles.iter().zip(&self.node_of);
        placed.map(|(bundle, node)| bundle.moves_to(*node)).sum()
    }

    /// How many bundles that a soft hint would have with this one are on `node`.
    pub(super) fn mates(&self, bundle: u32, node: u32) -> u32 {
        let hints = &self.model.hints_of[bundle as usize];
        let together = hints.iter().flat_map(|hint| &self.model.soft_hints[*hint as usize]);
        together.filter(|mate| **mate != bundle && self.node_of[**mate as usize] == node).count() as u32
    }

    /// All nodes, those the ring prefers for the bundle first.
    pub(super) fn preference(&self, bundle: u32) -> Vec<u32> {
        let nodes = self.on.len();
        let mut order: Vec<u32> =
            self.model.problem.ring.walk_indices(self.bundle(bundle).hash, WALK_POINTS_MAX).collect();
        if order.len() < nodes {
            let mut met = vec![false; nodes];
            order.iter().for_each(|node| met[*node as usize] = true);
            order.extend((0..nodes as u32).filter(|node| !met[*node as usize]));
        }
        order
    }
}
