//! Improving a placement: nodes are brought into their bands, and what moved for nothing goes home.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::state::State;

/// How many bundles may move, one after the other, to bring one node into its band.
const PATH_LENGTH_MAX: u32 = 4;

/// How many bundles may be looked at for all paths together. Paths that help are short and found early; the rest is
/// spent on nodes that no path can help.
const PATH_STEPS_MAX: u64 = 5_000_000;

/// Improves a complete placement; false if it cannot be brought into enough failure domains.
pub(super) fn settle(state: &mut State<'_>) -> bool {
    let mut steps = PATH_STEPS_MAX;
    // Filling nodes that lack partitions opens most domains by itself; those opened by force may upset bands again.
    fill_bands(state, &mut steps);
    if !use_domains(state) {
        return false;
    }
    fill_bands(state, &mut steps);
    go_home(state);
    true
}

/// Brings nodes into their bands by passing bundles along paths of nodes, for as long as that helps.
fn fill_bands(state: &mut State<'_>, steps: &mut u64) {
    let quotas = state.model.rules.quotas;
    loop {
        let mut givers: Vec<u32> = (0..quotas.len() as u32)
            .filter(|node| state.fill.counts[*node as usize] > quotas[*node as usize].low)
            .collect();
        let key = |node: &u32| {
            let (quota, count) = (&quotas[*node as usize], state.fill.counts[*node as usize]);
            Reverse((count > quota.high, quota.excess(count), Reverse(*node)))
        };
        givers.sort_by_key(key);
        if state.violation() == 0 || !givers.into_iter().any(|giver| give(state, giver, steps)) {
            return;
        }
    }
}

/// Finds a path from `giver` to a node that needs partitions (or, if `giver` is above its band, to one that has room
/// in its own) and passes one bundle along each of its steps.
fn give(state: &mut State<'_>, giver: u32, steps: &mut u64) -> bool {
    let quotas = state.model.rules.quotas;
    let nodes = quotas.len() as u32;
    let count = |state: &State<'_>, node: u32| state.fill.counts[node as usize];
    let above = count(state, giver) > quotas[giver as usize].high;
    let wants = |state: &State<'_>, node: u32| {
        let quota = &quotas[node as usize];
        count(state, node) < if above { quota.high } else { quota.low }
    };
    if !(0..nodes).any(|node| node != giver && wants(state, node)) {
        return false;
    }
    // Each node met, with the bundle that would come to it and from where.
    let mut came: Vec<Option<(u32, u32)>> = vec![None; nodes as usize];
    let mut queue = VecDeque::from([(giver, 0)]);
    while let Some((from, length)) = queue.pop_front() {
        let mut unmet: Vec<u32> =
            (0..nodes).filter(|node| *node != giver && came[*node as usize].is_none()).collect();
        unmet.sort_by_key(|node| (!wants(state, *node), quotas[*node as usize].excess(count(state, *node))));
        for node in unmet {
            let looked_at = state.on[from as usize].len() as u64;
            if *steps < looked_at {
                return false;
            }
            *steps -= looked_at;
            let Some(bundle) = best_to_pass(state, from, node) else { continue };
            came[node as usize] = Some((bundle, from));
            if wants(state, node) && pass_along(state, &came, giver, node) {
                return true;
            }
            if length + 1 < PATH_LENGTH_MAX {
                queue.push_back((node, length + 1));
            }
        }
    }
    false
}

/// The bundle on `from` to send to `node`: small, with the fewest moves, by its soft hints, by the ring.
fn best_to_pass(state: &State<'_>, from: u32, node: u32) -> Option<u32> {
    let passes = state.on[from as usize].iter().copied().filter(|bundle| state.fits(*bundle, node));
    passes.min_by_key(|index| {
        let bundle = state.bundle(*index);
        let moves = i64::from(bundle.moves_to(node)) - i64::from(bundle.moves_to(from));
        let mates = i64::from(state.mates(*index, from)) - i64::from(state.mates(*index, node));
        let stranger = state.model.problem.ring.lookup_index(bundle.hash) != Some(node);
        (bundle.size(), moves, mates, stranger, bundle.hash, *index)
    })
}

/// Moves a bundle along each step of the path to `end`; undone unless it keeps every hard constraint and leaves fewer
/// partitions outside the bands.
fn pass_along(state: &mut State<'_>, came: &[Option<(u32, u32)>], giver: u32, end: u32) -> bool {
    let (violation, domains) = (state.violation(), state.domains_needed());
    let mut passed = Vec::new();
    let mut node = end;
    let mut kept = true;
    while kept && node != giver {
        let (bundle, from) = came[node as usize].expect("every node of the path was reached");
        kept = state.node_of[bundle as usize] == from && state.fits(bundle, node);
        if kept {
            state.shift(bundle, node);
            passed.push((bundle, from));
        }
        node = from;
    }
    kept = kept && state.violation() < violation && state.domains_needed() >= domains;
    if !kept {
        for (bundle, from) in passed.into_iter().rev() {
            state.shift(bundle, from);
        }
    }
    kept
}

/// Brings partitions into as many failure domains as are asked for, each time by the move that costs least.
fn use_domains(state: &mut State<'_>) -> bool {
    let nodes = state.on.len() as u32;
    while state.domains_used() < state.model.rules.domains_min {
        let used = state.domains_used();
        let mut best = None;
        for node in (0..nodes).filter(|node| state.opens_domain(*node)).collect::<Vec<_>>() {
            for from in 0..nodes {
                let Some(bundle) = best_to_pass(state, from, node) else { continue };
                state.shift(bundle, node);
                let cost = (state.violation(), state.bundle(bundle).moves_to(node), bundle, node);
                if state.domains_used() > used && best.is_none_or(|best| cost < best) {
                    best = Some(cost);
                }
                state.shift(bundle, from);
            }
        }
        let Some((_, _, bundle, node)) = best else { return false };
        state.shift(bundle, node);
    }
    true
}

/// Sends bundles back to where they need not move, if their room there is free and no band suffers.
fn go_home(state: &mut State<'_>) {
    for bundle in 0..state.model.bundles.len() as u32 {
        let (Some(home), node) = (state.bundle(bundle).home(), state.node_of[bundle as usize]) else {
            continue;
        };
        if state.bundle(bundle).moves_to(home) == state.bundle(bundle).moves_to(node)
            || !state.fits(bundle, home)
        {
            continue;
        }
        let (violation, domains) = (state.violation(), state.domains_needed());
        state.shift(bundle, home);
        if state.violation() > violation || state.domains_needed() < domains {
            state.shift(bundle, node);
        }
    }
}
