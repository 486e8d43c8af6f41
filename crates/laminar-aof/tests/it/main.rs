//! The tests of this crate from outside, as one program: what they share is compiled and linked once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

mod basic;
mod committer;
mod crash;
mod crash_calls;
mod damage;
mod fault_calls;
mod fuzz;
mod golden;
mod model;
mod order;
mod prop_log;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);
