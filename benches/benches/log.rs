//! The parts of the segmented log that every append passes: admission and watermarks.
//!
//! `log-bench` measures a whole data group, beside a bare loop.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench is its own documentation")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use laminar_core::ids::{Epoch, LogIndex, NodeId, PartitionId};
use laminar_log::dispatcher::{DispatcherConfig, PartitionDispatcher};
use laminar_log::entry::{Append, Change, Entry, PartitionRecord, Payload, Record};
use laminar_log::machine::BoxFuture;
use laminar_log::tracking::SegmentedWatermarks;
use laminar_log::{PartitionLogIndex, Runtime};

/// A runtime on which no time passes.
#[derive(Debug)]
struct Still;

impl Runtime for Still {
    fn spawn(&self, _task: BoxFuture<'static, ()>) {}

    fn sleep(&self, _time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

fn append(partition: u32) -> Entry {
    let payload = Payload::Inline(Bytes::from_static(&[7; 256]));
    let change = Change::Append(Append { rows: 1, create: None, payload });
    let (partition, owner, epoch) = (PartitionId(partition), NodeId(1), Epoch::FIRST);
    let records = vec![Record::Partition(PartitionRecord { partition, owner, epoch, change })];
    Entry { records, ..Entry::default() }
}

/// One of 1,000 partitions, admitted and released; then its record reported as waiting and as applied.
///
/// Budget `dispatcher/admit`: < 1 us
/// Budget `dispatcher/enqueued_applied`: < 1 us
fn dispatcher(c: &mut Criterion) {
    let dispatcher =
        PartitionDispatcher::new(DispatcherConfig::default(), Arc::new(Still), Vec::new()).unwrap();
    let entries: Vec<Entry> = (0..1000).map(append).collect();
    (0..1000).for_each(|id| dispatcher.register(PartitionId(id)));
    let mut at = 0;
    c.bench_function("dispatcher/admit", |b| {
        b.iter(|| {
            at = (at + 7) % entries.len();
            drop(dispatcher.admit(&entries[at]).unwrap());
        });
    });
    let mut raft = 0;
    c.bench_function("dispatcher/enqueued_applied", |b| {
        b.iter(|| {
            raft += 1;
            let id = PartitionId((raft % 1000) as u32);
            dispatcher.enqueued(id, 1, 256, LogIndex(raft));
            dispatcher.applied(id, 1, 256);
        });
    });
}

/// A record of one of 10,000 partitions, from its acceptance to its sync.
///
/// Budget `watermarks/record`: < 5 us
fn watermarks(c: &mut Criterion) {
    let mut marks = SegmentedWatermarks::new();
    let mut raft = 0_u64;
    c.bench_function("watermarks/record", |b| {
        b.iter(|| {
            let (id, index) = (PartitionId((raft % 10_000) as u32), PartitionLogIndex(raft / 10_000 + 1));
            raft += 1;
            marks.accepted(id, index, LogIndex(raft));
            marks.decided(LogIndex(raft));
            marks.segmented_durable(LogIndex(raft));
            marks.applied(id, index, LogIndex(raft));
            marks.synced(id, index);
        });
    });
}

criterion_group!(benches, dispatcher, watermarks);
criterion_main!(benches);
