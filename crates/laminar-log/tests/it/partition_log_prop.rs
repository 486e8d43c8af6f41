//! Random appends, drops, faults and power cuts against a model of what must be there (LOG-2, LOG-3, LOG-4, LOG-6).

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::partition_log_model::{Step, run};
use crate::support::files::faults;

fn step() -> impl Strategy<Value = Step> {
    let lengths = vec(prop_oneof![Just((0, 0)), (1..4_u8, Just(40_u16)), (0..9_u8, 1..3000_u16)], 1..30);
    prop_oneof![
        9 => lengths.prop_map(Step::Append),
        5 => Just(Step::Commit),
        2 => Just(Step::Idle),
        2 => Just(Step::Sync),
        2 => any::<u8>().prop_map(Step::Trim),
        1 => any::<u8>().prop_map(Step::Compact),
        2 => any::<u8>().prop_map(Step::Cut),
        1 => any::<u8>().prop_map(Step::Pin),
        1 => Just(Step::Unpin),
        1 => (0..20_u8).prop_map(Step::Reset),
        1 => Just(Step::Reopen),
        1 => Just(Step::Destroy),
        3 => any::<u64>().prop_map(Step::PowerCut),
        2 => (0..24_u8, faults()).prop_map(|(call, fault)| Step::Fail(call, fault)),
    ]
}

fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/partition_log_prop.regressions");
    let failure_persistence = Some(Box::new(FileFailurePersistence::Direct(path)) as Box<_>);
    ProptestConfig { cases: usual.cases * 4, failure_persistence, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_log_holds_what_was_synced_and_nothing_that_never_was(steps in vec(step(), 1..50)) {
        run(&steps);
    }
}
