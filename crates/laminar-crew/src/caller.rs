//! Threads that wait for their calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Wake;
use std::thread::Thread;
use std::time::Duration;

use laminar_crew::Turn;
use tokio::time::Instant;

/// How long a waiting call stays awake; one a process does.
const AWAKE_MAX: Duration = Duration::from_micros(500);
/// A yield that took longer gave the core to another thread.
const YIELDED: Duration = Duration::from_micros(10);

/// The calls of a process that wait.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    count: AtomicUsize,
    somebody_awake: AtomicBool,
}

impl Callers {
    /// Counts a caller, until what it gets is dropped.
    pub(crate) fn enter(&self) -> Counted<'_> {
        // ORDER: relaxed; it decides who does the work, never whether it is done.
        self.count.fetch_add(1, Ordering::Relaxed);
        Counted(self)
    }

    /// Whether a caller is the only one.
    pub(crate) fn is_one(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 1
    }
}

pub(crate) struct Counted<'a>(&'a Callers);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread that waits for its call. It parks by itself: a timer of the runtime would wake a worker for each call.
#[derive(Debug)]
pub(crate) struct Parked {
    callers: &'static Callers,
    thread: Thread,
    woken: AtomicBool,
}

impl Parked {
    pub(crate) fn new(callers: &'static Callers) -> Arc<Self> {
        Arc::new(Self { callers, thread: std::thread::current(), woken: AtomicBool::new(false) })
    }

    /// Returns when it is woken, or at a time. Runs what the call waits for, if it is this thread's turn.
    pub(crate) fn wait(&self, turn: Option<Turn>, until: Instant) -> Option<Turn> {
        // ORDER: acquire, with the release of `wake`: whoever sees it finds what the call was woken for.
        if let Some(turn) = &turn {
            // There may be no end to what others want of the node, and Ctrl-C must not wait for it.
            turn.run_until(|| self.woken.load(Ordering::Acquire) || Instant::now() >= until);
        }
        if self.woken.swap(false, Ordering::Acquire) {
            return turn;
        }
        // The others must not wait for a thread that waits.
        drop(turn);
        if !self.stay_awake() {
            std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
            self.woken.store(false, Ordering::Release);
        }
        None
    }

    /// Waits a moment without going to sleep, if nobody else does: waking a core that has gone to sleep takes as long as a
    /// fast disk takes to sync. Whether it was woken.
    fn stay_awake(&self) -> bool {
        if self.callers.somebody_awake.swap(true, Ordering::Acquire) {
            return false;
        }
        let began = Instant::now();
        let mut woken = false;
        let mut looked = began;
        while !woken && looked.duration_since(began) < AWAKE_MAX {
            std::thread::yield_now();
            woken = self.woken.swap(false, Ordering::Acquire);
            let now = Instant::now();
            // Somebody else had the core meanwhile, and has more to do on it than to wait.
            if now.duration_since(looked) > YIELDED {
                break;
            }
            looked = now;
        }
        self.callers.somebody_awake.store(false, Ordering::Release);
        woken
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
