//! What is measured: our log, raft-engine, and the bare disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::RealFileSystem;
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig, Durability};
use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

pub(crate) use laminar_benches::floor::{
    Bare, FLOOR_BYTES as BULK_BYTES, Payloads, RECORD_BYTES, written_file,
};

pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Something that several callers append to, each append synced.
pub(crate) trait Log: Sync {
    fn append(&self, caller: usize, records: Vec<Bytes>);
}

pub(crate) struct Ours(pub(crate) Aof);

impl Log for Ours {
    fn append(&self, _caller: usize, records: Vec<Bytes>) {
        self.0.append_and_wait(records, LONG).unwrap();
    }
}

/// Each caller has a region of its own, whose indices have no gaps.
pub(crate) struct Peer(pub(crate) Engine, pub(crate) [AtomicU64; 64]);

pub(crate) struct Indexed;

impl MessageExt for Indexed {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        u64::from_le_bytes(*entry.get_value().first_chunk().unwrap())
    }
}

pub(crate) fn entries(first: u64, records: &[Bytes]) -> Vec<BytesValue> {
    let entry = |(at, record): (usize, &Bytes)| {
        let mut value = record.to_vec();
        value[..8].copy_from_slice(&(first + at as u64 + 1).to_le_bytes());
        BytesValue { value, ..BytesValue::default() }
    };
    records.iter().enumerate().map(entry).collect()
}

impl Log for Peer {
    fn append(&self, caller: usize, records: Vec<Bytes>) {
        let first = self.1[caller].fetch_add(records.len() as u64, Ordering::Relaxed);
        let mut batch = LogBatch::with_capacity(1);
        batch.add_entries::<Indexed>(caller as u64 + 1, &entries(first, &records)).unwrap();
        self.0.write(&mut batch, true).unwrap();
    }
}

impl Log for Bare {
    fn append(&self, _caller: usize, records: Vec<Bytes>) {
        Bare::append(self, &records);
    }
}

pub(crate) fn ours(dir: &Path, durability: Durability) -> Aof {
    let committer =
        Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
    // The segment size that a busy log has reached.
    let config = AofConfig { durability, segment_bytes_min: 64 << 20, ..AofConfig::default() };
    Aof::open(&committer, &dir.join("ours"), config).unwrap().0
}

pub(crate) fn peer(dir: &Path, prefill: bool, lz4: bool) -> Engine {
    let config = Config {
        dir: dir.join(format!("peer-{prefill}-{lz4}")).to_str().unwrap().to_owned(),
        prefill_for_recycle: prefill,
        prefill_limit: Some(ReadableSize::mb(512)),
        purge_threshold: ReadableSize::mb(512),
        batch_compression_threshold: if lz4 { ReadableSize::kb(8) } else { ReadableSize(0) },
        ..Config::default()
    };
    Engine::open(config).unwrap()
}

pub(crate) struct Floor(pub(crate) File, pub(crate) AtomicU64);

impl Log for Floor {
    fn append(&self, _caller: usize, records: Vec<Bytes>) {
        let offset = self.1.fetch_add(RECORD_BYTES as u64, Ordering::Relaxed);
        self.0.write_all_at(&records[0], offset).unwrap();
        self.0.sync_data().unwrap();
    }
}
