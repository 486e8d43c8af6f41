//! Tickets: how an appender learns that its bytes are on disk, with or without a thread that waits.

use std::future::Future;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::committer::Lane;
use crate::error::AofError;

/// How something ended that was asked of a log.
pub type Outcome = Result<(), AofError>;

enum Waiter {
    Callback(Box<dyn FnOnce(Outcome) + Send>),
    Waker(Waker),
}

/// What everyone waits on whose operations are written together.
#[derive(Default)]
pub(crate) struct Completion {
    outcome: OnceLock<Outcome>,
    waiters: Mutex<Waiters>,
    wake: Condvar,
}

#[derive(Default)]
struct Waiters {
    told: Vec<Waiter>,
    /// Threads that sleep. With none there is nobody to wake, and asking the system to is not free.
    sleeping: usize,
}

impl Completion {
    /// Tells everyone. Only the first outcome counts.
    pub(crate) fn complete(&self, outcome: Outcome) {
        // The lock makes a waiter either see the outcome or be in the list.
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if self.outcome.set(outcome.clone()).is_err() {
            return;
        }
        let (waiting, sleeping) = (std::mem::take(&mut waiters.told), waiters.sleeping);
        drop(waiters);
        if sleeping > 0 {
            self.wake.notify_all();
        }
        for waiter in waiting {
            match waiter {
                // A callback that panics has told so; it must not end the thread that serves all logs.
                Waiter::Callback(callback) => {
                    drop(catch_unwind(AssertUnwindSafe(|| callback(outcome.clone()))))
                }
                Waiter::Waker(waker) => waker.wake(),
            }
        }
    }

    /// The outcome, or the waiter is kept until there is one: at `place` if it has one already.
    fn outcome_or_add(&self, place: &mut Option<usize>, waiter: impl FnOnce() -> Waiter) -> Option<Outcome> {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = self.outcome.get().cloned();
        if outcome.is_none() {
            match *place {
                Some(place) => waiters.told[place] = waiter(),
                None => {
                    *place = Some(waiters.told.len());
                    waiters.told.push(waiter());
                }
            }
        }
        outcome
    }

    fn wait(&self, timeout: Duration) -> Option<Outcome> {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        waiters.sleeping += 1;
        let waited = self.wake.wait_timeout_while(waiters, timeout, |_| self.outcome.get().is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.sleeping -= 1;
        self.outcome.get().cloned()
    }
}

/// The promise that something will be on disk, or that its caller will learn why not.
///
/// Dropping a ticket withdraws nothing. It can be waited on, polled, awaited, or given a callback.
#[must_use = "without the ticket nobody learns whether the bytes reached the disk"]
pub struct Ticket {
    pub(crate) completion: Arc<Completion>,
    pub(crate) sequences: Range<u64>,
    pub(crate) lane: Arc<Lane>,
    /// Where the completion keeps this ticket's waker, once it has one.
    pub(crate) waker_at: Option<usize>,
}

impl Ticket {
    /// The sequences that the records were given; empty for anything but an append.
    pub fn sequences(&self) -> Range<u64> {
        self.sequences.clone()
    }

    /// The outcome, if there is one yet. `Ok` means on disk.
    pub fn outcome(&self) -> Option<Outcome> {
        self.completion.outcome.get().cloned()
    }

    /// Waits for the outcome. `Ok` means on disk.
    ///
    /// # Errors
    ///
    /// Unavailable: [`AofError::TimedOut`] after `timeout`, and the ticket can be waited on again; else what stopped
    /// the log.
    pub fn wait(&self, timeout: Duration) -> Outcome {
        if self.completion.outcome.get().is_none() {
            self.lane.assist();
        }
        self.completion.wait(timeout).unwrap_or(Err(AofError::TimedOut { waited: timeout }))
    }

    /// Who can do what this ticket waits for, in place of the committer's thread.
    pub fn assistant(&self) -> Assistant {
        Assistant(Arc::clone(&self.lane))
    }

    /// Calls `callback` with the outcome: at once if there is one, else from the committer, which it must not keep.
    pub fn on_outcome(mut self, callback: impl FnOnce(Outcome) + Send + 'static) {
        let mut callback = Some(Box::new(callback) as Box<dyn FnOnce(Outcome) + Send>);
        let waiter = || Waiter::Callback(callback.take().expect("asked for once"));
        if let Some(outcome) = self.completion.outcome_or_add(&mut self.waker_at, waiter) {
            (callback.expect("there was an outcome, so it was not taken"))(outcome);
        }
    }
}

/// Writes and syncs what waits on the thread of somebody who has nothing else to do.
pub struct Assistant(Arc<Lane>);

impl Assistant {
    /// Runs a round, if nobody else does. With others expected, or on a slow disk, it is left to the committer's thread.
    pub fn assist(&self) {
        self.0.assist();
    }
}

impl std::fmt::Debug for Assistant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Assistant")
    }
}

impl Future for Ticket {
    type Output = Outcome;

    /// # Cancel safety
    ///
    /// Dropping the future withdraws nothing.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let Ticket { completion, waker_at, .. } = self.get_mut();
        match completion.outcome_or_add(waker_at, || Waiter::Waker(context.waker().clone())) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket")
            .field("sequences", &self.sequences)
            .field("outcome", &self.outcome())
            .finish()
    }
}
