//! Looks at all of a record batch message before Arrow reads it. Arrow checks the values, but trusts the message about
//! where buffers are and how long, and panics or asks for absurd memory where that is wrong.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::{
    BodyCompressionMethod, CompressionType, FieldNode, Message, MetadataVersion, root_as_message,
};
use arrow_schema::{DataType, Field, SchemaRef};
use bytes::Bytes;

use crate::encode::BATCH_BYTES_MAX;
use crate::error::RowsError;

/// More rows or nested values cannot be in a payload; with it no size below overflows.
const VALUES_MAX: u64 = 1 << 33;
/// LZ4 makes at most so many bytes from one.
const LZ4_RATIO_MAX: u64 = 256;
/// Before each compressed buffer stands its length.
const PREFIX_BYTES: u64 = 8;
/// The length of a buffer in a compressed body that is stored as it is.
const NOT_COMPRESSED: i64 = -1;

/// The message that metadata bytes hold.
pub(crate) fn message(metadata: &[u8], at: usize) -> Result<Message<'_>, RowsError> {
    root_as_message(metadata).map_err(|_| RowsError::malformed("the metadata is no Arrow message", at))
}

/// The rows of a message that holds columns of a schema.
pub(crate) fn batch(
    message: Message<'_>,
    body: Bytes,
    at: usize,
    schema: &SchemaRef,
) -> Result<RecordBatch, RowsError> {
    let bad = |what| RowsError::malformed(what, at);
    let version = message.version();
    if version != MetadataVersion::V5 {
        return Err(bad("the message has another version of Arrow IPC"));
    }
    let header = message.header_as_record_batch().ok_or_else(|| bad("the message is no record batch"))?;
    let compressed = match header.compression() {
        None => false,
        Some(compression) => {
            if compression.codec() != CompressionType::LZ4_FRAME
                || compression.method() != BodyCompressionMethod::BUFFER
            {
                return Err(bad("the body is compressed in an unknown way"));
            }
            true
        }
    };
    let nodes =
        header.nodes().ok_or_else(|| bad("there are no columns"))?.iter().copied().collect::<Vec<_>>();
    let buffers = header.buffers().ok_or_else(|| bad("there are no buffers"))?;
    let lengths = buffers
        .iter()
        .map(|buffer| buffer_bytes(buffer, &body, compressed))
        .collect::<Result<Vec<_>, _>>()
        .map_err(bad)?;
    if lengths.iter().sum::<u64>() > BATCH_BYTES_MAX + BATCH_BYTES_MAX / 4 {
        return Err(bad("it claims to have more bytes than a payload can"));
    }
    let variadic = header.variadicBufferCounts().map(|counts| counts.iter().collect::<Vec<_>>());
    let mut walk =
        Walk { nodes: &nodes, buffers: &lengths, variadic: variadic.as_deref().unwrap_or_default() };
    let rows = count(header.length()).map_err(bad)?;
    for field in schema.fields() {
        walk.field(field, Some(rows)).map_err(bad)?;
    }
    if !(walk.nodes.is_empty() && walk.buffers.is_empty() && walk.variadic.is_empty()) {
        return Err(bad("it has more columns than the stream"));
    }
    let dictionaries = Default::default();
    let decode = |buffer: &Buffer| {
        RecordBatchDecoder::try_new(buffer, header, Arc::clone(schema), &dictionaries, &version)?
            .read_record_batch()
    };
    decode(&Buffer::from(body)).map_err(|source| RowsError::InvalidArrow { source })
}

/// How many bytes a buffer has once it is read.
fn buffer_bytes(buffer: &arrow_ipc::Buffer, body: &[u8], compressed: bool) -> Result<u64, &'static str> {
    const OUTSIDE: &str = "a buffer lies outside of the body";
    let offset = usize::try_from(buffer.offset()).map_err(|_| OUTSIDE)?;
    let length = usize::try_from(buffer.length()).map_err(|_| OUTSIDE)?;
    let end = offset.checked_add(length).ok_or(OUTSIDE)?;
    let bytes = body.get(offset..end).ok_or(OUTSIDE)?;
    if !compressed || bytes.is_empty() {
        return Ok(length as u64);
    }
    let prefix = bytes.first_chunk::<8>().ok_or("a compressed buffer has no length")?;
    let stored = length as u64 - PREFIX_BYTES;
    match i64::from_le_bytes(*prefix) {
        NOT_COMPRESSED => Ok(stored),
        claimed => u64::try_from(claimed)
            .ok()
            .filter(|claimed| *claimed <= stored * LZ4_RATIO_MAX)
            .ok_or("a compressed buffer claims an impossible length"),
    }
}

fn count(number: i64) -> Result<u64, &'static str> {
    u64::try_from(number)
        .ok()
        .filter(|number| *number <= VALUES_MAX)
        .ok_or("a number of values is impossible")
}

/// What of a message no column has taken yet.
struct Walk<'a> {
    nodes: &'a [FieldNode],
    buffers: &'a [u64],
    variadic: &'a [i64],
}

impl Walk<'_> {
    /// Takes what a column consists of, and checks that its buffers are long enough for its values.
    fn field(&mut self, field: &Field, expected: Option<u64>) -> Result<(), &'static str> {
        let (node, rest) = self.nodes.split_first().ok_or("a column is missing")?;
        self.nodes = rest;
        let (values, nulls) = (count(node.length())?, count(node.null_count())?);
        if expected.is_some_and(|expected| expected != values) || nulls > values {
            return Err("a column has another number of values than the batch");
        }
        // Without nulls the bitmap may be left out.
        self.buffer(if nulls > 0 { values.div_ceil(8) } else { 0 })?;
        match field.data_type() {
            DataType::Boolean => self.buffer(values.div_ceil(8)),
            DataType::Utf8 | DataType::Binary => {
                self.offsets(values, 4)?;
                self.buffer(0)
            }
            DataType::LargeUtf8 | DataType::LargeBinary => {
                self.offsets(values, 8)?;
                self.buffer(0)
            }
            DataType::Utf8View | DataType::BinaryView => {
                self.whole(values, 16)?;
                let (buffers, rest) = self.variadic.split_first().ok_or("a number of buffers is missing")?;
                self.variadic = rest;
                (0..count(*buffers)?).try_for_each(|_| self.buffer(0))
            }
            DataType::FixedSizeBinary(width) => self.buffer(values * u64::from(width.unsigned_abs())),
            DataType::List(item) | DataType::Map(item, _) => {
                self.offsets(values, 4)?;
                self.field(item, None)
            }
            DataType::LargeList(item) => {
                self.offsets(values, 8)?;
                self.field(item, None)
            }
            DataType::FixedSizeList(item, length) => {
                let items = values.checked_mul(u64::from(length.unsigned_abs()));
                self.field(item, Some(items.ok_or("a number of values is impossible")?))
            }
            DataType::Struct(fields) => fields.iter().try_for_each(|field| self.field(field, Some(values))),
            other => {
                let width = other.primitive_width().ok_or("the stream has a type that is not stored")?;
                self.whole(values, width as u64)
            }
        }
    }

    fn offsets(&mut self, values: u64, width: u64) -> Result<(), &'static str> {
        self.whole(if values == 0 { 0 } else { values + 1 }, width)
    }

    /// A buffer of at least so many values. Arrow panics at one that ends within a value.
    fn whole(&mut self, values: u64, width: u64) -> Result<(), &'static str> {
        let ends_within = self.buffers.first().is_some_and(|bytes| bytes % width != 0);
        self.buffer(values * width)?;
        if ends_within { Err("a buffer ends within a value") } else { Ok(()) }
    }

    fn buffer(&mut self, least: u64) -> Result<(), &'static str> {
        let (bytes, rest) = self.buffers.split_first().ok_or("a buffer is missing")?;
        self.buffers = rest;
        if *bytes < least { Err("a buffer is too short for its values") } else { Ok(()) }
    }
}
