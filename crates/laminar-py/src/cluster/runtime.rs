//! The tasks of this process, and calls that wait for them.
//!
//! One tokio runtime a process, made on first use. A forked child has none of its threads: it makes its own, and never
//! touches its parent's.

use std::pin::Pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::thread::ThreadId;
use std::time::Duration;

use laminar_crew::{Caller, Callers, Crew};
use laminar_rpc::Failure;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::errors::of_failure;
use crate::gate;

/// How often a waiting call looks whether Ctrl-C was pressed.
pub(crate) const SIGNALS_INTERVAL: Duration = Duration::from_millis(50);
const WORKERS: usize = 2;

/// What runs the tasks of a process.
pub(crate) struct Tasks {
    pub(crate) tokio: Runtime,
    /// Those of a node in this process and of connections, which callers help with while they wait.
    pub(crate) crew: Crew,
    /// Calls that wait.
    callers: Callers,
}

/// The runtime and the process it belongs to. The lock is taken with the GIL held and never kept without it, so a fork
/// cannot come in between.
static RUNTIME: Mutex<Option<(u32, &'static Tasks)>> = Mutex::new(None);

/// The runtime of this process.
pub(crate) fn runtime(_py: Python<'_>) -> PyResult<&'static Tasks> {
    let mut kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let generation = gate::generation();
    if let Some((of, runtime)) = *kept
        && of == generation
    {
        return Ok(runtime);
    }
    let tokio = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("laminar-worker")
        .enable_all()
        .build()
        .map_err(|error| {
            of_failure(&Failure::unavailable(format!("no threads could be started: {error}")))
        })?;
    // Never dropped: it serves until the process ends, and a parent's must not be dropped by its child.
    let crew = {
        let _entered = tokio.enter();
        Crew::new()
    };
    let made: &'static Tasks = Box::leak(Box::new(Tasks { tokio, crew, callers: Callers::default() }));
    *kept = Some((generation, made));
    Ok(made)
}

/// The runtime of this process, if it has one.
pub(crate) fn existing_runtime() -> Option<&'static Runtime> {
    let kept = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    kept.and_then(|(of, runtime)| (of == gate::generation()).then_some(&runtime.tokio))
}

/// Waits for a call without the GIL. Ctrl-C ends the wait, and drops the call.
pub(crate) fn block_on<T: Send>(
    py: Python<'_>,
    call: impl Future<Output = Result<T, Failure>> + Send,
) -> PyResult<T> {
    let runtime = runtime(py)?;
    let mut call = std::pin::pin!(call);
    loop {
        let caller = runtime.callers.enter();
        let (waited, caller) = py.detach(|| {
            let _entered = runtime.tokio.enter();
            let waited = wait_for(runtime, &caller, call.as_mut());
            if is_ending() {
                drop(caller);
                stay();
            }
            caller.before_lock();
            (waited, caller)
        });
        caller.with_lock();
        match waited {
            Poll::Ready(done) => return done.map_err(|failure| of_failure(&failure)),
            Poll::Pending => py.check_signals()?,
        }
    }
}

/// Waits for a call, but not for longer than signals may wait.
fn wait_for<T>(tasks: &Tasks, caller: &Caller, mut call: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    let waker = caller.waker();
    let mut context = Context::from_waker(&waker);
    let until = Instant::now() + SIGNALS_INTERVAL;
    let mut turn = None;
    loop {
        // What the call wakes is left to this thread, if nobody else is at it. Of many callers none can know when it is
        // given a core again, and the others would wait for it: they leave it to the keeper.
        if turn.is_none() && tasks.callers.is_one() {
            turn = tasks.crew.take_turn();
        }
        let polled = call.as_mut().poll(&mut context);
        if polled.is_ready() || Instant::now() >= until {
            if let Some(turn) = turn {
                turn.finish();
            }
            return polled;
        }
        turn = caller.wait(turn, until);
    }
}

/// The thread that ends the interpreter, once it does.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Says that the interpreter is about to end, from the thread that ends it.
pub(crate) fn interpreter_ends() {
    ENDING.get_or_init(|| std::thread::current().id());
}

/// Whether another thread ends the interpreter.
fn is_ending() -> bool {
    ENDING.get().is_some_and(|ending| *ending != std::thread::current().id())
}

/// A daemon thread that comes back to an interpreter that has ended would end the process with a fault. It stays here
/// instead: the process is about to be gone.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}
