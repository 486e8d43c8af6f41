//! Every byte of a segment file, encoded and decoded.
//!
//! A segment is a file `<16 hex digits of its id>.seg`. All numbers are little-endian; groups and records start at
//! multiples of 8.
//!
//! ```text
//!  0         4096                                            data end
//!  +---------+-------+--------+--------+-----+-------+-------+-- ~ --+  capacity
//!  | segment | group | record | record | ... | group | ...   | unused |
//!  | header  |       |        |        |     |       |       |        |
//!  +---------+-------+--------+--------+-----+-------+-------+-- ~ --+
//!                                                    a sealed segment: +-------+---------+
//!                                                    ends with         | index | trailer |
//!                                                                      +-------+---------+
//!
//!  segment header, 64 bytes in a block of its own, so that no later write touches it
//!   0        8         12        16      24         32         40            60       64
//!  +--------+---------+---------+-------+----------+----------+-------------+--------+
//!  |LAMISEGM| version | 0       | id    | identity | capacity | 0           | crc32c |
//!  |        | u32     | u32     | u64   | u64      | u64      |             | 0 - 60 |
//!  +--------+---------+---------+-------+----------+----------+-------------+--------+
//!   identity: drawn anew whenever a file is made or recycled
//!   seed    = crc32c(identity, id), where the checksums of this segment begin
//!
//!  group, 64 bytes: what one write carries
//!   0         4      8          16       24       32      40         48        52       56      60     64
//!  +---------+------+----------+--------+--------+-------+----------+---------+--------+-------+-------+
//!  | crc32c  | LGRP | identity | offset | synced | start | first    | records | bytes  | 0     | flags |
//!  | 4 - 64  | word | u64      | u64    | u64    | u64   | sequence | u32     | u32    | u32   | u32   |
//!  | on seed |      |          |        |        |       | u64      |         |        |       |       |
//!  +---------+------+----------+--------+--------+-------+----------+---------+--------+-------+-------+
//!   offset  where the group stands in the file
//!   synced  the synced mark: bytes of this file known to be on disk when the group was written
//!   start   the first sequence the log still keeps, as asked for before the records of the group
//!   bytes   of the records after the group
//!   flags   1: the log was closed after this group
//!
//!  record, 16 bytes and its payload
//!   0         4        8          16                          to the next multiple of 8
//!  +---------+--------+----------+-------------------------+-----+
//!  | crc32c  | length | sequence | payload                 | 0   |
//!  | u32     | u32    | u64      |                         |     |
//!  +---------+--------+----------+-------------------------+-----+
//!   the checksum is of the payload, the length, the sequence and the seed, in this order: whoever appends sums up the
//!   payload, and the committer, which alone knows the rest, goes on from there
//!
//!  index entry, 16 bytes          trailer, the last 64 bytes of a sealed segment
//!   0          8        16         0         4      8          16      24      32     40      48      52      56    64
//!  +----------+--------+          +---------+------+----------+-------+-------+------+-------+-------+-------+-----+
//!  | sequence | offset |          | crc32c  | LEND | identity | first | end   | data | start | index | crc32c| 0   |
//!  | u64      | u64    |          | 4 - 64  | word | u64      | seq.  | seq.  | end  | u64   | count | of the|     |
//!  +----------+--------+          | on seed |      |          | u64   | u64   | u64  |       | u32   | index |     |
//!                                 +---------+------+----------+-------+-------+------+-------+-------+-------+-----+
//! ```
//!
//! **Why leftovers never pass.** A CRC of the same bytes with another seed at the end is another CRC, and every life of
//! a file has a seed of its own: a record of an earlier life fails even with equal bytes at the same place. Within one
//! life each byte is written once: every cut, every failure and every opening goes on in another segment, so there is
//! nothing left over from before a truncation either.

use std::ops::Range;

use crc32c::{crc32c, crc32c_append};

/// The version this release writes.
pub const FORMAT_VERSION: u32 = 1;
/// Where the first group of a segment stands.
pub const DATA_START: u64 = 4096;
/// The header of a segment.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// The header of a group.
pub const GROUP_HEADER_BYTES: usize = 64;
/// A record without its payload.
pub const RECORD_HEADER_BYTES: usize = 16;
/// What ends a sealed segment.
pub const TRAILER_BYTES: usize = 64;
/// One place in the index of a segment.
pub const INDEX_ENTRY_BYTES: usize = 16;
/// Groups and records start at multiples of this.
pub const ALIGNMENT: usize = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"LAMISEGM";
const GROUP_WORD: [u8; 4] = *b"LGRP";
const TRAILER_WORD: [u8; 4] = *b"LEND";
const FLAG_CLOSED: u32 = 1;

/// Bytes whose checksum is not the one stored with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The checksum of the bytes as they are.
    pub found: u32,
    /// The checksum written with them.
    pub expected: u32,
}

/// Why a segment header cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderFault {
    /// The bytes are not what was written.
    Damaged(Mismatch),
    /// Written by a newer release.
    VersionTooNew(u32),
}

/// What every checksum of a segment begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentKey {
    /// The segment's number, which orders segments and names the file.
    pub id: u64,
    /// Drawn anew for each life of the file.
    pub identity: u64,
    /// The checksum of both.
    pub seed: u32,
}

impl SegmentKey {
    /// The key of this segment.
    pub fn new(id: u64, identity: u64) -> Self {
        let seed = crc32c_append(crc32c(&identity.to_le_bytes()), &id.to_le_bytes());
        Self { id, identity, seed }
    }
}

/// The first 64 bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Which segment, in which life.
    pub key: SegmentKey,
    /// How long the file was made.
    pub capacity: u64,
}

impl SegmentHeader {
    /// The bytes to write.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.key.id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.key.identity.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.capacity.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What the bytes say. Short input is damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let Some(bytes) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else {
            return Err(HeaderFault::Damaged(Mismatch { found: crc32c(bytes), expected: 0 }));
        };
        let mismatch = Mismatch { found: crc32c(&bytes[..60]), expected: u32_at(bytes, 60) };
        if mismatch.found != mismatch.expected || bytes[..8] != SEGMENT_MAGIC {
            return Err(HeaderFault::Damaged(mismatch));
        }
        match u32_at(bytes, 8) {
            FORMAT_VERSION => Ok(Self {
                key: SegmentKey::new(u64_at(bytes, 16), u64_at(bytes, 24)),
                capacity: u64_at(bytes, 32),
            }),
            version if version > FORMAT_VERSION => Err(HeaderFault::VersionTooNew(version)),
            _ => Err(HeaderFault::Damaged(mismatch)),
        }
    }
}

/// What stands before the records of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupHeader {
    /// Where the group stands in the file.
    pub offset: u64,
    /// The synced mark: bytes of the file known to be on disk when the group was written.
    pub synced: u64,
    /// The first sequence the log still keeps.
    pub start: u64,
    /// The sequence of the first record.
    pub first_sequence: u64,
    /// How many records follow.
    pub records: u32,
    /// How many bytes they take.
    pub body_bytes: u32,
    /// Whether the log was closed after this group.
    pub closed: bool,
}

impl GroupHeader {
    /// Where the next group stands.
    pub fn end(&self) -> u64 {
        self.offset + GROUP_HEADER_BYTES as u64 + u64::from(self.body_bytes)
    }

    /// The bytes to write into this segment.
    pub fn encode(&self, key: &SegmentKey) -> [u8; GROUP_HEADER_BYTES] {
        let mut bytes = [0; GROUP_HEADER_BYTES];
        bytes[4..8].copy_from_slice(&GROUP_WORD);
        bytes[8..16].copy_from_slice(&key.identity.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.synced.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.start.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first_sequence.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.records.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[60..64].copy_from_slice(&(u32::from(self.closed) * FLAG_CLOSED).to_le_bytes());
        let crc = crc32c_append(key.seed, &bytes[4..]);
        bytes[0..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The group that stands at `offset` of this segment.
    pub fn decode(bytes: &[u8], key: &SegmentKey, offset: u64) -> Result<Self, Mismatch> {
        let Some(bytes) = bytes.first_chunk::<GROUP_HEADER_BYTES>() else {
            return Err(Mismatch { found: crc32c_append(key.seed, bytes), expected: 0 });
        };
        let mismatch = Mismatch { found: crc32c_append(key.seed, &bytes[4..]), expected: u32_at(bytes, 0) };
        let group = Self {
            offset: u64_at(bytes, 16),
            synced: u64_at(bytes, 24),
            start: u64_at(bytes, 32),
            first_sequence: u64_at(bytes, 40),
            records: u32_at(bytes, 48),
            body_bytes: u32_at(bytes, 52),
            closed: u32_at(bytes, 60) == FLAG_CLOSED,
        };
        // What a correct checksum cannot vouch for is compared too: a group is never read elsewhere than it was written.
        let ours = bytes[4..8] == GROUP_WORD
            && u64_at(bytes, 8) == key.identity
            && group.offset == offset
            && group.synced <= offset
            && (group.body_bytes as usize).is_multiple_of(ALIGNMENT)
            && group.first_sequence.checked_add(u64::from(group.records)).is_some()
            && u32_at(bytes, 56) == 0
            && u32_at(bytes, 60) <= FLAG_CLOSED;
        if mismatch.found == mismatch.expected && ours { Ok(group) } else { Err(mismatch) }
    }

    /// Whether these 8 bytes could begin a group; cheap, for looking through a whole file. No record begins like one: it
    /// would be larger than any may be.
    pub(crate) fn may_start(bytes: &[u8]) -> bool {
        bytes[4..8] == GROUP_WORD
    }

    /// Whether the bytes were meant to be a group of this very segment, whatever their checksum says.
    pub(crate) fn was_meant(bytes: &[u8], key: &SegmentKey, offset: u64, sequence: u64) -> bool {
        let placed = || u64_at(bytes, 16) == offset && u64_at(bytes, 40) == sequence;
        bytes.len() >= GROUP_HEADER_BYTES
            && (u64_at(bytes, 8) == key.identity || (Self::may_start(bytes) && placed()))
    }
}

/// The bytes a record with this payload takes in a file.
pub fn record_bytes(payload: usize) -> usize {
    (RECORD_HEADER_BYTES + payload).next_multiple_of(ALIGNMENT)
}

/// Appends a record to `buffer`, whose payload has the checksum `payload_crc`.
pub fn push_record(buffer: &mut Vec<u8>, key: &SegmentKey, sequence: u64, payload: &[u8], payload_crc: u32) {
    let length = u32::try_from(payload.len()).expect("record_bytes_max is below 4 GiB");
    let end = buffer.len() + record_bytes(payload.len());
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..4].copy_from_slice(&record_crc(key, length, sequence, payload_crc).to_le_bytes());
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..].copy_from_slice(&sequence.to_le_bytes());
    buffer.extend_from_slice(&header);
    buffer.extend_from_slice(payload);
    buffer.resize(end, 0);
}

/// The checksum of a record, whose payload has the checksum `payload_crc`.
fn record_crc(key: &SegmentKey, length: u32, sequence: u64, payload_crc: u32) -> u32 {
    let mut rest = [0; 16];
    rest[..4].copy_from_slice(&length.to_le_bytes());
    rest[4..12].copy_from_slice(&sequence.to_le_bytes());
    rest[12..].copy_from_slice(&key.seed.to_le_bytes());
    crc32c_append(payload_crc, &rest)
}

/// A record as it stands in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFrame {
    /// Where in the given bytes the payload is.
    pub payload: Range<usize>,
    /// Where in the given bytes the next record or group is.
    pub next: usize,
}

/// The bytes that the record takes whose header this is. Nothing is verified yet.
pub(crate) fn announced_bytes(header: &[u8]) -> usize {
    record_bytes(u32_at(header, 4) as usize)
}

/// The record of this segment that `bytes` begin with, which must have this sequence.
pub fn decode_record(bytes: &[u8], key: &SegmentKey, sequence: u64) -> Result<RecordFrame, Mismatch> {
    let Some((header, rest)) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        return Err(Mismatch { found: crc32c_append(key.seed, bytes), expected: 0 });
    };
    let (expected, length) = (u32_at(header, 0), u32_at(header, 4));
    let payload = rest.get(..length as usize).unwrap_or(rest);
    let found = record_crc(key, length, u64_at(header, 8), crc32c(payload));
    let end = RECORD_HEADER_BYTES + length as usize;
    let next = record_bytes(length as usize);
    // What the checksum does not cover is compared.
    let whole = bytes.get(end..next).is_some_and(|padding| padding.iter().all(|byte| *byte == 0));
    if found != expected || u64_at(header, 8) != sequence || !whole {
        return Err(Mismatch { found, expected });
    }
    Ok(RecordFrame { payload: RECORD_HEADER_BYTES..end, next })
}

/// A place from which reading can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The record's sequence.
    pub sequence: u64,
    /// Where it stands in the file.
    pub offset: u64,
}

/// The bytes of an index.
pub fn encode_index(entries: &[IndexEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * INDEX_ENTRY_BYTES + TRAILER_BYTES);
    for entry in entries {
        bytes.extend_from_slice(&entry.sequence.to_le_bytes());
        bytes.extend_from_slice(&entry.offset.to_le_bytes());
    }
    bytes
}

/// The index that these bytes are, if they have the checksum that the trailer names.
pub fn decode_index(bytes: &[u8], expected: u32) -> Result<Vec<IndexEntry>, Mismatch> {
    let found = crc32c(bytes);
    let (entries, rest) = bytes.as_chunks::<INDEX_ENTRY_BYTES>();
    if found != expected || !rest.is_empty() {
        return Err(Mismatch { found, expected });
    }
    let entry =
        |bytes: &[u8; INDEX_ENTRY_BYTES]| IndexEntry { sequence: u64_at(bytes, 0), offset: u64_at(bytes, 8) };
    Ok(entries.iter().map(entry).collect())
}

/// The end of a sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// The sequence of the first record.
    pub first_sequence: u64,
    /// The sequence after the last record.
    pub end_sequence: u64,
    /// Where the records end and the index begins.
    pub data_end: u64,
    /// The first sequence the log kept when the segment was sealed.
    pub start: u64,
    /// How many places the index has.
    pub index_entries: u32,
    /// The checksum of the index.
    pub index_crc: u32,
}

impl Trailer {
    /// How long the whole file is.
    pub fn file_bytes(&self) -> u64 {
        self.data_end + u64::from(self.index_entries) * INDEX_ENTRY_BYTES as u64 + TRAILER_BYTES as u64
    }

    /// The bytes to write into this segment.
    pub fn encode(&self, key: &SegmentKey) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[4..8].copy_from_slice(&TRAILER_WORD);
        bytes[8..16].copy_from_slice(&key.identity.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.end_sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.data_end.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.start.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.index_entries.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.index_crc.to_le_bytes());
        let crc = crc32c_append(key.seed, &bytes[4..]);
        bytes[0..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The trailer of this segment, whose file has `file_bytes`.
    pub fn decode(bytes: &[u8], key: &SegmentKey, file_bytes: u64) -> Result<Self, Mismatch> {
        let Some(bytes) = bytes.first_chunk::<TRAILER_BYTES>() else {
            return Err(Mismatch { found: crc32c_append(key.seed, bytes), expected: 0 });
        };
        let mismatch = Mismatch { found: crc32c_append(key.seed, &bytes[4..]), expected: u32_at(bytes, 0) };
        let trailer = Self {
            first_sequence: u64_at(bytes, 16),
            end_sequence: u64_at(bytes, 24),
            data_end: u64_at(bytes, 32),
            start: u64_at(bytes, 40),
            index_entries: u32_at(bytes, 48),
            index_crc: u32_at(bytes, 52),
        };
        let ours = mismatch.found == mismatch.expected
            && bytes[4..8] == TRAILER_WORD
            && u64_at(bytes, 8) == key.identity
            && (DATA_START..=file_bytes).contains(&trailer.data_end)
            && trailer.file_bytes() == file_bytes
            && trailer.first_sequence <= trailer.end_sequence;
        if ours { Ok(trailer) } else { Err(mismatch) }
    }
}

/// The name of a segment's file.
pub fn segment_file_name(id: u64) -> String {
    format!("{id:016x}.seg")
}

/// The name of a file that waits to become a segment.
pub fn free_file_name(id: u64) -> String {
    format!("{id:016x}.free")
}

/// What a file of a log's folder is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileName {
    /// A segment.
    Segment(u64),
    /// A file that waits to become one, or was to become one when the process ended.
    Free(u64),
}

impl FileName {
    /// `None` if it is no file of ours.
    pub fn parse(name: &str) -> Option<Self> {
        let (digits, suffix) = name.split_once('.')?;
        let canonical =
            digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let id = if canonical { u64::from_str_radix(digits, 16).ok()? } else { return None };
        match suffix {
            "seg" => Some(Self::Segment(id)),
            "free" => Some(Self::Free(id)),
            _ => None,
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the caller checked the length"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the caller checked the length"))
}

#[cfg(test)]
mod tests;
