//! How openraft is set up.

use std::sync::Arc;
use std::time::Duration;

use openraft::{Config, ConfigError, SnapshotPolicy};

/// What can be chosen about a Raft group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaftSettings {
    /// The group's name, for messages.
    pub group: String,
    /// A follower that hears nothing for a random time of this length or more stands for election.
    pub election_timeout_min: Duration,
    /// The most that this random time can be.
    pub election_timeout_max: Duration,
    /// How often a leader says that it is there.
    pub heartbeat_interval: Duration,
    /// Entries in one message to a follower.
    pub payload_entries_max: u64,
    /// Entries after which a snapshot is made.
    pub snapshot_entries: u64,
    /// Bytes of the log after which a snapshot is made, however few entries they are (`raft.snapshot_bytes`). A segment of
    /// the log is never longer than a quarter of it, because segments go whole.
    pub snapshot_bytes: u64,
    /// Entries before the snapshot that are kept, for followers that lag a little.
    pub kept_entries: u64,
    /// The most bytes of these entries; never more than a quarter of `snapshot_bytes` (`raft.kept_bytes`).
    pub kept_bytes: u64,
}

impl Default for RaftSettings {
    fn default() -> Self {
        Self {
            group: "data".to_owned(),
            election_timeout_min: Duration::from_millis(150),
            election_timeout_max: Duration::from_millis(300),
            heartbeat_interval: Duration::from_millis(50),
            payload_entries_max: 100,
            snapshot_entries: 10_000,
            snapshot_bytes: 256 << 20,
            kept_entries: 1000,
            kept_bytes: 64 << 20,
        }
    }
}

/// openraft's configuration.
///
/// Pre-vote is on: a node that was cut off does not disturb the leader when it comes back. Leader restore is off: a
/// leader that lost an unsynced tail must not resume its term.
///
/// # Errors
///
/// A setting is out of its range.
pub fn raft_config(settings: &RaftSettings) -> Result<Arc<Config>, ConfigError> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: settings.group.clone(),
        election_timeout_min: millis(settings.election_timeout_min),
        election_timeout_max: millis(settings.election_timeout_max),
        heartbeat_interval: millis(settings.heartbeat_interval),
        max_payload_entries: settings.payload_entries_max,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(settings.snapshot_entries),
        max_in_snapshot_log_to_keep: settings.kept_entries,
        enable_pre_vote: Some(true),
        enable_leader_restore: Some(false),
        ..Config::default()
    };
    Ok(Arc::new(config.validate()?))
}
