//! Random appends, truncations, purges, votes, faults and power cuts against a model of the Raft log (LOG-3, LOG-6).

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::store_model::{Step, run};
use crate::support::files::faults;

fn step() -> impl Strategy<Value = Step> {
    let lengths = vec(prop_oneof![Just(40_u16), 0..60_u16, 0..5000_u16], 1..6);
    prop_oneof![
        8 => (lengths, 0..3_u8).prop_map(|(lengths, later)| Step::Append(lengths, later)),
        6 => Just(Step::Commit),
        3 => any::<u8>().prop_map(Step::Truncate),
        2 => any::<u8>().prop_map(Step::Purge),
        1 => any::<u8>().prop_map(Step::PurgeBeyond),
        2 => any::<bool>().prop_map(Step::Vote),
        3 => any::<u8>().prop_map(Step::Committed),
        1 => Just(Step::FlushCommitted),
        2 => Just(Step::Idle),
        1 => Just(Step::Close),
        3 => any::<u64>().prop_map(Step::PowerCut),
        2 => (0..24_u8, faults()).prop_map(|(call, fault)| Step::Fail(call, fault)),
    ]
}

/// The cases are short and fast: four times as many as usual, also in a soak.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/store_prop.regressions");
    let failure_persistence = Some(Box::new(FileFailurePersistence::Direct(path)) as Box<_>);
    ProptestConfig { cases: usual.cases * 4, failure_persistence, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_log_holds_what_was_acknowledged(steps in vec(step(), 1..60)) {
        run(&steps);
    }
}
