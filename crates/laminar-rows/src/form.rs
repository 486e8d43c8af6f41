//! One way to encode and decode the rows of any stream, by the form of its payloads.

use arrow_array::RecordBatch;
use bytes::Bytes;

use crate::error::RowsError;
use crate::schema::{RowForm, StreamSchema};
use crate::{bytes_rows, encode, kv_rows};

impl RowForm {
    /// The payload of a record with the rows of a batch, which must have the stream's columns.
    ///
    /// # Errors
    ///
    /// Invalid: the batch is too large, or the stream lacks the key that the form needs.
    pub fn encode(self, batch: &RecordBatch, schema: &StreamSchema) -> Result<Bytes, RowsError> {
        match self {
            RowForm::Arrow => encode::encode(batch),
            RowForm::Bytes => bytes_rows::encode_bytes(batch),
            RowForm::Kv => kv_rows::encode_kv(batch, schema),
        }
    }

    /// The rows of a payload.
    ///
    /// # Errors
    ///
    /// Corrupt: the payload is not what encoding gives for this schema.
    pub fn decode(self, payload: &Bytes, schema: &StreamSchema) -> Result<RecordBatch, RowsError> {
        match self {
            RowForm::Arrow => encode::decode(payload, schema),
            RowForm::Bytes => bytes_rows::decode_bytes(payload),
            RowForm::Kv => kv_rows::decode_kv_payload(payload, schema),
        }
    }
}
