//! A record as it stands in the log of its partition.

use bytes::{BufMut, Bytes};
use crc32c::{crc32c, crc32c_append};

use super::cursor::Cursor;
use super::record::{body_bytes, decode_record, put_partition_record};
use super::{FORMAT_VERSION, FormatError, RECORD_HEADER_BYTES};
use crate::entry::Record;
use crate::log_id::{LogId, PartitionLogIndex};
use crate::verdict::AcceptedRecord;

/// What the copy in a partition's log adds to a record.
pub const STORED_HEADER_BYTES: usize = 48;
const STORED: &str = "stored record";

/// What `apply` gave a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredHeader {
    /// Its place in the partition's log.
    pub index: PartitionLogIndex,
    /// The offset of its first row.
    pub first_offset: u64,
    /// The entry that it was accepted from.
    pub log_id: LogId,
    /// The time of its rows.
    pub time_ms: u64,
}

impl StoredHeader {
    /// The header that these bytes begin with; the record is not looked at.
    pub fn decode(bytes: &Bytes) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new(bytes, 0, STORED);
        let head = cursor.slice(STORED_HEADER_BYTES)?;
        let found = checksum(head);
        let mut cursor = Cursor::new(bytes, 0, STORED);
        cursor.version()?;
        cursor.zeros(3)?;
        let expected = cursor.u32()?;
        if found != expected {
            return Err(FormatError::Damaged { what: STORED, at: 0, found, expected });
        }
        Ok(Self {
            index: PartitionLogIndex(cursor.u64()?),
            first_offset: cursor.u64()?,
            log_id: LogId::new(cursor.u64()?, cursor.u64()?),
            time_ms: cursor.u64()?,
        })
    }
}

fn checksum(head: &[u8]) -> u32 {
    crc32c_append(crc32c(&head[..4]), &head[8..STORED_HEADER_BYTES])
}

/// The bytes to store.
pub fn encode_stored(record: &AcceptedRecord) -> Bytes {
    let length = STORED_HEADER_BYTES + RECORD_HEADER_BYTES + body_bytes(&record.record.change);
    let mut buffer = Vec::with_capacity(length);
    buffer.put_u8(FORMAT_VERSION);
    buffer.put_bytes(0, 7);
    buffer.put_u64_le(record.index.0);
    buffer.put_u64_le(record.first_offset);
    buffer.put_u64_le(record.log_id.term);
    buffer.put_u64_le(record.log_id.index.0);
    buffer.put_u64_le(record.time_ms);
    let crc = checksum(&buffer);
    buffer[4..8].copy_from_slice(&crc.to_le_bytes());
    put_partition_record(&mut buffer, &record.record);
    buffer.into()
}

/// The record that was stored as these bytes.
pub fn decode_stored(bytes: &Bytes) -> Result<AcceptedRecord, FormatError> {
    let StoredHeader { index, first_offset, log_id, time_ms } = StoredHeader::decode(bytes)?;
    let (record, end) = decode_record(bytes, STORED_HEADER_BYTES)?;
    if end != bytes.len() {
        return Err(FormatError::Length { what: STORED, at: end, found: bytes.len() - end, expected: 0 });
    }
    match record {
        Record::Partition(record) => Ok(AcceptedRecord { index, first_offset, log_id, time_ms, record }),
        _ => Err(FormatError::Value { what: STORED, at: STORED_HEADER_BYTES + 1, found: 0 }),
    }
}
