//! Columns that tell where a row stands in the log.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::error::RowsError;

/// The names of the columns that [`with_metadata`] adds; streams cannot have columns of these names.
pub const METADATA_COLUMNS: [&str; 4] = ["_partition", "_offset", "_timestamp", "_epoch"];

/// Where the rows of a record stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPlace {
    /// The partition, counted within its stream.
    pub partition: u32,
    /// The offset of the first row.
    pub first_offset: u64,
    /// When the rows were appended, in milliseconds since 1970.
    pub time_ms: i64,
    /// The epoch they were appended at.
    pub epoch: u64,
}

/// The fields that [`with_metadata`] adds, in their order.
pub fn metadata_fields() -> [Field; 4] {
    let timestamp = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let [partition, offset, time, epoch] = METADATA_COLUMNS;
    [
        Field::new(partition, DataType::Int32, false),
        Field::new(offset, DataType::Int64, false),
        Field::new(time, timestamp, false),
        Field::new(epoch, DataType::Int64, false),
    ]
}

/// The batch with columns after its own that tell where each row stands: `_partition`, `_offset`, `_timestamp`, `_epoch`.
///
/// # Errors
///
/// Invalid: a number that a signed column cannot show.
pub fn with_metadata(batch: &RecordBatch, place: RowPlace) -> Result<RecordBatch, RowsError> {
    let rows = batch.num_rows();
    let too_large = |what, value, limit| RowsError::NumberTooLarge { what, value, limit };
    let signed = |what, value: u64| i64::try_from(value).map_err(|_| too_large(what, value, i64::MAX as u64));
    let partition = i32::try_from(place.partition)
        .map_err(|_| too_large("the partition", place.partition.into(), i32::MAX as u64))?;
    let end = place.first_offset.saturating_add(rows as u64);
    let (first, end) = (signed("the offset", place.first_offset)?, signed("the offset", end)?);
    let epoch = signed("the epoch", place.epoch)?;
    let columns: [ArrayRef; 4] = [
        Arc::new(Int32Array::from_value(partition, rows)),
        Arc::new(Int64Array::from_iter_values(first..end)),
        Arc::new(TimestampMillisecondArray::from_value(place.time_ms, rows).with_timezone("UTC")),
        Arc::new(Int64Array::from_value(epoch, rows)),
    ];
    let fields = batch.schema_ref().fields().iter().map(|field| field.as_ref().clone());
    let fields: Vec<Field> = fields.chain(metadata_fields()).collect();
    let schema = Schema::new_with_metadata(fields, batch.schema_ref().metadata().clone());
    let columns = batch.columns().iter().cloned().chain(columns).collect();
    RecordBatch::try_new(Arc::new(schema), columns).map_err(RowsError::arrow("given their places"))
}
