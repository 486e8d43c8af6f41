//! The line of callers before a lock.
//!
//! Answers come together, and one thread at a time can take its own back: to Python, with the GIL. Were all of them woken at
//! once, nearly each would find the lock taken, go to sleep again and be woken a second time, and with 64 threads that costs
//! as much as everything else of an append. So only a few are called, and each calls the next as soon as it has the lock.
//!
//! Nothing but time depends on the line: a caller that nobody calls looks by itself when its time to wait is over.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::caller::Parked;

/// How many are on their way to the lock at a time. With one, the others wait whenever the system has put it behind a thread
/// that works, though the other cores have nothing to do.
pub(crate) const COMING_MAX: usize = 4;
/// How often a caller lets others have its core while the one before it has the lock.
const YIELDS_MAX: usize = 20;

/// Where a caller is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Place {
    /// It waits for its call.
    #[default]
    Away,
    /// It has something to look at, and waits until it is called.
    Queued,
    /// It was called, and is on its way to the lock.
    Called,
    /// It was called before its call was over: others may wait for what it does, so it does not queue again.
    Ahead,
    /// Its call is over, and whoever still wakes it is late.
    Gone,
}

#[derive(Debug, Default)]
pub(crate) struct Line {
    state: Mutex<State>,
    /// Whether the last caller that took the lock has not called again since.
    is_locked: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Also those who have gone since.
    queued: VecDeque<Arc<Parked>>,
    /// How many are [`Place::Called`].
    coming: usize,
}

impl Line {
    /// A caller has something to look at: it is called, or queues until it is.
    pub(crate) fn join(&self, caller: &Arc<Parked>) {
        let is_called = self.with(|state| {
            let place = &mut *caller.place();
            match place {
                Place::Away if state.coming < COMING_MAX => {
                    state.coming += 1;
                    *place = Place::Called;
                    true
                }
                Place::Away => {
                    *place = Place::Queued;
                    state.queued.push_back(Arc::clone(caller));
                    false
                }
                // Awake, it looks again before it sleeps.
                Place::Called | Place::Ahead => true,
                Place::Queued | Place::Gone => false,
            }
        });
        if is_called {
            caller.call();
        }
    }

    /// A caller has looked, and its call goes on. One that queues has something to look at that came since, and is called
    /// for it.
    pub(crate) fn step_ahead(&self, caller: &Parked) {
        // Only the caller itself leaves this place.
        let was_called = *caller.place() == Place::Called;
        if was_called {
            self.move_on(caller, Place::Ahead);
        }
    }

    /// The call of a caller is over, and it has the lock if it could get it.
    pub(crate) fn leave(&self, caller: &Parked) {
        self.move_on(caller, Place::Gone);
    }

    /// Calls the next one instead of a caller that was called.
    fn move_on(&self, caller: &Parked, to: Place) {
        let next = self.with(|state| {
            if std::mem::replace(&mut *caller.place(), to) != Place::Called {
                return None;
            }
            while let Some(next) = state.queued.pop_front() {
                let mut place = next.place();
                if *place == Place::Queued {
                    *place = Place::Called;
                    drop(place);
                    return Some(next);
                }
            }
            state.coming -= 1;
            None
        });
        if let Some(next) = next {
            next.call();
        }
    }

    /// Waits a moment without going to sleep: a caller that only calls again gives the lock back at once.
    pub(crate) fn wait_for_lock(&self) {
        for _ in 0..YIELDS_MAX {
            // ORDER: relaxed here and below; it says how long to stay awake. Who has the lock only the lock knows.
            if !self.is_locked.load(Ordering::Relaxed) {
                break;
            }
            std::thread::yield_now();
        }
    }

    /// Says that a caller has taken the lock, or given it back.
    pub(crate) fn set_locked(&self, is_locked: bool) {
        self.is_locked.store(is_locked, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.with(|state| state.coming == 0 && state.queued.is_empty())
    }

    /// The lock of the line comes before that of a caller's place.
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
