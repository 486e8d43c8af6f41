//! Rows of one stream: placed in partitions, encoded and decoded as the stream's machine reads them.

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

    /// Places and encodes rows: all in the partition `chosen`, or where the key of each says.
    pub(crate) fn encode(&self, batches: &[RecordBatch], place: Place) -> Result<Vec<Part>, Failure> {
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
        let rows = u32::try_from(batch.num_rows()).map_err(|_| {
            let (rows, limit) = (batch.num_rows(), u32::MAX);
            Failure::invalid(format!(
                "partition {ordinal}: {rows} rows in one append, at most {limit}; send fewer"
            ))
        })?;
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

    /// Rows of a stream of bytes.
    pub(crate) fn pairs(&self, pairs: &[(Option<Bytes>, Option<Bytes>)]) -> Result<RecordBatch, Failure> {
        let keys = BinaryArray::from_iter(pairs.iter().map(|(key, _)| key.as_ref()));
        let values = BinaryArray::from_iter(pairs.iter().map(|(_, value)| value.as_ref()));
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

/// What is wrong with rows, as users see it.
pub(crate) fn failure(error: RowsError) -> Failure {
    let class = match error.kind() {
        ErrorKind::Corrupt => ErrorClass::Corruption,
        ErrorKind::Internal => ErrorClass::Internal,
        _ => ErrorClass::Invalid,
    };
    Failure::new(class, error.to_string())
}
