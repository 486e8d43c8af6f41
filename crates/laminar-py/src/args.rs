//! Arguments: whole numbers in their limits, and text. A wrong one is an `InvalidError` with the value and the limit.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use laminar_core::ids::{Epoch, NodeId, OwnerEpoch, PartitionId, RequestId};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyAttributeError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use xxhash_rust::xxh3::xxh3_128;

use crate::errors::{invalid, to_py};

/// How a refused value is shown: as Python shows it, cut where it would fill the screen.
fn shown(value: &Bound<'_, PyAny>) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    let text = value.repr().map_or_else(|_| "a value without a repr".to_owned(), |repr| repr.to_string());
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Turns the errors that a value of the wrong type or size causes into an `InvalidError`. Others, an interrupt or a
/// lack of memory, are not about the value and pass.
fn refuse(error: PyErr, value: &Bound<'_, PyAny>, message: impl FnOnce(String) -> String) -> PyErr {
    let py = value.py();
    let about_the_value = error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyValueError>(py)
        || error.is_instance_of::<PyOverflowError>(py)
        || error.is_instance_of::<PyAttributeError>(py);
    if about_the_value { invalid(message(shown(value))) } else { error }
}

/// A whole number from `min` to `max`.
pub(crate) fn number<'py, T>(value: &Bound<'py, PyAny>, what: &str, min: T, max: T) -> PyResult<T>
where
    T: FromPyObjectOwned<'py> + PartialOrd + Display,
{
    let message = |shown| format!("{what} is {shown}; it must be a whole number from {min} to {max}");
    match value.extract::<T>() {
        Ok(number) if min <= number && number <= max => Ok(number),
        Ok(_) => Err(invalid(message(shown(value)))),
        Err(error) => Err(refuse(error.into(), value, message)),
    }
}

/// A length of time in seconds, up to a year, which is as good as for ever.
pub(crate) fn seconds(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Duration> {
    const SECONDS_MAX: f64 = 365.0 * 24.0 * 3600.0;
    let message =
        |shown| format!("{what} is {shown}; it must be a number of seconds from 0 to {SECONDS_MAX}");
    match value.extract::<f64>() {
        // Neither nan nor an infinity is in there.
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err(invalid(message(shown(value)))),
        Err(error) => Err(refuse(error, value, message)),
    }
}

/// An argument `timeout`: how long a call may take.
#[derive(Clone, Copy)]
pub(crate) struct Timeout(pub(crate) Duration);

impl FromPyObject<'_, '_> for Timeout {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        seconds(&value, "timeout").map(Timeout)
    }
}

pub(crate) fn partition(value: &Bound<'_, PyAny>) -> PyResult<PartitionId> {
    number(value, "partition id", 0, u32::MAX).map(PartitionId)
}

/// A node that is somebody.
pub(crate) fn node(value: &Bound<'_, PyAny>) -> PyResult<NodeId> {
    number(value, "node id", 1, u64::MAX).map(NodeId)
}

/// A node, or 0 for nobody.
pub(crate) fn node_or_nobody(value: &Bound<'_, PyAny>) -> PyResult<NodeId> {
    number(value, "node id", 0, u64::MAX).map(NodeId)
}

pub(crate) fn epoch(value: &Bound<'_, PyAny>) -> PyResult<Epoch> {
    Epoch::new(number(value, "epoch", 1, u64::MAX)?).map_err(to_py)
}

/// What a guard and its labels are made of.
pub(crate) fn held(
    partition_id: &Bound<'_, PyAny>,
    at: &Bound<'_, PyAny>,
    node_id: &Bound<'_, PyAny>,
) -> PyResult<(PartitionId, Epoch, NodeId)> {
    Ok((partition(partition_id)?, epoch(at)?, node(node_id)?))
}

/// The pair `(node, epoch)`, as a tuple or, as JSON has it, a list.
pub(crate) fn owner_epoch(value: &Bound<'_, PyAny>) -> PyResult<OwnerEpoch> {
    let message = |shown| format!("owner is {shown}; it must be a pair (node, epoch)");
    let pair: Vec<Bound<'_, PyAny>> = value.extract().map_err(|error| refuse(error, value, message))?;
    let [node_id, at] = &pair[..] else { return Err(invalid(message(shown(value)))) };
    Ok(OwnerEpoch { node_id: node_or_nobody(node_id)?, epoch: epoch(at)? })
}

fn extract<'py, T: FromPyObjectOwned<'py>>(value: &Bound<'py, PyAny>, what: &str, kind: &str) -> PyResult<T> {
    value.extract().map_err(|error: T::Error| {
        refuse(error.into(), value, |shown| format!("{what} is {shown}; it must be {kind}"))
    })
}

pub(crate) fn text(value: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    extract(value, what, "a string")
}

pub(crate) fn path(value: &Bound<'_, PyAny>, what: &str) -> PyResult<PathBuf> {
    extract(value, what, "a path")
}

pub(crate) fn fraction(value: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    extract(value, what, "a number")
}

pub(crate) fn bytes(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u8>> {
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => extract(value, what, "bytes"),
    }
}

/// Whatever stands for "some number of things": anything that can be iterated over, but not a string of them.
pub(crate) fn items<'py, T>(
    values: &Bound<'py, PyAny>,
    what: &str,
    read: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let message = |shown| format!("{what} is {shown}; it must be a list");
    if values.is_instance_of::<PyString>() {
        return Err(invalid(message(shown(values))));
    }
    let iterator = values.try_iter().map_err(|error| refuse(error, values, message))?;
    iterator.map(|item| read(&item?)).collect()
}

/// `None`, or what `read` makes of the value.
pub(crate) fn optional<'py, T>(
    value: &Bound<'py, PyAny>,
    read: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    if value.is_none() { Ok(None) } else { read(value).map(Some) }
}

/// The pairs of a mapping, each read.
pub(crate) fn pairs<'py, K, V, M: FromIterator<(K, V)>>(
    mapping: &Bound<'py, PyAny>,
    what: &str,
    key: impl Fn(&Bound<'py, PyAny>) -> PyResult<K>,
    value: impl Fn(&Bound<'py, PyAny>) -> PyResult<V>,
) -> PyResult<M> {
    let message = |shown| format!("{what} is {shown}; it must be a mapping");
    let refused = |error| refuse(error, mapping, message);
    let items = mapping.call_method0("items").and_then(|items| items.try_iter()).map_err(refused)?;
    items
        .map(|pair| {
            let (k, v): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair?.extract().map_err(refused)?;
            Ok((key(&k)?, value(&v)?))
        })
        .collect()
}

/// The highest request id that can be given as a number: [`RequestId::NONE`] is 0, so 0 takes the place after it.
const REQUEST_ID_MAX: u128 = u128::MAX - 1;

/// An id chosen by the caller: a whole number or a UUID as it is, text and bytes by their hash, `None` for none.
pub(crate) fn request_id(value: Option<&Bound<'_, PyAny>>) -> PyResult<RequestId> {
    let Some(value) = value else { return Ok(RequestId::NONE) };
    if value.is_instance_of::<PyString>() {
        return Ok(RequestId(xxh3_128(text(value, "request_id")?.as_bytes())));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(RequestId(xxh3_128(bytes.as_bytes())));
    }
    let uuid = value.py().import("uuid")?.getattr("UUID")?;
    let given = if value.is_instance(&uuid)? { value.getattr("int")? } else { value.clone() };
    match number(&given, "request_id", 0, REQUEST_ID_MAX)? {
        0 => Ok(RequestId(u128::MAX)),
        id => Ok(RequestId(id)),
    }
}

/// The id as it was given as a number.
pub(crate) fn request_id_given(id: RequestId) -> Option<u128> {
    match id {
        RequestId::NONE => None,
        RequestId(u128::MAX) => Some(0),
        RequestId(id) => Some(id),
    }
}

/// A field of one of our dataclasses; a value without it is no such value.
pub(crate) fn field<'py>(value: &Bound<'py, PyAny>, class: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let message = |shown| format!("{shown} is not one of class {class}");
    value.getattr(name).map_err(|error| refuse(error, value, message))
}
