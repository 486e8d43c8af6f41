//! The exact search for small inputs: the best placement there is, or the proof that there is none.

use std::cmp::Reverse;

use super::state::{Model, NOWHERE, State};

/// With more bundles or nodes than this the search could only scratch the surface, so it is not tried.
const SEARCH_BUNDLES_MAX: usize = 16;
const SEARCH_NODES_MAX: usize = 64;

/// How many placements of one bundle the search may try. Enough to go through every plan of ten bundles on four
/// nodes (`4 + 4^2 + ... + 4^10`); above that it stops with the best it has.
const SEARCH_STEPS_MAX: u32 = 1_500_000;

/// What makes one plan better than another, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    violation: u32,
    moves: u32,
    /// A bit for each soft hint that is not met, the strongest in the highest bit.
    hints_unmet: u64,
}

/// True if the exact search is worth trying.
pub(super) fn is_small(model: &Model<'_>) -> bool {
    model.bundles.len() <= SEARCH_BUNDLES_MAX && model.rules.quotas.len() <= SEARCH_NODES_MAX
}

/// The node of each bundle in the best placement; `found` is returned if nothing is better, and stands in for the
/// answer where the input is too large to search.
pub(super) fn search(model: &Model<'_>, found: Option<Vec<u32>>) -> Option<Vec<u32>> {
    if !is_small(model) {
        return found;
    }
    let mut order: Vec<u32> = (0..model.bundles.len() as u32).collect();
    order.sort_by_key(|index| {
        let bundle = &model.bundles[*index as usize];
        Reverse((bundle.size(), bundle.memory, bundle.groups.len()))
    });
    let mut moves_after = vec![0; order.len() + 1];
    for (position, bundle) in order.iter().enumerate().rev() {
        moves_after[position] = moves_after[position + 1] + model.bundles[*bundle as usize].moves_min();
    }
    let mut state = State::new(model);
    let candidates = order
        .iter()
        .map(|bundle| {
            let mut nodes = state.preference(*bundle);
            nodes.sort_by_key(|node| model.bundles[*bundle as usize].moves_to(*node));
            nodes
        })
        .collect();
    let best = found.map(|nodes| {
        let mut hints_unmet = 0;
        for (bundle, node) in (0u32..).zip(&nodes) {
            hints_unmet |= unmet_by(&state, bundle, *node);
            state.place(bundle, *node);
        }
        let cost = Cost { violation: state.violation(), moves: state.moves(), hints_unmet };
        (0..nodes.len() as u32).for_each(|bundle| state.take(bundle));
        (cost, nodes)
    });
    let mut search = Search { state, order, moves_after, candidates, best, steps: SEARCH_STEPS_MAX };
    search.descend(0, 0, 0);
    search.best.map(|(_, nodes)| nodes)
}

struct Search<'m> {
    state: State<'m>,
    /// The hardest to place first.
    order: Vec<u32>,
    /// The fewest moves of all bundles from a position of `order` on.
    moves_after: Vec<u32>,
    /// For each position of `order`, all nodes with the cheapest first.
    candidates: Vec<Vec<u32>>,
    best: Option<(Cost, Vec<u32>)>,
    steps: u32,
}

impl Search<'_> {
    fn descend(&mut self, position: usize, moves: u32, hints_unmet: u64) {
        let left = (self.order.len() - position) as u32;
        if self.state.domains_used() + left < self.state.model.rules.domains_min {
            return;
        }
        let bound = Cost {
            violation: self.violation_at_least(),
            moves: moves + self.moves_after[position],
            hints_unmet,
        };
        if self.best.as_ref().is_some_and(|(best, _)| bound >= *best) {
            return;
        }
        let Some(&bundle) = self.order.get(position) else {
            self.best = Some((bound, self.state.node_of.clone()));
            return;
        };
        for choice in 0..self.candidates[position].len() {
            if self.steps == 0 {
                return;
            }
            self.steps -= 1;
            let node = self.candidates[position][choice];
            if self.state.fits(bundle, node) {
                let moves = moves + self.state.bundle(bundle).moves_to(node);
                let hints_unmet = hints_unmet | unmet_by(&self.state, bundle, node);
                self.state.place(bundle, node);
                self.descend(position + 1, moves, hints_unmet);
                self.state.take(bundle);
            }
        }
    }

    /// The least violation any completion has: what is above a band stays there, and what is left may be too little
    /// for those below theirs or too much for the room there is.
    fn violation_at_least(&self) -> u32 {
        let (mut above, mut lack, mut room) = (0, 0, 0);
        for (quota, &count) in self.state.model.rules.quotas.iter().zip(&self.state.fill.counts) {
            above += count.saturating_sub(quota.high);
            lack += quota.low.saturating_sub(count);
            room += u64::from(quota.high.saturating_sub(count));
        }
        let remaining = self.state.fill.remaining;
        let surplus = u64::from(remaining).saturating_sub(room);
        above + lack.saturating_sub(remaining) + u32::try_from(surplus).expect("no more than what remains")
    }
}

/// The soft hints that cannot be met any more once the bundle is on `node`. Those beyond the first 64 do not count.
fn unmet_by(state: &State<'_>, bundle: u32, node: u32) -> u64 {
    let elsewhere = |mate: &u32| {
        let at = state.node_of[*mate as usize];
        *mate != bundle && at != NOWHERE && at != node
    };
    let hints = state.model.hints_of[bundle as usize].iter().filter(|hint| **hint < 64);
    hints
        .filter(|hint| state.model.soft_hints[**hint as usize].iter().any(elsewhere))
        .fold(0, |unmet, hint| unmet | 1 << (63 - hint))
}
