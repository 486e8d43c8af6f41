//! The log of a partition, one behaviour at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::{Fault, MemoryFileSystem, RealFileSystem};
use laminar_aof::{AofError, Committer, CommitterConfig};
use laminar_core::error::ErrorKind;
use laminar_core::ids::{LogIndex, PartitionId};
use laminar_log::format::encode_stored;
use laminar_log::partition_log::{
    PartitionLogConfig, PartitionLogStore, clean_root, list_partitions, partition_folder, remove_partition,
};
use laminar_log::verdict::AcceptedRecord;
use laminar_log::{LogError, LogId, PartitionLogIndex};

use crate::partition_log_model::{PARTITION, append_change, config, first_record, root};
use crate::support::files::{manual, xorshift};

const SOON: Duration = Duration::from_secs(10);

fn open(committer: &Committer) -> PartitionLogStore {
    PartitionLogStore::open(committer, root(), PARTITION, config()).unwrap().0
}

fn at(index: u64) -> PartitionLogIndex {
    PartitionLogIndex(index)
}

/// Records 1 to `count`, each of ten rows, of entry 2 n and time 100 n.
fn records(count: u64) -> Vec<AcceptedRecord> {
    let one = |n: u64| {
        let mut record = first_record();
        record.index = at(n);
        record.first_offset = (n - 1) * 10;
        record.log_id = LogId::new(1, n * 2);
        record.time_ms = n * 100;
        record.record.change = append_change(10, Bytes::from(format!("rows of record {n}")));
        record
    };
    (1..=count).map(one).collect()
}

fn synced(committer: &Committer, count: u64) -> PartitionLogStore {
    let store = open(committer);
    let ticket = store.append(&records(count)).unwrap();
    store.sync().unwrap().wait(SOON).unwrap();
    ticket.wait(SOON).unwrap();
    store
}

#[test]
fn records_come_back_on_real_files_with_their_tuples() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("partitions");
    let start = || Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
    let (committer, all) = (start(), records(1000));
    let open = |committer: &Committer| {
        PartitionLogStore::open(committer, &root, PARTITION, PartitionLogConfig::default()).unwrap()
    };
    let (store, opened) = open(&committer);
    assert_eq!((opened.first, opened.end, opened.last, opened.cut), (at(1), at(1), None, None));
    drop(store.append(&all).unwrap());
    store.sync().unwrap().wait(SOON).unwrap();
    assert_eq!(store.synced_end(), at(1001));
    drop((store, committer));

    let committer = start();
    let (store, opened) = open(&committer);
    assert_eq!((opened.first, opened.end, opened.cut), (at(1), at(1001), None));
    assert_eq!(opened.last.unwrap().log_id, LogId::new(1, 2000));
    let mut reader = store.reader(at(501));
    assert_eq!(reader.next().unwrap().as_ref(), Some(&all[500]));
    assert_eq!(reader.next_stored().unwrap(), Some(encode_stored(&all[501])));
    store.check_tuple(at(7), LogId::new(1, 14)).unwrap();
    assert_eq!(store.find_offset(5_005).unwrap(), Some(at(501)));
    assert_eq!(store.find_time(50_050, PartitionLogIndex::NONE).unwrap(), Some(at(501)));
    let other = PartitionLogStore::open(&committer, &root, PartitionId(7), config()).unwrap().0;
    assert_eq!(list_partitions(&committer, &root).unwrap(), [PartitionId(7), PARTITION]);
    store.destroy().unwrap();
    assert_eq!(list_partitions(&committer, &root).unwrap(), [PartitionId(7)]);
    assert!(!partition_folder(&root, PARTITION).exists());
    other.destroy().unwrap();
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
}

#[test]
fn offsets_are_found_with_few_reads() {
    let fs = MemoryFileSystem::new();
    let committer = manual(&fs);
    drop(synced(&committer, 5000));
    let store = open(&committer);
    assert_eq!(store.find_offset(33_333).unwrap(), Some(at(3334)));
    for n in (1..5000).step_by(7) {
        assert_eq!(store.find_offset(n * 10 - 1).unwrap(), Some(at(n)));
    }
    assert_eq!(store.find_offset(50_000).unwrap(), None);
    let before = fs.calls();
    assert_eq!(store.find_offset(33_333).unwrap(), Some(at(3334)));
    assert!(fs.calls() - before < 40, "{} calls", fs.calls() - before);
}

#[test]
#[should_panic(expected = "LOG-2: partition 42, record 3: index of a stored record")]
fn a_gap_is_not_stored() {
    let store = open(&manual(&MemoryFileSystem::new()));
    let mut gap = records(3);
    gap.remove(1);
    drop(store.append(&gap));
}

#[test]
#[should_panic(expected = "LOG-2: partition 42, record 2: first offset of a stored record")]
fn rows_without_their_place_are_not_stored() {
    let store = open(&manual(&MemoryFileSystem::new()));
    let mut gap = records(2);
    gap[1].first_offset += 1;
    drop(store.append(&gap));
}

#[test]
fn too_much_at_once_is_refused_and_goes_later() {
    let committer = manual(&MemoryFileSystem::new());
    let small = PartitionLogConfig { record_bytes_max: 1 << 16, pending_bytes_max: 1 << 17, ..config() };
    let (store, _) = PartitionLogStore::open(&committer, root(), PARTITION, small).unwrap();
    let mut all = records(3);
    for record in &mut all {
        record.record.change = append_change(10, Bytes::from(vec![0; 60_000]));
    }
    drop(store.append(&all[..2]).unwrap());
    let refused = store.append(&all[2..]).unwrap_err();
    assert!(matches!(refused, LogError::Files(AofError::Overloaded { .. })), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    committer.step();
    drop(store.append(&all[2..]).unwrap());
    assert_eq!(store.record(at(3)).unwrap(), all[2]);
}

#[test]
fn stored_bytes_are_taken_over_and_checked() {
    let committer = manual(&MemoryFileSystem::new());
    let (all, store) = (records(3), open(&committer));
    let bytes: Vec<Bytes> = all.iter().map(encode_stored).collect();
    drop(store.append_stored(bytes[..1].to_vec()).unwrap());
    let gap = store.append_stored(bytes[2..].to_vec()).unwrap_err();
    assert!(matches!(gap, LogError::BadStoredRecord { index: PartitionLogIndex(2), .. }), "{gap}");
    let mut foreign = all[1].clone();
    foreign.record.partition = PartitionId(43);
    let foreign = store.append_stored(vec![encode_stored(&foreign)]).unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::Corrupt);
    drop(store.append_stored(bytes[1..].to_vec()).unwrap());
    assert_eq!(store.record(at(3)).unwrap(), all[2]);
}

#[test]
fn trim_keeps_rows_from_its_offset_on_and_the_last_record() {
    let store = synced(&manual(&MemoryFileSystem::new()), 10);
    assert!(store.trim(0).unwrap().is_none());
    drop(store.trim(35).unwrap().unwrap());
    assert_eq!(store.first(), at(4));
    assert!(store.find_offset(29).unwrap().is_none());
    assert!(matches!(store.record(at(3)), Err(LogError::Files(AofError::OutOfRange { .. }))));
    drop(store.trim(1_000_000).unwrap().unwrap());
    assert_eq!((store.first(), store.stored_end()), (at(10), at(11)));
}

#[test]
fn pinned_records_stay_until_the_pin_is_dropped() {
    let store = synced(&manual(&MemoryFileSystem::new()), 10);
    let (low, high) = (store.pin(at(3)).unwrap(), store.pin(at(6)).unwrap());
    drop(store.compact(at(9)).unwrap());
    assert_eq!(store.first(), at(3));
    drop(low);
    drop(store.compact(at(9)).unwrap());
    assert_eq!(store.first(), at(6));
    drop(high);
    let late = store.pin(at(1)).unwrap();
    assert_eq!(late.first(), at(6));
    assert!(store.compact(at(9)).unwrap().is_none());
    drop(late);
    drop(store.compact(at(9)).unwrap());
    assert_eq!(store.first(), at(9));
}

#[test]
fn tail_ahead_of_the_committed_log_is_cut() {
    let fs = MemoryFileSystem::new();
    let store = synced(&manual(&fs), 10);
    assert!(store.cut_above(LogIndex(20)).unwrap().is_none());
    store.cut_above(LogIndex(13)).unwrap().unwrap().wait(SOON).unwrap();
    assert_eq!(store.stored_end(), at(7));
    let mut again = records(7).pop().unwrap();
    again.log_id = LogId::new(2, 14);
    drop(store.append([&again]).unwrap());
    assert!(matches!(store.check_tuple(at(7), LogId::new(1, 14)), Err(LogError::WrongTuple { .. })));
    store.cut_above(LogIndex(0)).unwrap().unwrap().wait(SOON).unwrap();
    assert_eq!((store.first(), store.stored_end()), (at(1), at(1)));
    drop(store);
    fs.power_cut(|_| false);
    assert_eq!(open(&manual(&fs)).stored_end(), at(1));
}

#[test]
fn readers_live_through_a_reopening_and_follow_the_log() {
    let committer = manual(&MemoryFileSystem::new());
    let (all, store) = (records(12), synced(&committer, 10));
    let mut reader = store.reader(at(9));
    assert_eq!(reader.next().unwrap().as_ref(), Some(&all[8]));
    store.reopen().unwrap();
    assert_eq!(reader.next().unwrap().as_ref(), Some(&all[9]));
    assert_eq!((reader.next().unwrap(), reader.index()), (None, at(11)));
    drop(store.append(&all[10..]).unwrap());
    assert_eq!(reader.next().unwrap().as_ref(), Some(&all[10]));
}

#[test]
fn failed_log_refuses_until_it_is_reopened_and_then_goes_on() {
    let fs = MemoryFileSystem::new();
    let committer = manual(&fs);
    let (all, store) = (records(12), synced(&committer, 10));
    fs.on_call(|call| {
        (call.operation == laminar_aof::FileOperation::Sync).then_some(Fault::Fail(std::io::ErrorKind::Other))
    });
    let ticket = store.append(&all[10..]).unwrap();
    drop(store.sync().unwrap());
    committer.step();
    assert!(ticket.outcome().unwrap().is_err());
    assert!(matches!(store.failure(), Some(LogError::Files(AofError::Failed { .. }))));
    // What was not synced is not there, and any place is refused alike.
    assert_eq!(store.stored_end(), at(11));
    assert!(store.append(&all[10..]).is_err() && store.append(&all[11..]).is_err());
    assert_eq!(store.record(at(10)).unwrap(), all[9]);
    fs.heal();
    let opened = store.reopen().unwrap();
    assert!(opened.end >= at(11) && store.failure().is_none());
    drop(store.append(&all[opened.end.0 as usize - 1..]).unwrap());
    store.sync().unwrap().wait(SOON).unwrap();
    assert_eq!(store.synced_end(), at(13));
}

#[test]
fn log_begins_anew_where_a_snapshot_says_before_or_behind_its_old_place() {
    let fs = MemoryFileSystem::new();
    let committer = manual(&fs);
    let store = synced(&committer, 10);
    drop(store.compact(at(8)).unwrap());
    for first in [5, 900, 1] {
        store.reset(at(first)).unwrap();
        fs.power_cut(|_| false);
        let opened = store.reopen().unwrap();
        assert_eq!((opened.first, opened.end, opened.last), (at(first), at(first), None));
    }
    drop(store);
    let store = PartitionLogStore::create_at(&committer, root(), PARTITION, config(), at(3)).unwrap();
    drop(store.append(&records(4)[2..]).unwrap());
    assert_eq!((store.first(), store.stored_end()), (at(3), at(5)));
}

#[test]
fn reading_only_changes_nothing() {
    let fs = MemoryFileSystem::new();
    let committer = manual(&fs);
    drop(synced(&committer, 10));
    let before: Vec<_> = fs.paths().into_iter().map(|path| (fs.bytes(&path), path)).collect();
    let (store, opened) = PartitionLogStore::open_read_only(&committer, root(), PARTITION, config()).unwrap();
    assert_eq!((opened.end, store.record(at(10)).unwrap()), (at(11), records(10)[9].clone()));
    assert!(store.append(&records(11)[10..]).is_err() && store.compact(at(5)).is_err());
    drop(store);
    let after: Vec<_> = fs.paths().into_iter().map(|path| (fs.bytes(&path), path)).collect();
    assert_eq!(before, after);
}

#[test]
fn log_of_another_partition_is_corrupt() {
    let fs = MemoryFileSystem::new();
    let committer = manual(&fs);
    drop(synced(&committer, 3));
    let (from, to) = (partition_folder(root(), PARTITION), partition_folder(root(), PartitionId(7)));
    for path in fs.paths() {
        let name = path.strip_prefix(&from).unwrap().to_owned();
        fs.set_bytes(&to.join(name), fs.bytes(&path).unwrap());
    }
    let error = PartitionLogStore::open(&committer, root(), PartitionId(7), config()).unwrap_err();
    assert!(matches!(error, LogError::BadStoredRecord { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    remove_partition(&committer, root(), PartitionId(7)).unwrap();
    assert_eq!(list_partitions(&committer, root()).unwrap(), [PARTITION]);
}

/// Every call of a destruction is the last one before the power goes: the log is whole or gone.
#[test]
fn destroyed_log_is_whole_or_gone_whenever_the_power_goes() {
    let (mut whole, mut gone) = (0, 0);
    for last_call in 0.. {
        for seed in 1..20_u64 {
            let fs = MemoryFileSystem::new();
            let store = synced(&manual(&fs), 2000);
            let begun = fs.calls();
            fs.on_call(move |call| {
                (call.number >= begun + last_call).then_some(Fault::Fail(std::io::ErrorKind::Other))
            });
            let destroyed = store.destroy();
            fs.heal();
            let mut random = xorshift(seed);
            fs.power_cut(|_| random() & 1 == 1);
            let committer = manual(&fs);
            clean_root(&committer, root()).unwrap();
            if list_partitions(&committer, root()).unwrap().is_empty() {
                gone += 1;
                assert_eq!(fs.paths(), Vec::<std::path::PathBuf>::new());
            } else {
                whole += 1;
                assert!(destroyed.is_err());
                assert_eq!(open(&committer).stored_end(), at(2001));
            }
            if destroyed.is_ok() && seed == 19 {
                assert!(whole > 0 && gone > 0);
                return;
            }
        }
    }
}

/// One appends, one trims, others read and look for rows: nobody sees a record that is not what was stored.
#[test]
fn readers_appender_and_trimmer_do_not_disturb_each_other() {
    const RECORDS: u64 = 4000;
    let fs = Arc::new(MemoryFileSystem::new());
    let committer = Committer::start(CommitterConfig::default(), fs).unwrap();
    let (store, all) = (open(&committer), records(RECORDS));
    let (appended, all) = (std::sync::atomic::AtomicBool::new(false), &all);
    let done = || appended.load(std::sync::atomic::Ordering::Acquire);
    // Until all are appended nobody may drop anything; then the first half goes.
    let pin = store.pin(at(1)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in all.chunks(7) {
                while let Err(error) = store.append(batch).map(drop) {
                    assert_eq!(error.kind(), ErrorKind::Overloaded);
                }
            }
            appended.store(true, std::sync::atomic::Ordering::Release);
        });
        scope.spawn(|| {
            while !done() {
                assert!(store.trim(store.stored_end().0 * 5).unwrap().is_none());
            }
            drop(pin);
            store.trim(RECORDS * 5).unwrap().unwrap().wait(SOON).unwrap();
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut reader = store.reader(at(1));
                let mut read = 0;
                while !done() {
                    while let Some(record) = reader.next().unwrap_or(None) {
                        assert_eq!(record, all[read]);
                        read += 1;
                    }
                    let offset = (store.stored_end().0 - 1) / 2 * 10;
                    if let Some(found) = store.find_offset(offset).unwrap() {
                        assert_eq!(found, at(offset / 10 + 1));
                    }
                }
            });
        }
    });
    assert_eq!((store.first(), store.stored_end()), (at(RECORDS / 2 + 1), at(RECORDS + 1)));
}
