//! The parts of a snapshot.

use bytes::Bytes;
use laminar_core::ids::PartitionId;

use crate::entry::MachineKind;
use crate::log_id::{LogId, PartitionLogIndex};

/// Whether a snapshot stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotForm {
    /// Of this replica: the rows are in the partitions' logs.
    Local,
    /// For another replica: with the rows.
    Streamed,
}

/// What a snapshot begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHead {
    /// The last entry that it covers.
    pub log_id: LogId,
    /// The members of the group there, as Raft encodes them.
    pub membership: Bytes,
    /// How many partitions it has.
    pub partitions: u32,
}

/// One partition at the snapshot's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPartition {
    /// The partition. They come in order.
    pub partition: PartitionId,
    /// Its machine.
    pub machine: MachineKind,
    /// The last record that the machine's state has seen; below `highest` for a partition that stands still.
    pub applied: PartitionLogIndex,
    /// The last record at the snapshot's place.
    pub highest: PartitionLogIndex,
    /// The first record that is kept; one more than `highest` if none is.
    pub first: PartitionLogIndex,
    /// The first row that is kept.
    pub start_offset: u64,
}

/// What the end of a snapshot says about all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotSummary {
    /// How many partitions it has.
    pub partitions: u32,
    /// How many frames, without the last.
    pub frames: u64,
    /// How many stored records.
    pub records: u64,
    /// How many bytes, without the last frame.
    pub bytes: u64,
    /// xxh3 of these bytes.
    pub hash: u64,
}

/// A part of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The first one.
    Head(SnapshotForm, SnapshotHead),
    /// A piece of the verdict state; all pieces one after the other are all of it.
    Verdict(Bytes),
    /// What follows is of this partition.
    Partition(SnapshotPartition),
    /// A piece of its machine's state, as the machine cut it.
    State(Bytes),
    /// Records of its log, as they are stored there, from the first that is kept to the highest; streamed form only.
    Rows(Vec<Bytes>),
    /// The partition is complete; its machine's state has this hash.
    PartitionEnd(u64),
    /// The last one.
    End(SnapshotSummary),
}

impl Frame {
    /// What it is, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Frame::Head(..) => "head",
            Frame::Verdict(_) => "verdict",
            Frame::Partition(_) => "partition",
            Frame::State(_) => "state",
            Frame::Rows(_) => "rows",
            Frame::PartitionEnd(_) => "partition end",
            Frame::End(_) => "end",
        }
    }
}
