//! What is measured: our log, raft-engine, and the bare disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::RealFileSystem;
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig, Durability};
use laminar_benches::Seeded;
use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

pub(crate) const RECORD_BYTES: usize = 256;
pub(crate) const BULK_BYTES: usize = 256 << 20;
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Bytes that do not repeat within 64 MiB: LZ4 finds nothing in them.
pub(crate) struct Payloads(pub(crate) Bytes);

impl Payloads {
    pub(crate) fn new() -> Self {
        let mut random = Seeded::new(7);
        Self((0..(64 << 20) / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect())
    }

    /// The records of one call: parts of one buffer that the caller has just filled, as a request would.
    pub(crate) fn get(&self, number: u64, count: u64) -> Vec<Bytes> {
        let bytes = count as usize * RECORD_BYTES;
        let at = (number as usize * RECORD_BYTES) % (self.0.len() - bytes);
        let buffer = Bytes::copy_from_slice(&self.0[at..at + bytes]);
        (0..bytes).step_by(RECORD_BYTES).map(|at| buffer.slice(at..at + RECORD_BYTES)).collect()
    }
}

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

/// Group commit and nothing else.
pub(crate) struct Bare {
    file: File,
    state: Mutex<BareState>,
    wake: [Condvar; 2],
}

#[derive(Default)]
pub(crate) struct BareState {
    pending: Vec<u8>,
    group: u64,
    done: u64,
    leading: bool,
    offset: u64,
}

impl Log for Bare {
    fn append(&self, _caller: usize, records: Vec<Bytes>) {
        let mut state = self.state.lock().unwrap();
        records.iter().for_each(|record| state.pending.extend_from_slice(record));
        let mine = state.group;
        loop {
            if state.done > mine {
                return;
            }
            if state.leading {
                state = self.wake[(mine % 2) as usize].wait(state).unwrap();
                continue;
            }
            state.leading = true;
            drop(state);
            for _ in 0..20 {
                std::thread::yield_now();
            }
            state = self.state.lock().unwrap();
            let bytes = std::mem::take(&mut state.pending);
            let (group, offset) = (state.group, state.offset % (BULK_BYTES as u64));
            state.group += 1;
            state.offset = offset + bytes.len() as u64;
            drop(state);
            self.file.write_all_at(&bytes, offset).unwrap();
            self.file.sync_data().unwrap();
            state = self.state.lock().unwrap();
            state.done = group + 1;
            state.leading = false;
            self.wake[(group % 2) as usize].notify_all();
            self.wake[((group + 1) % 2) as usize].notify_one();
        }
    }
}

pub(crate) fn bare(dir: &Path) -> Bare {
    Bare { file: written_file(dir), state: Mutex::default(), wake: [Condvar::new(), Condvar::new()] }
}

/// A file whose blocks are allocated and written.
pub(crate) fn written_file(dir: &Path) -> File {
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(dir.join("floor")).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..(BULK_BYTES + (64 << 20)) >> 20).for_each(|at| file.write_all_at(&zeros, (at as u64) << 20).unwrap());
    file.sync_all().unwrap();
    file
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
