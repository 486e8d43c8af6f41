//! Values that belong to the process that made them.
//!
//! What a node or client holds is tied to threads and sockets of one process. A forked child must neither use nor drop its
//! parent's: dropping would wake threads that it does not have, and could wait for a lock that nobody will give back.

use std::sync::{Mutex, PoisonError};

use crate::gate;

/// A value that a forked child leaves alone.
pub(crate) struct Owned<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { generation: gate::generation(), value: Some(value) }
    }

    /// The value, if this process made it.
    pub(crate) fn get(&self) -> Option<&T> {
        if self.generation == gate::generation() { self.value.as_ref() } else { None }
    }

    /// The value itself, if this process made it.
    pub(crate) fn into_inner(mut self) -> Option<T> {
        if self.generation == gate::generation() { self.value.take() } else { None }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.generation != gate::generation() {
            std::mem::forget(self.value.take());
        }
    }
}

/// A value that each process makes for itself. The lock is taken with the GIL held and never kept without it.
pub(crate) struct EachProcess<T> {
    value: Mutex<Option<Owned<T>>>,
}

impl<T: Clone> EachProcess<T> {
    pub(crate) fn new(value: Option<T>) -> Self {
        Self { value: Mutex::new(value.map(Owned::new)) }
    }

    /// What this process has made, if it has.
    pub(crate) fn get(&self) -> Option<T> {
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        value.as_ref().and_then(Owned::get).cloned()
    }

    /// Takes over what this process made, unless another thread was faster; returns what is there.
    pub(crate) fn set(&self, made: T) -> T {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        match value.as_ref().and_then(Owned::get) {
            Some(before) => before.clone(),
            None => {
                *value = Some(Owned::new(made.clone()));
                made
            }
        }
    }

    /// Takes the value out, if this process made one.
    pub(crate) fn take(&self) -> Option<T> {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        value.take().and_then(Owned::into_inner)
    }
}
