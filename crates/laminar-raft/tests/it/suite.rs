//! openraft's own suite for log stores, on files in memory and on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use laminar_aof::fs::{FileSystem, MemoryFileSystem, RealFileSystem};
use laminar_aof::{AofConfig, Committer, CommitterConfig};
use laminar_log::{LogId, SegmentedLogConfig, SegmentedLogStore};
use laminar_raft::{Data, DataConfig, RaftEntry, RaftLog, RaftPayload, TokioRuntime, from_log_id};
use openraft::async_runtime::Oneshot;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{AsyncRuntime, StorageError};
use tempfile::TempDir;

use crate::support::Machine;

type Types = DataConfig<TokioRuntime>;

fn open(fs: Arc<dyn FileSystem>, dir: &Path, cache_bytes_max: u64) -> RaftLog {
    let committer = Committer::start(CommitterConfig::default(), fs).unwrap();
    let config = SegmentedLogConfig { cache_bytes_max, ..SegmentedLogConfig::default() };
    RaftLog::new(SegmentedLogStore::open(&committer, dir, config).unwrap().0)
}

struct Memory {
    cache_bytes_max: u64,
}

impl StoreBuilder<Types, RaftLog, Machine, ()> for Memory {
    async fn build(&self) -> Result<((), RaftLog, Machine), StorageError<Types>> {
        let fs = Arc::new(MemoryFileSystem::new());
        Ok(((), open(fs, &PathBuf::from("/raft"), self.cache_bytes_max), Machine::default()))
    }
}

struct Disk;

impl StoreBuilder<Types, RaftLog, Machine, TempDir> for Disk {
    async fn build(&self) -> Result<(TempDir, RaftLog, Machine), StorageError<Types>> {
        let dir = tempfile::tempdir().unwrap();
        let log = open(Arc::new(RealFileSystem::default()), &dir.path().join("raft"), 8 << 20);
        Ok((dir, log, Machine::default()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_in_memory_passes_the_suite() {
    Suite::test_all(Memory { cache_bytes_max: 8 << 20 }).await.unwrap();
}

/// Without a cache every read goes to the files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_without_a_cache_passes_the_suite() {
    Suite::test_all(Memory { cache_bytes_max: 0 }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_on_disk_passes_the_suite() {
    Suite::test_all(Disk).await.unwrap();
}

/// More at once than the files take: the append waits for them, and its callback tells of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_append_waits_for_the_disk() {
    let fs = Arc::new(MemoryFileSystem::new());
    let committer = Committer::start(CommitterConfig::default(), fs).unwrap();
    let files = AofConfig { record_bytes_max: 1000, pending_bytes_max: 1100, ..AofConfig::default() };
    let config = SegmentedLogConfig { files, ..SegmentedLogConfig::default() };
    let (store, _) = SegmentedLogStore::open(&committer, Path::new("/raft"), config).unwrap();
    let mut log = RaftLog::with_read_bytes_max(store.clone(), 1200);
    let payload = |index: u64| RaftPayload::Normal(Data(vec![index as u8; 500].into()));
    let entries: Vec<RaftEntry> = (0..200)
        .map(|index| RaftEntry { log_id: from_log_id(LogId::new(1, index)), payload: payload(index) })
        .collect();
    let (done, flushed) = <<TokioRuntime as AsyncRuntime>::Oneshot as Oneshot>::channel();
    RaftLogStorage::<Types>::append(&mut log, entries.clone(), IOFlushed::signal(done)).await.unwrap();
    flushed.await.unwrap().unwrap();
    assert_eq!(store.state().durable, Some(LogId::new(1, 199)));
    let limited = RaftLogReader::<Types>::limited_get_log_entries(&mut log, 3, 50).await.unwrap();
    assert_eq!(limited, entries[3..6]);
    let streamed = RaftLogReader::<Types>::entries_stream(&mut log, 5..300).await;
    assert_eq!(streamed.map(Result::unwrap).collect::<Vec<_>>().await, entries[5..]);
    // An append that cannot be taken is reported, by whichever way.
    let gap = RaftEntry { log_id: from_log_id(LogId::new(1, 999)), payload: payload(0) };
    assert!(RaftLogStorage::<Types>::append(&mut log, [gap], IOFlushed::noop()).await.is_err());
}
