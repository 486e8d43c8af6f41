//! A whole entry.

use bytes::{BufMut, Bytes};
use crc32c::{crc32c, crc32c_append};

use super::cursor::Cursor;
use super::record::{decode_record, encoded_record_bytes, put_record};
use super::{FORMAT_VERSION, FormatError, RECORD_HEADER_BYTES};
use crate::entry::{BatchId, Entry, Producer, ProducerId};

/// An entry without prefix and records.
pub const ENTRY_HEADER_BYTES: usize = 24;
const ENTRY: &str = "entry";
const FLAG_PRODUCER: u8 = 1;
const FLAG_BATCH: u8 = 2;

/// The bytes of an entry.
pub fn encode_entry(entry: &Entry) -> Bytes {
    let prefix =
        entry.producer.map_or(0, |_| 24) + entry.batch.as_ref().map_or(0, |batch| 8 + batch.query.len());
    let records: usize = entry.records.iter().map(encoded_record_bytes).sum();
    let mut buffer = Vec::with_capacity(ENTRY_HEADER_BYTES + prefix + records);
    buffer.put_u8(FORMAT_VERSION);
    buffer.put_u8(
        u8::from(entry.producer.is_some()) * FLAG_PRODUCER + u8::from(entry.batch.is_some()) * FLAG_BATCH,
    );
    buffer.put_bytes(0, 6);
    buffer.put_u32_le(u32::try_from(entry.records.len()).expect("records of 32 bytes and more fit an entry"));
    buffer.put_u32_le(u32::try_from(prefix).expect("the name of a query is short"));
    buffer.put_u64_le(entry.time_ms);
    if let Some(producer) = &entry.producer {
        buffer.put_u64_le(producer.id.0);
        buffer.put_u64_le(producer.sequence);
        buffer.put_u64_le(producer.checksum);
    }
    if let Some(batch) = &entry.batch {
        buffer.put_u64_le(batch.number);
        buffer.extend_from_slice(batch.query.as_bytes());
    }
    let crc = checksum(&buffer);
    buffer[4..8].copy_from_slice(&crc.to_le_bytes());
    entry.records.iter().for_each(|record| put_record(&mut buffer, record));
    buffer.into()
}

fn checksum(head: &[u8]) -> u32 {
    crc32c_append(crc32c(&head[..4]), &head[8..])
}

/// The entry that these bytes are. Payloads are parts of them, not copies.
pub fn decode_entry(bytes: &Bytes) -> Result<Entry, FormatError> {
    let mut cursor = Cursor::new(bytes, 0, ENTRY);
    cursor.version()?;
    let flags = cursor.u8()?;
    if flags & !(FLAG_PRODUCER | FLAG_BATCH) != 0 {
        return Err(cursor.bad_value(1, u64::from(flags)));
    }
    cursor.zeros(2)?;
    let (expected, count, prefix) = (cursor.u32()?, cursor.u32()? as usize, cursor.u32()? as usize);
    let time_ms = cursor.u64()?;
    cursor.slice(prefix)?;
    let (head, found) = (cursor.at(), checksum(&bytes[..cursor.at()]));
    if found != expected {
        return Err(FormatError::Damaged { what: ENTRY, at: 0, found, expected });
    }
    let mut cursor = Cursor::new(bytes, ENTRY_HEADER_BYTES, ENTRY);
    let producer = if flags & FLAG_PRODUCER == 0 {
        None
    } else {
        Some(Producer { id: ProducerId(cursor.u64()?), sequence: cursor.u64()?, checksum: cursor.u64()? })
    };
    let batch = if flags & FLAG_BATCH == 0 { None } else { Some(decode_batch(&mut cursor, head)?) };
    cursor.end(head)?;
    // A record has at least a header: a hostile count makes no room for more than there can be.
    let mut records = Vec::with_capacity(count.min((bytes.len() - head) / RECORD_HEADER_BYTES));
    let mut at = head;
    for _ in 0..count {
        let (record, next) = decode_record(bytes, at)?;
        records.push(record);
        at = next;
    }
    if at != bytes.len() {
        return Err(FormatError::Length { what: ENTRY, at, found: bytes.len() - at, expected: 0 });
    }
    Ok(Entry { time_ms, producer, batch, records })
}

fn decode_batch(cursor: &mut Cursor<'_>, head: usize) -> Result<BatchId, FormatError> {
    let number = cursor.u64()?;
    let at = cursor.at();
    let query = cursor.slice(head.saturating_sub(at))?;
    if query.is_empty() || query.len() > BatchId::QUERY_BYTES_MAX {
        let expected = BatchId::QUERY_BYTES_MAX;
        return Err(FormatError::Length { what: "name of a query", at, found: query.len(), expected });
    }
    match String::from_utf8(query.to_vec()) {
        Ok(query) => Ok(BatchId { query, number }),
        Err(error) => {
            let within = error.utf8_error().valid_up_to();
            let found = u64::from(query[within]);
            Err(FormatError::Value { what: "name of a query", at: at + within, found })
        }
    }
}
