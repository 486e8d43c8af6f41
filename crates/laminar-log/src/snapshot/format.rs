//! Every byte of a snapshot, encoded and decoded.
//!
//! All numbers are little-endian.
//!
//! ```text
//!  snapshot: head, verdict..., (partition, state..., rows..., partition end)..., end
//!
//!  frame
//!   0      1   4        8        12
//!  +------+---+--------+--------+------+
//!  | kind | 0 | length | crc32c | body |
//!  | u8   |   | u32    | u32    |      |
//!  +------+---+--------+--------+------+
//!   crc32c    of everything but itself
//!
//!   kind and body
//!    1 head           "LSNP", version u8, form u8, 0 u16, partitions u32, 0 u32, term u64, raft index u64, membership
//!    2 verdict        a piece of the verdict state
//!    3 partition      id u32, machine u8, 0 (3 bytes), applied u64, highest u64, first u64, start offset u64
//!    4 state          a piece of the machine's state
//!    5 rows           length u32, stored record; again and again
//!    6 partition end  state hash u64
//!    7 end            partitions u32, 0 u32, frames u64, records u64, bytes u64, xxh3 u64
//!   form              1 local, 2 streamed
//!   machine           1 log, 2 kv, from 128 those of the embedder
//!   end               frames, bytes and xxh3 are of everything before it
//! ```

use bytes::{Buf, BufMut, Bytes};
use crc32c::{crc32c, crc32c_append};
use laminar_core::ids::PartitionId;

use super::error::SnapshotError;
use super::frame::{Frame, SnapshotForm, SnapshotHead, SnapshotPartition, SnapshotSummary};
use crate::format::{FormatError, RECORD_HEADER_BYTES, STORED_HEADER_BYTES, machine, machine_number};
use crate::log_id::{LogId, PartitionLogIndex};

/// The version this release writes.
pub const SNAPSHOT_VERSION: u8 = 1;
/// The longest body of a frame.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
pub(super) const FRAME_HEADER_BYTES: usize = 12;
/// About how long frames of many small parts are made.
pub(super) const PART_BYTES: usize = 1 << 20;
const MAGIC: &[u8; 4] = b"LSNP";

mod kind {
    pub(super) const HEAD: u8 = 1;
    pub(super) const VERDICT: u8 = 2;
    pub(super) const PARTITION: u8 = 3;
    pub(super) const STATE: u8 = 4;
    pub(super) const ROWS: u8 = 5;
    pub(super) const PARTITION_END: u8 = 6;
    pub(super) const END: u8 = 7;
}

/// Header and body of a frame. The body is a part of the frame where it can be, and not a copy.
pub(super) fn encode_frame(frame: &Frame) -> Result<(Bytes, Bytes), SnapshotError> {
    let (kind, body) = match frame {
        Frame::Head(form, head) => (kind::HEAD, encode_head(*form, head)),
        Frame::Verdict(piece) => (kind::VERDICT, piece.clone()),
        Frame::Partition(partition) => (kind::PARTITION, encode_partition(partition)),
        Frame::State(piece) => (kind::STATE, piece.clone()),
        Frame::Rows(records) => (kind::ROWS, encode_rows(records)),
        Frame::PartitionEnd(hash) => (kind::PARTITION_END, Bytes::copy_from_slice(&hash.to_le_bytes())),
        Frame::End(summary) => (kind::END, encode_end(summary)),
    };
    if body.len() > FRAME_BYTES_MAX {
        return Err(SnapshotError::TooLarge { given: body.len() as u64, limit: FRAME_BYTES_MAX as u64 });
    }
    let mut header = Vec::with_capacity(FRAME_HEADER_BYTES);
    header.put_u8(kind);
    header.put_bytes(0, 3);
    header.put_u32_le(u32::try_from(body.len()).expect("it was checked against a smaller limit"));
    let crc = crc32c_append(crc32c(&header), &body);
    header.put_u32_le(crc);
    Ok((header.into(), body))
}

fn encode_head(form: SnapshotForm, head: &SnapshotHead) -> Bytes {
    let mut body = Vec::with_capacity(32 + head.membership.len());
    body.extend_from_slice(MAGIC);
    body.put_u8(SNAPSHOT_VERSION);
    body.put_u8(match form {
        SnapshotForm::Local => 1,
        SnapshotForm::Streamed => 2,
    });
    body.put_u16_le(0);
    body.put_u32_le(head.partitions);
    body.put_u32_le(0);
    body.put_u64_le(head.log_id.term);
    body.put_u64_le(head.log_id.index.0);
    body.extend_from_slice(&head.membership);
    body.into()
}

fn encode_partition(partition: &SnapshotPartition) -> Bytes {
    let mut body = Vec::with_capacity(40);
    body.put_u32_le(partition.partition.0);
    body.put_u8(machine_number(partition.machine));
    body.put_bytes(0, 3);
    body.put_u64_le(partition.applied.0);
    body.put_u64_le(partition.highest.0);
    body.put_u64_le(partition.first.0);
    body.put_u64_le(partition.start_offset);
    body.into()
}

fn encode_rows(records: &[Bytes]) -> Bytes {
    let mut body = Vec::with_capacity(records.iter().map(|record| 4 + record.len()).sum());
    for record in records {
        // Longer ones make the body longer than a frame may be.
        body.put_u32_le(u32::try_from(record.len()).unwrap_or(u32::MAX));
        body.extend_from_slice(record);
    }
    body.into()
}

fn encode_end(summary: &SnapshotSummary) -> Bytes {
    let mut body = Vec::with_capacity(40);
    body.put_u32_le(summary.partitions);
    body.put_u32_le(0);
    body.put_u64_le(summary.frames);
    body.put_u64_le(summary.records);
    body.put_u64_le(summary.bytes);
    body.put_u64_le(summary.hash);
    body.into()
}

/// The length of the body that comes behind this header, if kind and length can be.
pub(super) fn decode_header(header: &[u8; FRAME_HEADER_BYTES], at: u64) -> Result<usize, SnapshotError> {
    let mut rest = &header[..];
    let (kind, zeros, length) = (rest.get_u8(), rest.get_uint_le(3), rest.get_u32_le());
    let wrong = |what, at, found| FormatError::Value { what, at, found };
    let bad = |source| Err(SnapshotError::BadFrame { at, frame: "unknown", source });
    if !(kind::HEAD..=kind::END).contains(&kind) {
        return bad(wrong("kind of a frame", 0, u64::from(kind)));
    }
    if zeros != 0 {
        return bad(wrong("frame", 1, zeros));
    }
    if length as usize > FRAME_BYTES_MAX {
        return bad(wrong("length of a frame", 4, u64::from(length)));
    }
    Ok(length as usize)
}

/// The frame that these bytes are, header and body.
pub(super) fn decode_frame(frame: &Bytes, at: u64) -> Result<Frame, SnapshotError> {
    let (header, mut body) = (&frame[..FRAME_HEADER_BYTES], frame.slice(FRAME_HEADER_BYTES..));
    let expected = (&header[8..]).get_u32_le();
    let found = crc32c_append(crc32c(&header[..8]), &body);
    if found != expected {
        return Err(SnapshotError::Damaged { at, found, expected });
    }
    let (name, decoded) = match header[0] {
        kind::HEAD => ("head", decode_head(&mut body)?),
        kind::VERDICT => return Ok(Frame::Verdict(body)),
        kind::PARTITION => ("partition", decode_partition(&mut body)),
        kind::STATE => return Ok(Frame::State(body)),
        kind::ROWS => ("rows", decode_rows(&mut body)),
        kind::PARTITION_END => ("partition end", body.try_get_u64_le().ok().map(Frame::PartitionEnd)),
        _ => ("end", decode_end(&mut body)),
    };
    match decoded {
        Some(frame) if body.is_empty() => Ok(frame),
        _ => {
            let at_byte = frame.len() - body.len();
            let source = FormatError::Value { what: "frame", at: at_byte, found: body.len() as u64 };
            Err(SnapshotError::BadFrame { at, frame: name, source })
        }
    }
}

/// Bytes that say nothing yet.
fn zeros(body: &mut Bytes, count: usize) -> Option<()> {
    (body.len() >= count && body.split_to(count).iter().all(|byte| *byte == 0)).then_some(())
}

fn decode_head(body: &mut Bytes) -> Result<Option<Frame>, SnapshotError> {
    if body.len() < 5 || body[..4] != MAGIC[..] {
        return Ok(None);
    }
    match body[4] {
        SNAPSHOT_VERSION => {}
        0 => return Ok(None),
        found => return Err(SnapshotError::VersionTooNew { found }),
    }
    body.advance(5);
    Ok(decode_head_fields(body))
}

fn decode_head_fields(body: &mut Bytes) -> Option<Frame> {
    let form = match body.try_get_u8().ok()? {
        1 => SnapshotForm::Local,
        2 => SnapshotForm::Streamed,
        _ => return None,
    };
    zeros(body, 2)?;
    let partitions = body.try_get_u32_le().ok()?;
    zeros(body, 4)?;
    let log_id = LogId::new(body.try_get_u64_le().ok()?, body.try_get_u64_le().ok()?);
    let membership = body.split_to(body.len());
    Some(Frame::Head(form, SnapshotHead { log_id, membership, partitions }))
}

fn decode_partition(body: &mut Bytes) -> Option<Frame> {
    let partition = PartitionId(body.try_get_u32_le().ok()?);
    let machine = machine(body.try_get_u8().ok()?)?;
    zeros(body, 3)?;
    let mut index = || body.try_get_u64_le().ok();
    let (applied, highest, first) = (index()?, index()?, index()?);
    Some(Frame::Partition(SnapshotPartition {
        partition,
        machine,
        applied: PartitionLogIndex(applied),
        highest: PartitionLogIndex(highest),
        first: PartitionLogIndex(first),
        start_offset: index()?,
    }))
}

fn decode_rows(body: &mut Bytes) -> Option<Frame> {
    let mut records = Vec::new();
    while !body.is_empty() {
        let length = body.try_get_u32_le().ok()? as usize;
        // Shorter than any record: a hostile frame must not make room for millions of them.
        if length < STORED_HEADER_BYTES + RECORD_HEADER_BYTES || length > body.len() {
            return None;
        }
        records.push(body.split_to(length));
    }
    Some(Frame::Rows(records))
}

fn decode_end(body: &mut Bytes) -> Option<Frame> {
    let partitions = body.try_get_u32_le().ok()?;
    zeros(body, 4)?;
    let mut number = || body.try_get_u64_le().ok();
    let (frames, records, bytes) = (number()?, number()?, number()?);
    Some(Frame::End(SnapshotSummary { partitions, frames, records, bytes, hash: number()? }))
}
