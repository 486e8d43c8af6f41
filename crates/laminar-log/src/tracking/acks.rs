//! Which replicas have which records of which partition.

use std::collections::{BTreeMap, BTreeSet};

use laminar_core::ids::{NodeId, PartitionId};

use super::policy::AckPolicy;
use crate::log_id::PartitionLogIndex;

/// What an acknowledgement changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckOutcome {
    /// Enough replicas have the records up to this one, which was not so before.
    Advanced(PartitionLogIndex),
    /// Noted; not enough replicas yet.
    Recorded,
    /// This replica had acknowledged this record, or a later one.
    Duplicate,
    /// Enough replicas had it already. Noted all the same, because members may leave.
    Stale,
    /// The node is no member, and no policy names it.
    NotCounted,
    /// There is no such partition.
    UnknownPartition,
}

/// The acknowledgements of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AckView {
    /// How far each replica is, by node.
    pub replicas: Vec<(NodeId, PartitionLogIndex)>,
    /// The last record that enough replicas have.
    pub acked: PartitionLogIndex,
    /// The last record there is.
    pub highest: PartitionLogIndex,
}

/// Which replicas have which records: for each (partition, partition log index) a set of nodes.
///
/// An acknowledgement covers everything before it, so one number for each replica stands for all those sets, and the
/// memory is bounded by partitions times members. What was once satisfied stays so.
#[derive(Debug, Default)]
pub struct SegmentedAckTracker {
    members: BTreeSet<NodeId>,
    policy: AckPolicy,
    partitions: BTreeMap<PartitionId, Acks>,
}

#[derive(Debug, Default)]
struct Acks {
    /// Overrides the tracker's.
    policy: Option<AckPolicy>,
    replicas: Vec<(NodeId, PartitionLogIndex)>,
    acked: PartitionLogIndex,
    highest: PartitionLogIndex,
}

impl Acks {
    /// Counts again; true if more is satisfied than before.
    fn advance(&mut self, policy: &AckPolicy, members: &BTreeSet<NodeId>) -> bool {
        let policy = self.policy.as_ref().unwrap_or(policy);
        let reached = policy.satisfied(&self.replicas, members, self.highest);
        let advanced = reached > self.acked;
        self.acked = self.acked.max(reached);
        advanced
    }

    fn forget_others(&mut self, policy: &AckPolicy, members: &BTreeSet<NodeId>) {
        let policy = self.policy.as_ref().unwrap_or(policy);
        self.replicas.retain(|(node, _)| policy.counts(*node, members));
    }
}

impl SegmentedAckTracker {
    /// Counts acknowledgements of `members` by `policy`.
    pub fn new(members: BTreeSet<NodeId>, policy: AckPolicy) -> Self {
        Self { members, policy, partitions: BTreeMap::new() }
    }

    /// Who may acknowledge.
    pub fn members(&self) -> &BTreeSet<NodeId> {
        &self.members
    }

    /// Begins, or begins again, with a partition whose records up to `acked` need no acknowledgement any more.
    pub fn register(&mut self, partition: PartitionId, acked: PartitionLogIndex) {
        let acks = self.partitions.entry(partition).or_default();
        acks.acked = acks.acked.max(acked);
        acks.highest = acks.highest.max(acked);
    }

    /// Forgets a partition.
    pub fn remove(&mut self, partition: PartitionId) {
        self.partitions.remove(&partition);
    }

    /// Gives one partition a policy of its own, or takes it away. Returns the record that is acknowledged now.
    pub fn set_policy(&mut self, partition: PartitionId, policy: Option<AckPolicy>) -> PartitionLogIndex {
        let acks = self.partitions.entry(partition).or_default();
        acks.policy = policy;
        acks.forget_others(&self.policy, &self.members);
        acks.advance(&self.policy, &self.members);
        acks.acked
    }

    /// Others are members now. Returns the partitions with more acknowledged than before: a smaller group may be
    /// satisfied by what is there.
    pub fn set_members(&mut self, members: BTreeSet<NodeId>) -> Vec<(PartitionId, PartitionLogIndex)> {
        self.members = members;
        let mut advanced = Vec::new();
        for (partition, acks) in &mut self.partitions {
            acks.forget_others(&self.policy, &self.members);
            if acks.advance(&self.policy, &self.members) {
                advanced.push((*partition, acks.acked));
            }
        }
        advanced
    }

    /// The records of a partition up to `highest` are in the segmented log. Returns the record that is acknowledged
    /// now: acknowledgements may have come first.
    pub fn landed(&mut self, partition: PartitionId, highest: PartitionLogIndex) -> PartitionLogIndex {
        let acks = self.partitions.entry(partition).or_default();
        if highest > acks.highest {
            acks.highest = highest;
            acks.advance(&self.policy, &self.members);
        }
        acks.acked
    }

    /// `node` has the records of a partition up to `index`.
    pub fn ack(&mut self, partition: PartitionId, node: NodeId, index: PartitionLogIndex) -> AckOutcome {
        let Some(acks) = self.partitions.get_mut(&partition) else {
            return AckOutcome::UnknownPartition;
        };
        if !acks.policy.as_ref().unwrap_or(&self.policy).counts(node, &self.members) {
            return AckOutcome::NotCounted;
        }
        match acks.replicas.binary_search_by_key(&node, |(known, _)| *known) {
            Ok(at) if acks.replicas[at].1 >= index => return AckOutcome::Duplicate,
            Ok(at) => acks.replicas[at].1 = index,
            Err(at) => acks.replicas.insert(at, (node, index)),
        }
        if index <= acks.acked {
            return AckOutcome::Stale;
        }
        if acks.advance(&self.policy, &self.members) {
            AckOutcome::Advanced(acks.acked)
        } else {
            AckOutcome::Recorded
        }
    }

    /// The last record of a partition that enough replicas have.
    pub fn acked(&self, partition: PartitionId) -> PartitionLogIndex {
        self.partitions.get(&partition).map_or(PartitionLogIndex::NONE, |acks| acks.acked)
    }

    /// The replicas that have a record: the ack set of (partition, partition log index).
    pub fn ack_set(&self, partition: PartitionId, index: PartitionLogIndex) -> BTreeSet<NodeId> {
        let replicas = self.partitions.get(&partition).map_or(&[][..], |acks| &acks.replicas);
        replicas.iter().filter(|(_, reached)| *reached >= index).map(|(node, _)| *node).collect()
    }

    /// All acknowledgements of a partition.
    pub fn view(&self, partition: PartitionId) -> AckView {
        self.partitions.get(&partition).map_or_else(AckView::default, |acks| AckView {
            replicas: acks.replicas.clone(),
            acked: acks.acked,
            highest: acks.highest,
        })
    }
}
