//! What one Raft entry of a data group says: records for one or more partitions, all or nothing.

use bytes::Bytes;
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use xxhash_rust::xxh3::Xxh3;

use crate::log_id::PartitionLogIndex;

/// One entry of the data group's Raft log. Either all of its records are accepted or none is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// When the leader proposed it, in milliseconds since 1970. Rows get this time, or their partition's last if that
    /// is later (APPLY-2).
    pub time_ms: u64,
    /// Which append of which producer this is, so that a retry is recognised (TXN-2).
    pub producer: Option<Producer>,
    /// Which batch of which query this is (TXN-1).
    pub batch: Option<BatchId>,
    /// What it changes, in order.
    pub records: Vec<Record>,
}

/// The id of a producer: the raft index of the entry that minted it, so ids grow through the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub u64);

/// One append of an idempotent producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Producer {
    /// Who.
    pub id: ProducerId,
    /// Which append; the first is 1, and each one more than the last.
    pub sequence: u64,
    /// [`payload_checksum`] of the entry's records.
    pub checksum: u64,
}

/// A batch of a query: a micro-batch of a Spark query, or a version of an application (`txnAppId`, `txnVersion`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchId {
    /// The query, 1 to [`BatchId::QUERY_BYTES_MAX`] bytes.
    pub query: String,
    /// Its number; grows, with gaps or without.
    pub number: u64,
}

impl BatchId {
    /// The longest name of a query: 256 bytes of the user's, and the stream that a node puts before them.
    pub const QUERY_BYTES_MAX: usize = 256 + 21;
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Of one partition.
    Partition(PartitionRecord),
    /// These staged blocks may be deleted: a later entry that names one of them is refused.
    ExpireStage(Vec<BlockId>),
    /// A new producer, whose id is the entry's raft index.
    MintProducer,
    /// The queries whose names begin so are forgotten: the partitions that they could ever write are destroyed.
    ForgetQueries(String),
    /// Nothing.
    Noop,
}

/// A change of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRecord {
    /// Which partition.
    pub partition: PartitionId,
    /// Who writes; for a fence or a creation, who will.
    pub owner: NodeId,
    /// Under which epoch; for a fence or a creation, the new one.
    pub epoch: Epoch,
    /// What.
    pub change: Change,
}

/// What is to be done to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Adds rows. Owner and epoch must be the partition's (wall 2).
    Append(Append),
    /// Ends the epoch before. Applied only if its epoch is greater; else nothing happens.
    Fence(Fence),
    /// Makes the partition. Nothing happens if it is there; refused if it was destroyed.
    Create(MachineKind),
    /// Removes the partition for good and leaves a tombstone. Its epoch must not be below the partition's.
    Destroy,
    /// Removes the oldest rows. Its epoch must be the partition's.
    Trim(TrimTo),
    /// Has every replica leave out the record at this place, which its machine cannot apply. Its epoch must be the
    /// partition's.
    Skip(PartitionLogIndex),
    /// Changes nothing, and has the whole entry refused unless the partition's rows end at this offset. Owner and epoch
    /// must be the partition's.
    ExpectEnd(u64),
}

/// Rows for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// How many rows the payload holds; each takes one offset.
    pub rows: u32,
    /// Makes the partition, with this machine, if it was never there.
    pub create: Option<MachineKind>,
    /// The rows, or where they are.
    pub payload: Payload,
}

/// Where the rows of an append are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// In the entry.
    Inline(Bytes),
    /// In a block that was staged in the object store before.
    Pointer(Box<BlockPointer>),
}

/// A staged block. Ids grow with time (as UUIDv7 do), so that the memory of expired ones can be bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u128);

/// A part of a staged block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPointer {
    /// The block.
    pub block: BlockId,
    /// Where the part begins.
    pub begin: u64,
    /// How long it is.
    pub length: u64,
    /// xxh3 of its bytes.
    pub checksum: u64,
    /// The block's path in the object store.
    pub path: String,
}

/// The record that ends an epoch in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The run that takes over, or 0.
    pub run: u128,
    /// The metadata index that decided it.
    pub metadata_index: u64,
}

/// How far to trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimTo {
    /// Rows before this offset, or all there are.
    Offset(u64),
    /// All rows there are at this place of the log.
    End,
}

/// The state machine of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MachineKind {
    /// Keeps nothing but the records.
    Log,
    /// Keeps the last value of each key.
    Kv,
    /// One that the embedder registered under this number, from 128.
    Custom(u8),
}

/// What makes two appends of a producer the same: partitions, rows and payloads, whatever epoch they came under.
pub fn payload_checksum(records: &[Record]) -> u64 {
    let mut hash = Xxh3::new();
    for record in records {
        let Record::Partition(PartitionRecord { partition, change: Change::Append(append), .. }) = record
        else {
            continue;
        };
        hash.update(&partition.0.to_le_bytes());
        hash.update(&append.rows.to_le_bytes());
        match &append.payload {
            Payload::Inline(bytes) => {
                hash.update(&(bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
            Payload::Pointer(pointer) => {
                hash.update(&pointer.length.to_le_bytes());
                hash.update(&pointer.checksum.to_le_bytes());
            }
        }
    }
    hash.digest()
}
