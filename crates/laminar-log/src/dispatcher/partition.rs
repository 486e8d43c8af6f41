//! What one partition has queued, and the state that follows from it.

use std::collections::VecDeque;
use std::time::Duration;

use laminar_core::ids::LogIndex;

use super::charge::Load;
use super::config::{DispatcherConfig, PartitionLimits};
use super::refusal::Limit;
use super::state::{AdmissionState, AdmissionView, PauseReason, StateReason};
use crate::setting::millis;

/// Records that were enqueued within this time share one age, so that a long backlog needs few of them.
const AGE_STEP: Duration = Duration::from_millis(1);

/// Back-off of refused callers: it doubles each time they were told to wait, did, and were refused again. Many
/// callers refused at once count as one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    rounds: u32,
    until: Duration,
}

impl Backoff {
    /// When to try again; longer the further `value` lies above `limit`.
    pub(super) fn refuse(
        &mut self,
        now: Duration,
        value: u64,
        limit: u64,
        config: &DispatcherConfig,
    ) -> Duration {
        let base = |rounds: u32| config.retry_after_min.saturating_mul(1 << (rounds - 1).min(30));
        if now >= self.until {
            self.rounds = self.rounds.saturating_add(1);
            self.until = now.saturating_add(base(self.rounds).min(config.retry_after_max));
        }
        let above = u32::try_from(value / limit.max(1)).unwrap_or(u32::MAX).max(1);
        base(self.rounds).saturating_mul(above).min(config.retry_after_max)
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// A limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) which: Limit,
    pub(super) limit: u64,
    pub(super) value: u64,
    pub(super) asked: u64,
    /// It would be reached if nothing were queued.
    pub(super) never_fits: bool,
}

impl Reached {
    /// Whether `asked` more than `value` is above the limit.
    pub(super) fn above(which: Limit, limit: u64, value: u64, asked: u64) -> Option<Self> {
        let reached = value.saturating_add(asked) > limit;
        reached.then_some(Self { which, limit, value, asked, never_fits: asked > limit })
    }
}

#[derive(Debug)]
struct Run {
    at: Duration,
    raft: LogIndex,
    ops: u64,
}

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) inflight: Load,
    pub(super) backlog: Load,
    /// The backlog by the time it was enqueued, oldest first.
    runs: VecDeque<Run>,
    /// When the worker last applied something, or got something to apply.
    progress: Duration,
    /// Since when the backlog is above `lag_max`.
    lagging_since: Option<Duration>,
    pub(super) limits: Option<PartitionLimits>,
    pub(super) paused: Option<PauseReason>,
    pub(super) state: AdmissionState,
    pub(super) since: Duration,
    pub(super) backoff: Backoff,
    /// The state machine knows it. If not, it is forgotten with its last permit.
    pub(super) known: bool,
}

impl Partition {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            inflight: Load::default(),
            backlog: Load::default(),
            runs: VecDeque::new(),
            progress: now,
            lagging_since: None,
            limits: None,
            paused: None,
            state: AdmissionState::Open,
            since: now,
            backoff: Backoff::default(),
            known: false,
        }
    }

    /// What is compared with limits. A permit covers an entry of this node until its reply, and so does the backlog
    /// once it is accepted: the larger of both counts each entry once.
    pub(super) fn queued(&self) -> Load {
        self.inflight.max(self.backlog)
    }

    pub(super) fn is_forgettable(&self) -> bool {
        !self.known && self.inflight.is_zero()
    }

    pub(super) fn enqueue(&mut self, load: Load, raft: LogIndex, now: Duration) {
        if self.backlog.ops == 0 {
            self.progress = now;
        }
        self.backlog = self.backlog.plus(load);
        match self.runs.back_mut() {
            Some(run) if now.saturating_sub(run.at) < AGE_STEP => run.ops += load.ops,
            _ => self.runs.push_back(Run { at: now, raft, ops: load.ops }),
        }
    }

    pub(super) fn apply(&mut self, load: Load, now: Duration) {
        self.backlog = self.backlog.minus(load);
        self.progress = now;
        let mut left = load.ops;
        while let Some(run) = self.runs.front_mut() {
            if run.ops > left {
                run.ops -= left;
                return;
            }
            left -= run.ops;
            self.runs.pop_front();
        }
        self.runs.shrink_to(4);
    }

    pub(super) fn discard_backlog(&mut self, now: Duration) {
        self.backlog = Load::default();
        self.runs = VecDeque::new();
        self.progress = now;
    }

    /// A worker that was mended begins anew.
    pub(super) fn clear_pause(&mut self, now: Duration) {
        self.paused = None;
        self.progress = now;
    }

    /// The age of the oldest record that is not applied.
    pub(super) fn age(&self, now: Duration) -> Duration {
        self.runs.front().map_or(Duration::ZERO, |run| now.saturating_sub(run.at))
    }

    fn stall(&self, now: Duration) -> Duration {
        if self.backlog.ops == 0 { Duration::ZERO } else { now.saturating_sub(self.progress) }
    }

    pub(super) fn limits<'a>(&'a self, config: &'a DispatcherConfig) -> &'a PartitionLimits {
        self.limits.as_ref().unwrap_or(&config.partition)
    }

    /// Goes to the state that holds now; returns the one before if it was another.
    pub(super) fn evaluate(&mut self, now: Duration, config: &DispatcherConfig) -> Option<AdmissionState> {
        let lag_max = self.limits(config).lag_max;
        if self.backlog.ops > lag_max {
            self.lagging_since.get_or_insert(now);
        } else {
            self.lagging_since = None;
        }
        let state = self.state_at(now, config);
        if state == self.state {
            return None;
        }
        self.since = now;
        Some(std::mem::replace(&mut self.state, state))
    }

    fn state_at(&self, now: Duration, config: &DispatcherConfig) -> AdmissionState {
        let stall = self.stall(now);
        let lagged = self.lagging_since.is_some_and(|since| now.saturating_sub(since) >= config.lag_after);
        let still_lags =
            self.state == AdmissionState::Closed && self.backlog.ops > self.limits(config).lag_max / 2;
        if self.paused.is_some() {
            AdmissionState::Paused
        } else if stall >= config.freeze_after {
            AdmissionState::Frozen
        } else if lagged || still_lags {
            AdmissionState::Closed
        } else if stall >= config.throttle_after || !self.may_open(now, config) {
            AdmissionState::Throttled
        } else {
            AdmissionState::Open
        }
    }

    /// An open partition stays so; one that stood still opens below half of every limit, so that it does not open
    /// and close with each record.
    fn may_open(&self, now: Duration, config: &DispatcherConfig) -> bool {
        let limits = self.limits(config);
        matches!(self.state, AdmissionState::Open | AdmissionState::Closed)
            || (self.backlog.ops <= limits.ops_max / 2
                && self.backlog.bytes <= limits.bytes_max / 2
                && self.age(now) <= limits.age_max / 2)
    }

    /// Why it is in its state.
    pub(super) fn reason(&self, now: Duration, config: &DispatcherConfig) -> StateReason {
        match (self.state, &self.paused) {
            (_, Some(reason)) => StateReason::Paused(reason.clone()),
            (AdmissionState::Closed, None) => StateReason::Lagging(self.backlog.ops),
            (AdmissionState::Throttled | AdmissionState::Frozen, None) => {
                let stall = self.stall(now);
                if stall >= config.throttle_after {
                    StateReason::Stalled(stall)
                } else {
                    StateReason::CatchingUp
                }
            }
            (AdmissionState::Open | AdmissionState::Paused, None) => StateReason::CaughtUp,
        }
    }

    /// The limit that keeps `load` out, if one does. A pause is not among them. The state must be up to date.
    pub(super) fn reached(
        &self,
        load: Load,
        appends: bool,
        now: Duration,
        config: &DispatcherConfig,
    ) -> Option<Reached> {
        let limits = self.limits(config);
        let queued = self.queued();
        if !appends {
            return Reached::above(Limit::Ops, limits.ops_max + config.control_ops_max, queued.ops, load.ops);
        }
        let never = |reached: &Reached| reached.never_fits;
        Reached::above(Limit::Ops, limits.ops_max, queued.ops, load.ops)
            .filter(never)
            .or_else(|| {
                Reached::above(Limit::Bytes, limits.bytes_max, queued.bytes, load.bytes).filter(never)
            })
            .or_else(|| self.state_reached(now, config))
            .or_else(|| Reached::above(Limit::Age, millis(limits.age_max), millis(self.age(now)), 0))
            .or_else(|| Reached::above(Limit::Ops, limits.ops_max, queued.ops, load.ops))
            .or_else(|| Reached::above(Limit::Bytes, limits.bytes_max, queued.bytes, load.bytes))
    }

    fn state_reached(&self, now: Duration, config: &DispatcherConfig) -> Option<Reached> {
        let limits = self.limits(config);
        let stall = self.stall(now);
        let (which, limit, value) = match self.state {
            AdmissionState::Open | AdmissionState::Paused => return None,
            AdmissionState::Frozen => (Limit::Freeze, millis(config.freeze_after), millis(stall)),
            AdmissionState::Closed => (Limit::Lag, limits.lag_max, self.backlog.ops),
            AdmissionState::Throttled if stall >= config.throttle_after => {
                (Limit::Throttle, millis(config.throttle_after), millis(stall))
            }
            // It works again and catches up: what is still above half keeps it from opening.
            AdmissionState::Throttled if self.backlog.ops > limits.ops_max / 2 => {
                (Limit::Ops, limits.ops_max / 2, self.backlog.ops)
            }
            AdmissionState::Throttled if self.backlog.bytes > limits.bytes_max / 2 => {
                (Limit::Bytes, limits.bytes_max / 2, self.backlog.bytes)
            }
            AdmissionState::Throttled => (Limit::Age, millis(limits.age_max / 2), millis(self.age(now))),
        };
        Some(Reached { which, limit, value, asked: 0, never_fits: false })
    }

    /// How long to wait before handing over records that are committed: nothing up to the limit, the most from
    /// twice the limit on.
    pub(super) fn commit_delay(&self, config: &DispatcherConfig) -> Duration {
        let limits = self.limits(config);
        let per_mille = |value: u64, limit: u64| {
            // Rounded up: the least excess delays.
            let above = (u128::from(value.saturating_sub(limit)) * 1000).div_ceil(u128::from(limit.max(1)));
            u32::try_from(above.min(1000)).unwrap_or(1000)
        };
        let above =
            per_mille(self.backlog.ops, limits.ops_max).max(per_mille(self.backlog.bytes, limits.bytes_max));
        config.commit_delay_max * above / 1000
    }

    pub(super) fn view(&self, now: Duration, config: &DispatcherConfig) -> AdmissionView {
        AdmissionView {
            state: self.state,
            since: self.since,
            reason: self.reason(now, config),
            inflight_ops: self.inflight.ops,
            inflight_bytes: self.inflight.bytes,
            backlog_ops: self.backlog.ops,
            backlog_bytes: self.backlog.bytes,
            backlog_age: self.age(now),
            oldest: self.runs.front().map(|run| run.raft),
        }
    }
}
