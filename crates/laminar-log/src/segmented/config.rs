//! Every limit of the segmented state machine, with its name, default and range.

use std::time::Duration;

use crate::partition_log::PartitionLogConfig;
use crate::setting::SettingOutOfRange;
use crate::verdict::VerdictLimits;

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// How the partitions of a replica are run.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentedConfig {
    /// What `apply` keeps, and how much of it.
    pub verdict: VerdictLimits,
    /// How the log of a partition is kept.
    pub partition_log: PartitionLogConfig,
    /// How often a failed apply is tried before its partition pauses (`log.apply_attempts_max`).
    pub apply_attempts_max: u32,
    /// The wait before the second try; it doubles with each (`log.apply_backoff_min`).
    pub apply_backoff_min: Duration,
    /// The longest wait between two tries (`log.apply_backoff_max`).
    pub apply_backoff_max: Duration,
    /// Payloads that wait in memory to be applied, for each partition; what is beyond is read again when its turn
    /// comes (`log.apply_queue_bytes_max`).
    pub apply_queue_bytes_max: usize,
    /// The first wait before a failed partition log is opened again; it doubles with each (`log.repair_backoff_min`).
    pub repair_backoff_min: Duration,
    /// The longest wait between two such tries (`log.repair_backoff_max`).
    pub repair_backoff_max: Duration,
    /// How long a snapshot waits for partitions to reach its index; those that do not, enter with their last state and
    /// the records since (`log.snapshot_wait`).
    pub snapshot_wait: Duration,
    /// How long a snapshot waits for the partitions' logs to be on disk (`log.snapshot_sync_wait`).
    pub snapshot_sync_wait: Duration,
    /// How often logs that failed and workers that stand still are looked for (`log.watch_interval`).
    pub watch_interval: Duration,
    /// Events that wait to be read; the oldest are dropped and counted (`log.events_max`).
    pub events_max: usize,
}

impl Default for SegmentedConfig {
    fn default() -> Self {
        Self {
            verdict: VerdictLimits::default(),
            partition_log: PartitionLogConfig::default(),
            apply_attempts_max: 5,
            apply_backoff_min: Duration::from_millis(10),
            apply_backoff_max: Duration::from_secs(1),
            apply_queue_bytes_max: 1 << 20,
            repair_backoff_min: Duration::from_millis(20),
            repair_backoff_max: Duration::from_secs(5),
            snapshot_wait: Duration::from_secs(2),
            snapshot_sync_wait: Duration::from_secs(30),
            watch_interval: Duration::from_millis(100),
            events_max: 4096,
        }
    }
}

impl SegmentedConfig {
    /// Checks every setting but those of the files, which are checked where a log is opened.
    ///
    /// # Errors
    /// Invalid: one is out of its range.
    pub fn check(&self) -> Result<(), SettingOutOfRange> {
        let (check, time) = (SettingOutOfRange::check, SettingOutOfRange::check_time);
        self.verdict.check()?;
        check("log.apply_attempts_max", self.apply_attempts_max.into(), 1, 1_000_000)?;
        time("log.apply_backoff_min_ms", self.apply_backoff_min, MILLISECOND, HOUR)?;
        time("log.apply_backoff_max_ms", self.apply_backoff_max, self.apply_backoff_min, HOUR)?;
        check("log.apply_queue_bytes_max", self.apply_queue_bytes_max as u64, 0, 16 << 30)?;
        time("log.repair_backoff_min_ms", self.repair_backoff_min, MILLISECOND, HOUR)?;
        time("log.repair_backoff_max_ms", self.repair_backoff_max, self.repair_backoff_min, HOUR)?;
        time("log.snapshot_wait_ms", self.snapshot_wait, Duration::ZERO, HOUR)?;
        time("log.snapshot_sync_wait_ms", self.snapshot_sync_wait, MILLISECOND, HOUR)?;
        time("log.watch_interval_ms", self.watch_interval, MILLISECOND, HOUR)?;
        check("log.events_max", self.events_max as u64, 1, 1 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_range_and_what_is_not_is_told_by_name() {
        SegmentedConfig::default().check().unwrap();
        type Set = fn(&mut SegmentedConfig);
        let wrong: [(&str, Set); 8] = [
            ("log.queries_max", |config| config.verdict.queries_max = 0),
            ("log.apply_attempts_max", |config| config.apply_attempts_max = 0),
            ("log.apply_backoff_min_ms", |config| config.apply_backoff_min = Duration::ZERO),
            ("log.apply_backoff_max_ms", |config| config.apply_backoff_max = MILLISECOND),
            ("log.repair_backoff_max_ms", |config| config.repair_backoff_max = MILLISECOND),
            ("log.snapshot_sync_wait_ms", |config| config.snapshot_sync_wait = Duration::ZERO),
            ("log.watch_interval_ms", |config| config.watch_interval = HOUR + MILLISECOND),
            ("log.events_max", |config| config.events_max = 0),
        ];
        for (name, set) in wrong {
            let mut config = SegmentedConfig::default();
            set(&mut config);
            assert_eq!(config.check().unwrap_err().name, name);
        }
    }
}
