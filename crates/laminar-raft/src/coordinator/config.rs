//! What a coordinator is made of, and how it is run.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use laminar_aof::Committer;
use laminar_core::ids::NodeId;
use laminar_log::dispatcher::{DispatcherConfig, PartitionLimits};

use crate::config::RaftSettings;
use crate::replica::{ReplicaConfig, WallClock};

/// The figures of the metadata group are told by this number; data groups count from 0.
const GROUP: u32 = u32::MAX;

/// What a coordinator is built on.
#[derive(Clone)]
pub struct CoordinatorParts {
    /// The folder of the metadata group. Nothing else may be in it.
    pub dir: PathBuf,
    /// This node.
    pub node: NodeId,
    /// Writes for all logs of the process.
    pub committer: Committer,
    /// The time that changes carry.
    pub clock: WallClock,
}

impl fmt::Debug for CoordinatorParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoordinatorParts")
            .field("dir", &self.dir)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// How a coordinator is run.
#[derive(Debug, Clone)]
pub struct RaftCoordinatorConfig {
    /// The group itself: elections after 150 to 300 ms, heartbeats every 50 ms, 100 entries a message, a snapshot every
    /// 10,000 entries.
    pub replica: ReplicaConfig,
    /// How long a write may take, waiting for a leader included (`metadata.write_timeout`).
    pub write_timeout: Duration,
    /// How long a linearizable read may take, waiting for a leader included (`metadata.read_timeout`).
    pub read_timeout: Duration,
    /// How long a snapshot on request may take (`metadata.snapshot_timeout`).
    pub snapshot_timeout: Duration,
    /// Answers that are kept for the writers that wait for them (`metadata.answers_max`).
    pub answers_max: usize,
    /// Changes of ownership that are kept for watches; one that is further behind is told everything anew
    /// (`metadata.changes_max`).
    pub changes_max: usize,
}

impl Default for RaftCoordinatorConfig {
    fn default() -> Self {
        let raft = RaftSettings { group: "metadata".to_owned(), ..RaftSettings::default() };
        // A batch of changes or a schema is one entry, however large: what it may hold is bounded by the metadata.
        let partition = PartitionLimits { bytes_max: 64 << 20, ..PartitionLimits::default() };
        let defaults = DispatcherConfig::default();
        let dispatcher = DispatcherConfig {
            partition,
            entry_inline_bytes_max: 16 << 20,
            // All readers are one client here.
            waiters_client_max: defaults.waiters_max,
            ..defaults
        };
        Self {
            replica: ReplicaConfig { group: GROUP, raft, dispatcher, ..ReplicaConfig::default() },
            write_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(5),
            snapshot_timeout: Duration::from_secs(60),
            answers_max: 16_384,
            changes_max: 65_536,
        }
    }
}
