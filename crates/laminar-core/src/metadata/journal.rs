//! The only way to change the state: a few setters, which note what was there before while a batch is open.
//!
//! Cloning the state before each batch would be simpler, and cost what the cluster is large, not what the batch is.

use std::collections::BTreeMap;

use super::history::{History, OwnershipEvent};
use super::records::{CheckpointRef, PartitionOwnership, ReleaseInfo};
use super::{Counters, DeltaMetadata, Minted, Retention, StreamDescriptor, StreamLimits};
use crate::ids::{LogIndex, NodeId, PartitionId, PartitionRange, StreamId};
use crate::node::NodeRegistration;

/// How to take one step back. The large ones are boxed: dropping a stream notes two steps a partition.
enum Undo {
    Ownership(PartitionId, Option<PartitionOwnership>),
    Checkpoint(PartitionId, Option<Box<CheckpointRef>>),
    Release(PartitionId, Option<Box<ReleaseInfo>>),
    Node(NodeId, Option<Box<NodeRegistration>>),
    History(PartitionId, History),
    Event(PartitionId, Option<OwnershipEvent>),
    ClusterEpoch(u64),
    Counters(Counters),
    StreamInserted(String),
    StreamRemoved(Box<StreamDescriptor>),
    /// By its parts: a descriptor may hold a megabyte of schema, and a batch alters one often.
    StreamExtended(String),
    StreamSettings(String, Box<(Retention, StreamLimits)>),
    Retired(PartitionRange),
    BoundQuery((StreamId, String), Option<String>),
}

/// The state while one entry is applied to it.
pub(super) struct Edit<'a> {
    state: &'a mut DeltaMetadata,
    /// `None` outside a batch: a single change is decided before its first step, so nothing is ever taken back.
    undo: Option<Vec<Undo>>,
    /// The ids given out so far.
    pub(super) minted: Vec<Minted>,
    /// The partitions whose ownership was set or removed so far, in order, some perhaps twice.
    pub(super) touched: Vec<PartitionId>,
    /// How many partitions the batch creates and has added.
    pub(super) partitions_created: usize,
    /// The entry.
    pub(super) log_index: LogIndex,
    /// Its time.
    pub(super) time_ms: i64,
}

impl<'a> Edit<'a> {
    /// An edit whose steps stay.
    pub(super) fn of_one(state: &'a mut DeltaMetadata, log_index: LogIndex, time_ms: i64) -> Self {
        Self::new(state, None, log_index, time_ms)
    }

    /// An edit that [`take_back`](Self::take_back) undoes.
    pub(super) fn of_batch(state: &'a mut DeltaMetadata, log_index: LogIndex, time_ms: i64) -> Self {
        Self::new(state, Some(Vec::new()), log_index, time_ms)
    }

    fn new(state: &'a mut DeltaMetadata, undo: Option<Vec<Undo>>, log_index: LogIndex, time_ms: i64) -> Self {
        let (minted, touched) = (Vec::new(), Vec::new());
        Edit { state, undo, minted, touched, partitions_created: 0, log_index, time_ms }
    }

    pub(super) fn state(&self) -> &DeltaMetadata {
        self.state
    }

    pub(super) fn set_ownership(&mut self, key: PartitionId, value: Option<PartitionOwnership>) {
        let before = replace(&mut self.state.partition_map, key, value);
        self.touched.push(key);
        self.note(|| Undo::Ownership(key, before));
    }

    pub(super) fn set_checkpoint(&mut self, key: PartitionId, value: Option<CheckpointRef>) {
        let before = replace(&mut self.state.latest_checkpoints, key, value);
        self.note(|| Undo::Checkpoint(key, before.map(Box::new)));
    }

    pub(super) fn set_release(&mut self, key: PartitionId, value: Option<ReleaseInfo>) {
        let before = replace(&mut self.state.pending_releases, key, value);
        self.note(|| Undo::Release(key, before.map(Box::new)));
    }

    pub(super) fn set_node(&mut self, key: NodeId, value: Option<NodeRegistration>) {
        let before = replace(&mut self.state.node_states, key, value);
        self.note(|| Undo::Node(key, before.map(Box::new)));
    }

    pub(super) fn push_event(&mut self, key: PartitionId, event: OwnershipEvent) {
        let evicted = self.state.history.entry(key).or_default().push(event);
        self.note(|| Undo::Event(key, evicted));
    }

    pub(super) fn remove_history(&mut self, key: PartitionId) {
        if let Some(before) = self.state.history.remove(&key) {
            self.note(|| Undo::History(key, before));
        }
    }

    pub(super) fn set_cluster_epoch(&mut self, value: u64) {
        let before = std::mem::replace(&mut self.state.cluster_epoch, value);
        self.note(|| Undo::ClusterEpoch(before));
    }

    pub(super) fn set_counters(&mut self, value: Counters) {
        let before = std::mem::replace(&mut self.state.counters, value);
        self.note(|| Undo::Counters(before));
    }

    pub(super) fn insert_stream(&mut self, stream: StreamDescriptor) {
        self.note(|| Undo::StreamInserted(stream.path.clone()));
        self.state.streams.insert(stream);
    }

    pub(super) fn remove_stream(&mut self, path: &str) {
        if let Some(stream) = self.state.streams.remove(path) {
            self.note(|| Undo::StreamRemoved(Box::new(stream)));
        }
    }

    pub(super) fn extend_stream(&mut self, path: &str, range: PartitionRange) {
        if self.state.streams.add_range(path, range) {
            self.note(|| Undo::StreamExtended(path.to_owned()));
        }
    }

    pub(super) fn set_stream_settings(&mut self, path: &str, retention: Retention, limits: StreamLimits) {
        if let Some(before) = self.state.streams.replace_settings(path, retention, limits) {
            self.note(|| Undo::StreamSettings(path.to_owned(), Box::new(before)));
        }
    }

    pub(super) fn retire(&mut self, range: PartitionRange) {
        self.state.retired.insert(range);
        self.note(|| Undo::Retired(range));
    }

    pub(super) fn set_bound_query(&mut self, key: (StreamId, String), value: Option<String>) {
        let before = replace(&mut self.state.bound_queries, key.clone(), value);
        self.note(|| Undo::BoundQuery(key, before));
    }

    /// Leaves the state exactly as it was before the batch.
    pub(super) fn take_back(self) {
        let state = self.state;
        for step in self.undo.into_iter().flatten().rev() {
            match step {
                Undo::Ownership(key, before) => {
                    replace(&mut state.partition_map, key, before);
                }
                Undo::Checkpoint(key, before) => {
                    replace(&mut state.latest_checkpoints, key, before.map(|boxed| *boxed));
                }
                Undo::Release(key, before) => {
                    replace(&mut state.pending_releases, key, before.map(|boxed| *boxed));
                }
                Undo::Node(key, before) => {
                    replace(&mut state.node_states, key, before.map(|boxed| *boxed));
                }
                Undo::History(key, before) => drop(state.history.insert(key, before)),
                Undo::Event(key, evicted) => undo_event(&mut state.history, key, evicted),
                Undo::ClusterEpoch(before) => state.cluster_epoch = before,
                Undo::Counters(before) => state.counters = before,
                Undo::StreamInserted(path) => drop(state.streams.remove(&path)),
                Undo::StreamRemoved(stream) => state.streams.insert(*stream),
                Undo::StreamExtended(path) => state.streams.undo_add_range(&path),
                Undo::StreamSettings(path, before) => {
                    state.streams.replace_settings(&path, before.0, before.1);
                }
                Undo::Retired(range) => state.retired.remove(range),
                Undo::BoundQuery(key, before) => {
                    replace(&mut state.bound_queries, key, before);
                }
            }
        }
    }

    fn note(&mut self, step: impl FnOnce() -> Undo) {
        if let Some(undo) = &mut self.undo {
            undo.push(step());
        }
    }
}

/// Puts `value` at `key`, or nothing; returns what was there.
fn replace<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => table.insert(key, value),
        None => table.remove(&key),
    }
}

fn undo_event(table: &mut BTreeMap<PartitionId, History>, key: PartitionId, evicted: Option<OwnershipEvent>) {
    let history = table.get_mut(&key).expect("an event is taken back from the history it was pushed to");
    history.undo_push(evicted);
    if history.is_empty() {
        table.remove(&key);
    }
}
