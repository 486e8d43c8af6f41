//! Who owns what: claims in the metadata, fences in the data log, workers that are heard or not.
//!
//! ```text
//!   claim.rs    a run takes partitions: one compare-and-set over all of them in the metadata
//!   batches.rs  a run begins a batch of a query: it claims, goes on, or is told that the batch is committed
//!   check.rs    whether a run still has what it claimed
//!   carry.rs    what the metadata decided is carried into the data log: creations, fences, destructions
//!   workers.rs  runs register, are heard, and count as failed when they are not
//!   assign.rs   what nobody owns is given to servers
//! ```
//!
//! Safety never depends on heartbeats: a run that is not heard keeps what it claimed, and loses it only to a claim of
//! another, whose fence ends the epoch in the log (EPOCH-2).

mod assign;
mod batches;
mod carry;
mod check;
mod claim;
#[cfg(test)]
mod tests;
mod workers;

pub(crate) use carry::carry_changes;
pub(crate) use workers::watch_workers;
