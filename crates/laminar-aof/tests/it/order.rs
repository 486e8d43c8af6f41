//! What was asked for in an order is found in that order after a crash: nothing without what was asked for before it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use laminar_aof::fs::{Fault, MemoryFileSystem};
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig, Durability, FileOperation};

const DIR: &str = "/log";

fn config(durability: Durability) -> AofConfig {
    AofConfig { durability, segment_bytes_max: 1 << 16, ..AofConfig::default() }
}

fn open(fs: &MemoryFileSystem, durability: Durability) -> (Committer, Aof) {
    let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).unwrap();
    let (log, _) = Aof::open(&committer, Path::new(DIR), config(durability)).unwrap();
    (committer, log)
}

/// Ten records on disk.
fn ten_records(fs: &MemoryFileSystem, durability: Durability) -> (Committer, Aof) {
    let (committer, log) = open(fs, durability);
    drop(log.append((0..10).map(|n| Bytes::from(vec![n; 100])).collect()).unwrap());
    drop(log.sync().unwrap());
    committer.step();
    assert_eq!(log.synced(), 10);
    (committer, log)
}

/// A snapshot is appended and what it replaces is truncated, in one write; then any part of it reaches the disk.
#[test]
fn a_truncation_at_the_front_is_never_found_without_the_record_appended_before_it() {
    let build = || {
        let fs = MemoryFileSystem::new();
        let (committer, log) = ten_records(&fs, Durability::Background);
        drop(log.append(vec![Bytes::from(vec![b's'; 9000])]).unwrap());
        drop(log.truncate_front(10).unwrap());
        drop(log.append(vec![Bytes::from(vec![b't'; 9000])]).unwrap());
        // The disk has nothing of it yet.
        fs.on_call(|call| (call.operation == FileOperation::Sync).then_some(Fault::Lie));
        committer.step();
        fs.heal();
        std::mem::forget(log);
        fs
    };
    let pages = build().unsynced().len();
    assert!((5..=8).contains(&pages), "{pages} pages");
    let mut found = BTreeSet::new();
    for subset in 0_u32..1 << pages {
        let fs = build();
        let mut place = 0;
        fs.power_cut(|_| {
            place += 1;
            subset >> (place - 1) & 1 == 1
        });
        let sequences = open(&fs, Durability::Background).1.sequences();
        assert!(
            matches!((sequences.start, sequences.end), (0, 10..=11) | (10, 11..=12)),
            "subset {subset:b}: {sequences:?}"
        );
        found.insert((sequences.start, sequences.end));
    }
    assert_eq!(found.len(), 3, "{found:?}");
}

/// While one group is synced, a caller appends and truncates: that sync says nothing about either.
#[test]
fn files_are_not_removed_before_the_truncation_is_on_disk() {
    let fs = MemoryFileSystem::new();
    let (committer, log) = ten_records(&fs, Durability::Synced);
    for _ in 0..40 {
        drop(log.append(vec![Bytes::from(vec![7; 4000])]).unwrap());
        committer.step();
    }
    let segments = fs.paths().len();
    assert!(segments >= 3, "{segments} segments");
    let log = Arc::new(log);
    let inside = Arc::clone(&log);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&calls);
    fs.on_call(move |call| {
        let mut calls = noted.lock().unwrap();
        if call.operation == FileOperation::Sync && !calls.contains(&FileOperation::Sync) {
            drop(inside.append(vec![Bytes::from_static(b"snapshot")]).unwrap());
            drop(inside.truncate_front(50).unwrap());
        }
        calls.push(call.operation);
        None
    });
    drop(log.append(vec![Bytes::from_static(b"before")]).unwrap());
    committer.step();
    let calls = calls.lock().unwrap();
    let is_sync = |call: &&FileOperation| **call == FileOperation::Sync;
    let until_second_sync = calls.iter().scan(0, |syncs, call| {
        *syncs += usize::from(is_sync(&call));
        (*syncs < 2).then_some(call)
    });
    let removing = |call: &FileOperation| matches!(call, FileOperation::Remove | FileOperation::Rename);
    assert!(!until_second_sync.clone().any(removing), "{calls:?}");
    assert!(calls.iter().any(removing), "{calls:?}");
    assert_eq!(log.sequences(), 50..52);
}
