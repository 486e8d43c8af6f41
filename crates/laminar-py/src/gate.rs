//! Work without the GIL that a fork waits for.
//!
//! A forked child has only the thread that forked. A lock that another thread held at that moment stays locked in the
//! child for ever, and Spark forks. Whoever holds the GIL cannot be in the middle of a fork, so only work that holds a
//! lock *without* the GIL matters: it goes through [`detached`], and `os.fork` waits until none of it runs.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyDict;

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static CLOSED: AtomicBool = AtomicBool::new(false);
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between this process and the one that loaded the module: what was made under another number belongs
/// to a process that this one is not, and so do its threads and connections.
pub(crate) fn generation() -> u32 {
    // ORDER: relaxed; it changes only while a forked child has a single thread.
    GENERATION.load(Ordering::Relaxed)
}

/// Runs `work`, which may take locks: without the GIL if it is `heavy`, for a few microseconds it is not worth it.
pub(crate) fn detached<T: Send>(py: Python<'_>, heavy: bool, work: impl FnOnce() -> T + Send) -> T {
    if !heavy {
        return work();
    }
    py.detach(|| {
        let _section = Section::enter();
        work()
    })
}

/// Makes `os.fork` wait for the sections that run, and new sections wait for the fork.
pub(crate) fn guard_forks(py: Python<'_>) -> PyResult<()> {
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(before_fork, py)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_fork_in_parent, py)?)?;
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, py)?)?;
    py.import("os")?.getattr("register_at_fork")?.call((), Some(&hooks))?;
    Ok(())
}

#[pyfunction]
fn before_fork() {
    // ORDER: SeqCst with the counter: either the section sees the gate closed, or the fork sees the section.
    CLOSED.store(true, Ordering::SeqCst);
    // A section needs no GIL to end, so waiting with the GIL held cannot deadlock; sections take milliseconds at most.
    while RUNNING.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
}

#[pyfunction]
fn after_fork_in_parent() {
    CLOSED.store(false, Ordering::SeqCst);
}

#[pyfunction]
fn after_fork_in_child() {
    // Threads that were about to enter have counted themselves, and do not exist here.
    RUNNING.store(0, Ordering::SeqCst);
    CLOSED.store(false, Ordering::SeqCst);
    GENERATION.fetch_add(1, Ordering::Relaxed);
    laminar_node::embedded::forget_in_forked_child();
}

struct Section;

impl Section {
    fn enter() -> Self {
        loop {
            RUNNING.fetch_add(1, Ordering::SeqCst);
            if !CLOSED.load(Ordering::SeqCst) {
                return Section;
            }
            RUNNING.fetch_sub(1, Ordering::SeqCst);
            while CLOSED.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}
