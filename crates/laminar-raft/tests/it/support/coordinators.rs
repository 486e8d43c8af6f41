//! Metadata groups in one process: on real files alone, or several on memory that can be killed, broken and restarted.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use laminar_aof::fs::{Fault, MemoryFileSystem, RealFileSystem, Survival};
use laminar_aof::{Committer, CommitterConfig};
use laminar_core::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};
use laminar_core::metadata::{DeltaMetadata, MetadataChange};
use laminar_raft::testing::Router;
use laminar_raft::{
    CoordinatorParts, DataReplica, RaftCoordinator, RaftCoordinatorConfig, SoleNetwork, TokioRuntime,
};
use openraft::{AsyncRuntime, Instant};

use super::replicas::{DIR, nodes, small_config, work_disk};

pub(crate) fn owner(node: u64, epoch: u64) -> OwnerEpoch {
    OwnerEpoch { node_id: NodeId(node), epoch: Epoch::new(epoch).unwrap() }
}

pub(crate) fn assign(partition: u32, expected: Option<OwnerEpoch>, next: OwnerEpoch) -> MetadataChange {
    let OwnerEpoch { node_id, epoch } = next;
    MetadataChange::AssignPartition { partition_id: PartitionId(partition), node_id, epoch, expected }
}

/// Takes a partition from its owner.
pub(crate) fn claim(partition: u32, expected: OwnerEpoch, node: u64) -> MetadataChange {
    MetadataChange::AcquirePartition {
        partition_id: PartitionId(partition),
        node_id: NodeId(node),
        epoch: expected.epoch.next().unwrap(),
        expected,
    }
}

/// A group of one on real files, initialised if it is new.
pub(crate) async fn open_alone(dir: &Path, config: RaftCoordinatorConfig) -> RaftCoordinator<TokioRuntime> {
    let committer =
        Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
    let time = AtomicU64::new(1);
    let parts = CoordinatorParts {
        dir: dir.to_owned(),
        node: NodeId(1),
        committer,
        clock: Arc::new(move || time.fetch_add(1, Ordering::Relaxed)),
    };
    let coordinator = RaftCoordinator::open(parts, config, SoleNetwork::new()).await.unwrap();
    if !coordinator.is_initialized().await {
        coordinator.initialize(nodes(&[1])).await.unwrap();
    }
    coordinator
}

pub(crate) struct Coordinators<R: AsyncRuntime> {
    pub(crate) ids: Vec<u64>,
    pub(crate) router: Router<R, DataReplica<R>>,
    pub(crate) config: RaftCoordinatorConfig,
    pub(crate) disks: BTreeMap<u64, MemoryFileSystem>,
    pub(crate) members: BTreeMap<u64, (RaftCoordinator<R>, Arc<AtomicBool>)>,
}

impl<R: AsyncRuntime> Coordinators<R> {
    /// A simulated group with members.
    pub(crate) async fn start(count: u64, seed: u64) -> Self {
        let group = Self::start_without_members(count, seed).await;
        group.members[&1].0.initialize(nodes(&group.ids)).await.unwrap();
        group
    }

    pub(crate) async fn start_without_members(count: u64, seed: u64) -> Self {
        let config = RaftCoordinatorConfig {
            replica: small_config(),
            write_timeout: Duration::from_secs(2),
            read_timeout: Duration::from_secs(2),
            snapshot_timeout: Duration::from_secs(2),
            changes_max: 32,
            ..RaftCoordinatorConfig::default()
        };
        let mut group = Self {
            ids: (1..=count).collect(),
            router: Router::new(seed),
            config,
            disks: BTreeMap::new(),
            members: BTreeMap::new(),
        };
        for id in group.ids.clone() {
            group.disks.insert(id, MemoryFileSystem::new());
            group.restart(id).await;
        }
        group
    }

    pub(crate) fn node(&self, id: u64) -> &RaftCoordinator<R> {
        &self.members[&id].0
    }

    /// Opens the files of a node that is not running and starts it.
    pub(crate) async fn restart(&mut self, id: u64) {
        let fs = self.disks[&id].clone();
        fs.heal();
        let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        drop(R::spawn(work_disk(committer.clone(), fs, self.router.clone(), Arc::clone(&stop))));
        let parts = CoordinatorParts {
            dir: Path::new(DIR).to_owned(),
            node: NodeId(id),
            committer,
            clock: Arc::new(|| 1_000_000),
        };
        let factory = self.router.factory(id);
        let coordinator = RaftCoordinator::<R>::open(parts, self.config.clone(), factory).await.unwrap();
        self.router.join(id, coordinator.replica().clone());
        self.members.insert(id, (coordinator, stop));
    }

    /// The power of a node fails: what it had not synced survives by chance.
    pub(crate) async fn kill(&mut self, id: u64) {
        self.router.leave(id);
        let (coordinator, stop) = self.members.remove(&id).unwrap();
        let (old, router) = (self.disks[&id].clone(), self.router.clone());
        old.heal();
        old.power_cut(|_: &Survival| router.draw(2) == 0);
        self.disks.insert(id, old.copy());
        drop(coordinator.shutdown().await);
        stop.store(true, Ordering::Relaxed);
    }

    pub(crate) async fn stop(mut self) {
        while let Some((id, (coordinator, stop))) = self.members.pop_first() {
            self.router.leave(id);
            coordinator.shutdown().await.unwrap();
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// All calls of a node on one of its folders fail until it is healed.
    pub(crate) fn break_folder(&self, id: u64, folder: &'static str) {
        let path = Path::new(DIR).join(folder);
        self.disks[&id]
            .on_call(move |call| call.path.starts_with(&path).then_some(Fault::Fail(io::ErrorKind::Other)));
    }

    pub(crate) async fn leader(&self) -> RaftCoordinator<R> {
        self.wait_until("somebody leads", || {
            let leads = |(coordinator, _): &&(RaftCoordinator<R>, Arc<AtomicBool>)| coordinator.is_leader();
            let terms = self.members.values().filter(leads);
            terms.max_by_key(|(node, _)| node.status().replica.term).map(|(node, _)| node.clone())
        })
        .await
    }

    /// Waits until all nodes that run have applied the same, and returns it.
    pub(crate) async fn agreed(&self) -> DeltaMetadata {
        self.wait_until("all nodes agree", || {
            let mut states = self.members.values().map(|(node, _)| node.read_local(DeltaMetadata::clone));
            let first = states.next()?;
            states.all(|state| state == first).then_some(first)
        })
        .await
    }

    pub(crate) async fn wait_until<T>(&self, what: &str, found: impl Fn() -> Option<T>) -> T {
        let begun = R::Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            if begun.elapsed() > Duration::from_secs(30) {
                let all: Vec<_> = self.members.values().map(|(node, _)| node.status()).collect();
                panic!("waited for: {what}; {all:#?}");
            }
            R::sleep(Duration::from_millis(5)).await;
        }
    }
}
