//! Random appends, truncations, faults and power cuts against a model of what must be there (LOG-3, LOG-6).

use laminar_aof::Durability;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::model::{FaultKind, Step, run, run_many};

fn step() -> impl Strategy<Value = Step> {
    let lengths = vec(prop_oneof![Just(40_u16), 0..60_u16, 0..5000_u16], 1..6);
    let fault =
        prop_oneof![Just(FaultKind::Error), Just(FaultKind::Full), (0..6000_u16).prop_map(FaultKind::Tear)];
    prop_oneof![
        8 => lengths.prop_map(Step::Append),
        5 => Just(Step::Commit),
        2 => Just(Step::Idle),
        2 => Just(Step::Sync),
        2 => any::<u8>().prop_map(Step::Back),
        1 => any::<u8>().prop_map(Step::Front),
        1 => any::<u8>().prop_map(Step::Reset),
        1 => Just(Step::Close),
        3 => any::<u64>().prop_map(Step::PowerCut),
        2 => (0..24_u8, fault).prop_map(|(call, fault)| Step::Fail(call, fault)),
    ]
}

/// A mark that was written and never synced must not count as synced with the next sync that finds no record.
#[test]
fn a_mark_on_its_way_to_the_disk_is_not_there_yet() {
    use Step::{Append, Commit, Idle, PowerCut, Reset, Sync};
    let steps = [
        Reset(1),
        Commit,
        Idle,
        Sync,
        Commit,
        Append(vec![3881]),
        Commit,
        Append(vec![40]),
        Commit,
        PowerCut(5_861_202_528_069_403_790),
    ];
    run(Durability::Background, &steps);
}

/// The cases are short and fast: eight times as many as usual, also in a soak.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/prop_log.regressions");
    let failure_persistence = Some(Box::new(FileFailurePersistence::Direct(path)) as Box<_>);
    ProptestConfig { cases: usual.cases * 8, failure_persistence, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn synced_log_holds_what_was_acknowledged(steps in vec(step(), 1..60)) {
        run(Durability::Synced, &steps);
    }

    #[test]
    fn background_log_holds_what_was_acknowledged(steps in vec(step(), 1..60)) {
        run(Durability::Background, &steps);
    }

    #[test]
    fn background_logs_synced_together_hold_what_was_acknowledged(
        logs in 3..=4_usize,
        steps in vec((any::<u8>(), step()), 1..80),
    ) {
        run_many(logs, &steps);
    }
}
