//! The Raft log stays short in bytes, however few entries they are.

use std::io;
use std::time::Duration;

use laminar_aof::fs::{Fault, MemoryFileSystem};
use laminar_log::verdict::Verdict;
use laminar_raft::ReplicaConfig;
use openraft::AsyncRuntime;
use openraft_rt_sim::SimRuntime;

use crate::support::{Replicas, Workload, plain, simulate, small_config};

const SNAPSHOT_BYTES: u64 = 128 << 10;
const ENTRY_BYTES: usize = 8 << 10;

/// Entries alone would never bring a snapshot.
fn config() -> ReplicaConfig {
    let mut config = small_config();
    (config.raft.snapshot_entries, config.raft.kept_entries) = (100_000, 100_000);
    (config.raft.snapshot_bytes, config.raft.kept_bytes) = (SNAPSHOT_BYTES, SNAPSHOT_BYTES / 2);
    config
}

/// Appends large entries to a partition that the workload does not know, and returns the snapshots that were seen.
async fn write_large(replicas: &Replicas<SimRuntime>, count: u64) -> usize {
    let mut seen = std::collections::BTreeSet::new();
    for serial in 0..count {
        let leader = replicas.wait_for_leader().await;
        let verdict = replicas.replica(leader).propose(plain(100, serial, ENTRY_BYTES)).await;
        assert!(matches!(verdict, Ok(Verdict::Accepted(_))), "{verdict:?}");
        seen.extend(replicas.replica(leader).status().snapshot);
    }
    seen.len()
}

fn raft_bytes(disk: &MemoryFileSystem) -> u64 {
    let ours = disk.paths().into_iter().filter(|path| path.starts_with("/replica/raft"));
    ours.map(|path| disk.bytes(&path).map_or(0, |bytes| bytes.len() as u64)).sum()
}

#[test]
fn a_log_of_few_large_entries_is_snapshot_and_purged_by_its_bytes() {
    simulate(5, |seed| async move {
        let mut replicas = Replicas::<SimRuntime>::start(1, seed, config(), true).await;
        let mut workload = Workload::new();
        replicas.wait_for_leader().await;
        workload.write_until_done(&replicas, 20).await;
        // Four mebibytes, and what may stay is a tenth of that, in files of 64 KiB.
        let snapshots = write_large(&replicas, 512).await;
        assert!(snapshots >= 10, "{snapshots} snapshots of 4 MiB");
        assert!(snapshots <= 40, "{snapshots} snapshots of 4 MiB: they come too often");
        let short = || (raft_bytes(&replicas.disks[&1]) <= 5 * SNAPSHOT_BYTES).then_some(());
        replicas.wait_until("the files of the log are few", short).await;

        // Nothing is written any more, so nothing is built any more.
        let before = replicas.replica(1).status().snapshot;
        SimRuntime::sleep(Duration::from_secs(5)).await;
        assert_eq!(replicas.replica(1).status().snapshot, before);
        workload.check(&mut replicas).await;
        replicas.kill(1).await;
        workload.check(&mut replicas).await;
        let partition = laminar_core::ids::PartitionId(100);
        let status = replicas.replica(1).machine().status(partition).unwrap();
        assert_eq!((status.start_offset, status.next_offset), (0, 512), "no row went with the log");
        replicas.stop().await;
    });
}

#[test]
fn a_snapshot_by_bytes_that_fails_is_tried_again_with_longer_waits() {
    simulate(5, |seed| async move {
        let mut replicas = Replicas::<SimRuntime>::start(1, seed, config(), true).await;
        let mut workload = Workload::new();
        replicas.wait_for_leader().await;
        workload.write_until_done(&replicas, 20).await;
        replicas.disks[&1].on_call(|call| {
            call.path.starts_with("/replica/snapshots").then_some(Fault::Fail(io::ErrorKind::Other))
        });
        write_large(&replicas, 40).await;
        SimRuntime::sleep(Duration::from_secs(10)).await;
        let status = replicas.replica(1).status();
        assert_eq!((status.snapshot, status.purged), (None, None));
        // 100 ms, doubled each time.
        assert!((1..=8).contains(&status.snapshot_failures), "{status:?}");
        replicas.disks[&1].heal();
        let purged = || replicas.replica(1).status().purged.map(drop);
        replicas.wait_until("the log is purged", purged).await;
        workload.check(&mut replicas).await;
        replicas.stop().await;
    });
}

/// LOG-5: a follower that needs what went gets the snapshot.
#[test]
fn a_follower_behind_a_log_purged_by_bytes_catches_up() {
    simulate(10, |seed| async move {
        let mut replicas = Replicas::<SimRuntime>::start(3, seed, config(), true).await;
        let mut workload = Workload::new();
        let leader = replicas.wait_for_leader().await;
        workload.write_until_done(&replicas, 20).await;
        let behind = 1 + leader % 3;
        replicas.router.isolate(behind, &[1, 2, 3]);
        write_large(&replicas, 60).await;
        let last = replicas.replica(behind).status().last;
        let purged = || (replicas.replica(replicas.leader()?).status().purged > last).then_some(());
        replicas.wait_until("the others purged what it lacks", purged).await;
        workload.check(&mut replicas).await;
        replicas.stop().await;
    });
}
