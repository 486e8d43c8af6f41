//! Rows from Python: Arrow data without copies, and keys and values as bytes.

use std::panic::AssertUnwindSafe;

use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::ArrowError;
use bytes::Bytes;
use laminar_client::Pair;
use laminar_rpc::Failure;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use pyo3_arrow::input::AnyRecordBatch;

use crate::args;
use crate::errors::{invalid, of_failure};

/// The batches of anything that speaks the Arrow C interface. What a foreign producer hands out may be anything, and the
/// import panics on some of it.
pub(crate) fn batches(rows: &Bound<'_, PyAny>, stream: &str) -> PyResult<Vec<RecordBatch>> {
    let unreadable = |what: &str| {
        let message = format!("stream {stream}: rows cannot be read as Arrow data: {what}");
        of_failure(&Failure::invalid(message).with("stream", stream))
    };
    let import = || -> PyResult<Result<Vec<RecordBatch>, ArrowError>> {
        let reader = rows.extract::<AnyRecordBatch>()?.into_reader()?;
        Ok(reader.collect())
    };
    match std::panic::catch_unwind(AssertUnwindSafe(import)) {
        Ok(Ok(read)) => read.map_err(|error| unreadable(&error.to_string())),
        Ok(Err(error)) if error.is_instance_of::<PyException>(rows.py()) => {
            Err(unreadable(&error.to_string()))
        }
        // An interrupt, or a lack of memory, is not about the rows.
        Ok(Err(error)) => Err(error),
        Err(_) => Err(unreadable("they were released before")),
    }
}

/// Values as bytes, or pairs of key and value of which either may be `None`.
pub(crate) fn pairs(values: &Bound<'_, PyAny>) -> PyResult<Vec<Pair>> {
    args::items(values, "values", |item| {
        if let Ok(value) = item.cast::<PyBytes>() {
            return Ok((None, Some(Bytes::copy_from_slice(value.as_bytes()))));
        }
        let Ok(pair) = item.cast::<PyTuple>() else {
            return args::bytes(item, "a value").map(|value| (None, Some(value.into())));
        };
        if pair.len() != 2 {
            return Err(invalid(format!("a pair has {} parts; it must be (key, value)", pair.len())));
        }
        let part = |at: usize, what| args::optional(&pair.get_item(at)?, |value| args::bytes(value, what));
        Ok((part(0, "a key")?.map(Bytes::from), part(1, "a value")?.map(Bytes::from)))
    })
}

/// Pairs as rows of a stream of bytes.
pub(crate) fn pairs_batch(pairs: &[Pair]) -> PyResult<RecordBatch> {
    let keys = BinaryArray::from_iter(pairs.iter().map(|(key, _)| key.as_ref()));
    let values = BinaryArray::from_iter(pairs.iter().map(|(_, value)| value.as_ref()));
    laminar_rows::bytes_batch(keys, values).map_err(|error| invalid(error.to_string()))
}
