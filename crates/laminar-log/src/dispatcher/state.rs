//! What is known of a partition's admission, and how it changes.

use std::fmt;
use std::time::Duration;

use laminar_core::ids::{LogIndex, PartitionId};

/// Whether a partition takes appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum AdmissionState {
    /// It does, within its limits.
    #[default]
    Open,
    /// Its worker makes no progress: appends wait outside.
    Throttled,
    /// Its backlog was too long for too long: appends wait outside until it has caught up.
    Closed,
    /// Its worker has made no progress for so long that nobody should wait.
    Frozen,
    /// Applying failed, or its log did: it goes on when that is mended.
    Paused,
}

impl AdmissionState {
    /// Every state, mildest first.
    pub const ALL: [AdmissionState; 5] = [
        AdmissionState::Open,
        AdmissionState::Throttled,
        AdmissionState::Closed,
        AdmissionState::Frozen,
        AdmissionState::Paused,
    ];

    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            AdmissionState::Open => "open",
            AdmissionState::Throttled => "throttled",
            AdmissionState::Closed => "closed",
            AdmissionState::Frozen => "frozen",
            AdmissionState::Paused => "paused",
        }
    }

    /// Its number in metrics: 0 is open, and higher is worse.
    pub fn number(self) -> u8 {
        match self {
            AdmissionState::Open => 0,
            AdmissionState::Throttled => 1,
            AdmissionState::Closed => 2,
            AdmissionState::Frozen => 3,
            AdmissionState::Paused => 4,
        }
    }
}

/// Why a partition is paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PauseReason {
    /// Its machine could not apply a record, however often it was tried.
    ApplyFailed(String),
    /// Its log could not be written or synced.
    LogFailed(String),
}

impl fmt::Display for PauseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PauseReason::ApplyFailed(what) => {
                write!(f, "a record cannot be applied ({what}); mend the cause, or skip the record")
            }
            PauseReason::LogFailed(what) => {
                write!(f, "its log failed ({what}); it is opened again by itself once the fault clears")
            }
        }
    }
}

/// Why a partition is in its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateReason {
    /// Nothing is wrong.
    CaughtUp,
    /// Its worker has made no progress for this long.
    Stalled(Duration),
    /// Its worker works again, and is not below half of every limit yet.
    CatchingUp,
    /// So many records were not applied, for too long.
    Lagging(u64),
    /// It was told so.
    Paused(PauseReason),
}

impl fmt::Display for StateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateReason::CaughtUp => f.write_str("caught up"),
            StateReason::Stalled(time) => write!(f, "no progress for {} ms", time.as_millis()),
            StateReason::CatchingUp => f.write_str("catching up"),
            StateReason::Lagging(records) => write!(f, "{records} records not applied for too long"),
            StateReason::Paused(reason) => reason.fmt(f),
        }
    }
}

/// A change of a partition's admission state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatcherEvent {
    /// Which partition.
    pub partition: PartitionId,
    /// What it was.
    pub from: AdmissionState,
    /// What it is.
    pub to: AdmissionState,
    /// Why.
    pub reason: StateReason,
    /// When, in the runtime's time.
    pub at: Duration,
}

/// What the dispatcher knows of one partition at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionView {
    /// Whether it takes appends.
    pub state: AdmissionState,
    /// Since when, in the runtime's time.
    pub since: Duration,
    /// Why.
    pub reason: StateReason,
    /// Records admitted here and not answered.
    pub inflight_ops: u64,
    /// Their bytes.
    pub inflight_bytes: u64,
    /// Records accepted and not applied.
    pub backlog_ops: u64,
    /// Their bytes.
    pub backlog_bytes: u64,
    /// The age of the oldest of them, to the millisecond.
    pub backlog_age: Duration,
    /// The entry that it came from, or an earlier one that came within the same millisecond.
    pub oldest: Option<LogIndex>,
}

/// What the dispatcher has done so far, and what is under way over all partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DispatcherStats {
    /// Entries admitted.
    pub admitted: u64,
    /// Entries refused, by the name of the limit; signals and pauses have theirs.
    pub rejects: Vec<(String, u64)>,
    /// Entries that were tried again after a refusal.
    pub retries: u64,
    /// How often a partition came into each state.
    pub transitions: Vec<(AdmissionState, u64)>,
    /// Changes of state that nobody took in time.
    pub events_lost: u64,
    /// Records in flight or not applied.
    pub ops: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Waiters at barriers.
    pub waiters: u64,
}

/// Something else that admission depends on: free space, memory, a quota.
///
/// It is asked without a lock held, for the node as a whole (`None`) and then for each partition of an entry; it
/// must answer from memory.
pub trait AdmissionSignal: Send + Sync {
    /// Why nothing may be appended now, if so.
    fn check(&self, partition: Option<PartitionId>, now: Duration) -> Option<SignalRefusal>;
}

/// What a signal has against an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignalRefusal {
    /// The signal; one of few, because it names a metric.
    pub name: String,
    /// What it measured.
    pub value: u64,
    /// What would have been allowed.
    pub limit: u64,
}
