//! The node: both groups, and everything that answers calls.
//!
//! ```text
//!   streams.rs   create, alter, drop          append.rs   rows into the data group, commit.rs: of tasks
//!   ../ownership claims, fences, workers      read.rs     rows out of the partitions' logs
//!   why.rs       the story of a partition     keyed.rs    get, scan, barriers, offsets
//!   status.rs    how everything is            cut.rs      how far a stream can be read consistently
//!   retention.rs old rows go                  stages.rs   old blocks go
//!   queries.rs   batches of queries           paused.rs   waits end when a partition stands still
//! ```

mod append;
mod commit;
mod cut;
mod keyed;
mod locate;
mod open;
mod paused;
pub(crate) mod queries;
mod read;
mod retention;
mod row_sizes;
mod stages;
mod status;
mod streams;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use laminar_core::ids::{NodeId, PartitionId, RequestId};
use laminar_core::metadata::{MetadataChange, MetadataResponse, Rejection};
use laminar_crew::Crew;
use laminar_log::entry::BlockId;
use laminar_raft::{CrewRuntime, DataReplica, RaftCoordinator};
use laminar_rpc::{Failure, proto};
use laminar_store::BlockStore;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use locate::{gone, holder, tag, tags, writer_name};
pub(crate) use status::resident_bytes;

use crate::config::NodeConfig;
use crate::error::{of_coordination, of_rejection};
use crate::folder::Folder;
use crate::machines::NodeMachines;
use crate::metrics::Figures;
use crate::random;
use crate::refused::RefusedWrites;

/// The server of an embedded node. More servers come with more nodes.
pub(crate) const SERVER: NodeId = NodeId(1);

/// A node. Clones are the same node; it runs until [`shutdown`](Node::shutdown).
#[derive(Clone)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: NodeConfig,
    pub(crate) folder: Folder,
    pub(crate) id: NodeId,
    pub(crate) started_at_ms: u64,
    /// Its tasks end when the last handle of it does.
    pub(crate) _crew: Crew,
    pub(crate) metadata: RaftCoordinator<CrewRuntime>,
    pub(crate) data: DataReplica<CrewRuntime>,
    pub(crate) store: BlockStore,
    pub(crate) machines: Arc<NodeMachines>,
    pub(crate) refused: RefusedWrites,
    /// What is counted as it happens.
    pub(crate) figures: Arc<Figures>,
    /// Where figures are answered over HTTP, and who does it.
    pub(crate) metrics_server: Mutex<Option<(SocketAddr, JoinHandle<()>)>>,
    /// When each worker was heard last.
    pub(crate) workers: Mutex<BTreeMap<NodeId, Instant>>,
    /// When each client was heard last that keeps a detached node.
    pub(crate) clients: Mutex<BTreeMap<String, Instant>>,
    /// What happened to partitions lately.
    pub(crate) events: Mutex<std::collections::VecDeque<String>>,
    /// Blocks that records name, or named since the node was opened: those of them that are still there.
    pub(crate) named_blocks: Mutex<BTreeSet<BlockId>>,
    /// Since when partitions are paused.
    pub(crate) paused_since: Mutex<BTreeMap<PartitionId, u64>>,
    /// Whether the node is going, told to everybody who waits.
    pub(crate) stopping: watch::Sender<bool>,
}

impl Node {
    /// This node.
    pub fn id(&self) -> NodeId {
        self.inner.id
    }

    /// Its folder.
    pub fn folder(&self) -> &Folder {
        &self.inner.folder
    }

    /// Changes the metadata. The same request sent again is answered as the first was (OWN-2).
    ///
    /// # Errors
    ///
    /// Stale and Invalid, if the metadata refuses; Unavailable, with an unknown outcome, if nobody says.
    pub(crate) async fn change(
        &self,
        request_id: RequestId,
        changes: Vec<MetadataChange>,
    ) -> Result<MetadataResponse, Failure> {
        self.try_change(request_id, changes).await?.map_err(|rejection| of_rejection(&rejection))
    }

    /// [`change`](Self::change), with a rejection as it is.
    pub(crate) async fn try_change(
        &self,
        request_id: RequestId,
        mut changes: Vec<MetadataChange>,
    ) -> Result<Result<MetadataResponse, Rejection>, Failure> {
        let metadata = &self.inner.metadata;
        let written = match (changes.pop(), changes.is_empty()) {
            (Some(change), true) => metadata.submit(request_id, change).await,
            (last, _) => {
                changes.extend(last);
                metadata.submit_all(request_id, changes).await
            }
        };
        let (_, response) = written.map_err(|error| of_coordination(&error))?;
        Ok(match response {
            MetadataResponse::Rejected(rejection) => Err(rejection),
            applied => Ok(applied),
        })
    }

    /// Waits until the node stops.
    pub(crate) async fn stopped(&self) {
        let mut stopping = self.inner.stopping.subscribe();
        drop(stopping.wait_for(|stopping| *stopping).await);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.inner.stopping.borrow()
    }

    /// How long nobody has needed the node: no client was heard, and no worker.
    pub fn idle_for(&self) -> Duration {
        let newest = |heard: Option<Instant>| heard.map_or(Duration::MAX, |heard| heard.elapsed());
        let clients = newest(lock(&self.inner.clients).values().max().copied());
        let workers = newest(lock(&self.inner.workers).values().max().copied());
        clients.min(workers)
    }

    pub(crate) fn hello(&self, request: &proto::HelloRequest) -> proto::HelloResponse {
        if !request.client_id.is_empty() {
            let mut clients = lock(&self.inner.clients);
            let timeout = self.inner.config.client_timeout;
            clients.retain(|_, heard| heard.elapsed() < timeout * 4);
            if clients.len() < 100_000 {
                clients.insert(request.client_id.clone(), Instant::now());
            }
        }
        self.describe()
    }

    pub(crate) fn describe(&self) -> proto::HelloResponse {
        let (config, identity) = (&self.inner.config, self.inner.folder.identity());
        let metrics_address =
            lock(&self.inner.metrics_server).as_ref().map(|(address, _)| address.to_string());
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        proto::HelloResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            node_id: self.inner.id.0,
            folder_epoch: identity.folder_epoch,
            cluster_id: identity.cluster_id.clone(),
            store_path: self.inner.folder.path().join(open::OBJECTS).to_string_lossy().into_owned(),
            inline_bytes_max: config.inline_bytes_max,
            append_bytes_max: config.append_bytes_max,
            heartbeat_interval_ms: millis(config.heartbeat_interval),
            guard_refresh_ms: millis(config.guard_refresh),
            commit_bytes_max: config.commit_bytes_max,
            commit_parts_max: config.commit_parts_max,
            metrics_address: metrics_address.unwrap_or_default(),
        }
    }
}

/// The request id of a caller, or a new one.
pub(crate) fn request_id(given: Option<&proto::RequestId>) -> RequestId {
    match given {
        Some(id) if (id.high, id.low) != (0, 0) => {
            RequestId((u128::from(id.high) << 64) | u128::from(id.low))
        }
        _ => RequestId(random::bits128().max(1)),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("folder", &self.inner.folder).finish_non_exhaustive()
    }
}
