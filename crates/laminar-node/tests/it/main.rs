//! The tests of this crate from outside, as one program: what they share is compiled and linked once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod begin_batch;
mod closing;
mod detached;
mod embedded;
mod left_rows;
mod paused;
mod queries;
mod recovery;
mod room;
mod runs;
mod stages;
mod stale;
mod strange_calls;
mod support;
