//! Payloads of streams of bytes: keys and values.
//!
//! ```text
//!   0            4              8
//!  +------------+--------------+-----+-------+
//!  | key length | value length | key | value |  again for each row
//!  | u32        | u32          |     |       |
//!  +------------+--------------+-----+-------+
//!   key length     0: there is no key
//!   value length   u32::MAX: there is no value; in a kv stream this removes the key
//! ```
//!
//! These are the operations that the kv machine of `laminar-log` applies (`machine/kv.rs`), byte for byte. They are
//! written here once more because clients that only encode rows should not have to build the log.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch};
use bytes::{BufMut, Bytes};

use crate::encode::BATCH_BYTES_MAX;
use crate::error::RowsError;
use crate::schema::StreamSchema;

const HEADER_BYTES: usize = 8;
const NO_VALUE: u32 = u32::MAX;

/// A batch of a stream of bytes.
///
/// # Errors
///
/// Invalid: there are not as many values as keys.
pub fn bytes_batch(keys: BinaryArray, values: BinaryArray) -> Result<RecordBatch, RowsError> {
    if keys.len() != values.len() {
        return Err(RowsError::LengthsDiffer { keys: keys.len(), values: values.len() });
    }
    let rows = keys.len();
    StreamSchema::bytes().batch(vec![Arc::new(keys), Arc::new(values)], rows)
}

/// The payload of a record with the rows of a stream of bytes. No key and the empty key are the same.
///
/// # Errors
///
/// Invalid: the batch does not have the columns of a stream of bytes, or is too large.
pub fn encode_bytes(batch: &RecordBatch) -> Result<Bytes, RowsError> {
    let batch = StreamSchema::bytes().conform(batch)?;
    let (keys, values) = (batch.column(0).as_binary::<i32>(), batch.column(1).as_binary::<i32>());
    encode_pairs(keys.iter().map(Option::unwrap_or_default).zip(values.iter()))
}

/// The payload of a record with keys and values that never were columns: what [`encode_bytes`] makes of the same rows.
///
/// # Errors
///
/// Invalid: they are too large.
pub fn encode_pairs<'a>(
    pairs: impl ExactSizeIterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone,
) -> Result<Bytes, RowsError> {
    let rows = pairs.len();
    let content: usize = pairs.clone().map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len)).sum();
    let mut payload = Vec::with_capacity(content.min(BATCH_BYTES_MAX as usize) + HEADER_BYTES * rows);
    for (key, value) in pairs {
        put_operation(&mut payload, key, value);
        check_size(payload.len(), rows)?;
    }
    Ok(payload.into())
}

/// The rows of a payload of a stream of bytes; the empty key comes back as none.
///
/// # Errors
///
/// Corrupt: the payload is not whole operations.
pub fn decode_bytes(payload: &Bytes) -> Result<RecordBatch, RowsError> {
    let operations = operations(payload)?;
    let keys = key_column(operations.iter().map(|operation| &payload[operation.key.clone()]));
    let mut values = BinaryBuilder::with_capacity(operations.len(), payload.len());
    for operation in &operations {
        values.append_option(operation.value.clone().map(|value| &payload[value]));
    }
    let rows = operations.len();
    StreamSchema::bytes().batch(vec![keys, Arc::new(values.finish())], rows)
}

/// The column of keys of a stream of bytes.
pub(crate) fn key_column<'a>(keys: impl Iterator<Item = &'a [u8]>) -> ArrayRef {
    Arc::new(BinaryArray::from_iter(keys.map(|key| (!key.is_empty()).then_some(key))))
}

/// Where the parts of an operation are in its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The key.
    pub key: std::ops::Range<usize>,
    /// The value; none removes the key.
    pub value: Option<std::ops::Range<usize>>,
}

/// Adds an operation to a payload. Neither key nor value may need more than 32 bits for its length.
pub fn put_operation(payload: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    payload.put_u32_le(key.len() as u32);
    payload.put_u32_le(value.map_or(NO_VALUE, |value| value.len() as u32));
    payload.extend_from_slice(key);
    payload.extend_from_slice(value.unwrap_or_default());
}

/// Refuses a payload that grew too large; until then no length needs more than 32 bits.
pub(crate) fn check_size(bytes: usize, rows: usize) -> Result<(), RowsError> {
    if bytes as u64 > BATCH_BYTES_MAX {
        return Err(RowsError::BatchTooLarge { rows, bytes: bytes as u64, limit: BATCH_BYTES_MAX });
    }
    Ok(())
}

/// The operations of a payload of a stream of bytes or a kv stream, one a row; nothing is decoded or copied.
///
/// # Errors
///
/// Corrupt: the payload is not whole operations.
pub fn operations(payload: &[u8]) -> Result<Vec<Operation>, RowsError> {
    if payload.len() as u64 > BATCH_BYTES_MAX {
        return Err(RowsError::malformed("it is longer than a payload can be", 0));
    }
    let mut operations = Vec::new();
    let mut at = 0;
    while at < payload.len() {
        let cut = || RowsError::malformed("an operation is cut short", at);
        let number = |begin: usize| {
            let bytes = payload.get(begin..begin + 4).ok_or_else(cut)?;
            Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let (key, value) = (number(at)? as usize, number(at + 4)?);
        let key = at + HEADER_BYTES..at + HEADER_BYTES + key;
        let value = (value != NO_VALUE).then(|| key.end..key.end + value as usize);
        let end = value.as_ref().map_or(key.end, |value| value.end);
        if end > payload.len() {
            return Err(cut());
        }
        operations.push(Operation { key, value });
        at = end;
    }
    Ok(operations)
}
