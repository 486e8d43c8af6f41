//! A condition on the end of a partition: the whole entry stands or falls with it.

use super::*;

fn expect_end(id: u32, owner: u64, epoch: u64, end: u64) -> Record {
    record(id, owner, epoch, Change::ExpectEnd(end))
}

/// Partition 0 ends at 5, partition 1 at 0.
fn log() -> Log {
    let mut log = Log::new();
    log.accept([create(0, 1, 1), create(1, 1, 1), append(0, 1, 1, 5)]);
    log
}

fn moved(expected: u64, end: u64) -> Refusal {
    Refusal::EndMoved { partition: PartitionId(0), expected, end }
}

#[test]
fn an_end_that_is_as_expected_lets_the_entry_pass_and_takes_no_place() {
    let mut log = log();
    let before = log.partition(0).highest;
    let taken = log.accept([expect_end(0, 1, 1, 5), expect_end(1, 1, 1, 0), append(0, 1, 1, 2)]);
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].index, taken[0].first_offset), (before.next(), 5));
    let decision = log.records([expect_end(0, 1, 1, 7)]);
    assert_eq!(accepted(&decision).placed, []);
    assert_eq!(decision.accepted, []);
}

#[test]
fn an_end_that_has_moved_refuses_the_whole_entry() {
    let mut log = log();
    for expected in [0, 4, 6, u64::MAX] {
        let refused = log.refuse([append(1, 1, 1, 3), expect_end(0, 1, 1, expected), append(0, 1, 1, 1)]);
        assert_eq!(refused, moved(expected, 5));
    }
    assert_eq!((log.partition(0).next_offset, log.partition(1).next_offset), (5, 0));
}

#[test]
fn the_end_is_the_one_that_the_records_before_leave() {
    let mut log = log();
    log.accept([append(0, 1, 1, 1), expect_end(0, 1, 1, 6), append(0, 1, 1, 1), expect_end(0, 1, 1, 7)]);
    log.accept([trim(0, 1, TrimTo::End), expect_end(0, 1, 1, 7)]);
    assert_eq!(log.refuse([append(0, 1, 1, 1), expect_end(0, 1, 1, 7)]), moved(7, 8));
}

#[test]
fn epoch_and_owner_come_before_the_end() {
    let mut log = log();
    let refused = log.refuse([expect_end(0, 3, 1, 99)]);
    assert!(matches!(refused, Refusal::NotOwned { given: NodeId(3), owner: NodeId(1), .. }), "{refused}");
    log.accept([fence(0, 2, 2)]);
    for end in [5, 99] {
        assert_eq!(log.refuse([expect_end(0, 1, 1, end)]), stale(2, Some(false)));
    }
    assert!(matches!(log.refuse([expect_end(7, 1, 1, 0)]), Refusal::UnknownPartition { .. }));
    log.accept([destroy(0, 2)]);
    assert!(matches!(log.refuse([expect_end(0, 2, 2, 5)]), Refusal::Destroyed { .. }));
}

#[test]
fn what_landed_before_is_recognised_before_the_end_is_looked_at() {
    let mut log = log();
    let once =
        |number| Entry { batch: batch("q", number), ..entry([expect_end(0, 1, 1, 5), append(0, 1, 1, 1)]) };
    let first = accepted(&log.decide(once(7))).clone();
    assert_eq!(duplicate(log.decide(once(7))), first);
    assert!(matches!(refusal(log.decide(once(6))), Refusal::BatchBackwards { .. }));
    assert_eq!(refusal(log.decide(once(8))), moved(5, 6));
    assert_eq!(log.state.last_batch("q").unwrap().0, 7, "what was refused is not remembered");

    log.accept([Record::MintProducer]);
    let id = log.state.last_applied().unwrap().index.0;
    let sequence = |sequence, end| Entry {
        producer: producer(id, sequence, 9),
        ..entry([expect_end(0, 1, 1, end), append(0, 1, 1, 1)])
    };
    let first = accepted(&log.decide(sequence(1, 6))).clone();
    assert_eq!(duplicate(log.decide(sequence(1, 6))), first);
    assert_eq!(refusal(log.decide(sequence(2, 6))), moved(6, 7));
    accepted(&log.decide(sequence(2, 7)));
}
