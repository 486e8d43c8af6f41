//! Every limit of admission, with its name, default and range.

use std::time::Duration;

use crate::setting::{SettingOutOfRange, millis};

/// What one partition may have queued. A partition may have limits of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionLimits {
    /// `log.partition_ops_max`: records in flight or not applied; 1 to 16,777,216, default 4,096.
    pub ops_max: u64,
    /// `log.partition_bytes_max`: their bytes; from `log.entry_inline_bytes_max` plus 64 KiB to 16 GiB, default 16 MiB.
    pub bytes_max: u64,
    /// `log.partition_age_max_ms`: the age of the oldest record that is not applied; 1 ms to a day, default 10 s.
    pub age_max: Duration,
    /// `log.partition_lag_max`: records not applied that are tolerated for long; 1 to 16,777,216, default 2,048.
    pub lag_max: u64,
}

impl Default for PartitionLimits {
    fn default() -> Self {
        Self { ops_max: 4096, bytes_max: 16 << 20, age_max: Duration::from_secs(10), lag_max: 2048 }
    }
}

/// Every limit of the dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatcherConfig {
    /// What each partition may have queued, unless it has limits of its own.
    pub partition: PartitionLimits,
    /// `log.ops_max`: records in flight or not applied, over all partitions; 1 to 2^32, default 262,144.
    pub ops_max: u64,
    /// `log.bytes_max`: their bytes; from `log.entry_inline_bytes_max` plus 64 KiB to 1 TiB, default 512 MiB.
    pub bytes_max: u64,
    /// `log.age_max_ms`: new records are refused while more than half of the partitions have one that is older and
    /// not applied; 1 ms to a day, default 30 s. One slow partition therefore refuses nothing to the others.
    pub age_max: Duration,
    /// `log.entry_inline_bytes_max`: rows carried in one entry; 1 KiB to 16 MiB, default 1 MiB.
    pub entry_inline_bytes_max: u64,
    /// `log.control_ops_max`: how many records that are no appends (fences, skips, trims) are let in beyond
    /// `ops_max`, whatever the partition's state: they are the way out of it; 1 to 65,536, default 64.
    pub control_ops_max: u64,
    /// `log.throttle_after_ms`: a worker without progress for so long stops admission; 1 ms to an hour, default 2 s.
    pub throttle_after: Duration,
    /// `log.freeze_after_ms`: and after so long the partition counts as frozen; from `throttle_after` to a day,
    /// default 15 s.
    pub freeze_after: Duration,
    /// `log.lag_after_ms`: how long a lag above `lag_max` may last; 0 to a day, default 5 s.
    pub lag_after: Duration,
    /// `log.retry_after_min_ms`: the first back-off of a refused caller; 1 ms to a minute, default 5 ms.
    pub retry_after_min: Duration,
    /// `log.retry_after_max_ms`: the longest; from `retry_after_min` to an hour, default 2 s.
    pub retry_after_max: Duration,
    /// `log.commit_delay_max_ms`: the longest that records are delayed after commit; 0 to a minute, default 50 ms.
    pub commit_delay_max: Duration,
    /// `log.waiters_max`: waiters at barriers; 1 to 2^24, default 65,536.
    pub waiters_max: u64,
    /// `log.waiters_client_max`: waiters of one client; 1 to `waiters_max`, default 1,024.
    pub waiters_client_max: u64,
    /// `log.events_max`: changes of state that are kept until they are taken; the oldest go first; 1 to 2^20, default
    /// 4,096.
    pub events_max: u64,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self {
            partition: PartitionLimits::default(),
            ops_max: 262_144,
            bytes_max: 512 << 20,
            age_max: Duration::from_secs(30),
            entry_inline_bytes_max: 1 << 20,
            control_ops_max: 64,
            throttle_after: Duration::from_secs(2),
            freeze_after: Duration::from_secs(15),
            lag_after: Duration::from_secs(5),
            retry_after_min: Duration::from_millis(5),
            retry_after_max: Duration::from_secs(2),
            commit_delay_max: Duration::from_millis(50),
            waiters_max: 65_536,
            waiters_client_max: 1024,
            events_max: 4096,
        }
    }
}

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// What an entry of the largest payload takes beyond it: headers, and pointers with their paths.
const ENTRY_SPARE_BYTES: u64 = 64 << 10;

impl DispatcherConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// Invalid: one is out of its range.
    pub fn check(&self) -> Result<(), SettingOutOfRange> {
        SettingOutOfRange::check(
            "log.entry_inline_bytes_max",
            self.entry_inline_bytes_max,
            1 << 10,
            16 << 20,
        )?;
        self.check_partition(&self.partition)?;
        SettingOutOfRange::check("log.ops_max", self.ops_max, 1, 1 << 32)?;
        let bytes_min = self.entry_inline_bytes_max + ENTRY_SPARE_BYTES;
        SettingOutOfRange::check("log.bytes_max", self.bytes_max, bytes_min, 1 << 40)?;
        SettingOutOfRange::check("log.age_max_ms", millis(self.age_max), 1, DAY_MS)?;
        SettingOutOfRange::check("log.control_ops_max", self.control_ops_max, 1, 65_536)?;
        SettingOutOfRange::check("log.throttle_after_ms", millis(self.throttle_after), 1, HOUR_MS)?;
        SettingOutOfRange::check(
            "log.freeze_after_ms",
            millis(self.freeze_after),
            millis(self.throttle_after),
            DAY_MS,
        )?;
        SettingOutOfRange::check("log.lag_after_ms", millis(self.lag_after), 0, DAY_MS)?;
        SettingOutOfRange::check("log.retry_after_min_ms", millis(self.retry_after_min), 1, MINUTE_MS)?;
        SettingOutOfRange::check(
            "log.retry_after_max_ms",
            millis(self.retry_after_max),
            millis(self.retry_after_min),
            HOUR_MS,
        )?;
        SettingOutOfRange::check("log.commit_delay_max_ms", millis(self.commit_delay_max), 0, MINUTE_MS)?;
        SettingOutOfRange::check("log.waiters_max", self.waiters_max, 1, 1 << 24)?;
        SettingOutOfRange::check("log.waiters_client_max", self.waiters_client_max, 1, self.waiters_max)?;
        SettingOutOfRange::check("log.events_max", self.events_max, 1, 1 << 20)
    }

    /// Checks the limits of one partition.
    pub(super) fn check_partition(&self, limits: &PartitionLimits) -> Result<(), SettingOutOfRange> {
        let bytes_min = self.entry_inline_bytes_max + ENTRY_SPARE_BYTES;
        SettingOutOfRange::check("log.partition_ops_max", limits.ops_max, 1, 1 << 24)?;
        SettingOutOfRange::check("log.partition_bytes_max", limits.bytes_max, bytes_min, 16 << 30)?;
        SettingOutOfRange::check("log.partition_age_max_ms", millis(limits.age_max), 1, DAY_MS)?;
        SettingOutOfRange::check("log.partition_lag_max", limits.lag_max, 1, 1 << 24)
    }
}

/// How large requests are put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssemblerConfig {
    /// `log.chunk_bytes`: a larger request travels in chunks of this size; 4 KiB to 16 MiB, default 64 KiB.
    pub chunk_bytes: u64,
    /// `log.request_bytes_max`: the largest request; from `chunk_bytes` to 64 MiB, default 4 MiB.
    pub request_bytes_max: u64,
    /// `log.assembly_bytes_max`: requests being put together, counted whole; from `request_bytes_max` to 16 GiB,
    /// default 128 MiB. Apart from every other budget, so that a large request never takes a small one's place.
    pub bytes_max: u64,
    /// `log.assembly_client_bytes_max`: those of one client; from `request_bytes_max` to `assembly_bytes_max`,
    /// default 16 MiB.
    pub client_bytes_max: u64,
    /// `log.assembly_client_requests_max`: how many one client has under way; 1 to 4,096, default 16.
    pub client_requests_max: u64,
    /// `log.assembly_idle_max_ms`: a request without a new chunk for so long is dropped; 1 ms to an hour, default 10 s.
    pub idle_max: Duration,
    /// `log.assembly_time_max_ms`: the longest that a request may take; from `idle_max` to an hour, default 60 s.
    pub time_max: Duration,
    /// `log.assembly_remembered_max`: finished requests whose late chunks are recognised; 0 to 2^20, default 4,096.
    pub remembered_max: u64,
    /// `log.assembly_retry_after_ms`: when to try again if there is no room; 1 ms to a minute, default 50 ms.
    pub retry_after: Duration,
}

impl Default for AssemblerConfig {
    fn default() -> Self {
        Self {
            chunk_bytes: 64 << 10,
            request_bytes_max: 4 << 20,
            bytes_max: 128 << 20,
            client_bytes_max: 16 << 20,
            client_requests_max: 16,
            idle_max: Duration::from_secs(10),
            time_max: Duration::from_secs(60),
            remembered_max: 4096,
            retry_after: Duration::from_millis(50),
        }
    }
}

impl AssemblerConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// Invalid: one is out of its range.
    pub fn check(&self) -> Result<(), SettingOutOfRange> {
        SettingOutOfRange::check("log.chunk_bytes", self.chunk_bytes, 4 << 10, 16 << 20)?;
        SettingOutOfRange::check(
            "log.request_bytes_max",
            self.request_bytes_max,
            self.chunk_bytes,
            64 << 20,
        )?;
        SettingOutOfRange::check("log.assembly_bytes_max", self.bytes_max, self.request_bytes_max, 16 << 30)?;
        let client_bytes = self.client_bytes_max;
        SettingOutOfRange::check(
            "log.assembly_client_bytes_max",
            client_bytes,
            self.request_bytes_max,
            self.bytes_max,
        )?;
        SettingOutOfRange::check("log.assembly_client_requests_max", self.client_requests_max, 1, 4096)?;
        SettingOutOfRange::check("log.assembly_idle_max_ms", millis(self.idle_max), 1, HOUR_MS)?;
        SettingOutOfRange::check(
            "log.assembly_time_max_ms",
            millis(self.time_max),
            millis(self.idle_max),
            HOUR_MS,
        )?;
        SettingOutOfRange::check("log.assembly_remembered_max", self.remembered_max, 0, 1 << 20)?;
        SettingOutOfRange::check("log.assembly_retry_after_ms", millis(self.retry_after), 1, MINUTE_MS)
    }
}
