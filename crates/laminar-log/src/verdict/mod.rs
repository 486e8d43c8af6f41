//! The verdict: what becomes of an entry, decided once, in log order, for all its partitions.
//!
//! ```text
//!  decide.rs      the order of checks; nothing stays unless all of an entry does
//!  partitions.rs  partitions and tombstones, with an undo list; partition.rs: what a record would do to one
//!  producers.rs   the last appends of producers (TXN-2)
//!  queries.rs     the last batch of each query (TXN-1)
//!  stages.rs      staged blocks that have expired
//!  snapshot/      all of it as bytes
//! ```
//!
//! No clock, no chance, no unordered iteration (APPLY-2): two replicas that decide the same entries have the same state,
//! byte for byte, and a replica that goes on from a snapshot comes to the same decisions.

mod decide;
mod limits;
mod partition;
mod partitions;
mod producers;
mod queries;
mod snapshot;
mod stages;
mod state;
mod tombstones;
mod types;

pub use limits::VerdictLimits;
pub use partition::PartitionVerdict;
pub use snapshot::VerdictSnapshotError;
pub use state::{VerdictCounts, VerdictState};
pub use types::{AcceptedRecord, Decision, Outcome, Placed, Refusal, Verdict};

/// Empties an undo list, and keeps some room but not that of the largest entry there was.
fn clear<T>(undo: &mut Vec<T>) {
    undo.clear();
    undo.shrink_to(1024);
}

#[cfg(test)]
mod tests;
