//! The tests of this crate from outside, as one program: what they share is compiled and linked once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cut;
mod dispatcher;
mod dispatcher_prop;
mod dispatcher_support;
mod format_verdict;
mod inspect;
mod inspect_support;
mod kv;
mod partition_log;
mod partition_log_model;
mod partition_log_prop;
mod prop_segmented;
mod prop_verdict;
mod prop_verdict_model;
mod segmented;
mod snapshot_file;
mod snapshot_file_parts;
mod snapshot_file_store;
mod store_model;
mod store_prop;
mod support;
mod tracking;
mod tracking_metrics;
mod tracking_prop;
