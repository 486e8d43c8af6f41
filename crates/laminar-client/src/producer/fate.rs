//! What a failed request means for the appends in it. Decisions only.

use laminar_core::error::ErrorKind;
use laminar_rpc::{ErrorClass, Failure, Field};

/// What becomes of the appends of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// They may have landed. The producer is not used again: its next sequence is not known.
    Unknown,
    /// Nothing landed; each is sent as a request of its own, because the refusal may be about one of them only.
    Apart,
    /// Nothing landed; sent again when the node has room, and others pass meanwhile.
    Parked,
    /// Nothing landed, and the producer is not known any more; sent again under another.
    Minted,
    /// Nothing landed.
    Refused,
}

/// Whether rows were placed by another description of the stream than the current one.
pub(crate) fn is_stream_changed(failure: &Failure) -> bool {
    failure.fields.get("stream_changed") == Some(&Field::Flag(true))
}

/// Decides about a failure. A refused append leaves the producer as it was, so its sequence is free for the next.
pub(super) fn fate(failure: &Failure, unknown_before: bool, callers: usize, owned: bool) -> Fate {
    if failure.outcome_unknown || (unknown_before && !is_final(failure.class, owned)) {
        return Fate::Unknown;
    }
    if failure.fields.get("unknown_producer") == Some(&Field::Flag(true)) {
        return Fate::Minted;
    }
    match failure.class {
        ErrorClass::Backpressure if callers > 1 => Fate::Apart,
        ErrorClass::Backpressure => Fate::Parked,
        _ if is_stream_changed(failure) => Fate::Refused,
        class if callers > 1 && class.kind() != ErrorKind::Unavailable => Fate::Apart,
        _ => Fate::Refused,
    }
}

/// Whether a refusal also holds for an earlier attempt that is still on its way. The log itself refused the epoch: had
/// the attempt landed before, the answer would have been where; and epochs only grow, so it cannot land any more. Every
/// other refusal may come from a place that does not know what landed, or may pass.
fn is_final(class: ErrorClass, owned: bool) -> bool {
    owned && class == ErrorClass::StaleEpoch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(class: ErrorClass) -> Failure {
        Failure::new(class, "no")
    }

    #[test]
    fn what_may_have_landed_is_never_called_refused() {
        let lost = failure(ErrorClass::Unavailable).unknown();
        assert_eq!(fate(&lost, false, 1, false), Fate::Unknown);
        // The first attempt may still land after the second was refused for a reason that passes.
        for class in
            [ErrorClass::NotOwned, ErrorClass::Invalid, ErrorClass::Backpressure, ErrorClass::Unavailable]
        {
            assert_eq!(fate(&failure(class), true, 1, true), Fate::Unknown, "{class:?}");
        }
        assert_eq!(fate(&failure(ErrorClass::StaleEpoch), true, 1, false), Fate::Unknown);
        assert_eq!(fate(&failure(ErrorClass::UnknownPartition), true, 1, true), Fate::Unknown);
    }

    #[test]
    fn a_refusal_that_never_passes_holds_for_earlier_attempts_too() {
        assert_eq!(fate(&failure(ErrorClass::StaleEpoch), true, 1, true), Fate::Refused);
        assert_eq!(fate(&failure(ErrorClass::StaleEpoch), true, 2, true), Fate::Apart);
    }

    #[test]
    fn one_callers_partition_does_not_fail_the_others() {
        for class in
            [ErrorClass::NotOwned, ErrorClass::StaleEpoch, ErrorClass::UnknownPartition, ErrorClass::Invalid]
        {
            assert_eq!(fate(&failure(class), false, 2, false), Fate::Apart, "{class:?}");
            assert_eq!(fate(&failure(class), false, 1, false), Fate::Refused, "{class:?}");
        }
    }

    #[test]
    fn a_full_partition_parks_its_append_only() {
        assert_eq!(fate(&failure(ErrorClass::Backpressure), false, 3, false), Fate::Apart);
        assert_eq!(fate(&failure(ErrorClass::Backpressure), false, 1, false), Fate::Parked);
    }

    #[test]
    fn a_forgotten_producer_is_minted_again_only_if_nothing_landed() {
        let forgotten = failure(ErrorClass::Invalid).with("unknown_producer", true);
        assert_eq!(fate(&forgotten, false, 2, false), Fate::Minted);
        assert_eq!(fate(&forgotten, true, 2, false), Fate::Unknown);
    }

    #[test]
    fn a_changed_stream_concerns_everybody() {
        let changed = failure(ErrorClass::Invalid).with("stream_changed", true);
        assert!(is_stream_changed(&changed));
        assert_eq!(fate(&changed, false, 5, false), Fate::Refused);
    }

    #[test]
    fn a_node_that_is_away_is_away_for_everybody() {
        assert_eq!(fate(&failure(ErrorClass::Unavailable), false, 5, false), Fate::Refused);
    }
}
