//! The client against a real node: in the same process, and over gRPC.
#![allow(clippy::unwrap_used)]

mod compact;
mod cuts;
mod follow;
mod rows;
mod support;
mod tasks;
mod verify;
mod writers;
