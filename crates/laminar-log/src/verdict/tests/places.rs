//! Indices, offsets and times; trims and skips.

use super::*;
use crate::verdict::partitions::Partitions;

#[test]
fn every_record_that_takes_effect_has_the_next_place_log_2() {
    let mut log = Log::new();
    let taken = log.accept([
        create(0, 1, 1),
        append(0, 1, 1, 3),
        append(0, 1, 1, 0),
        fence(0, 1, 2),
        append(0, 1, 2, 4),
        trim(0, 2, TrimTo::Offset(5)),
        skip(0, 2, 2),
        destroy(0, 2),
    ]);
    let places: Vec<_> = taken.iter().map(|record| (record.index.0, record.first_offset)).collect();
    assert_eq!(places, [(1, 0), (2, 0), (3, 3), (4, 3), (5, 3), (6, 7), (7, 7), (8, 7)]);
    assert!(taken.iter().all(|record| record.log_id == LogId::new(1, 1)));
}

#[test]
fn the_outcome_says_where_the_appends_of_an_entry_are_in_its_order() {
    let mut log = Log::new();
    log.accept([create(7, 1, 1), create(3, 1, 1)]);
    let decision = log.records([append(7, 1, 1, 2), fence(3, 1, 2), append(3, 1, 2, 5), append(7, 1, 1, 1)]);
    let placed = |partition, index, first_offset, rows| Placed {
        partition: PartitionId(partition),
        index: PartitionLogIndex(index),
        first_offset,
        rows,
    };
    let expected = Outcome {
        index: LogIndex(2),
        minted: None,
        placed: vec![placed(7, 2, 0, 2), placed(3, 3, 0, 5), placed(7, 3, 2, 1)],
    };
    assert_eq!(accepted(&decision), &expected);
}

#[test]
fn times_never_go_back_within_a_partition() {
    let mut log = Log::new();
    let mut at = |time_ms, record| {
        let decision = log.decide(Entry { time_ms, ..entry([record]) });
        decision.accepted[0].time_ms
    };
    assert_eq!(at(50, create(0, 1, 1)), 50);
    assert_eq!(at(40, append(0, 1, 1, 1)), 50);
    assert_eq!(at(70, append(0, 1, 1, 1)), 70);
    assert_eq!(at(60, fence(0, 2, 2)), 70);
    assert_eq!(at(40, create(1, 1, 1)), 40, "partitions have times of their own");
    assert_eq!(at(u64::MAX, append(0, 2, 2, 1)), u64::MAX);
    let partition = log.partition(0);
    assert_eq!((partition.since_ms, partition.last_time_ms), (70, u64::MAX));
}

#[test]
fn trims_are_clamped_and_never_go_back() {
    let mut log = Log::new();
    log.accept([create(0, 1, 1), append(0, 1, 1, 10)]);
    for (to, handed_on) in [
        (TrimTo::Offset(0), None),
        (TrimTo::Offset(4), Some(4)),
        (TrimTo::Offset(4), None),
        (TrimTo::Offset(3), None),
        (TrimTo::End, Some(10)),
        (TrimTo::End, None),
        (TrimTo::Offset(u64::MAX), None),
    ] {
        let taken = log.accept([trim(0, 1, to)]);
        let changes: Vec<_> = taken.iter().map(|record| record.record.change.clone()).collect();
        let expected: Vec<_> = handed_on.iter().map(|offset| Change::Trim(TrimTo::Offset(*offset))).collect();
        assert_eq!(changes, expected, "{to:?}");
    }
    let taken = log.accept([append(0, 1, 1, 2), trim(0, 1, TrimTo::Offset(99)), append(0, 1, 1, 1)]);
    assert_eq!(taken[1].record.change, Change::Trim(TrimTo::Offset(12)));
    assert_eq!((log.partition(0).start_offset, log.partition(0).next_offset), (12, 13));
}

#[test]
fn skips_name_a_record_that_is_there_and_are_limited() {
    let mut log = Log::with(VerdictLimits { skips_max: 2, ..VerdictLimits::default() });
    log.accept([create(0, 1, 1), append(0, 1, 1, 1)]);
    for index in [0, 3, u64::MAX] {
        let (partition, index) = (PartitionId(0), PartitionLogIndex(index));
        let refused = Refusal::NothingToSkip { partition, index, last: PartitionLogIndex(2) };
        assert_eq!(log.refuse([skip(0, 1, index.0)]), refused);
    }
    assert_eq!(log.accept([skip(0, 1, 2)]).len(), 1);
    assert_eq!(log.accept([skip(0, 1, 2)]), [], "skipping twice is ignored");
    log.accept([skip(0, 1, 3)]);
    assert_eq!(log.refuse([skip(0, 1, 1)]), Refusal::TooManySkips { partition: PartitionId(0), limit: 2 });
    assert_eq!(log.accept([skip(0, 1, 3)]), [], "what is skipped stays ignored at the limit");
    let skipped: Vec<_> = log.partition(0).skipped.iter().map(|index| index.0).collect();
    assert_eq!(skipped, [2, 3]);
}

/// A partition whose offsets and places are nearly used up, which no test could append its way to.
fn nearly_full(highest: u64, next_offset: u64) -> Log {
    let mut log = Log::new();
    log.decide(Entry { batch: batch("q", 1), ..entry([create(0, 1, 1)]) });
    let mut partitions = Partitions::default();
    let partition =
        PartitionVerdict { highest: PartitionLogIndex(highest), next_offset, ..log.partition(0).clone() };
    assert!(partitions.push(PartitionId(0), partition));
    log.state.partitions = partitions;
    log
}

#[test]
fn offsets_and_places_that_are_used_up_are_refused_and_never_wrap() {
    let exhausted = Refusal::OffsetsExhausted { partition: PartitionId(0) };
    let mut log = nearly_full(1, u64::MAX - 5);
    assert_eq!(log.refuse([append(0, 1, 1, 6)]), exhausted);
    assert_eq!(log.refuse([append(0, 1, 1, 3), append(0, 1, 1, 3)]), exhausted);
    log.accept([append(0, 1, 1, 5)]);
    assert_eq!(log.refuse([append(0, 1, 1, u32::MAX)]), exhausted);
    log.accept([append(0, 1, 1, 0), trim(0, 1, TrimTo::End)]);

    let mut log = nearly_full(u64::MAX - 1, 0);
    log.accept([append(0, 1, 1, 1)]);
    for record in [append(0, 1, 1, 1), fence(0, 1, 2), trim(0, 1, TrimTo::End), skip(0, 1, 1), destroy(0, 1)]
    {
        assert_eq!(log.refuse([record]), exhausted);
    }
}

#[test]
fn a_batch_that_landed_is_not_refused_because_it_used_up_the_offsets_txn_1() {
    let mut log = nearly_full(1, u64::MAX - 5);
    let last_rows = Entry { batch: batch("q", 2), ..entry([append(0, 1, 1, 5)]) };
    let outcome = accepted(&log.decide(last_rows.clone())).clone();
    assert_eq!(duplicate(log.decide(last_rows)), outcome);
}

#[test]
fn machines_of_the_embedder_keep_the_number_that_an_entry_can_carry() {
    let mut log = Log::new();
    for (id, given, kept) in [(0, 128, 128), (1, 255, 255), (2, 3, 128)] {
        log.accept([record(id, 1, 1, Change::Create(MachineKind::Custom(given)))]);
        assert_eq!(log.partition(id).machine, MachineKind::Custom(kept));
    }
}
