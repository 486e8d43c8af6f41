//! Looks at the values of columns that others made. Arrow trusts what comes over its C interface: text that is no UTF-8, or
//! a null where a type has none, would be stored and then refused by everybody who reads it.
//!
//! Only what readers refuse is looked at, and only the rows of the batch: batches often share the buffers of a large table,
//! and looking at all of those for each would cost a lot.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteArrayType;
use arrow_array::{Array, ArrayRef, GenericByteArray, OffsetSizeTrait};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{ArrowError, DataType, Field};

use crate::error::RowsError;

/// A column, or a part of one, and how its values belong to the rows of the batch.
struct Part<'a> {
    /// Its name, after those that it is inside of.
    path: String,
    /// The row of the batch that a value belongs to.
    row: &'a dyn Fn(usize) -> usize,
}

impl Part<'_> {
    fn inside(&self, field: &Field) -> String {
        format!("{}.{}", self.path, field.name())
    }

    fn null(&self, field: &Field, place: usize) -> RowsError {
        RowsError::NullValue { column: self.inside(field), row: (self.row)(place) }
    }

    fn damaged(&self, what: &str) -> RowsError {
        let source = ArrowError::InvalidArgumentError(what.to_owned());
        RowsError::DamagedColumn { column: self.path.clone(), source }
    }
}

/// Whether text is text, and everything that a value refers to is there.
pub(crate) fn check_values(column: &ArrayRef, name: &str) -> Result<(), RowsError> {
    if is_plain(column.data_type()) {
        return Ok(());
    }
    values(column, &Part { path: name.to_owned(), row: &|row| row })
}

/// Whether nothing inside of a column is null that may not be. The column itself is looked at elsewhere.
pub(crate) fn check_inner_nulls(column: &ArrayRef, name: &str) -> Result<(), RowsError> {
    if !column.data_type().is_nested() {
        return Ok(());
    }
    inner_nulls(column, &Part { path: name.to_owned(), row: &|row| row })
}

/// Every bit pattern is a value.
fn is_plain(data_type: &DataType) -> bool {
    data_type.is_primitive() || matches!(data_type, DataType::Boolean | DataType::FixedSizeBinary(_))
}

fn values(column: &ArrayRef, part: &Part<'_>) -> Result<(), RowsError> {
    match column.data_type() {
        DataType::Utf8 => text(column.as_string::<i32>(), part),
        DataType::LargeUtf8 => text(column.as_string::<i64>(), part),
        DataType::Binary => lengths(column.as_binary::<i32>(), part),
        DataType::LargeBinary => lengths(column.as_binary::<i64>(), part),
        DataType::List(item) => {
            let list = column.as_list::<i32>();
            items(list.value_offsets(), list.values(), item, part, values)
        }
        DataType::LargeList(item) => {
            let list = column.as_list::<i64>();
            items(list.value_offsets(), list.values(), item, part, values)
        }
        DataType::Map(entries, _) => {
            let map = column.as_map();
            let pairs: ArrayRef = Arc::new(map.entries().clone());
            items(map.value_offsets(), &pairs, entries, part, values)
        }
        DataType::FixedSizeList(item, length) => {
            let row = |place: usize| (part.row)(place / length.unsigned_abs().max(1) as usize);
            values(column.as_fixed_size_list().values(), &Part { path: part.inside(item), row: &row })
        }
        DataType::Struct(fields) => {
            let children = fields.iter().zip(column.as_struct().columns());
            children.into_iter().try_for_each(|(field, child)| {
                values(child, &Part { path: part.inside(field), row: part.row })
            })
        }
        DataType::Dictionary(..) => {
            checked_by_arrow(column, part)?;
            let dictionary = column.as_any_dictionary();
            let keys = dictionary.keys();
            // The first row that has the value; a value that no row has is stored by nobody, and refused all the same.
            let row = |place: usize| {
                let places = dictionary.normalized_keys();
                (0..keys.len()).find(|at| keys.is_valid(*at) && places[*at] == place).map_or(0, part.row)
            };
            values(dictionary.values(), &Part { path: part.path.clone(), row: &row })
        }
        DataType::Utf8View | DataType::BinaryView => checked_by_arrow(column, part),
        _ => Ok(()),
    }
}

fn checked_by_arrow(column: &ArrayRef, part: &Part<'_>) -> Result<(), RowsError> {
    let checked = column.to_data().validate_data();
    checked.map_err(|source| RowsError::DamagedColumn { column: part.path.clone(), source })
}

/// Calls with the items of lists, and with what tells their rows.
fn items<O: OffsetSizeTrait>(
    offsets: &[O],
    values: &ArrayRef,
    item: &Field,
    part: &Part<'_>,
    check: impl FnOnce(&ArrayRef, &Part<'_>) -> Result<(), RowsError>,
) -> Result<(), RowsError> {
    let range =
        range_of(offsets, values.len()).ok_or_else(|| part.damaged("its offsets are not in order"))?;
    let first = range.start;
    let row = |place: usize| (part.row)(row_of(offsets, first + place));
    check(&values.slice(first, range.len()), &Part { path: part.inside(item), row: &row })
}

/// The row whose values have this place among all.
fn row_of<O: OffsetSizeTrait>(offsets: &[O], place: usize) -> usize {
    offsets.partition_point(|offset| offset.as_usize() <= place).saturating_sub(1)
}

/// From the first offset to the last, if they are in order and end within so many values.
fn range_of<O: OffsetSizeTrait>(offsets: &[O], values: usize) -> Option<Range<usize>> {
    let first = offsets.first()?.to_usize()?;
    let last = offsets.last()?.to_usize()?;
    // Not one by one with an early end: this way the compiler looks at many at once.
    let ordered = offsets.windows(2).fold(true, |ordered, pair| ordered & (pair[0] <= pair[1]));
    (ordered && last <= values).then_some(first..last)
}

fn lengths<T: ByteArrayType>(column: &GenericByteArray<T>, part: &Part<'_>) -> Result<(), RowsError> {
    let range = range_of(column.value_offsets(), column.values().len());
    range.map(drop).ok_or_else(|| part.damaged("its offsets are not in order"))
}

fn text<T: ByteArrayType>(column: &GenericByteArray<T>, part: &Part<'_>) -> Result<(), RowsError> {
    let (offsets, bytes) = (column.value_offsets(), column.values().as_slice());
    let range = range_of(offsets, bytes.len()).ok_or_else(|| part.damaged("its offsets are not in order"))?;
    if bytes[range.clone()].is_ascii() {
        return Ok(());
    }
    let whole = std::str::from_utf8(&bytes[range.clone()]);
    let cut = |at: usize| whole.is_ok_and(|text| !text.is_char_boundary(at - range.start));
    if whole.is_ok() && !offsets.iter().any(|offset| cut(offset.as_usize())) {
        return Ok(());
    }
    let bad = offsets
        .windows(2)
        .position(|pair| std::str::from_utf8(&bytes[pair[0].as_usize()..pair[1].as_usize()]).is_err());
    match bad {
        Some(place) => Err(RowsError::NotText { column: part.path.clone(), row: (part.row)(place) }),
        None => Ok(()),
    }
}

fn inner_nulls(column: &ArrayRef, part: &Part<'_>) -> Result<(), RowsError> {
    match column.data_type() {
        DataType::Struct(fields) => {
            for (field, child) in fields.iter().zip(column.as_struct().columns()) {
                // Where the whole is null, its parts are nothing.
                check_part(child, field, part, |place| column.is_null(place))?;
                inner_nulls(child, &Part { path: part.inside(field), row: part.row })?;
            }
            Ok(())
        }
        DataType::FixedSizeList(item, length) => {
            let length = length.unsigned_abs().max(1) as usize;
            let values = column.as_fixed_size_list().values();
            let row = |place: usize| (part.row)(place / length);
            let inside = Part { path: part.path.clone(), row: &row };
            check_part(values, item, &inside, |place| column.is_null(place / length))?;
            inner_nulls(values, &Part { path: part.inside(item), row: &row })
        }
        DataType::List(item) => {
            let list = column.as_list::<i32>();
            item_nulls(list.value_offsets(), list.values(), item, part)
        }
        DataType::LargeList(item) => {
            let list = column.as_list::<i64>();
            item_nulls(list.value_offsets(), list.values(), item, part)
        }
        DataType::Map(entries, _) => {
            let pairs: ArrayRef = Arc::new(column.as_map().entries().clone());
            item_nulls(column.as_map().value_offsets(), &pairs, entries, part)
        }
        _ => Ok(()),
    }
}

fn item_nulls<O: OffsetSizeTrait>(
    offsets: &[O],
    values: &ArrayRef,
    item: &Field,
    part: &Part<'_>,
) -> Result<(), RowsError> {
    items(offsets, values, item, part, |values, inside| {
        // Readers take no null here, also not one within a list that is null itself.
        let outside = Part { path: part.path.clone(), row: inside.row };
        check_part(values, item, &outside, |_| false)?;
        inner_nulls(values, inside)
    })
}

/// Refuses a null of a part that may have none, unless it is hidden.
fn check_part(
    child: &ArrayRef,
    field: &Field,
    part: &Part<'_>,
    hidden: impl Fn(usize) -> bool,
) -> Result<(), RowsError> {
    if field.is_nullable() || child.null_count() == 0 {
        return Ok(());
    }
    match (0..child.len()).find(|place| child.is_null(*place) && !hidden(*place)) {
        Some(place) => Err(part.null(field, place)),
        None => Ok(()),
    }
}
