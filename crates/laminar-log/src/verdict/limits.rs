//! Every limit of the verdict state, with its name, default and range.

use crate::setting::SettingOutOfRange;

/// How much the verdict state may hold. What an entry becomes depends on these, so every replica of a group must have
/// the same (APPLY-2): they are part of the state, and a snapshot brings them along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerdictLimits {
    /// Producers that are known; beyond, the one that was used longest ago is forgotten. From 1 to 1,000,000.
    pub producers_max: u32,
    /// The last appends of a producer that are recognised when they come again. From 1 to 64.
    pub producer_window: u32,
    /// Queries whose last batch is known. None is forgotten while it could write: beyond, new ones are refused. From 1 to
    /// 10,000,000.
    pub queries_max: u32,
    /// Partitions that exist at once; beyond, new ones are refused. From 1 to 16,777,216.
    pub partitions_max: u32,
    /// Records of one partition that are skipped; beyond, a skip is refused. From 1 to 65,536.
    pub skips_max: u32,
    /// Expired blocks that are known by id; beyond, the smallest ids are left to a floor. From 1 to 16,777,216.
    pub expired_blocks_max: u32,
}

impl Default for VerdictLimits {
    fn default() -> Self {
        Self {
            producers_max: 10_000,
            producer_window: 8,
            queries_max: 100_000,
            partitions_max: 100_000,
            skips_max: 1024,
            expired_blocks_max: 65_536,
        }
    }
}

impl VerdictLimits {
    /// Whether every limit is in its range.
    ///
    /// # Errors
    ///
    /// Invalid: the first one that is not.
    pub fn check(&self) -> Result<(), SettingOutOfRange> {
        within("log.producers_max", self.producers_max, 1_000_000)?;
        within("log.producer_window", self.producer_window, 64)?;
        within("log.queries_max", self.queries_max, 10_000_000)?;
        within("log.partitions_max", self.partitions_max, 1 << 24)?;
        within("log.skips_max", self.skips_max, 1 << 16)?;
        within("log.expired_blocks_max", self.expired_blocks_max, 1 << 24)
    }
}

fn within(name: &'static str, given: u32, max: u32) -> Result<(), SettingOutOfRange> {
    SettingOutOfRange::check(name, u64::from(given), 1, u64::from(max))
}

#[cfg(test)]
mod tests {
    use laminar_core::error::ErrorKind;

    use super::*;

    #[test]
    fn defaults_are_in_range_and_both_ends_of_every_range_are_checked() {
        let default = VerdictLimits::default();
        default.check().unwrap();
        type Set = fn(&mut VerdictLimits, u32);
        let limits: [(&str, u32, Set); 6] = [
            ("log.producers_max", 1_000_000, |limits, value| limits.producers_max = value),
            ("log.producer_window", 64, |limits, value| limits.producer_window = value),
            ("log.queries_max", 10_000_000, |limits, value| limits.queries_max = value),
            ("log.partitions_max", 1 << 24, |limits, value| limits.partitions_max = value),
            ("log.skips_max", 1 << 16, |limits, value| limits.skips_max = value),
            ("log.expired_blocks_max", 1 << 24, |limits, value| limits.expired_blocks_max = value),
        ];
        for (name, max, set) in limits {
            for (given, right) in [(0, false), (1, true), (max, true), (max + 1, false)] {
                let mut limits = default;
                set(&mut limits, given);
                let expected = if right {
                    Ok(())
                } else {
                    Err(SettingOutOfRange { name, given: given.into(), min: 1, max: max.into() })
                };
                assert_eq!(limits.check(), expected);
            }
        }
        let error = VerdictLimits { producer_window: 99, ..default }.check().unwrap_err();
        assert_eq!(error.to_string(), "log.producer_window is 99; it must be from 1 to 64");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
