//! A replica whose log was cut neither votes nor acknowledges until it has caught up.
//!
//! Opening found bytes above the synced mark that cannot be read. On a disk that tells the truth nothing there was ever
//! acknowledged; on one that does not, an entry that this replica acknowledged may be gone, or its vote. So it must not
//! be counted for anything that its log alone would vouch for:
//!
//! 1. **No vote.** Votes and pre-votes are not answered, and it does not stand. A leader that is elected without it has
//!    everything that was committed, because the others of every quorum have it.
//! 2. **No acknowledgement that counts.** Appends are stored, and answered only as far as the leader has committed them
//!    already: such an answer commits nothing, and still lets the leader go on from there. Beyond that the answer is
//!    "not yet".
//! 3. **Until** it has, on disk, what a leader has committed *in its own term*: then the leader's commit covers
//!    everything that was committed before, and so does this log.
//!
//! If nobody can be elected without such replicas, because the power failed for all of them at once, nothing would ever
//! be written again. After `cut_wait` they take part as always: that is right wherever disks keep what they synced, and
//! [`ReplicaStatus::gave_up_waiting`](super::ReplicaStatus) tells it. A sole voter has nobody to catch up with, and only
//! reports the cut.

use std::sync::Mutex;
use std::sync::PoisonError;

use laminar_aof::CutTail;
use laminar_log::{LogId, SegmentedLogStore};

/// Whether a replica is kept back, and why.
#[derive(Debug)]
pub(super) struct Hold {
    cut: Option<CutTail>,
    state: Mutex<HoldState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldState {
    /// Nothing was cut, or it has caught up.
    Free,
    Held,
    /// No leader came in time.
    GaveUp,
}

/// What an append may be answered with while the replica is kept back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// As it is.
    Whole,
    /// Only up to what is committed.
    UpTo(LogId),
    NotYet,
}

impl Hold {
    pub(super) fn new(cut: Option<CutTail>, sole_voter: bool) -> Self {
        let state = if cut.is_some() && !sole_voter { HoldState::Held } else { HoldState::Free };
        Self { cut, state: Mutex::new(state) }
    }

    pub(super) fn cut(&self) -> Option<CutTail> {
        self.cut
    }

    pub(super) fn state(&self) -> HoldState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_held(&self) -> bool {
        self.state() == HoldState::Held
    }

    /// Ends the hold; says whether there was one.
    pub(super) fn release(&self, to: HoldState) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let held = *state == HoldState::Held;
        if held {
            *state = to;
        }
        held
    }
}

/// Whether the log has, on disk, what the leader of `term` has committed in that term.
pub(super) fn has_caught_up(log: &SegmentedLogStore, commit: Option<LogId>, term: u64) -> bool {
    let Some(commit) = commit.filter(|commit| commit.term == term) else { return false };
    let state = log.state();
    let there = log.id(commit.index.0).or(state.purged.filter(|purged| purged.index >= commit.index));
    let same = there.is_some_and(|there| there.index > commit.index || there == commit);
    same && state.durable.is_some_and(|durable| durable.index >= commit.index)
}

/// What may be said to an append that succeeded: `previous` and `last` are the places before and at its end.
pub(super) fn may_answer(previous: Option<LogId>, last: Option<LogId>, commit: Option<LogId>) -> Answer {
    let index = |id: Option<LogId>| id.map(|id| id.index);
    match commit {
        _ if index(last) <= index(commit) => Answer::Whole,
        Some(commit) if index(previous) <= Some(commit.index) => Answer::UpTo(commit),
        _ => Answer::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_committed_already_is_acknowledged() {
        let id = |index| Some(LogId::new(3, index));
        assert_eq!(may_answer(None, None, None), Answer::Whole);
        assert_eq!(may_answer(id(4), id(9), id(9)), Answer::Whole);
        assert_eq!(may_answer(id(4), id(9), id(7)), Answer::UpTo(LogId::new(3, 7)));
        assert_eq!(may_answer(id(7), id(9), id(7)), Answer::UpTo(LogId::new(3, 7)));
        assert_eq!(may_answer(id(8), id(9), id(7)), Answer::NotYet);
        assert_eq!(may_answer(None, id(0), None), Answer::NotYet);
    }

    #[test]
    fn a_sole_voter_only_reports_it() {
        let cut = Some(CutTail { segment: 1, sequence: 2, byte: 3 });
        assert!(Hold::new(cut, false).is_held());
        let sole = Hold::new(cut, true);
        assert_eq!((sole.state(), sole.cut()), (HoldState::Free, cut));
        let held = Hold::new(cut, false);
        assert!(held.release(HoldState::GaveUp) && !held.release(HoldState::Free));
        assert_eq!(held.state(), HoldState::GaveUp);
    }
}
