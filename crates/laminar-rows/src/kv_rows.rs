//! Payloads of kv streams with columns: one operation a row, laid out as in `bytes_rows.rs`.
//!
//! ```text
//!  key    the key bytes of the row (key.rs)
//!  value  the row as a payload of kind 1 (encode.rs), not compressed; none if the row has columns beside its key and
//!         all of them are null: it removes the key
//! ```

use arrow_array::{Array, RecordBatch, new_null_array};
use arrow_select::concat::concat_batches;
use bytes::Bytes;

use crate::bytes_rows::{check_size, operations, put_operation};
use crate::encode::{Encoder, decode};
use crate::error::RowsError;
use crate::key::KeyColumns;
use crate::key_decode::decode_keys;
use crate::schema::StreamSchema;

/// The payload of a record with the rows of a kv stream, which must have the stream's columns.
///
/// # Errors
///
/// Invalid: the stream has no key, or the batch is too large.
pub fn encode_kv(batch: &RecordBatch, schema: &StreamSchema) -> Result<Bytes, RowsError> {
    let columns = KeyColumns::new(batch, schema)?;
    let mut encoder = Encoder::default();
    let (mut payload, mut key) = (Vec::new(), Vec::new());
    for row in 0..batch.num_rows() {
        key.clear();
        columns.append(row, &mut key);
        let value = if is_tombstone(batch, schema, row) {
            None
        } else {
            Some(encoder.encode_plain(&batch.slice(row, 1))?)
        };
        put_operation(&mut payload, &key, value.as_deref());
        check_size(payload.len(), batch.num_rows())?;
    }
    Ok(payload.into())
}

/// All rows of a payload in order; a removed key is a row in which everything else is null.
///
/// # Errors
///
/// Corrupt: the payload is not what [`encode_kv`] gives for this schema.
pub fn decode_kv_payload(payload: &Bytes, schema: &StreamSchema) -> Result<RecordBatch, RowsError> {
    let operations = operations(payload)?;
    let key = |row: usize| &payload[operations[row].key.clone()];
    let removed: Vec<usize> = (0..operations.len()).filter(|row| operations[*row].value.is_none()).collect();
    let removed = removed_rows(&removed.into_iter().map(key).collect::<Vec<_>>(), schema)?;
    let mut next_removed = 0;
    let mut rows = Vec::with_capacity(operations.len());
    for operation in &operations {
        rows.push(match &operation.value {
            Some(value) => decode_row(&payload.slice(value.clone()), schema)?,
            None => {
                next_removed += 1;
                removed.slice(next_removed - 1, 1)
            }
        });
    }
    let batch = concat_batches(schema.arrow(), &rows).map_err(RowsError::arrow("merged"))?;
    // The machine goes by the key, and whoever reads by the row: they must say the same.
    let columns = KeyColumns::new(&batch, schema)?;
    let mut found = Vec::new();
    for row in 0..batch.num_rows() {
        found.clear();
        columns.append(row, &mut found);
        if found != key(row) {
            return Err(RowsError::KeyMismatch { row });
        }
    }
    Ok(batch)
}

/// The rows that a kv machine gave as values.
///
/// # Errors
///
/// Corrupt: a value is not one row of this schema.
pub fn decode_kv_rows(values: &[Bytes], schema: &StreamSchema) -> Result<RecordBatch, RowsError> {
    let rows = values.iter().map(|value| decode_row(value, schema)).collect::<Result<Vec<_>, _>>()?;
    concat_batches(schema.arrow(), &rows).map_err(RowsError::arrow("merged"))
}

fn decode_row(value: &Bytes, schema: &StreamSchema) -> Result<RecordBatch, RowsError> {
    let row = decode(value, schema)?;
    if row.num_rows() != 1 {
        return Err(RowsError::malformed("the value of a key is not one row", 0));
    }
    Ok(row)
}

fn is_tombstone(batch: &RecordBatch, schema: &StreamSchema, row: usize) -> bool {
    let key = schema.key_places();
    key.len() < batch.num_columns()
        && (0..batch.num_columns()).all(|place| key.contains(&place) || batch.column(place).is_null(row))
}

/// Rows of these keys in which everything else is null.
fn removed_rows(keys: &[&[u8]], schema: &StreamSchema) -> Result<RecordBatch, RowsError> {
    let mut key_columns = decode_keys(keys, schema)?.into_iter();
    let mut columns: Vec<_> = vec![None; schema.arrow().fields().len()];
    for place in schema.key_places() {
        columns[*place] = key_columns.next();
    }
    let fields = schema.arrow().fields();
    let columns = columns.into_iter().zip(fields).map(|(column, field)| match column {
        Some(column) => Ok(column),
        None if keys.is_empty() || field.is_nullable() => Ok(new_null_array(field.data_type(), keys.len())),
        None => Err(RowsError::malformed("a row is removed, and a column beside its key may not be null", 0)),
    });
    schema.batch(columns.collect::<Result<_, _>>()?, keys.len())
}
