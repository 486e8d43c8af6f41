//! Columns as they come over Arrow's C interface, which checks nothing: what readers would refuse is refused at once.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray, make_array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields, Schema};
use laminar_core::error::ErrorKind;
use laminar_rows::{RowsError, StreamSchema, decode, encode};

fn unchecked(
    data_type: DataType,
    rows: usize,
    nulls: Option<NullBuffer>,
    buffers: Vec<Buffer>,
    children: &[&ArrayRef],
) -> ArrayRef {
    let children: Vec<ArrayData> = children.iter().map(|child| child.to_data()).collect();
    let data = ArrayData::builder(data_type).len(rows).nulls(nulls).buffers(buffers).child_data(children);
    // SAFETY: none; that such data is refused before anything looks at its values is what is tested.
    make_array(unsafe { data.build_unchecked() })
}

/// `good`, and one that is no text.
fn damaged_text() -> ArrayRef {
    let buffers = vec![Buffer::from_slice_ref([0_i32, 4, 6]), Buffer::from(b"good\xff\xfe")];
    unchecked(DataType::Utf8, 2, None, buffers, &[])
}

fn list_of(item: Field, lengths: &[usize], values: &ArrayRef) -> ArrayRef {
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths.iter().copied());
    let buffer = offsets.into_inner().into_inner();
    unchecked(DataType::List(Arc::new(item)), lengths.len(), None, vec![buffer], &[values])
}

fn struct_of(fields: Vec<Field>, rows: usize, nulls: Option<NullBuffer>, children: &[&ArrayRef]) -> ArrayRef {
    unchecked(DataType::Struct(Fields::from(fields)), rows, nulls, vec![], children)
}

fn conform(column: &ArrayRef) -> Result<RecordBatch, RowsError> {
    let columns = || Arc::new(Schema::new(vec![Field::new("v", column.data_type().clone(), true)]));
    let schema = StreamSchema::from_arrow(columns(), &[]).unwrap();
    let batch = RecordBatch::try_new(columns(), vec![column.clone()]).unwrap();
    let rows = schema.conform(&batch)?;
    // What is taken can be read.
    assert_eq!(decode(&encode(&rows).unwrap(), &schema).unwrap(), rows);
    Ok(rows)
}

fn refused(column: &ArrayRef) -> String {
    let error = conform(column).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.to_string()
}

#[test]
fn text_that_is_no_utf8_is_refused_by_column_and_row() {
    let expected = "column v, row 1: its bytes are no UTF-8; repair the text, or make the column binary";
    assert_eq!(refused(&damaged_text()), expected);
    let buffers = vec![Buffer::from_slice_ref([0_i64, 4, 6]), Buffer::from(b"good\xff\xfe")];
    assert_eq!(refused(&unchecked(DataType::LargeUtf8, 2, None, buffers, &[])), expected);

    let keys = Int32Array::from(vec![0, 1, 1]);
    let dictionary = DictionaryArray::<Int32Type>::try_new(keys, damaged_text()).unwrap();
    assert_eq!(refused(&(Arc::new(dictionary) as ArrayRef)), expected);

    let lists = list_of(Field::new("item", DataType::Utf8, true), &[0, 0, 2], &damaged_text());
    assert!(refused(&lists).starts_with("column v.item, row 2: its bytes"));
    let structs = struct_of(vec![Field::new("name", DataType::Utf8, true)], 2, None, &[&damaged_text()]);
    assert!(refused(&structs).starts_with("column v.name, row 1: its bytes"));
}

#[test]
fn a_letter_cut_in_two_is_no_text() {
    let buffers = vec![Buffer::from_slice_ref([0_i32, 1, 2]), Buffer::from("ä".as_bytes())];
    assert!(
        refused(&unchecked(DataType::Utf8, 2, None, buffers, &[])).starts_with("column v, row 0: its bytes")
    );
}

#[test]
fn only_the_rows_of_a_batch_are_looked_at() {
    conform(&damaged_text().slice(0, 1)).unwrap();
    let buffers = vec![Buffer::from_slice_ref([0_i32, 1, 3, 4]), Buffer::from(b"\xff\xc3\xa4\xff")];
    let rows = conform(&unchecked(DataType::Utf8, 3, None, buffers, &[]).slice(1, 1)).unwrap();
    assert_eq!(rows.column(0).as_string::<i32>(), &StringArray::from(vec!["ä"]));
}

#[test]
fn offsets_out_of_order_are_refused() {
    let buffers = vec![Buffer::from_slice_ref([0_i32, 4, 2]), Buffer::from(b"good")];
    let error = refused(&unchecked(DataType::Binary, 2, None, buffers, &[]));
    assert!(error.starts_with("column v: its values are not valid Arrow data"), "{error}");
}

#[test]
fn a_null_inside_of_a_value_is_refused_by_path_and_row() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let field = |name| Field::new(name, DataType::Int64, false);

    let structs = struct_of(vec![field("a")], 3, None, &[&numbers]);
    let expected = "column v.a, row 1: it is null, and the column may not be; give it a value";
    assert_eq!(refused(&structs), expected);

    let lists = list_of(field("item"), &[0, 1, 0, 2], &numbers);
    assert!(refused(&lists).starts_with("column v.item, row 3: it is null"));
    conform(&lists.slice(0, 2)).unwrap();

    let nested = list_of(Field::new("item", structs.data_type().clone(), true), &[1, 2], &structs);
    assert!(refused(&nested).starts_with("column v.item.a, row 1: it is null"));

    let fixed = DataType::FixedSizeList(Arc::new(field("item")), 3);
    assert!(
        refused(&unchecked(fixed, 1, None, vec![], &[&numbers])).starts_with("column v.item, row 0: it is")
    );

    let entries = struct_of(
        vec![field("key"), Field::new("value", DataType::Int64, true)],
        3,
        None,
        &[&numbers, &numbers],
    );
    let map = DataType::Map(Arc::new(Field::new("entries", entries.data_type().clone(), false)), false);
    let map = unchecked(map, 1, None, vec![Buffer::from_slice_ref([0_i32, 3])], &[&entries]);
    assert!(refused(&map).starts_with("column v.entries.key, row 0: it is null"));
}

#[test]
fn parts_of_a_value_that_is_null_itself_may_be_anything() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let nulls = Some(NullBuffer::from(vec![true, false, true]));
    let rows =
        conform(&struct_of(vec![Field::new("a", DataType::Int64, false)], 3, nulls, &[&numbers])).unwrap();
    assert_eq!(rows.column(0).null_count(), 1);
}
