//! What the rules state, one test a statement; the property tests in `tests/it/prop_metadata.rs` cover their combinations.

mod batch;
mod nodes;
mod partitions;
mod queries;
mod restore;
mod streams;
mod wording;

use super::*;
use crate::ids::{CheckpointId, DataGroupId, RequestId};
use crate::node::{NodeMetadata, NodeState};

fn epoch(value: u64) -> Epoch {
    Epoch::new(value).unwrap()
}

fn owner(node: u64, at: u64) -> OwnerEpoch {
    OwnerEpoch { node_id: NodeId(node), epoch: epoch(at) }
}

fn create(partition: u32, first: OwnerEpoch) -> MetadataChange {
    let OwnerEpoch { node_id, epoch } = first;
    MetadataChange::AssignPartition { partition_id: PartitionId(partition), node_id, epoch, expected: None }
}

fn assign(partition: u32, expected: OwnerEpoch, next: OwnerEpoch) -> MetadataChange {
    let OwnerEpoch { node_id, epoch } = next;
    MetadataChange::AssignPartition {
        partition_id: PartitionId(partition),
        node_id,
        epoch,
        expected: Some(expected),
    }
}

fn acquire(partition: u32, expected: OwnerEpoch, next: OwnerEpoch) -> MetadataChange {
    let OwnerEpoch { node_id, epoch } = next;
    MetadataChange::AcquirePartition { partition_id: PartitionId(partition), node_id, epoch, expected }
}

fn left_at(final_index: u64) -> Release {
    Release {
        final_index: LogIndex(final_index),
        state_hash: 0xFEED,
        next_offset: 12,
        checkpoint_id: Some(CheckpointId(3)),
        source_offsets: [("orders".to_owned(), [(0, 7), (1, 9)].into())].into(),
    }
}

fn release(partition: u32, expected: OwnerEpoch) -> MetadataChange {
    MetadataChange::ReleasePartition { partition_id: PartitionId(partition), expected, release: left_at(40) }
}

fn checkpoint(partition: u32, at: u64, id: u64) -> CheckpointRef {
    CheckpointRef {
        checkpoint_id: CheckpointId(id),
        partition_id: PartitionId(partition),
        epoch: epoch(at),
        storage_path: format!("p/{partition}/c/{id}"),
        source_offsets: SourceOffsets::new(),
        size_bytes: 4096,
        created_at_ms: 5,
    }
}

fn commit(partition: u32, expected: OwnerEpoch, checkpoint: CheckpointRef) -> MetadataChange {
    MetadataChange::CommitCheckpoint { partition_id: PartitionId(partition), expected, checkpoint }
}

fn register(node: Option<u64>, role: NodeRole, expected: Option<NodeState>) -> MetadataChange {
    MetadataChange::RegisterNode {
        node_id: node.map(NodeId),
        role,
        state: NodeState::Active,
        rpc_address: "host:7400".to_owned(),
        raft_address: "host:7402".to_owned(),
        metadata: NodeMetadata { cores: 4, ..NodeMetadata::default() },
        expected,
    }
}

fn deregister(node: u64) -> MetadataChange {
    MetadataChange::DeregisterNode { node_id: NodeId(node), expected: None }
}

fn create_stream(path: &str, partitions: u32) -> MetadataChange {
    MetadataChange::CreateStream {
        path: path.to_owned(),
        partitions,
        schema: vec![1, 2, 3],
        key: vec!["order_id".to_owned()],
        machine: StreamMachine::Log,
        data_group: DataGroupId(1),
        retention: Retention::default(),
        limits: StreamLimits::default(),
    }
}

fn drop_stream(path: &str) -> MetadataChange {
    MetadataChange::DropStream { path: path.to_owned(), expected: None }
}

fn bind(path: &str, stream_id: u64, writer: &str, expected: Option<&str>, query: &str) -> MetadataChange {
    MetadataChange::BindQuery {
        path: path.to_owned(),
        stream_id: crate::ids::StreamId(stream_id),
        writer: writer.to_owned(),
        query: query.to_owned(),
        expected: expected.map(str::to_owned),
    }
}

fn range(first: u32, last: u32) -> PartitionRange {
    PartitionRange::new(PartitionId(first), PartitionId(last)).unwrap()
}

/// Applies a change without a request id, at 10 ms an entry.
fn apply(state: &mut DeltaMetadata, change: MetadataChange) -> MetadataResponse {
    let time_ms = 10 * (state.last_applied_log().0 as i64 + 1);
    state.apply(&MetadataLogEntry::one(time_ms, RequestId::NONE, change))
}

/// The state after changes that must all be applied.
fn after(changes: impl IntoIterator<Item = MetadataChange>) -> DeltaMetadata {
    let mut state = DeltaMetadata::new();
    for change in changes {
        let response = apply(&mut state, change.clone());
        assert!(response.is_applied(), "{change:?}: {response:?}");
    }
    state
}

/// Applies a change that must be rejected, and checks that nothing but the last index and time changed.
#[track_caller]
fn rejected(state: &mut DeltaMetadata, change: MetadataChange) -> Rejection {
    let before = state.clone();
    let response = apply(state, change);
    let mut expected = before;
    (expected.last_applied_log, expected.last_applied_time_ms) =
        (state.last_applied_log, state.last_applied_time_ms);
    assert_eq!(*state, expected, "a rejected change left something behind");
    response.rejection().cloned().expect("the change must be rejected")
}

#[test]
fn new_metadata_is_empty() {
    let state = DeltaMetadata::new();
    assert!(state.partition_map().is_empty() && state.node_states().is_empty());
    assert!(state.pending_releases().is_empty() && state.latest_checkpoints().is_empty());
    assert_eq!(state.streams("").count(), 0);
    assert_eq!((state.cluster_epoch(), state.last_applied_log()), (0, LogIndex::NONE));
    assert_eq!(state.partition_epoch(PartitionId(0)), None);
    assert_eq!(state.partition_owner(PartitionId(0)), None);
}

#[test]
fn applying_moves_the_last_index_and_time_also_when_rejected() {
    let mut state = DeltaMetadata::new();
    state.apply_at(LogIndex(7), &MetadataLogEntry::one(100, RequestId::NONE, create(0, owner(1, 1))));
    assert_eq!((state.last_applied_log(), state.last_applied_time_ms()), (LogIndex(7), 100));
    state.apply(&MetadataLogEntry::one(90, RequestId::NONE, create(0, owner(1, 1))));
    assert_eq!((state.last_applied_log(), state.last_applied_time_ms()), (LogIndex(8), 90));
}

#[test]
#[should_panic(expected = "APPLY-2: entry 7 applied after entry 7")]
fn an_index_applied_twice_panics() {
    let mut state = DeltaMetadata::new();
    let entry = MetadataLogEntry::batch(0, RequestId::NONE, vec![]);
    state.apply_at(LogIndex(7), &entry);
    state.apply_at(LogIndex(7), &entry);
}

#[test]
fn a_repeated_request_gets_its_first_answer_and_changes_nothing() {
    let mut state = DeltaMetadata::new();
    let entry = MetadataLogEntry::one(5, RequestId(9), register(None, NodeRole::Worker, None));
    let first = state.apply(&entry);
    assert_eq!(first.minted(), [Minted::Node(NodeId::WORKER_MIN)]);
    let nodes = state.node_states().clone();
    for _ in 0..2 {
        let again = state.apply(&entry);
        assert_eq!(again.rejection(), Some(&Rejection::DuplicateRequest { first: Box::new(first.clone()) }));
        assert_eq!(*state.node_states(), nodes);
    }
}

#[test]
fn a_repeated_request_that_was_rejected_stays_rejected_when_it_would_now_hold() {
    let mut state = DeltaMetadata::new();
    let entry = MetadataLogEntry::one(5, RequestId(9), acquire(0, owner(1, 1), owner(2, 2)));
    let first = state.apply(&entry);
    assert_eq!(first.rejection(), Some(&Rejection::UnknownPartition { partition: PartitionId(0) }));
    apply(&mut state, create(0, owner(1, 1)));
    assert_eq!(state.apply(&entry).rejection().map(Rejection::code), Some("duplicate_request"));
    assert_eq!(state.partition_owner(PartitionId(0)), Some(NodeId(1)));
}
