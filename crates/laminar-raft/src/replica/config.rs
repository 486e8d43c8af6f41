//! What a replica is made of, and how it is run.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use laminar_aof::Committer;
use laminar_core::ids::NodeId;
use laminar_log::dispatcher::{AdmissionSignal, DispatcherConfig};
use laminar_log::tracking::{AckPolicy, MasterPolicy};
use laminar_log::{MachineFactory, SegmentedConfig, SegmentedLogConfig, SettingOutOfRange};

use crate::config::RaftSettings;

/// Tells the time that rows get, in milliseconds since 1970. It may jump; what a replica writes never goes back.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What a replica is built on.
#[derive(Clone)]
pub struct ReplicaParts {
    /// Its folder. The Raft log is in `raft`, the partitions' logs in `partitions`, snapshots in `snapshots`.
    pub dir: PathBuf,
    /// This node.
    pub node: NodeId,
    /// Writes for all logs of the process.
    pub committer: Committer,
    /// Makes the partitions' machines.
    pub machines: Arc<dyn MachineFactory>,
    /// The time that proposals carry.
    pub clock: WallClock,
    /// What else admission depends on.
    pub signals: Vec<Arc<dyn AdmissionSignal>>,
}

impl fmt::Debug for ReplicaParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaParts")
            .field("dir", &self.dir)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// How a replica is run. Every wait, queue and batch has its bound here.
#[derive(Debug, Clone)]
pub struct ReplicaConfig {
    /// Tells the figures of this group from those of others in the process.
    pub group: u32,
    /// Raft itself.
    pub raft: RaftSettings,
    /// The Raft log.
    pub log: SegmentedLogConfig,
    /// Payload bytes of log entries that are read at once (`raft.read_bytes_max`).
    pub read_bytes_max: u64,
    /// The partitions.
    pub segmented: SegmentedConfig,
    /// Admission.
    pub dispatcher: DispatcherConfig,
    /// Proposals that wait to be handed to Raft; more wait before they are queued (`raft.proposals_max`).
    pub proposals_max: usize,
    /// Proposals that are handed to Raft with one message (`raft.proposal_batch_max`).
    pub proposal_batch_max: usize,
    /// Their bytes; a batch has one proposal at least (`raft.proposal_batch_bytes_max`).
    pub proposal_batch_bytes_max: usize,
    /// How long a proposal may take before its outcome counts as unknown (`raft.proposal_timeout`).
    pub proposal_timeout: Duration,
    /// The wait before a group whose storage failed is started again; it doubles with each failure until the group has
    /// run for `rebuild_backoff_max` (`raft.rebuild_backoff_min`).
    pub rebuild_backoff_min: Duration,
    /// The longest such wait (`raft.rebuild_backoff_max`).
    pub rebuild_backoff_max: Duration,
    /// How long a replica whose log was cut waits for a leader to catch up with, before it votes and acknowledges all
    /// the same (`raft.cut_wait`).
    pub cut_wait: Duration,
    /// How long the parts of a group that has ended may take to let go of its files (`raft.close_wait`).
    pub close_wait: Duration,
    /// How often figures are published, and what is committed is written if nothing else is (`raft.tick`).
    pub tick: Duration,
    /// When enough replicas have a record.
    pub acks: AckPolicy,
    /// Who is the master of a partition.
    pub master: MasterPolicy,
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        Self {
            group: 0,
            raft: RaftSettings::default(),
            log: SegmentedLogConfig::default(),
            read_bytes_max: crate::log_storage::RaftLog::READ_BYTES_MAX,
            segmented: SegmentedConfig::default(),
            dispatcher: DispatcherConfig::default(),
            proposals_max: 1024,
            proposal_batch_max: 256,
            proposal_batch_bytes_max: 4 << 20,
            proposal_timeout: Duration::from_secs(30),
            rebuild_backoff_min: Duration::from_millis(20),
            rebuild_backoff_max: Duration::from_secs(5),
            cut_wait: Duration::from_secs(10),
            close_wait: Duration::from_secs(10),
            tick: Duration::from_secs(1),
            acks: AckPolicy::default(),
            master: MasterPolicy::default(),
        }
    }
}

impl ReplicaConfig {
    /// Checks every setting but those of admission, of openraft and of files, which are checked by those who use them.
    ///
    /// # Errors
    /// Invalid: one is out of its range.
    pub fn check(&self) -> Result<(), SettingOutOfRange> {
        const MILLISECOND: Duration = Duration::from_millis(1);
        const HOUR: Duration = Duration::from_secs(3600);
        let (check, time) = (SettingOutOfRange::check, SettingOutOfRange::check_time);
        self.segmented.check()?;
        check("raft.snapshot_bytes", self.raft.snapshot_bytes, 1 << 16, 1 << 40)?;
        check("raft.kept_bytes", self.raft.kept_bytes, 0, 1 << 40)?;
        check("raft.read_bytes_max", self.read_bytes_max, 1, 1 << 30)?;
        check("raft.proposals_max", self.proposals_max as u64, 1, 1 << 20)?;
        check("raft.proposal_batch_max", self.proposal_batch_max as u64, 1, 1 << 16)?;
        check("raft.proposal_batch_bytes_max", self.proposal_batch_bytes_max as u64, 1, 1 << 30)?;
        time("raft.proposal_timeout_ms", self.proposal_timeout, MILLISECOND, HOUR)?;
        time("raft.rebuild_backoff_min_ms", self.rebuild_backoff_min, MILLISECOND, HOUR)?;
        time("raft.rebuild_backoff_max_ms", self.rebuild_backoff_max, self.rebuild_backoff_min, HOUR)?;
        time("raft.cut_wait_ms", self.cut_wait, Duration::ZERO, HOUR)?;
        time("raft.close_wait_ms", self.close_wait, MILLISECOND, HOUR)?;
        time("raft.tick_ms", self.tick, MILLISECOND, HOUR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_range_and_what_is_not_is_told_by_name() {
        ReplicaConfig::default().check().unwrap();
        type Set = fn(&mut ReplicaConfig);
        let wrong: [(&str, Set); 8] = [
            ("log.apply_attempts_max", |config| config.segmented.apply_attempts_max = 0),
            ("raft.snapshot_bytes", |config| config.raft.snapshot_bytes = 65_535),
            ("raft.kept_bytes", |config| config.raft.kept_bytes = u64::MAX),
            ("raft.proposals_max", |config| config.proposals_max = 0),
            ("raft.proposal_batch_max", |config| config.proposal_batch_max = 0),
            ("raft.rebuild_backoff_max_ms", |config| config.rebuild_backoff_max = Duration::ZERO),
            ("raft.proposal_timeout_ms", |config| config.proposal_timeout = Duration::ZERO),
            ("raft.tick_ms", |config| config.tick = Duration::ZERO),
        ];
        for (name, set) in wrong {
            let mut config = ReplicaConfig::default();
            set(&mut config);
            assert_eq!(config.check().unwrap_err().name, name);
        }
    }
}
