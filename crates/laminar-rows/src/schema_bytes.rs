//! Schemas as Arrow IPC messages. Arrow's own conversion panics at types it does not know, so all of a message is looked
//! at before.

use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_ipc::{DateUnit, Endianness, IntervalUnit, Precision, TimeUnit, Type, root_as_message};
use arrow_schema::Schema;

use crate::error::RowsError;
use crate::schema::NESTING_MAX;

const CONTINUATION: [u8; 4] = [0xff; 4];

pub(crate) fn write(schema: &Schema) -> Result<Vec<u8>, RowsError> {
    let options = IpcWriteOptions::default();
    let message = IpcDataGenerator::default()
        .schema_to_bytes_with_dictionary_tracker(schema, &mut DictionaryTracker::new(true), &options)
        .ipc_message;
    // The message may end anywhere; Arrow's readers want its length to be a multiple of 8.
    let padded = message.len().next_multiple_of(8);
    let length = i32::try_from(padded).map_err(|_| bad("the schema is longer than 2 GiB"))?;
    let mut bytes = Vec::with_capacity(8 + padded);
    bytes.extend_from_slice(&CONTINUATION);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&message);
    bytes.resize(8 + padded, 0);
    Ok(bytes)
}

pub(crate) fn read(bytes: &[u8]) -> Result<Schema, RowsError> {
    let rest = bytes.strip_prefix(&CONTINUATION).unwrap_or(bytes);
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(|| bad("they are cut short"))?;
    let length = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| bad("their length is negative"))?;
    let message = rest.get(..length).ok_or_else(|| bad("they are cut short"))?;
    let message = root_as_message(message).map_err(|_| bad("they are no Arrow message"))?;
    let schema = message.header_as_schema().ok_or_else(|| bad("the message is not a schema"))?;
    if schema.endianness() != Endianness::Little {
        return Err(bad("numbers are big-endian"));
    }
    for field in schema.fields().ok_or_else(|| bad("there are no fields"))? {
        check_field(field, 0)?;
    }
    Ok(fb_to_schema(schema))
}

fn bad(what: &'static str) -> RowsError {
    RowsError::SchemaBytes { what }
}

fn check_field(field: arrow_ipc::Field<'_>, depth: usize) -> Result<(), RowsError> {
    if depth > NESTING_MAX {
        return Err(bad("a column is nested too deep"));
    }
    if field.name().is_none() {
        return Err(bad("a field has no name"));
    }
    if let Some(dictionary) = field.dictionary() {
        let index = dictionary.indexType().ok_or_else(|| bad("a dictionary has no index type"))?;
        check(matches!(index.bitWidth(), 8 | 16 | 32 | 64), "a dictionary's index has an unknown width")?;
    }
    check_type(field)?;
    let children = field.children();
    let count = children.map_or(0, |children| children.len());
    let fits = match field.type_type() {
        Type::List | Type::LargeList | Type::FixedSizeList | Type::Map => count == 1,
        Type::Struct_ => true,
        _ => count == 0,
    };
    check(fits, "a type has the wrong number of children")?;
    children.into_iter().flatten().try_for_each(|child| check_field(child, depth + 1))
}

fn check(holds: bool, what: &'static str) -> Result<(), RowsError> {
    if holds { Ok(()) } else { Err(bad(what)) }
}

/// Whether the type and its parameters are among those that Arrow's conversion knows and we store.
fn check_type(field: arrow_ipc::Field<'_>) -> Result<(), RowsError> {
    let known_unit = |unit: TimeUnit| (TimeUnit::ENUM_MIN..=TimeUnit::ENUM_MAX).contains(&unit.0);
    let fits = match field.type_type() {
        Type::Null
        | Type::Bool
        | Type::Binary
        | Type::BinaryView
        | Type::LargeBinary
        | Type::Utf8
        | Type::Utf8View
        | Type::LargeUtf8
        | Type::List
        | Type::LargeList
        | Type::Struct_ => Some(true),
        Type::Int => field.type_as_int().map(|int| matches!(int.bitWidth(), 8 | 16 | 32 | 64)),
        Type::FixedSizeBinary => field.type_as_fixed_size_binary().map(|fixed| fixed.byteWidth() > 0),
        Type::FixedSizeList => field.type_as_fixed_size_list().map(|list| list.listSize() > 0),
        Type::FloatingPoint => field.type_as_floating_point().map(|float| {
            [Precision::HALF, Precision::SINGLE, Precision::DOUBLE].contains(&float.precision())
        }),
        Type::Date => {
            field.type_as_date().map(|date| [DateUnit::DAY, DateUnit::MILLISECOND].contains(&date.unit()))
        }
        Type::Time => field.type_as_time().map(|time| {
            matches!(
                (time.bitWidth(), time.unit()),
                (32, TimeUnit::SECOND | TimeUnit::MILLISECOND)
                    | (64, TimeUnit::MICROSECOND | TimeUnit::NANOSECOND)
            )
        }),
        Type::Timestamp => field.type_as_timestamp().map(|timestamp| known_unit(timestamp.unit())),
        Type::Duration => field.type_as_duration().map(|duration| known_unit(duration.unit())),
        Type::Interval => field.type_as_interval().map(|interval| {
            [IntervalUnit::YEAR_MONTH, IntervalUnit::DAY_TIME, IntervalUnit::MONTH_DAY_NANO]
                .contains(&interval.unit())
        }),
        Type::Decimal => field.type_as_decimal().map(|decimal| {
            let digits = match decimal.bitWidth() {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => 0,
            };
            (1..=digits).contains(&decimal.precision())
                && (-decimal.precision()..=decimal.precision()).contains(&decimal.scale())
        }),
        Type::Map => Some(field.type_as_map().is_some() && map_entries_fit(field)),
        _ => None,
    };
    check(fits == Some(true), "a column has a type that is not supported")
}

/// A map has one child, a struct of a key and a value.
fn map_entries_fit(field: arrow_ipc::Field<'_>) -> bool {
    let Some(children) = field.children() else { return false };
    children.len() == 1 && {
        let entries = children.get(0);
        entries.type_type() == Type::Struct_ && entries.children().is_some_and(|pair| pair.len() == 2)
    }
}
