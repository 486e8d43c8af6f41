//! The tasks of this process, and calls that wait for them.
//!
//! One tokio runtime a process, made on first use. A forked child has none of its threads: it makes its own, and never
//! touches its parent's.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};
use std::time::Duration;

use laminar_rpc::Failure;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::errors::of_failure;
use crate::gate;

/// How often a waiting call looks whether Ctrl-C was pressed.
pub(crate) const SIGNALS_INTERVAL: Duration = Duration::from_millis(50);
const WORKERS: usize = 2;

/// How long a waiting call stays awake, and whether one does: one a process.
const AWAKE_MAX: Duration = Duration::from_micros(500);
/// A yield that took longer gave the core to another thread.
const YIELDED: Duration = Duration::from_micros(10);
static SOMEBODY_AWAKE: AtomicBool = AtomicBool::new(false);

/// The runtime and the process it belongs to. The lock is taken with the GIL held and never kept without it, so a fork
/// cannot come in between.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// The runtime of this process.
pub(crate) fn runtime(_py: Python<'_>) -> PyResult<&'static Runtime> {
    let mut kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let generation = gate::generation();
    if let Some((of, runtime)) = *kept
        && of == generation
    {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("laminar-worker")
        .enable_all()
        .build()
        .map_err(|error| {
            of_failure(&Failure::unavailable(format!("no threads could be started: {error}")))
        })?;
    // Never dropped: it serves until the process ends, and a parent's must not be dropped by its child.
    let made: &'static Runtime = Box::leak(Box::new(made));
    *kept = Some((generation, made));
    Ok(made)
}

/// The runtime of this process, if it has one.
pub(crate) fn existing_runtime() -> Option<&'static Runtime> {
    let kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    kept.and_then(|(of, runtime)| (of == gate::generation()).then_some(runtime))
}

/// Waits for a call without the GIL. Ctrl-C ends the wait, and drops the call.
pub(crate) fn block_on<T: Send>(
    py: Python<'_>,
    call: impl Future<Output = Result<T, Failure>> + Send,
) -> PyResult<T> {
    let runtime = runtime(py)?;
    let mut call = std::pin::pin!(call);
    loop {
        let waited = py.detach(|| {
            let _entered = runtime.enter();
            let waited = wait_for(call.as_mut());
            stay_if_ending();
            waited
        });
        match waited {
            Poll::Ready(done) => return done.map_err(|failure| of_failure(&failure)),
            Poll::Pending => py.check_signals()?,
        }
    }
}

/// Waits for a call, but not for longer than signals may wait.
fn wait_for<T>(mut call: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    let parked = Arc::new(Parked { thread: std::thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&parked));
    let mut context = Context::from_waker(&waker);
    let began = Instant::now();
    loop {
        let polled = call.as_mut().poll(&mut context);
        if polled.is_ready() || began.elapsed() >= SIGNALS_INTERVAL {
            return polled;
        }
        parked.wait(SIGNALS_INTERVAL);
    }
}

/// The thread that ends the interpreter, once it does.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Says that the interpreter is about to end, from the thread that ends it.
pub(crate) fn interpreter_ends() {
    ENDING.get_or_init(|| std::thread::current().id());
}

/// A daemon thread that comes back to an interpreter that has ended would end the process with a fault. It stays here
/// instead: the process is about to be gone.
fn stay_if_ending() {
    while ENDING.get().is_some_and(|ending| *ending != std::thread::current().id()) {
        std::thread::park();
    }
}

/// A thread that waits for its call. It parks by itself: a timer of the runtime would wake a worker for each call.
struct Parked {
    thread: Thread,
    woken: AtomicBool,
}

impl Parked {
    /// Returns when it is woken, or after a while.
    fn wait(&self, most: Duration) {
        // ORDER: acquire, with the release of `wake`: whoever sees it finds what the call was woken for.
        if self.woken.swap(false, Ordering::Acquire) || self.stay_awake() {
            return;
        }
        std::thread::park_timeout(most);
        self.woken.store(false, Ordering::Release);
    }

    /// Waits a moment without going to sleep, if nobody else does: waking a core that has gone to sleep takes as long as a
    /// fast disk takes to sync. Whether it was woken.
    fn stay_awake(&self) -> bool {
        if SOMEBODY_AWAKE.swap(true, Ordering::Acquire) {
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
        SOMEBODY_AWAKE.store(false, Ordering::Release);
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
