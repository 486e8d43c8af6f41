//! Repairing a placement that pushing could not complete: tabu search, as for colouring a graph.
//!
//! Every bundle is somewhere at all times, and what a placement breaks is counted: each group with two bundles on a
//! node, each partition above a cap or a memory limit. A step moves the bundle that mends most, or breaks least, and
//! may not undo itself for a while, so the search leaves the dead ends where single steps no longer help. Where a
//! search of this kind would draw lots, this one hashes the number of the step.

use xxhash_rust::xxh3::xxh3_64;

use super::state::{Model, NOWHERE, State};

/// How many entries of the table may be looked at or changed for one plan: a little less than a second.
const REPAIR_WORK_MAX: u64 = 300_000_000;

/// The same for each bundle: small inputs that have a plan need less, and those that have none should fail soon.
const REPAIR_WORK_PER_BUNDLE: u64 = 2_000_000;

/// With a larger table (bundles times nodes) the search would get nowhere within its work, so it is not tried.
const REPAIR_TABLE_MAX: usize = 4_000_000;

/// How many bundles are compared for one step. With fewer the search loses its way, with more it takes too long where
/// thousands are in conflict.
const CANDIDATES_MAX: usize = 64;

/// How many steps a bundle stays away from where it was: this part of the bundles in conflict, and up to so many more.
const TENURE_PERCENT: u64 = 60;
const TENURE_EXTRA: u64 = 10;

/// Completes and repairs the placement; false, and the placement as it was, if some constraint is still broken.
pub(super) fn repair(state: &mut State<'_>) -> bool {
    if state.node_of.len() * state.on.len() > REPAIR_TABLE_MAX {
        return false;
    }
    let mut repair = Repair::new(state);
    let repaired = repair.run();
    if repaired {
        *state = State::new(state.model);
        (0u32..).zip(repair.node_of).for_each(|(bundle, node)| state.place(bundle, node));
    }
    repaired
}

/// What is known of one bundle on one node.
#[derive(Clone, Copy, Default)]
struct Cell {
    /// How many bundles there must be apart from it, counted once for each group.
    rivals: u32,
    /// The bundle may not go there before this step.
    barred_until: u32,
}

struct Repair<'m> {
    model: &'m Model<'m>,
    nodes: usize,
    /// The bundles of each group.
    members: Vec<Vec<u32>>,
    node_of: Vec<u32>,
    /// By bundle, then by node.
    table: Vec<Cell>,
    counts: Vec<u32>,
    memory: Vec<u128>,
    /// What a partition takes on average, so that bytes above a limit can be counted as partitions.
    memory_mean: u128,
    /// The bundles that have a rival on their node, or whose node is above a limit; and where each stands among them.
    troubled: Vec<u32>,
    slot_of: Vec<u32>,
    /// Everything that is broken, in pairs of rivals and in partitions above a limit.
    broken: i64,
    work: u64,
}

impl<'m> Repair<'m> {
    /// Starts from the placement; what is nowhere goes where it breaks least.
    fn new(state: &State<'m>) -> Self {
        let model = state.model;
        let (bundles, nodes) = (model.bundles.len(), model.rules.quotas.len());
        let mut members = vec![Vec::new(); model.rules.groups.len()];
        for (index, bundle) in (0u32..).zip(&model.bundles) {
            bundle.groups.iter().for_each(|group| members[*group as usize].push(index));
        }
        let (memory_needed, _) = model.rules.memory_totals();
        let mut repair = Repair {
            model,
            nodes,
            members,
            node_of: vec![NOWHERE; bundles],
            table: vec![Cell::default(); bundles * nodes],
            counts: vec![0; nodes],
            memory: vec![0; nodes],
            memory_mean: (memory_needed / model.rules.partitions.len() as u128).max(1),
            troubled: Vec::new(),
            slot_of: vec![NOWHERE; bundles],
            broken: 0,
            work: 0,
        };
        let (placed, left): (Vec<u32>, Vec<u32>) =
            (0..bundles as u32).partition(|bundle| state.node_of[*bundle as usize] != NOWHERE);
        placed.into_iter().for_each(|bundle| repair.shift(bundle, state.node_of[bundle as usize]));
        for bundle in left {
            let node = (0..nodes as u32).min_by_key(|node| repair.joining(bundle, *node));
            repair.shift(bundle, node.expect("a plan has nodes"));
        }
        repair
    }

    fn run(&mut self) -> bool {
        let work_max = REPAIR_WORK_MAX.min(self.node_of.len() as u64 * REPAIR_WORK_PER_BUNDLE);
        let mut fewest = self.broken;
        let mut step = 0u32;
        while self.broken > 0 && self.work <= work_max {
            step += 1;
            let lot = xxh3_64(&step.to_le_bytes());
            let Some((bundle, node)) = self.choose(step, lot, fewest) else { continue };
            let tenure = self.troubled.len() as u64 * TENURE_PERCENT / 100 + lot % TENURE_EXTRA;
            let left = self.cell(bundle, self.node_of[bundle as usize]);
            self.table[left].barred_until = step + 1 + tenure as u32;
            self.shift(bundle, node);
            fewest = fewest.min(self.broken);
        }
        self.broken == 0
    }

    /// The best step among some of the troubled bundles: not one that is barred, unless it leads to less that is broken
    /// than ever before.
    fn choose(&mut self, step: u32, lot: u64, fewest: i64) -> Option<(u32, u32)> {
        let troubled = self.troubled.len();
        let compared = troubled.min(CANDIDATES_MAX);
        self.work += (compared * self.nodes) as u64;
        let first = (lot >> 32) as usize % self.nodes;
        let (mut least, mut best) = (i64::MAX, None);
        for position in 0..compared {
            let bundle = self.troubled[(lot as usize % troubled + position) % troubled];
            let leaving = self.leaving(bundle);
            let row = &self.table[self.cell(bundle, 0)..][..self.nodes];
            let home = self.node_of[bundle as usize] as usize;
            for node in (first..self.nodes).chain(0..first).filter(|node| *node != home) {
                if i64::from(row[node].rivals) - leaving >= least {
                    continue; // Most nodes are out by their rivals alone.
                }
                let change = self.joining(bundle, node as u32) - leaving;
                let barred = row[node].barred_until > step && self.broken + change >= fewest;
                if change < least && !barred {
                    (least, best) = (change, Some((bundle, node as u32)));
                }
            }
        }
        best
    }

    /// What breaks where the bundle comes to.
    fn joining(&self, bundle: u32, node: u32) -> i64 {
        let at = node as usize;
        let (size, memory) = self.weight(bundle);
        let above = self.above(at, self.counts[at] + size, self.memory[at] + memory);
        let rivals = self.table[self.cell(bundle, node)].rivals;
        i64::from(rivals) + above - self.above(at, self.counts[at], self.memory[at])
    }

    /// What is mended where the bundle is now.
    fn leaving(&self, bundle: u32) -> i64 {
        let (node, at) = (self.node_of[bundle as usize], self.node_of[bundle as usize] as usize);
        if node == NOWHERE {
            return 0;
        }
        let (size, memory) = self.weight(bundle);
        let above = self.above(at, self.counts[at] - size, self.memory[at] - memory);
        let rivals = self.table[self.cell(bundle, node)].rivals;
        i64::from(rivals) + self.above(at, self.counts[at], self.memory[at]) - above
    }

    fn cell(&self, bundle: u32, node: u32) -> usize {
        bundle as usize * self.nodes + node as usize
    }

    fn weight(&self, bundle: u32) -> (u32, u128) {
        let bundle = &self.model.bundles[bundle as usize];
        (bundle.size(), bundle.memory)
    }

    /// By how many partitions a node with this much is above its limits.
    fn above(&self, node: usize, count: u32, memory: u128) -> i64 {
        let rules = self.model.rules;
        let bytes = memory.saturating_sub(u128::from(rules.memory_limits[node]));
        let partitions = if bytes == 0 { 0 } else { bytes.div_ceil(self.memory_mean) };
        i64::from(count.saturating_sub(rules.quotas[node].cap)) + partitions as i64
    }

    fn is_above(&self, node: u32) -> bool {
        self.above(node as usize, self.counts[node as usize], self.memory[node as usize]) > 0
    }

    /// Moves the bundle from where it is, if it is anywhere.
    fn shift(&mut self, bundle: u32, node: u32) {
        self.broken += self.joining(bundle, node) - self.leaving(bundle);
        let left = self.node_of[bundle as usize];
        if left != NOWHERE {
            self.node_of[bundle as usize] = NOWHERE;
            self.count(bundle, left, false);
        }
        self.node_of[bundle as usize] = node;
        self.count(bundle, node, true);
        self.review(bundle);
    }

    /// Counts the bundle in, or out, where it has come to or left.
    fn count(&mut self, bundle: u32, node: u32, comes: bool) {
        let was_above = self.is_above(node);
        let (size, memory) = self.weight(bundle);
        let (held, bytes) = (&mut self.counts[node as usize], &mut self.memory[node as usize]);
        (*held, *bytes) =
            if comes { (*held + size, *bytes + memory) } else { (*held - size, *bytes - memory) };
        let model = self.model;
        for group in &model.bundles[bundle as usize].groups {
            let members = std::mem::take(&mut self.members[*group as usize]);
            self.work += members.len() as u64;
            for rival in members.iter().copied().filter(|rival| *rival != bundle) {
                let cell = self.cell(rival, node);
                let rivals = &mut self.table[cell].rivals;
                *rivals = if comes { *rivals + 1 } else { *rivals - 1 };
                if self.node_of[rival as usize] == node {
                    self.review(rival);
                }
            }
            self.members[*group as usize] = members;
        }
        if self.is_above(node) != was_above {
            self.work += self.node_of.len() as u64;
            let all = 0..self.node_of.len() as u32;
            let on_node: Vec<u32> = all.filter(|other| self.node_of[*other as usize] == node).collect();
            on_node.into_iter().for_each(|other| self.review(other));
        }
    }

    /// Files the bundle as troubled or not.
    fn review(&mut self, bundle: u32) {
        let node = self.node_of[bundle as usize];
        let troubled = self.table[self.cell(bundle, node)].rivals > 0 || self.is_above(node);
        let slot = self.slot_of[bundle as usize];
        if troubled && slot == NOWHERE {
            self.slot_of[bundle as usize] = self.troubled.len() as u32;
            self.troubled.push(bundle);
        } else if !troubled && slot != NOWHERE {
            self.troubled.swap_remove(slot as usize);
            if let Some(filler) = self.troubled.get(slot as usize) {
                self.slot_of[*filler as usize] = slot;
            }
            self.slot_of[bundle as usize] = NOWHERE;
        }
    }
}
