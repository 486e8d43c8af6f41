//! Why an entry was not admitted, and when to try again.

use std::fmt;
use std::time::Duration;

use laminar_core::error::ErrorKind;
use laminar_core::ids::PartitionId;
use thiserror::Error;

use super::state::PauseReason;
use crate::setting::millis;

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// That of all partitions of this node together.
    Global,
    /// That of one partition.
    Partition(PartitionId),
}

impl Scope {
    /// The partition, if it is one's.
    pub fn partition(self) -> Option<PartitionId> {
        match self {
            Scope::Global => None,
            Scope::Partition(partition) => Some(partition),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Global => f.write_str("all partitions"),
            Scope::Partition(partition) => write!(f, "partition {partition}"),
        }
    }
}

/// A limit of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// Records in flight or not applied.
    Ops,
    /// Their bytes.
    Bytes,
    /// The age of the oldest one that is not applied, in milliseconds.
    Age,
    /// Records not applied, for too long.
    Lag,
    /// Time without progress, in milliseconds: throttled.
    Throttle,
    /// Time without progress, in milliseconds: frozen.
    Freeze,
    /// Waiters at barriers; of all clients, or of one.
    Waiters {
        /// Of one client.
        client: bool,
    },
}

impl Limit {
    /// The configuration key.
    pub fn key(self, scope: Scope) -> &'static str {
        match (self, scope) {
            (Limit::Ops, Scope::Global) => "log.ops_max",
            (Limit::Ops, Scope::Partition(_)) => "log.partition_ops_max",
            (Limit::Bytes, Scope::Global) => "log.bytes_max",
            (Limit::Bytes, Scope::Partition(_)) => "log.partition_bytes_max",
            (Limit::Age, Scope::Global) => "log.age_max_ms",
            (Limit::Age, Scope::Partition(_)) => "log.partition_age_max_ms",
            (Limit::Lag, _) => "log.partition_lag_max",
            (Limit::Throttle, _) => "log.throttle_after_ms",
            (Limit::Freeze, _) => "log.freeze_after_ms",
            (Limit::Waiters { client: false }, _) => "log.waiters_max",
            (Limit::Waiters { client: true }, _) => "log.waiters_client_max",
        }
    }

    fn what(self, value: u64, limit: u64) -> String {
        match self {
            Limit::Ops => format!("{value} of {limit} records queued"),
            Limit::Bytes => format!("{value} of {limit} bytes queued"),
            Limit::Age => {
                format!("the oldest record not applied is {value} ms old and {limit} ms are the most")
            }
            Limit::Lag => {
                format!("closed, {value} records were not applied for too long and {limit} are the most")
            }
            Limit::Throttle => {
                format!(
                    "throttled, its worker has made no progress for {value} ms and {limit} ms are the most"
                )
            }
            Limit::Freeze => {
                format!("frozen, its worker has made no progress for {value} ms and {limit} ms are the most")
            }
            Limit::Waiters { client: false } => format!("{value} of {limit} waiters registered"),
            Limit::Waiters { client: true } => {
                format!("{value} of {limit} waiters of this client registered")
            }
        }
    }
}

fn more(asked: u64) -> String {
    if asked == 0 { String::new() } else { format!(" and {asked} more asked for") }
}

/// Why an entry was not admitted. Nothing of it was appended (ADM-1).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AdmissionRefusal {
    /// A limit is reached.
    #[error(
        "{scope}: append refused, {}{} ({}); wait {} ms or raise it",
        .which.what(*.value, *.limit), more(*.asked), .which.key(*.scope), millis(*.retry_after)
    )]
    Overloaded {
        /// Whose limit.
        scope: Scope,
        /// Which limit.
        which: Limit,
        /// The limit.
        limit: u64,
        /// What is there now.
        value: u64,
        /// What the entry would have added.
        asked: u64,
        /// When to try again.
        retry_after: Duration,
    },
    /// A signal that the embedder registered says no.
    #[error("{scope}: append refused by signal {name}, {value} of {limit}; wait {} ms", millis(*.retry_after))]
    Signal {
        /// Of what.
        scope: Scope,
        /// The signal.
        name: String,
        /// Its limit.
        limit: u64,
        /// What it measured.
        value: u64,
        /// When to try again.
        retry_after: Duration,
    },
    /// The partition does not apply anything until someone mends it.
    #[error("partition {partition}: append refused, it is paused: {reason}")]
    Paused {
        /// The partition.
        partition: PartitionId,
        /// Why.
        reason: PauseReason,
        /// When to try again.
        retry_after: Duration,
    },
    /// The entry carries too many rows.
    #[error(
        "entry refused, it carries {bytes} bytes of rows and {limit} are the most \
         (log.entry_inline_bytes_max); stage the rows and append a pointer, or send less at once"
    )]
    InlineTooLarge {
        /// What it carries.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The entry would not fit if nothing else were queued.
    #[error("{scope}: entry refused, it holds {asked} and {limit} are the most ({}); split it or raise it", .which.key(*.scope))]
    NeverFits {
        /// Whose limit.
        scope: Scope,
        /// Which limit.
        which: Limit,
        /// The limit.
        limit: u64,
        /// What the entry asked for.
        asked: u64,
    },
}

impl AdmissionRefusal {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            AdmissionRefusal::Overloaded { .. } | AdmissionRefusal::Signal { .. } => ErrorKind::Overloaded,
            AdmissionRefusal::Paused { .. } => ErrorKind::Unavailable,
            AdmissionRefusal::InlineTooLarge { .. } | AdmissionRefusal::NeverFits { .. } => {
                ErrorKind::Invalid
            }
        }
    }

    /// Whether the same entry may be admitted later.
    pub fn is_retryable(&self) -> bool {
        self.retry_after().is_some()
    }

    /// How long to wait before trying again; `None` if it would be refused again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            AdmissionRefusal::Overloaded { retry_after, .. }
            | AdmissionRefusal::Signal { retry_after, .. }
            | AdmissionRefusal::Paused { retry_after, .. } => Some(*retry_after),
            AdmissionRefusal::InlineTooLarge { .. } | AdmissionRefusal::NeverFits { .. } => None,
        }
    }

    /// The partition that refused, or `None` for a limit of all together.
    pub fn partition(&self) -> Option<PartitionId> {
        match self {
            AdmissionRefusal::Overloaded { scope, .. }
            | AdmissionRefusal::Signal { scope, .. }
            | AdmissionRefusal::NeverFits { scope, .. } => scope.partition(),
            AdmissionRefusal::Paused { partition, .. } => Some(*partition),
            AdmissionRefusal::InlineTooLarge { .. } => None,
        }
    }

    /// The configuration key of the limit, or the name of the signal.
    pub fn limit_name(&self) -> &str {
        match self {
            AdmissionRefusal::Overloaded { scope, which, .. }
            | AdmissionRefusal::NeverFits { scope, which, .. } => which.key(*scope),
            AdmissionRefusal::Signal { name, .. } => name,
            AdmissionRefusal::Paused { .. } => "paused",
            AdmissionRefusal::InlineTooLarge { .. } => "log.entry_inline_bytes_max",
        }
    }
}
