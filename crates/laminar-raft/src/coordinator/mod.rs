//! The metadata group: one node's part in it, to write to, to read from and to watch.
//!
//! ```text
//!   write (write.rs)                       read_local, read_linearizable (read.rs)      watch (watch.rs)
//!     | an entry as one row                             |                                   |
//!     v                                                 v                                   v
//!   DataReplica: Raft, segmented log  --apply-->  MetadataMachine (machine.rs)  -->  Published (published.rs)
//! ```
//!
//! The group is a data group with one partition, whose machine is the metadata: faults of the storage, recovery,
//! snapshots and their installation are those of [`DataReplica`]. The verdict of the group's log lets every entry
//! through; what may change is for [`DeltaMetadata`](laminar_core::metadata::DeltaMetadata) to say when it is applied.

mod config;
mod error;
mod machine;
mod published;
mod read;
mod watch;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use laminar_core::ids::{LogIndex, NodeId};
use openraft::network::NetSnapshot;
use openraft::{AsyncRuntime, Instant, RaftNetworkFactory};

pub use self::config::{CoordinatorParts, RaftCoordinatorConfig};
pub use self::error::CoordinationError;
pub use self::watch::{OwnershipWatch, WatchEvent};
pub use self::write::{Registration, Written};

use self::machine::{MetadataMachines, PARTITION};
use self::published::Published;
use crate::machine::SnapshotData;
use crate::replica::{DataReplica, ReplicaParts, ReplicaPhase, ReplicaStatus, WallClock};
use crate::types::{DataConfig, Node};

/// How often it is looked whether somebody leads.
const POLL: Duration = Duration::from_millis(2);

/// One node's part in the metadata group. Clones are the same coordinator.
pub struct RaftCoordinator<R: AsyncRuntime> {
    inner: Arc<Inner<R>>,
}

struct Inner<R: AsyncRuntime> {
    replica: DataReplica<R>,
    published: Arc<Published>,
    clock: WallClock,
    config: RaftCoordinatorConfig,
}

/// How the metadata group is on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorStatus {
    /// The replica of the group.
    pub replica: ReplicaStatus,
    /// The last metadata entry that was applied here.
    pub applied: LogIndex,
    /// Why nothing is applied any more.
    pub paused: Option<String>,
    /// Watches that are open.
    pub watches: usize,
    /// What failed last, snapshots included.
    pub last_fault: Option<String>,
}

impl<R: AsyncRuntime> RaftCoordinator<R> {
    /// Opens the metadata group in its folder and lets this node take part. On a simulated runtime this must be called
    /// inside of it.
    ///
    /// # Errors
    ///
    /// Corrupt, Invalid, Overloaded and Unavailable, as the log and the snapshot are opened.
    pub async fn open<N>(
        parts: CoordinatorParts,
        config: RaftCoordinatorConfig,
        network: N,
    ) -> Result<Self, CoordinationError>
    where
        N: RaftNetworkFactory<DataConfig<R>> + Clone,
        N::Network: NetSnapshot<DataConfig<R>, SnapshotData = SnapshotData>,
    {
        let published = Arc::new(Published::new(config.answers_max, config.changes_max));
        let CoordinatorParts { dir, node, committer, clock } = parts;
        let parts = ReplicaParts {
            dir,
            node,
            committer,
            machines: Arc::new(MetadataMachines(Arc::clone(&published))),
            clock: Arc::clone(&clock),
            signals: Vec::new(),
        };
        let replica = DataReplica::open(parts, config.replica.clone(), network).await?;
        Ok(Self { inner: Arc::new(Inner { replica, published, clock, config }) })
    }

    /// Gives a new group its members. To be called on one of them, once.
    ///
    /// # Errors
    ///
    /// Invalid, if the group has members already, or this node is none of them. Unavailable, if the replica does not
    /// serve.
    pub async fn initialize(&self, members: BTreeMap<u64, Node>) -> Result<(), CoordinationError> {
        Ok(self.inner.replica.initialize(members).await?)
    }

    /// Whether the group has members.
    pub async fn is_initialized(&self) -> bool {
        match self.inner.replica.raft() {
            Ok(raft) => raft.is_initialized().await.unwrap_or(false),
            Err(_) => false,
        }
    }

    /// Returns when this node has everything again that was committed before it was opened.
    ///
    /// # Errors
    ///
    /// Unavailable, if that takes longer than `timeout`, or the replica has stopped.
    pub async fn wait_recovered(&self, timeout: Duration) -> Result<(), CoordinationError> {
        Ok(self.inner.replica.wait_recovered(timeout).await?)
    }

    /// The last metadata entry that was applied here. Entries that carry no metadata are passed over.
    pub fn applied_index(&self) -> LogIndex {
        self.inner.published.applied()
    }

    /// Tells every change of ownership after a metadata entry: that of the last event of an earlier watch, or
    /// [`LogIndex::NONE`] to be told everything first. A watch on another node may be resumed here; it waits until this
    /// node is as far.
    pub fn watch(&self, after: LogIndex) -> OwnershipWatch {
        OwnershipWatch::new(Arc::clone(&self.inner.published), after)
    }

    /// Who leads the group, as far as this node knows.
    pub fn current_leader(&self) -> Option<NodeId> {
        self.inner.replica.status().leader
    }

    /// Whether this node leads, as far as it knows.
    pub fn is_leader(&self) -> bool {
        let status = self.inner.replica.status();
        status.phase == ReplicaPhase::Serving && status.leader == Some(status.node)
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.inner.replica.node()
    }

    /// The replica below: what other nodes send is handed to it.
    pub fn replica(&self) -> &DataReplica<R> {
        &self.inner.replica
    }

    /// How the group is on this node.
    pub fn status(&self) -> CoordinatorStatus {
        let replica = self.inner.replica.status();
        let partition = self.inner.replica.machine().status(PARTITION);
        CoordinatorStatus {
            applied: self.applied_index(),
            paused: partition.and_then(|partition| partition.paused),
            watches: self.inner.published.feed().watches(),
            last_fault: replica.snapshot_fault.clone().or_else(|| replica.last_fault.clone()),
            replica,
        }
    }

    /// Has a snapshot built of everything that is applied now, and waits for it.
    ///
    /// # Errors
    ///
    /// Unavailable, if it is not there within `snapshot_timeout`, or the replica does not serve. The one before stays.
    pub async fn snapshot(&self) -> Result<LogIndex, CoordinationError> {
        let (begun, timeout) = (R::Instant::now(), self.inner.config.snapshot_timeout);
        let applied = self.inner.replica.machine().decided_index();
        loop {
            let status = self.inner.replica.status();
            let reached = status.snapshot.map_or(LogIndex::NONE, |id| id.index);
            if reached >= applied {
                return Ok(reached);
            }
            if begun.elapsed() >= timeout {
                let fault = status.snapshot_fault;
                return Err(CoordinationError::Snapshot { index: applied, waited: timeout, fault });
            }
            // Asked again each time: openraft drops the wish while it builds one.
            self.inner.replica.snapshot().await?;
            R::sleep(POLL).await;
        }
    }

    /// Ends the group on this node: watches end, nothing is served any more, everything is written, and the files are
    /// closed when this returns.
    ///
    /// # Errors
    ///
    /// Unavailable, if what was written last could not be synced. The files are closed all the same.
    pub async fn shutdown(&self) -> Result<(), CoordinationError> {
        let ended = self.inner.replica.shutdown().await;
        self.inner.published.close();
        ended.map_err(CoordinationError::Shutdown)
    }
}

impl<R: AsyncRuntime> Clone for RaftCoordinator<R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<R: AsyncRuntime> fmt::Debug for RaftCoordinator<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftCoordinator").field("replica", &self.inner.replica).finish_non_exhaustive()
    }
}
