//! From constraints to owners: the plain step where it is enough, otherwise bundles placed, settled and searched.

use super::balance::{Problem, balance};
use super::bundle::Bundler;
use super::cluster::Cluster;
use super::place::place_all;
use super::repair::repair;
use super::rules::{Members, Rules};
use super::search::{is_small, search};
use super::settle::settle;
use super::state::{Model, State};
use crate::error::{AffinityReason, AssignmentError, Constraint, ConstraintReason};

/// How many times a plan is made to find out which soft hints can be had together. When they are used up, the hints
/// not yet decided are dropped.
const HINT_SOLVES_MAX: u32 = 24;

/// How many hints or groups are left out, one at a time, to find the one to name in an error; and up to how many
/// partitions that is done, since each takes a whole plan. Otherwise the first is named.
const CULPRITS_MAX: usize = 16;
const CULPRIT_PARTITIONS_MAX: usize = 64;

/// What soft hints may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SoftHints {
    /// Bring partitions together, although nodes leave their band or partitions move for it.
    Honour,
    /// Choose among plans that are as good otherwise.
    Steer,
}

/// How hard to try. Hints and explanations take many tries, so each must be quick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    Quick,
    Full,
}

/// The owner of each partition, and the soft hints (by index) that are not met.
pub(super) struct Solution {
    pub(super) owners: Vec<u32>,
    pub(super) unmet: Vec<(usize, AffinityReason)>,
}

/// Finds an owner for every partition.
pub(super) fn solve(
    cluster: &Cluster,
    problem: &Problem<'_>,
    rules: &Rules<'_>,
    soft: SoftHints,
) -> Result<Solution, AssignmentError> {
    let plain = balance(problem);
    let all_met = |owners: &[u32]| rules.soft_hints.iter().all(|hint| Rules::apart(hint, owners).is_none());
    let plain_is_valid = rules.is_plain() || rules.check(cluster, &plain).is_ok();
    if plain_is_valid && all_met(&plain) {
        return Ok(Solution { owners: plain, unmet: Vec::new() });
    }

    rules.check_possible()?;
    let mut bundler = Bundler::new(rules);
    for hint in &rules.hard_hints {
        bundler.merge(rules, hint).map_err(|reason| conflict(hint, reason))?;
    }
    let (owners, mut dropped) = match soft {
        SoftHints::Honour => honour(problem, rules, &bundler)?,
        SoftHints::Steer => {
            let mut steering: Vec<usize> = (0..rules.soft_hints.len()).collect();
            steering.retain(|index| bundler.check_hint(rules, &rules.soft_hints[*index]).is_ok());
            (find_or_explain(problem, rules, &bundler, &steering)?, Vec::new())
        }
    };
    // The plain step moves the fewest, so a plan that only steers is worth nothing if it moves more.
    let keep_plain =
        soft == SoftHints::Steer && plain_is_valid && cost(problem, &plain) < cost(problem, &owners);
    let owners = if keep_plain { plain } else { owners };
    if let Err(broken) = rules.check(cluster, &owners) {
        unreachable!("a placement keeps every hard constraint: {broken}");
    }

    let unmet = (0..rules.soft_hints.len())
        .filter(|index| Rules::apart(&rules.soft_hints[*index], &owners).is_some())
        .map(|index| {
            let reason =
                dropped.iter().position(|(dropped, _)| *dropped == index).map(|at| dropped.swap_remove(at).1);
            let reason = reason
                .or_else(|| bundler.check_hint(rules, &rules.soft_hints[index]).err())
                .unwrap_or(AffinityReason::MovesNeeded);
            (index, reason)
        })
        .collect();
    Ok(Solution { owners, unmet })
}

/// How far nodes are outside their bands, and how many partitions move.
fn cost(problem: &Problem<'_>, owners: &[u32]) -> (u32, usize) {
    let mut counts = vec![0; problem.quotas.len()];
    owners.iter().for_each(|owner| counts[*owner as usize] += 1);
    let violation = problem.quotas.iter().zip(counts).map(|(quota, count)| quota.violation(count)).sum();
    let moves = owners.iter().zip(problem.owners).filter(|(after, before)| Some(**after) != **before).count();
    (violation, moves)
}

/// A placement of these bundles that keeps the hard constraints, if one is found.
fn find(
    problem: &Problem<'_>,
    rules: &Rules<'_>,
    bundler: &Bundler,
    steering: &[usize],
    effort: Effort,
) -> Option<Vec<u32>> {
    let model = Model::new(problem, rules, bundler, steering);
    let mut state = State::new(&model);
    let placed = place_all(&mut state) || (effort == Effort::Full && !is_small(&model) && repair(&mut state));
    let found = (placed && settle(&mut state)).then_some(state.node_of);
    search(&model, found).map(|node_of| model.owners(&node_of))
}

fn find_or_explain(
    problem: &Problem<'_>,
    rules: &Rules<'_>,
    bundler: &Bundler,
    steering: &[usize],
) -> Result<Vec<u32>, AssignmentError> {
    find(problem, rules, bundler, steering, Effort::Full).ok_or_else(|| explain(problem, rules))
}

/// Owners, and the soft hints that were dropped with the reason.
type Honoured = (Vec<u32>, Vec<(usize, AffinityReason)>);

/// Takes on as many soft hints as the hard constraints allow, the strongest first.
fn honour(problem: &Problem<'_>, rules: &Rules<'_>, hard: &Bundler) -> Result<Honoured, AssignmentError> {
    let mut dropped = Vec::new();
    let merge = |base: &Bundler, hints: &[usize], dropped: &mut Vec<(usize, AffinityReason)>| {
        let mut bundler = base.clone();
        for &hint in hints {
            if let Err(reason) = bundler.merge(rules, &rules.soft_hints[hint]) {
                dropped.push((hint, reason));
            }
        }
        bundler
    };
    let all: Vec<usize> = (0..rules.soft_hints.len()).collect();
    if let Some(owners) = find(problem, rules, &merge(hard, &all, &mut dropped), &[], Effort::Quick) {
        return Ok((owners, dropped));
    }

    // Not all at once. Bisect to the longest run of hints that works, drop the one after it, go on with the rest.
    let mut best = find_or_explain(problem, rules, hard, &[])?;
    dropped.clear();
    let mut base = hard.clone();
    let mut rest = &all[..];
    let mut solves = HINT_SOLVES_MAX;
    while !rest.is_empty() {
        let (mut works, mut fails) = (0, rest.len() + 1);
        while fails - works > 1 && solves > 0 {
            solves -= 1;
            // The whole rest first: mostly one hint was in the way.
            let middle = if fails > rest.len() { rest.len() } else { (works + fails) / 2 };
            match find(problem, rules, &merge(&base, &rest[..middle], &mut Vec::new()), &[], Effort::Quick) {
                Some(owners) => (works, best) = (middle, owners),
                None => fails = middle,
            }
        }
        base = merge(&base, &rest[..works], &mut dropped);
        let undecided = fails.min(rest.len());
        dropped.extend(rest[works..undecided].iter().map(|hint| (*hint, AffinityReason::NoPlanFound)));
        rest = &rest[undecided..];
    }
    Ok((best, dropped))
}

fn conflict(hint: &Members<'_>, reason: AffinityReason) -> AssignmentError {
    AssignmentError::AffinityConflict { hint: hint.name.to_owned(), reason }
}

/// Names the constraint without which there would be a plan.
fn explain(problem: &Problem<'_>, rules: &Rules<'_>) -> AssignmentError {
    let without = |change: &dyn Fn(&mut Rules<'_>)| {
        let mut relaxed = rules.clone();
        change(&mut relaxed);
        let mut bundler = Bundler::new(&relaxed);
        relaxed.hard_hints.iter().all(|hint| bundler.merge(&relaxed, hint).is_ok())
            && find(problem, &relaxed, &bundler, &[], Effort::Quick).is_some()
    };
    let violation = |constraint| AssignmentError::ConstraintViolation {
        constraint,
        reason: ConstraintReason::NoPlanFound,
    };
    // The first of `count` without which there is a plan.
    let culprit = |count: usize, leave_out: &dyn Fn(&mut Rules<'_>, usize)| {
        let tried = if rules.partitions.len() > CULPRIT_PARTITIONS_MAX { 0 } else { count.min(CULPRITS_MAX) };
        (0..tried).find(|index| without(&|rules| leave_out(rules, *index))).unwrap_or(0)
    };
    if !rules.hard_hints.is_empty() && without(&|rules| rules.hard_hints.clear()) {
        let index = culprit(rules.hard_hints.len(), &|rules, index| drop(rules.hard_hints.remove(index)));
        return conflict(&rules.hard_hints[index], AffinityReason::NoPlanFound);
    }
    if !rules.memory.is_empty() && without(&|rules| rules.memory.clear()) {
        return rules.memory_shortage();
    }
    if rules.domains_min > 0 && without(&|rules| rules.domains_min = 0) {
        return violation(Constraint::FailureDomains);
    }
    if !rules.groups.is_empty() && without(&|rules| rules.groups.clear()) {
        let index = culprit(rules.groups.len(), &|rules, index| drop(rules.groups.remove(index)));
        return violation(Constraint::AntiAffinity(rules.groups[index].name.to_owned()));
    }
    AssignmentError::MaxPartitionsExceeded {
        node: None,
        partitions: rules.partitions.len() as u32,
        nodes: rules.quotas.len() as u32,
        max: rules.quotas.iter().map(|quota| u64::from(quota.cap)).sum(),
    }
}
