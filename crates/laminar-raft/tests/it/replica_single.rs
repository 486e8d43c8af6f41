//! One replica alone: it appends, restarts, and mends itself when its storage fails.

use std::time::Duration;

use futures_util::future::join_all;
use laminar_core::ids::PartitionId;
use laminar_log::dispatcher::DispatcherConfig;
use laminar_log::entry::Entry;
use laminar_log::verdict::Verdict;
use laminar_raft::{DataReplica, NotServing, ProposeError, ReplicaPhase};
use openraft::AsyncRuntime;
use openraft_rt_sim::SimRuntime;

use crate::support::{Replicas, Workload, plain, simulate, small_config};

async fn start(seed: u64) -> Replicas<SimRuntime> {
    let replicas = Replicas::start(1, seed, small_config(), true).await;
    replicas.wait_for_leader().await;
    replicas
}

async fn rows(replica: &DataReplica<SimRuntime>, partition: u32) -> u64 {
    replica.machine().status(PartitionId(partition)).map_or(0, |status| status.next_offset)
}

#[test]
fn what_was_appended_is_there_after_a_restart_and_after_a_power_cut() {
    simulate(10, |seed| async move {
        let (mut replicas, mut workload) = (start(seed).await, Workload::new());
        workload.write_until_done(&replicas, 60).await;
        replicas.stop_one(1).await;
        replicas.restart(1).await;
        let early = replicas.replica(1).serving_machine();
        assert!(matches!(early, Err(NotServing::Recovering)), "nothing is served before recovery");
        replicas.replica(1).wait_recovered(Duration::from_secs(5)).await.unwrap();
        assert!(replicas.replica(1).status().recovered);
        assert!(replicas.replica(1).serving_machine().is_ok());
        workload.check(&mut replicas).await;
        replicas.kill(1).await;
        workload.check(&mut replicas).await;
        let descriptor = replicas.replica(1).descriptor(PartitionId(0)).unwrap();
        assert_eq!(descriptor.acks.acked, descriptor.manifest.highest());
        assert_eq!(descriptor.manifest.applied(), descriptor.manifest.highest());
        assert_eq!(descriptor.master.map(|node| node.0), Some(1));
        replicas.stop().await;
    });
}

#[test]
fn many_callers_share_few_messages_and_all_get_an_answer() {
    simulate(3, |seed| async move {
        let replicas = start(seed).await;
        let replica = replicas.replica(1);
        for _ in 0..5 {
            let proposals = (0..64).map(|serial| replica.propose(plain(serial % 6, u64::from(serial), 20)));
            let verdicts = join_all(proposals).await;
            assert!(verdicts.iter().all(|verdict| matches!(verdict, Ok(Verdict::Accepted(_)))));
        }
        assert_eq!(replica.dispatcher().stats().ops, 0, "every permit has ended");
        replicas.stop().await;
    });
}

/// LOG-6: a failed sync ends openraft, and the replica starts again by itself. Nothing is acknowledged in between, and
/// everything that was acknowledged before is there.
#[test]
fn a_failed_log_is_opened_again_and_nothing_acknowledged_is_lost() {
    simulate(20, |seed| async move {
        let (mut replicas, mut workload) = (start(seed).await, Workload::new());
        for round in 1..4 {
            workload.write_until_done(&replicas, 10).await;
            replicas.break_log(1, u64::MAX);
            assert_eq!(workload.write(&replicas, 5).await, 0, "a log that fails acknowledges nothing");
            let replica = replicas.replica(1).clone();
            let down = || (replica.status().phase == ReplicaPhase::Rebuilding).then_some(());
            replicas.wait_until("the group has ended", down).await;
            let refused = replica.propose(plain(0, 0, 1)).await;
            assert!(matches!(refused, Err(ProposeError::NotServing(NotServing::Rebuilding))), "{refused:?}");
            SimRuntime::sleep(Duration::from_millis(300)).await;
            let status = replica.status();
            assert!(status.rebuild_failures > 0 && status.last_fault.is_some(), "{status:?}");
            replicas.disks[&1].heal();
            workload.write_until_done(&replicas, 10).await;
            let status = replica.status();
            assert_eq!((status.rebuilds, status.fsync_retries), (round, round), "{status:?}");
        }
        workload.check(&mut replicas).await;
        replicas.kill(1).await;
        workload.check(&mut replicas).await;
        replicas.stop().await;
    });
}

/// LOG-6: a log also fails while nobody writes, when it raises the mark of what is synced. The group is then opened
/// again without waiting for a write that would find it failed.
#[test]
fn a_log_that_failed_while_idle_is_opened_again() {
    simulate(10, |seed| async move {
        let (mut replicas, mut workload) = (start(seed).await, Workload::new());
        workload.write_until_done(&replicas, 10).await;
        replicas.break_log(1, u64::MAX);
        let replica = replicas.replica(1).clone();
        let down = || (replica.status().phase == ReplicaPhase::Rebuilding).then_some(());
        replicas.wait_until("the group has ended", down).await;
        replicas.disks[&1].heal();
        let up = || (replica.status().phase == ReplicaPhase::Serving).then_some(());
        replicas.wait_until("the group serves again", up).await;
        workload.check(&mut replicas).await;
        replicas.stop().await;
    });
}

/// A full disk is a fault like any other; when there is room again, the replica goes on.
#[test]
fn a_full_disk_stops_appends_until_there_is_room() {
    simulate(5, |seed| async move {
        let (replicas, mut workload) = (start(seed).await, Workload::new());
        workload.write_until_done(&replicas, 20).await;
        let replica = replicas.replica(1).clone();
        // Chance may have left partition 0 out.
        replica.propose(plain(0, 40_000_000, 100)).await.unwrap();
        let disk = replicas.disks[&1].clone();
        disk.limit_room(disk.used());
        let mut refused = 0;
        for serial in 0..200 {
            let large = plain(0, 50_000_000 + serial, 60_000);
            if replica.propose(large).await.is_err() {
                refused += 1;
                break;
            }
        }
        assert_eq!(refused, 1, "the disk was never full");
        // Reading goes on.
        assert!(rows(&replica, 0).await > 0);
        disk.heal();
        workload.write_until_done(&replicas, 10).await;
        assert!(replica.status().rebuilds > 0);
        replicas.stop().await;
    });
}

#[test]
fn limits_refuse_before_anything_is_proposed() {
    SimRuntime::with_seed(1).block_on(async {
        let mut config = small_config();
        config.dispatcher = DispatcherConfig { entry_inline_bytes_max: 1024, ..DispatcherConfig::default() };
        let replicas = Replicas::<SimRuntime>::start(1, 1, config, true).await;
        replicas.wait_for_leader().await;
        let replica = replicas.replica(1);
        let last = replica.status().last;
        let refused = replica.propose(plain(0, 1, 2000)).await;
        assert!(matches!(refused, Err(ProposeError::Overloaded(_))), "{refused:?}");
        assert_eq!(replica.status().last, last, "ADM-1");
        replicas.stop().await;
    });
}

/// Rows get the leader's time, which never goes back however the clock jumps.
#[test]
fn times_never_go_back() {
    SimRuntime::with_seed(1).block_on(async {
        let replicas = Replicas::<SimRuntime>::start(1, 1, small_config(), true).await;
        replicas.wait_for_leader().await;
        let replica = replicas.replica(1);
        for (serial, now) in [(1, 500), (2, 900), (3, 100), (4, 901)] {
            replicas.clock.store(now, std::sync::atomic::Ordering::Relaxed);
            replica.propose(plain(0, serial, 1)).await.unwrap();
        }
        let log = replica.machine().partition_log(PartitionId(0)).unwrap();
        let mut reader = log.reader(log.first());
        let times: Vec<u64> =
            std::iter::from_fn(|| reader.next().unwrap()).map(|record| record.time_ms).collect();
        assert_eq!(times, [500, 900, 900, 901]);
        replicas.stop().await;
    });
}

/// A proposal that nobody waits for any more is still counted until its outcome is there.
#[test]
fn a_proposal_that_times_out_is_unknown_and_its_permit_ends_with_it() {
    SimRuntime::with_seed(1).block_on(async {
        let replicas = Replicas::<SimRuntime>::start(1, 1, small_config(), true).await;
        replicas.wait_for_leader().await;
        let replica = replicas.replica(1);
        let late = replica.propose_within(plain(0, 1, 1), Duration::from_micros(10)).await;
        assert!(late.is_err_and(|error| error.is_unknown()));
        assert_eq!(replica.dispatcher().stats().ops, 1);
        let done = || (rows_now(replica) == 1 && replica.dispatcher().stats().ops == 0).then_some(());
        replicas.wait_until("it took effect all the same", done).await;
        replicas.stop().await;
    });
}

fn rows_now(replica: &DataReplica<SimRuntime>) -> u64 {
    replica.machine().status(PartitionId(0)).map_or(0, |status| status.next_offset)
}

/// A sole voter whose log was cut has nobody to catch up with: it reports that, and serves.
#[test]
fn a_sole_voter_reports_a_cut_and_serves() {
    let mut cuts = 0;
    for seed in 0..30 {
        cuts += SimRuntime::with_seed(seed).block_on(async {
            let (mut replicas, mut workload) = (start(seed).await, Workload::new());
            workload.write_until_done(&replicas, 10).await;
            let replica = replicas.replica(1).clone();
            // The power fails while entries are being written.
            replicas.tear_log(1, 9000);
            let proposals = (0..8).map(|serial| replica.propose(plain(0, 90_000_000 + serial, 6000)));
            assert!(join_all(proposals).await.iter().all(|outcome| outcome.is_err()));
            replicas.kill(1).await;
            replicas.restart(1).await;
            let status = replicas.replica(1).status();
            assert!(!status.catching_up);
            replicas.replica(1).wait_recovered(Duration::from_secs(5)).await.unwrap();
            let noop = Entry::default();
            assert!(matches!(replicas.replica(1).propose(noop).await, Ok(Verdict::Accepted(_))));
            replicas.stop().await;
            u32::from(status.cut.is_some())
        });
    }
    assert!(cuts > 0, "nothing was ever cut");
}
