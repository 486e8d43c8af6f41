//! What the log needs of a runtime, so that it runs on tokio and in a simulation alike.

use std::fmt;
use std::time::Duration;

use crate::machine::BoxFuture;

/// Spawns, sleeps and tells the time. Nothing else in this crate knows of a runtime or a clock.
pub trait Runtime: fmt::Debug + Send + Sync {
    /// Runs a task until it ends.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Returns after this time.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;

    /// Time since a fixed moment; never goes back.
    fn now(&self) -> Duration;
}
