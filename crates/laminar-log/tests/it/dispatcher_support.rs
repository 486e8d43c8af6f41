//! A clock that stands until it is moved, and entries in few words.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_log::Runtime;
use laminar_log::entry::{Append, Change, Entry, Fence, PartitionRecord, Payload, Record};
use laminar_log::machine::BoxFuture;

#[derive(Debug, Default)]
pub(crate) struct ManualClock(AtomicU64);

impl ManualClock {
    pub(crate) fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Runtime for ManualClock {
    fn spawn(&self, _task: BoxFuture<'static, ()>) {
        unreachable!("admission starts no tasks")
    }

    fn sleep(&self, _time: Duration) -> BoxFuture<'static, ()> {
        unreachable!("admission does not wait")
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

pub(crate) fn append(partition: u32, bytes: usize) -> Record {
    record(
        partition,
        Change::Append(Append {
            rows: 1,
            create: None,
            payload: Payload::Inline(Bytes::from(vec![7; bytes])),
        }),
    )
}

pub(crate) fn fence(partition: u32) -> Record {
    record(partition, Change::Fence(Fence { run: 0, metadata_index: 1 }))
}

fn record(partition: u32, change: Change) -> Record {
    let (partition, owner) = (PartitionId(partition), NodeId(1));
    Record::Partition(PartitionRecord { partition, owner, epoch: Epoch::FIRST, change })
}

pub(crate) fn entry(records: Vec<Record>) -> Entry {
    Entry { records, ..Entry::default() }
}
