//! The stream catalogue: which streams there are, and which partitions are theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound::{Included, Unbounded};
use std::str::FromStr;

use super::limits::{Bound, InvalidChange, PathFault};
use crate::error::InvalidError;
use crate::ids::{DataGroupId, PartitionId, PartitionRange, StreamId};

/// What a stream keeps of its rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum StreamMachine {
    /// All rows, in order.
    #[default]
    Log,
    /// The newest row of each key.
    Kv,
    /// What the application's machine of this name makes of them, as [`check_machine_name`] allows.
    Custom(String),
}

impl StreamMachine {
    /// The name users write and read.
    pub fn as_str(&self) -> &str {
        match self {
            StreamMachine::Log => "log",
            StreamMachine::Kv => "kv",
            StreamMachine::Custom(name) => name,
        }
    }

    fn check(&self) -> Result<(), InvalidChange> {
        match self {
            StreamMachine::Log | StreamMachine::Kv => Ok(()),
            StreamMachine::Custom(name) => check_machine_name(name),
        }
    }
}

/// Tells whether `name` can name an application's machine: 1 to 64 letters from a to z, digits, `_` and `-`, and none of
/// our own machines' names.
///
/// # Errors
/// What is wrong with it.
pub fn check_machine_name(name: &str) -> Result<(), InvalidChange> {
    Bound::MachineNameBytes.check(name.len())?;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    if name.chars().all(allowed) && !matches!(name, "log" | "kv") {
        Ok(())
    } else {
        Err(InvalidChange::MachineName { name: name.to_owned() })
    }
}

/// How long rows are kept; nothing set keeps them for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Rows older than this may go, in milliseconds; at least 1.
    pub age_ms: Option<u64>,
    /// The oldest rows beyond so many bytes of a partition may go; at least 1.
    pub bytes: Option<u64>,
}

impl Retention {
    fn check(&self) -> Result<(), InvalidChange> {
        self.age_ms.map_or(Ok(()), |age| Bound::RetentionAge.check_amount(age))?;
        self.bytes.map_or(Ok(()), |bytes| Bound::RetentionBytes.check_amount(bytes))
    }
}

/// What a stream refuses; nothing set leaves it to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamLimits {
    /// The largest row, encoded; at least 1.
    pub row_bytes_max: Option<u64>,
}

impl StreamLimits {
    fn check(&self) -> Result<(), InvalidChange> {
        self.row_bytes_max.map_or(Ok(()), |bytes| Bound::RowBytes.check_amount(bytes))
    }
}

/// Tells whether what may be altered later can be right.
pub(super) fn check_settings(retention: &Retention, limits: &StreamLimits) -> Result<(), InvalidChange> {
    retention.check()?;
    limits.check()
}

impl fmt::Display for StreamMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StreamMachine {
    type Err = InvalidError;

    fn from_str(text: &str) -> Result<Self, InvalidError> {
        match text {
            "log" => Ok(StreamMachine::Log),
            "kv" => Ok(StreamMachine::Kv),
            _ if check_machine_name(text).is_ok() => Ok(StreamMachine::Custom(text.to_owned())),
            _ => Err(InvalidError::StreamMachineUnknown { given: text.to_owned() }),
        }
    }
}

/// A stream of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamDescriptor {
    /// New for every creation: a stream dropped and created again under its path has another one.
    pub stream_id: StreamId,
    /// Its name, as [`check_stream_path`] allows.
    pub path: String,
    /// Its partitions. The first partition of the stream is the first id of the first range, and so on.
    pub partition_ids: Vec<PartitionRange>,
    /// The Arrow IPC bytes of its schema; empty if it carries bytes.
    pub schema: Vec<u8>,
    /// The columns that place a row.
    pub key: Vec<String>,
    /// What it keeps of its rows.
    pub machine: StreamMachine,
    /// The group that holds its data.
    pub data_group: DataGroupId,
    /// Time of the entry that created it, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// How long its rows are kept.
    pub retention: Retention,
    /// What it refuses.
    pub limits: StreamLimits,
}

impl StreamDescriptor {
    /// How many partitions it has.
    pub fn partition_count(&self) -> u32 {
        self.partition_ids.iter().map(|range| range.last().0 - range.first().0 + 1).sum()
    }
}

/// Tells whether `path` can name a stream: `/`-led segments of letters, digits, `.`, `_` and `-`, none of them `.` or
/// `..`, at most 512 bytes together.
///
/// # Errors
/// What is wrong with it.
pub fn check_stream_path(path: &str) -> Result<(), InvalidChange> {
    Bound::StreamPathBytes.check(path.len())?;
    let fault = |fault| InvalidChange::StreamPath { path: path.to_owned(), fault };
    let segments = path.strip_prefix('/').ok_or_else(|| fault(PathFault::NotAbsolute))?;
    for segment in segments.split('/') {
        if segment.is_empty() {
            return Err(fault(PathFault::EmptySegment));
        }
        if segment == "." || segment == ".." {
            return Err(fault(PathFault::DotSegment));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if let Some(character) = segment.chars().find(|c| !allowed(*c)) {
            return Err(fault(PathFault::Character(character)));
        }
    }
    Ok(())
}

/// Tells whether the parts of a stream that its creator chooses can be right.
pub(super) fn check_stream(
    path: &str,
    schema: &[u8],
    key: &[String],
    machine: &StreamMachine,
) -> Result<(), InvalidChange> {
    check_stream_path(path)?;
    machine.check()?;
    Bound::SchemaBytes.check(schema.len())?;
    Bound::KeyColumns.check(key.len())?;
    let mut seen = BTreeSet::new();
    for column in key {
        Bound::KeyColumnBytes.check(column.len())?;
        if !seen.insert(column) {
            return Err(InvalidChange::KeyRepeated { column: column.clone() });
        }
    }
    Ok(())
}

/// The streams, found by path and by partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Catalogue {
    by_path: BTreeMap<String, StreamDescriptor>,
    /// First id of each range to the path of its stream. Derived from `by_path`, and not part of a snapshot.
    by_first_partition: BTreeMap<PartitionId, String>,
}

impl Catalogue {
    pub(super) fn get(&self, path: &str) -> Option<&StreamDescriptor> {
        self.by_path.get(path)
    }

    /// The stream that `partition_id` belongs to.
    pub(super) fn of_partition(&self, partition_id: PartitionId) -> Option<&StreamDescriptor> {
        let (_, path) = self.by_first_partition.range(..=partition_id).next_back()?;
        let stream = &self.by_path[path];
        stream.partition_ids.iter().any(|range| range.contains(partition_id)).then_some(stream)
    }

    /// The streams whose path starts with `prefix`, sorted by path.
    pub(super) fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a StreamDescriptor> {
        self.by_path
            .range::<str, _>((Included(prefix), Unbounded))
            .map(|(_, stream)| stream)
            .take_while(move |stream| stream.path.starts_with(prefix))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &StreamDescriptor> {
        self.by_path.values()
    }

    pub(super) fn len(&self) -> usize {
        self.by_path.len()
    }

    /// Adds a stream whose path and partitions no other stream has.
    pub(super) fn insert(&mut self, stream: StreamDescriptor) {
        for range in &stream.partition_ids {
            self.by_first_partition.insert(range.first(), stream.path.clone());
        }
        let earlier = self.by_path.insert(stream.path.clone(), stream);
        assert!(earlier.is_none(), "a stream is created only where none is");
    }

    /// Gives a stream further partitions, which no stream has. False if there is no such stream.
    pub(super) fn add_range(&mut self, path: &str, range: PartitionRange) -> bool {
        let Some(stream) = self.by_path.get_mut(path) else { return false };
        stream.partition_ids.push(range);
        self.by_first_partition.insert(range.first(), path.to_owned());
        true
    }

    /// Takes back the last [`add_range`](Self::add_range).
    pub(super) fn undo_add_range(&mut self, path: &str) {
        if let Some(range) = self.by_path.get_mut(path).and_then(|stream| stream.partition_ids.pop()) {
            self.by_first_partition.remove(&range.first());
        }
    }

    /// Replaces what may be altered; returns what was there.
    pub(super) fn replace_settings(
        &mut self,
        path: &str,
        retention: Retention,
        limits: StreamLimits,
    ) -> Option<(Retention, StreamLimits)> {
        let stream = self.by_path.get_mut(path)?;
        let before = (stream.retention, stream.limits);
        (stream.retention, stream.limits) = (retention, limits);
        Some(before)
    }

    pub(super) fn remove(&mut self, path: &str) -> Option<StreamDescriptor> {
        let stream = self.by_path.remove(path)?;
        for range in &stream.partition_ids {
            self.by_first_partition.remove(&range.first());
        }
        Some(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_paths_follow_the_rules_on_both_sides() {
        for good in ["/a", "/shop/orders", "/A-1/b_2/c.3", "/...", "/.hidden"] {
            assert_eq!(check_stream_path(good), Ok(()), "{good}");
        }
        let longest = format!("/{}", "a".repeat(511));
        assert_eq!(check_stream_path(&longest), Ok(()));
        assert_eq!(
            check_stream_path(&format!("{longest}a")),
            Err(InvalidChange::OutOfRange { bound: Bound::StreamPathBytes, given: 513 })
        );
        assert_eq!(
            check_stream_path(""),
            Err(InvalidChange::OutOfRange { bound: Bound::StreamPathBytes, given: 0 })
        );
        for (bad, fault) in [
            ("shop", PathFault::NotAbsolute),
            ("/", PathFault::EmptySegment),
            ("/shop/", PathFault::EmptySegment),
            ("//shop", PathFault::EmptySegment),
            ("/shop/../orders", PathFault::DotSegment),
            ("/.", PathFault::DotSegment),
            ("/shop orders", PathFault::Character(' ')),
            ("/käse", PathFault::Character('ä')),
            ("/a\0", PathFault::Character('\0')),
        ] {
            let expected = InvalidChange::StreamPath { path: bad.to_owned(), fault };
            assert_eq!(check_stream_path(bad), Err(expected), "{bad}");
        }
    }

    #[test]
    fn machines_are_read_back_from_their_names() {
        let custom = StreamMachine::Custom("window_5-min".to_owned());
        for machine in [StreamMachine::Log, StreamMachine::Kv, custom] {
            assert_eq!(machine.as_str().parse(), Ok(machine));
        }
        let given = "Table".to_owned();
        assert_eq!("Table".parse::<StreamMachine>(), Err(InvalidError::StreamMachineUnknown { given }));
    }

    #[test]
    fn machine_names_follow_the_rules_on_both_sides() {
        for good in ["a", "logs", "5", "_-", "a".repeat(64).as_str()] {
            assert_eq!(check_machine_name(good), Ok(()), "{good}");
        }
        for given in [0, 65] {
            let fault = InvalidChange::OutOfRange { bound: Bound::MachineNameBytes, given };
            assert_eq!(check_machine_name(&"a".repeat(given as usize)), Err(fault));
        }
        for bad in ["log", "kv", "Sum", "a b", "a.b", "käse"] {
            assert_eq!(
                check_machine_name(bad),
                Err(InvalidChange::MachineName { name: bad.to_owned() }),
                "{bad}"
            );
        }
    }
}
