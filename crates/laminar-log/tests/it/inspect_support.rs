//! A small replica, made as a node makes it: entries through the segmented log and the state machine.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::MemoryFileSystem;
use laminar_aof::{AofConfig, Committer};
use laminar_core::ids::{Epoch, LogIndex, NodeId, PartitionId};
use laminar_log::dispatcher::{DispatcherConfig, PartitionDispatcher};
use laminar_log::entry::{
    Append, Change, Entry, Fence, MachineKind, PartitionRecord, Payload, Record, TrimTo,
};
use laminar_log::format::encode_entry;
use laminar_log::partition_log::PartitionLogConfig;
use laminar_log::{
    BuiltInMachines, EntryPayload, EntrySource, LogEntry, LogError, LogId, Parts, SegmentedConfig,
    SegmentedLogConfig, SegmentedLogStore, SegmentedStateMachine, Vote, layout,
};

use crate::support::files::manual;
use crate::support::runtime::TestRuntime;

pub(crate) const TERM: u64 = 3;

pub(crate) fn dir() -> &'static Path {
    Path::new("/replica")
}

struct Source(SegmentedLogStore);

impl EntrySource for Source {
    fn committed_entry(&self, index: LogIndex) -> Result<(LogId, Bytes), LogError> {
        let entry = self.0.entry(index.0)?;
        Ok((entry.id, entry.payload.bytes().cloned().unwrap_or_default()))
    }
}

/// A replica that runs on files in memory.
pub(crate) struct Replica {
    pub(crate) fs: MemoryFileSystem,
    committer: Committer,
    runtime: TestRuntime,
    pub(crate) log: SegmentedLogStore,
    machine: SegmentedStateMachine,
    next: u64,
}

pub(crate) fn log_config() -> SegmentedLogConfig {
    let files = AofConfig {
        segment_bytes_max: 1 << 16,
        record_bytes_max: 1 << 15,
        index_interval_bytes: 4096,
        recycled_files_max: 0,
        ..AofConfig::default()
    };
    SegmentedLogConfig { files, ..SegmentedLogConfig::default() }
}

pub(crate) fn partition_config() -> PartitionLogConfig {
    PartitionLogConfig {
        segment_bytes_max: 1 << 16,
        record_bytes_max: 1 << 15,
        ..PartitionLogConfig::default()
    }
}

impl Replica {
    pub(crate) fn new() -> Self {
        let fs = MemoryFileSystem::new();
        let committer = manual(&fs);
        let (log, _) = SegmentedLogStore::open(&committer, &layout::raft_dir(dir()), log_config()).unwrap();
        let runtime = TestRuntime::new(7);
        let shared: Arc<TestRuntime> = Arc::new(runtime.clone());
        let dispatcher = PartitionDispatcher::new(DispatcherConfig::default(), shared.clone(), Vec::new());
        let parts = Parts {
            committer: committer.clone(),
            runtime: shared,
            source: Arc::new(Source(log.clone())),
            dispatcher: Arc::new(dispatcher.unwrap()),
            machines: Arc::new(BuiltInMachines),
        };
        let config = SegmentedConfig { partition_log: partition_config(), ..SegmentedConfig::default() };
        let machine = SegmentedStateMachine::open(dir(), config, parts, LogIndex(0)).unwrap();
        drop(log.save_vote(Vote { term: TERM, node: NodeId(1), committed: true }).unwrap());
        Self { fs, committer, runtime, log, machine, next: 1 }
    }

    fn id(&mut self) -> LogId {
        let id = LogId::new(TERM, self.next);
        self.next += 1;
        id
    }

    fn put(&mut self, id: LogId, payload: EntryPayload) {
        drop(self.log.append([LogEntry { id, payload }]).unwrap());
        self.committer.step();
        self.log.save_committed(Some(id));
    }

    pub(crate) fn blank(&mut self) {
        let id = self.id();
        self.put(id, EntryPayload::Blank);
        self.machine.apply_blank(id);
    }

    pub(crate) fn members(&mut self, bytes: &'static [u8]) {
        let id = self.id();
        self.put(id, EntryPayload::Membership(Bytes::from_static(bytes)));
        self.machine.apply_membership(id, Bytes::from_static(bytes));
    }

    pub(crate) fn entry(&mut self, time_ms: u64, records: Vec<PartitionRecord>) -> LogId {
        let id = self.id();
        let records = records.into_iter().map(Record::Partition).collect();
        let bytes = encode_entry(&Entry { time_ms, records, ..Entry::default() });
        self.put(id, EntryPayload::Normal(bytes.clone()));
        self.machine.apply(id, &bytes, None).unwrap();
        self.runtime.run();
        self.committer.step();
        id
    }

    /// Takes a snapshot, and purges the log up to `keep` entries before it.
    pub(crate) fn snapshot(&mut self, keep: u64) -> LogId {
        let build = self.machine.begin_snapshot().unwrap().unwrap();
        let id = self.runtime.block_on({
            let committer = self.committer.clone();
            async move {
                committer.step();
                build.run().await.unwrap()
            }
        });
        let through = LogId::new(TERM, id.index.0 - keep);
        drop(self.log.purge(through).unwrap());
        self.step();
        id
    }

    /// Lets everything that waits reach the disk.
    pub(crate) fn step(&self) {
        self.fs.advance(Duration::from_secs(2));
        self.runtime.run_for(Duration::from_secs(2));
        self.committer.step();
    }

    /// Closes it as a node does.
    pub(crate) fn close(self) -> MemoryFileSystem {
        self.step();
        let Self { fs, committer, runtime, log, machine, .. } = self;
        drop(machine);
        runtime.kill();
        log.close().unwrap();
        drop(runtime);
        committer.step();
        drop(committer);
        fs
    }
}

pub(crate) fn record(partition: u32, owner: u64, epoch: u64, change: Change) -> PartitionRecord {
    PartitionRecord {
        partition: PartitionId(partition),
        owner: NodeId(owner),
        epoch: Epoch::new(epoch).unwrap(),
        change,
    }
}

pub(crate) fn rows(rows: u32, payload: impl Into<Bytes>) -> Change {
    Change::Append(Append { rows, create: None, payload: Payload::Inline(payload.into()) })
}

/// Bytes that do not repeat.
pub(crate) fn noise(seed: u64, length: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect::<Vec<u8>>().into()
}

/// Partitions 1, 2, 3 and 5, one that is destroyed, two epochs, trims, refusals, several segments, a snapshot, and a log
/// that was purged in part. `bytes` is the length of the larger payloads.
pub(crate) fn sample(bytes: usize, rounds: u64) -> Replica {
    let mut replica = Replica::new();
    replica.blank();
    replica.members(b"members");
    let create = |partition, machine| record(partition, 1, 1, Change::Create(machine));
    replica.entry(
        1000,
        vec![create(1, MachineKind::Log), create(2, MachineKind::Log), create(5, MachineKind::Log)],
    );
    let first = Append { rows: 3, create: Some(MachineKind::Log), payload: Payload::Inline(noise(1, 40)) };
    replica.entry(1001, vec![record(3, 2, 1, Change::Append(first)), create(4, MachineKind::Log)]);
    for n in 0..rounds {
        let two =
            vec![record(1, 1, 1, rows(5, noise(n, bytes))), record(1, 1, 1, rows(2, noise(n + 99, 20)))];
        replica.entry(2000 + n, two);
        replica.entry(1500 + n, vec![record(2, 1, 1, rows(1, noise(n, 64)))]);
    }
    // Refused: another owner's, and an older epoch's.
    replica.entry(3000, vec![record(1, 9, 1, rows(1, noise(5, 10)))]);
    replica.entry(3000, vec![record(1, 2, 2, Change::Fence(Fence { run: 7, metadata_index: 12 }))]);
    replica.entry(3001, vec![record(1, 1, 1, rows(1, noise(5, 10)))]);
    replica.entry(3002, vec![record(4, 1, 1, Change::Destroy)]);
    replica.snapshot(3);
    for n in 0..rounds {
        replica.entry(
            4000 + n,
            vec![record(1, 2, 2, rows(4, noise(n, bytes))), record(3, 2, 1, rows(1, noise(n, 32)))],
        );
    }
    replica.entry(5000, vec![record(5, 1, 1, rows(6, noise(3, 30)))]);
    replica.entry(
        5000,
        vec![record(5, 1, 1, Change::Trim(TrimTo::End)), record(1, 2, 2, Change::Trim(TrimTo::Offset(3)))],
    );
    replica.step();
    replica
}

/// The files under [`dir`], by their paths within it.
pub(crate) fn files(fs: &MemoryFileSystem) -> BTreeMap<PathBuf, Vec<u8>> {
    let file = |path: PathBuf| {
        let bytes = fs.bytes(&path).unwrap();
        (path.strip_prefix(dir()).unwrap().to_owned(), bytes)
    };
    fs.paths().into_iter().map(file).collect()
}

/// A file system with these files.
pub(crate) fn with_files(files: &BTreeMap<PathBuf, Vec<u8>>) -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    laminar_aof::fs::FileSystem::create_dir(&fs, dir()).unwrap();
    for (path, bytes) in files {
        let path = dir().join(path);
        laminar_aof::fs::FileSystem::create_dir(&fs, path.parent().unwrap()).unwrap();
        fs.set_bytes(&path, bytes.clone());
    }
    fs
}

/// `file NAME LENGTH`, then lines of `offset: bytes` without runs of zeros; file after file.
pub(crate) fn to_text(files: &BTreeMap<PathBuf, Vec<u8>>) -> String {
    let mut text = String::new();
    for (path, bytes) in files {
        writeln!(text, "file {} {}", path.display(), bytes.len()).unwrap();
        for (at, line) in bytes.chunks(32).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0))
        {
            write!(text, "{:08x}: ", at * 32).unwrap();
            line.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
            text.push('\n');
        }
    }
    text
}

pub(crate) fn from_text(text: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let mut current = PathBuf::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("file ") {
            let (name, length) = head.rsplit_once(' ').unwrap();
            current = PathBuf::from(name);
            files.insert(current.clone(), vec![0; length.parse().unwrap()]);
            continue;
        }
        let (at, hex) = line.split_once(": ").unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        let bytes = files.get_mut(&current).unwrap();
        for (within, pair) in hex.as_bytes().chunks(2).enumerate() {
            bytes[at + within] = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
    }
    files
}
