//! Opening a node and ending it.
//!
//! 1. The folder is taken: this process alone is its node.
//! 2. The metadata group is opened, a voter of one, and waited for.
//! 3. The data group is opened and waited for. Its machines ask the metadata which stream they belong to.
//! 4. The server registers itself, and takes what waits for an owner.
//! 5. What the metadata decided and the data log does not know yet is carried over: creations, fences, destructions.
//! 6. Only then are calls answered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laminar_aof::fs::{FaultyFileSystem, FileSystem, RealFileSystem};
use laminar_aof::{Committer, CommitterConfig};
use laminar_raft::{CoordinatorParts, DataReplica, RaftCoordinator, ReplicaError, ReplicaParts, SoleNetwork};
use laminar_rpc::Failure;
use laminar_store::BlockStore;
use tokio::sync::watch;

use super::{Inner, Node, SERVER, lock};
use crate::clock::wall_ms;
use crate::config::NodeConfig;
use crate::error::{of_coordination, of_log, of_not_serving, of_replica, with_causes};
use crate::folder::Folder;
use crate::machines::{ApplicationMachines, NodeMachines};
use crate::metrics::Figures;
use crate::ownership;
use crate::refused::RefusedWrites;

/// How often it is looked whether the folder is still this node's.
const FOLDER_CHECK: Duration = Duration::from_secs(1);
/// The folder of staged blocks.
pub(super) const OBJECTS: &str = "objects";

impl Node {
    /// Opens the node of a folder. Everything that was acknowledged before is there when this returns.
    ///
    /// # Errors
    ///
    /// Corrupt, Invalid, Overloaded and Unavailable, as the logs are opened.
    pub async fn open(
        folder: Folder,
        config: NodeConfig,
        application: Arc<dyn ApplicationMachines>,
    ) -> Result<Self, Failure> {
        let mut files: Arc<dyn FileSystem> = Arc::new(RealFileSystem::default());
        if let Some(control) = &config.disk_faults {
            files = Arc::new(FaultyFileSystem::new(files, control.clone()));
        }
        let crew = config.crew.clone().unwrap_or_default();
        let committer =
            Committer::start(CommitterConfig::default(), files).map_err(|error| of_log(&error.into()))?;
        let figures = Arc::new(Figures::default());
        let syncs = Arc::clone(&figures);
        // Only the first observer counts, and the groups bring theirs: theirs is told too.
        committer.observe_syncs(move |time| {
            syncs.fsync_seconds.observe(time);
            laminar_log::metrics::record_fsync(time);
        });
        let machines = Arc::new(NodeMachines::new(application));
        let data_parts = ReplicaParts {
            dir: folder.path().join("data"),
            node: SERVER,
            committer: committer.clone(),
            machines: Arc::clone(&machines) as _,
            clock: Arc::new(wall_ms),
            signals: Vec::new(),
        };
        let metadata_parts = CoordinatorParts {
            dir: folder.path().join("metadata"),
            node: SERVER,
            committer: committer.clone(),
            clock: Arc::new(wall_ms),
        };
        let metadata = RaftCoordinator::open(metadata_parts, config.metadata.clone(), SoleNetwork::default());
        let metadata = crew.scope(metadata).await.map_err(|error| of_coordination(&error))?;
        let alone = || BTreeMap::from([(SERVER.0, laminar_raft::Node::default())]);
        if !metadata.is_initialized().await {
            metadata.initialize(alone()).await.map_err(|error| of_coordination(&error))?;
        }
        metadata.wait_recovered(config.recovery_timeout).await.map_err(|error| of_coordination(&error))?;
        let store = BlockStore::open_local(&folder.path().join(OBJECTS))
            .await
            .map_err(|error| Failure::unavailable(with_causes(&error)))?;
        machines.give(metadata.clone(), store.clone());

        let data = DataReplica::open(data_parts, config.data.clone(), SoleNetwork::default());
        let data = crew.scope(data).await.map_err(|error| of_replica(&error))?;
        if data.status().last.is_none() {
            match data.initialize(alone()).await {
                Ok(()) | Err(ReplicaError::Initialized { .. }) => {}
                Err(error) => return Err(of_replica(&error)),
            }
        }
        data.wait_recovered(config.recovery_timeout).await.map_err(|error| of_not_serving(&error))?;

        let started_at_ms = wall_ms();
        let node = Node {
            inner: Arc::new(Inner {
                config,
                _crew: crew,
                folder,
                id: SERVER,
                started_at_ms,
                metadata,
                data,
                store,
                machines,
                refused: RefusedWrites::new(started_at_ms),
                figures,
                metrics_server: Mutex::default(),
                workers: Mutex::default(),
                clients: Mutex::default(),
                events: Mutex::new(VecDeque::new()),
                named_blocks: Mutex::default(),
                paused_since: Mutex::default(),
                stopping: watch::Sender::new(false),
            }),
        };
        node.register_server().await?;
        node.adopt_workers();
        node.assign_unowned().await?;
        node.carry_all().await?;
        tokio::spawn(ownership::carry_changes(node.clone()));
        tokio::spawn(ownership::watch_workers(node.clone()));
        tokio::spawn(super::retention::keep(node.clone()));
        tokio::spawn(super::status::collect_events(node.clone()));
        tokio::spawn(super::stages::collect(node.clone()));
        tokio::spawn(watch_folder(node.clone()));
        Ok(node)
    }

    /// Ends the node: nothing is answered any more, everything is on disk, and the folder is free when the last clone is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Unavailable, if what was written last could not be synced.
    pub async fn shutdown(&self) -> Result<(), Failure> {
        self.inner.stopping.send_replace(true);
        let metrics_server = lock(&self.inner.metrics_server).take();
        if let Some((_, answering)) = metrics_server {
            // Its port is free when the node is gone.
            drop(answering.await);
        }
        let data = self.inner.data.shutdown().await.map_err(|error| of_log(&error));
        let metadata = self.inner.metadata.shutdown().await.map_err(|error| of_coordination(&error));
        data.and(metadata)
    }
}

/// Stops the node when its folder is not its own any more: removed, or taken by another in spite of the lock.
async fn watch_folder(node: Node) {
    loop {
        tokio::select! {
            () = node.stopped() => return,
            () = tokio::time::sleep(FOLDER_CHECK) => {}
        }
        let looked = node.clone();
        let ours = tokio::task::spawn_blocking(move || looked.folder().is_ours()).await;
        if matches!(ours, Ok(false)) && !node.is_stopping() {
            tracing::error!(folder = %node.folder().path().display(), "the folder is not this node's any more; it stops");
            drop(node.shutdown().await);
            // It may have been moved, and whoever opens it where it is now is not to wait for this process.
            node.folder().release();
            return;
        }
    }
}
