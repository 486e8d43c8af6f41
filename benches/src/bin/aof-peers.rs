//! `laminar-aof` beside `raft-engine` and beside the floor, in one run and in turns, with ratios.
//!
//! `cargo run --release -p laminar-benches --features peers --bin aof-peers [FOLDER]`. The folder should be on the disk
//! that matters. The floor is a preallocated, already written file with `pwrite` and `fdatasync`; for several callers it
//! is a bare loop of group commit without index, rotation or purge.

#![allow(clippy::unwrap_used, reason = "a failed bench should stop")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use laminar_aof::fs::RealFileSystem;
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig, Durability};
use laminar_benches::Seeded;
use protobuf::well_known_types::BytesValue;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

const RECORD_BYTES: usize = 256;
const BULK_BYTES: usize = 256 << 20;
const LONG: Duration = Duration::from_secs(60);
const ROUNDS: usize = 3;

/// Bytes that do not repeat within 64 MiB: LZ4 finds nothing in them.
struct Payloads(Bytes);

impl Payloads {
    fn new() -> Self {
        let mut random = Seeded::new(7);
        Self((0..(64 << 20) / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect())
    }

    /// The records of one call: parts of one buffer that the caller has just filled, as a request would.
    fn get(&self, number: u64, count: u64) -> Vec<Bytes> {
        let bytes = count as usize * RECORD_BYTES;
        let at = (number as usize * RECORD_BYTES) % (self.0.len() - bytes);
        let buffer = Bytes::copy_from_slice(&self.0[at..at + bytes]);
        (0..bytes).step_by(RECORD_BYTES).map(|at| buffer.slice(at..at + RECORD_BYTES)).collect()
    }
}

/// Something that several callers append to, each append synced.
trait Log: Sync {
    fn append(&self, caller: usize, records: Vec<Bytes>);
}

struct Ours(Aof);

impl Log for Ours {
    fn append(&self, _caller: usize, records: Vec<Bytes>) {
        self.0.append_and_wait(records, LONG).unwrap();
    }
}

/// Each caller has a region of its own, whose indices have no gaps.
struct Peer(Engine, [AtomicU64; 64]);

struct Indexed;

impl MessageExt for Indexed {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        u64::from_le_bytes(*entry.get_value().first_chunk().unwrap())
    }
}

fn entries(first: u64, records: &[Bytes]) -> Vec<BytesValue> {
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
struct Bare {
    file: File,
    state: Mutex<BareState>,
    wake: [Condvar; 2],
}

#[derive(Default)]
struct BareState {
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

fn bare(dir: &Path) -> Bare {
    Bare { file: written_file(dir), state: Mutex::default(), wake: [Condvar::new(), Condvar::new()] }
}

/// A file whose blocks are allocated and written.
fn written_file(dir: &Path) -> File {
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(dir.join("floor")).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..(BULK_BYTES + (64 << 20)) >> 20).for_each(|at| file.write_all_at(&zeros, (at as u64) << 20).unwrap());
    file.sync_all().unwrap();
    file
}

fn ours(dir: &Path, durability: Durability) -> Aof {
    let committer =
        Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
    // The segment size that a busy log has reached.
    let config = AofConfig { durability, segment_bytes_min: 64 << 20, ..AofConfig::default() };
    Aof::open(&committer, &dir.join("ours"), config).unwrap().0
}

fn peer(dir: &Path, prefill: bool, lz4: bool) -> Engine {
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

/// Records a second.
fn concurrent(log: &dyn Log, payloads: &Payloads, callers: u64, records: u64, calls: u64) -> f64 {
    let barrier = Barrier::new(callers as usize + 1);
    let begun = std::thread::scope(|scope| {
        for caller in 0..callers {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for call in 0..calls {
                    let first = caller * 7919 + call * records;
                    log.append(caller as usize, payloads.get(first * 31, records));
                }
            });
        }
        barrier.wait();
        Instant::now()
    });
    (callers * records * calls) as f64 / begun.elapsed().as_secs_f64()
}

/// Microseconds at the median.
fn one_synced(log: &dyn Log, payloads: &Payloads) -> f64 {
    let mut times: Vec<f64> = (0..1500)
        .map(|number| {
            let batch = payloads.get(number * 31, 1);
            let begun = Instant::now();
            log.append(0, batch);
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

struct Floor(File, AtomicU64);

impl Log for Floor {
    fn append(&self, _caller: usize, records: Vec<Bytes>) {
        let offset = self.1.fetch_add(RECORD_BYTES as u64, Ordering::Relaxed);
        self.0.write_all_at(&records[0], offset).unwrap();
        self.0.sync_data().unwrap();
    }
}

/// Brings everything to disk that set-up or another engine left in the page cache: a sync of one file may have to wait
/// for the bytes of others.
fn settle() {
    assert!(std::process::Command::new("sync").status().unwrap().success());
}

fn line(what: &str, unit: &str, ours: f64, floor: f64, peer: Option<f64>) {
    let peers =
        peer.map_or(String::new(), |peer| format!("  raft-engine {peer:>12.1}  ({:.2} x)", ours / peer));
    println!("{what:<28} {unit:>6}  ours {ours:>12.1}  floor {floor:>12.1}  ({:.2} x){peers}", ours / floor);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn best(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

fn main() {
    let parent = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let dir = tempfile::tempdir_in(parent).unwrap();
    let dir = dir.path();
    println!(
        "raft-engine 0.4.2, best of default and prefill-for-recycle, LZ4 on and off; {ROUNDS} rounds in turns, medians"
    );
    let payloads = Payloads::new();
    {
        let floor = Floor(written_file(dir), AtomicU64::new(0));
        let bare = bare(dir);
        let ours = Ours(ours(dir, Durability::Synced));
        let peers: Vec<Peer> = [(false, false), (false, true), (true, false), (true, true)]
            .map(|(p, l)| Peer(peer(dir, p, l), [const { AtomicU64::new(0) }; 64]))
            .into();
        let mut rounds: Vec<[f64; 3]> = Vec::new();
        for _ in 0..ROUNDS {
            settle();
            let peer = peers.iter().map(|peer| one_synced(peer, &payloads)).fold(f64::MAX, f64::min);
            rounds.push([one_synced(&ours, &payloads), one_synced(&floor, &payloads), peer]);
        }
        let at = |i: usize| median(rounds.iter().map(|round| round[i]).collect());
        line("one appender, synced, p50", "us", at(0), at(1), Some(at(2)));
        for (callers, records, calls) in [(8, 1, 1500), (64, 1, 600), (64, 64, 150)] {
            let mut rounds: Vec<[f64; 3]> = Vec::new();
            for _ in 0..ROUNDS {
                settle();
                let ours = concurrent(&ours, &payloads, callers, records, calls);
                let floor = concurrent(&bare, &payloads, callers, records, calls);
                let peer =
                    best(peers.iter().map(|peer| concurrent(peer, &payloads, callers, records, calls)));
                rounds.push([ours, floor, peer]);
            }
            let at = |i: usize| median(rounds.iter().map(|round| round[i]).collect());
            line(&format!("{callers} x {records}"), "rec/s", at(0), at(1), Some(at(2)));
        }
    }
    bulk_and_replay(dir, &payloads);
}

fn megabytes(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

fn bulk_and_replay(dir: &Path, payloads: &Payloads) {
    let count = (BULK_BYTES / RECORD_BYTES) as u64;
    let batch = |first: u64| payloads.get(first, 1024);
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let dir = dir.join(format!("bulk-{round}"));
        std::fs::create_dir(&dir).unwrap();
        // The floor.
        let file = written_file(&dir);
        let begun = Instant::now();
        for at in 0..BULK_BYTES >> 20 {
            file.write_all_at(&payloads.0[(at % 64) << 20..((at % 64) + 1) << 20], (at as u64) << 20)
                .unwrap();
        }
        file.sync_data().unwrap();
        let floor_written = megabytes(BULK_BYTES, begun.elapsed());
        let begun = Instant::now();
        let mut buffer = vec![0; 1 << 20];
        let mut crc = 0;
        for at in 0..BULK_BYTES >> 20 {
            file.read_exact_at(&mut buffer, (at as u64) << 20).unwrap();
            buffer.chunks(RECORD_BYTES).for_each(|record| crc ^= crc32c::crc32c(record));
        }
        assert_ne!(crc, 1);
        let floor_read = count as f64 / begun.elapsed().as_secs_f64() / 1e6;
        // Ours, and open after a crash: the log is dropped without a trailer in its last segment.
        let log = ours(&dir, Durability::Background);
        settle();
        let begun = Instant::now();
        (0..count).step_by(1024).for_each(|first| drop(log.append_within(batch(first), LONG).unwrap()));
        log.sync().unwrap().wait(LONG).unwrap();
        let ours_written = megabytes(BULK_BYTES, begun.elapsed());
        let begun = Instant::now();
        let mut reader = log.reader(0);
        let mut bytes = 0;
        while let Some(record) = reader.next().unwrap() {
            bytes += record.payload.len();
        }
        assert_eq!(bytes, BULK_BYTES);
        let ours_read = count as f64 / begun.elapsed().as_secs_f64() / 1e6;
        log.close().unwrap();
        let committer =
            Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
        let open = |verify_sealed| {
            let config = AofConfig { verify_sealed, ..AofConfig::default() };
            let begun = Instant::now();
            let (log, opened) = Aof::open_read_only(&committer, &dir.join("ours"), config).unwrap();
            assert_eq!(opened.sequences, 0..count);
            assert!(!verify_sealed || opened.records_verified == count);
            let time = begun.elapsed();
            drop(log);
            time
        };
        let (all, sealed) = (open(true), open(false));
        // The peer, in its best configuration for this.
        let peers = [(false, false), (false, true), (true, false), (true, true)].map(|(prefill, lz4)| {
            let engine = peer(&dir, prefill, lz4);
            settle();
            let begun = Instant::now();
            for first in (0..count).step_by(1024) {
                let mut log_batch = LogBatch::with_capacity(1);
                log_batch.add_entries::<Indexed>(1, &entries(first, &batch(first))).unwrap();
                engine.write(&mut log_batch, false).unwrap();
            }
            engine.sync().unwrap();
            let written = megabytes(BULK_BYTES, begun.elapsed());
            let begun = Instant::now();
            let mut bytes = 0;
            for first in (1..=count).step_by(4096) {
                let mut found = Vec::new();
                engine
                    .fetch_entries_to::<Indexed>(1, first, (first + 4096).min(count + 1), None, &mut found)
                    .unwrap();
                bytes += found.iter().map(|entry| entry.get_value().len()).sum::<usize>();
            }
            assert_eq!(bytes, BULK_BYTES);
            (written, count as f64 / begun.elapsed().as_secs_f64() / 1e6)
        });
        let recovery = count as f64 / all.as_secs_f64() / 1e6;
        written.push([ours_written, floor_written, best(peers.map(|peer| peer.0))]);
        read.push([
            ours_read,
            floor_read,
            best(peers.map(|peer| peer.1)),
            recovery,
            sealed.as_secs_f64() * 1e3,
        ]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    let at = |i: usize| median(written.iter().map(|round| round[i]).collect());
    line("bulk append, one sync", "MB/s", at(0), at(1), Some(at(2)));
    let at = |i: usize| median(read.iter().map(|round| round[i]).collect());
    line("replay", "Mrec/s", at(0), at(1), Some(at(2)));
    line("open, every record verified", "Mrec/s", at(3), at(1), None);
    println!("open by trailers             {:>10.1} ms", at(4));
}
