//! Errors in two tiers: precise variants inside, and an [`ErrorKind`] that answers "what do I do now?".
//!
//! A message says what happened, where, which value against which limit, and what to do.

mod assignment;
mod epoch;
mod format;
mod invalid;

pub use assignment::{AffinityReason, AssignmentError, Constraint, ConstraintReason};
pub use epoch::EpochError;
pub use format::FormatError;
pub use invalid::InvalidError;

/// What the caller should do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Epoch or owner moved on: refresh the guard; drop the task if another node owns the partition.
    Stale,
    /// This holder's lease ended for good: stop writing, ask for a new lease.
    Fenced,
    /// A limit of ours was reached: wait, or raise the named limit.
    Overloaded,
    /// No quorum, store or peer: retry with back-off.
    Unavailable,
    /// Wrong argument or configuration: fix it.
    Invalid,
    /// Stored bytes are not what was written: repair from a replica, never retry.
    Corrupt,
    /// A bug of ours: report it.
    Internal,
}

impl ErrorKind {
    /// The name users see.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Stale => "stale",
            ErrorKind::Fenced => "fenced",
            ErrorKind::Overloaded => "overloaded",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Internal => "internal",
        }
    }
}
