//! The end of one life of a group on this node: what still runs of it stops, and says what went wrong.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use laminar_log::LogError;

/// Shared by everything that belongs to one life of a group. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Retirement {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    retired: bool,
    /// Those that must be told; each is here until it ends.
    wakers: Vec<Option<Waker>>,
    running: usize,
    fault: Option<LogError>,
}

impl Retirement {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers why the state machine gave up; the first cause counts. It must be opened again.
    pub(crate) fn failed(&self, error: LogError) {
        self.inner().fault.get_or_insert(error);
    }

    /// Why the state machine gave up, if it did.
    pub(crate) fn fault(&self) -> Option<LogError> {
        self.inner().fault.clone()
    }

    /// Ends what runs under [`unless_retired`](Self::unless_retired), soon.
    pub(crate) fn retire(&self) {
        let mut inner = self.inner();
        inner.retired = true;
        let wakers: Vec<Waker> = inner.wakers.drain(..).flatten().collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether nothing runs any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.inner().running == 0
    }

    /// The outcome of a future, or none if it was dropped because the life has ended.
    pub(crate) async fn unless_retired<F: Future>(&self, future: F) -> Option<F::Output> {
        let _running = Running::begin(self);
        let mut future = pin!(future);
        let mut place = None;
        poll_fn(|context| {
            let mut inner = self.inner();
            if inner.retired {
                return Poll::Ready(None);
            }
            let place = *place.get_or_insert_with(|| {
                inner.wakers.push(None);
                inner.wakers.len() - 1
            });
            inner.wakers[place] = Some(context.waker().clone());
            drop(inner);
            future.as_mut().poll(context).map(Some)
        })
        .await
    }
}

/// Counts what runs.
struct Running<'a>(&'a Retirement);

impl<'a> Running<'a> {
    fn begin(retirement: &'a Retirement) -> Self {
        retirement.inner().running += 1;
        Self(retirement)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner();
        inner.running -= 1;
        if inner.running == 0 {
            inner.wakers.clear();
        }
    }
}
