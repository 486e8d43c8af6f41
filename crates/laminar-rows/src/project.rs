//! Parts of batches, and many small batches as one.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;

use crate::error::RowsError;
use crate::row_bytes::batch_bytes;
use crate::schema::column_names;

/// Waiting rows are given out when they have so many bytes, however few they are.
const PENDING_BYTES_MAX: u64 = 64 << 20;

/// The named columns of a batch, in the order of the names.
///
/// # Errors
///
/// Invalid: a name that the batch does not have.
pub fn project<Name: AsRef<str>>(batch: &RecordBatch, columns: &[Name]) -> Result<RecordBatch, RowsError> {
    let place = |name: &Name| {
        batch.schema_ref().index_of(name.as_ref()).map_err(|_| RowsError::UnknownColumn {
            column: name.as_ref().to_owned(),
            columns: column_names(batch.schema_ref()),
        })
    };
    let places = columns.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    batch.project(&places).map_err(RowsError::arrow("projected"))
}

/// The rows of a batch that lie in a range of offsets; the batch's first row has `first_offset`. Nothing is copied.
///
/// # Errors
///
/// Invalid: the range is not within the batch.
pub fn slice_offsets(
    batch: &RecordBatch,
    first_offset: u64,
    range: Range<u64>,
) -> Result<RecordBatch, RowsError> {
    let last = first_offset.saturating_add(batch.num_rows() as u64);
    if range.start < first_offset || range.end > last || range.start > range.end {
        return Err(RowsError::RowsOutOfRange {
            begin: range.start,
            end: range.end,
            first: first_offset,
            last,
        });
    }
    Ok(batch.slice((range.start - first_offset) as usize, (range.end - range.start) as usize))
}

/// Merges small batches of one schema until they have enough rows. Large ones pass untouched, and order is kept.
#[derive(Debug)]
pub struct Coalescer {
    target_rows: usize,
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    pending_bytes: u64,
}

impl Coalescer {
    /// Gives out batches of about `target_rows` rows.
    pub fn new(target_rows: usize) -> Self {
        Self { target_rows, pending: Vec::new(), pending_rows: 0, pending_bytes: 0 }
    }

    /// How many rows wait for more.
    pub fn pending_rows(&self) -> usize {
        self.pending_rows
    }

    /// Takes a batch, and gives out what is large enough now: none, one or two batches.
    ///
    /// # Errors
    ///
    /// Internal: the batches have different schemas.
    pub fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>, RowsError> {
        let mut ready = Vec::new();
        if batch.num_rows() == 0 {
            return Ok(ready);
        }
        if batch.num_rows() >= self.target_rows {
            ready.extend(self.finish()?);
            ready.push(batch);
            return Ok(ready);
        }
        self.pending_rows += batch.num_rows();
        self.pending_bytes += batch_bytes(&batch);
        self.pending.push(batch);
        if self.pending_rows >= self.target_rows || self.pending_bytes >= PENDING_BYTES_MAX {
            ready.extend(self.finish()?);
        }
        Ok(ready)
    }

    /// Gives out what waits.
    ///
    /// # Errors
    ///
    /// Internal: the batches have different schemas.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>, RowsError> {
        let pending = std::mem::take(&mut self.pending);
        (self.pending_rows, self.pending_bytes) = (0, 0);
        match pending.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            [first, ..] => {
                concat_batches(first.schema_ref(), &pending).map(Some).map_err(RowsError::arrow("merged"))
            }
        }
    }
}
