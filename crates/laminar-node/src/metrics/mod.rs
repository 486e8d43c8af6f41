//! What a node counts, and how it tells it.
//!
//! ```text
//!   figures.rs     counted as it happens: appends, calls, claims, readers, syncs. Atomics only
//!   histogram.rs   times in fixed buckets
//!   gather.rs      everything else is looked up when somebody asks: groups, partitions, writers
//!   page.rs        one answer, as text in Prometheus' format; takes up what laminar-log tells the facade
//!   http.rs        GET /metrics and GET /health, on a port of listener.rs
//! ```
//!
//! Several nodes may live in a process, so each has figures of its own, and the recorder of the process, if somebody
//! installed one, is left alone.

mod figures;
mod gather;
mod histogram;
pub(crate) mod http;
pub(crate) mod listener;
mod page;

pub(crate) use figures::{Call, Figures};
