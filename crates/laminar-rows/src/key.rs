//! The key of a row as bytes, and its hash. Both are for ever: they say where a row lies.
//!
//! ```text
//!  key bytes: one column after the other, in the order of the key
//!   0     1
//!  +-----+------+
//!  | tag | body |  again for each column
//!  | u8  |      |
//!  +-----+------+
//!   tag   for                                      body
//!   0x00  null of any type                         none
//!   0x01  false                                    none
//!   0x02  true                                     none
//!   0x10  integers of -2^63 to 2^63 - 1            i64
//!   0x11  integers of 2^63 and more                u64
//!   0x20  floating point of any width              f64; one NaN (0x7ff8000000000000), no negative zero
//!   0x30  text                                     u32 length, UTF-8
//!   0x31  bytes, of fixed length or not            u32 length, bytes
//!   0x40  dates                                    i64 milliseconds since 1970
//!   0x41  times of day                             i128 nanoseconds since midnight
//!   0x42  timestamps without a zone                i128 nanoseconds since 1970
//!   0x43  timestamps with a zone                   i128 nanoseconds since 1970 in UTC
//!   0x44  durations                                i128 nanoseconds
//!   0x50  decimals                                 i8 scale, i256 value without its point
//!  all numbers little-endian
//!
//!  key bytes of a stream of bytes: the key as it is; none is the empty key
//!
//!  hash       xxh3_64(seed 0x6c616d696e61724b, key bytes)
//!  partition  (hash * partitions) >> 64, in 128 bits
//! ```
//!
//! So equal values have equal bytes, whatever width, unit or layout carries them, and no key is the beginning of another.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date64Type, Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, Float64Array, Int64Array, LargeBinaryArray, LargeStringArray, RecordBatch,
    StringArray, StringViewArray, UInt64Array,
};
use arrow_buffer::i256;
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::RowsError;
use crate::schema::StreamSchema;

/// Where the hash of a key begins: "laminarK".
pub const KEY_SEED: u64 = 0x6c61_6d69_6e61_724b;

pub(crate) const TAG_NULL: u8 = 0x00;
pub(crate) const TAG_FALSE: u8 = 0x01;
pub(crate) const TAG_TRUE: u8 = 0x02;
pub(crate) const TAG_INTEGER: u8 = 0x10;
pub(crate) const TAG_UNSIGNED: u8 = 0x11;
pub(crate) const TAG_FLOAT: u8 = 0x20;
pub(crate) const TAG_TEXT: u8 = 0x30;
pub(crate) const TAG_BYTES: u8 = 0x31;
pub(crate) const TAG_DATE: u8 = 0x40;
pub(crate) const TAG_TIME: u8 = 0x41;
pub(crate) const TAG_TIMESTAMP: u8 = 0x42;
pub(crate) const TAG_TIMESTAMP_UTC: u8 = 0x43;
pub(crate) const TAG_DURATION: u8 = 0x44;
pub(crate) const TAG_DECIMAL: u8 = 0x50;

pub(crate) const MILLIS_OF_DAY: i64 = 86_400_000;
const CANONICAL_NAN: u64 = 0x7ff8_0000_0000_0000;

/// The hash of key bytes, as [`keys`] gives them; in a stream of bytes, of the key itself.
#[inline]
pub fn hash_key(key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, KEY_SEED)
}

/// The partition of a hash, counted within a stream of so many.
#[inline]
pub fn partition_of(hash: u64, partitions: u32) -> u32 {
    ((u128::from(hash) * u128::from(partitions)) >> 64) as u32
}

/// The key bytes of each row. Only the key columns need to be there; in a stream of bytes they are the keys themselves.
///
/// # Errors
///
/// Invalid: the stream has no key, or a key column is missing or does not fit.
pub fn keys(batch: &RecordBatch, schema: &StreamSchema) -> Result<Vec<Vec<u8>>, RowsError> {
    let columns = KeyColumns::new(batch, schema)?;
    let key = |row| {
        let mut key = Vec::new();
        columns.append(row, &mut key);
        key
    };
    Ok((0..batch.num_rows()).map(key).collect())
}

/// The hash of each row's key.
///
/// # Errors
///
/// As [`keys`].
pub fn hashes(batch: &RecordBatch, schema: &StreamSchema) -> Result<Vec<u64>, RowsError> {
    let mut hashes = Vec::with_capacity(batch.num_rows());
    KeyColumns::new(batch, schema)?.each_hash(batch.num_rows(), |hash| hashes.push(hash));
    Ok(hashes)
}

/// The key columns of a batch, in the few layouts that keys are made from.
pub(crate) struct KeyColumns {
    columns: Vec<KeyColumn>,
}

impl KeyColumns {
    pub(crate) fn new(batch: &RecordBatch, schema: &StreamSchema) -> Result<Self, RowsError> {
        if !schema.has_key() {
            return Err(RowsError::NoKey);
        }
        let arrays = schema.conform_key(batch)?;
        let columns = if schema.is_bytes() {
            arrays.iter().map(|array| KeyColumn::Plain(array.as_binary().clone())).collect()
        } else {
            arrays.iter().map(KeyColumn::new).collect::<Result<_, _>>()?
        };
        Ok(Self { columns })
    }

    /// Adds the key bytes of a row.
    pub(crate) fn append(&self, row: usize, key: &mut Vec<u8>) {
        for column in &self.columns {
            column.append(row, key);
        }
    }

    /// Calls with the hash of each row, one buffer for all of them.
    pub(crate) fn each_hash(&self, rows: usize, mut take: impl FnMut(u64)) {
        if let [KeyColumn::Integer(values)] = self.columns.as_slice()
            && values.null_count() == 0
        {
            // The most frequent key: its length is known, so the hash is a handful of instructions.
            let mut key = [TAG_INTEGER; 9];
            for value in values.values() {
                key[1..].copy_from_slice(&value.to_le_bytes());
                take(hash_key(&key));
            }
            return;
        }
        let mut key = Vec::new();
        for row in 0..rows {
            key.clear();
            self.append(row, &mut key);
            take(hash_key(&key));
        }
    }
}

enum KeyColumn {
    Boolean(BooleanArray),
    Integer(Int64Array),
    Unsigned(UInt64Array),
    Float(Float64Array),
    Text(StringArray),
    LargeText(LargeStringArray),
    TextView(StringViewArray),
    Bytes(BinaryArray),
    LargeBytes(LargeBinaryArray),
    BytesView(BinaryViewArray),
    FixedBytes(FixedSizeBinaryArray),
    Date(Int64Array),
    Nanoseconds {
        tag: u8,
        values: Int64Array,
        unit: i128,
    },
    Decimal128 {
        scale: i8,
        values: Decimal128Array,
    },
    Decimal256 {
        scale: i8,
        values: Decimal256Array,
    },
    /// The key of a stream of bytes.
    Plain(BinaryArray),
}

impl KeyColumn {
    fn new(array: &ArrayRef) -> Result<Self, RowsError> {
        let to = |data_type: &DataType| cast(array, data_type).map_err(RowsError::arrow("made into keys"));
        let integers = || to(&DataType::Int64).map(|array| array.as_primitive::<Int64Type>().clone());
        let nanoseconds =
            |tag, values, unit| KeyColumn::Nanoseconds { tag, values, unit: nanoseconds_of(unit) };
        // 32 bits of days or of a time cannot be cast to 64 bits of a number in one step.
        let wide_integers = || {
            let narrow = to(&DataType::Int32)?;
            let wide = cast(&narrow, &DataType::Int64).map_err(RowsError::arrow("made into keys"))?;
            Ok(wide.as_primitive::<Int64Type>().clone())
        };
        Ok(match array.data_type() {
            DataType::Boolean => KeyColumn::Boolean(array.as_boolean().clone()),
            DataType::UInt64 => KeyColumn::Unsigned(array.as_primitive::<UInt64Type>().clone()),
            data_type if data_type.is_integer() => KeyColumn::Integer(integers()?),
            data_type if data_type.is_floating() => {
                KeyColumn::Float(to(&DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            DataType::Utf8 => KeyColumn::Text(array.as_string().clone()),
            DataType::LargeUtf8 => KeyColumn::LargeText(array.as_string().clone()),
            DataType::Utf8View => KeyColumn::TextView(array.as_string_view().clone()),
            DataType::Binary => KeyColumn::Bytes(array.as_binary().clone()),
            DataType::LargeBinary => KeyColumn::LargeBytes(array.as_binary().clone()),
            DataType::BinaryView => KeyColumn::BytesView(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) => KeyColumn::FixedBytes(array.as_fixed_size_binary().clone()),
            DataType::Date32 => KeyColumn::Date(days_to_millis(&wide_integers()?)),
            DataType::Date64 => {
                KeyColumn::Date(array.as_primitive::<Date64Type>().reinterpret_cast::<Int64Type>())
            }
            DataType::Time32(unit) => nanoseconds(TAG_TIME, wide_integers()?, unit),
            DataType::Time64(unit) => nanoseconds(TAG_TIME, integers()?, unit),
            DataType::Timestamp(unit, None) => nanoseconds(TAG_TIMESTAMP, integers()?, unit),
            DataType::Timestamp(unit, Some(_)) => nanoseconds(TAG_TIMESTAMP_UTC, integers()?, unit),
            DataType::Duration(unit) => nanoseconds(TAG_DURATION, integers()?, unit),
            DataType::Decimal256(_, scale) => KeyColumn::Decimal256 {
                scale: *scale,
                values: array.as_primitive::<Decimal256Type>().clone(),
            },
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale) => {
                let values = to(&DataType::Decimal128(38, *scale))?;
                KeyColumn::Decimal128 {
                    scale: *scale,
                    values: values.as_primitive::<Decimal128Type>().clone(),
                }
            }
            other => {
                return Err(RowsError::KeyType { column: String::new(), data_type: other.clone() });
            }
        })
    }

    #[inline]
    fn append(&self, row: usize, key: &mut Vec<u8>) {
        match self {
            KeyColumn::Boolean(array) if array.is_valid(row) => {
                key.push(if array.value(row) { TAG_TRUE } else { TAG_FALSE });
            }
            KeyColumn::Integer(array) if array.is_valid(row) => {
                put(key, TAG_INTEGER, &array.value(row).to_le_bytes());
            }
            KeyColumn::Unsigned(array) if array.is_valid(row) => {
                let value = array.value(row);
                let tag = if i64::try_from(value).is_ok() { TAG_INTEGER } else { TAG_UNSIGNED };
                put(key, tag, &value.to_le_bytes());
            }
            KeyColumn::Float(array) if array.is_valid(row) => {
                put(key, TAG_FLOAT, &canonical_bits(array.value(row)).to_le_bytes());
            }
            KeyColumn::Text(array) if array.is_valid(row) => {
                put_variable(key, TAG_TEXT, array.value(row).as_bytes());
            }
            KeyColumn::LargeText(array) if array.is_valid(row) => {
                put_variable(key, TAG_TEXT, array.value(row).as_bytes());
            }
            KeyColumn::TextView(array) if array.is_valid(row) => {
                put_variable(key, TAG_TEXT, array.value(row).as_bytes());
            }
            KeyColumn::Bytes(array) if array.is_valid(row) => put_variable(key, TAG_BYTES, array.value(row)),
            KeyColumn::LargeBytes(array) if array.is_valid(row) => {
                put_variable(key, TAG_BYTES, array.value(row))
            }
            KeyColumn::BytesView(array) if array.is_valid(row) => {
                put_variable(key, TAG_BYTES, array.value(row))
            }
            KeyColumn::FixedBytes(array) if array.is_valid(row) => {
                put_variable(key, TAG_BYTES, array.value(row))
            }
            KeyColumn::Date(array) if array.is_valid(row) => {
                put(key, TAG_DATE, &array.value(row).to_le_bytes())
            }
            KeyColumn::Nanoseconds { tag, values, unit } if values.is_valid(row) => {
                // 64 bits of seconds in nanoseconds stay far below 128 bits.
                put(key, *tag, &(i128::from(values.value(row)) * unit).to_le_bytes());
            }
            KeyColumn::Decimal128 { scale, values } if values.is_valid(row) => {
                put_decimal(key, *scale, i256::from_i128(values.value(row)));
            }
            KeyColumn::Decimal256 { scale, values } if values.is_valid(row) => {
                put_decimal(key, *scale, values.value(row));
            }
            KeyColumn::Plain(array) => {
                if array.is_valid(row) {
                    key.extend_from_slice(array.value(row));
                }
            }
            _ => key.push(TAG_NULL),
        }
    }
}

fn put(key: &mut Vec<u8>, tag: u8, body: &[u8]) {
    key.push(tag);
    key.extend_from_slice(body);
}

fn put_variable(key: &mut Vec<u8>, tag: u8, value: &[u8]) {
    // A longer value is no row that any limit lets pass; it still gets a key, and equal ones the same.
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    put(key, tag, &length.to_le_bytes());
    key.extend_from_slice(value);
}

fn put_decimal(key: &mut Vec<u8>, scale: i8, value: i256) {
    put(key, TAG_DECIMAL, &scale.to_le_bytes());
    key.extend_from_slice(&value.to_le_bytes());
}

fn canonical_bits(value: f64) -> u64 {
    if value.is_nan() {
        CANONICAL_NAN
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

fn days_to_millis(days: &Int64Array) -> Int64Array {
    days.unary(|day| day * MILLIS_OF_DAY)
}

pub(crate) fn nanoseconds_of(unit: &TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}
