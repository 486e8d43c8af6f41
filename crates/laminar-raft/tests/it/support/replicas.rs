//! Replicas of a data group in one process, with the real machine: they can be killed, cut off, broken and restarted.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use laminar_aof::fs::{Fault, MemoryFileSystem, Survival};
use laminar_aof::{AofConfig, Committer, CommitterConfig, FileOperation};
use laminar_core::ids::NodeId;
use laminar_log::{BuiltInMachines, SegmentedLogConfig};
use laminar_raft::testing::Router;
use laminar_raft::{DataReplica, Node, RaftSettings, ReplicaConfig, ReplicaParts, ReplicaPhase};
use openraft::{AsyncRuntime, Instant};

/// How long the files of a simulated node take, in microseconds.
const DISK: std::ops::Range<u64> = 100..2000;
pub(crate) const DIR: &str = "/replica";

pub(crate) struct Member<R: AsyncRuntime> {
    pub(crate) replica: DataReplica<R>,
    /// Tells the task that works the disk to end.
    stop: Arc<AtomicBool>,
}

pub(crate) struct Replicas<R: AsyncRuntime> {
    pub(crate) ids: Vec<u64>,
    pub(crate) router: Router<R, DataReplica<R>>,
    pub(crate) config: ReplicaConfig,
    /// Whether files are worked by a task of the runtime, and not by threads.
    simulated: bool,
    pub(crate) disks: BTreeMap<u64, MemoryFileSystem>,
    pub(crate) members: BTreeMap<u64, Member<R>>,
    /// What all clocks show; it jumps, also back.
    pub(crate) clock: Arc<AtomicU64>,
}

/// Small numbers, so that snapshots, purges, rotations and waits happen in a short run.
pub(crate) fn small_config() -> ReplicaConfig {
    let files = AofConfig { segment_bytes_max: 1 << 16, ..AofConfig::default() };
    ReplicaConfig {
        raft: RaftSettings { snapshot_entries: 40, kept_entries: 5, ..RaftSettings::default() },
        log: SegmentedLogConfig { files, cache_bytes_max: 2000, ..SegmentedLogConfig::default() },
        read_bytes_max: 3000,
        proposal_timeout: Duration::from_millis(500),
        cut_wait: Duration::from_millis(700),
        tick: Duration::from_millis(200),
        ..ReplicaConfig::default()
    }
}

pub(crate) fn nodes(ids: &[u64]) -> BTreeMap<u64, Node> {
    ids.iter().map(|id| (*id, Node { address: format!("node-{id}") })).collect()
}

impl<R: AsyncRuntime> Replicas<R> {
    pub(crate) async fn start(count: u64, seed: u64, config: ReplicaConfig, simulated: bool) -> Self {
        let mut replicas = Self {
            ids: (1..=count).collect(),
            router: Router::new(seed),
            config,
            simulated,
            disks: BTreeMap::new(),
            members: BTreeMap::new(),
            clock: Arc::new(AtomicU64::new(1_000_000)),
        };
        for id in replicas.ids.clone() {
            replicas.disks.insert(id, MemoryFileSystem::new());
            replicas.restart(id).await;
        }
        replicas.members[&1].replica.initialize(nodes(&replicas.ids)).await.unwrap();
        replicas
    }

    pub(crate) fn replica(&self, id: u64) -> &DataReplica<R> {
        &self.members[&id].replica
    }

    pub(crate) fn running(&self) -> Vec<u64> {
        self.members.keys().copied().collect()
    }

    /// Opens the files of a node that is not running and starts it.
    pub(crate) async fn restart(&mut self, id: u64) {
        assert!(!self.members.contains_key(&id));
        let fs = self.disks[&id].clone();
        fs.heal();
        let config = CommitterConfig::default();
        let files = Arc::new(fs.clone());
        let committer = if self.simulated {
            Committer::manual(config, files).unwrap()
        } else {
            Committer::start(config, files).unwrap()
        };
        let clock = Arc::clone(&self.clock);
        let parts = ReplicaParts {
            dir: Path::new(DIR).to_owned(),
            node: NodeId(id),
            committer: committer.clone(),
            machines: Arc::new(BuiltInMachines),
            clock: Arc::new(move || clock.load(Ordering::Relaxed)),
            signals: Vec::new(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        if self.simulated {
            drop(R::spawn(work_disk(committer, fs, self.router.clone(), Arc::clone(&stop))));
        }
        let factory = self.router.factory(id);
        let replica = DataReplica::<R>::open(parts, self.config.clone(), factory).await.unwrap();
        self.router.join(id, replica.clone());
        self.members.insert(id, Member { replica, stop });
    }

    /// The power of a node fails: what it had not synced survives by chance.
    pub(crate) async fn kill(&mut self, id: u64) {
        self.router.leave(id);
        let Member { replica, stop } = self.members.remove(&id).unwrap();
        let old = self.disks[&id].clone();
        let router = self.router.clone();
        old.heal();
        old.power_cut(|_: &Survival| router.draw(2) == 0);
        // What is left of the process must not write to the disk that its next life opens.
        self.disks.insert(id, old.copy());
        drop(replica.shutdown().await);
        stop.store(true, Ordering::Relaxed);
    }

    /// Ends a node in good order.
    pub(crate) async fn stop_one(&mut self, id: u64) {
        self.router.leave(id);
        let Member { replica, stop } = self.members.remove(&id).unwrap();
        replica.shutdown().await.unwrap();
        stop.store(true, Ordering::Relaxed);
    }

    pub(crate) async fn stop(mut self) {
        for id in self.running() {
            self.stop_one(id).await;
        }
    }

    /// So many of the next writes and syncs of a node's Raft log fail.
    pub(crate) fn break_log(&self, id: u64, mut failures: u64) {
        self.disks[&id].on_call(move |call| {
            let writes = [FileOperation::Write, FileOperation::Sync, FileOperation::Create];
            let ours = call.path.starts_with("/replica/raft") && writes.contains(&call.operation);
            (ours && failures > 0).then(|| {
                failures -= 1;
                Fault::Fail(io::ErrorKind::Other)
            })
        });
    }

    /// The next write of a node's Raft log reaches only so many bytes, and then nothing of it any more: its power is
    /// about to fail.
    pub(crate) fn tear_log(&self, id: u64, bytes: usize) {
        let mut torn = false;
        self.disks[&id].on_call(move |call| {
            let ours = call.path.starts_with("/replica/raft");
            match call.operation {
                FileOperation::Write if ours && !torn => {
                    torn = true;
                    Some(Fault::Tear(bytes, io::ErrorKind::Other))
                }
                _ => (ours && torn).then_some(Fault::Fail(io::ErrorKind::Other)),
            }
        });
    }

    /// All calls of a node on its snapshots and partitions fail, after so many of them.
    pub(crate) fn break_rest_after(&self, id: u64, mut calls: u64) {
        self.disks[&id].on_call(move |call| {
            let ours =
                ["/replica/snapshots", "/replica/partitions"].iter().any(|dir| call.path.starts_with(dir));
            if ours && calls > 0 {
                calls -= 1;
                return None;
            }
            ours.then_some(Fault::Fail(io::ErrorKind::Other))
        });
    }

    /// The node that leads in the latest term, as far as anybody knows.
    pub(crate) fn leader(&self) -> Option<u64> {
        let leads = |member: &Member<R>| {
            let status = member.replica.status();
            let leads = status.phase == ReplicaPhase::Serving && status.leader == Some(status.node);
            leads.then_some((status.term, status.node.0))
        };
        self.members.values().filter_map(leads).max().map(|(_, id)| id)
    }

    pub(crate) async fn wait_for_leader(&self) -> u64 {
        self.wait_until("somebody leads", || self.leader()).await
    }

    pub(crate) async fn wait_until<T>(&self, what: &str, found: impl Fn() -> Option<T>) -> T {
        let begun = R::Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            if begun.elapsed() > Duration::from_secs(30) {
                let all: Vec<_> = self.members.values().map(|member| member.replica.status()).collect();
                panic!("waited for: {what}; {all:#?}");
            }
            R::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The disk of a simulated node: does what waits, after a time.
pub(crate) async fn work_disk<R: AsyncRuntime>(
    committer: Committer,
    fs: MemoryFileSystem,
    router: Router<R, DataReplica<R>>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Ordering::Relaxed) {
        let time = Duration::from_micros(DISK.start + router.draw(DISK.end - DISK.start));
        R::sleep(time).await;
        fs.advance(time);
        committer.step();
    }
}
