//! Key bytes back to columns: what a removed row leaves is its key.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BinaryViewBuilder, BooleanBuilder, FixedSizeBinaryBuilder, LargeBinaryBuilder,
    LargeStringBuilder, StringBuilder, StringViewBuilder,
};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_buffer::i256;
use arrow_schema::{DataType, FieldRef, TimeUnit};

use crate::error::RowsError;
use crate::key::{
    MILLIS_OF_DAY, TAG_BYTES, TAG_DATE, TAG_DECIMAL, TAG_DURATION, TAG_FALSE, TAG_FLOAT, TAG_INTEGER,
    TAG_NULL, TAG_TEXT, TAG_TIME, TAG_TIMESTAMP, TAG_TIMESTAMP_UTC, TAG_TRUE, TAG_UNSIGNED, nanoseconds_of,
};
use crate::schema::StreamSchema;

/// The key columns of keys that [`keys`](crate::keys) gave, in the order of the key.
///
/// # Errors
///
/// Invalid: the stream has no key, or bytes that are not a key of it.
pub fn decode_keys<Key: AsRef<[u8]>>(
    keys: &[Key],
    schema: &StreamSchema,
) -> Result<Vec<ArrayRef>, RowsError> {
    if !schema.has_key() {
        return Err(RowsError::NoKey);
    }
    if schema.is_bytes() {
        return Ok(vec![crate::bytes_rows::key_column(keys.iter().map(AsRef::as_ref))]);
    }
    let fields: Vec<&FieldRef> = schema.key_fields().collect();
    let mut columns = vec![Vec::with_capacity(keys.len()); fields.len()];
    for (row, key) in keys.iter().enumerate() {
        let mut rest = key.as_ref();
        for (field, column) in fields.iter().zip(&mut columns) {
            column.push(take_value(&mut rest).map_err(|what| wrong(row, field, what))?);
        }
        if !rest.is_empty() {
            return Err(wrong(row, fields[fields.len() - 1], "bytes are left after it"));
        }
    }
    fields.iter().zip(&columns).map(|(field, column)| build(field, column)).collect()
}

fn wrong(row: usize, field: &FieldRef, what: &'static str) -> RowsError {
    RowsError::KeyBytes { row, column: field.name().clone(), what }
}

/// A value as its tag says.
#[derive(Debug, Clone, Copy)]
enum KeyValue<'a> {
    Null,
    Boolean(bool),
    Integer(i128),
    Float(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
    Date(i64),
    Nanoseconds(u8, i128),
    Decimal(i8, i256),
}

fn take_value<'a>(rest: &mut &'a [u8]) -> Result<KeyValue<'a>, &'static str> {
    let [tag] = take::<1>(rest)?;
    Ok(match tag {
        TAG_NULL => KeyValue::Null,
        TAG_FALSE => KeyValue::Boolean(false),
        TAG_TRUE => KeyValue::Boolean(true),
        TAG_INTEGER => KeyValue::Integer(i64::from_le_bytes(take(rest)?).into()),
        TAG_UNSIGNED => KeyValue::Integer(u64::from_le_bytes(take(rest)?).into()),
        TAG_FLOAT => KeyValue::Float(f64::from_le_bytes(take(rest)?)),
        TAG_TEXT => {
            KeyValue::Text(std::str::from_utf8(take_variable(rest)?).map_err(|_| "its text is not UTF-8")?)
        }
        TAG_BYTES => KeyValue::Bytes(take_variable(rest)?),
        TAG_DATE => KeyValue::Date(i64::from_le_bytes(take(rest)?)),
        TAG_TIME | TAG_TIMESTAMP | TAG_TIMESTAMP_UTC | TAG_DURATION => {
            KeyValue::Nanoseconds(tag, i128::from_le_bytes(take(rest)?))
        }
        TAG_DECIMAL => {
            let scale = i8::from_le_bytes(take(rest)?);
            KeyValue::Decimal(scale, i256::from_le_bytes(take(rest)?))
        }
        _ => return Err("its tag is unknown"),
    })
}

fn take<const LENGTH: usize>(rest: &mut &[u8]) -> Result<[u8; LENGTH], &'static str> {
    let (taken, left) = rest.split_first_chunk::<LENGTH>().ok_or("it is cut short")?;
    *rest = left;
    Ok(*taken)
}

fn take_variable<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let length = u32::from_le_bytes(take(rest)?) as usize;
    let (taken, left) = rest.split_at_checked(length).ok_or("it is cut short")?;
    *rest = left;
    Ok(taken)
}

const OTHER_TYPE: &str = "it has a value of another type";
const OUT_OF_RANGE: &str = "its value does not fit the column";

type Build<'a> = (&'a FieldRef, &'a [KeyValue<'a>]);

fn build(field: &FieldRef, values: &[KeyValue<'_>]) -> Result<ArrayRef, RowsError> {
    let build: Build<'_> = (field, values);
    if !field.is_nullable()
        && let Some(row) = values.iter().position(|value| matches!(value, KeyValue::Null))
    {
        return Err(wrong(row, field, "it is null, and the column may not be"));
    }
    match field.data_type() {
        DataType::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(values.len());
            each(build, boolean, |value| builder.append_option(value))?;
            Ok(Arc::new(builder.finish()))
        }
        DataType::Int8 => primitive::<Int8Type>(build, integer),
        DataType::Int16 => primitive::<Int16Type>(build, integer),
        DataType::Int32 => primitive::<Int32Type>(build, integer),
        DataType::Int64 => primitive::<Int64Type>(build, integer),
        DataType::UInt8 => primitive::<UInt8Type>(build, integer),
        DataType::UInt16 => primitive::<UInt16Type>(build, integer),
        DataType::UInt32 => primitive::<UInt32Type>(build, integer),
        DataType::UInt64 => primitive::<UInt64Type>(build, integer),
        DataType::Float16 => primitive::<Float16Type>(build, |value| {
            float(value).map(<Float16Type as ArrowPrimitiveType>::Native::from_f64)
        }),
        DataType::Float32 => primitive::<Float32Type>(build, |value| float(value).map(|value| value as f32)),
        DataType::Float64 => primitive::<Float64Type>(build, float),
        DataType::Utf8 => {
            let mut builder = StringBuilder::new();
            each(build, text, |value| builder.append_option(value))?;
            Ok(Arc::new(builder.finish()))
        }
        DataType::LargeUtf8 => {
            let mut builder = LargeStringBuilder::new();
            each(build, text, |value| builder.append_option(value))?;
            Ok(Arc::new(builder.finish()))
        }
        DataType::Utf8View => {
            let mut builder = StringViewBuilder::new();
            each(build, text, |value| builder.append_option(value))?;
            Ok(Arc::new(builder.finish()))
        }
        DataType::Binary => {
            let mut builder = BinaryBuilder::new();
            each(build, bytes, |value| builder.append_option(value))?;
            Ok(Arc::new(builder.finish()))
        }
        DataType::LargeBinary => {
            let mut builder = LargeBinaryBuilder::new();
            each(build, bytes, |value| builder.append_option(value))?;
            Ok(Arc::new(builder.finish()))
        }
        DataType::BinaryView => {
            let mut builder = BinaryViewBuilder::new();
            each(build, bytes, |value| builder.append_option(value))?;
            Ok(Arc::new(builder.finish()))
        }
        DataType::FixedSizeBinary(width) => fixed(build, *width),
        DataType::Date32 => primitive::<Date32Type>(build, days),
        DataType::Date64 => primitive::<Date64Type>(build, millis),
        DataType::Decimal32(_, scale) => decimal::<Decimal32Type>(build, *scale, |value| {
            value.to_i128().and_then(|value| i32::try_from(value).ok())
        }),
        DataType::Decimal64(_, scale) => decimal::<Decimal64Type>(build, *scale, |value| {
            value.to_i128().and_then(|value| i64::try_from(value).ok())
        }),
        DataType::Decimal128(_, scale) => decimal::<Decimal128Type>(build, *scale, |value| value.to_i128()),
        DataType::Decimal256(_, scale) => decimal::<Decimal256Type>(build, *scale, Some),
        _ => time(build),
    }
}

fn time(build: Build<'_>) -> Result<ArrayRef, RowsError> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    match build.0.data_type() {
        DataType::Time32(Second) => units::<Time32SecondType>(build, TAG_TIME, Second),
        DataType::Time32(Millisecond) => units::<Time32MillisecondType>(build, TAG_TIME, Millisecond),
        DataType::Time64(Microsecond) => units::<Time64MicrosecondType>(build, TAG_TIME, Microsecond),
        DataType::Time64(Nanosecond) => units::<Time64NanosecondType>(build, TAG_TIME, Nanosecond),
        DataType::Duration(Second) => units::<DurationSecondType>(build, TAG_DURATION, Second),
        DataType::Duration(Millisecond) => units::<DurationMillisecondType>(build, TAG_DURATION, Millisecond),
        DataType::Duration(Microsecond) => units::<DurationMicrosecondType>(build, TAG_DURATION, Microsecond),
        DataType::Duration(Nanosecond) => units::<DurationNanosecondType>(build, TAG_DURATION, Nanosecond),
        DataType::Timestamp(unit, zone) => {
            let tag = if zone.is_some() { TAG_TIMESTAMP_UTC } else { TAG_TIMESTAMP };
            match unit {
                Second => units::<TimestampSecondType>(build, tag, Second),
                Millisecond => units::<TimestampMillisecondType>(build, tag, Millisecond),
                Microsecond => units::<TimestampMicrosecondType>(build, tag, Microsecond),
                Nanosecond => units::<TimestampNanosecondType>(build, tag, Nanosecond),
            }
        }
        other => Err(RowsError::KeyType { column: build.0.name().clone(), data_type: other.clone() }),
    }
}

/// Converts each value that is not null, and hands all of them on in order.
fn each<'a, Value>(
    (field, values): Build<'a>,
    convert: impl Fn(KeyValue<'a>) -> Result<Value, &'static str>,
    mut take: impl FnMut(Option<Value>),
) -> Result<(), RowsError> {
    for (row, value) in values.iter().enumerate() {
        let value = match value {
            KeyValue::Null => None,
            value => Some(convert(*value).map_err(|what| wrong(row, field, what))?),
        };
        take(value);
    }
    Ok(())
}

fn primitive<'a, Type: ArrowPrimitiveType>(
    build: Build<'a>,
    convert: impl Fn(KeyValue<'a>) -> Result<Type::Native, &'static str>,
) -> Result<ArrayRef, RowsError> {
    let mut values = Vec::with_capacity(build.1.len());
    each(build, convert, |value| values.push(value))?;
    let array: PrimitiveArray<Type> = values.into_iter().collect();
    // The zone of a timestamp and the scale of a decimal are the schema's.
    Ok(Arc::new(array.with_data_type(build.0.data_type().clone())))
}

fn fixed(build: Build<'_>, width: i32) -> Result<ArrayRef, RowsError> {
    let right_length = |value| {
        bytes(value).and_then(|value| {
            if value.len() == width as usize { Ok(value) } else { Err("its bytes have another length") }
        })
    };
    let mut values = Vec::with_capacity(build.1.len());
    each(build, right_length, |value| values.push(value))?;
    let mut builder = FixedSizeBinaryBuilder::with_capacity(values.len(), width);
    for value in values {
        match value {
            Some(value) => builder.append_value(value).map_err(RowsError::arrow("made from keys"))?,
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn units<Type: ArrowPrimitiveType>(build: Build<'_>, tag: u8, unit: TimeUnit) -> Result<ArrayRef, RowsError>
where
    Type::Native: TryFrom<i128>,
{
    let unit = nanoseconds_of(&unit);
    primitive::<Type>(build, |value| match value {
        KeyValue::Nanoseconds(found, value) if found == tag => {
            if value % unit != 0 {
                return Err(OUT_OF_RANGE);
            }
            Type::Native::try_from(value / unit).map_err(|_| OUT_OF_RANGE)
        }
        _ => Err(OTHER_TYPE),
    })
}

fn decimal<Type: ArrowPrimitiveType>(
    build: Build<'_>,
    scale: i8,
    narrow: impl Fn(i256) -> Option<Type::Native>,
) -> Result<ArrayRef, RowsError> {
    primitive::<Type>(build, |value| match value {
        KeyValue::Decimal(found, value) if found == scale => narrow(value).ok_or(OUT_OF_RANGE),
        _ => Err(OTHER_TYPE),
    })
}

fn boolean(value: KeyValue<'_>) -> Result<bool, &'static str> {
    if let KeyValue::Boolean(value) = value { Ok(value) } else { Err(OTHER_TYPE) }
}

fn integer<Native: TryFrom<i128>>(value: KeyValue<'_>) -> Result<Native, &'static str> {
    let KeyValue::Integer(value) = value else { return Err(OTHER_TYPE) };
    Native::try_from(value).map_err(|_| OUT_OF_RANGE)
}

fn float(value: KeyValue<'_>) -> Result<f64, &'static str> {
    if let KeyValue::Float(value) = value { Ok(value) } else { Err(OTHER_TYPE) }
}

fn text<'a>(value: KeyValue<'a>) -> Result<&'a str, &'static str> {
    if let KeyValue::Text(value) = value { Ok(value) } else { Err(OTHER_TYPE) }
}

fn bytes<'a>(value: KeyValue<'a>) -> Result<&'a [u8], &'static str> {
    if let KeyValue::Bytes(value) = value { Ok(value) } else { Err(OTHER_TYPE) }
}

fn millis(value: KeyValue<'_>) -> Result<i64, &'static str> {
    if let KeyValue::Date(value) = value { Ok(value) } else { Err(OTHER_TYPE) }
}

fn days(value: KeyValue<'_>) -> Result<i32, &'static str> {
    let millis = millis(value)?;
    if millis % MILLIS_OF_DAY != 0 {
        return Err(OUT_OF_RANGE);
    }
    i32::try_from(millis / MILLIS_OF_DAY).map_err(|_| OUT_OF_RANGE)
}
