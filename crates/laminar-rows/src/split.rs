//! Rows sorted by partition: counted, then taken once for each.

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;

use crate::error::RowsError;
use crate::key::{KeyColumns, partition_of};
use crate::schema::StreamSchema;

/// A batch of more rows is refused: places of rows are 32 bits.
const ROWS_MAX: u64 = u32::MAX as u64;

/// The rows of each partition that has any, with the partition's number within the stream, in order. Rows of a partition
/// keep their order. If all rows belong to one, nothing is copied.
///
/// # Errors
///
/// Invalid: the stream has no key (the caller chooses a partition), no partitions, or the batch is too large.
pub fn split(
    batch: &RecordBatch,
    schema: &StreamSchema,
    partitions: u32,
) -> Result<Vec<(u32, RecordBatch)>, RowsError> {
    let columns = KeyColumns::new(batch, schema)?;
    let rows = batch.num_rows();
    if rows as u64 > ROWS_MAX {
        return Err(RowsError::NumberTooLarge {
            what: "the number of rows",
            value: rows as u64,
            limit: ROWS_MAX,
        });
    }
    if partitions == 0 {
        return Err(RowsError::NoPartitions);
    }
    if rows == 0 {
        return Ok(Vec::new());
    }
    let mut placed = Vec::with_capacity(rows);
    columns.each_hash(rows, |hash| placed.push(partition_of(hash, partitions)));
    let mut begins = vec![0_u32; partitions as usize + 1];
    for partition in &placed {
        begins[*partition as usize + 1] += 1;
    }
    if begins[placed[0] as usize + 1] as usize == rows {
        return Ok(vec![(placed[0], batch.clone())]);
    }
    for partition in 0..partitions as usize {
        begins[partition + 1] += begins[partition];
    }
    let places = UInt32Array::from(sorted_places(&placed, &begins));
    let part = |partition: u32| {
        let (begin, end) = (begins[partition as usize] as usize, begins[partition as usize + 1] as usize);
        (begin < end).then(|| {
            let rows = take_record_batch(batch, &places.slice(begin, end - begin))
                .map_err(RowsError::arrow("split by partition"))?;
            Ok((partition, rows))
        })
    };
    (0..partitions).filter_map(part).collect()
}

/// The rows in the order of their partitions, and in their own order within each.
fn sorted_places(placed: &[u32], begins: &[u32]) -> Vec<u32> {
    let mut next = begins.to_vec();
    let mut places = vec![0; placed.len()];
    for (row, partition) in placed.iter().enumerate() {
        let place = &mut next[*partition as usize];
        places[*place as usize] = row as u32;
        *place += 1;
    }
    places
}
