//! Rows of one stream: placed in partitions, encoded and decoded as the stream's machine reads them.

use std::collections::BTreeMap;

use arrow_array::{BinaryArray, RecordBatch};
use bytes::Bytes;
use laminar_core::error::ErrorKind;
use laminar_rows::{RowsError, StreamSchema};
use laminar_rpc::{ErrorClass, Failure};

/// What the records of a stream carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Arrow rows without schema.
    Rows,
    /// Arrow rows with their schema, for an application's machine.
    RowsWithSchema,
    /// Keys and values as they were given.
    Bytes,
    /// Rows by key.
    Keyed,
}

/// How the rows of a stream are placed, encoded and decoded.
#[derive(Debug)]
pub(crate) struct Codec {
    schema: StreamSchema,
    form: Form,
    row_bytes_max: Option<u64>,
}

/// A key and a value of a stream of bytes; a value that is none removes the key.
pub type Pair = (Option<Bytes>, Option<Bytes>);

/// Rows as they are given.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows<'a> {
    Batches(&'a [RecordBatch]),
    /// Of a stream of bytes.
    Pairs(&'a [Pair]),
}

/// Which partition of the stream rows go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// This one, all of them.
    Chosen(u32),
    /// Each where its key says, of so many.
    ByKey {
        /// The count of partitions.
        count: u32,
    },
}

impl Place {
    /// The count that a request names: 0 if the key did not matter.
    pub(crate) fn partition_count(self) -> u32 {
        match self {
            Place::Chosen(_) => 0,
            Place::ByKey { count } => count,
        }
    }
}

/// Encoded rows of one partition.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// The partition of the stream.
    pub(crate) ordinal: u32,
    pub(crate) rows: u32,
    pub(crate) payload: Pieces,
}

/// Bytes in two pieces that follow each other: what is large is not copied to stand behind its header.
#[derive(Debug, Clone)]
pub(crate) struct Pieces([Bytes; 2]);

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.0[0].len() + self.0[1].len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter()
    }

    /// The bytes in one piece.
    pub(crate) fn joined(&self) -> Bytes {
        if self.0[1].is_empty() { self.0[0].clone() } else { self.0.concat().into() }
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        Self([bytes, Bytes::new()])
    }
}

impl Codec {
    pub(crate) fn new(
        schema: &[u8],
        key: &[String],
        machine: &str,
        row_bytes_max: Option<u64>,
    ) -> Result<Self, Failure> {
        let schema = if schema.is_empty() {
            StreamSchema::bytes()
        } else {
            StreamSchema::from_bytes(schema, key).map_err(failure)?
        };
        let form = match machine {
            _ if schema.is_bytes() => Form::Bytes,
            "log" => Form::Rows,
            "kv" => Form::Keyed,
            _ => Form::RowsWithSchema,
        };
        Ok(Codec { schema, form, row_bytes_max })
    }

    pub(crate) fn schema(&self) -> &StreamSchema {
        &self.schema
    }

    /// Places and encodes rows: all in one partition, or where the key of each says.
    pub(crate) fn encode(&self, rows: Rows<'_>, place: Place) -> Result<Vec<Part>, Failure> {
        let batches = match rows {
            Rows::Batches(batches) => batches,
            Rows::Pairs(pairs) => return self.encode_pairs(pairs, place),
        };
        let mut conformed = Vec::with_capacity(batches.len());
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            conformed.push(self.schema.conform(batch).map_err(failure)?);
        }
        let Some(batch) = self.join(conformed)? else {
            return Ok(Vec::new());
        };
        self.check_row_bytes(&batch)?;
        self.split(batch, place)?.iter().map(|(ordinal, rows)| self.part(*ordinal, rows)).collect()
    }

    /// Places and encodes keys and values of a stream of bytes as [`encode`](Self::encode) does rows. They are not made
    /// columns first: for a single one that takes more time than all the rest.
    fn encode_pairs(&self, pairs: &[Pair], place: Place) -> Result<Vec<Part>, Failure> {
        if let Some(limit) = self.row_bytes_max {
            laminar_rows::check_pair_bytes(pairs.iter().map(operation), limit).map_err(failure)?;
        }
        let mut placed: BTreeMap<u32, Vec<&Pair>> = BTreeMap::new();
        for pair in pairs {
            let ordinal = match place {
                Place::Chosen(ordinal) => ordinal,
                Place::ByKey { count } => self.partition_of(operation(pair).0, count),
            };
            placed.entry(ordinal).or_default().push(pair);
        }
        let part = |(ordinal, pairs): (u32, Vec<&Pair>)| {
            let rows = row_count(ordinal, pairs.len())?;
            let payload = laminar_rows::encode_pairs(pairs.into_iter().map(operation)).map_err(failure)?;
            Ok(Part { ordinal, rows, payload: payload.into() })
        };
        placed.into_iter().map(part).collect()
    }

    /// Rows as the stream has them, checked and not yet placed.
    pub(crate) fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch, Failure> {
        let batch = self.schema.conform(batch).map_err(failure)?;
        self.check_row_bytes(&batch)?;
        Ok(batch)
    }

    /// Rows by partition, in the order of the partitions.
    pub(crate) fn split(&self, batch: RecordBatch, place: Place) -> Result<Vec<(u32, RecordBatch)>, Failure> {
        match place {
            Place::Chosen(ordinal) => Ok(vec![(ordinal, batch)]),
            Place::ByKey { count } => laminar_rows::split(&batch, &self.schema, count).map_err(failure),
        }
    }

    /// One batch of many that have the stream's columns; none of none.
    pub(crate) fn join(&self, mut batches: Vec<RecordBatch>) -> Result<Option<RecordBatch>, Failure> {
        if batches.len() < 2 {
            return Ok(batches.pop());
        }
        let joined = arrow_select::concat::concat_batches(self.schema.arrow(), &batches);
        joined.map(Some).map_err(|error| Failure::invalid(format!("rows cannot be joined: {error}")))
    }

    fn check_row_bytes(&self, batch: &RecordBatch) -> Result<(), Failure> {
        match self.row_bytes_max {
            Some(limit) => laminar_rows::check_row_bytes(batch, limit).map_err(failure),
            None => Ok(()),
        }
    }

    /// The encoded rows of one partition.
    pub(crate) fn part(&self, ordinal: u32, batch: &RecordBatch) -> Result<Part, Failure> {
        let rows = row_count(ordinal, batch.num_rows())?;
        let payload = match self.form {
            Form::Rows => laminar_rows::encode_pieces(batch).map(Pieces),
            Form::RowsWithSchema => laminar_rows::encode_with_schema(batch).map(Pieces::from),
            Form::Bytes => laminar_rows::encode_bytes(batch).map(Pieces::from),
            Form::Keyed => laminar_rows::encode_kv(batch, &self.schema).map(Pieces::from),
        };
        Ok(Part { ordinal, rows, payload: payload.map_err(failure)? })
    }

    /// Rows of a record.
    pub(crate) fn decode(&self, payload: &Bytes) -> Result<RecordBatch, Failure> {
        let batch = match self.form {
            Form::Rows | Form::RowsWithSchema => laminar_rows::decode(payload, &self.schema),
            Form::Bytes => laminar_rows::decode_bytes(payload),
            Form::Keyed => laminar_rows::decode_kv_payload(payload, &self.schema),
        };
        batch.map_err(failure)
    }

    /// The key that the machine knows a row by, and the partition it is in. The batch holds the key columns of one row.
    pub(crate) fn key(&self, batch: &RecordBatch, count: u32) -> Result<(Bytes, u32), Failure> {
        if batch.num_rows() != 1 {
            let rows = batch.num_rows();
            return Err(Failure::invalid(format!("a key is one row of key columns, and {rows} were given")));
        }
        let keys = laminar_rows::keys(batch, &self.schema).map_err(failure)?;
        let key = keys.into_iter().next().map(Bytes::from).unwrap_or_default();
        let partition = self.partition_of(&key, count);
        Ok((key, partition))
    }

    /// The partition of a key of bytes.
    pub(crate) fn partition_of(&self, key: &[u8], count: u32) -> u32 {
        laminar_rows::partition_of(laminar_rows::hash_key(key), count)
    }

    /// Rows from the values of a machine that keeps the newest row of each key.
    pub(crate) fn decode_values(&self, pairs: &[(Bytes, Bytes)]) -> Result<RecordBatch, Failure> {
        if self.form == Form::Keyed {
            let values: Vec<Bytes> = pairs.iter().map(|(_, value)| value.clone()).collect();
            return laminar_rows::decode_kv_rows(&values, &self.schema).map_err(failure);
        }
        let keys = BinaryArray::from_iter_values(pairs.iter().map(|(key, _)| key));
        let values = BinaryArray::from_iter_values(pairs.iter().map(|(_, value)| value));
        laminar_rows::bytes_batch(keys, values).map_err(failure)
    }

    /// Whether there is a newest row of each key to ask for.
    pub(crate) fn needs_kv(&self, path: &str, machine: &str) -> Result<(), Failure> {
        if machine == "kv" {
            return Ok(());
        }
        let message = format!(
            "stream {path}: get and scan need machine \"kv\", and it has {machine:?}; read it instead"
        );
        Err(Failure::invalid(message).with("stream", path))
    }
}

/// A key and a value as they are encoded.
fn operation(pair: &Pair) -> (&[u8], Option<&[u8]>) {
    (pair.0.as_deref().unwrap_or_default(), pair.1.as_deref())
}

fn row_count(ordinal: u32, rows: usize) -> Result<u32, Failure> {
    u32::try_from(rows).map_err(|_| {
        let limit = u32::MAX;
        Failure::invalid(format!(
            "partition {ordinal}: {rows} rows in one append, at most {limit}; send fewer"
        ))
    })
}

/// What is wrong with rows, as users see it.
pub(crate) fn failure(error: RowsError) -> Failure {
    let class = match error.kind() {
        ErrorKind::Corrupt => ErrorClass::Corruption,
        ErrorKind::Internal => ErrorClass::Internal,
        _ => ErrorClass::Invalid,
    };
    Failure::new(class, error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn columns(pairs: &[Pair]) -> RecordBatch {
        let keys = BinaryArray::from_iter(pairs.iter().map(|(key, _)| key.as_ref()));
        let values = BinaryArray::from_iter(pairs.iter().map(|(_, value)| value.as_ref()));
        laminar_rows::bytes_batch(keys, values).unwrap()
    }

    fn told(parts: Result<Vec<Part>, Failure>) -> Result<Vec<(u32, u32, Bytes)>, String> {
        let told = |part: &Part| (part.ordinal, part.rows, part.payload.joined());
        parts.map(|parts| parts.iter().map(told).collect()).map_err(|failure| failure.message)
    }

    fn some_bytes() -> impl Strategy<Value = Option<Bytes>> {
        proptest::option::of(proptest::collection::vec(any::<u8>(), 0..12).prop_map(Bytes::from))
    }

    proptest! {
        #[test]
        fn pairs_land_where_and_as_the_same_rows_would(
            pairs in proptest::collection::vec((some_bytes(), some_bytes()), 0..20),
            place in prop_oneof![
                (0_u32..9).prop_map(Place::Chosen),
                (1_u32..9).prop_map(|count| Place::ByKey { count }),
            ],
            row_bytes_max in proptest::option::of(0_u64..30),
        ) {
            let codec = Codec::new(&[], &[], "log", row_bytes_max).unwrap();
            let as_pairs = told(codec.encode(Rows::Pairs(&pairs), place));
            prop_assert_eq!(as_pairs, told(codec.encode(Rows::Batches(&[columns(&pairs)]), place)));
        }
    }
}
