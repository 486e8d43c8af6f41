//! The power fails, or files do, in the middle of building or installing a snapshot: the one before stays whole.

use std::time::Duration;

use openraft::AsyncRuntime;
use openraft_rt_sim::SimRuntime;

use crate::support::{Replicas, Workload, simulate, small_config};

/// A power cut at any file call of a snapshot.
#[test]
fn a_power_cut_while_a_snapshot_is_built_leaves_the_one_before() {
    simulate(40, |seed| async move {
        let mut config = small_config();
        config.raft.snapshot_entries = 10_000;
        let mut replicas = Replicas::<SimRuntime>::start(1, seed, config, true).await;
        let mut workload = Workload::new();
        replicas.wait_for_leader().await;
        workload.write_until_done(&replicas, 20).await;
        replicas.replica(1).snapshot().await.unwrap();
        let built = || replicas.replica(1).status().snapshot;
        let before = replicas.wait_until("the first snapshot is there", built).await;
        workload.write_until_done(&replicas, 20).await;
        replicas.break_rest_after(1, seed);
        replicas.replica(1).snapshot().await.unwrap();
        SimRuntime::sleep(Duration::from_millis(50)).await;
        replicas.kill(1).await;
        replicas.restart(1).await;
        let there = || (replicas.replica(1).status().snapshot >= Some(before)).then_some(());
        replicas.wait_until("a snapshot is there", there).await;
        workload.check(&mut replicas).await;
        replicas.stop().await;
    });
}

/// A replica that lags so far that it needs a snapshot, which the network does not let through yet.
async fn lagging(seed: u64) -> (Replicas<SimRuntime>, Workload, u64) {
    let replicas = Replicas::<SimRuntime>::start(3, seed, small_config(), true).await;
    let mut workload = Workload::new();
    let leader = replicas.wait_for_leader().await;
    workload.write_until_done(&replicas, 30).await;
    let behind = 1 + leader % 3;
    replicas.router.isolate(behind, &[1, 2, 3]);
    workload.write_until_done(&replicas, 100).await;
    let last = replicas.replica(behind).status().last;
    let purged = || (replicas.replica(replicas.leader()?).status().purged > last).then_some(());
    replicas.wait_until("the others purged what it lacks", purged).await;
    (replicas, workload, behind)
}

/// A power cut at any file call of an installation.
#[test]
fn a_power_cut_while_a_snapshot_is_installed_leaves_the_one_before_or_the_new_one() {
    simulate(60, |seed| async move {
        let (mut replicas, mut workload, behind) = lagging(seed).await;
        replicas.break_rest_after(behind, seed * 2);
        replicas.router.heal();
        SimRuntime::sleep(Duration::from_millis(300)).await;
        replicas.kill(behind).await;
        workload.check(&mut replicas).await;
        replicas.stop().await;
    });
}

/// Files fail in the middle of an installation, and work again: the replica opens its state anew and finishes by itself.
#[test]
fn an_installation_that_failed_is_finished_by_itself() {
    let rebuilds = std::cell::Cell::new(0);
    simulate(30, |seed| {
        let rebuilds = &rebuilds;
        async move {
            let (mut replicas, mut workload, behind) = lagging(seed).await;
            replicas.break_rest_after(behind, seed * 3);
            replicas.router.heal();
            SimRuntime::sleep(Duration::from_millis(400)).await;
            replicas.disks[&behind].heal();
            workload.check(&mut replicas).await;
            rebuilds.set(rebuilds.get() + replicas.replica(behind).status().rebuilds);
            replicas.stop().await;
        }
    });
    assert!(rebuilds.get() > 0, "no installation ever failed");
}
