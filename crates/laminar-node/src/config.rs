//! Every setting of a node, with its name and default.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use laminar_core::metadata::PARTITIONS_MAX;
use laminar_crew::Crew;
use laminar_raft::{RaftCoordinatorConfig, ReplicaConfig};

/// How a node is run.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Where it listens (`node.listen`). Port 0 is any that is free.
    pub listen: SocketAddr,
    /// Where it answers `GET /metrics` and `GET /health`, if anywhere (`node.metrics_address`). Port 0 is any that is free.
    pub metrics_address: Option<SocketAddr>,
    /// The data group.
    pub data: ReplicaConfig,
    /// The metadata group.
    pub metadata: RaftCoordinatorConfig,
    /// The most bytes of rows that an append carries in the entry (`node.inline_bytes_max`).
    pub inline_bytes_max: u64,
    /// The most bytes of rows of one append in all, in staged blocks too (`node.append_bytes_max`).
    pub append_bytes_max: u64,
    /// The most bytes of rows that tasks commit together, nearly all in staged blocks (`node.commit_bytes_max`).
    pub commit_bytes_max: u64,
    /// The most parts that tasks commit together; each is a record of the log (`node.commit_parts_max`).
    pub commit_parts_max: u32,
    /// How often a worker is to be heard (`node.heartbeat_interval`).
    pub heartbeat_interval: Duration,
    /// A worker that was not heard for so long counts as failed; what it claimed stays claimed
    /// (`node.worker_timeout`).
    pub worker_timeout: Duration,
    /// How often guards are refreshed, should the watch be silent (`node.guard_refresh`).
    pub guard_refresh: Duration,
    /// How often rows are looked for that are older or more than their stream keeps (`node.retention_interval`).
    pub retention_interval: Duration,
    /// How often staged blocks are looked for that nothing names (`node.stage_interval`).
    pub stage_interval: Duration,
    /// How old such a block must be to be deleted: whoever staged it has committed it by then, or never will
    /// (`node.stage_age`).
    pub stage_age: Duration,
    /// How long opening waits for the groups to have everything again (`node.recovery_timeout`).
    pub recovery_timeout: Duration,
    /// How long closing waits for the node to stop; it goes on stopping after that (`node.close_timeout`).
    pub close_timeout: Duration,
    /// How long a call may take that names no time of its own (`node.call_timeout`).
    pub call_timeout: Duration,
    /// Runs of writers that are over and still known by name, for `why` (`node.workers_kept_max`).
    pub workers_kept_max: usize,
    /// A file that says which disk faults the node has on purpose, for chaos tests (`node.disk_faults`).
    pub disk_faults: Option<PathBuf>,
    /// A client that was not heard for so long does not keep a detached node (`node.client_timeout`).
    pub client_timeout: Duration,
    /// Who runs the tasks of the groups: callers of this process help those that they know. None: a crew of its own.
    pub crew: Option<Crew>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        let mut data = ReplicaConfig::default();
        // What the metadata accepts the data log must accept too: else a stream would stay half made.
        data.segmented.verdict.partitions_max = u32::try_from(PARTITIONS_MAX).unwrap_or(u32::MAX);
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            metrics_address: None,
            data,
            metadata: RaftCoordinatorConfig::default(),
            inline_bytes_max: 1 << 20,
            append_bytes_max: 256 << 20,
            commit_bytes_max: 256 << 30,
            commit_parts_max: 100_000,
            heartbeat_interval: Duration::from_secs(1),
            worker_timeout: Duration::from_secs(10),
            guard_refresh: Duration::from_secs(2),
            retention_interval: Duration::from_secs(2),
            stage_interval: Duration::from_secs(600),
            stage_age: Duration::from_secs(24 * 3600),
            recovery_timeout: Duration::from_secs(60),
            close_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(30),
            workers_kept_max: 1000,
            disk_faults: None,
            client_timeout: Duration::from_secs(5),
            crew: None,
        }
    }
}
