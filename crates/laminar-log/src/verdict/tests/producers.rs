//! TXN-2: a producer's sequence is applied once.

use super::*;
use crate::verdict::producers::{ProducerVerdict, Remembered};

/// A log with partition 0 of node 1 at epoch 1, and producer 2.
fn minted() -> Log {
    minted_with(VerdictLimits::default())
}

fn minted_with(limits: VerdictLimits) -> Log {
    let mut log = Log::with(limits);
    log.accept([create(0, 1, 1)]);
    let decision = log.records([Record::MintProducer]);
    assert_eq!(accepted(&decision).minted, Some(ProducerId(2)));
    log
}

fn by(given: Option<Producer>) -> Entry {
    Entry { producer: given, ..entry([append(0, 1, 1, 1)]) }
}

#[test]
fn an_exact_duplicate_hears_what_became_of_it_before_its_epoch_is_looked_at() {
    let mut log = minted();
    let first = accepted(&log.decide(by(producer(2, 1, 11)))).clone();
    assert_eq!(first.placed.len(), 1);
    assert_eq!(duplicate(log.decide(by(producer(2, 1, 11)))), first);
    log.accept([fence(0, 2, 2)]);
    assert_eq!(duplicate(log.decide(by(producer(2, 1, 11)))), first);
    log.accept([destroy(0, 2)]);
    assert_eq!(duplicate(log.decide(by(producer(2, 1, 11)))), first);
}

#[test]
fn sequences_follow_each_other() {
    let mut log = minted();
    let gap = |given, last| Refusal::SequenceGap { producer: ProducerId(2), given, last };
    for given in [0, 2, u64::MAX] {
        assert_eq!(refusal(log.decide(by(producer(2, given, 1)))), gap(given, 0));
    }
    for sequence in 1..=3 {
        accepted(&log.decide(by(producer(2, sequence, sequence))));
    }
    for given in [0, 5] {
        assert_eq!(refusal(log.decide(by(producer(2, given, 1)))), gap(given, 3));
    }
    assert_eq!(log.state.last_sequence(ProducerId(2)), Some(3));
}

#[test]
fn a_sequence_with_other_rows_or_out_of_the_window_is_refused() {
    let mut log = minted_with(VerdictLimits { producer_window: 3, ..VerdictLimits::default() });
    for sequence in 1..=5 {
        accepted(&log.decide(by(producer(2, sequence, 10 + sequence))));
    }
    let reused = |given| Refusal::SequenceReused { producer: ProducerId(2), given };
    for sequence in [1, 2] {
        assert_eq!(refusal(log.decide(by(producer(2, sequence, 10 + sequence)))), reused(sequence));
    }
    for sequence in [3, 4, 5] {
        duplicate(log.decide(by(producer(2, sequence, 10 + sequence))));
        assert_eq!(refusal(log.decide(by(producer(2, sequence, 99)))), reused(sequence));
    }
}

#[test]
fn a_refused_entry_does_not_take_the_sequence() {
    let mut log = minted();
    log.accept([fence(0, 1, 2)]);
    assert!(matches!(refusal(log.decide(by(producer(2, 1, 1)))), Refusal::StaleEpoch { .. }));
    let entry = Entry { producer: producer(2, 1, 1), ..entry([append(0, 1, 2, 1)]) };
    accepted(&log.decide(entry));
}

#[test]
fn the_last_sequence_there_is_can_be_used_and_nothing_follows_it() {
    let mut log = minted();
    let known = ProducerVerdict {
        last_sequence: u64::MAX - 1,
        last_used: LogIndex(2),
        window: (0..8).map(|_| remembered()).collect(),
    };
    log.state.producers.insert(ProducerId(2), known);
    accepted(&log.decide(by(producer(2, u64::MAX, 1))));
    duplicate(log.decide(by(producer(2, u64::MAX, 1))));
    let gap = Refusal::SequenceGap { producer: ProducerId(2), given: 0, last: u64::MAX };
    assert_eq!(refusal(log.decide(by(producer(2, 0, 1)))), gap);
}

fn remembered() -> Remembered {
    Remembered { checksum: 0, outcome: Outcome::default() }
}

#[test]
fn unknown_producers_are_refused_and_hear_which_were_forgotten() {
    let mut log = Log::with(VerdictLimits { producers_max: 2, ..VerdictLimits::default() });
    let unknown = |id, forgotten| Refusal::UnknownProducer {
        producer: ProducerId(id),
        forgotten: ProducerId(forgotten),
    };
    assert_eq!(refusal(log.decide(by(producer(1, 1, 1)))), unknown(1, 0));
    log.accept([create(0, 1, 1), Record::MintProducer]); // 2
    log.accept([Record::MintProducer]); // 3
    accepted(&log.decide(by(producer(2, 1, 1)))); // 4: 3 is now the one that was used longest ago
    log.accept([Record::MintProducer]); // 5
    assert_eq!(refusal(log.decide(by(producer(3, 1, 1)))), unknown(3, 3));
    assert_eq!(log.state.last_sequence(ProducerId(2)), Some(1));
    log.accept([Record::MintProducer]); // 7: 2 goes, and the mark stays at the highest
    assert_eq!(refusal(log.decide(by(producer(2, 2, 1)))), unknown(2, 3));
    assert_eq!(refusal(log.decide(by(producer(99, 1, 1)))), unknown(99, 3));
}

#[test]
fn duplicates_and_refusals_do_not_count_as_use() {
    let mut log = Log::with(VerdictLimits { producers_max: 2, ..VerdictLimits::default() });
    log.accept([create(0, 1, 1), Record::MintProducer]); // 1
    accepted(&log.decide(by(producer(1, 1, 1)))); // 2
    log.accept([Record::MintProducer]); // 3
    duplicate(log.decide(by(producer(1, 1, 1))));
    refusal(log.decide(by(producer(1, 9, 1))));
    log.accept([Record::MintProducer]); // 6
    assert_eq!(log.state.last_sequence(ProducerId(1)), None);
    assert_eq!(log.state.last_sequence(ProducerId(3)), Some(0));
}

#[test]
fn an_entry_mints_one_producer_and_its_own_producer_may_go_for_it() {
    let mut log = Log::with(VerdictLimits { producers_max: 1, ..VerdictLimits::default() });
    let decision = log.records([create(0, 1, 1), Record::MintProducer, Record::MintProducer]);
    assert_eq!(accepted(&decision).minted, Some(ProducerId(1)));
    assert_eq!(log.state.counts().producers, 1);
    // Both were used by entry 2: the smaller id goes.
    let entry = Entry { producer: producer(1, 1, 1), ..entry([Record::MintProducer]) };
    assert_eq!(accepted(&log.decide(entry)).minted, Some(ProducerId(2)));
    assert_eq!(log.state.last_sequence(ProducerId(1)), None);
    assert_eq!(log.state.last_sequence(ProducerId(2)), Some(0));
}

#[test]
fn a_repeated_mint_hears_the_same_producer() {
    let mut log = minted();
    let mint = || Entry { producer: producer(2, 1, 1), ..entry([Record::MintProducer]) };
    assert_eq!(accepted(&log.decide(mint())).minted, Some(ProducerId(3)));
    assert_eq!(duplicate(log.decide(mint())).minted, Some(ProducerId(3)));
    assert_eq!(log.state.counts().producers, 2);
}
