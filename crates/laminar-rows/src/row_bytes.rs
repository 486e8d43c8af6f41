//! How large rows are, to refuse those that are too large before anything is sent.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch};
use arrow_schema::DataType;

use crate::error::RowsError;

/// Refuses a batch in which a row has more than `limit` bytes, by the size of its values.
///
/// # Errors
///
/// Invalid: names the first such row.
pub fn check_row_bytes(batch: &RecordBatch, limit: u64) -> Result<(), RowsError> {
    // No row is larger than all of them: most batches need no closer look.
    if batch_bytes(batch) <= limit {
        return Ok(());
    }
    let mut rows = vec![0; batch.num_rows()];
    for column in batch.columns() {
        add_bytes(column, &mut rows);
    }
    match rows.iter().position(|bytes| *bytes > limit) {
        Some(row) => Err(RowsError::RowTooLarge { row, bytes: rows[row], limit }),
        None => Ok(()),
    }
}

/// Refuses a key and a value of a stream of bytes that have more than `limit` bytes, as [`check_row_bytes`] does.
///
/// # Errors
///
/// Invalid: names the first such row.
pub fn check_pair_bytes<'a>(
    pairs: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    limit: u64,
) -> Result<(), RowsError> {
    let bytes = pairs.map(|(key, value)| key.len() as u64 + value.map_or(0, |value| value.len() as u64));
    match bytes.enumerate().find(|(_, bytes)| *bytes > limit) {
        Some((row, bytes)) => Err(RowsError::RowTooLarge { row, bytes, limit }),
        None => Ok(()),
    }
}

/// The size of a batch's values. Buffers count as far as its rows use them.
pub fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(array_bytes).sum()
}

fn array_bytes(array: &ArrayRef) -> u64 {
    let used = match array.data_type() {
        // Arrow counts no buffers of views.
        DataType::Utf8View => view_bytes(array.as_string_view().lengths()),
        DataType::BinaryView => view_bytes(array.as_binary_view().lengths()),
        _ => array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size()) as u64,
    };
    // Never below what the closer look would find: it counts at least a byte a value.
    used.max(array.len() as u64)
}

fn view_bytes(lengths: impl ExactSizeIterator<Item = u32>) -> u64 {
    16 * lengths.len() as u64 + lengths.map(u64::from).sum::<u64>()
}

/// Adds the size of each value to its row.
fn add_bytes(array: &ArrayRef, rows: &mut [u64]) {
    match array.data_type() {
        DataType::Utf8 => add_lengths(array.as_string::<i32>().value_offsets(), rows),
        DataType::LargeUtf8 => add_lengths(array.as_string::<i64>().value_offsets(), rows),
        DataType::Binary => add_lengths(array.as_binary::<i32>().value_offsets(), rows),
        DataType::LargeBinary => add_lengths(array.as_binary::<i64>().value_offsets(), rows),
        DataType::Utf8View => add_each(array.as_string_view().lengths(), rows),
        DataType::BinaryView => add_each(array.as_binary_view().lengths(), rows),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            add_children(list.values(), list.value_offsets(), rows);
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            add_children(list.values(), list.value_offsets(), rows);
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries: ArrayRef = std::sync::Arc::new(map.entries().clone());
            add_children(&entries, map.value_offsets(), rows);
        }
        DataType::FixedSizeList(_, length) => {
            let mut children = vec![0; array.len() * *length as usize];
            let values = array.as_fixed_size_list().values();
            add_bytes(&values.slice(0, children.len().min(values.len())), &mut children);
            for (row, values) in rows.iter_mut().zip(children.chunks(*length as usize)) {
                *row += values.iter().sum::<u64>();
            }
        }
        DataType::Struct(_) => {
            for column in array.as_struct().columns() {
                add_bytes(column, rows);
            }
        }
        other => {
            let width = match other {
                DataType::FixedSizeBinary(width) => *width as u64,
                other => other.primitive_width().unwrap_or(1) as u64,
            };
            rows.iter_mut().for_each(|row| *row += width);
        }
    }
}

fn add_lengths<Offset: OffsetSizeTrait>(offsets: &[Offset], rows: &mut [u64]) {
    for (row, ends) in rows.iter_mut().zip(offsets.windows(2)) {
        *row += (ends[1] - ends[0]).as_usize() as u64;
    }
}

fn add_each(lengths: impl Iterator<Item = u32>, rows: &mut [u64]) {
    for (row, length) in rows.iter_mut().zip(lengths) {
        *row += u64::from(length);
    }
}

fn add_children<Offset: OffsetSizeTrait>(values: &ArrayRef, offsets: &[Offset], rows: &mut [u64]) {
    let mut children = vec![0; values.len()];
    add_bytes(values, &mut children);
    for (row, ends) in rows.iter_mut().zip(offsets.windows(2)) {
        *row += children[ends[0].as_usize()..ends[1].as_usize()].iter().sum::<u64>();
    }
}
