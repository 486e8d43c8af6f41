//! Finding a placement that keeps the hard constraints: what can stay stays, the most constrained go first, and what
//! finds no room pushes others on.

use std::cmp::Reverse;

use super::search::is_small;
use super::state::{NOWHERE, State};

/// How many nodes may be looked at to push bundles in where there is no free room. A plan that can be had this way is
/// mostly found within a few thousand.
const PUSH_WORK_MAX: u32 = 100_000;

/// The same for inputs that the exact search goes through anyway.
const PUSH_WORK_SMALL: u32 = 1_000;

/// Places every bundle, or returns false if some found no room.
pub(super) fn place_all(state: &mut State<'_>) -> bool {
    keep(state);
    let mut pool: Vec<u32> = (0u32..)
        .zip(&state.node_of)
        .filter(|(_, node)| **node == NOWHERE)
        .map(|(bundle, _)| bundle)
        .collect();
    pool.sort_by_key(|index| {
        let bundle = state.bundle(*index);
        let groups =
            bundle.groups.iter().map(|group| state.model.rules.groups[*group as usize].partitions.len());
        Reverse((bundle.size(), bundle.memory, groups.max().unwrap_or(0), Reverse(bundle.hash)))
    });
    let stuck: Vec<u32> = pool.into_iter().filter(|bundle| !place_best(state, *bundle)).collect();
    push_in(state, stuck)
}

/// Leaves bundles where most of their members are, up to the band. Those that the ring has there anyway come first,
/// so that the others are the ones to go.
fn keep(state: &mut State<'_>) {
    let mut homes: Vec<(Reverse<u32>, bool, u64, u32, u32)> = (0u32..)
        .zip(&state.model.bundles)
        .filter_map(|(index, bundle)| {
            let home = bundle.home()?;
            let stranger = state.model.problem.ring.lookup_index(bundle.hash) != Some(home);
            Some((Reverse(bundle.size() - bundle.moves_to(home)), stranger, bundle.hash, index, home))
        })
        .collect();
    homes.sort_unstable();
    for (_, _, _, bundle, home) in homes {
        let count = state.fill.counts[home as usize] + state.bundle(bundle).size();
        if count <= state.model.rules.quotas[home as usize].high && state.fits(bundle, home) {
            state.place(bundle, home);
        }
    }
}

/// Places the bundle on the best node that has room: inside the band, with the fewest moves, with free memory where it
/// is scarce, near its soft hints, first on the ring.
fn place_best(state: &mut State<'_>, bundle: u32) -> bool {
    let size = state.bundle(bundle).size();
    let domains_short = state.domains_used() < state.model.rules.domains_min;
    let score = |node: u32| {
        let count = state.fill.counts[node as usize] + size;
        let quota = &state.model.rules.quotas[node as usize];
        let level = if count <= state.fill.target(node as usize) {
            0
        } else if count <= quota.high {
            1
        } else {
            1 + count - quota.high
        };
        let old_domain = domains_short && !state.opens_domain(node);
        let moves = state.bundle(bundle).moves_to(node);
        (old_domain, level, moves, state.memory_level(node), Reverse(state.mates(bundle, node)))
    };
    let order = state.preference(bundle);
    let best = order.into_iter().filter(|node| state.fits(bundle, *node)).min_by_key(|node| score(*node));
    if let Some(node) = best {
        state.place(bundle, node);
    }
    best.is_some()
}

/// Makes room for each bundle of `pool` by pushing others out, which go into the pool in turn. Those that were hard to
/// place before are the last to be pushed out again, so the search does not go in circles for long.
fn push_in(state: &mut State<'_>, mut pool: Vec<u32>) -> bool {
    let nodes = state.on.len() as u32;
    let mut failures = vec![0u64; state.node_of.len()];
    let mut work = if is_small(state.model) { PUSH_WORK_SMALL } else { PUSH_WORK_MAX };
    while let Some(bundle) = pool.pop() {
        if place_best(state, bundle) {
            continue;
        }
        if work < nodes {
            return false;
        }
        work -= nodes;
        failures[bundle as usize] += 1;
        let cheapest = state
            .preference(bundle)
            .into_iter()
            .filter_map(|node| {
                let out = in_the_way(state, bundle, node, &failures)?;
                Some((out.iter().map(|other| 1 + failures[*other as usize]).sum::<u64>(), node, out))
            })
            .min_by_key(|(cost, _, _)| *cost);
        let Some((_, node, out)) = cheapest else { return false };
        for other in &out {
            state.take(*other);
        }
        state.place(bundle, node);
        pool.extend(out);
    }
    true
}

/// The bundles that have to leave `node` for `bundle` to fit: its rivals, and for room those that failed least so
/// far. `None` if it would not fit on the empty node.
fn in_the_way(state: &State<'_>, bundle: u32, node: u32, failures: &[u64]) -> Option<Vec<u32>> {
    let mut out: Vec<u32> = state.rivals(bundle, node).collect();
    out.sort_unstable();
    out.dedup();
    if state.has_room_without(bundle, node, &out) {
        return Some(out);
    }
    let mut others: Vec<u32> =
        state.on[node as usize].iter().copied().filter(|other| !out.contains(other)).collect();
    others.sort_unstable_by_key(|other| (failures[*other as usize], state.bundle(*other).hash, *other));
    for other in others {
        out.push(other);
        if state.has_room_without(bundle, node, &out) {
            return Some(out);
        }
    }
    None
}
