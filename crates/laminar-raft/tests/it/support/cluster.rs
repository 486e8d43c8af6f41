//! Three nodes in one process that can be killed, cut off and restarted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::{MemoryFileSystem, Survival};
use laminar_aof::{AofConfig, Committer, CommitterConfig};
use laminar_log::{SegmentedLogConfig, SegmentedLogStore};
use laminar_raft::testing::Router;
use laminar_raft::{Data, DataGroup, Node, RaftLog, RaftSettings, raft_config};
use openraft::{AsyncRuntime, Instant, Raft};

use super::machine::{Kept, Machine};

/// How long the files of a simulated node take.
const DISK: Range<u64> = 100..2000;

pub(crate) struct Member<R: AsyncRuntime> {
    raft: DataGroup<R, Machine>,
    store: SegmentedLogStore,
    /// Tells the task that works the disk to end.
    stop: Arc<AtomicBool>,
}

pub(crate) struct Cluster<R: AsyncRuntime> {
    pub(crate) ids: Vec<u64>,
    pub(crate) router: Router<R, DataGroup<R, Machine>>,
    settings: RaftSettings,
    /// Whether files are worked by a task of the runtime, and not by threads.
    simulated: bool,
    disks: BTreeMap<u64, MemoryFileSystem>,
    machines: BTreeMap<u64, Machine>,
    members: BTreeMap<u64, Member<R>>,
    /// What was acknowledged, in order, and what may or may not have been done.
    pub(crate) done: Vec<Bytes>,
    pub(crate) unknown: BTreeSet<Bytes>,
    serial: u64,
}

impl<R: AsyncRuntime> Cluster<R> {
    pub(crate) async fn start(nodes: u64, seed: u64, settings: RaftSettings, simulated: bool) -> Self {
        let mut cluster = Self {
            ids: (1..=nodes).collect(),
            router: Router::new(seed),
            settings,
            simulated,
            disks: BTreeMap::new(),
            machines: BTreeMap::new(),
            members: BTreeMap::new(),
            done: Vec::new(),
            unknown: BTreeSet::new(),
            serial: 0,
        };
        for id in cluster.ids.clone() {
            cluster.disks.insert(id, MemoryFileSystem::new());
            cluster.machines.insert(id, Machine::default());
            cluster.restart(id).await;
        }
        let nodes: BTreeMap<u64, Node> =
            cluster.ids.iter().map(|id| (*id, Node { address: format!("node-{id}") })).collect();
        cluster.members[&1].raft.initialize(nodes).await.unwrap();
        cluster
    }

    pub(crate) fn running(&self) -> Vec<u64> {
        self.members.keys().copied().collect()
    }

    pub(crate) fn store(&self, id: u64) -> &SegmentedLogStore {
        &self.members[&id].store
    }

    pub(crate) fn machine(&self, id: u64) -> &Machine {
        &self.machines[&id]
    }

    /// Opens the files of a node that is not running and starts it.
    pub(crate) async fn restart(&mut self, id: u64) {
        assert!(!self.members.contains_key(&id));
        let fs = self.disks[&id].clone();
        let config = CommitterConfig::default();
        let committer = if self.simulated {
            Committer::manual(config, Arc::new(fs.clone())).unwrap()
        } else {
            Committer::start(config, Arc::new(fs.clone())).unwrap()
        };
        let files = AofConfig { segment_bytes_max: 1 << 16, ..AofConfig::default() };
        let config = SegmentedLogConfig { files, cache_bytes_max: 2000, ..SegmentedLogConfig::default() };
        let (store, _) = SegmentedLogStore::open(&committer, Path::new("/raft"), config).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        if self.simulated {
            drop(R::spawn(work_disk::<R>(committer, fs, self.router.clone(), Arc::clone(&stop))));
        }
        let machine = self.machines[&id].restarted(store.clone());
        self.machines.insert(id, machine.without_log());
        let raft = Raft::new(
            id,
            raft_config(&self.settings).unwrap(),
            self.router.factory(id),
            RaftLog::with_read_bytes_max(store.clone(), 3000),
            machine,
        );
        let raft = raft.await.unwrap();
        self.router.join(id, raft.clone());
        self.members.insert(id, Member { raft, store, stop });
    }

    /// The power of a node fails: what it had not synced survives by chance.
    pub(crate) async fn kill(&mut self, id: u64) {
        self.router.leave(id);
        let Member { raft, store, stop } = self.members.remove(&id).unwrap();
        let old = self.disks[&id].clone();
        let router = self.router.clone();
        old.power_cut(|_: &Survival| router.draw(2) == 0);
        // What is left of the process must not write to the disk that its next life opens.
        self.disks.insert(id, old.copy());
        drop(store);
        raft.shutdown().await.unwrap();
        stop.store(true, Ordering::Relaxed);
    }

    /// The node that leads in the latest term, as far as anybody knows.
    pub(crate) fn leader(&self) -> Option<u64> {
        let leads = |member: &Member<R>| {
            let metrics =
                openraft::async_runtime::watch::WatchReceiver::borrow_watched(&member.raft.metrics()).clone();
            (metrics.current_leader == Some(metrics.id)).then_some((metrics.current_term, metrics.id))
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
            assert!(begun.elapsed() < Duration::from_secs(30), "waited for: {what}");
            R::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Writes something that was never written before, to whoever leads. Says whether that was acknowledged.
    pub(crate) async fn write(&mut self) -> bool {
        self.serial += 1;
        let length = self.router.draw(300) as usize;
        let bytes = Bytes::from([format!("{:08}", self.serial).into_bytes(), vec![b'.'; length]].concat());
        let Some(leader) = self.leader() else {
            R::sleep(Duration::from_millis(20)).await;
            return false;
        };
        let raft = self.members[&leader].raft.clone();
        let write = async move { raft.client_write(Data(bytes.clone())).await.map(|_| bytes) };
        let key = Bytes::from(format!("{:08}", self.serial));
        match R::timeout(Duration::from_millis(500), write).await {
            Ok(Ok(bytes)) => {
                self.done.push(bytes);
                true
            }
            // Refused by one that does not lead, or nobody knows: what is not refused for sure is unknown.
            _ => {
                self.unknown.insert(key);
                // A leader that a quorum has not confirmed yet refuses at once.
                R::sleep(Duration::from_millis(5)).await;
                false
            }
        }
    }

    pub(crate) async fn write_until_done(&mut self, count: usize) {
        let goal = self.done.len() + count;
        let begun = R::Instant::now();
        while self.done.len() < goal {
            self.write().await;
            assert!(begun.elapsed() < Duration::from_secs(30), "{} of {goal} written", self.done.len());
        }
    }

    /// Faults are over: all nodes come back, agree, and have everything that was acknowledged, once and in order.
    pub(crate) async fn heal_and_check(&mut self) -> Kept {
        self.router.heal();
        for id in self.ids.clone() {
            if !self.members.contains_key(&id) {
                self.restart(id).await;
            }
        }
        self.write_until_done(3).await;
        let last = self.done.last().unwrap().clone();
        for id in self.ids.clone() {
            let has_last = || self.machines[&id].kept().iter().any(|(_, bytes)| *bytes == last).then_some(());
            self.wait_until(&format!("node {id} applied the last write"), has_last).await;
        }
        let kept = self.machines[&1].kept();
        for id in &self.ids {
            assert_eq!(self.machines[id].kept(), kept, "node {id} and node 1 differ");
        }
        let acknowledged: BTreeSet<&Bytes> = self.done.iter().collect();
        let found: Vec<&Bytes> = kept.iter().map(|(_, bytes)| bytes).collect();
        let in_order: Vec<&Bytes> =
            found.iter().copied().filter(|bytes| acknowledged.contains(bytes)).collect();
        assert!(
            in_order.iter().copied().eq(self.done.iter()),
            "acknowledged writes are there once and in order"
        );
        for bytes in found.iter().filter(|bytes| !acknowledged.contains(*bytes)) {
            assert!(self.unknown.contains(&bytes[..8]), "nobody wrote {bytes:?}");
        }
        self.check_logs();
        kept
    }

    /// Where two logs have an entry of the same term, it is the same entry, and so are all before it.
    fn check_logs(&self) {
        let logs = self.members.values().map(|member| member.store.read(0..u64::MAX, u64::MAX).unwrap());
        let logs: Vec<_> = logs.collect();
        for (a, b) in logs.iter().zip(logs.iter().skip(1)) {
            let b: BTreeMap<u64, _> = b.iter().map(|entry| (entry.id.index.0, entry)).collect();
            let pairs = a.iter().filter_map(|entry| Some((entry, *b.get(&entry.id.index.0)?)));
            let pairs: Vec<_> = pairs.collect();
            let agree = pairs.iter().rposition(|(a, b)| a.id == b.id).map_or(0, |last| last + 1);
            assert!(pairs[..agree].iter().all(|(a, b)| a == b), "logs differ before an entry they share");
        }
    }

    pub(crate) async fn stop(mut self) {
        while let Some((id, member)) = self.members.pop_first() {
            self.router.leave(id);
            member.raft.shutdown().await.unwrap();
            member.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// The disk of a simulated node: does what waits, after a time.
async fn work_disk<R: AsyncRuntime>(
    committer: Committer,
    fs: MemoryFileSystem,
    router: Router<R, DataGroup<R, Machine>>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Ordering::Relaxed) {
        let time = Duration::from_micros(DISK.start + router.draw(DISK.end - DISK.start));
        R::sleep(time).await;
        fs.advance(time);
        committer.step();
    }
}
