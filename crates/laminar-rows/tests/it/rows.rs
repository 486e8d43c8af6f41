//! Conforming, splitting, projecting and merging, by example.
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, Int32Array, Int64Array, LargeStringArray, ListArray,
    NullArray, RecordBatch, StringArray, StringViewArray, UInt32Array,
};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use laminar_core::error::ErrorKind;
use laminar_rows::{
    Coalescer, RowForm, RowPlace, RowsError, StreamSchema, bytes_batch, check_row_bytes, decode,
    decode_bytes, decode_kv_payload, encode, encode_bytes, encode_kv, project, slice_offsets, split,
    with_metadata,
};

fn schema() -> StreamSchema {
    let fields = vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("size", DataType::Int32, true),
    ];
    StreamSchema::from_arrow(Arc::new(Schema::new(fields)), &["id".to_owned()]).unwrap()
}

fn batch_of(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

fn some_rows() -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, 2, 3])),
        Arc::new(StringArray::from(vec![Some("a"), None, Some("c")])),
        Arc::new(Int32Array::from(vec![Some(10), None, Some(30)])),
    ];
    RecordBatch::try_new(schema().arrow().clone(), columns).unwrap()
}

#[test]
fn columns_are_ordered_widened_and_filled() {
    let names: DictionaryArray<Int32Type> = vec![Some("a"), None, Some("c")].into_iter().collect();
    let batch = batch_of(vec![("name", Arc::new(names)), ("id", Arc::new(UInt32Array::from(vec![1, 2, 3])))]);
    let rows = schema().conform(&batch).unwrap();
    assert_eq!(rows.schema(), *schema().arrow());
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 2, 3]);
    assert_eq!(rows.column(1), some_rows().column(1));
    assert_eq!(rows.column(2).null_count(), 3);

    for name in [
        Arc::new(LargeStringArray::from(vec![Some("a"), None, Some("c")])) as ArrayRef,
        Arc::new(StringViewArray::from(vec![Some("a"), None, Some("c")])),
    ] {
        let batch = batch_of(vec![("id", Arc::new(Int64Array::from(vec![1, 2, 3]))), ("name", name)]);
        assert_eq!(schema().conform(&batch).unwrap().column(1), some_rows().column(1));
    }
    let batch =
        batch_of(vec![("id", Arc::new(Int64Array::from(vec![1]))), ("name", Arc::new(NullArray::new(1)))]);
    assert_eq!(schema().conform(&batch).unwrap().column(1).null_count(), 1);
}

#[test]
fn what_does_not_fit_is_named() {
    let ids = || Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef;
    let refused = |columns| schema().conform(&batch_of(columns)).unwrap_err();

    let error = refused(vec![("id", ids()), ("nam", Arc::new(StringArray::from(vec!["a", "b"])))]);
    assert_eq!(error.to_string(), "column nam: the stream has no such column; it has id, name, size");
    assert_eq!(error.kind(), ErrorKind::Invalid);

    let error = refused(vec![("id", ids()), ("size", ids())]);
    assert_eq!(
        error.to_string(),
        "column size: type Int64 does not fit Int32 without loss; convert it before appending"
    );
    assert!(
        matches!(refused(vec![("size", Arc::new(Int32Array::from(vec![1])))]), RowsError::MissingColumn { column } if column == "id")
    );
    assert!(matches!(
        refused(vec![("id", Arc::new(Int64Array::from(vec![Some(1), None])))]),
        RowsError::NullValue { column, row: 1 } if column == "id"
    ));
    let twice =
        Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("id", DataType::Int64, false)]);
    let twice = RecordBatch::try_new(Arc::new(twice), vec![ids(), ids()]).unwrap();
    assert!(matches!(schema().conform(&twice).unwrap_err(), RowsError::DuplicateColumn { .. }));
}

#[test]
fn schemas_that_cannot_be_stored_are_refused() {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let made = |data_type, key: &[&str]| {
        let schema = Schema::new(vec![Field::new("c", data_type, true)]);
        StreamSchema::from_arrow(
            Arc::new(schema),
            &key.iter().map(|name| name.to_string()).collect::<Vec<_>>(),
        )
    };
    assert!(matches!(made(DataType::Null, &[]).unwrap_err(), RowsError::UnsupportedType { .. }));
    assert!(matches!(
        made(DataType::ListView(item.clone()), &[]).unwrap_err(),
        RowsError::UnsupportedType { .. }
    ));
    assert!(matches!(made(DataType::List(item), &["c"]).unwrap_err(), RowsError::KeyType { .. }));
    assert!(matches!(made(DataType::Int8, &["d"]).unwrap_err(), RowsError::BadKey { .. }));
    assert!(matches!(made(DataType::Int8, &["c", "c"]).unwrap_err(), RowsError::BadKey { .. }));
    let none = StreamSchema::from_arrow(Arc::new(Schema::empty()), &[]);
    assert!(matches!(none.unwrap_err(), RowsError::NoColumns));
    let reserved = Schema::new(vec![Field::new("_offset", DataType::Int64, true)]);
    let reserved = StreamSchema::from_arrow(Arc::new(reserved), &[]);
    assert!(matches!(reserved.unwrap_err(), RowsError::ReservedColumn { .. }));
    let mut deep = DataType::Int8;
    for _ in 0..40 {
        deep = DataType::List(Arc::new(Field::new("item", deep, true)));
    }
    assert!(matches!(made(deep, &[]).unwrap_err(), RowsError::UnsupportedType { .. }));
}

#[test]
fn dictionaries_are_stored_by_value_also_in_lists() {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let item = Arc::new(Field::new("item", dictionary.clone(), true));
    let columns = Schema::new(vec![
        Field::new("a", dictionary, true),
        Field::new("b", DataType::List(item.clone()), true),
    ]);
    let schema = StreamSchema::from_arrow(Arc::new(columns.clone()), &["a".to_owned()]).unwrap();
    assert_eq!(schema.arrow().field(0).data_type(), &DataType::Utf8);

    let values: DictionaryArray<Int32Type> = ["x", "y", "x"].into_iter().collect();
    let offsets = arrow_buffer::OffsetBuffer::from_lengths([2, 0, 1]);
    let lists = ListArray::new(item, offsets, Arc::new(values.clone()), None);
    let batch = RecordBatch::try_new(Arc::new(columns), vec![Arc::new(values), Arc::new(lists)]).unwrap();
    let rows = schema.conform(&batch).unwrap();
    assert_eq!(decode(&encode(&rows).unwrap(), &schema).unwrap(), rows);
    assert_eq!(rows.column(1).as_list::<i32>().value(0).as_string::<i32>().value(1), "y");
}

#[test]
fn rows_of_one_partition_are_not_copied() {
    let rows = some_rows();
    let parts = split(&rows, &schema(), 1).unwrap();
    assert_eq!(parts.len(), 1);
    assert!(Arc::ptr_eq(parts[0].1.column(0), rows.column(0)));
    assert!(matches!(split(&rows, &schema(), 0).unwrap_err(), RowsError::NoPartitions));
    let unkeyed = StreamSchema::from_arrow(schema().arrow().clone(), &[]).unwrap();
    assert!(!unkeyed.has_key());
    assert!(matches!(split(&rows, &unkeyed, 4).unwrap_err(), RowsError::NoKey));
    assert!(matches!(unkeyed.form(true).unwrap_err(), RowsError::NoKey));
    assert_eq!(schema().form(true).unwrap(), RowForm::Kv);
}

#[test]
fn large_bodies_are_compressed_where_it_helps() {
    let column = |values: Vec<i64>| {
        let field = Field::new("id", DataType::Int64, false);
        let schema = StreamSchema::from_arrow(Arc::new(Schema::new(vec![field])), &[]).unwrap();
        let batch =
            RecordBatch::try_new(schema.arrow().clone(), vec![Arc::new(Int64Array::from(values))]).unwrap();
        (encode(&batch).unwrap(), schema, batch)
    };
    let (payload, schema, batch) = column(vec![7; 10_000]);
    assert!(payload.len() < 2_000, "{}", payload.len());
    assert_eq!(decode(&payload, &schema).unwrap(), batch);

    let noise = (0..10_000_u64)
        .map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) as i64 ^ 0x5bd1);
    let (payload, schema, batch) = column(noise.collect());
    let decoded = decode(&payload, &schema).unwrap();
    assert_eq!(decoded, batch);
    assert!(payload.len() > 80_000, "{}", payload.len());
    // What is stored as it is shares its memory with the payload, where that begins at a multiple of 8.
    let values = decoded.column(0).as_primitive::<Int64Type>().values().as_ptr() as usize;
    let begin = payload.as_ptr() as usize;
    assert_eq!((begin..begin + payload.len()).contains(&values), begin.is_multiple_of(8));
}

#[test]
fn views_of_few_rows_do_not_carry_the_rest_along() {
    let field = Field::new("text", DataType::Utf8View, false);
    let schema = StreamSchema::from_arrow(Arc::new(Schema::new(vec![field])), &[]).unwrap();
    let texts = StringViewArray::from_iter_values(
        (0..10_000).map(|number| format!("a longer text, number {number}")),
    );
    let batch = RecordBatch::try_new(schema.arrow().clone(), vec![Arc::new(texts)]).unwrap().slice(77, 2);
    let payload = encode(&batch).unwrap();
    assert!(payload.len() < 1_000, "{}", payload.len());
    assert_eq!(decode(&payload, &schema).unwrap(), batch);
}

#[test]
fn other_versions_and_kinds_are_told_apart() {
    let payload = encode(&some_rows()).unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = payload.to_vec();
        bytes[at] = byte;
        decode(&Bytes::from(bytes), &schema()).unwrap_err()
    };
    assert!(matches!(with(0, 2), RowsError::UnknownVersion { found: 2, known: 1 }));
    assert!(matches!(with(1, 2), RowsError::UnexpectedKind { found: 2, .. }));
    assert!(matches!(with(2, 1), RowsError::Malformed { at: 2, .. }));
    assert_eq!(with(0, 2).kind(), ErrorKind::Corrupt);
    let mut longer = payload.to_vec();
    longer.push(0);
    assert!(matches!(decode(&longer.into(), &schema()).unwrap_err(), RowsError::Malformed { .. }));
}

#[test]
fn operations_are_those_of_the_kv_machine() {
    let batch = bytes_batch(
        BinaryArray::from_opt_vec(vec![Some(b"k"), None]),
        BinaryArray::from_opt_vec(vec![None, Some(b"vw")]),
    )
    .unwrap();
    let payload = encode_bytes(&batch).unwrap();
    assert_eq!(payload, &b"\x01\0\0\0\xff\xff\xff\xffk\0\0\0\0\x02\0\0\0vw"[..]);
    assert_eq!(decode_bytes(&payload).unwrap(), batch);
    let cut = decode_bytes(&payload.slice(..payload.len() - 1)).unwrap_err();
    assert!(matches!(cut, RowsError::Malformed { at: 9, .. }));
}

#[test]
fn a_kv_row_of_nulls_removes_its_key() {
    let payload = encode_kv(&some_rows(), &schema()).unwrap();
    assert_eq!(decode_kv_payload(&payload, &schema()).unwrap(), some_rows());
    // The second row is a tombstone: 8 bytes of lengths and 9 of the key.
    let second = encode_kv(&some_rows().slice(1, 1), &schema()).unwrap();
    assert_eq!(second, &b"\x09\0\0\0\xff\xff\xff\xff\x10\x02\0\0\0\0\0\0\0"[..]);

    // A row under the key of another one.
    let mut swapped = payload.to_vec();
    swapped[9] = 5;
    let error = decode_kv_payload(&swapped.into(), &schema()).unwrap_err();
    assert!(matches!(error, RowsError::KeyMismatch { row: 0 }));
}

#[test]
fn projection_and_slices_by_offset() {
    let rows = some_rows();
    let names = project(&rows, &["size", "id"]).unwrap();
    assert_eq!(names.schema().field(0).name(), "size");
    let error = project(&rows, &["colour"]).unwrap_err();
    assert_eq!(error.to_string(), "column colour: the stream has no such column; it has id, name, size");

    assert_eq!(slice_offsets(&rows, 100, 101..103).unwrap(), rows.slice(1, 2));
    assert_eq!(slice_offsets(&rows, 100, 103..103).unwrap().num_rows(), 0);
    for range in [99..101, 101..104, std::ops::Range { start: 102, end: 101 }] {
        let error = slice_offsets(&rows, 100, range).unwrap_err();
        assert!(matches!(error, RowsError::RowsOutOfRange { first: 100, last: 103, .. }));
    }
}

#[test]
fn small_batches_are_merged_and_large_ones_pass() {
    let rows = some_rows();
    let mut coalescer = Coalescer::new(5);
    assert_eq!(coalescer.push(rows.clone()).unwrap(), []);
    assert_eq!(coalescer.pending_rows(), 3);
    let merged = coalescer.push(rows.clone()).unwrap();
    assert_eq!(merged.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [6]);
    assert_eq!(merged[0].slice(3, 3), rows);

    coalescer.push(rows.clone()).unwrap();
    let passed = coalescer.push(merged[0].clone()).unwrap();
    assert_eq!(passed.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [3, 6]);
    assert!(Arc::ptr_eq(passed[1].column(0), merged[0].column(0)));
    assert_eq!(coalescer.finish().unwrap(), None);
}

#[test]
fn metadata_tells_where_rows_stand() {
    let place = RowPlace { partition: 3, first_offset: 40, time_ms: 1_700_000_000_000, epoch: 9 };
    let rows = with_metadata(&some_rows(), place).unwrap();
    let names: Vec<&str> = rows.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "name", "size", "_partition", "_offset", "_timestamp", "_epoch"]);
    assert_eq!(rows.column(3).as_primitive::<Int32Type>().values(), &[3, 3, 3]);
    assert_eq!(rows.column(4).as_primitive::<Int64Type>().values(), &[40, 41, 42]);
    assert_eq!(rows.column(6).as_primitive::<Int64Type>().values(), &[9, 9, 9]);
    let error = with_metadata(&some_rows(), RowPlace { first_offset: u64::MAX, ..place }).unwrap_err();
    assert!(matches!(error, RowsError::NumberTooLarge { what: "the offset", .. }));
}

#[test]
fn a_row_that_is_too_large_is_named() {
    let names = StringArray::from(vec!["a".to_owned(), "b".repeat(2_000)]);
    let batch = batch_of(vec![("id", Arc::new(Int64Array::from(vec![1, 2]))), ("name", Arc::new(names))]);
    check_row_bytes(&batch, 2_008).unwrap();
    let error = check_row_bytes(&batch, 2_007).unwrap_err();
    assert!(matches!(error, RowsError::RowTooLarge { row: 1, bytes: 2_008, limit: 2_007 }));
}

#[test]
fn every_form_gives_its_rows_back() {
    let bytes = bytes_batch(BinaryArray::from_vec(vec![b"k"]), BinaryArray::from_vec(vec![b"v"])).unwrap();
    for (schema, kv, rows) in [
        (schema(), false, some_rows()),
        (schema(), true, some_rows()),
        (StreamSchema::bytes(), false, bytes.clone()),
        (StreamSchema::bytes(), true, bytes),
    ] {
        let form = schema.form(kv).unwrap();
        assert_eq!(form.decode(&form.encode(&rows, &schema).unwrap(), &schema).unwrap(), rows, "{form:?}");
    }
}
