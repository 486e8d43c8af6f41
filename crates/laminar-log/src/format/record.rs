//! One record: a fixed header, and a body by its kind.

use bytes::{BufMut, Bytes};
use crc32c::{crc32c, crc32c_append};
use laminar_core::ids::{Epoch, NodeId, PartitionId};

use super::cursor::Cursor;
use super::{FORMAT_VERSION, FormatError};
use crate::entry::{
    Append, BlockId, BlockPointer, Change, Fence, MachineKind, PartitionRecord, Payload, Record, TrimTo,
};
use crate::log_id::PartitionLogIndex;

/// A record without its body.
pub const RECORD_HEADER_BYTES: usize = 32;
const RECORD: &str = "record";
const FLAG_POINTER: u16 = 1;
const FLAG_END: u16 = 1;
const POINTER_BYTES: usize = 16 + 8 + 8 + 8;
const APPEND_BYTES: usize = 8;

mod kind {
    pub(super) const APPEND: u8 = 1;
    pub(super) const FENCE: u8 = 2;
    pub(super) const CREATE: u8 = 3;
    pub(super) const DESTROY: u8 = 4;
    pub(super) const EXPIRE_STAGE: u8 = 5;
    pub(super) const TRIM: u8 = 6;
    pub(super) const SKIP: u8 = 7;
    pub(super) const NOOP: u8 = 8;
    pub(super) const MINT_PRODUCER: u8 = 9;
    pub(super) const EXPECT_END: u8 = 10;
    pub(super) const FORGET_QUERIES: u8 = 11;
}

/// What stands before the body of every record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentedRecordHeader {
    /// What the record is; see the drawing.
    pub kind: u8,
    /// By kind.
    pub flags: u16,
    /// The partition, or 0.
    pub partition: u32,
    /// The owner, or 0.
    pub owner: u64,
    /// The epoch, or 0.
    pub epoch: u64,
    /// The bytes of the body.
    pub length: u32,
    /// The checksum of header and body.
    pub checksum: u32,
}

impl SegmentedRecordHeader {
    /// The header that these bytes begin with. The body is not looked at.
    pub fn decode(bytes: &Bytes, at: usize) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new(bytes, at, RECORD);
        cursor.version()?;
        Ok(Self {
            kind: cursor.u8()?,
            flags: cursor.u16()?,
            partition: cursor.u32()?,
            owner: cursor.u64()?,
            epoch: cursor.u64()?,
            length: cursor.u32()?,
            checksum: cursor.u32()?,
        })
    }
}

/// How many bytes a record takes.
pub fn encoded_record_bytes(record: &Record) -> usize {
    RECORD_HEADER_BYTES
        + match record {
            Record::Partition(record) => body_bytes(&record.change),
            Record::ExpireStage(blocks) => blocks.len() * 16,
            Record::ForgetQueries(names) => names.len(),
            Record::MintProducer | Record::Noop => 0,
        }
}

pub(super) fn body_bytes(change: &Change) -> usize {
    match change {
        Change::Append(append) => {
            APPEND_BYTES
                + match &append.payload {
                    Payload::Inline(bytes) => bytes.len(),
                    Payload::Pointer(pointer) => POINTER_BYTES + pointer.path.len(),
                }
        }
        Change::Fence(_) => 24,
        Change::Create(_) => 1,
        Change::Destroy => 0,
        Change::Trim(_) | Change::Skip(_) | Change::ExpectEnd(_) => 8,
    }
}

/// Appends a record to `buffer`.
pub(super) fn put_record(buffer: &mut Vec<u8>, record: &Record) {
    match record {
        Record::Partition(record) => put_partition_record(buffer, record),
        Record::ExpireStage(blocks) => {
            let begin = put_header(buffer, kind::EXPIRE_STAGE, 0, None);
            blocks.iter().for_each(|block| buffer.put_u128_le(block.0));
            finish(buffer, begin);
        }
        Record::MintProducer => {
            let begin = put_header(buffer, kind::MINT_PRODUCER, 0, None);
            finish(buffer, begin);
        }
        Record::ForgetQueries(names) => {
            let begin = put_header(buffer, kind::FORGET_QUERIES, 0, None);
            buffer.extend_from_slice(names.as_bytes());
            finish(buffer, begin);
        }
        Record::Noop => {
            let begin = put_header(buffer, kind::NOOP, 0, None);
            finish(buffer, begin);
        }
    }
}

/// Appends a partition's record to `buffer`.
pub(super) fn put_partition_record(buffer: &mut Vec<u8>, record: &PartitionRecord) {
    let (kind, flags) = match &record.change {
        Change::Append(append) => {
            (kind::APPEND, u16::from(matches!(append.payload, Payload::Pointer(_))) * FLAG_POINTER)
        }
        Change::Fence(_) => (kind::FENCE, 0),
        Change::Create(_) => (kind::CREATE, 0),
        Change::Destroy => (kind::DESTROY, 0),
        Change::Trim(to) => (kind::TRIM, u16::from(*to == TrimTo::End) * FLAG_END),
        Change::Skip(_) => (kind::SKIP, 0),
        Change::ExpectEnd(_) => (kind::EXPECT_END, 0),
    };
    let begin = put_header(buffer, kind, flags, Some(record));
    match &record.change {
        Change::Append(append) => put_append(buffer, append),
        Change::Fence(fence) => {
            buffer.put_u128_le(fence.run);
            buffer.put_u64_le(fence.metadata_index);
        }
        Change::Create(machine) => buffer.put_u8(machine_number(*machine)),
        Change::Destroy => {}
        Change::Trim(TrimTo::Offset(offset)) => buffer.put_u64_le(*offset),
        Change::Trim(TrimTo::End) => buffer.put_u64_le(0),
        Change::Skip(index) => buffer.put_u64_le(index.0),
        Change::ExpectEnd(offset) => buffer.put_u64_le(*offset),
    }
    finish(buffer, begin);
}

fn put_append(buffer: &mut Vec<u8>, append: &Append) {
    buffer.put_u32_le(append.rows);
    buffer.put_u8(append.create.map_or(0, machine_number));
    buffer.put_bytes(0, 3);
    match &append.payload {
        Payload::Inline(bytes) => buffer.extend_from_slice(bytes),
        Payload::Pointer(pointer) => {
            buffer.put_u128_le(pointer.block.0);
            buffer.put_u64_le(pointer.begin);
            buffer.put_u64_le(pointer.length);
            buffer.put_u64_le(pointer.checksum);
            buffer.extend_from_slice(pointer.path.as_bytes());
        }
    }
}

fn put_header(buffer: &mut Vec<u8>, kind: u8, flags: u16, record: Option<&PartitionRecord>) -> usize {
    let begin = buffer.len();
    buffer.put_u8(FORMAT_VERSION);
    buffer.put_u8(kind);
    buffer.put_u16_le(flags);
    buffer.put_u32_le(record.map_or(0, |record| record.partition.0));
    buffer.put_u64_le(record.map_or(0, |record| record.owner.0));
    buffer.put_u64_le(record.map_or(0, |record| record.epoch.get()));
    buffer.put_u64_le(0);
    begin
}

/// Fills in length and checksum of the record that begins there.
fn finish(buffer: &mut [u8], begin: usize) {
    let record = &mut buffer[begin..];
    let length =
        u32::try_from(record.len() - RECORD_HEADER_BYTES).expect("entries are capped far below 4 GiB");
    record[24..28].copy_from_slice(&length.to_le_bytes());
    let crc = checksum(record);
    record[28..32].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(record: &[u8]) -> u32 {
    crc32c_append(crc32c(&record[..28]), &record[RECORD_HEADER_BYTES..])
}

/// The record at `at`, and where the next one begins.
pub(super) fn decode_record(bytes: &Bytes, at: usize) -> Result<(Record, usize), FormatError> {
    let header = SegmentedRecordHeader::decode(bytes, at)?;
    let mut cursor = Cursor::new(bytes, at, RECORD);
    let record = cursor.slice(RECORD_HEADER_BYTES + header.length as usize)?;
    let end = cursor.at();
    let found = checksum(record);
    if found != header.checksum {
        return Err(FormatError::Damaged { what: RECORD, at, found, expected: header.checksum });
    }
    let mut body = Cursor::new(bytes, at + RECORD_HEADER_BYTES, RECORD);
    let decoded = decode_body(&header, at, &mut body, end)?;
    body.end(end)?;
    Ok((decoded, end))
}

fn decode_body(
    header: &SegmentedRecordHeader,
    at: usize,
    body: &mut Cursor<'_>,
    end: usize,
) -> Result<Record, FormatError> {
    let value = |within: usize, found: u64| FormatError::Value { what: RECORD, at: at + within, found };
    let flags_known = match header.kind {
        kind::APPEND => FLAG_POINTER,
        kind::TRIM => FLAG_END,
        _ => 0,
    };
    if header.flags & !flags_known != 0 {
        return Err(value(2, u64::from(header.flags)));
    }
    let change = match header.kind {
        kind::EXPIRE_STAGE | kind::NOOP | kind::MINT_PRODUCER | kind::FORGET_QUERIES => {
            if (header.partition, header.owner, header.epoch) != (0, 0, 0) {
                return Err(value(4, u64::from(header.partition)));
            }
            return match header.kind {
                kind::NOOP => Ok(Record::Noop),
                kind::MINT_PRODUCER => Ok(Record::MintProducer),
                kind::FORGET_QUERIES => Ok(Record::ForgetQueries(text(body, end)?)),
                _ => {
                    let mut blocks = Vec::with_capacity((end - body.at()) / 16);
                    while body.at() < end {
                        blocks.push(BlockId(body.u128()?));
                    }
                    Ok(Record::ExpireStage(blocks))
                }
            };
        }
        kind::APPEND => Change::Append(decode_append(header, body, end)?),
        kind::FENCE => Change::Fence(Fence { run: body.u128()?, metadata_index: body.u64()? }),
        kind::CREATE => {
            let number = body.u8()?;
            Change::Create(machine(number).ok_or_else(|| body.bad_value(1, u64::from(number)))?)
        }
        kind::DESTROY => Change::Destroy,
        kind::TRIM => match (body.u64()?, header.flags & FLAG_END) {
            (0, FLAG_END) => Change::Trim(TrimTo::End),
            (offset, 0) => Change::Trim(TrimTo::Offset(offset)),
            (offset, _) => return Err(body.bad_value(8, offset)),
        },
        kind::SKIP => Change::Skip(PartitionLogIndex(body.u64()?)),
        kind::EXPECT_END => Change::ExpectEnd(body.u64()?),
        unknown => return Err(value(1, u64::from(unknown))),
    };
    let epoch = Epoch::new(header.epoch).map_err(|_| value(16, 0))?;
    let (partition, owner) = (PartitionId(header.partition), NodeId(header.owner));
    Ok(Record::Partition(PartitionRecord { partition, owner, epoch, change }))
}

fn decode_append(
    header: &SegmentedRecordHeader,
    body: &mut Cursor<'_>,
    end: usize,
) -> Result<Append, FormatError> {
    let rows = body.u32()?;
    let create = match body.u8()? {
        0 => None,
        number => Some(machine(number).ok_or_else(|| body.bad_value(1, u64::from(number)))?),
    };
    body.zeros(3)?;
    let payload = if header.flags & FLAG_POINTER == 0 {
        Payload::Inline(body.take(end - body.at())?)
    } else {
        let (block, begin) = (BlockId(body.u128()?), body.u64()?);
        let (length, checksum) = (body.u64()?, body.u64()?);
        let path = text(body, end)?;
        Payload::Pointer(Box::new(BlockPointer { block, begin, length, checksum, path }))
    };
    Ok(Append { rows, create, payload })
}

/// The text that the rest of a body is.
fn text(body: &mut Cursor<'_>, end: usize) -> Result<String, FormatError> {
    let bytes = body.slice(end.saturating_sub(body.at()))?;
    String::from_utf8(bytes.to_vec()).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        body.bad_value(bytes.len() - at, u64::from(bytes[at]))
    })
}

/// The number that stands for a machine in every format of this crate.
pub(crate) fn machine_number(machine: MachineKind) -> u8 {
    match machine {
        MachineKind::Log => 1,
        MachineKind::Kv => 2,
        MachineKind::Custom(number) => number.max(128),
    }
}

/// The machine that a number stands for.
pub(crate) fn machine(number: u8) -> Option<MachineKind> {
    match number {
        1 => Some(MachineKind::Log),
        2 => Some(MachineKind::Kv),
        128.. => Some(MachineKind::Custom(number)),
        _ => None,
    }
}
