//! Rows of laminar streams as Arrow: made to fit the stream's schema, hashed to partitions, split, encoded and decoded.
//!
//! Clients use it to write and to read, and nodes to look into what they are sent. It knows no network, no files and no
//! Python; the log carries what it encodes as opaque bytes.
//!
//! One append, file by file:
//!
//! 1. `schema.rs` holds the stream's columns and key; `schema_bytes.rs` reads them from bytes that nobody vouches for.
//! 2. `conform.rs` makes a batch fit the schema, without loss or not at all; `values.rs` looks at what others made.
//! 3. `key.rs` gives each row its key bytes and their hash, `split.rs` sorts the rows by partition.
//! 4. `row_bytes.rs` refuses rows that are too large.
//! 5. `encode.rs` makes the payload of a record; `bytes_rows.rs` and `kv_rows.rs` do for streams of bytes and of keys.
//!    `form.rs` chooses among them.
//!
//! A read goes back: `decode` (whose checks are in `verify.rs`), `project.rs`, `metadata.rs`.
//!
//! What holds:
//!
//! 1. Equal keys have equal bytes, whatever Arrow layout carries them, in every release (golden vectors).
//! 2. Splitting keeps every row once, and the order of rows in a partition.
//! 3. Decoding what was encoded gives the same rows; decoding anything else gives an error, never a panic.
//!
//! ```
//! use std::sync::Arc;
//! use arrow_array::{Int64Array, RecordBatch};
//! use arrow_schema::{DataType, Field, Schema};
//! use laminar_rows::{StreamSchema, decode, encode, split};
//!
//! let columns = Schema::new(vec![Field::new("order", DataType::Int64, false)]);
//! let schema = StreamSchema::from_arrow(Arc::new(columns), &["order".to_owned()])?;
//! let batch = RecordBatch::try_new(schema.arrow().clone(), vec![Arc::new(Int64Array::from(vec![7, 8, 7]))])?;
//! for (_partition, rows) in split(&schema.conform(&batch)?, &schema, 8)? {
//!     assert_eq!(decode(&encode(&rows)?, &schema)?, rows);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod bytes_rows;
mod conform;
mod encode;
mod error;
mod form;
mod key;
mod key_decode;
mod kv_rows;
mod metadata;
mod project;
mod row_bytes;
mod schema;
mod schema_bytes;
mod split;
mod values;
mod verify;

pub use bytes_rows::{
    Operation, bytes_batch, decode_bytes, encode_bytes, encode_pairs, operations, put_operation,
};
pub use encode::{decode, encode, encode_pieces, encode_with_schema};
pub use error::RowsError;
pub use key::{KEY_SEED, hash_key, hashes, keys, partition_of};
pub use key_decode::decode_keys;
pub use kv_rows::{decode_kv_payload, decode_kv_rows, encode_kv};
pub use metadata::{METADATA_COLUMNS, RowPlace, metadata_fields, with_metadata};
pub use project::{Coalescer, project, slice_offsets};
pub use row_bytes::{batch_bytes, check_pair_bytes, check_row_bytes};
pub use schema::{RowForm, StreamSchema};
pub use split::split;
