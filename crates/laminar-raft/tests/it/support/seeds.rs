//! Runs simulations, seed by seed.

use openraft::AsyncRuntime;
use openraft_rt_sim::SimRuntime;

fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("LAMINAR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LAMINAR_SIM_SEEDS").unwrap_or(count),
    }
}

/// Runs a simulation for each seed, and says which one failed. `LAMINAR_SEED=7` repeats one; `LAMINAR_SIM_SEEDS=1000`
/// runs more.
pub(crate) fn simulate<F: Future<Output = ()>>(count: u64, run: impl Fn(u64) -> F) {
    for seed in seeds(count) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            SimRuntime::with_seed(seed).block_on(run(seed));
        }));
        assert!(outcome.is_ok(), "seed {seed} failed; repeat it with LAMINAR_SEED={seed}");
    }
}
