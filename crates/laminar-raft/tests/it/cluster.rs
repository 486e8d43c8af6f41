//! Three nodes in one process: on the simulated runtime with faults, many seeds; and on tokio, to see that it runs.
//!
//! `LAMINAR_SEED=7 cargo test --release -p laminar-raft --test it -- cluster:: --skip _cluster::` repeats one seed;
//! `LAMINAR_SIM_SEEDS=1000` runs more.

use std::time::Duration;

use laminar_log::Runtime;
use laminar_raft::{OpenraftRuntime, RaftSettings, TokioRuntime};
use openraft::AsyncRuntime;
use openraft_rt_sim::SimRuntime;

use crate::support::{Cluster, simulate};

/// Small numbers, so that snapshots, purges and their installation happen too.
fn settings() -> RaftSettings {
    RaftSettings { snapshot_entries: 30, kept_entries: 5, ..RaftSettings::default() }
}

/// Elect, write, kill the leader, write, restart it: all logs agree.
async fn leader_is_killed<R: AsyncRuntime>(seed: u64, simulated: bool) {
    let mut cluster = Cluster::<R>::start(3, seed, settings(), simulated).await;
    cluster.router.delay(Duration::from_micros(100)..Duration::from_millis(5));
    for _ in 0..2 {
        let leader = cluster.wait_for_leader().await;
        cluster.write_until_done(20).await;
        cluster.kill(leader).await;
        let next = cluster.wait_for_leader().await;
        assert_ne!(next, leader);
        cluster.write_until_done(20).await;
        cluster.restart(leader).await;
        cluster.write_until_done(5).await;
    }
    let kept = cluster.heal_and_check().await;
    assert!(kept.len() >= 90, "{}", kept.len());
    cluster.stop().await;
}

#[test]
fn a_killed_leader_is_replaced_and_comes_back() {
    simulate(40, |seed| leader_is_killed::<SimRuntime>(seed, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_and_comes_back_on_tokio() {
    leader_is_killed::<TokioRuntime>(1, false).await;
}

/// Faults on, and nothing that was acknowledged is lost; faults off, and the cluster heals and serves.
async fn chaos(seed: u64) {
    let mut cluster = Cluster::<SimRuntime>::start(3, seed, settings(), true).await;
    cluster.router.delay(Duration::from_micros(100)..Duration::from_millis(10));
    cluster.wait_for_leader().await;
    for _ in 0..40 {
        let id = 1 + cluster.router.draw(3);
        match cluster.router.draw(12) {
            0 | 1 => {
                if cluster.running().contains(&id) {
                    cluster.kill(id).await;
                }
            }
            2..=4 => {
                if !cluster.running().contains(&id) {
                    cluster.restart(id).await;
                }
            }
            5 => {
                // The power of the whole room.
                for id in cluster.running() {
                    cluster.kill(id).await;
                }
                for id in cluster.ids.clone() {
                    cluster.restart(id).await;
                }
            }
            6 => cluster.router.isolate(id, &[1, 2, 3]),
            7 => cluster.router.block(id, 1 + id % 3),
            8 => cluster.router.lose(10),
            9 => cluster.router.heal(),
            _ => {
                let writes = cluster.router.draw(15);
                for _ in 0..writes {
                    cluster.write().await;
                }
            }
        }
    }
    cluster.heal_and_check().await;
    cluster.stop().await;
}

#[test]
fn nothing_acknowledged_is_lost_in_chaos() {
    simulate(60, chaos);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = || {
        let mut runtime = SimRuntime::with_seed(5);
        runtime.record_trace(true);
        runtime.block_on(chaos(5));
        runtime.take_trace()
    };
    let (first, second) = (trace(), trace());
    let differs = first.iter().zip(&second).position(|(a, b)| a != b);
    assert_eq!(differs.map(|at| (&first[at], &second[at])), None);
    assert_eq!(first.len(), second.len());
}

/// A follower that lags behind the purged part of the log goes on from a snapshot.
#[test]
fn a_lagging_follower_gets_a_snapshot() {
    simulate(5, |seed| async move {
        let mut cluster = Cluster::<SimRuntime>::start(3, seed, settings(), true).await;
        let leader = cluster.wait_for_leader().await;
        cluster.write_until_done(5).await;
        let behind = 1 + leader % 3;
        cluster.router.isolate(behind, &[1, 2, 3]);
        cluster.write_until_done(100).await;
        assert!(cluster.store(leader).state().purged > cluster.store(behind).state().last);
        cluster.heal_and_check().await;
        assert!(cluster.machine(behind).installed() > 0);
        assert!(cluster.store(behind).state().purged.is_some());
        // What it was sent is also there after a power cut.
        cluster.kill(behind).await;
        cluster.heal_and_check().await;
        cluster.stop().await;
    });
}

/// What openraft promises and what it does not (LOG-1): a follower is told to apply what a quorum of others has on disk.
#[test]
fn openraft_applies_entries_that_are_not_on_this_disk_yet() {
    let mut early = 0;
    for seed in 0..5 {
        SimRuntime::with_seed(seed).block_on(async {
            let mut cluster = Cluster::<SimRuntime>::start(3, seed, settings(), true).await;
            cluster.wait_for_leader().await;
            cluster.write_until_done(50).await;
            early += cluster.ids.iter().map(|id| cluster.machine(*id).early()).sum::<u64>();
            cluster.stop().await;
        });
    }
    assert!(early > 0, "then applying need not wait for the disk any more");
}

#[test]
fn the_log_gets_its_runtime_from_openraft() {
    SimRuntime::with_seed(1).block_on(async {
        let runtime = OpenraftRuntime::<SimRuntime>::new();
        runtime.sleep(Duration::from_secs(5)).await;
        assert_eq!(runtime.now(), Duration::from_secs(5));
        let woken = std::sync::Arc::new(std::sync::Mutex::new(false));
        let waker = std::sync::Arc::clone(&woken);
        runtime.spawn(Box::pin(async move { *waker.lock().unwrap() = true }));
        runtime.sleep(Duration::from_millis(1)).await;
        assert!(*woken.lock().unwrap());
    });
}
