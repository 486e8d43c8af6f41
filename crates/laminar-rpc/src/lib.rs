//! What laminar's nodes and clients say to each other.
//!
//! `proto/laminar/v1/laminar.proto` is the service; [`proto`] is what is generated from it. [`Failure`] (`failure.rs`) is an
//! error on its way: a class that users know by name, a message and typed fields. It travels in the status of a call, and
//! comes out on the other side as it went in. Times in messages are told by [`utc`] (`time.rs`).
//! Processes of one machine are connected by a [`LocalSocket`] (`socket.rs`), and the tasks of a connection can be run by a
//! crew ([`CrewExecutor`], `executor.rs`).
//!
//! This crate knows neither files nor Raft.

#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod executor;
mod failure;
mod socket;
mod time;

pub use executor::CrewExecutor;
pub use failure::{ErrorClass, Failure, Field};
pub use prost::Message;
pub use socket::LocalSocket;
pub use time::utc;

/// The generated service and messages.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod proto {
    tonic::include_proto!("laminar.v1");
}

/// The header that carries the secret of an embedded node, or a token.
pub const AUTHORIZATION: &str = "authorization";
