//! What is told of the partitions from time to time. Nothing here is on the path of a write: descriptors are put
//! together from what the state machine and openraft know at that moment.

use std::collections::BTreeSet;
use std::sync::{PoisonError, Weak};

use laminar_core::ids::{LogIndex, NodeId, OwnerEpoch, PartitionId};
use laminar_log::metrics::{GroupFigures, publish};
use laminar_log::partition_log::PartitionLogStore;
use laminar_log::tracking::{AckPolicy, PartitionDescriptor, SegmentedAckTracker, SegmentedWatermarks};
use laminar_log::{LogId, PartitionLogIndex, PartitionStatus, SegmentedStateMachine};
use openraft::AsyncRuntime;
use openraft::async_runtime::watch::WatchReceiver;

use super::{DataReplica, Inner};
use crate::blocking::blocking;

/// What is kept between two times.
pub(super) struct Figures {
    acks: SegmentedAckTracker,
    /// The partitions that the tracker knows.
    known: BTreeSet<PartitionId>,
    /// What was committed the last time: if it still is, the log is idle.
    committed: Option<LogId>,
}

/// What openraft knows at one moment.
#[derive(Debug, Default)]
struct Group {
    leader: Option<NodeId>,
    term: u64,
    members: BTreeSet<NodeId>,
    /// How far each replica's log is; of the others only a leader knows it.
    matched: Vec<(NodeId, LogIndex)>,
    durable: Option<LogIndex>,
}

impl Figures {
    pub(super) fn new(policy: AckPolicy) -> Self {
        let acks = SegmentedAckTracker::new(BTreeSet::new(), policy);
        Self { acks, known: BTreeSet::new(), committed: None }
    }

    fn forget(&mut self, machine: &SegmentedStateMachine) {
        let there: BTreeSet<PartitionId> = machine.partition_ids().into_iter().collect();
        for gone in self.known.difference(&there) {
            self.acks.remove(*gone);
        }
        self.known = there;
    }

    /// Tells the tracker how far each replica is with a partition: one that has the entry of a record has the record.
    fn take_acks(&mut self, group: &Group, status: &PartitionStatus, log: Option<&PartitionLogStore>) {
        self.acks.landed(status.partition, status.highest);
        for (node, matched) in &group.matched {
            let reached = if status.applied == status.highest && *matched >= status.applied_global {
                Some(status.highest)
            } else {
                log.and_then(|log| last_record(log, status.highest, *matched))
            };
            if let Some(reached) = reached {
                self.acks.ack(status.partition, *node, reached);
            }
        }
    }
}

/// The last record of a partition that came from an entry up to `raft`; none if that cannot be told.
fn last_record(
    log: &PartitionLogStore,
    highest: PartitionLogIndex,
    raft: LogIndex,
) -> Option<PartitionLogIndex> {
    let (mut low, mut high) = (log.first().0, highest.0.min(log.stored_end().0.saturating_sub(1)) + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if log.header(PartitionLogIndex(middle)).ok()?.log_id.index <= raft {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(PartitionLogIndex(low.saturating_sub(1)))
}

/// The marks of one partition. LOG-1: all that was accepted is on this disk, because applying waits for that.
fn watermarks(status: &PartitionStatus, decided: LogIndex, durable: LogIndex) -> SegmentedWatermarks {
    let mut marks = SegmentedWatermarks::new();
    let id = status.partition;
    let at_snapshot = if status.snapshot == status.applied { status.applied_global } else { LogIndex::NONE };
    marks.restore(id, status.snapshot, at_snapshot);
    // The status may be newer than what was decided and durable when the marks were taken.
    let decided = decided.max(status.last_global);
    let durable = durable.max(decided);
    if status.highest > status.snapshot {
        let unapplied = (status.applied < status.highest).then(|| LogIndex(status.applied_global.0 + 1));
        let needed = unapplied.into_iter().chain(status.required).min().unwrap_or(status.applied_global);
        marks.accepted(id, status.highest, LogIndex(needed.0.max(1)));
        marks.decided(decided);
        marks.segmented_durable(durable);
        let synced = PartitionLogIndex(status.synced_end.0.saturating_sub(1)).min(status.highest);
        marks.synced(id, synced);
        marks.applied(id, status.applied, status.applied_global);
    } else {
        marks.decided(decided);
        marks.segmented_durable(durable);
    }
    marks
}

impl<R: AsyncRuntime> DataReplica<R> {
    /// One partition as it is now: owner, master, how far it is here and on the other replicas, and its admission.
    pub fn descriptor(&self, partition: PartitionId) -> Option<PartitionDescriptor> {
        let (group, machine) = (self.inner.group_now(), self.inner.machine());
        let mut figures = self.inner.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.acks.set_members(group.members.clone());
        self.inner.describe(&mut figures, &group, &machine, partition)
    }

    /// Tells the recorder of this thread how the group and its partitions are now. It does so every `raft.tick` by itself;
    /// this is for whoever has a recorder of its own. Ten thousand partitions take a while.
    pub fn publish(&self) {
        self.inner.publish();
    }
}

impl<R: AsyncRuntime> Inner<R> {
    fn group_now(&self) -> Group {
        let Ok(life) = self.serving() else { return Group::default() };
        let (here, metrics) = (self.parts.node, life.raft.metrics());
        let metrics = metrics.borrow_watched();
        let durable = life.store.state().durable.map(|id| id.index);
        let others = metrics.replication.iter().flatten().filter(|(node, _)| **node != here.0);
        let others = others.filter_map(|(node, at)| Some((NodeId(*node), LogIndex(at.as_ref()?.index()))));
        Group {
            leader: metrics.current_leader.map(NodeId),
            term: metrics.current_term,
            members: metrics.membership_config.membership().voter_ids().map(NodeId).collect(),
            matched: durable.map(|durable| (here, durable)).into_iter().chain(others).collect(),
            durable,
        }
    }

    fn describe(
        &self,
        figures: &mut Figures,
        group: &Group,
        machine: &SegmentedStateMachine,
        partition: PartitionId,
    ) -> Option<PartitionDescriptor> {
        let status = machine.status(partition)?;
        figures.take_acks(group, &status, machine.partition_log(partition).as_ref());
        let durable = group.durable.unwrap_or(LogIndex::NONE);
        let marks = watermarks(&status, machine.decided_index(), durable);
        let owner = Some(OwnerEpoch { node_id: status.owner, epoch: status.epoch });
        let master = &self.config.master;
        PartitionDescriptor::gather(partition, owner, master, &marks, &figures.acks, &self.dispatcher)
    }

    fn publish(&self) {
        let (group, machine) = (self.group_now(), self.machine());
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.forget(&machine);
        figures.acks.set_members(group.members.clone());
        let ids = machine.partition_ids();
        let all: Vec<PartitionDescriptor> =
            ids.into_iter().filter_map(|id| self.describe(&mut figures, &group, &machine, id)).collect();
        drop(figures);
        let durable = group.durable.unwrap_or(LogIndex::NONE);
        let known = machine.decided_index().min(durable).0;
        let floor =
            machine.lowest_required().map_or(known, |(needed, _)| known.min(needed.0.saturating_sub(1)));
        let figures = GroupFigures {
            group: self.config.group,
            leader: group.leader,
            term: group.term,
            segmented_durable: durable.0,
            truncation_floor: floor,
            dispatcher: self.dispatcher.stats(),
        };
        publish(&all, &figures);
    }

    /// Writes what is committed, if nothing else was written since the last time that would have carried it.
    fn flush_if_idle(&self) {
        let Ok(life) = self.serving() else { return };
        let committed = life.store.committed();
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = figures.committed == committed;
        figures.committed = committed;
        drop(figures);
        if idle {
            // A log that fails here has told openraft, or will.
            drop(life.store.flush_committed());
        }
    }
}

/// Does what is done from time to time, until the replica is gone.
pub(super) async fn tick<R: AsyncRuntime>(inner: Weak<Inner<R>>) {
    loop {
        let Some(held) = inner.upgrade() else { return };
        let interval = held.config.tick;
        drop(held);
        R::sleep(interval).await;
        let Some(held) = inner.upgrade() else { return };
        if held.is_shut_down() {
            return;
        }
        held.flush_if_idle();
        held.note_recovery();
        // Ten thousand partitions take a while.
        drop(blocking::<R, _, _>(move || held.publish()).await);
    }
}
