//! The columns of a stream and its key.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use crate::error::RowsError;
use crate::metadata::METADATA_COLUMNS;
use crate::schema_bytes;

/// Types nested deeper than this are refused, also by the readers of stored schemas.
pub(crate) const NESTING_MAX: usize = 32;

/// The one schema of all streams of bytes.
static BYTES: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Binary, true),
        Field::new("value", DataType::Binary, true),
    ]))
});

/// How the rows of a stream are laid out in the payload of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowForm {
    /// Arrow columns: [`encode`](crate::encode()).
    Arrow,
    /// Keys and values as bytes: [`encode_bytes`](crate::encode_bytes).
    Bytes,
    /// One Arrow row a key: [`encode_kv`](crate::encode_kv).
    Kv,
}

/// The columns of a stream, and those of them that are its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSchema {
    arrow: SchemaRef,
    /// Places of the key columns, in the order of the key.
    key: Vec<usize>,
    bytes: bool,
}

impl StreamSchema {
    /// The schema of a stream of bytes: a key and a value, both bytes that may be none.
    pub fn bytes() -> Self {
        Self { arrow: BYTES.clone(), key: vec![0], bytes: true }
    }

    /// A schema of these columns. Dictionaries are stored by value, so their columns get the type of their values.
    ///
    /// # Errors
    ///
    /// Invalid: no columns, two of one name, a type that cannot be stored, or a key that is not there or not hashable.
    pub fn from_arrow(schema: SchemaRef, key: &[String]) -> Result<Self, RowsError> {
        if schema.fields().is_empty() {
            return Err(RowsError::NoColumns);
        }
        let mut names = BTreeSet::new();
        for field in schema.fields() {
            let column = || field.name().clone();
            if METADATA_COLUMNS.contains(&field.name().as_str()) {
                return Err(RowsError::ReservedColumn { column: column() });
            }
            if !names.insert(field.name()) {
                return Err(RowsError::DuplicateColumn { column: column() });
            }
        }
        let fields: Fields = schema
            .fields()
            .iter()
            .map(|field| stored_field(field, field.name(), 0))
            .collect::<Result<_, _>>()?;
        let arrow = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        let key = key_places(&arrow, key)?;
        Ok(Self { arrow, key, bytes: false })
    }

    /// The schema that [`to_bytes`](Self::to_bytes) wrote, or any Arrow IPC schema message; no bytes are a stream of bytes.
    ///
    /// # Errors
    ///
    /// Invalid: the bytes are no schema that we read, or as [`from_arrow`](Self::from_arrow) says.
    pub fn from_bytes(bytes: &[u8], key: &[String]) -> Result<Self, RowsError> {
        if !bytes.is_empty() {
            return Self::from_arrow(Arc::new(schema_bytes::read(bytes)?), key);
        }
        match key {
            [] => Ok(Self::bytes()),
            [name] if name == "key" => Ok(Self::bytes()),
            [name, ..] => Err(RowsError::BadKey {
                column: name.clone(),
                what: "the key of a stream of bytes is its column key",
                columns: column_names(&BYTES),
            }),
        }
    }

    /// The schema as an Arrow IPC schema message; no bytes for a stream of bytes.
    ///
    /// # Errors
    ///
    /// Internal: Arrow could not write it.
    pub fn to_bytes(&self) -> Result<Vec<u8>, RowsError> {
        if self.bytes { Ok(Vec::new()) } else { schema_bytes::write(&self.arrow) }
    }

    /// The Arrow schema of the stream's rows.
    pub fn arrow(&self) -> &SchemaRef {
        &self.arrow
    }

    /// Whether rows are keys and values as bytes.
    pub fn is_bytes(&self) -> bool {
        self.bytes
    }

    /// Whether rows find their partition by key. If not, the caller chooses one for a whole batch.
    pub fn has_key(&self) -> bool {
        !self.key.is_empty()
    }

    /// Places of the key columns, in the order of the key.
    pub fn key_places(&self) -> &[usize] {
        &self.key
    }

    /// The names of the key columns, in the order of the key.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        self.key_fields().map(|field| field.name().as_str())
    }

    pub(crate) fn key_fields(&self) -> impl Iterator<Item = &FieldRef> {
        self.key.iter().map(|place| &self.arrow.fields()[*place])
    }

    /// How the stream's payloads are laid out, with the kv machine or with any other.
    ///
    /// # Errors
    ///
    /// Invalid: a kv stream without a key.
    pub fn form(&self, kv: bool) -> Result<RowForm, RowsError> {
        match (self.bytes, kv) {
            (true, _) => Ok(RowForm::Bytes),
            (false, false) => Ok(RowForm::Arrow),
            (false, true) if self.has_key() => Ok(RowForm::Kv),
            (false, true) => Err(RowsError::NoKey),
        }
    }
}

/// The names of all columns, for messages.
pub(crate) fn column_names(schema: &Schema) -> String {
    schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
}

fn key_places(schema: &Schema, key: &[String]) -> Result<Vec<usize>, RowsError> {
    let bad = |column: &String, what| RowsError::BadKey {
        column: column.clone(),
        what,
        columns: column_names(schema),
    };
    let mut places = Vec::with_capacity(key.len());
    for name in key {
        let place = schema.index_of(name).map_err(|_| bad(name, "there is no such column"))?;
        if places.contains(&place) {
            return Err(bad(name, "it is named twice"));
        }
        let data_type = schema.field(place).data_type();
        if !is_hashable(data_type) {
            return Err(RowsError::KeyType { column: name.clone(), data_type: data_type.clone() });
        }
        places.push(place);
    }
    Ok(places)
}

fn is_hashable(data_type: &DataType) -> bool {
    use DataType::{
        BinaryView, Boolean, Date32, Date64, Duration, FixedSizeBinary, Time32, Time64, Timestamp, Utf8View,
    };
    data_type.is_integer()
        || data_type.is_floating()
        || data_type.is_decimal()
        || data_type.is_string()
        || data_type.is_binary()
        || matches!(
            data_type,
            Boolean
                | Date32
                | Date64
                | Time32(_)
                | Time64(_)
                | Timestamp(..)
                | Duration(_)
                | FixedSizeBinary(_)
        )
        || matches!(data_type, Utf8View | BinaryView)
}

/// The field as it is stored: dictionaries by value, and views inside of nested types as plain text or bytes.
fn stored_field(field: &FieldRef, column: &str, depth: usize) -> Result<FieldRef, RowsError> {
    let data_type = stored_type(field.data_type(), column, depth)?;
    if data_type == *field.data_type() {
        return Ok(field.clone());
    }
    // A new field: the old one carries the mark of a dictionary.
    Ok(Arc::new(
        Field::new(field.name(), data_type, field.is_nullable()).with_metadata(field.metadata().clone()),
    ))
}

fn stored_type(data_type: &DataType, column: &str, depth: usize) -> Result<DataType, RowsError> {
    let refuse = |reason| {
        Err(RowsError::UnsupportedType { column: column.to_owned(), data_type: data_type.clone(), reason })
    };
    let inner = |field: &FieldRef| stored_field(field, column, depth + 1);
    if depth > NESTING_MAX {
        return refuse("it is nested too deep; make it flatter");
    }
    match data_type {
        DataType::Dictionary(_, values) => stored_type(values, column, depth + 1),
        // Views of a part keep all of their buffers alive: in nested types they could not be made small again.
        DataType::Utf8View if depth > 0 => Ok(DataType::Utf8),
        DataType::BinaryView if depth > 0 => Ok(DataType::Binary),
        DataType::List(field) => Ok(DataType::List(inner(field)?)),
        DataType::LargeList(field) => Ok(DataType::LargeList(inner(field)?)),
        DataType::FixedSizeList(field, length) if *length > 0 => {
            Ok(DataType::FixedSizeList(inner(field)?, *length))
        }
        DataType::Map(field, sorted) => Ok(DataType::Map(inner(field)?, *sorted)),
        DataType::Struct(fields) if !fields.is_empty() => {
            Ok(DataType::Struct(fields.iter().map(inner).collect::<Result<_, _>>()?))
        }
        // What has no bytes for its rows cannot be checked: a damaged count would be believed.
        DataType::Null | DataType::Struct(_) => refuse("it has no values; give it a type, or leave it out"),
        DataType::FixedSizeBinary(0) | DataType::FixedSizeList(..) => refuse("its length must be at least 1"),
        DataType::FixedSizeBinary(width) if *width < 0 => refuse("its length must be at least 1"),
        DataType::Union(..) => refuse("use one nullable column for each alternative"),
        DataType::RunEndEncoded(..) => refuse("use the type of its values; rows are compressed anyway"),
        DataType::ListView(_) | DataType::LargeListView(_) => refuse("use a list"),
        other => Ok(other.clone()),
    }
}
