//! Values that one call at a time changes, without the GIL.

use std::sync::{Mutex, MutexGuard, PoisonError};

use laminar_rpc::Failure;
use pyo3::prelude::*;

use super::of_process::Owned;
use super::runtime::block_on;
use super::writer::of_other_process;
use crate::errors::{invalid, of_failure};

/// A value that calls take out and put back.
pub(crate) struct InUse<T> {
    /// None while a call uses it, and after one was interrupted. The lock is never kept without the GIL.
    value: Mutex<Option<Owned<T>>>,
}

impl<T: Send> InUse<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(Some(Owned::new(value))) }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Owned<T>>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the value out, runs a call on it, and puts it back, also after an error.
    pub(crate) fn with<A: Send, Called>(&self, py: Python<'_>, call: impl FnOnce(T) -> Called) -> PyResult<A>
    where
        Called: Future<Output = (T, Result<A, Failure>)> + Send,
    {
        let taken = self.slot().take().ok_or_else(busy)?;
        let call = call(taken.into_inner().ok_or_else(of_other_process)?);
        let (value, result) = block_on(py, async move { Ok(call.await) })?;
        *self.slot() = Some(Owned::new(value));
        result.map_err(|failure| of_failure(&failure))
    }

    /// Looks at the value.
    pub(crate) fn look<A>(&self, look: impl FnOnce(&T) -> A) -> PyResult<A> {
        let slot = self.slot();
        let value = slot.as_ref().ok_or_else(busy)?;
        value.get().map(look).ok_or_else(of_other_process)
    }
}

fn busy() -> PyErr {
    invalid("it is in use by another thread, or a call on it was interrupted; begin it anew".to_owned())
}
