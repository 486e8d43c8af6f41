//! Three replicas with the real machine on the simulated runtime, with faults; many seeds.
//!
//! `LAMINAR_SEED=7 cargo test --release -p laminar-raft --test replica_cluster` repeats one seed;
//! `LAMINAR_SIM_SEEDS=1000` runs more.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::time::Duration;

use openraft_rt_sim::SimRuntime;
use support::{Replicas, Workload, simulate, small_config};

async fn start(seed: u64) -> Replicas<SimRuntime> {
    let replicas = Replicas::start(3, seed, small_config(), true).await;
    replicas.router.delay(Duration::from_micros(100)..Duration::from_millis(5));
    replicas.wait_for_leader().await;
    replicas
}

/// Lost proposals and changes of leader leave no gap (LOG-2).
#[test]
fn killed_leaders_leave_no_gap() {
    simulate(20, |seed| async move {
        let (mut replicas, mut workload) = (start(seed).await, Workload::new());
        for _ in 0..2 {
            workload.write_until_done(&replicas, 15).await;
            let leader = replicas.wait_for_leader().await;
            // It takes proposals that nobody else hears of, and dies.
            replicas.router.isolate(leader, &[1, 2, 3]);
            workload.write(&replicas, 6).await;
            replicas.kill(leader).await;
            replicas.router.heal();
            workload.write_until_done(&replicas, 15).await;
            replicas.restart(leader).await;
        }
        workload.check(&mut replicas).await;
        replicas.stop().await;
    });
}

/// Faults on, and nothing that was acknowledged is lost or done twice; faults off, and the group heals and serves.
async fn chaos(seed: u64) {
    let (mut replicas, mut workload) = (start(seed).await, Workload::new());
    for _ in 0..40 {
        let id = 1 + replicas.router.draw(3);
        match replicas.router.draw(15) {
            0 | 1 => {
                if replicas.running().contains(&id) {
                    replicas.kill(id).await;
                }
            }
            2..=4 => {
                if !replicas.running().contains(&id) {
                    replicas.restart(id).await;
                }
            }
            5 => {
                // The power of the whole room.
                for id in replicas.running() {
                    replicas.kill(id).await;
                }
                for id in replicas.ids.clone() {
                    replicas.restart(id).await;
                }
            }
            6 => replicas.router.isolate(id, &[1, 2, 3]),
            7 => replicas.router.block(id, 1 + id % 3),
            8 => replicas.router.lose(10),
            9 => replicas.router.heal(),
            10 => {
                if replicas.running().contains(&id) {
                    drop(replicas.replica(id).snapshot().await);
                }
            }
            11 => replicas.break_log(id, 1 + replicas.router.draw(4)),
            _ => {
                for _ in 0..replicas.router.draw(6) {
                    let count = 1 + replicas.router.draw(6) as usize;
                    workload.write(&replicas, count).await;
                }
            }
        }
    }
    workload.check(&mut replicas).await;
    replicas.stop().await;
}

#[test]
fn nothing_acknowledged_is_lost_or_done_twice_in_chaos() {
    simulate(40, chaos);
}

/// A replica that lags behind the purged part of the log goes on from a snapshot, also after a power cut.
#[test]
fn a_lagging_replica_gets_a_snapshot() {
    simulate(8, |seed| async move {
        let (mut replicas, mut workload) = (start(seed).await, Workload::new());
        workload.write_until_done(&replicas, 5).await;
        let leader = replicas.wait_for_leader().await;
        let behind = 1 + leader % 3;
        replicas.router.isolate(behind, &[1, 2, 3]);
        workload.write_until_done(&replicas, 120).await;
        let lagging = replicas.replica(behind).status().last;
        replicas
            .wait_until("the others purged what it lacks", || {
                let purged = replicas.leader().map(|leader| replicas.replica(leader).status().purged);
                (purged? > lagging).then_some(())
            })
            .await;
        workload.check(&mut replicas).await;
        assert!(replicas.replica(behind).status().snapshot > lagging);
        replicas.kill(behind).await;
        workload.check(&mut replicas).await;
        replicas.stop().await;
    });
}
