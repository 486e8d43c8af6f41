//! What an entry counts for.

use laminar_core::ids::PartitionId;

use crate::entry::{Change, Entry, PartitionRecord, Payload, Record};
use crate::format::{RECORD_HEADER_BYTES, encoded_record_bytes};

/// What a record counts for: its header and its rows, or the path to them. The same number belongs into
/// [`enqueued`](super::PartitionDispatcher::enqueued) and [`applied`](super::PartitionDispatcher::applied).
pub fn record_bytes(record: &PartitionRecord) -> u64 {
    let payload = match &record.change {
        Change::Append(append) => match &append.payload {
            Payload::Inline(bytes) => bytes.len(),
            Payload::Pointer(pointer) => pointer.path.len(),
        },
        _ => 0,
    };
    (RECORD_HEADER_BYTES + payload) as u64
}

/// Records and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Load {
    pub(super) ops: u64,
    pub(super) bytes: u64,
}

impl Load {
    pub(super) fn plus(self, other: Load) -> Load {
        Load { ops: self.ops + other.ops, bytes: self.bytes + other.bytes }
    }

    /// # Panics
    /// Something is taken away that was never added. Both numbers stay as they are then.
    pub(super) fn minus(self, other: Load) -> Load {
        assert!(
            self.ops >= other.ops && self.bytes >= other.bytes,
            "admission counts would be negative: {self:?} minus {other:?}"
        );
        Load { ops: self.ops - other.ops, bytes: self.bytes - other.bytes }
    }

    pub(super) fn max(self, other: Load) -> Load {
        Load { ops: self.ops.max(other.ops), bytes: self.bytes.max(other.bytes) }
    }

    pub(super) fn is_zero(self) -> bool {
        self == Load::default()
    }
}

/// What an entry counts for, for each partition and in all.
#[derive(Debug)]
pub(super) struct Charges {
    /// The first partition apart, because most entries have only one and then nothing is allocated.
    first: Option<(PartitionId, Load)>,
    rest: Vec<(PartitionId, Load)>,
    /// Records of no partition.
    pub(super) unpartitioned: Load,
    /// Bytes of rows that are in the entry.
    pub(super) inline_bytes: u64,
    /// Whether any record is an append. If none is, the entry is let in whatever the partition's state.
    pub(super) appends: bool,
}

impl Charges {
    pub(super) fn of(entry: &Entry) -> Self {
        let mut charges = Self {
            first: None,
            rest: Vec::new(),
            unpartitioned: Load::default(),
            inline_bytes: 0,
            appends: false,
        };
        for record in &entry.records {
            match record {
                Record::Partition(record) => charges.add(record),
                other => {
                    let load = Load { ops: 1, bytes: encoded_record_bytes(other) as u64 };
                    charges.unpartitioned = charges.unpartitioned.plus(load);
                }
            }
        }
        charges.merge();
        charges
    }

    fn add(&mut self, record: &PartitionRecord) {
        let load = Load { ops: 1, bytes: record_bytes(record) };
        if let Change::Append(append) = &record.change {
            self.appends = true;
            if let Payload::Inline(bytes) = &append.payload {
                self.inline_bytes += bytes.len() as u64;
            }
        }
        match &mut self.first {
            None => self.first = Some((record.partition, load)),
            Some((partition, sum)) if *partition == record.partition => *sum = sum.plus(load),
            Some(_) => match self.rest.last_mut() {
                Some((partition, sum)) if *partition == record.partition => *sum = sum.plus(load),
                _ => self.rest.push((record.partition, load)),
            },
        }
    }

    /// One charge a partition, whatever the order of the records.
    fn merge(&mut self) {
        if self.rest.len() < 2 {
            return;
        }
        self.rest.sort_by_key(|(partition, _)| *partition);
        self.rest.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = kept.1.plus(next.1);
            }
            same
        });
    }

    /// Every partition with what it is charged, each once.
    pub(super) fn partitions(&self) -> impl Iterator<Item = (PartitionId, Load)> + '_ {
        self.first.iter().chain(&self.rest).copied()
    }

    /// Everything together.
    pub(super) fn total(&self) -> Load {
        self.partitions().fold(self.unpartitioned, |sum, (_, load)| sum.plus(load))
    }
}
