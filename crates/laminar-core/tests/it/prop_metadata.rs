//! Random sequences of entries against a model that is simple enough to be right by looking at it.
//!
//! The generator draws small ids, so that changes meet, and mostly right expectations, so that much is accepted. What
//! a change expects is filled in from the model when its turn comes.

use std::collections::{BTreeMap, BTreeSet};

use laminar_core::error::FormatError;
use laminar_core::ids::{
    CheckpointId, DataGroupId, Epoch, LogIndex, NodeId, OwnerEpoch, PartitionId, RequestId, StreamId,
};
use laminar_core::metadata::{
    CheckpointRef, DeltaMetadata, EntryBody, HISTORY_PER_PARTITION_MAX, MetadataChange, MetadataLogEntry,
    MetadataResponse, Minted, Rejection, Release, Retention, StreamLimits, StreamMachine,
};
use laminar_core::node::{NodeMetadata, NodeRole, NodeState};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const WORKER_MIN: u64 = NodeId::WORKER_MIN.0;

/// The rules once more, by value: a batch works on a copy.
#[derive(Clone, Default)]
struct Model {
    owners: BTreeMap<u32, (u64, u64)>,
    released: BTreeSet<u32>,
    checkpoints: BTreeMap<u32, (u64, u64)>,
    nodes: BTreeMap<u64, NodeState>,
    streams: BTreeMap<String, (u64, Vec<u32>)>,
    settings: BTreeMap<String, (Retention, StreamLimits)>,
    queries: BTreeMap<(u64, String), String>,
    dropped: BTreeSet<u32>,
    minted_partitions: u32,
    minted_streams: u64,
    servers: u64,
    workers: u64,
    cluster_epoch: u64,
}

impl Model {
    fn holds(&self, partition: PartitionId, expected: OwnerEpoch) -> bool {
        self.owners.get(&partition.0) == Some(&(expected.node_id.0, expected.epoch.get()))
    }

    /// Moves the partition if everything about it is right.
    fn take(&mut self, partition: PartitionId, node: NodeId, epoch: Epoch, expected: OwnerEpoch) -> bool {
        let right = self.holds(partition, expected) && epoch.get() - 1 == expected.epoch.get();
        if right {
            self.owners.insert(partition.0, (node.0, epoch.get()));
            self.released.remove(&partition.0);
        }
        right
    }

    /// True if the change is accepted.
    fn apply(&mut self, change: &MetadataChange) -> bool {
        match change {
            MetadataChange::AssignPartition { partition_id, node_id, epoch, expected: None } => {
                let free =
                    !self.owners.contains_key(&partition_id.0) && !self.dropped.contains(&partition_id.0);
                let right = free;
                if right {
                    self.owners.insert(partition_id.0, (node_id.0, epoch.get()));
                }
                right
            }
            MetadataChange::AssignPartition { partition_id, node_id, epoch, expected: Some(expected) } => {
                self.take(*partition_id, *node_id, *epoch, *expected)
            }
            MetadataChange::AcquirePartition { partition_id, node_id, epoch, expected } => {
                node_id.0 != 0 && self.take(*partition_id, *node_id, *epoch, *expected)
            }
            MetadataChange::ReleasePartition { partition_id, expected, .. } => {
                self.holds(*partition_id, *expected)
                    && expected.node_id.0 != 0
                    && self.released.insert(partition_id.0)
            }
            MetadataChange::CommitCheckpoint { partition_id, expected, checkpoint } => {
                let mark = (checkpoint.epoch.get(), checkpoint.checkpoint_id.0);
                let right = self.holds(*partition_id, *expected)
                    && expected.node_id.0 != 0
                    && checkpoint.partition_id == *partition_id
                    && checkpoint.epoch == expected.epoch
                    && self.checkpoints.get(&partition_id.0).is_none_or(|latest| mark > *latest);
                if right {
                    self.checkpoints.insert(partition_id.0, mark);
                }
                right
            }
            MetadataChange::UpdateNodeState { node_id, state, expected, .. } => {
                match self.nodes.get_mut(&node_id.0) {
                    Some(current) if expected.is_none_or(|expected| expected == *current) => {
                        *current = *state;
                        true
                    }
                    _ => false,
                }
            }
            MetadataChange::RegisterNode { node_id, role, state, expected, .. } => {
                self.register(*node_id, *role, *state, *expected)
            }
            MetadataChange::DeregisterNode { node_id, expected } => {
                let owned = self.owners.iter().filter(|(_, owner)| owner.0 == node_id.0);
                let owned: Vec<_> = owned.map(|(partition, owner)| (*partition, owner.1)).collect();
                let known = match (self.nodes.get(&node_id.0), expected) {
                    (Some(state), Some(expected)) => state == expected,
                    (Some(_), None) => true,
                    (None, expected) => !owned.is_empty() && expected.is_none(),
                };
                if node_id.0 == 0 || !known || owned.iter().any(|(_, epoch)| *epoch == u64::MAX) {
                    return false;
                }
                for (partition, epoch) in owned {
                    self.owners.insert(partition, (0, epoch + 1));
                    self.released.remove(&partition);
                }
                self.nodes.remove(&node_id.0);
                self.cluster_epoch += 1;
                true
            }
            MetadataChange::IncrementClusterEpoch { expected } => {
                let right = expected.is_none_or(|expected| expected == self.cluster_epoch);
                self.cluster_epoch += u64::from(right);
                right
            }
            MetadataChange::CreateStream { path, partitions, machine, retention, limits, .. } => {
                let settings = (*retention, *limits);
                if self.streams.contains_key(path)
                    || *partitions == 0
                    || machine.as_str() == "Sum"
                    || !settings_are_right(settings)
                {
                    return false;
                }
                let ids = self.mint_partitions(*partitions);
                self.minted_streams += 1;
                self.settings.insert(path.clone(), settings);
                self.streams.insert(path.clone(), (self.minted_streams, ids));
                true
            }
            MetadataChange::AlterStream { path, expected, partitions, retention, limits } => {
                let Some((id, ids)) = self.streams.get(path).cloned() else { return false };
                let (kept_retention, kept_limits) = self.settings[path];
                let settings = (retention.unwrap_or(kept_retention), limits.unwrap_or(kept_limits));
                let added = match partitions {
                    Some(0) => return false,
                    Some(partitions) => (*partitions as usize).checked_sub(ids.len()),
                    None => Some(0),
                };
                let Some(added) = added else { return false };
                if id != expected.0 || !settings_are_right(settings) {
                    return false;
                }
                self.settings.insert(path.clone(), settings);
                let added = self.mint_partitions(added as u32);
                self.streams.insert(path.clone(), (id, [ids, added].concat()));
                true
            }
            MetadataChange::DropStream { path, expected } => {
                let current = self.streams.get(path).map(|stream| stream.0);
                if current.is_none() || expected.is_some_and(|expected| Some(expected.0) != current) {
                    return false;
                }
                for id in self.streams.remove(path).unwrap().1 {
                    self.owners.remove(&id);
                    self.released.remove(&id);
                    self.checkpoints.remove(&id);
                    self.dropped.insert(id);
                }
                self.settings.remove(path);
                self.queries.retain(|(stream, _), _| Some(*stream) != current);
                true
            }
            MetadataChange::BindQuery { path, stream_id, writer, query, expected } => {
                let key = (stream_id.0, writer.clone());
                let right = self.streams.get(path).is_some_and(|stream| stream.0 == stream_id.0)
                    && !query.is_empty()
                    && self.queries.get(&key) == expected.as_ref();
                if right {
                    self.queries.insert(key, query.clone());
                }
                right
            }
            MetadataChange::CheckOwner { partition_id, expected } => self.holds(*partition_id, *expected),
        }
    }

    fn mint_partitions(&mut self, count: u32) -> Vec<u32> {
        if count == 0 {
            return Vec::new();
        }
        let taken = |first: u32| (first..first + count).any(|id| self.owners.contains_key(&id));
        let first = (self.minted_partitions..).find(|first| !taken(*first)).unwrap();
        let ids: Vec<_> = (first..first + count).collect();
        self.owners.extend(ids.iter().map(|id| (*id, (0, 1))));
        self.minted_partitions = first + count;
        ids
    }

    fn register(
        &mut self,
        node_id: Option<NodeId>,
        role: NodeRole,
        state: NodeState,
        expected: Option<NodeState>,
    ) -> bool {
        let busy = |id: &u64| self.nodes.contains_key(id) || self.owners.values().any(|owner| owner.0 == *id);
        let id = match (node_id, role) {
            (None, _) if expected.is_some() => return false,
            (None, NodeRole::Server) => (self.servers + 1..).find(|id| !busy(id)).unwrap(),
            (None, NodeRole::Worker) => (WORKER_MIN + self.workers..).find(|id| !busy(id)).unwrap(),
            (Some(id), NodeRole::Server) if (1..WORKER_MIN).contains(&id.0) => id.0,
            (Some(_), _) => return false,
        };
        if self.nodes.get(&id).copied() != expected {
            return false;
        }
        match role {
            NodeRole::Server => self.servers = self.servers.max(id),
            NodeRole::Worker => self.workers = id - WORKER_MIN + 1,
        }
        self.nodes.insert(id, state);
        true
    }

    /// A batch is all or nothing.
    fn apply_entry(&mut self, entry: &MetadataLogEntry) -> bool {
        let mut attempt = self.clone();
        let accepted = match &entry.body {
            EntryBody::One(change) => attempt.apply(change),
            EntryBody::Batch(changes) => changes.iter().all(|change| attempt.apply(change)),
        };
        if accepted {
            *self = attempt;
        }
        accepted
    }

    #[track_caller]
    fn assert_agrees(&self, state: &DeltaMetadata) {
        let owners = state.partition_map().iter();
        let owners: BTreeMap<_, _> = owners.map(|(id, o)| (id.0, (o.node_id.0, o.epoch.get()))).collect();
        assert_eq!(owners, self.owners);
        assert_eq!(state.pending_releases().keys().map(|id| id.0).collect::<BTreeSet<_>>(), self.released);
        let checkpoints = state.latest_checkpoints().iter();
        let checkpoints: BTreeMap<_, _> =
            checkpoints.map(|(id, c)| (id.0, (c.epoch.get(), c.checkpoint_id.0))).collect();
        assert_eq!(checkpoints, self.checkpoints);
        let nodes: BTreeMap<_, _> = state.node_states().iter().map(|(id, n)| (id.0, n.state)).collect();
        assert_eq!(nodes, self.nodes);
        let ids = |s: &laminar_core::metadata::StreamDescriptor| {
            s.partition_ids.iter().flat_map(|range| range.iter()).map(|id| id.0).collect::<Vec<_>>()
        };
        let streams: BTreeMap<_, _> =
            state.streams("").map(|s| (s.path.clone(), (s.stream_id.0, ids(s)))).collect();
        assert_eq!(streams, self.streams);
        let settings: BTreeMap<_, _> =
            state.streams("").map(|s| (s.path.clone(), (s.retention, s.limits))).collect();
        assert_eq!(settings, self.settings);
        let queries: BTreeMap<_, _> =
            state.bound_queries().map(|(id, w, q)| ((id.0, w.to_owned()), q.to_owned())).collect();
        assert_eq!(queries, self.queries);
        let dropped: BTreeSet<_> = state.retired_partitions().flat_map(|r| r.iter()).map(|id| id.0).collect();
        assert_eq!(dropped, self.dropped);
        assert_eq!(state.cluster_epoch(), self.cluster_epoch);
    }
}

fn settings_are_right((retention, limits): (Retention, StreamLimits)) -> bool {
    [retention.age_ms, retention.bytes, limits.row_bytes_max].iter().all(|value| *value != Some(0))
}

/// A change whose expectations are not filled in yet.
#[derive(Debug, Clone)]
struct Draft {
    kind: u8,
    partition: u32,
    node: u64,
    /// Mostly 0: how far the epochs in it are off.
    epoch_off: u64,
    /// Mostly none: an owner to expect in place of the right one.
    wrong_owner: Option<u64>,
    state: NodeState,
    small: u64,
}

fn draft() -> impl Strategy<Value = Draft> {
    let epoch_off = prop_oneof![8 => Just(0), 1 => Just(1), 1 => Just(u64::MAX)];
    let wrong_owner = prop_oneof![8 => Just(None), 1 => (0..5_u64).prop_map(Some)];
    let node = prop_oneof![4 => 0..5_u64, 1 => WORKER_MIN..WORKER_MIN + 3];
    let state = prop::sample::select(NodeState::ALL.to_vec());
    (0..18_u8, 0..9_u32, node, epoch_off, wrong_owner, state, 0..4_u64).prop_map(
        |(kind, partition, node, epoch_off, wrong_owner, state, small)| Draft {
            kind,
            partition,
            node,
            epoch_off,
            wrong_owner,
            state,
            small,
        },
    )
}

impl Draft {
    fn retention(&self) -> Retention {
        Retention { age_ms: (self.epoch_off > 0).then_some(self.epoch_off), bytes: None }
    }

    /// The change, with what it expects taken from the model and then spoiled as drawn.
    fn finish(&self, model: &Model) -> MetadataChange {
        let partition_id = PartitionId(self.partition);
        let epoch = |value: u64| Epoch::new(value.max(1)).unwrap();
        let (node, at) = model.owners.get(&self.partition).copied().unwrap_or((1, 1));
        let expected = OwnerEpoch {
            node_id: NodeId(self.wrong_owner.unwrap_or(node)),
            epoch: epoch(if self.small == 3 { at.wrapping_add(self.epoch_off) } else { at }),
        };
        let next = epoch(at.saturating_add(1).wrapping_add(self.epoch_off));
        let node_id = NodeId(self.node);
        let path = format!("/s/{}", self.small);
        let expected_state = (self.small > 0).then(|| {
            model.nodes.get(&self.node).copied().filter(|_| self.epoch_off == 0).unwrap_or(self.state)
        });
        match self.kind {
            0 => MetadataChange::AssignPartition {
                partition_id,
                node_id,
                epoch: epoch(self.epoch_off.wrapping_add(self.small)),
                expected: None,
            },
            1 | 2 => MetadataChange::AssignPartition {
                partition_id,
                node_id,
                epoch: next,
                expected: Some(expected),
            },
            3 | 4 => MetadataChange::AcquirePartition { partition_id, node_id, epoch: next, expected },
            5 => MetadataChange::ReleasePartition {
                partition_id,
                expected,
                release: Release {
                    final_index: LogIndex(self.small),
                    state_hash: u64::MAX - self.small,
                    next_offset: self.small,
                    checkpoint_id: (self.small > 1).then_some(CheckpointId(self.small)),
                    source_offsets: [("s".to_owned(), [(0, self.small)].into())].into(),
                },
            },
            6 => MetadataChange::CommitCheckpoint {
                partition_id,
                expected,
                checkpoint: CheckpointRef {
                    checkpoint_id: CheckpointId(self.small),
                    partition_id,
                    epoch: expected.epoch,
                    storage_path: format!("p/{}", self.partition),
                    source_offsets: BTreeMap::new(),
                    size_bytes: self.small,
                    created_at_ms: -1,
                },
            },
            7 => MetadataChange::UpdateNodeState {
                node_id,
                state: self.state,
                metadata: (self.small == 2).then(NodeMetadata::default),
                expected: expected_state,
            },
            8 | 9 => {
                let worker = self.kind == 9;
                MetadataChange::RegisterNode {
                    node_id: (!worker && self.small > 0).then_some(node_id),
                    role: if worker { NodeRole::Worker } else { NodeRole::Server },
                    state: self.state,
                    rpc_address: "host:7400".to_owned(),
                    raft_address: String::new(),
                    metadata: NodeMetadata {
                        tags: [("disk".to_owned(), "nvme".to_owned())].into(),
                        ..NodeMetadata::default()
                    },
                    expected: expected_state.filter(|_| self.small == 3),
                }
            }
            10 => MetadataChange::DeregisterNode {
                node_id,
                expected: expected_state.filter(|_| self.small == 3),
            },
            11 => MetadataChange::IncrementClusterEpoch {
                expected: (self.small > 0).then_some(model.cluster_epoch ^ self.epoch_off),
            },
            12 => MetadataChange::CreateStream {
                path,
                partitions: self.partition % 4,
                schema: vec![self.partition as u8],
                key: vec!["k".to_owned()],
                machine: match self.node {
                    0 => StreamMachine::Kv,
                    1 => StreamMachine::Custom("sum".to_owned()),
                    2 => StreamMachine::Custom("Sum".to_owned()),
                    _ => StreamMachine::Log,
                },
                data_group: DataGroupId(self.partition),
                retention: self.retention(),
                limits: StreamLimits { row_bytes_max: (self.small > 1).then_some(self.node) },
            },
            13 => {
                let (id, partitions) = model.streams.get(&path).cloned().unwrap_or((1, vec![0]));
                // One fewer than there are, as many, one or two more.
                let partitions = (partitions.len() as u32 + self.partition % 4).saturating_sub(1);
                MetadataChange::AlterStream {
                    path,
                    expected: StreamId(id ^ self.epoch_off),
                    partitions: (self.partition > 1).then_some(partitions),
                    retention: (self.node > 1).then(|| self.retention()),
                    limits: (self.node > 0).then_some(StreamLimits { row_bytes_max: Some(self.node) }),
                }
            }
            14 => MetadataChange::CheckOwner { partition_id, expected },
            15 | 16 => {
                let id = model.streams.get(&path).map_or(1, |stream| stream.0) ^ self.epoch_off;
                let writer = format!("w{}", self.partition % 2);
                let bound = model.queries.get(&(id, writer.clone())).cloned();
                let wrong = self.wrong_owner.map(|query| format!("q{query}"));
                let query = if self.node == 0 { String::new() } else { format!("q{}", self.node) };
                MetadataChange::BindQuery {
                    path,
                    stream_id: StreamId(id),
                    writer,
                    query,
                    expected: wrong.or(bound),
                }
            }
            _ => {
                let current = model.streams.get(&path).map(|stream| StreamId(stream.0 ^ self.epoch_off));
                MetadataChange::DropStream { path, expected: current.filter(|_| self.node > 1) }
            }
        }
    }
}

#[derive(Debug, Clone)]
struct EntryDraft {
    request_id: u128,
    time_ms: i64,
    batch: bool,
    drafts: Vec<Draft>,
}

/// A quarter are batches; request ids repeat now and then; times jump.
fn entry_drafts(length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<EntryDraft>> {
    let request_id = prop_oneof![3 => Just(0), 7 => 1..40_u128, 1 => any::<u128>()];
    let drafts =
        prop_oneof![3 => prop::collection::vec(draft(), 1), 1 => prop::collection::vec(draft(), 0..6)];
    let time_ms = prop_oneof![4 => 0..100_000_i64, 1 => any::<i64>()];
    let entry = (request_id, time_ms, drafts).prop_map(|(request_id, time_ms, drafts)| EntryDraft {
        request_id,
        time_ms,
        batch: drafts.len() != 1,
        drafts,
    });
    prop::collection::vec(entry, length)
}

/// Fills in every entry against the model as it stands when the entry is applied. The changes of a batch see those
/// before them.
fn finish(drafts: &[EntryDraft]) -> Vec<MetadataLogEntry> {
    let mut model = Model::default();
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    for entry in drafts {
        let mut ahead = model.clone();
        let finish = |draft: &Draft| {
            let change = draft.finish(&ahead);
            ahead.apply(&change);
            change
        };
        let mut changes: Vec<_> = entry.drafts.iter().map(finish).collect();
        let request_id = RequestId(entry.request_id);
        let entry = if entry.batch {
            MetadataLogEntry::batch(entry.time_ms, request_id, changes)
        } else {
            MetadataLogEntry::one(entry.time_ms, request_id, changes.remove(0))
        };
        if request_id == RequestId::NONE || seen.insert(request_id) {
            model.apply_entry(&entry);
        }
        entries.push(entry);
    }
    entries
}

fn entries(length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<MetadataLogEntry>> {
    entry_drafts(length).prop_map(|drafts| finish(&drafts))
}

fn after(entries: &[MetadataLogEntry]) -> DeltaMetadata {
    let mut state = DeltaMetadata::new();
    for entry in entries {
        state.apply(entry);
    }
    state
}

/// What the entry changes, without what every entry moves.
fn content(state: &DeltaMetadata) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        state.partition_map().clone(),
        state.pending_releases().clone(),
        state.latest_checkpoints().clone(),
        state.node_states().clone(),
        state.streams("").cloned().collect::<Vec<_>>(),
        state.bound_queries().map(|(id, w, q)| (id, w.to_owned(), q.to_owned())).collect::<Vec<_>>(),
        state.retired_partitions().collect::<Vec<_>>(),
        state
            .partition_map()
            .keys()
            .map(|id| state.history(*id).cloned().collect::<Vec<_>>())
            .collect::<Vec<_>>(),
        state.cluster_epoch(),
    )
}

/// Invariants that hold between any two neighbouring states.
#[track_caller]
fn assert_invariants(state: &DeltaMetadata, epochs: &mut BTreeMap<PartitionId, (Epoch, NodeId)>) {
    for (id, ownership) in state.partition_map() {
        let now = (ownership.epoch, ownership.node_id);
        let before = epochs.insert(*id, now).unwrap_or(now);
        assert!(before.0 <= now.0, "EPOCH-1: partition {id} went from {before:?} to {now:?}");
        assert!(
            before.0 < now.0 || before.1 == now.1,
            "OWN-1: partition {id} has two owners in epoch {}",
            now.0
        );
        let history: Vec<_> = state.history(*id).collect();
        assert!((1..=HISTORY_PER_PARTITION_MAX).contains(&history.len()));
        assert_eq!((history[history.len() - 1].epoch, history[history.len() - 1].owner), now);
        for pair in history.windows(2) {
            assert!(pair[0].epoch <= pair[1].epoch && pair[0].owner == pair[1].previous_owner);
        }
    }
    for (id, release) in state.pending_releases() {
        assert_eq!(state.partition_epoch(*id), Some(release.epoch));
    }
}

/// A failing seed is kept in `prop_metadata.regressions`, beside this file, and tried first from then on.
fn config() -> ProptestConfig {
    let failure_persistence = Some(Box::new(FileFailurePersistence::WithSource("regressions")) as Box<_>);
    ProptestConfig { cases: 1000, failure_persistence, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_answer_and_every_state_agree_with_the_model(entries in entries(1..80)) {
        let mut state = DeltaMetadata::new();
        let mut model = Model::default();
        let mut answers: BTreeMap<RequestId, MetadataResponse> = BTreeMap::new();
        let mut epochs = BTreeMap::new();
        let mut nodes_minted = BTreeSet::new();
        for entry in &entries {
            let before = content(&state);
            let owners_before = state.partition_map().clone();
            let (response, touched) =
                state.apply_noting(LogIndex(state.last_applied_log().0 + 1), entry);
            let ids: BTreeSet<_> = owners_before.keys().chain(state.partition_map().keys()).collect();
            for id in ids {
                let changed = owners_before.get(id).map(|o| o.owner_epoch())
                    != state.partition_map().get(id).map(|o| o.owner_epoch());
                prop_assert!(!changed || touched.contains(id), "partition {} changed and is not told", id);
            }
            prop_assert!(response.is_applied() || touched.is_empty());
            match answers.get(&entry.request_id) {
                Some(first) => {
                    let first = Box::new(first.clone());
                    prop_assert_eq!(&response, &MetadataResponse::Rejected(Rejection::DuplicateRequest { first }));
                }
                None => prop_assert_eq!(response.is_applied(), model.apply_entry(entry), "{:?} {:?}", entry, response),
            }
            if !response.is_applied() {
                prop_assert_eq!(content(&state), before);
            }
            for minted in response.minted() {
                if let Minted::Node(id) = minted && id.is_worker() {
                    prop_assert!(nodes_minted.insert(*id), "worker {} was minted twice", id);
                }
            }
            if entry.request_id != RequestId::NONE {
                answers.entry(entry.request_id).or_insert(response);
            }
            model.assert_agrees(&state);
            assert_invariants(&state, &mut epochs);
        }
    }

    #[test]
    fn replaying_requests_changes_nothing(entries in entries(1..60)) {
        let mut state = after(&entries);
        let before = content(&state);
        for entry in entries.iter().filter(|entry| entry.request_id != RequestId::NONE) {
            let response = state.apply(entry);
            prop_assert_eq!(response.rejection().map(Rejection::code), Some("duplicate_request"));
        }
        prop_assert_eq!(content(&state), before);
    }

    /// What an ownership change expects protects it without any table: an accepted one never takes effect again.
    #[test]
    fn an_accepted_ownership_change_is_rejected_when_it_comes_again(entries in entries(1..60)) {
        let mut state = DeltaMetadata::new();
        let mut accepted = Vec::new();
        for entry in &entries {
            let is_accepted = state.apply(entry).is_applied();
            if let EntryBody::One(change) = &entry.body && is_accepted && matches!(
                change,
                MetadataChange::AssignPartition { .. }
                    | MetadataChange::AcquirePartition { .. }
                    | MetadataChange::ReleasePartition { .. }
                    | MetadataChange::CommitCheckpoint { .. }
            ) {
                accepted.push(MetadataLogEntry { request_id: RequestId::NONE, ..entry.clone() });
            }
        }
        let before = content(&state);
        for entry in &accepted {
            prop_assert!(!state.apply(entry).is_applied(), "OWN-2: {:?}", entry);
        }
        prop_assert_eq!(content(&state), before);
    }

    #[test]
    fn two_replicas_have_the_same_bytes_and_one_may_start_from_a_snapshot(
        entries in entries(1..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = after(&entries);
        let (early, late) = entries.split_at(cut.index(entries.len()));
        let mut joined = DeltaMetadata::restore(&after(early).snapshot()).unwrap();
        for entry in late {
            // Through bytes, as it would come from the leader.
            joined.apply(&MetadataLogEntry::decode(&entry.encode()).unwrap());
        }
        prop_assert_eq!(&joined, &whole);
        prop_assert_eq!(joined.snapshot(), whole.snapshot());
    }

    #[test]
    fn entries_answers_and_snapshots_round_trip(entries in entries(1..60)) {
        let mut state = DeltaMetadata::new();
        for entry in &entries {
            prop_assert_eq!(&MetadataLogEntry::decode(&entry.encode()).unwrap(), entry);
            let response = state.apply(entry);
            prop_assert_eq!(&MetadataResponse::decode(&response.encode()).unwrap(), &response);
        }
        let bytes = state.snapshot();
        let restored = DeltaMetadata::restore(&bytes).unwrap();
        prop_assert_eq!(&restored, &state);
        prop_assert_eq!(restored.snapshot(), bytes);
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(DeltaMetadata::restore(&bytes).is_err());
        let _ = MetadataLogEntry::decode(&bytes);
        let _ = MetadataResponse::decode(&bytes);
        if let Ok(state) = DeltaMetadata::restore(&framed(&bytes)) {
            prop_assert_eq!(state.snapshot(), framed(&bytes));
        }
    }

    /// Damage that the checksums do not show: the content is wrong and the checksums are right.
    #[test]
    fn a_wrong_state_with_right_checksums_is_refused_or_can_be_worked_with(
        entries in entries(20..60),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        more in entries(1..30),
    ) {
        let mut body = after(&entries).snapshot().split_off(28);
        for (at, value) in damage {
            let at = at.index(body.len());
            body[at] = value;
        }
        let bytes = framed(&body);
        match DeltaMetadata::restore(&bytes) {
            Err(FormatError::Undecodable { .. } | FormatError::Malformed { .. }) => {}
            Err(other) => prop_assert!(false, "{}", other),
            Ok(mut state) => {
                prop_assert_eq!(state.snapshot(), bytes);
                for entry in &more {
                    state.apply(entry);
                }
                prop_assert_eq!(DeltaMetadata::restore(&state.snapshot()).unwrap(), state);
            }
        }
    }
}

/// A snapshot with this body, its checksums right.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = b"LAMIMETA\x01\0\0\0".to_vec();
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(crc32c::crc32c(body).to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.extend(body);
    bytes
}
