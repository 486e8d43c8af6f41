//! Random appends, truncations, faults and power cuts against a model of what must be there (LOG-3, LOG-6).

mod model;

use laminar_aof::Durability;
use model::{FaultKind, Step, run};
use proptest::collection::vec;
use proptest::prelude::*;

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

/// The cases are short and fast: eight times as many as usual, also in a soak.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases * 8, ..usual }
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
}
