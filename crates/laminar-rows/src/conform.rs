//! Makes batches fit a stream's schema: columns by name, types only where nothing is lost.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};

use crate::error::RowsError;
use crate::schema::{StreamSchema, column_names};
use crate::values::{check_inner_nulls, check_values};

impl StreamSchema {
    /// The batch with exactly the stream's columns. A missing column that may be null is null; types that carry the same
    /// values in another layout, and narrower numbers, are converted.
    ///
    /// # Errors
    ///
    /// Invalid: an unknown or missing column, a type or value that does not fit, text that is none, a null where there may
    /// be none.
    pub fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch, RowsError> {
        // Made here, of this schema: it was looked through when that was done.
        if Arc::ptr_eq(batch.schema_ref(), self.arrow()) {
            return Ok(batch.clone());
        }
        self.check_names(batch)?;
        let columns = self
            .arrow()
            .fields()
            .iter()
            .map(|field| match batch.column_by_name(field.name()) {
                Some(column) => conform_column(column, field),
                None if field.is_nullable() => Ok(new_null_array(field.data_type(), batch.num_rows())),
                None => Err(RowsError::MissingColumn { column: field.name().clone() }),
            })
            .collect::<Result<Vec<_>, _>>()?;
        self.batch(columns, batch.num_rows())
    }

    /// The key columns of a batch, in the order of the key and of the stream's types. Other columns may be missing.
    pub(crate) fn conform_key(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, RowsError> {
        self.key_fields()
            .map(|field| match batch.column_by_name(field.name()) {
                Some(column) => conform_column(column, field),
                None => Err(RowsError::MissingColumn { column: field.name().clone() }),
            })
            .collect()
    }

    /// A batch of columns that fit the schema.
    pub(crate) fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, RowsError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.arrow().clone(), columns, &options)
            .map_err(RowsError::arrow("put together"))
    }

    fn check_names(&self, batch: &RecordBatch) -> Result<(), RowsError> {
        let fields = batch.schema_ref().fields();
        for (place, field) in fields.iter().enumerate() {
            let column = field.name().clone();
            if self.arrow().index_of(&column).is_err() {
                return Err(RowsError::UnknownColumn { column, columns: column_names(self.arrow()) });
            }
            if fields[..place].iter().any(|before| before.name() == field.name()) {
                return Err(RowsError::DuplicateColumn { column });
            }
        }
        Ok(())
    }
}

fn conform_column(column: &ArrayRef, field: &FieldRef) -> Result<ArrayRef, RowsError> {
    let (found, expected) = (column.data_type(), field.data_type());
    let name = || field.name().clone();
    let column = if found == expected {
        check_values(column, field.name())?;
        column.clone()
    } else if *found == DataType::Null {
        new_null_array(expected, column.len())
    } else if is_harmless(found, expected) {
        // Before anything is made of them: converting believes what it is told.
        check_values(column, field.name())?;
        // Not safe in Arrow's sense: a value that does not fit is an error, not a null.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(column, expected, &options).map_err(|source| RowsError::ColumnValues {
            column: name(),
            found: found.clone(),
            expected: expected.clone(),
            source,
        })?
    } else {
        return Err(RowsError::ColumnType {
            column: name(),
            found: found.clone(),
            expected: expected.clone(),
        });
    };
    check_nulls(&column, field)?;
    check_inner_nulls(&column, field.name())?;
    Ok(column)
}

fn check_nulls(column: &ArrayRef, field: &Field) -> Result<(), RowsError> {
    if field.is_nullable() || column.null_count() == 0 {
        return Ok(());
    }
    let row = (0..column.len()).find(|row| column.is_null(*row)).unwrap_or(0);
    Err(RowsError::NullValue { column: field.name().clone(), row })
}

/// Whether every value of one type is a value of the other, so that converting loses nothing (or fails).
fn is_harmless(found: &DataType, expected: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Dictionary, FixedSizeBinary, FixedSizeList, Float16, Float32, Float64,
        LargeBinary, LargeList, LargeUtf8, List, Map, Struct, Timestamp, Utf8, Utf8View,
    };
    if found == expected {
        return true;
    }
    match (found, expected) {
        (Dictionary(_, values), expected) => is_harmless(values, expected),
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        (Binary | LargeBinary | BinaryView | FixedSizeBinary(_), Binary | LargeBinary | BinaryView) => true,
        (Float16, Float32 | Float64) | (Float32, Float64) => true,
        (Timestamp(from, zone), Timestamp(to, other)) => zone == other && is_finer(*to, *from),
        (List(from) | LargeList(from), List(to) | LargeList(to)) => is_harmless_field(from, to),
        (FixedSizeList(from, length), FixedSizeList(to, other)) => {
            length == other && is_harmless_field(from, to)
        }
        (Map(from, sorted), Map(to, other)) => sorted == other && is_harmless_field(from, to),
        (Struct(from), Struct(to)) => {
            from.len() == to.len()
                && from
                    .iter()
                    .zip(to)
                    .all(|(from, to)| from.name() == to.name() && is_harmless_field(from, to))
        }
        _ => is_wider_integer(found, expected),
    }
}

/// Fields inside of a type: Arrow checks their nulls when it puts the values together again.
fn is_harmless_field(from: &FieldRef, to: &FieldRef) -> bool {
    is_harmless(from.data_type(), to.data_type())
}

fn is_finer(unit: TimeUnit, than: TimeUnit) -> bool {
    let rank = |unit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    rank(unit) > rank(than)
}

fn is_wider_integer(found: &DataType, expected: &DataType) -> bool {
    if !(found.is_integer() && expected.is_integer()) {
        return false;
    }
    let (from, to) = (found.primitive_width(), expected.primitive_width());
    match (found.is_unsigned_integer(), expected.is_unsigned_integer()) {
        (false, true) => false,
        (true, false) | (true, true) | (false, false) => to > from,
    }
}
