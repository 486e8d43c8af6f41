//! Every byte of an entry and of a stored record, encoded and decoded.
//!
//! All numbers are little-endian. An entry is what Raft replicates; its records are what partitions store.
//!
//! ```text
//!  entry
//!   0         1       2     4         8         12       16        24
//!  +---------+-------+-----+---------+---------+--------+---------+----------+-------+--------+--------+-----+
//!  | version | flags | 0   | crc32c  | records | prefix | time_ms | producer | batch | record | record | ... |
//!  | u8      | u8    | u16 | u32     | u32     | u32    | u64     |          |       |        |        |     |
//!  +---------+-------+-----+---------+---------+--------+---------+----------+-------+--------+--------+-----+
//!   crc32c    of everything before the records but itself
//!   prefix    bytes of producer and batch
//!   flags     1: producer (id u64, sequence u64, checksum u64); 2: batch (number u64, query, to the prefix's end)
//!
//!  record, beginning with its SegmentedRecordHeader of 32 bytes
//!   0         1      2       4           8       16      24       28       32
//!  +---------+------+-------+-----------+-------+-------+--------+--------+------+
//!  | version | kind | flags | partition | owner | epoch | length | crc32c | body |
//!  | u8      | u8   | u16   | u32       | u64   | u64   | u32    | 0 - 28 |      |
//!  |         |      |       |           |       |       |        | + body |      |
//!  +---------+------+-------+-----------+-------+-------+--------+--------+------+
//!   kind and body; partition, owner and epoch are 0 where they mean nothing
//!    1 append        rows u32, machine u8 (0: the partition must exist), 0 (3 bytes), payload
//!                    flags 1: pointer (block u128, begin u64, length u64, checksum u64, path)
//!    2 fence         run u128, metadata index u64
//!    3 create        machine u8
//!    4 destroy
//!    5 expire-stage  block u128, again and again
//!    6 trim          offset u64; flags 1: to the end, and the offset is 0
//!    7 skip          partition log index u64
//!    8 noop
//!    9 mint-producer
//!   10 expect-end    offset u64
//!   machine          1 log, 2 kv, from 128 those of the embedder
//!
//!  stored record, in a partition's log
//!   0         1   4        8       16       24     32      40        48
//!  +---------+---+--------+-------+--------+------+-------+---------+--------+
//!  | version | 0 | crc32c | index | first  | term | raft  | time_ms | record |
//!  | u8      |   | u32    | u64   | offset | u64  | index | u64     |        |
//!  |         |   |        |       | u64    |      | u64   |         |        |
//!  +---------+---+--------+-------+--------+------+-------+---------+--------+
//!   crc32c    of the 48 bytes but itself; the record has its own
//! ```

mod cursor;
mod entry;
mod record;
mod stored;

use thiserror::Error;

pub use entry::{ENTRY_HEADER_BYTES, decode_entry, encode_entry};
pub use record::{RECORD_HEADER_BYTES, SegmentedRecordHeader, encoded_record_bytes};
pub(crate) use record::{machine, machine_number};
pub use stored::{STORED_HEADER_BYTES, StoredHeader, decode_stored, encode_stored};

/// The version this release writes.
pub const FORMAT_VERSION: u8 = 1;

/// Why bytes are not an entry or a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The checksum is not the one written with the bytes.
    #[error("{what} at byte {at}: checksum {found:08x}, expected {expected:08x}")]
    Damaged {
        /// What the bytes should be.
        what: &'static str,
        /// Where they begin.
        at: usize,
        /// The checksum of the bytes as they are.
        found: u32,
        /// The checksum written with them.
        expected: u32,
    },
    /// There are fewer bytes than there should be, or more.
    #[error("{what} at byte {at}: {found} bytes, expected {expected}")]
    Length {
        /// What the bytes should be.
        what: &'static str,
        /// Where they begin.
        at: usize,
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A value that was never written.
    #[error("{what} at byte {at}: {found} is not a value it can have")]
    Value {
        /// What has the value.
        what: &'static str,
        /// Where it stands.
        at: usize,
        /// The value.
        found: u64,
    },
    /// Written by a newer release.
    #[error(
        "{what} at byte {at}: version {found}, and this release reads up to {FORMAT_VERSION}; upgrade it"
    )]
    VersionTooNew {
        /// What was written.
        what: &'static str,
        /// Where it begins.
        at: usize,
        /// Its version.
        found: u8,
    },
}

#[cfg(test)]
mod tests;
