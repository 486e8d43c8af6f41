//! The append-only file set on this machine's disk: what an append, a read and an opening cost.
//!
//! `aof-peers` compares with raft-engine and the bare floor, and prints ratios. Here are the absolute budgets.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench is its own documentation")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use laminar_aof::fs::{MemoryFileSystem, RealFileSystem};
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig, Durability};
use laminar_benches::Seeded;

const LONG: Duration = Duration::from_secs(60);
const RECORD_BYTES: usize = 256;

fn records(count: usize) -> Vec<Bytes> {
    let mut random = Seeded::new(7);
    let bytes: Bytes = (0..count * RECORD_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    (0..count).map(|at| bytes.slice(at * RECORD_BYTES..(at + 1) * RECORD_BYTES)).collect()
}

/// One caller, each record synced: the disk, and as little as possible beside it.
///
/// Budget `aof/append_synced/1`: < 1 ms
fn append_synced(c: &mut Criterion) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let committer =
        Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
    let (log, _) = Aof::open(&committer, &dir.path().join("log"), AofConfig::default()).unwrap();
    let one = records(1);
    c.bench_function("aof/append_synced/1", |b| b.iter(|| log.append_and_wait(one.clone(), LONG).unwrap()));
}

/// What an append costs its caller before the disk has a part in it, and what all of it costs but the disk.
///
/// Budget `aof/append/64`: < 10 us
/// Budget `aof/write/4096`: < 600 ns each
fn append_in_memory(c: &mut Criterion) {
    let committer = Committer::manual(CommitterConfig::default(), Arc::new(MemoryFileSystem::new())).unwrap();
    let config = AofConfig { durability: Durability::Background, ..AofConfig::default() };
    let (log, _) = Aof::open(&committer, "/log".as_ref(), config).unwrap();
    let (few, many) = (records(64), records(4096));
    c.bench_function("aof/append/64", |b| {
        b.iter_batched(
            || {
                committer.step();
                let end = log.sequences().end;
                drop(log.truncate_front(end).unwrap());
                few.clone()
            },
            |batch| log.append(batch).unwrap(),
            BatchSize::PerIteration,
        );
    });
    let mut group = c.benchmark_group("aof/write");
    group.throughput(Throughput::Elements(4096));
    group.bench_function("4096", |b| {
        b.iter(|| {
            log.append_and_wait(many.clone(), LONG).unwrap();
            let end = log.sequences().end;
            log.truncate_front(end).unwrap().wait(LONG).unwrap();
        });
    });
    group.finish();
}

/// Reading back and opening 64 MiB of records, each verified.
///
/// Budget `aof/replay/64MiB`: < 200 ns each
/// Budget `aof/open/64MiB`: < 200 ns each
/// Budget `aof/read_one`: < 20 us
fn read(c: &mut Criterion) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let committer =
        Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
    let config =
        || AofConfig { durability: Durability::Background, verify_sealed: true, ..AofConfig::default() };
    let path = dir.path().join("log");
    let (log, _) = Aof::open(&committer, &path, config()).unwrap();
    let batch = records(4096);
    (0..64).for_each(|_| drop(log.append_within(batch.clone(), LONG).unwrap()));
    log.sync().unwrap().wait(LONG).unwrap();
    let count = log.sequences().end;
    let mut group = c.benchmark_group("aof");
    group.sample_size(10);
    group.bench_function("read_one", |b| {
        let mut random = Seeded::new(3);
        b.iter(|| log.read(random.next_u64() % count).unwrap());
    });
    group.throughput(Throughput::Elements(count));
    group.bench_function("replay/64MiB", |b| {
        b.iter(|| {
            let mut reader = log.reader(0);
            while reader.next().unwrap().is_some() {}
            assert_eq!(reader.sequence(), count);
        });
    });
    log.close().unwrap();
    group.bench_function("open/64MiB", |b| {
        b.iter(|| {
            assert_eq!(Aof::open_read_only(&committer, &path, config()).unwrap().1.records_verified, count)
        });
    });
    group.finish();
}

criterion_group!(benches, append_synced, append_in_memory, read);
criterion_main!(benches);
