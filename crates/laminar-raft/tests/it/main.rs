//! The tests of this crate from outside, as one program: what they share is compiled and linked once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cluster;
mod coordinator;
mod coordinator_cluster;
mod replica_cluster;
mod replica_crash;
mod replica_purge;
mod replica_single;
mod replica_snapshot;
mod replica_tokio;
mod suite;
mod support;
