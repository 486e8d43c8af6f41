//! The tests of this crate from outside, as one program: what they share is compiled and linked once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod blocks;
mod fault_store;
