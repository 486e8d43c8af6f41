//! Staged blocks that have expired.

use super::*;

fn log(expired_blocks_max: u32) -> Log {
    let mut log = Log::with(VerdictLimits { expired_blocks_max, ..VerdictLimits::default() });
    log.accept([create(0, 1, 1)]);
    log
}

#[test]
fn a_commit_that_names_an_expired_block_is_refused() {
    let mut log = log(8);
    log.accept([append_block(0, 1, 1, 5)]);
    log.accept([expire([5, 9, 5])]);
    for block in [5, 9] {
        let refused = Refusal::StageExpired { block: BlockId(block) };
        assert_eq!(log.refuse([append(0, 1, 1, 1), append_block(0, 1, 1, block)]), refused);
    }
    log.accept([append_block(0, 1, 1, 7)]);
    assert_eq!(log.state.counts().expired_blocks, 2);
}

#[test]
fn within_an_entry_order_counts() {
    let mut log = log(8);
    assert_eq!(
        log.refuse([expire([5]), append_block(0, 1, 1, 5)]),
        Refusal::StageExpired { block: BlockId(5) }
    );
    log.accept([append_block(0, 1, 1, 5), expire([5])]);
    assert!(log.state.is_expired(BlockId(5)));
}

#[test]
fn beyond_the_limit_the_smallest_ids_are_left_to_a_floor() {
    let mut log = log(2);
    log.accept([expire([10, 20])]);
    for (block, expired) in [(9, false), (10, true), (15, false), (20, true)] {
        assert_eq!(log.state.is_expired(BlockId(block)), expired, "{block}");
    }
    log.accept([expire([30])]);
    for (block, expired) in [(0, true), (9, true), (10, true), (11, false), (20, true), (30, true)] {
        assert_eq!(log.state.is_expired(BlockId(block)), expired, "{block}");
    }
    // Below the floor it is known already, and takes no room.
    log.accept([expire([4])]);
    assert!(!log.state.is_expired(BlockId(19)));
    // Smaller than all others: it becomes the floor at once.
    log.accept([expire([15])]);
    for (block, expired) in [(14, true), (15, true), (16, false)] {
        assert_eq!(log.state.is_expired(BlockId(block)), expired, "{block}");
    }
    assert_eq!(log.state.counts().expired_blocks, 2);
}

#[test]
fn a_refused_entry_takes_back_what_it_expired_and_the_floor() {
    let mut log = log(2);
    log.accept([expire([10, 20])]);
    // `decide` of the log compares the states.
    assert_eq!(
        log.refuse([expire([30, 40, 50]), append_block(0, 1, 1, 40)]),
        Refusal::StageExpired { block: BlockId(40) }
    );
    log.accept([append_block(0, 1, 1, 30)]);
}

#[test]
fn block_0_is_a_block_like_others_until_it_expires() {
    let mut log = log(1);
    log.accept([append_block(0, 1, 1, 0), append_block(0, 1, 1, u128::MAX)]);
    log.accept([expire([0])]);
    assert!(log.state.is_expired(BlockId(0)));
    log.accept([expire([u128::MAX])]);
    assert!(log.state.is_expired(BlockId(0)) && !log.state.is_expired(BlockId(1)));
}

#[test]
fn blocks_are_looked_at_after_epochs_and_batches() {
    let mut log = log(8);
    let named = |owner, number| Entry { batch: batch("q", number), ..entry([append_block(0, owner, 1, 5)]) };
    let first = accepted(&log.decide(named(1, 1))).clone();
    log.accept([expire([5])]);
    assert_eq!(duplicate(log.decide(named(1, 1))), first, "what landed is not refused");
    assert!(matches!(refusal(log.decide(named(1, 0))), Refusal::BatchBackwards { .. }));
    assert!(matches!(refusal(log.decide(named(3, 2))), Refusal::NotOwned { .. }));
    assert!(matches!(refusal(log.decide(named(1, 2))), Refusal::StageExpired { .. }));
    assert_eq!(log.state.last_batch("q"), Some((1, LogIndex(2))));
}

#[test]
fn the_floor_is_known_before_blocks_expire() {
    let mut log = log(2);
    for blocks in [vec![], vec![10], vec![10, 20], vec![5, 30], vec![1, 15, 40, 50]] {
        let ids: Vec<BlockId> = blocks.iter().copied().map(BlockId).collect();
        let floor = log.state.stage_floor_after(&ids);
        log.decide(entry([Record::ExpireStage(ids)]));
        assert_eq!(log.state.stage_floor_after(&[]), floor, "{blocks:?}");
        let is_floor =
            |floor: BlockId| log.state.is_expired(floor) && !log.state.is_expired(BlockId(floor.0 + 1));
        assert!(floor.is_none_or(is_floor), "{blocks:?}");
    }
}
