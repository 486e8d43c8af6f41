//! The constraints resolved against the partitions and nodes of one plan, and the check that a plan keeps them.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::Cluster;
use super::constraints::{AssignmentConstraints, MICRO, PartitionMemory};
use super::memory::Sizes;
use super::shares::Quota;
use crate::error::{AffinityReason, AssignmentError, Constraint, ConstraintReason};
use crate::ids::PartitionId;

/// Partitions, by index, that a constraint names. Always two or more: fewer constrain nothing.
#[derive(Clone)]
pub(super) struct Members<'a> {
    pub(super) name: &'a str,
    pub(super) partitions: Vec<u32>,
    /// Of a hint; 0 for a group.
    pub(super) strength: f64,
}

/// The constraints of a plan beyond the band and the cap.
#[derive(Clone)]
pub(super) struct Rules<'a> {
    /// Sorted; elsewhere a partition is its index here.
    pub(super) partitions: &'a [PartitionId],
    pub(super) quotas: &'a [Quota],
    pub(super) groups: Vec<Members<'a>>,
    pub(super) hard_hints: Vec<Members<'a>>,
    /// The strongest first, then in the order given.
    pub(super) soft_hints: Vec<Members<'a>>,
    /// What each partition takes; empty if memory sets no limit.
    pub(super) memory: Vec<u64>,
    /// What each node has; `u64::MAX` for one without a limit.
    pub(super) memory_limits: Vec<u64>,
    /// The failure domain of each node, as a number.
    pub(super) domains: Vec<Option<u32>>,
    pub(super) domains_found: u32,
    pub(super) domains_min: u32,
}

impl<'a> Rules<'a> {
    pub(super) fn new(
        partitions: &'a [PartitionId],
        cluster: &Cluster,
        quotas: &'a [Quota],
        constraints: &'a AssignmentConstraints,
    ) -> Self {
        let members = |name: &'a str, ids: &[PartitionId], strength: f64| {
            let found: BTreeSet<u32> = ids
                .iter()
                .filter_map(|id| partitions.binary_search(id).ok())
                .map(|index| index as u32)
                .collect();
            (found.len() > 1).then(|| Members { name, partitions: found.into_iter().collect(), strength })
        };
        let hints = |wanted: fn(f64) -> bool| {
            let wanted = constraints.affinity_hints.iter().filter(move |hint| wanted(hint.strength));
            wanted.filter_map(|hint| members(&hint.name, &hint.partition_ids, hint.strength)).collect()
        };
        let mut soft_hints: Vec<Members<'a>> = hints(|strength| strength > 0.0 && strength < 1.0);
        soft_hints.sort_by_key(|hint| std::cmp::Reverse((hint.strength * MICRO).round() as u64));

        let memory_limits = cluster.memory_limits.clone();
        let limited = constraints.partition_memory_bytes != PartitionMemory::None
            && memory_limits.iter().any(|limit| *limit != u64::MAX);
        let memory = match limited {
            true => partitions.iter().map(|id| constraints.partition_memory_bytes.bytes(*id)).collect(),
            false => Vec::new(),
        };

        let mut numbers = BTreeMap::new();
        let mut number = |domain: &String| {
            let next = numbers.len() as u32;
            *numbers.entry(domain.clone()).or_insert(next)
        };
        let domains =
            cluster.nodes.iter().map(|node| node.failure_domain.as_ref().map(&mut number)).collect();
        Rules {
            partitions,
            quotas,
            groups: constraints
                .anti_affinity_groups
                .iter()
                .filter_map(|group| members(&group.name, &group.partition_ids, 0.0))
                .collect(),
            hard_hints: hints(|strength| strength == 1.0),
            soft_hints,
            memory,
            memory_limits,
            domains,
            domains_found: numbers.len() as u32,
            domains_min: constraints.min_failure_domains.unwrap_or(0),
        }
    }

    /// True if only the band and the cap constrain the plan.
    pub(super) fn is_plain(&self) -> bool {
        self.groups.is_empty()
            && self.hard_hints.is_empty()
            && self.soft_hints.is_empty()
            && self.memory.is_empty()
            && self.domains_min == 0
    }

    pub(super) fn memory_of(&self, partition: u32) -> u64 {
        self.memory.get(partition as usize).copied().unwrap_or(0)
    }

    /// What all partitions need, and what all nodes have.
    pub(super) fn memory_totals(&self) -> (u128, u128) {
        let total = |bytes: &[u64]| bytes.iter().map(|bytes| u128::from(*bytes)).sum();
        (total(&self.memory), total(&self.memory_limits))
    }

    pub(super) fn memory_shortage(&self) -> AssignmentError {
        let (needed_bytes, available_bytes) = self.memory_totals();
        AssignmentError::InsufficientCapacity { node: None, partition: None, needed_bytes, available_bytes }
    }

    pub(super) fn domains_used(&self, owners: &[u32]) -> u32 {
        let used: BTreeSet<u32> = owners.iter().filter_map(|owner| self.domains[*owner as usize]).collect();
        used.len() as u32
    }

    /// Two partitions of the hint that are on different nodes.
    pub(super) fn apart(hint: &Members<'_>, owners: &[u32]) -> Option<(u32, u32)> {
        let first = hint.partitions[0];
        let elsewhere = |other: &&u32| owners[**other as usize] != owners[first as usize];
        hint.partitions.iter().find(elsewhere).map(|other| (first, *other))
    }

    /// What no plan can keep, whatever it does, seen without searching for one.
    pub(super) fn check_possible(&self) -> Result<(), AssignmentError> {
        let nodes = self.quotas.len() as u32;
        if let Some(group) = self.groups.iter().find(|group| group.partitions.len() > nodes as usize) {
            let partitions = group.partitions.len() as u32;
            return Err(AssignmentError::ConstraintViolation {
                constraint: Constraint::AntiAffinity(group.name.to_owned()),
                reason: ConstraintReason::GroupTooLarge { partitions, nodes },
            });
        }
        let usable = self.domains_found.min(self.partitions.len() as u32);
        self.check_domains(usable)?;
        let largest_limit = self.memory_limits.iter().max().copied().unwrap_or(0);
        if let Some(partition) = self.memory.iter().position(|bytes| *bytes > largest_limit) {
            return Err(AssignmentError::InsufficientCapacity {
                node: None,
                partition: Some(self.partitions[partition]),
                needed_bytes: u128::from(self.memory[partition]),
                available_bytes: u128::from(largest_limit),
            });
        }
        let sizes = Sizes::of_each(self.memory.clone());
        let nodes = self.quotas.iter().zip(&self.memory_limits);
        let room: u64 = nodes.map(|(quota, limit)| u64::from(quota.cap.min(sizes.fitting(*limit)))).sum();
        let (needed, available) = self.memory_totals();
        let short = !self.memory.is_empty() && room < self.partitions.len() as u64;
        if needed > available || short { Err(self.memory_shortage()) } else { Ok(()) }
    }

    fn check_domains(&self, found: u32) -> Result<(), AssignmentError> {
        if found >= self.domains_min {
            return Ok(());
        }
        Err(AssignmentError::ConstraintViolation {
            constraint: Constraint::FailureDomains,
            reason: ConstraintReason::TooFewDomains { required: self.domains_min, found },
        })
    }

    /// Checks the hard constraints for a complete mapping, where `owners` has the node of each partition.
    pub(super) fn check(&self, cluster: &Cluster, owners: &[u32]) -> Result<(), AssignmentError> {
        let mut counts = vec![0u32; cluster.len()];
        let mut memory = vec![0u128; cluster.len()];
        for (partition, owner) in (0u32..).zip(owners) {
            counts[*owner as usize] += 1;
            memory[*owner as usize] += u128::from(self.memory_of(partition));
        }
        for (index, node) in cluster.nodes.iter().enumerate() {
            if counts[index] > self.quotas[index].cap {
                return Err(AssignmentError::MaxPartitionsExceeded {
                    node: Some(node.id),
                    partitions: counts[index],
                    nodes: 1,
                    max: u64::from(self.quotas[index].cap),
                });
            }
            if memory[index] > u128::from(self.memory_limits[index]) {
                return Err(AssignmentError::InsufficientCapacity {
                    node: Some(node.id),
                    partition: None,
                    needed_bytes: memory[index],
                    available_bytes: u128::from(self.memory_limits[index]),
                });
            }
        }
        for group in &self.groups {
            let mut met = BTreeMap::new();
            for &partition in &group.partitions {
                let owner = owners[partition as usize];
                if let Some(first) = met.insert(owner, partition) {
                    return Err(AssignmentError::ConstraintViolation {
                        constraint: Constraint::AntiAffinity(group.name.to_owned()),
                        reason: ConstraintReason::SameNode {
                            first: self.partitions[first as usize],
                            second: self.partitions[partition as usize],
                            node: cluster.nodes[owner as usize].id,
                        },
                    });
                }
            }
        }
        for hint in &self.hard_hints {
            if let Some((first, second)) = Self::apart(hint, owners) {
                return Err(AssignmentError::AffinityConflict {
                    hint: hint.name.to_owned(),
                    reason: AffinityReason::Apart {
                        first: self.partitions[first as usize],
                        second: self.partitions[second as usize],
                    },
                });
            }
        }
        self.check_domains(self.domains_used(owners))
    }
}
