//! The verdict: what becomes of an entry, decided once, in log order, for all its partitions.

mod types;

pub use types::{AcceptedRecord, Decision, Outcome, Placed, Refusal, Verdict};
