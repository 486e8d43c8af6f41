//! Something that happens once, and a wait for it that ends in time.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::runtime::Runtime;

/// A value that comes once. Clones are the same notice.
#[derive(Debug)]
pub(crate) struct Notice<T> {
    slot: Arc<Mutex<Slot<T>>>,
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Clone for Notice<T> {
    fn clone(&self) -> Self {
        Self { slot: Arc::clone(&self.slot) }
    }
}

impl<T> Default for Notice<T> {
    fn default() -> Self {
        Self { slot: Arc::new(Mutex::new(Slot { value: None, waker: None })) }
    }
}

impl<T> Notice<T> {
    /// Gives the value; a second one is dropped.
    pub(crate) fn set(&self, value: T) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.value.is_none() {
            slot.value = Some(value);
        }
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the two are the same notice.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.slot, &other.slot)
    }

    /// Whether nobody else has it any more.
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.slot) == 1
    }

    /// Waits for the value. Only one wait at a time is woken.
    pub(crate) async fn wait(&self) -> T {
        poll_fn(|context| {
            let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
            match slot.value.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    slot.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// The outcome of a future, or none after `timeout`.
pub(crate) async fn within<F: Future>(
    runtime: &dyn Runtime,
    timeout: Duration,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut sleep = runtime.sleep(timeout);
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        sleep.as_mut().poll(context).map(|()| None)
    })
    .await
}
