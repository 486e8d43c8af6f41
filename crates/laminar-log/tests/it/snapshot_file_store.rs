//! Snapshots as files: found, damaged, interrupted, and installed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use laminar_aof::fs::{Fault, MemoryFileSystem};
use laminar_core::error::ErrorKind;
use laminar_core::ids::PartitionId;
use laminar_log::LogId;
use laminar_log::partition_log::{PartitionLogConfig, PartitionLogStore};
use laminar_log::snapshot::{
    Frame, SnapshotError, SnapshotForm, SnapshotHead, SnapshotReader, SnapshotStore, SnapshotSummary,
};

use crate::snapshot_file_parts::{boundaries, build, bytes_of, crc32c, head, kv, stored};
use crate::support::files::{manual, xorshift};

fn dir() -> &'static Path {
    Path::new("/snapshots")
}

fn read_all(mut reader: SnapshotReader) -> Result<Vec<Frame>, SnapshotError> {
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push(frame);
    }
    Ok(frames)
}

fn open(fs: &MemoryFileSystem) -> SnapshotStore {
    SnapshotStore::open(Arc::new(fs.clone()), dir()).unwrap()
}

fn write(store: &SnapshotStore, index: u64) -> Result<SnapshotSummary, SnapshotError> {
    store.write_new(head(index), |writer| build(writer, SnapshotForm::Local, 0))
}

fn only_file(fs: &MemoryFileSystem) -> PathBuf {
    let paths = fs.paths();
    assert_eq!(paths.len(), 1, "{paths:?}");
    paths[0].clone()
}

#[test]
fn newest_snapshot_is_found_and_older_ones_are_removed() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    assert!(store.newest().unwrap().is_none());
    for index in [100, 9, 0x1000] {
        write(&store, index).unwrap();
    }
    let (found, reader) = store.newest().unwrap().unwrap();
    assert_eq!(found, head(0x1000));
    assert_eq!(read_all(reader).unwrap().len(), 9);
    assert_eq!(store.list().unwrap(), [9, 100, 0x1000].map(|index| LogId::new(2, index)));
    assert_eq!(store.remove_older(LogId::new(2, 0x1000)).unwrap(), 2);
    fs.power_cut(|_| false);
    assert_eq!(only_file(&fs), dir().join("0000000000001000-0000000000000002.snap"));
    assert_eq!(open(&fs).newest().unwrap().unwrap().0, head(0x1000));
}

#[test]
fn damaged_newest_snapshot_is_not_passed_over() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    write(&store, 9).unwrap();
    write(&store, 100).unwrap();
    let path = dir().join("0000000000000064-0000000000000002.snap");
    let whole = fs.bytes(&path).unwrap();
    for cut in [0, 5, 60, whole.len() - 1] {
        fs.set_bytes(&path, whole[..cut].to_vec());
        let error = open(&fs).newest().unwrap_err();
        assert!(matches!(&error, SnapshotError::Unusable { path: named, .. } if *named == path), "{error}");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    fs.set_bytes(&path, [&whole[..], b"more"].concat());
    assert_eq!(store.newest().unwrap_err().kind(), ErrorKind::Corrupt);
    // Under another name it is another's.
    fs.set_bytes(&path, whole.clone());
    fs.set_bytes(&dir().join("0000000000000065-0000000000000002.snap"), whole);
    assert_eq!(store.newest().unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn version_of_a_newer_release_is_told_apart() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    write(&store, 9).unwrap();
    let path = only_file(&fs);
    let mut bytes = fs.bytes(&path).unwrap();
    let end = boundaries(&bytes)[1];
    bytes[16] = 2;
    let crc = crc32c(&[&bytes[..8], &bytes[12..end]].concat());
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    fs.set_bytes(&path, bytes);
    let error = store.newest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// Each call of `what` is the last one before the power goes, with random parts of what was not synced surviving;
/// then `check` looks at what is left. Ends when `what` was let through.
fn cut_power_everywhere<T>(
    prepare: impl Fn(&SnapshotStore),
    what: impl Fn(&SnapshotStore) -> Result<T, SnapshotError>,
    check: impl Fn(&MemoryFileSystem, bool),
) {
    for last_call in 0.. {
        let mut done = false;
        for seed in 1..30_u64 {
            let fs = MemoryFileSystem::new();
            let store = open(&fs);
            prepare(&store);
            let begun = fs.calls();
            fs.on_call(move |call| {
                (call.number >= begun + last_call).then_some(Fault::Fail(std::io::ErrorKind::Other))
            });
            done = what(&store).is_ok();
            fs.heal();
            let mut random = xorshift(seed);
            fs.power_cut(|_| random() & 1 == 1);
            check(&fs, done);
        }
        if done {
            assert!(last_call > 4, "so few calls cannot be all");
            return;
        }
    }
}

#[test]
fn power_cut_while_writing_leaves_the_old_or_the_new_one_whole() {
    cut_power_everywhere(
        |store| {
            write(store, 9).unwrap();
        },
        |store| write(store, 100),
        |fs, done| {
            let store = open(fs);
            let (head, reader) = store.newest().unwrap().unwrap();
            assert_eq!(read_all(reader).unwrap().len(), 9);
            assert!(head.log_id.index.0 == 100 || !done);
            assert_eq!(store.read(LogId::new(2, 9)).and_then(read_all).unwrap().len(), 9);
            assert!(fs.paths().iter().all(|path| path.extension().is_some_and(|end| end == "snap")));
        },
    );
}

#[test]
fn failed_write_leaves_nothing_behind_and_can_be_repeated() {
    for failing in 0.. {
        let fs = MemoryFileSystem::new();
        let store = open(&fs);
        let begun = fs.calls();
        fs.on_call(move |call| {
            (call.number == begun + failing).then_some(Fault::Fail(std::io::ErrorKind::StorageFull))
        });
        let written = write(&store, 9);
        fs.heal();
        if written.is_ok() {
            return;
        }
        assert_eq!(written.unwrap_err().kind(), ErrorKind::Overloaded);
        write(&store, 9).unwrap();
        only_file(&fs);
        assert_eq!(store.newest().unwrap().unwrap().0, head(9));
    }
}

fn receive(store: &SnapshotStore) -> Result<SnapshotHead, SnapshotError> {
    let mut incoming = store.begin_install()?;
    for chunk in bytes_of(SnapshotForm::Streamed).chunks(100) {
        assert!(!incoming.is_done());
        incoming.push(Bytes::copy_from_slice(chunk))?;
    }
    assert!(incoming.is_done());
    store.commit_install(incoming, LogId::new(2, 100))
}

#[test]
fn install_is_pending_from_its_commit_until_it_is_finished() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    write(&store, 9).unwrap();
    assert!(store.pending_install().unwrap().is_none());
    assert_eq!(receive(&store).unwrap(), head(100));
    fs.power_cut(|_| false);
    let store = open(&fs);
    let (found, reader) = store.pending_install().unwrap().unwrap();
    assert_eq!((found, read_all(reader).unwrap().len()), (head(100), 10));
    // The local snapshot is still the old one, until the caller writes another.
    assert_eq!(store.newest().unwrap().unwrap().0, head(9));
    write(&store, 100).unwrap();
    store.finish_install().unwrap();
    fs.power_cut(|_| false);
    assert!(open(&fs).pending_install().unwrap().is_none());
    assert_eq!(open(&fs).newest().unwrap().unwrap().0, head(100));
}

#[test]
fn power_cut_while_receiving_leaves_all_of_it_or_nothing() {
    cut_power_everywhere(
        |store| {
            write(store, 9).unwrap();
        },
        receive,
        |fs, done| {
            let store = open(fs);
            let pending = store.pending_install().unwrap();
            assert!(pending.is_some() || !done);
            if let Some((found, reader)) = pending {
                assert_eq!((found, read_all(reader).unwrap().len()), (head(100), 10));
            }
            assert_eq!(store.newest().unwrap().unwrap().0, head(9));
        },
    );
}

#[test]
fn only_the_announced_snapshot_is_installed_and_only_whole() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs);
    let push = |bytes: Vec<u8>| {
        let mut incoming = store.begin_install()?;
        incoming.push(bytes.into())?;
        store.commit_install(incoming, LogId::new(2, 100))
    };
    let whole = bytes_of(SnapshotForm::Streamed);
    let cut = push(whole[..whole.len() - 1].to_vec()).unwrap_err();
    assert!(matches!(cut, SnapshotError::CutShort { .. }), "{cut}");
    assert_eq!(push(bytes_of(SnapshotForm::Local)).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut incoming = store.begin_install().unwrap();
    incoming.push(whole.clone().into()).unwrap();
    let other = store.commit_install(incoming, LogId::new(3, 100)).unwrap_err();
    assert!(matches!(other, SnapshotError::OtherSnapshot { .. }), "{other}");
    // Nothing of all that is left.
    assert_eq!((fs.paths(), store.pending_install().unwrap().is_none()), (vec![], true));
    assert_eq!(push(whole).unwrap(), head(100));
    // A damaged one is not read as none.
    let path = only_file(&fs);
    let mut bytes = fs.bytes(&path).unwrap();
    bytes[200] ^= 1;
    fs.set_bytes(&path, bytes);
    assert_eq!(store.pending_install().unwrap_err().kind(), ErrorKind::Corrupt);
}

/// A replica takes over the rows of a partition whose own log was ahead, behind or somewhere else.
#[test]
fn rows_of_a_snapshot_become_the_log_of_their_partition() {
    let fs = MemoryFileSystem::new();
    let committer = manual(&fs);
    let (snapshots, partitions) = (open(&fs), Path::new("/partitions"));
    receive(&snapshots).unwrap();
    // Twice, as after a crash halfway.
    for _ in 0..2 {
        let (_, mut reader) = snapshots.pending_install().unwrap().unwrap();
        let mut log: Option<PartitionLogStore> = None;
        while let Some(frame) = reader.next().unwrap() {
            match frame {
                Frame::Partition(partition) => {
                    let (id, config) = (partition.partition, PartitionLogConfig::default());
                    let made =
                        PartitionLogStore::create_at(&committer, partitions, id, config, partition.first);
                    log = Some(made.unwrap());
                }
                Frame::Rows(records) => drop(log.as_ref().unwrap().append_stored(records).unwrap()),
                _ => {}
            }
        }
    }
    let config = PartitionLogConfig::default();
    let (log, opened) = PartitionLogStore::open(&committer, partitions, kv().partition, config).unwrap();
    assert_eq!((opened.first, opened.end), (kv().first, kv().highest.next()));
    assert_eq!(log.reader(kv().highest).next_stored().unwrap(), Some(stored(3, 9, 4)));
    let config = PartitionLogConfig::default();
    let (_, opened) = PartitionLogStore::open(&committer, partitions, PartitionId(7), config).unwrap();
    assert_eq!((opened.first.0, opened.end.0, opened.last), (5, 5, None));
}
