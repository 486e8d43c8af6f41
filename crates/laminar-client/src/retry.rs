//! Whether a failed call is sent again, and when. Decisions only; `session.rs` carries them out.

use std::time::Duration;

use laminar_rpc::{ErrorClass, Failure};

const BACK_OFF_MIN: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_millis(250);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);

/// Whether a call that may have taken effect can be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or the node recognises it the second time.
    Safe,
    /// As `Safe`, but a node without room is told to the caller at once, if nothing can have happened.
    SafeUnlessFull,
    /// A second one would count as another.
    Unsafe,
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The caller is told.
    Fail,
    /// Sent again.
    Again {
        /// After this long.
        wait: Duration,
        /// Over a connection found anew.
        reconnect: bool,
    },
}

/// The attempts of one call.
#[derive(Debug)]
pub(crate) struct Attempts {
    repeat: Repeat,
    failed: u32,
    unknown: bool,
}

impl Attempts {
    pub(crate) fn new(repeat: Repeat) -> Self {
        Attempts { repeat, failed: 0, unknown: false }
    }

    /// Whether some attempt may have taken effect.
    pub(crate) fn unknown(&self) -> bool {
        self.unknown
    }

    /// Decides about a failure, with this much time left.
    pub(crate) fn after(&mut self, failure: &Failure, left: Duration) -> Next {
        self.unknown |= failure.outcome_unknown;
        let back_off = back_off(self.failed);
        self.failed += 1;
        let wait = match failure.class {
            ErrorClass::Backpressure if self.repeat == Repeat::SafeUnlessFull && !self.unknown => {
                return Next::Fail;
            }
            ErrorClass::Backpressure => match failure.number("retry_after_ms") {
                Some(wait) => Duration::from_millis(wait).clamp(Duration::from_millis(1), RETRY_AFTER_MAX),
                None => back_off,
            },
            _ if is_passing(failure.class) => back_off,
            _ => return Next::Fail,
        };
        if failure.outcome_unknown && self.repeat == Repeat::Unsafe {
            return Next::Fail;
        }
        if left <= BACK_OFF_MIN {
            return Next::Fail;
        }
        // The last wait leaves time for one more attempt.
        Next::Again { wait: wait.min(left / 2), reconnect: needs_connection(failure.class) }
    }
}

/// The wait after this many failures.
pub(crate) fn back_off(failed: u32) -> Duration {
    BACK_OFF_MIN.saturating_mul(1 << failed.min(10)).min(BACK_OFF_MAX)
}

/// Whether this passes without anything being changed by the caller.
fn is_passing(class: ErrorClass) -> bool {
    matches!(
        class,
        ErrorClass::Network
            | ErrorClass::Unavailable
            | ErrorClass::NotLeader
            | ErrorClass::NotInitialized
            | ErrorClass::Raft
    )
}

/// Whether another node, or the same one over another connection, may answer.
fn needs_connection(class: ErrorClass) -> bool {
    matches!(class, ErrorClass::Network | ErrorClass::Unavailable | ErrorClass::NotLeader)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    fn network() -> Failure {
        Failure::new(ErrorClass::Network, "reset")
    }

    #[test]
    fn waits_double_up_to_their_limit() {
        let waits: Vec<u128> = (0..8).map(|failed| back_off(failed).as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 250, 250]);
        assert_eq!(back_off(u32::MAX), BACK_OFF_MAX);
    }

    #[test]
    fn a_lost_connection_is_found_anew() {
        let mut attempts = Attempts::new(Repeat::Safe);
        let again = Next::Again { wait: BACK_OFF_MIN, reconnect: true };
        assert_eq!(attempts.after(&network().unknown(), LONG), again);
        assert!(attempts.unknown());
    }

    #[test]
    fn what_may_have_happened_is_repeated_only_where_that_is_safe() {
        assert_eq!(Attempts::new(Repeat::Unsafe).after(&network().unknown(), LONG), Next::Fail);
        assert_ne!(Attempts::new(Repeat::Unsafe).after(&network(), LONG), Next::Fail);
    }

    #[test]
    fn refusals_are_final() {
        for class in
            [ErrorClass::StaleEpoch, ErrorClass::NotOwned, ErrorClass::Invalid, ErrorClass::Corruption]
        {
            let next = Attempts::new(Repeat::Safe).after(&Failure::new(class, "no"), LONG);
            assert_eq!(next, Next::Fail, "{class:?}");
        }
    }

    #[test]
    fn backpressure_waits_as_long_as_it_says() {
        let full = Failure::new(ErrorClass::Backpressure, "full").with("retry_after_ms", 40_u64);
        let next = Attempts::new(Repeat::Unsafe).after(&full, LONG);
        assert_eq!(next, Next::Again { wait: Duration::from_millis(40), reconnect: false });
        let forever = Failure::new(ErrorClass::Backpressure, "full").with("retry_after_ms", u64::MAX);
        let next = Attempts::new(Repeat::Safe).after(&forever, LONG);
        assert_eq!(next, Next::Again { wait: RETRY_AFTER_MAX, reconnect: false });
    }

    #[test]
    fn a_full_node_is_told_at_once_unless_the_request_may_have_landed() {
        let full = Failure::new(ErrorClass::Backpressure, "full");
        let mut attempts = Attempts::new(Repeat::SafeUnlessFull);
        assert_eq!(attempts.after(&full, LONG), Next::Fail);
        attempts.after(&network().unknown(), LONG);
        assert_ne!(attempts.after(&full, LONG), Next::Fail);
    }

    #[test]
    fn nothing_is_tried_when_no_time_is_left() {
        assert_eq!(Attempts::new(Repeat::Safe).after(&network(), BACK_OFF_MIN), Next::Fail);
        let next = Attempts::new(Repeat::Safe).after(&network(), Duration::from_millis(8));
        assert_eq!(next, Next::Again { wait: Duration::from_millis(4), reconnect: true });
    }
}
