//! The same replicas on tokio, with threads that write real files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use laminar_aof::fs::RealFileSystem;
use laminar_aof::{Committer, CommitterConfig};
use laminar_core::ids::{LogIndex, NodeId, PartitionId};
use laminar_log::BuiltInMachines;
use laminar_log::dispatcher::ClientId;
use laminar_log::verdict::Verdict;
use laminar_raft::testing::Router;
use laminar_raft::{DataReplica, ReplicaConfig, ReplicaParts, TokioRuntime};
use openraft::AsyncRuntime;

use crate::support::{Replicas, Workload, nodes, plain, small_config};

type Replica = DataReplica<TokioRuntime>;

async fn open(dir: &Path, id: u64, router: &Router<TokioRuntime, Replica>) -> Replica {
    let committer =
        Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
    let time = AtomicU64::new(1);
    let parts = ReplicaParts {
        dir: dir.join(id.to_string()),
        node: NodeId(id),
        committer,
        machines: Arc::new(BuiltInMachines),
        clock: Arc::new(move || time.fetch_add(1, Ordering::Relaxed)),
        signals: Vec::new(),
    };
    let replica = DataReplica::open(parts, ReplicaConfig::default(), router.factory(id)).await.unwrap();
    router.join(id, replica.clone());
    replica
}

async fn leader(replicas: &[Replica]) -> Replica {
    loop {
        let leads = |replica: &&Replica| {
            let status = replica.status();
            status.leader == Some(status.node)
        };
        if let Some(leader) = replicas.iter().find(leads) {
            return leader.clone();
        }
        TokioRuntime::sleep(Duration::from_millis(5)).await;
    }
}

/// Writes from 64 callers at once, trying again where nobody leads yet.
async fn write(replicas: &[Replica], serials: std::ops::Range<u64>) {
    let leader = leader(replicas).await;
    let mut left: Vec<u64> = serials.collect();
    while !left.is_empty() {
        let at_once: Vec<u64> = left.drain(..left.len().min(64)).collect();
        let proposals = at_once.iter().map(|serial| leader.propose(plain(*serial as u32 % 8, *serial, 100)));
        for (serial, outcome) in at_once.iter().zip(join_all(proposals).await) {
            match outcome {
                Ok(Verdict::Accepted(_)) => {}
                Ok(verdict) => panic!("{verdict:?}"),
                Err(error) => {
                    assert!(!error.is_unknown(), "{error}");
                    left.push(*serial);
                    TokioRuntime::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_on_real_files() {
    let folder = tempfile::tempdir().unwrap();
    let router = Router::new(1);
    let mut replicas = Vec::new();
    for id in 1..=3 {
        replicas.push(open(folder.path(), id, &router).await);
    }
    replicas[0].initialize(nodes(&[1, 2, 3])).await.unwrap();
    write(&replicas, 0..1000).await;
    let first = leader(&replicas).await.node().0;
    router.leave(first);
    let stopped = replicas.remove(replicas.iter().position(|replica| replica.node().0 == first).unwrap());
    stopped.shutdown().await.unwrap();
    write(&replicas, 1000..1500).await;
    let applied = leader(&replicas).await.status().applied.unwrap().index;
    replicas.push(open(folder.path(), first, &router).await);
    let partitions: Vec<PartitionId> = (0..8).map(PartitionId).collect();
    let mut states = Vec::new();
    for replica in &replicas {
        replica.wait_recovered(Duration::from_secs(10)).await.unwrap();
        let machine = replica.machine();
        let index = LogIndex(applied.0);
        machine.barrier(ClientId(1), &partitions, index, Duration::from_secs(10)).await.unwrap();
        let ends = partitions.iter().map(|id| machine.status(*id).unwrap().next_offset);
        let rows: Vec<u64> = ends.collect();
        assert_eq!(rows.iter().sum::<u64>(), 1500);
        states.push((machine.verdict_bytes(), rows));
    }
    assert!(states.iter().all(|state| *state == states[0]), "APPLY-2");
    for replica in replicas {
        replica.shutdown().await.unwrap();
    }
}

/// The simulated cluster's own test, with threads in the place of the simulation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_on_tokio() {
    let mut replicas = Replicas::<TokioRuntime>::start(3, 1, small_config(), false).await;
    let mut workload = Workload::new();
    let leader = replicas.wait_for_leader().await;
    workload.write_until_done(&replicas, 50).await;
    replicas.kill(leader).await;
    workload.write_until_done(&replicas, 50).await;
    replicas.restart(leader).await;
    workload.check(&mut replicas).await;
    replicas.stop().await;
}
