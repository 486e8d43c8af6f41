//! Watermarks, acknowledgements and descriptors.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use laminar_core::ids::{Epoch, LogIndex, NodeId, OwnerEpoch, PartitionId};
use laminar_log::PartitionLogIndex;
use laminar_log::dispatcher::{AdmissionState, DispatcherConfig, PartitionDispatcher};
use laminar_log::tracking::{
    AckOutcome, AckPolicy, MasterPolicy, PartitionDescriptor, PartitionManifest, SegmentedAckTracker,
    SegmentedWatermarks,
};

use crate::dispatcher_support::{ManualClock, append, entry};

const P: PartitionId = PartitionId(7);
const Q: PartitionId = PartitionId(8);

fn at(index: u64) -> PartitionLogIndex {
    PartitionLogIndex(index)
}

fn nodes(ids: impl IntoIterator<Item = u64>) -> BTreeSet<NodeId> {
    ids.into_iter().map(NodeId).collect()
}

fn panics(run: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

#[test]
fn a_manifest_panics_at_every_violation_of_its_order() {
    let mut manifest = PartitionManifest::new(P);
    manifest.update_highest(at(5));
    manifest.update_durable(at(3));
    assert_eq!(manifest.applied_global(), LogIndex(0), "durable does not move it");
    manifest.update_applied(at(2), LogIndex(20));
    manifest.set_snapshot(at(1));
    // An older word is no news.
    manifest.update_durable(at(1));
    manifest.set_snapshot(at(0));
    let read = (manifest.snapshot(), manifest.applied(), manifest.durable(), manifest.highest());
    assert_eq!(read, (at(1), at(2), at(3), at(5)));
    assert_eq!((manifest.applied_global(), manifest.lag()), (LogIndex(20), 3));
    let mut copy = manifest;
    assert!(panics(|| copy.update_highest(at(5))));
    assert!(panics(|| copy.update_durable(at(6))));
    assert!(panics(|| copy.update_applied(at(4), LogIndex(21))));
    assert!(panics(|| copy.update_applied(at(1), LogIndex(21))));
    assert!(panics(|| copy.update_applied(at(3), LogIndex(19))));
    assert!(panics(|| copy.set_snapshot(at(3))));
    assert!(copy == manifest && copy.holds(), "a refused step changes nothing");
}

#[test]
fn a_majority_is_more_than_half_whatever_the_order() {
    let mut acks = SegmentedAckTracker::new(nodes(1..=3), AckPolicy::Majority);
    assert_eq!(acks.ack(P, NodeId(1), at(1)), AckOutcome::UnknownPartition);
    assert_eq!(acks.landed(P, at(10)), at(0));
    assert_eq!(acks.ack(P, NodeId(1), at(9)), AckOutcome::Recorded);
    assert_eq!(acks.ack(P, NodeId(2), at(4)), AckOutcome::Advanced(at(4)));
    assert_eq!(acks.ack(P, NodeId(2), at(4)), AckOutcome::Duplicate);
    assert_eq!(acks.ack(P, NodeId(2), at(3)), AckOutcome::Duplicate, "it came late");
    assert_eq!(acks.ack(P, NodeId(3), at(2)), AckOutcome::Stale);
    assert_eq!(acks.ack(P, NodeId(9), at(10)), AckOutcome::NotCounted);
    assert_eq!(acks.ack(P, NodeId(3), at(12)), AckOutcome::Advanced(at(9)));
    assert_eq!(acks.ack(P, NodeId(1), at(12)), AckOutcome::Advanced(at(10)), "not beyond what has landed");
    assert_eq!(acks.landed(P, at(20)), at(12), "acknowledgements had come first");
    assert_eq!(acks.ack_set(P, at(5)), nodes([1, 3]));
    assert_eq!(acks.view(P).replicas, [(NodeId(1), at(12)), (NodeId(2), at(4)), (NodeId(3), at(12))]);
}

#[test]
fn threshold_fixed_and_custom_policies() {
    let mut acks = SegmentedAckTracker::new(nodes(1..=5), AckPolicy::Threshold(2));
    acks.landed(P, at(10));
    acks.ack(P, NodeId(4), at(3));
    assert_eq!(acks.ack(P, NodeId(5), at(7)), AckOutcome::Advanced(at(3)));
    // Node 9 is no member, and the policy names it.
    acks.set_policy(Q, Some(AckPolicy::Fixed(nodes([1, 9]))));
    acks.landed(Q, at(10));
    assert_eq!(acks.ack(Q, NodeId(2), at(10)), AckOutcome::NotCounted);
    assert_eq!(acks.ack(Q, NodeId(1), at(8)), AckOutcome::Recorded);
    assert_eq!(acks.ack(Q, NodeId(9), at(6)), AckOutcome::Advanced(at(6)));
    assert_eq!(acks.set_policy(Q, Some(AckPolicy::Threshold(0))), at(10));
    // One of each of two racks: 1 and 2 against 3, 4 and 5.
    let racks: AckPolicy = AckPolicy::Custom(Arc::new(|have: &BTreeSet<NodeId>| {
        have.iter().any(|node| node.0 <= 2) && have.iter().any(|node| node.0 > 2)
    }));
    let r = PartitionId(9);
    acks.set_policy(r, Some(racks));
    acks.landed(r, at(10));
    assert_eq!(acks.ack(r, NodeId(1), at(10)), AckOutcome::Recorded);
    assert_eq!(acks.ack(r, NodeId(2), at(10)), AckOutcome::Recorded);
    assert_eq!(acks.ack(r, NodeId(3), at(4)), AckOutcome::Advanced(at(4)));
    assert_eq!(acks.ack(r, NodeId(4), at(10)), AckOutcome::Advanced(at(10)));
    acks.remove(r);
    assert_eq!(acks.acked(r), at(0));
}

#[test]
fn members_that_come_and_go_never_take_back_what_was_acknowledged() {
    let mut acks = SegmentedAckTracker::new(nodes(1..=3), AckPolicy::Majority);
    acks.landed(P, at(10));
    acks.ack(P, NodeId(1), at(10));
    acks.ack(P, NodeId(2), at(6));
    assert_eq!(acks.acked(P), at(6));
    // Five members: three are needed, and node 1 with node 2 are two.
    assert_eq!(acks.set_members(nodes(1..=5)), []);
    assert_eq!(acks.acked(P), at(6));
    assert_eq!(acks.ack(P, NodeId(4), at(8)), AckOutcome::Recorded);
    // Nodes 2 and 3 leave: 1 and 4 are two of three.
    assert_eq!(acks.set_members(nodes([1, 4, 5])), [(P, at(8))]);
    assert_eq!(acks.view(P).replicas.len(), 2, "those who left are forgotten");
    acks.register(P, at(9));
    assert_eq!(acks.acked(P), at(9), "a snapshot covers it");
}

/// Decides an entry with one record of each partition.
fn decide(marks: &mut SegmentedWatermarks, raft: u64, records: &[(PartitionId, u64)]) {
    for (partition, index) in records {
        marks.accepted(*partition, at(*index), LogIndex(raft));
    }
    marks.decided(LogIndex(raft));
}

#[test]
fn an_idle_partition_holds_nothing_back() {
    let mut marks = SegmentedWatermarks::new();
    decide(&mut marks, 1, &[(P, 1)]);
    decide(&mut marks, 2, &[(Q, 1)]);
    decide(&mut marks, 3, &[(Q, 2)]);
    decide(&mut marks, 4, &[]);
    assert_eq!(marks.truncation_floor(), LogIndex(0), "not synced");
    marks.segmented_durable(LogIndex(4));
    assert_eq!(marks.manifest(P).unwrap().durable(), at(1));
    marks.applied(P, at(1), LogIndex(1));
    assert_eq!(marks.required(P), Some(LogIndex(1)), "not in its own synced log");
    marks.synced(P, at(1));
    assert_eq!(marks.required(P), None);
    assert_eq!((marks.truncation_floor(), marks.lowest_required()), (LogIndex(1), Some((LogIndex(2), Q))));
    assert_eq!(marks.applied_through(P), Some(LogIndex(4)), "idle: as far as the group");
    assert_eq!(marks.applied_through(Q), Some(LogIndex(1)));
    marks.synced(Q, at(2));
    marks.applied(Q, at(1), LogIndex(2));
    assert_eq!(marks.truncation_floor(), LogIndex(2));
    marks.replica_needs(NodeId(3), Some(LogIndex(2)));
    assert_eq!(marks.truncation_floor(), LogIndex(1));
    marks.applied(Q, at(2), LogIndex(3));
    marks.replica_needs(NodeId(3), None);
    assert_eq!((marks.truncation_floor(), marks.lowest_required()), (LogIndex(4), None));
}

#[test]
fn where_a_policy_asks_for_it_entries_wait_for_acknowledgements() {
    let mut marks = SegmentedWatermarks::with_acks();
    decide(&mut marks, 5, &[(P, 1)]);
    marks.segmented_durable(LogIndex(5));
    marks.synced(P, at(1));
    marks.applied(P, at(1), LogIndex(5));
    assert_eq!(marks.required(P), Some(LogIndex(5)));
    marks.acked(P, at(1));
    assert_eq!(marks.required(P), None);
    decide(&mut marks, 6, &[(P, 2)]);
    marks.synced(P, at(2));
    marks.applied(P, at(2), LogIndex(6));
    assert_eq!(marks.required(P), Some(LogIndex(6)));
    marks.ignore_acks(P);
    assert_eq!(marks.required(P), None);
}

#[test]
fn what_is_not_on_the_disk_cannot_be_applied_and_what_was_decided_cannot_come_again() {
    let mut marks = SegmentedWatermarks::new();
    decide(&mut marks, 1, &[(P, 1)]);
    assert!(panics(|| marks.applied(P, at(1), LogIndex(1))));
    assert!(panics(|| marks.synced(P, at(2))));
    assert!(panics(|| marks.accepted(P, at(2), LogIndex(1))));
    assert_eq!(marks.required(P), Some(LogIndex(1)));
    marks.remove(P);
    assert_eq!((marks.required(P), marks.manifest(P)), (None, None));
    marks.applied(P, at(9), LogIndex(9));
    marks.restore(P, at(30), LogIndex(90));
    let manifest = marks.manifest(P).unwrap();
    assert_eq!(
        (manifest.snapshot(), manifest.highest(), manifest.applied_global()),
        (at(30), at(30), LogIndex(90))
    );
}

#[test]
fn a_descriptor_shows_what_every_part_knows() {
    let mut marks = SegmentedWatermarks::new();
    let mut acks = SegmentedAckTracker::new(nodes(1..=3), AckPolicy::Majority);
    let clock = Arc::new(ManualClock::default());
    let dispatcher =
        PartitionDispatcher::new(DispatcherConfig::default(), clock.clone(), Vec::new()).unwrap();
    let _permit = dispatcher.admit(&entry(vec![append(P.0, 10)])).unwrap();
    decide(&mut marks, 3, &[(P, 1)]);
    marks.segmented_durable(LogIndex(3));
    acks.landed(P, at(1));
    acks.ack(P, NodeId(2), at(1));
    dispatcher.enqueued(P, 1, 42, LogIndex(3));
    clock.advance_ms(5);
    let owner = OwnerEpoch { node_id: NodeId(2), epoch: Epoch::FIRST };
    let master = MasterPolicy::Fixed(NodeId(3));
    let gather = |id| PartitionDescriptor::gather(id, Some(owner), &master, &marks, &acks, &dispatcher);
    let descriptor = gather(P).unwrap();
    assert_eq!((descriptor.owner, descriptor.master), (Some(owner), Some(NodeId(3))));
    assert_eq!((descriptor.manifest.durable(), descriptor.synced), (at(1), at(0)));
    assert_eq!((descriptor.required, descriptor.applied_through), (Some(LogIndex(3)), LogIndex(2)));
    assert_eq!(descriptor.acks.replicas, [(NodeId(2), at(1))]);
    let admission = &descriptor.admission;
    assert_eq!(
        (admission.state, admission.inflight_ops, admission.backlog_ops),
        (AdmissionState::Open, 1, 1)
    );
    assert_eq!(admission.backlog_age.as_millis(), 5);
    assert_eq!(gather(Q), None);
}
