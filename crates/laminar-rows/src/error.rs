//! What can be wrong with rows, their schema or their bytes.

use arrow_schema::{ArrowError, DataType};
use laminar_core::error::ErrorKind;
use thiserror::Error;

/// Why rows or a schema were refused, or bytes could not be read as rows.
#[derive(Debug, Error)]
pub enum RowsError {
    /// A schema without columns.
    #[error("schema refused, it has no columns; name at least one, or give no schema for a stream of bytes")]
    NoColumns,
    /// A column is there twice.
    #[error("column {column}: it is there twice; give each column a name of its own")]
    DuplicateColumn {
        /// Its name.
        column: String,
    },
    /// A column has the name of one that laminar adds.
    #[error("column {column}: the name is taken by a column that laminar adds to rows; choose another")]
    ReservedColumn {
        /// Its name.
        column: String,
    },
    /// A column's type cannot be stored.
    #[error("column {column}: type {data_type} is not supported, {reason}")]
    UnsupportedType {
        /// Its name.
        column: String,
        /// Its type.
        data_type: DataType,
        /// Why, and what to use.
        reason: &'static str,
    },
    /// A key column does not exist, or is named twice.
    #[error("key column {column}: {what}; the columns are {columns}")]
    BadKey {
        /// Its name.
        column: String,
        /// What is wrong.
        what: &'static str,
        /// What there is.
        columns: String,
    },
    /// A key column has a type without a hash.
    #[error(
        "key column {column}: rows cannot be hashed by type {data_type}; use a number, text, bytes, time or decimal"
    )]
    KeyType {
        /// Its name.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// The stream has no key, and the call needs one.
    #[error(
        "the stream has no key columns; create it with a key, or choose the partition for the whole batch"
    )]
    NoKey,
    /// Keys and values that do not belong together.
    #[error("{keys} keys and {values} values; give each row both, or none for what it does not have")]
    LengthsDiffer {
        /// How many keys.
        keys: usize,
        /// How many values.
        values: usize,
    },
    /// There is nothing to split rows over.
    #[error("rows cannot be split over 0 partitions; a stream has at least one")]
    NoPartitions,
    /// Bytes that are not an Arrow schema we read.
    #[error("schema bytes refused, {what}; send an Arrow IPC schema message of supported types")]
    SchemaBytes {
        /// What is wrong.
        what: &'static str,
    },
    /// A batch has a column that the stream does not have.
    #[error("column {column}: the stream has no such column; it has {columns}")]
    UnknownColumn {
        /// Its name.
        column: String,
        /// What there is.
        columns: String,
    },
    /// A batch lacks a column that must have values.
    #[error("column {column}: it is missing and may not be null; add it")]
    MissingColumn {
        /// Its name.
        column: String,
    },
    /// A column has a type that does not fit without loss.
    #[error(
        "column {column}: type {found} does not fit {expected} without loss; convert it before appending"
    )]
    ColumnType {
        /// Its name.
        column: String,
        /// Its type.
        found: DataType,
        /// The stream's type.
        expected: DataType,
    },
    /// A column's values do not fit, though its type could.
    #[error("column {column}: its values of type {found} do not fit {expected}; convert it before appending")]
    ColumnValues {
        /// Its name.
        column: String,
        /// Its type.
        found: DataType,
        /// The stream's type.
        expected: DataType,
        /// What Arrow said.
        source: ArrowError,
    },
    /// A null where there may be none.
    #[error("column {column}, row {row}: it is null, and the column may not be; give it a value")]
    NullValue {
        /// The column.
        column: String,
        /// The row in the batch, from 0.
        row: usize,
    },
    /// Bytes of a text that are none.
    #[error("column {column}, row {row}: its bytes are no UTF-8; repair the text, or make the column binary")]
    NotText {
        /// The column.
        column: String,
        /// The row in the batch, from 0.
        row: usize,
    },
    /// A column that Arrow itself would refuse.
    #[error(
        "column {column}: its values are not valid Arrow data ({source}); whoever made it has to repair it"
    )]
    DamagedColumn {
        /// The column.
        column: String,
        /// What Arrow said.
        source: ArrowError,
    },
    /// A row is too large.
    #[error(
        "row {row}: it has about {bytes} bytes and {limit} are the most (row_bytes_max); make it smaller or raise it"
    )]
    RowTooLarge {
        /// The row in the batch, from 0.
        row: usize,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A batch is too large to be one payload.
    #[error(
        "batch of {rows} rows: it has {bytes} bytes and {limit} are the most at once; append it in parts"
    )]
    BatchTooLarge {
        /// Its rows.
        rows: usize,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A range that the batch does not have.
    #[error(
        "rows {begin} to {end} asked for, and the batch has {first} to {last}; ask for rows that are there"
    )]
    RowsOutOfRange {
        /// The first offset asked for.
        begin: u64,
        /// The offset after the last one asked for.
        end: u64,
        /// The first offset there is.
        first: u64,
        /// The offset after the last one there is.
        last: u64,
    },
    /// A number that Arrow's 64 signed bits do not hold.
    #[error("{what} is {value} and {limit} is the most that a column of rows can show")]
    NumberTooLarge {
        /// Which one.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// A payload of another version.
    #[error("payload of version {found}, and this release reads version {known}; update it")]
    UnknownVersion {
        /// Its version.
        found: u8,
        /// Ours.
        known: u8,
    },
    /// A payload of a kind that does not fit.
    #[error(
        "payload of kind {found} in a stream of {expected}; the stored rows are damaged, read from another replica"
    )]
    UnexpectedKind {
        /// Its kind.
        found: u8,
        /// What the stream carries.
        expected: &'static str,
    },
    /// A payload's bytes are not what encoding gives.
    #[error("payload damaged at byte {at}: {what}; read from another replica")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where.
        at: u64,
    },
    /// Arrow refuses what a payload holds.
    #[error("payload damaged: its columns are not valid Arrow data; read from another replica")]
    InvalidArrow {
        /// What Arrow said.
        source: ArrowError,
    },
    /// Key bytes that are not what encoding gives.
    #[error("key {row}, column {column}: {what}; it is not a key of this stream")]
    KeyBytes {
        /// Which key, from 0.
        row: usize,
        /// The column.
        column: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A stored row does not belong to the key it is stored under.
    #[error("row {row} of a kv payload is stored under the key of another row; read from another replica")]
    KeyMismatch {
        /// Which row, from 0.
        row: usize,
    },
    /// Arrow refused what should work.
    #[error("rows could not be {doing}; report it")]
    Arrow {
        /// What was done.
        doing: &'static str,
        /// What Arrow said.
        source: ArrowError,
    },
}

impl RowsError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            RowsError::UnknownVersion { .. }
            | RowsError::UnexpectedKind { .. }
            | RowsError::Malformed { .. }
            | RowsError::InvalidArrow { .. }
            | RowsError::KeyMismatch { .. } => ErrorKind::Corrupt,
            RowsError::Arrow { .. } => ErrorKind::Internal,
            _ => ErrorKind::Invalid,
        }
    }

    pub(crate) fn arrow(doing: &'static str) -> impl FnOnce(ArrowError) -> RowsError {
        move |source| RowsError::Arrow { doing, source }
    }

    pub(crate) fn malformed(what: &'static str, at: usize) -> RowsError {
        RowsError::Malformed { what, at: at as u64 }
    }
}
