//! Key bytes, hashes and partitions that must never change: they say where stored rows lie.
use std::fmt::Write;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array, Decimal128Array,
    Decimal256Array, DictionaryArray, DurationSecondArray, FixedSizeBinaryArray, Float32Array, Float64Array,
    Int8Array, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, RecordBatch, StringArray,
    StringViewArray, Time32SecondArray, Time64NanosecondArray, TimestampMicrosecondArray,
    TimestampSecondArray, UInt8Array, UInt64Array,
};
use arrow_buffer::i256;
use arrow_schema::{Field, Schema};
use laminar_rows::{StreamSchema, hash_key, keys, partition_of};

/// The key of the one row of these columns.
fn key(columns: &[ArrayRef]) -> Vec<u8> {
    let name = |place: usize| format!("k{place}");
    let fields: Vec<Field> = columns
        .iter()
        .enumerate()
        .map(|(place, column)| Field::new(name(place), column.data_type().clone(), true))
        .collect();
    let names: Vec<String> = (0..columns.len()).map(name).collect();
    let schema = StreamSchema::from_arrow(Arc::new(Schema::new(fields.clone())), &names).unwrap();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.to_vec()).unwrap();
    keys(&batch, &schema).unwrap().remove(0)
}

fn one(column: impl arrow_array::Array + 'static) -> Vec<u8> {
    key(&[Arc::new(column)])
}

fn line(name: &str, key: &[u8]) -> String {
    let hex = key.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    let hash = hash_key(key);
    format!("{name}: {} {hash:016x} {}", if hex.is_empty() { "-" } else { &hex }, partition_of(hash, 8))
}

#[test]
fn keys_hashes_and_partitions_are_those_of_the_first_release() {
    let decimal = Decimal128Array::from(vec![-12345]).with_precision_and_scale(10, 2).unwrap();
    let found = [
        line("null", &one(Int64Array::from(vec![None]))),
        line("false", &one(BooleanArray::from(vec![false]))),
        line("true", &one(BooleanArray::from(vec![true]))),
        line("0", &one(Int64Array::from(vec![0]))),
        line("1", &one(Int64Array::from(vec![1]))),
        line("-1", &one(Int64Array::from(vec![-1]))),
        line("9223372036854775807", &one(Int64Array::from(vec![i64::MAX]))),
        line("18446744073709551615", &one(UInt64Array::from(vec![u64::MAX]))),
        line("0.0", &one(Float64Array::from(vec![0.0]))),
        line("1.5", &one(Float64Array::from(vec![1.5]))),
        line("NaN", &one(Float64Array::from(vec![f64::NAN]))),
        line("text ''", &one(StringArray::from(vec![""]))),
        line("text 'order-42'", &one(StringArray::from(vec!["order-42"]))),
        line("text 'ü'", &one(StringArray::from(vec!["ü"]))),
        line("bytes 00ff", &one(BinaryArray::from_vec(vec![&[0, 255]]))),
        line("date 2026-01-01", &one(Date32Array::from(vec![20454]))),
        line("time 00:00:01", &one(Time32SecondArray::from(vec![1]))),
        line("timestamp 1 s", &one(TimestampSecondArray::from(vec![1]))),
        line("timestamp 1 s, zone", &one(TimestampSecondArray::from(vec![1]).with_timezone("UTC"))),
        line("duration -1 s", &one(DurationSecondArray::from(vec![-1]))),
        line("decimal -123.45", &one(decimal)),
        line(
            "(1, 'a')",
            &key(&[Arc::new(Int64Array::from(vec![1])), Arc::new(StringArray::from(vec!["a"]))]),
        ),
        line("stream of bytes, no key", b""),
        line("stream of bytes, 'order-42'", b"order-42"),
    ];
    let golden: Vec<&str> = include_str!("../data/1/keys.txt").lines().collect();
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), golden, "\n{}\n", found.join("\n"));
}

#[test]
fn equal_values_have_equal_keys_in_every_layout() {
    let seven = one(Int64Array::from(vec![7]));
    assert_eq!(one(Int8Array::from(vec![7])), seven);
    assert_eq!(one(UInt8Array::from(vec![7])), seven);
    assert_eq!(one(Int32Array::from(vec![7])), seven);
    assert_eq!(one(UInt64Array::from(vec![7])), seven);

    let float = one(Float64Array::from(vec![0.5]));
    assert_eq!(one(Float32Array::from(vec![0.5])), float);
    assert_eq!(one(Float64Array::from(vec![-0.0])), one(Float64Array::from(vec![0.0])));
    assert_eq!(
        one(Float64Array::from(vec![f64::from_bits(0xfff8_0000_0000_0001)])),
        one(Float32Array::from(vec![f32::NAN]))
    );

    let text = one(StringArray::from(vec!["käse"]));
    assert_eq!(one(LargeStringArray::from(vec!["käse"])), text);
    assert_eq!(one(StringViewArray::from(vec!["käse"])), text);
    assert_eq!(one(DictionaryArray::<Int8Type>::from_iter(["käse"])), text);
    let bytes = one(BinaryArray::from_vec(vec!["käse".as_bytes()]));
    assert_eq!(one(LargeBinaryArray::from_vec(vec!["käse".as_bytes()])), bytes);
    assert_eq!(one(BinaryViewArray::from(vec!["käse".as_bytes()])), bytes);
    assert_eq!(one(FixedSizeBinaryArray::try_from_iter(["käse"].iter()).unwrap()), bytes);
    assert_ne!(bytes, text);

    assert_eq!(one(Date64Array::from(vec![86_400_000])), one(Date32Array::from(vec![1])));
    assert_eq!(one(Time64NanosecondArray::from(vec![2_000_000_000])), one(Time32SecondArray::from(vec![2])));
    assert_eq!(
        one(TimestampMicrosecondArray::from(vec![3_000_000])),
        one(TimestampSecondArray::from(vec![3]))
    );
    let utc = TimestampSecondArray::from(vec![3]).with_timezone("UTC");
    assert_eq!(one(TimestampSecondArray::from(vec![3]).with_timezone("Asia/Tokyo")), one(utc));
    let narrow = Decimal128Array::from(vec![5]).with_precision_and_scale(9, 1).unwrap();
    let wide = Decimal256Array::from(vec![i256::from_i128(5)]).with_precision_and_scale(60, 1).unwrap();
    assert_eq!(one(narrow), one(wide));
}

#[test]
fn columns_of_a_key_do_not_run_into_each_other() {
    let pair = |left: &str, right: &str| {
        key(&[Arc::new(StringArray::from(vec![left])), Arc::new(StringArray::from(vec![right]))])
    };
    assert_ne!(pair("ab", "c"), pair("a", "bc"));
    assert_ne!(pair("", "a"), pair("a", ""));
}

#[test]
fn partitions_cover_the_range_and_grow_with_the_hash() {
    assert_eq!(partition_of(0, 8), 0);
    assert_eq!(partition_of(u64::MAX, 8), 7);
    assert_eq!(partition_of(u64::MAX / 2 + 1, 8), 4);
    assert_eq!(partition_of(u64::MAX, u32::MAX), u32::MAX - 1);
    assert_eq!(partition_of(u64::MAX, 1), 0);
}
