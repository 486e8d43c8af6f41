//! openraft's runtime for the log below, so that all of a node runs on one.

use std::fmt;
use std::time::Duration;

use laminar_log::Runtime;
use laminar_log::machine::BoxFuture;
use openraft::{AsyncRuntime, Instant};

/// What the log needs, done by an openraft runtime.
pub struct OpenraftRuntime<R: AsyncRuntime> {
    since: R::Instant,
}

impl<R: AsyncRuntime> OpenraftRuntime<R> {
    /// Time begins now. On a simulated runtime this must be called inside of it.
    pub fn new() -> Self {
        Self { since: R::Instant::now() }
    }
}

impl<R: AsyncRuntime> Default for OpenraftRuntime<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: AsyncRuntime> fmt::Debug for OpenraftRuntime<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenraftRuntime").field("since", &self.since).finish()
    }
}

impl<R: AsyncRuntime> Runtime for OpenraftRuntime<R> {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        // Dropping the handle lets the task run on its own.
        drop(R::spawn(task));
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(R::sleep(time))
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }
}
