//! openraft's own suite for log stores, on files in memory and on disk.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use laminar_aof::fs::{FileSystem, MemoryFileSystem, RealFileSystem};
use laminar_aof::{Committer, CommitterConfig};
use laminar_log::{SegmentedLogConfig, SegmentedLogStore};
use laminar_raft::{DataConfig, RaftLog, TokioRuntime};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use support::Machine;
use tempfile::TempDir;

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
