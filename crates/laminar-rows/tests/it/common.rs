//! Random batches of all types that streams have, from a seed.
use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, StringViewBuilder};
use arrow_array::{
    Array, ArrayRef, BinaryArray, LargeBinaryArray, LargeStringArray, RecordBatch, RecordBatchOptions,
    StringArray, make_array,
};
use arrow_buffer::{Buffer, i256};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, TimeUnit};
use laminar_rows::StreamSchema;

/// SplitMix64: small, and the same everywhere.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

pub(crate) fn key_types() -> Vec<DataType> {
    use DataType::*;
    use TimeUnit::*;
    let mut types = vec![
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        FixedSizeBinary(5),
        Date32,
        Date64,
        Time32(Second),
        Time32(Millisecond),
        Time64(Microsecond),
        Time64(Nanosecond),
        Decimal32(7, 2),
        Decimal64(15, 3),
        Decimal128(20, 4),
        Decimal256(50, -2),
    ];
    for unit in [Second, Millisecond, Microsecond, Nanosecond] {
        types.extend([Timestamp(unit, None), Timestamp(unit, Some("Europe/Oslo".into())), Duration(unit)]);
    }
    types
}

pub(crate) fn all_types() -> Vec<DataType> {
    let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
    let pair = Fields::from(vec![
        Field::new("keys", DataType::Utf8, false),
        Field::new("values", DataType::Int64, true),
    ]);
    let mut types = key_types();
    types.extend([
        DataType::Interval(IntervalUnit::YearMonth),
        DataType::Interval(IntervalUnit::DayTime),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::List(field("item", DataType::Int32)),
        DataType::LargeList(field("item", DataType::Utf8)),
        DataType::FixedSizeList(field("item", DataType::Int16), 3),
        DataType::Struct(vec![field("a", DataType::Utf8), field("b", DataType::Boolean)].into()),
        DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair), false)), false),
        DataType::List(field("item", DataType::Struct(vec![field("deep", DataType::Float64)].into()))),
    ]);
    types
}

/// An array of random values; nullable ones are null in about a third of the rows.
pub(crate) fn array(rng: &mut Rng, data_type: &DataType, rows: usize, nullable: bool) -> ArrayRef {
    let valid: Vec<bool> = (0..rows).map(|_| !nullable || rng.below(3) > 0).collect();
    let text = |rng: &mut Rng| {
        let length = rng.below(20);
        (0..length).map(|_| ['a', 'ü', '√', '𝄞', 'z'][rng.below(5)]).collect::<String>()
    };
    let texts = |rng: &mut Rng| -> Vec<Option<String>> {
        valid.iter().map(|valid| valid.then(|| text(rng))).collect()
    };
    let blobs = |rng: &mut Rng| -> Vec<Option<Vec<u8>>> {
        valid
            .iter()
            .map(|valid| {
                valid.then(|| {
                    let length = rng.below(20);
                    rng.bytes(length)
                })
            })
            .collect()
    };
    match data_type {
        DataType::Utf8 => Arc::new(StringArray::from(texts(rng))),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from(texts(rng))),
        DataType::Utf8View => {
            let mut builder = StringViewBuilder::new();
            texts(rng).into_iter().for_each(|text| builder.append_option(text));
            Arc::new(builder.finish())
        }
        DataType::Binary => Arc::new(BinaryArray::from_iter(blobs(rng))),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(blobs(rng))),
        DataType::BinaryView => {
            let mut builder = BinaryViewBuilder::new();
            blobs(rng).into_iter().for_each(|blob| builder.append_option(blob));
            Arc::new(builder.finish())
        }
        _ => plain(rng, data_type, rows, &valid),
    }
}

fn plain(rng: &mut Rng, data_type: &DataType, rows: usize, valid: &[bool]) -> ArrayRef {
    let nulls = valid.contains(&false).then(|| Buffer::from_iter(valid.iter().copied()));
    let builder = ArrayData::builder(data_type.clone()).len(rows).null_bit_buffer(nulls);
    let small: Vec<i64> = (0..rows).map(|_| rng.below(2_000_001) as i64 - 1_000_000).collect();
    let offsets = |rng: &mut Rng| {
        let mut ends = vec![0_i32];
        (0..rows).for_each(|row| ends.push(ends[row] + rng.below(4) as i32));
        ends
    };
    let builder = match data_type {
        DataType::Boolean => builder.add_buffer(rng.bytes(rows.div_ceil(8)).into()),
        DataType::Decimal32(..) => {
            builder.add_buffer(Buffer::from_iter(small.iter().map(|value| *value as i32)))
        }
        DataType::Decimal64(..) => builder.add_buffer(Buffer::from_vec(small)),
        DataType::Decimal128(..) => {
            builder.add_buffer(Buffer::from_iter(small.iter().map(|value| i128::from(*value))))
        }
        DataType::Decimal256(..) => {
            builder.add_buffer(Buffer::from_iter(small.iter().map(|value| i256::from_i128((*value).into()))))
        }
        DataType::FixedSizeBinary(width) => builder.add_buffer(rng.bytes(rows * *width as usize).into()),
        DataType::List(item) | DataType::Map(item, _) => {
            let ends = offsets(rng);
            let values = array(rng, item.data_type(), ends[rows] as usize, item.is_nullable());
            builder.add_buffer(Buffer::from_vec(ends)).add_child_data(values.to_data())
        }
        DataType::LargeList(item) => {
            let ends: Vec<i64> = offsets(rng).into_iter().map(i64::from).collect();
            let values = array(rng, item.data_type(), ends[rows] as usize, item.is_nullable());
            builder.add_buffer(Buffer::from_vec(ends)).add_child_data(values.to_data())
        }
        DataType::FixedSizeList(item, length) => {
            builder.add_child_data(array(rng, item.data_type(), rows * *length as usize, true).to_data())
        }
        DataType::Struct(fields) => fields.iter().fold(builder, |builder, field| {
            builder.add_child_data(array(rng, field.data_type(), rows, field.is_nullable()).to_data())
        }),
        // Any bits are a value of these.
        other => builder.add_buffer(rng.bytes(rows * other.primitive_width().unwrap()).into()),
    };
    make_array(builder.align_buffers(true).build().unwrap())
}

/// A schema of some columns, of which some are the key, and a batch of them.
pub(crate) fn stream(rng: &mut Rng, rows: usize) -> (StreamSchema, RecordBatch) {
    let (keys, all) = (key_types(), all_types());
    let key_columns = 1 + rng.below(3);
    let columns = key_columns + rng.below(4);
    let fields: Vec<Field> = (0..columns)
        .map(|place| {
            let types = if place < key_columns { &keys } else { &all };
            Field::new(format!("c{place}"), types[rng.below(types.len())].clone(), rng.below(4) > 0)
        })
        .collect();
    let key: Vec<String> = (0..key_columns).map(|place| format!("c{place}")).collect();
    let schema = StreamSchema::from_arrow(Arc::new(Schema::new(fields)), &key).unwrap();
    let batch = batch(rng, &schema, rows);
    (schema, batch)
}

/// A batch of a schema that begins and ends somewhere in larger arrays.
pub(crate) fn batch(rng: &mut Rng, schema: &StreamSchema, rows: usize) -> RecordBatch {
    let before = rng.below(9);
    let columns = schema.arrow().fields().iter().map(|field| {
        array(rng, field.data_type(), before + rows + 3, field.is_nullable()).slice(before, rows)
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.arrow().clone(), columns.collect(), &options).unwrap()
}
