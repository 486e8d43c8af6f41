//! Partitions that must be together are placed as one bundle; all others are bundles of one.

use super::rules::{Members, Rules};
use crate::error::AffinityReason;

/// Merges partitions into bundles as hints are taken on.
#[derive(Clone)]
pub(super) struct Bundler {
    /// The bundle each partition is in, named by its first partition.
    bundle_of: Vec<u32>,
    /// The partitions of each bundle, in order; empty for a partition that is not the first of its bundle.
    members: Vec<Vec<u32>>,
    /// The anti-affinity groups of each partition.
    groups_of: Vec<Vec<u32>>,
}

impl Bundler {
    pub(super) fn new(rules: &Rules<'_>) -> Self {
        let count = rules.partitions.len() as u32;
        let mut groups_of = vec![Vec::new(); count as usize];
        for (index, group) in (0u32..).zip(&rules.groups) {
            for partition in &group.partitions {
                groups_of[*partition as usize].push(index);
            }
        }
        Bundler {
            bundle_of: (0..count).collect(),
            members: (0..count).map(|partition| vec![partition]).collect(),
            groups_of,
        }
    }

    /// Puts the hint's partitions into one bundle, unless no node could ever take it.
    pub(super) fn merge(&mut self, rules: &Rules<'_>, hint: &Members<'_>) -> Result<(), AffinityReason> {
        let merged = self.merged(hint);
        self.check(rules, &merged)?;
        let bundle = self.bundle_of[merged[0] as usize];
        for partition in &merged {
            let left = std::mem::replace(&mut self.bundle_of[*partition as usize], bundle);
            self.members[left as usize].clear();
        }
        self.members[bundle as usize] = merged;
        Ok(())
    }

    /// Why the hint's partitions could never be in one bundle, if so.
    pub(super) fn check_hint(&self, rules: &Rules<'_>, hint: &Members<'_>) -> Result<(), AffinityReason> {
        self.check(rules, &self.merged(hint))
    }

    /// All members of all bundles that the hint would bring together.
    fn merged(&self, hint: &Members<'_>) -> Vec<u32> {
        let mut bundles: Vec<u32> =
            hint.partitions.iter().map(|partition| self.bundle_of[*partition as usize]).collect();
        bundles.sort_unstable();
        bundles.dedup();
        let mut merged: Vec<u32> =
            bundles.iter().flat_map(|bundle| self.members[*bundle as usize].iter().copied()).collect();
        merged.sort_unstable();
        merged
    }

    fn check(&self, rules: &Rules<'_>, members: &[u32]) -> Result<(), AffinityReason> {
        let mut groups: Vec<(u32, u32)> = members
            .iter()
            .flat_map(|partition| {
                self.groups_of[*partition as usize].iter().map(|group| (*group, *partition))
            })
            .collect();
        groups.sort_unstable();
        if let Some(pair) = groups.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(AffinityReason::SameGroup {
                first: rules.partitions[pair[0].1 as usize],
                second: rules.partitions[pair[1].1 as usize],
                group: rules.groups[pair[0].0 as usize].name.to_owned(),
            });
        }
        let partitions = members.len() as u32;
        let max = rules.quotas.iter().map(|quota| quota.cap).max().unwrap_or(0);
        if partitions > max {
            return Err(AffinityReason::TooMany { partitions, max });
        }
        if !self.leaves_room(rules, members) {
            return Err(AffinityReason::NoPlanFound);
        }
        let needed_bytes: u128 =
            members.iter().map(|partition| u128::from(rules.memory_of(*partition))).sum();
        let nodes = rules.quotas.iter().zip(&rules.memory_limits);
        let max_bytes = nodes.filter(|(quota, _)| quota.cap >= partitions).map(|(_, limit)| *limit).max();
        match max_bytes {
            Some(max_bytes) if needed_bytes > u128::from(max_bytes) => {
                Err(AffinityReason::TooMuchMemory { needed_bytes, max_bytes })
            }
            _ => Ok(()),
        }
    }

    /// False if caps have no room for these members as one bundle beside the others that are as large: of bundles of
    /// `size` or more a node takes no more than its cap divided by `size`. Spares placing what can never be placed.
    fn leaves_room(&self, rules: &Rules<'_>, merged: &[u32]) -> bool {
        let others = self.members.iter().filter(|members| members.len() > 1);
        let others = others.filter(|members| merged.binary_search(&members[0]).is_err());
        let mut sizes: Vec<u32> = others.map(|members| members.len() as u32).collect();
        sizes.push(merged.len() as u32);
        sizes.sort_unstable();
        let mut larger = sizes.len() as u64;
        sizes.chunk_by(|a, b| a == b).all(|same| {
            let room: u64 = rules.quotas.iter().map(|quota| u64::from(quota.cap / same[0])).sum();
            let fits = larger <= room;
            larger -= same.len() as u64;
            fits
        })
    }

    /// The bundles, by their first partition.
    pub(super) fn bundles(&self, rules: &Rules<'_>, owners: &[Option<u32>], hashes: &[u64]) -> Vec<Bundle> {
        let used = self.members.iter().filter(|members| !members.is_empty());
        used.map(|members| Bundle::new(members, self, rules, owners, hashes)).collect()
    }
}

/// Partitions that are placed on a node together.
pub(super) struct Bundle {
    pub(super) members: Vec<u32>,
    pub(super) memory: u128,
    pub(super) groups: Vec<u32>,
    /// Where its first partition stands on the ring.
    pub(super) hash: u64,
    /// The nodes that own members now, by node, and how many.
    kept: Vec<(u32, u32)>,
}

impl Bundle {
    fn new(
        members: &[u32],
        bundler: &Bundler,
        rules: &Rules<'_>,
        owners: &[Option<u32>],
        hashes: &[u64],
    ) -> Self {
        let mut nodes: Vec<u32> = members.iter().filter_map(|member| owners[*member as usize]).collect();
        nodes.sort_unstable();
        let kept = nodes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32)).collect();
        Bundle {
            members: members.to_vec(),
            memory: members.iter().map(|member| u128::from(rules.memory_of(*member))).sum(),
            groups: members
                .iter()
                .flat_map(|member| bundler.groups_of[*member as usize].iter().copied())
                .collect(),
            hash: hashes[members[0] as usize],
            kept,
        }
    }

    pub(super) fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// How many members move if the bundle goes to `node`.
    pub(super) fn moves_to(&self, node: u32) -> u32 {
        let kept = self.kept.iter().find(|(owner, _)| *owner == node).map_or(0, |(_, count)| *count);
        self.size() - kept
    }

    /// The node with most of the members.
    pub(super) fn home(&self) -> Option<u32> {
        self.kept.iter().max_by_key(|(node, count)| (*count, std::cmp::Reverse(*node))).map(|(node, _)| *node)
    }

    /// The fewest members that move wherever the bundle goes.
    pub(super) fn moves_min(&self) -> u32 {
        self.home().map_or(self.size(), |home| self.moves_to(home))
    }
}
