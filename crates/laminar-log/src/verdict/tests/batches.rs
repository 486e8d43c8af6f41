//! TXN-1: a batch of a query is applied once or not at all, on all its partitions.

use super::*;

fn of(given: Option<BatchId>) -> Entry {
    Entry { batch: given, ..entry([append(0, 1, 1, 1), append(1, 1, 1, 2)]) }
}

fn log() -> Log {
    log_with(VerdictLimits::default())
}

fn log_with(limits: VerdictLimits) -> Log {
    let mut log = Log::with(limits);
    log.accept([create(0, 1, 1), create(1, 1, 1)]);
    log
}

#[test]
fn the_last_batch_is_answered_as_it_was_and_one_below_is_refused() {
    let mut log = log();
    let first = accepted(&log.decide(of(batch("q", 7)))).clone();
    assert_eq!(first.placed.len(), 2);
    assert_eq!(duplicate(log.decide(of(batch("q", 7)))), first);
    for number in [0, 6] {
        let refused = Refusal::BatchBackwards { batch: batch("q", number).unwrap(), last: 7 };
        assert_eq!(refusal(log.decide(of(batch("q", number)))), refused);
    }
    accepted(&log.decide(of(batch("other", 0))));
    accepted(&log.decide(of(batch("q", 9))));
    assert!(matches!(refusal(log.decide(of(batch("q", 7)))), Refusal::BatchBackwards { last: 9, .. }));
    assert_eq!(log.state.last_batch("q"), Some((9, LogIndex(7))));
    assert_eq!(log.state.last_batch("none"), None);
    assert_eq!(log.partition(1).next_offset, 6);
}

#[test]
fn epochs_and_owners_come_first_and_say_whether_the_batch_landed() {
    let mut log = log();
    accepted(&log.decide(of(batch("q", 7))));
    let wrong_owner = |number| Entry { batch: batch("q", number), ..entry([append(0, 3, 1, 1)]) };
    for (number, landed) in [(6, None), (7, Some(true)), (8, Some(false))] {
        let Refusal::NotOwned { batch_committed, .. } = refusal(log.decide(wrong_owner(number))) else {
            panic!("node 3 owns nothing");
        };
        assert_eq!(batch_committed, landed, "{number}");
    }
    log.accept([fence(0, 2, 2)]);
    for (number, landed) in [(6, None), (7, Some(true)), (8, Some(false))] {
        assert_eq!(refusal(log.decide(of(batch("q", number)))), stale(2, landed), "{number}");
    }
    assert_eq!(refusal(log.decide(of(batch("new", 1)))), stale(2, Some(false)));
}

#[test]
fn a_batch_that_is_refused_leaves_nothing_on_any_of_its_partitions() {
    let mut log = log();
    log.accept([fence(1, 2, 2)]);
    assert!(matches!(refusal(log.decide(of(batch("q", 7)))), Refusal::StaleEpoch { .. }));
    assert_eq!(log.partition(0).next_offset, 0);
    assert_eq!(log.state.last_batch("q"), None);
}

#[test]
fn new_queries_beyond_the_limit_are_refused_and_known_ones_go_on() {
    let mut log = log_with(VerdictLimits { queries_max: 2, ..VerdictLimits::default() });
    accepted(&log.decide(of(batch("a", 1))));
    accepted(&log.decide(of(batch("b", 1))));
    let refused = Refusal::TooManyQueries { query: "c".to_owned(), limit: 2 };
    assert_eq!(refusal(log.decide(of(batch("c", 1)))), refused);
    accepted(&log.decide(of(batch("a", 2))));
    duplicate(log.decide(of(batch("b", 1))));
    assert_eq!(log.state.counts().queries, 2);
}

/// TXN-1: a query goes only with its partitions, and what comes late finds their tombstones.
#[test]
fn queries_are_forgotten_once_their_partitions_are_destroyed() {
    let mut log = log_with(VerdictLimits { queries_max: 3, ..VerdictLimits::default() });
    let forget = |begin: &str| entry([Record::ForgetQueries(begin.to_owned())]);
    for query in ["1/a", "1/b", "10/a"] {
        accepted(&log.decide(of(batch(query, 7))));
    }
    // Their partitions are there: a batch would be applied twice.
    accepted(&log.decide(forget("1/")));
    assert_eq!(log.state.counts().queries, 3);
    log.accept([destroy(0, 1), destroy(1, 1)]);
    accepted(&log.decide(forget("1/")));
    assert_eq!(log.state.first_query_from(""), Some("10/a"));
    assert_eq!((log.state.last_batch("1/a"), log.state.first_query_from("100")), (None, None));
    for number in [6, 7, 8] {
        let late = refusal(log.decide(of(batch("1/a", number))));
        assert!(matches!(late, Refusal::Destroyed { .. }), "{late}");
    }
    assert_eq!(log.state.counts().queries, 1);
    log.accept([create(2, 1, 1)]);
    let next = |query| Entry { batch: batch(query, 1), ..entry([append(2, 1, 1, 1)]) };
    accepted(&log.decide(next("2/a")));
    accepted(&log.decide(next("2/b")));
    assert!(matches!(refusal(log.decide(next("2/c"))), Refusal::TooManyQueries { limit: 3, .. }));
}

#[test]
fn an_entry_that_is_refused_forgets_nothing() {
    let mut log = log();
    accepted(&log.decide(of(batch("1/a", 7))));
    log.accept([destroy(0, 1), destroy(1, 1)]);
    let refused = log.refuse([Record::ForgetQueries("1/".to_owned()), append(0, 1, 1, 1)]);
    assert!(matches!(refused, Refusal::Destroyed { .. }));
    assert_eq!(log.state.counts().queries, 1);
}

#[test]
fn both_producer_and_batch_apply() {
    let mut log = log();
    log.accept([Record::MintProducer]); // 2
    let both = |sequence, number| Entry { producer: producer(2, sequence, 5), ..of(batch("q", number)) };
    let first = accepted(&log.decide(both(1, 1))).clone();
    assert_eq!(duplicate(log.decide(both(1, 1))), first);
    // The producer comes first.
    assert!(matches!(refusal(log.decide(both(3, 1))), Refusal::SequenceGap { .. }));
    assert!(matches!(refusal(log.decide(both(2, 0))), Refusal::BatchBackwards { .. }));
    accepted(&log.decide(both(2, 2)));
}

#[test]
fn a_batch_that_landed_before_takes_the_sequence_that_it_comes_under_again() {
    let mut log = log();
    let first = accepted(&log.decide(of(batch("q", 1)))).clone();
    log.accept([Record::MintProducer]); // 3: a new run of the same query
    let again = || Entry { producer: producer(3, 1, 5), ..of(batch("q", 1)) };
    assert_eq!(duplicate(log.decide(again())), first);
    assert_eq!(duplicate(log.decide(again())), first);
    assert_eq!(log.state.last_sequence(ProducerId(3)), Some(1));
    accepted(&log.decide(Entry { producer: producer(3, 2, 5), ..of(batch("q", 2)) }));
    assert_eq!(log.partition(0).next_offset, 2);
}

#[test]
fn limits_are_not_looked_at_for_a_batch_that_landed() {
    let mut log = log_with(VerdictLimits { partitions_max: 2, skips_max: 1, ..VerdictLimits::default() });
    accepted(&log.decide(of(batch("q", 1))));
    for record in [create(9, 1, 1), skip(0, 1, 99)] {
        duplicate(log.decide(Entry { batch: batch("q", 1), ..entry([record]) }));
    }
    assert_eq!(log.state.counts().partitions, 2);
}

#[test]
fn names_that_no_entry_can_carry_are_refused() {
    let mut log = log();
    for length in [0, 278] {
        let refused = refusal(log.decide(of(batch(&"q".repeat(length), 1))));
        assert!(
            matches!(refused, Refusal::Unreadable(crate::format::FormatError::Length { found, .. }) if found == length)
        );
    }
    for length in [1, 277] {
        accepted(&log.decide(of(batch(&"q".repeat(length), 1))));
    }
}
