//! Each entry is decided once, in log order.

use super::*;
use crate::format::FormatError;

#[test]
fn entries_that_were_decided_are_refused_and_change_nothing() {
    let mut log = Log::new();
    log.accept([create(0, 1, 1)]);
    log.accept([append(0, 1, 1, 1)]);
    let before = log.state.encode();
    let last = LogId::new(1, 2);
    for given in [LogId::new(1, 0), LogId::new(1, 1), LogId::new(1, 2), LogId::new(9, 2)] {
        let refused = Refusal::AlreadyDecided { given, last };
        assert_eq!(refusal(log.state.decide(given, &entry([append(0, 1, 1, 1)]))), refused);
        let error = FormatError::Value { what: "record", at: 0, found: 0 };
        assert_eq!(refusal(log.state.decide_unreadable(given, error)), refused);
        log.state.skip_to(given);
    }
    assert_eq!(log.state.encode(), before);
}

#[test]
fn an_unreadable_entry_is_refused_and_counts_as_applied() {
    let mut log = Log::new();
    let error = FormatError::Damaged { what: "entry", at: 0, found: 1, expected: 2 };
    let refused = refusal(log.state.decide_unreadable(LogId::new(3, 1), error));
    assert_eq!(refused, Refusal::Unreadable(error));
    assert_eq!(log.state.last_applied(), Some(LogId::new(3, 1)));
}

#[test]
fn blank_entries_are_passed_over() {
    let mut log = Log::new();
    assert_eq!(log.state.last_applied(), None);
    log.state.skip_to(LogId::new(0, 0));
    assert_eq!(log.state.last_applied(), Some(LogId::new(0, 0)));
    log.state.skip_to(LogId::new(2, 5));
    let decision = log.records([create(0, 1, 1), Record::Noop]);
    assert_eq!(decision.accepted[0].log_id.index, LogIndex(6));
}

#[test]
fn an_entry_without_records_is_accepted() {
    let mut log = Log::new();
    let decision = log.records([]);
    assert_eq!(accepted(&decision), &Outcome { index: LogIndex(1), ..Outcome::default() });
    assert_eq!(log.accept([Record::Noop, expire([])]), []);
}

#[test]
fn limits_out_of_range_make_no_state() {
    let limits = VerdictLimits { queries_max: 0, ..VerdictLimits::default() };
    assert!(matches!(
        VerdictState::new(limits),
        Err(crate::SettingOutOfRange { name: "log.queries_max", .. })
    ));
}
