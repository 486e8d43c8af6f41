//! Three replicas with the real machine on the simulated runtime, with faults; many seeds.
//!
//! `LAMINAR_SEED=7 cargo test --release -p laminar-raft --test it replica_cluster::` repeats one seed;
//! `LAMINAR_SIM_SEEDS=1000` runs more.

use std::time::Duration;

use openraft::AsyncRuntime;
use openraft_rt_sim::SimRuntime;

use crate::support::{Replicas, Workload, simulate, small_config};

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
        match replicas.router.draw(16) {
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
            11 => {
                if replicas.running().contains(&id) {
                    replicas.break_log(id, 1 + replicas.router.draw(4));
                }
            }
            12 => {
                // The power fails in the middle of a write.
                if replicas.running().contains(&id) {
                    replicas.tear_log(id, replicas.router.draw(3000) as usize);
                    workload.write(&replicas, 4).await;
                    replicas.kill(id).await;
                }
            }
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

/// LOG-1: openraft applies what a quorum has on disk; a replica that is not in it waits for its own disk.
#[test]
fn nothing_is_applied_before_it_is_on_this_disk() {
    simulate(10, |seed| async move {
        let mut config = small_config();
        config.raft.snapshot_entries = 10_000;
        let replicas = Replicas::<SimRuntime>::start(3, seed, config, true).await;
        let mut workload = Workload::new();
        replicas.wait_for_leader().await;
        let watched: Vec<_> = replicas.ids.iter().map(|id| replicas.replica(*id).clone()).collect();
        let watch = SimRuntime::spawn(async move {
            for _ in 0..20_000 {
                for replica in &watched {
                    let status = replica.status();
                    assert!(status.applied <= status.durable, "{status:?}");
                }
                SimRuntime::sleep(Duration::from_micros(50)).await;
            }
        });
        workload.write_until_done(&replicas, 100).await;
        watch.await.unwrap();
        replicas.stop().await;
    });
}

/// A follower whose log was cut neither votes nor stands, and is counted again when it has caught up.
#[test]
fn a_cut_replica_is_held_until_it_has_caught_up() {
    let held = std::cell::Cell::new(0);
    simulate(20, |seed| {
        let held = &held;
        async move {
            let (mut replicas, mut workload) = (start(seed).await, Workload::new());
            workload.write_until_done(&replicas, 10).await;
            let leader = replicas.wait_for_leader().await;
            let (cut, other) = (1 + leader % 3, 1 + (leader + 1) % 3);
            replicas.tear_log(cut, 700);
            workload.write(&replicas, 6).await;
            workload.write(&replicas, 6).await;
            replicas.kill(cut).await;
            workload.write_until_done(&replicas, 5).await;
            // It hears nothing at first: it must not stand, however long that takes.
            replicas.router.isolate(cut, &[1, 2, 3]);
            replicas.restart(cut).await;
            let status = replicas.replica(cut).status();
            if !status.catching_up {
                assert!(status.cut.is_none());
                return replicas.stop().await;
            }
            held.set(held.get() + 1);
            SimRuntime::sleep(Duration::from_millis(20)).await;
            let term = replicas.replica(cut).status().term;
            SimRuntime::sleep(Duration::from_millis(550)).await;
            let status = replicas.replica(cut).status();
            assert!(status.catching_up && status.term == term, "{status:?}");
            // Nor does it vote: without the leader there is nobody to be elected.
            replicas.router.heal();
            replicas.router.isolate(leader, &[1, 2, 3]);
            SimRuntime::sleep(Duration::from_millis(50)).await;
            assert_ne!(replicas.leader(), Some(other));
            replicas.router.heal();
            let caught_up = || (!replicas.replica(cut).status().catching_up).then_some(());
            replicas.wait_until("it has caught up", caught_up).await;
            workload.check(&mut replicas).await;
            replicas.stop().await;
        }
    });
    assert!(held.get() > 0, "no replica was ever held");
}

/// When the logs of all replicas were cut there is no leader to catch up with: they go on after a time, and say so.
#[test]
fn replicas_that_were_all_cut_go_on_after_a_time() {
    let gave_up = std::cell::Cell::new(0);
    simulate(20, |seed| {
        let gave_up = &gave_up;
        async move {
            let (mut replicas, mut workload) = (start(seed).await, Workload::new());
            workload.write_until_done(&replicas, 10).await;
            replicas.ids.iter().for_each(|id| replicas.tear_log(*id, 900));
            workload.write(&replicas, 6).await;
            for id in replicas.ids.clone() {
                replicas.kill(id).await;
            }
            for id in replicas.ids.clone() {
                replicas.restart(id).await;
            }
            workload.write_until_done(&replicas, 5).await;
            let all = replicas.ids.iter().filter(|id| replicas.replica(**id).status().gave_up_waiting);
            gave_up.set(gave_up.get() + all.count());
            workload.check(&mut replicas).await;
            replicas.stop().await;
        }
    });
    assert!(gave_up.get() > 0, "no replica ever gave up waiting");
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
