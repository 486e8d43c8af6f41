//! The payload of a record of a stream with columns.
//!
//! ```text
//!  kind 1: the rows of one batch; the columns are the stream's
//!   0         1      2     4                 8                                      8 + length
//!  +---------+------+-----+-----------------+--------------------------------------+---------+
//!  | version | kind | 0   | metadata length | metadata: an Arrow IPC message       | body:   |
//!  | u8 = 1  | u8   | u16 | u32             | (flatbuffer RecordBatch), with zeros | buffers |
//!  |         |      |     |                 | to a multiple of 8                   |         |
//!  +---------+------+-----+-----------------+--------------------------------------+---------+
//!  the first 4 bytes stand where Arrow has its continuation mark, so metadata, body and each buffer begin at multiples
//!  of 8; with FF FF FF FF there, it is an encapsulated message of Arrow IPC
//!
//!  kind 2: reserved. A stream of bytes has no header: see bytes_rows.rs
//!
//!  kind 3: the rows of one batch with their columns
//!   0         1      2     4        8
//!  +---------+------+-----+--------+--------------------------------------------------------+
//!  | version | kind | 0   | 0      | an Arrow IPC stream: schema, one record batch, its end |
//!  | u8 = 1  | u8   | u16 | u32    |                                                        |
//!  +---------+------+-----+--------+--------------------------------------------------------+
//! ```
//!
//! The buffers of a body of more than 1 KiB are compressed with LZ4 (frames, as Arrow has it), if that saves an eighth; of more than 1 MiB,
//! if it does so with a part of the rows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::DataType;
use bytes::Bytes;

use crate::error::RowsError;
use crate::row_bytes::batch_bytes;
use crate::schema::StreamSchema;
use crate::{schema_bytes, verify};

const VERSION: u8 = 1;
const KIND_BATCH: u8 = 1;
const KIND_STREAM: u8 = 3;
const HEADER_BYTES: usize = 8;
const CONTINUATION: [u8; 4] = [0xff; 4];
/// What ends an Arrow IPC stream.
const STREAM_END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Smaller bodies are stored as they are.
const COMPRESS_FROM_BYTES: u64 = 1 << 10;
/// From this size on some rows are compressed first, to see whether it helps: one part of so many.
const SAMPLE_FROM_BYTES: u64 = 1 << 20;
const SAMPLE_OF: usize = 32;
/// The most bytes of rows in one payload, before compression. Readers refuse what claims to have more.
pub(crate) const BATCH_BYTES_MAX: u64 = 1 << 30;

/// The payload of a record with the rows of a batch, which must have the stream's columns.
///
/// # Errors
///
/// Invalid: the batch is too large. Internal: Arrow could not write it.
pub fn encode(batch: &RecordBatch) -> Result<Bytes, RowsError> {
    let message = Encoder::default().message(batch, true)?;
    Ok(assemble([VERSION, KIND_BATCH, 0, 0], &message))
}

/// As [`encode`], in two pieces that follow each other: the second, with the rows, can be large and need not be copied.
///
/// # Errors
///
/// As [`encode`].
pub fn encode_pieces(batch: &RecordBatch) -> Result<[Bytes; 2], RowsError> {
    let message = Encoder::default().message(batch, true)?;
    let head = assemble_head([VERSION, KIND_BATCH, 0, 0], &message, 0);
    Ok([head.into(), message.arrow_data.into()])
}

/// The payload of a record with the rows of a batch and its columns.
///
/// # Errors
///
/// As [`encode`].
pub fn encode_with_schema(batch: &RecordBatch) -> Result<Bytes, RowsError> {
    let message = Encoder::default().message(batch, true)?;
    let mut payload = vec![VERSION, KIND_STREAM, 0, 0, 0, 0, 0, 0];
    payload.extend_from_slice(&schema_bytes::write(batch.schema_ref())?);
    payload.extend_from_slice(&assemble(CONTINUATION, &message));
    payload.extend_from_slice(&STREAM_END);
    Ok(payload.into())
}

/// The rows of a payload. Its columns share the payload's memory where that is aligned and not compressed.
///
/// # Errors
///
/// Corrupt: the payload is not what [`encode`] or [`encode_with_schema`] gives for this schema. Invalid: a payload with
/// columns of its own that do not fit the stream's.
pub fn decode(payload: &Bytes, schema: &StreamSchema) -> Result<RecordBatch, RowsError> {
    let header = payload.first_chunk::<4>().ok_or_else(|| RowsError::malformed("it has no header", 0))?;
    let [version, kind, zero @ ..] = *header;
    if version != VERSION {
        return Err(RowsError::UnknownVersion { found: version, known: VERSION });
    }
    if zero != [0, 0] {
        return Err(RowsError::malformed("bytes that must be 0 are not", 2));
    }
    match kind {
        KIND_BATCH => {
            let (batch, end) = read_message(payload, 0, schema.arrow())?;
            if end != payload.len() {
                return Err(RowsError::malformed("bytes are left after the rows", end));
            }
            Ok(batch)
        }
        KIND_STREAM => schema.conform(&read_stream(payload)?),
        found => Err(RowsError::UnexpectedKind { found, expected: "columns" }),
    }
}

/// Writes batches without a header of their own, with buffers used again and again.
#[derive(Default)]
pub(crate) struct Encoder {
    context: IpcWriteContext,
}

impl Encoder {
    /// The payload of a batch as it is, for values that are stored one by one.
    pub(crate) fn encode_plain(&mut self, batch: &RecordBatch) -> Result<Bytes, RowsError> {
        let message = self.message(batch, false)?;
        Ok(assemble([VERSION, KIND_BATCH, 0, 0], &message))
    }

    fn message(&mut self, batch: &RecordBatch, compress: bool) -> Result<EncodedData, RowsError> {
        let batch = compact(batch)?;
        let bytes = batch_bytes(&batch);
        if bytes > BATCH_BYTES_MAX {
            return Err(RowsError::BatchTooLarge { rows: batch.num_rows(), bytes, limit: BATCH_BYTES_MAX });
        }
        if compress && bytes > COMPRESS_FROM_BYTES && self.sample_saves(&batch, bytes)? {
            let compressed = self.write(&batch, Some(CompressionType::LZ4_FRAME))?;
            if saves(&compressed, bytes) {
                return Ok(compressed);
            }
        }
        self.write(&batch, None)
    }

    /// Whether some rows of a large batch are worth compressing: if they are not, trying it with all would cost more than
    /// everything else.
    fn sample_saves(&mut self, batch: &RecordBatch, bytes: u64) -> Result<bool, RowsError> {
        let rows = batch.num_rows();
        let sample = rows / SAMPLE_OF;
        if bytes <= SAMPLE_FROM_BYTES || sample == 0 {
            return Ok(true);
        }
        let sample = compact(&batch.slice(rows / 2, sample))?;
        let compressed = self.write(&sample, Some(CompressionType::LZ4_FRAME))?;
        Ok(saves(&compressed, batch_bytes(&sample)))
    }

    fn write(
        &mut self,
        batch: &RecordBatch,
        compression: Option<CompressionType>,
    ) -> Result<EncodedData, RowsError> {
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)
            .and_then(|options| options.try_with_compression(compression))
            .map_err(RowsError::arrow("encoded"))?;
        // Streams have no dictionaries: conforming unpacked them.
        let mut dictionaries = DictionaryTracker::new(true);
        let (_, message) = IpcDataGenerator::default()
            .encode(batch, &mut dictionaries, &options, &mut self.context)
            .map_err(RowsError::arrow("encoded"))?;
        Ok(message)
    }
}

/// Whether compressed rows are worth the time of whoever reads them.
fn saves(compressed: &EncodedData, bytes: u64) -> bool {
    compressed.arrow_data.len() as u64 <= bytes - bytes / 8
}

/// Views of few rows can hold on to the buffers of many; those would all be written.
fn compact(batch: &RecordBatch) -> Result<RecordBatch, RowsError> {
    let is_view = |array: &ArrayRef| matches!(array.data_type(), DataType::Utf8View | DataType::BinaryView);
    if !batch.columns().iter().any(is_view) {
        return Ok(batch.clone());
    }
    let compact = |array: &ArrayRef| -> ArrayRef {
        match array.data_type() {
            DataType::Utf8View => Arc::new(array.as_string_view().gc()),
            DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
            _ => array.clone(),
        }
    };
    let columns = batch.columns().iter().map(compact).collect();
    RecordBatch::try_new(batch.schema(), columns).map_err(RowsError::arrow("made small"))
}

fn assemble(mark: [u8; 4], message: &EncodedData) -> Bytes {
    let mut payload = assemble_head(mark, message, message.arrow_data.len());
    payload.extend_from_slice(&message.arrow_data);
    payload.into()
}

/// Everything before the body, with room for so many bytes more.
fn assemble_head(mark: [u8; 4], message: &EncodedData, room: usize) -> Vec<u8> {
    let metadata = message.ipc_message.len().next_multiple_of(8);
    let mut payload = Vec::with_capacity(HEADER_BYTES + metadata + room);
    payload.extend_from_slice(&mark);
    let length = u32::try_from(metadata).expect("the metadata of a batch of at most 1 GiB is smaller");
    payload.extend_from_slice(&length.to_le_bytes());
    payload.extend_from_slice(&message.ipc_message);
    payload.resize(HEADER_BYTES + metadata, 0);
    payload
}

/// The rows of the message that begins at a place, and where it ends.
fn read_message(
    payload: &Bytes,
    begin: usize,
    schema: &arrow_schema::SchemaRef,
) -> Result<(RecordBatch, usize), RowsError> {
    let cut = || RowsError::malformed("the message is cut short", begin);
    let length = payload.get(begin + 4..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(cut)?;
    let metadata_begin = begin + HEADER_BYTES;
    let metadata_end = metadata_begin + u32::from_le_bytes(*length) as usize;
    let metadata = payload.get(metadata_begin..metadata_end).ok_or_else(cut)?;
    let message = verify::message(metadata, metadata_begin)?;
    let body_bytes = usize::try_from(message.bodyLength()).map_err(|_| cut())?;
    let end = metadata_end.checked_add(body_bytes).filter(|end| *end <= payload.len()).ok_or_else(cut)?;
    let batch = verify::batch(message, payload.slice(metadata_end..end), metadata_end, schema)?;
    Ok((batch, end))
}

fn read_stream(payload: &Bytes) -> Result<RecordBatch, RowsError> {
    let begin = HEADER_BYTES;
    let cut = || RowsError::malformed("the stream is cut short", begin);
    if payload.get(4..begin).ok_or_else(cut)? != [0; 4] {
        return Err(RowsError::malformed("bytes that must be 0 are not", 4));
    }
    let mark = |at: usize| payload.get(at..).is_some_and(|rest| rest.starts_with(&CONTINUATION));
    if !mark(begin) {
        return Err(RowsError::malformed("the schema does not begin with its mark", begin));
    }
    let length = payload.get(begin + 4..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(cut)?;
    let schema_end = begin + 8 + u32::from_le_bytes(*length) as usize;
    let schema = schema_bytes::read(payload.get(begin..schema_end).ok_or_else(cut)?)?;
    // The same rules as for a stream: what they refuse was never written.
    let schema = StreamSchema::from_arrow(Arc::new(schema), &[])?;
    if !mark(schema_end) {
        return Err(RowsError::malformed("the rows do not begin with their mark", schema_end));
    }
    let (batch, end) = read_message(payload, schema_end, schema.arrow())?;
    if payload[end..] != STREAM_END {
        return Err(RowsError::malformed("the stream does not end after the rows", end));
    }
    Ok(batch)
}
