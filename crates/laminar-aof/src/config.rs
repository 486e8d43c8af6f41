//! Every limit of a log and of the committer, with its name, default and range.

use std::time::Duration;

use crate::error::AofError;

/// When an append is acknowledged, and who waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Written and synced at once, together with everything else that waits.
    Synced,
    /// Written soon and synced in the background; for logs that another log can redo.
    Background,
}

/// How one log is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AofConfig {
    /// When an append is acknowledged.
    pub durability: Durability,
    /// The sequence of the first record of a new log.
    pub first_sequence: u64,
    /// How long the file of a small log is made; from 65,536. Segments grow with the log.
    pub segment_bytes_min: u64,
    /// How long the file of a large log is made; up to 4 GiB.
    pub segment_bytes_max: u64,
    /// The largest payload of a record; up to 1 GiB.
    pub record_bytes_max: u64,
    /// What may wait to be written, headers included; a second as much may be being written.
    pub pending_bytes_max: u64,
    /// The distance of two places in the index. A point read reads that much on average.
    pub index_interval_bytes: u64,
    /// How much a reader reads at a time.
    pub read_chunk_bytes: u64,
    /// Removed files of full size that are kept to be used again.
    pub recycled_files_max: u32,
    /// Verify every record of sealed segments when opening, instead of trusting their trailers.
    pub verify_sealed: bool,
}

impl Default for AofConfig {
    fn default() -> Self {
        Self {
            durability: Durability::Synced,
            first_sequence: 0,
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 64 << 20,
            record_bytes_max: 16 << 20,
            pending_bytes_max: 32 << 20,
            index_interval_bytes: 16 << 10,
            read_chunk_bytes: 512 << 10,
            recycled_files_max: 2,
            verify_sealed: false,
        }
    }
}

impl AofConfig {
    pub(crate) fn check(&self) -> Result<(), AofError> {
        within("segment_bytes_max", self.segment_bytes_max, 1 << 16, 1 << 32)?;
        within("segment_bytes_min", self.segment_bytes_min, 1 << 16, self.segment_bytes_max)?;
        within("record_bytes_max", self.record_bytes_max, 1, 1 << 30)?;
        // One record of the largest size must fit, with its header.
        within("pending_bytes_max", self.pending_bytes_max, self.record_bytes_max + 64, 1 << 31)?;
        within("index_interval_bytes", self.index_interval_bytes, 1 << 9, 1 << 24)?;
        within("read_chunk_bytes", self.read_chunk_bytes, 1 << 12, 1 << 26)?;
        within("recycled_files_max", u64::from(self.recycled_files_max), 0, 1024)
    }
}

/// How the one committer of a process works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitterConfig {
    /// Open logs.
    pub logs_max: u32,
    /// Files kept open between uses.
    pub open_files_max: u32,
    /// Files with bytes that are not synced yet; when it is reached they are synced at once. They are open too.
    pub unsynced_files_max: u32,
    /// From so many files on, one sync of the file system replaces a sync of each file in the background.
    pub sync_all_files_min: u32,
    /// How long a log is idle before an empty group raises its synced mark.
    pub mark_idle: Duration,
    /// How often logs of [`Durability::Background`] are synced.
    pub background_sync_interval: Duration,
    /// How often the committer lets others run while it waits for callers that came together last time.
    pub gather_yields_max: u32,
    /// How long closing or opening waits for work under way on the same log.
    pub close_wait: Duration,
}

impl Default for CommitterConfig {
    fn default() -> Self {
        Self {
            logs_max: 65_536,
            open_files_max: 512,
            unsynced_files_max: 512,
            sync_all_files_min: 64,
            mark_idle: Duration::from_millis(5),
            background_sync_interval: Duration::from_secs(1),
            gather_yields_max: 1000,
            close_wait: Duration::from_secs(30),
        }
    }
}

impl CommitterConfig {
    pub(crate) fn check(&self) -> Result<(), AofError> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        within("logs_max", u64::from(self.logs_max), 1, 1 << 24)?;
        within("open_files_max", u64::from(self.open_files_max), 1, 1 << 20)?;
        within("unsynced_files_max", u64::from(self.unsynced_files_max), 1, 1 << 20)?;
        within("sync_all_files_min", u64::from(self.sync_all_files_min), 2, u64::from(u32::MAX))?;
        within("mark_idle in milliseconds", millis(self.mark_idle), 1, 60_000)?;
        within(
            "background_sync_interval in milliseconds",
            millis(self.background_sync_interval),
            1,
            3_600_000,
        )?;
        within("gather_yields_max", u64::from(self.gather_yields_max), 0, 1_000_000)?;
        within("close_wait in milliseconds", millis(self.close_wait), 1, 3_600_000)
    }
}

fn within(name: &'static str, given: u64, min: u64, max: u64) -> Result<(), AofError> {
    if (min..=max).contains(&given) {
        Ok(())
    } else {
        Err(AofError::SettingOutOfRange { name, given, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_range_and_every_bound_is_checked() {
        AofConfig::default().check().unwrap();
        CommitterConfig::default().check().unwrap();
        let small = AofConfig { segment_bytes_max: 512, ..AofConfig::default() };
        assert_eq!(
            small.check().unwrap_err().to_string(),
            "segment_bytes_max is 512; it must be from 65536 to 4294967296"
        );
        let crossed = AofConfig { segment_bytes_min: 1 << 30, ..AofConfig::default() };
        assert!(matches!(
            crossed.check(),
            Err(AofError::SettingOutOfRange { name: "segment_bytes_min", .. })
        ));
        let tight = AofConfig { pending_bytes_max: 1 << 20, ..AofConfig::default() };
        assert!(matches!(tight.check(), Err(AofError::SettingOutOfRange { name: "pending_bytes_max", .. })));
        let none = CommitterConfig { logs_max: 0, ..CommitterConfig::default() };
        assert!(matches!(none.check(), Err(AofError::SettingOutOfRange { name: "logs_max", .. })));
    }
}
