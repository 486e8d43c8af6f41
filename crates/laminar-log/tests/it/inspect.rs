//! Looking at a replica's folder: its numbers are right, every damage is found, and nothing is changed.
//!
//! `LAMINAR_WRITE_GOLDEN=1 cargo test --release -p laminar-log --test it inspect` writes `tests/data/0.1/replica.hex` of the
//! repository anew, which the tests of the command line read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::{MemoryFileSystem, RealFileSystem};
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig};
use laminar_core::error::ErrorKind;
use laminar_core::ids::PartitionId;
use laminar_log::entry::{Change, Entry, Fence, MachineKind, Record, TrimTo};
use laminar_log::format::{decode_stored, encode_entry, encode_stored};
use laminar_log::inspect::{InspectError, InspectReport, LogKind, Progress, VerifyReport, inspect, verify};
use laminar_log::partition_log::{PartitionLogStore, partition_folder};
use laminar_log::verdict::AcceptedRecord;
use laminar_log::{EntryPayload, LogEntry, LogId, PartitionLogIndex, SegmentedLogStore, Vote, layout};

use crate::inspect_support::{
    TERM, dir, files, from_text, log_config, noise, partition_config, record, rows, sample, to_text,
    with_files,
};
use crate::support::files::manual;

fn inspected(fs: &MemoryFileSystem) -> InspectReport {
    inspect(Arc::new(fs.clone()), dir(), None).unwrap()
}

fn verified(fs: &MemoryFileSystem) -> VerifyReport {
    verify(Arc::new(fs.clone()), dir(), None).unwrap()
}

fn message(fs: &MemoryFileSystem) -> String {
    let report = verified(fs);
    assert!(!report.ok);
    report.first_error.unwrap().message
}

#[test]
fn the_numbers_of_a_replica_are_right() {
    let fs = sample(2000, 60).close();
    let report = inspected(&fs);
    assert_eq!((report.kind, &report.first_error), (LogKind::Replica, &None));
    let log = report.segmented_log.unwrap();
    let id = |index| Some(LogId::new(TERM, index));
    // Entries 1 to 128, the snapshot at 128, three entries before it kept; then 62 more.
    assert_eq!(
        (log.purged, log.first_index, log.last, log.committed),
        (id(125), Some(126), id(190), id(190))
    );
    assert_eq!(log.durable, id(190));
    assert_eq!(log.vote, Some(Vote { term: TERM, node: laminar_core::ids::NodeId(1), committed: true }));
    assert!(log.files.segments.len() >= 2);
    assert!(log.files.segments[..log.files.segments.len() - 1].iter().all(|segment| segment.sealed));
    assert_eq!(log.files.segments[0].first, log.files.first);
    assert_eq!(log.files.segments.last().unwrap().end, log.files.end);
    for pair in log.files.segments.windows(2) {
        assert_eq!(pair[0].end, pair[1].first);
    }
    assert_eq!(log.files.synced_end, log.files.end);
    assert_eq!(log.files.cut, None);

    let ids: Vec<u32> = report.partitions.iter().map(|partition| partition.partition.0).collect();
    assert_eq!(ids, [1, 2, 3, 5]);
    let [one, two, three, five] = &report.partitions[..] else { panic!("{ids:?}") };
    // Created, 60 entries of two records each, a fence, 60 more, a trim.
    assert_eq!(one.files.end, 1 + 1 + 120 + 1 + 60 + 1);
    assert_eq!(one.end_offset, Some(60 * 7 + 60 * 4));
    assert_eq!((one.last_epoch, one.owner.map(|owner| owner.0)), (Some(2), Some(2)));
    assert_eq!((one.last_log_id, one.last_time_ms), (id(190), Some(5000)));
    assert!(one.files.segments.len() >= 2);
    assert_eq!(
        (two.end_offset, two.last_epoch, two.owner.map(|owner| owner.0)),
        (Some(60), Some(1), Some(1))
    );
    // Trimmed to its end: the trim is left, and does not tell the owner.
    assert_eq!(
        (five.files.first, five.files.end, five.first_offset, five.end_offset),
        (3, 4, Some(6), Some(6))
    );
    assert_eq!((five.last_epoch, five.owner), (Some(1), None));
    assert_eq!((three.first_epoch, three.owner.map(|owner| owner.0)), (Some(1), Some(2)));
    assert_eq!((three.first_offset, three.end_offset, three.last_log_id), (Some(0), Some(63), id(188)));

    let [snapshot] = &report.snapshots[..] else { panic!("one snapshot") };
    assert_eq!((Some(snapshot.log_id), snapshot.partitions, snapshot.to_install), (id(128), 4, false));
    assert!(snapshot.bytes > 100);

    let verify = verified(&fs);
    assert!(verify.ok, "{:?}", verify.first_error);
    let partition_records: u64 =
        report.partitions.iter().map(|partition| partition.files.end - partition.files.first).sum();
    assert_eq!(verify.records, partition_records + (log.files.end - log.files.first));
    assert_eq!((verify.cuts, verify.ahead), (vec![], vec![]));
    let bytes: u64 = report.partitions.iter().map(|partition| partition.files.bytes).sum();
    assert_eq!(verify.bytes, bytes + log.files.bytes + snapshot.bytes);
}

#[test]
fn nothing_is_changed_on_real_files_also_while_the_replica_runs() {
    let replica = sample(500, 20);
    let temporary = tempfile::tempdir().unwrap();
    let copy = files(&replica.fs);
    for (path, bytes) in &copy {
        let path = temporary.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let fs: Arc<RealFileSystem> = Arc::default();
    let report = inspect(fs.clone(), temporary.path(), None).unwrap();
    assert_eq!(report.partitions.len(), 4);
    let verify = verify(fs, temporary.path(), None).unwrap();
    assert!(verify.ok, "{:?}", verify.first_error);
    let mut left = 0;
    for (path, bytes) in &copy {
        assert!(std::fs::read(temporary.path().join(path)).unwrap() == *bytes, "{}", path.display());
        left += 1;
    }
    assert_eq!(left, walk(temporary.path()).len());
    // And in the same process, on the very files that are being written to.
    let before = files(&replica.fs);
    assert!(verified(&replica.fs).ok);
    inspected(&replica.fs);
    assert!(files(&replica.fs) == before);
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(walk(&entry.path()))
        } else {
            found.push(entry.path())
        }
    }
    found
}

/// What of a file may be flipped without harm: `used` bytes, and whether an index and a trailer follow them.
struct Used {
    bytes: u64,
    capacity: u64,
    sealed: bool,
}

fn used(report: &InspectReport) -> BTreeMap<PathBuf, Used> {
    let mut used = BTreeMap::new();
    let mut add = |dir: PathBuf, files: &laminar_log::inspect::FilesReport| {
        for segment in &files.segments {
            let name = dir.join(format!("{:016x}.seg", segment.id));
            used.insert(
                name,
                Used { bytes: segment.bytes, capacity: segment.capacity, sealed: segment.sealed },
            );
        }
    };
    add("raft".into(), &report.segmented_log.as_ref().unwrap().files);
    for partition in &report.partitions {
        add(partition_folder(Path::new("partitions"), partition.partition), &partition.files);
    }
    used
}

/// Flips bits of all files, and sees each flip found unless it is where nothing stands.
fn flip_bits(fs: &MemoryFileSystem, flips: u64, closed: bool) {
    let whole = files(fs);
    let used = used(&inspected(fs));
    let (mut found, mut cut, mut unused) = (0, 0, 0);
    let mut random = 0x1234_5678_9abc_def1_u64;
    for number in 0..flips {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (path, bytes) = whole.iter().nth((random % whole.len() as u64) as usize).unwrap();
        // Half of the flips fall on what is used; most of a file is not.
        let length = match used.get(path) {
            Some(used) if number % 2 == 0 && !used.sealed => used.bytes,
            _ => bytes.len() as u64,
        };
        let (offset, bit) = ((random >> 20) % length, (random >> 50) % 8);
        let mut damaged = whole.clone();
        damaged.get_mut(path).unwrap()[offset as usize] ^= 1 << bit;
        let fs = with_files(&damaged);
        let report = verified(&fs);
        let place = format!("{} byte {offset} bit {bit}", path.display());
        let may_pass = match used.get(path) {
            // A snapshot, all of which counts; or a segment that the log has given up.
            None => path.extension().unwrap() != "snap",
            Some(_) if (64..4096).contains(&offset) => true,
            // The trailer of a segment that was full is behind its capacity: without it, the records tell as much.
            Some(used) if used.sealed => length >= used.capacity && offset >= length - 64,
            Some(used) => offset >= used.bytes,
        };
        match (report.ok, report.cuts.is_empty()) {
            (false, _) => {
                assert!(!may_pass, "{place}: {:?}", report.first_error);
                let error = report.first_error.unwrap();
                assert!(!error.message.contains('\n') && !error.log.is_empty(), "{error:?}");
                found += 1;
            }
            (true, true) => {
                assert!(may_pass, "{place}: not found");
                unused += 1;
            }
            (true, false) => {
                // Above the synced mark only: of a closed log those are its last groups, which are empty; one raised the
                // mark when it was idle, and one when it was closed.
                let Used { bytes, .. } = used[path];
                let last = &report.cuts[0];
                assert!(path.to_str().unwrap().starts_with(&last.log), "{place}: {last:?}");
                assert!(last.byte <= offset, "{place}: {last:?}");
                assert!(!closed || [bytes - 64, bytes - 128].contains(&last.byte), "{place}: {last:?}");
                cut += 1;
            }
        }
        assert!(files(&fs) == damaged, "{place}: something was changed");
    }
    assert!(found > flips / 8 && unused > flips / 8, "{found} found, {cut} cut, {unused} unused");
}

#[test]
fn every_flipped_bit_is_found_or_above_the_synced_mark() {
    flip_bits(&sample(1500, 30).close(), 1500, true);
}

#[test]
fn every_flipped_bit_of_a_running_replica_is_found_or_above_the_synced_mark() {
    let mut replica = sample(1500, 30);
    // The last records are not marked as synced yet.
    replica.entry(6000, vec![record(1, 2, 2, rows(4, noise(1, 900)))]);
    flip_bits(&with_files(&files(&replica.fs)), 800, false);
}

#[test]
fn every_bit_of_a_snapshot_and_of_segment_headers_counts() {
    let fs = sample(300, 3).close();
    let whole = files(&fs);
    for (path, bytes) in &whole {
        let snapshot = path.extension().unwrap() == "snap";
        let end = if snapshot { bytes.len() } else { 64 };
        for offset in 0..end {
            let mut damaged = whole.clone();
            damaged.get_mut(path).unwrap()[offset] ^= 1 << (offset % 8);
            let report = verified(&with_files(&damaged));
            assert!(!report.ok, "{} byte {offset}", path.display());
        }
    }
}

#[test]
fn a_torn_tail_is_a_cut_and_no_error() {
    let mut replica = sample(500, 5);
    let synced = files(&replica.fs);
    replica.entry(6000, vec![record(1, 2, 2, rows(4, noise(1, 9000)))]);
    let now = files(&replica.fs);
    // The last entry reached the disk in part.
    let raft = synced.keys().rfind(|path| path.starts_with("raft")).unwrap();
    let mut changed = (0..now[raft].len()).filter(|at| now[raft][*at] != synced[raft][*at]);
    let (first, last) = (changed.next().unwrap(), changed.next_back().unwrap());
    let mut torn = now.clone();
    torn.get_mut(raft).unwrap()[first + 4000..=last].fill(0);
    let fs = with_files(&torn);
    let report = inspected(&fs);
    let log = report.segmented_log.unwrap();
    let cut = log.files.cut.clone().unwrap();
    assert_eq!((cut.log.as_str(), cut.record), ("raft", log.files.end));
    assert!(log.files.synced_end <= log.files.end);
    let verify = verified(&fs);
    assert!(verify.ok, "{:?}", verify.first_error);
    assert_eq!(verify.cuts, [cut]);
    // The partition has stored what the segmented log lost: the next start cuts it there, too.
    let [ahead] = &verify.ahead[..] else { panic!("{:?}", verify.ahead) };
    assert_eq!(ahead.partition, PartitionId(1));
    assert_eq!(ahead.record.next(), ahead.end);
}

#[test]
fn an_unsynced_tail_is_told_by_the_watermark() {
    let mut replica = sample(500, 5);
    let before = inspected(&replica.fs).segmented_log.unwrap().files;
    assert_eq!(before.synced_end, before.end);
    replica.entry(6000, vec![record(1, 2, 2, rows(4, noise(1, 900)))]);
    let after = inspected(&replica.fs).segmented_log.unwrap();
    assert_eq!((after.files.synced_end, after.files.end), (before.end, before.end + 1));
    assert!(after.durable < after.last);
}

/// The stored records of a partition, changed, and written anew.
fn rewritten(
    fs: &MemoryFileSystem,
    partition: u32,
    change: impl FnOnce(&mut Vec<AcceptedRecord>),
) -> MemoryFileSystem {
    let fs = with_files(&files(fs));
    let committer = manual(&fs);
    let root = layout::partitions_dir(dir());
    let id = PartitionId(partition);
    let (log, opened) = PartitionLogStore::open_read_only(&committer, &root, id, partition_config()).unwrap();
    let mut reader = log.reader(opened.first);
    let mut records = Vec::new();
    while let Some(bytes) = reader.next_stored().unwrap() {
        records.push(decode_stored(&bytes).unwrap());
    }
    drop((reader, log));
    change(&mut records);
    laminar_log::partition_log::remove_partition(&committer, &root, id).unwrap();
    // Past the store, which would refuse what does not follow.
    let config = AofConfig { first_sequence: opened.first.0, ..AofConfig::default() };
    let (aof, _) = Aof::open(&committer, &partition_folder(&root, id), config).unwrap();
    drop(aof.append(records.iter().map(encode_stored).collect()).unwrap());
    aof.close().unwrap();
    fs
}

#[test]
fn records_that_do_not_follow_are_named() {
    let fs = sample(100, 6).close();
    assert!(verified(&rewritten(&fs, 1, |_| {})).ok);
    type Case = (&'static str, u32, fn(&mut Vec<AcceptedRecord>), &'static str);
    let cases: Vec<Case> = vec![
        ("tuple", 1, |r| r[17].log_id.term -= 1, "it was stored from entry 2-"),
        ("other entry", 1, |r| r[17].log_id.index.0 += 1, "has no such record (LOG-4)"),
        ("a gap of offsets", 1, |r| r[17].first_offset += 1, "its first offset (LOG-2) is"),
        ("a gap of indices", 1, |r| drop(r.remove(17)), "it cannot be read"),
        ("payload", 1, |r| r[17].record.change = rows(4, "other"), "has no such record (LOG-4)"),
        (
            "epoch back",
            1,
            |r| r[17].record.epoch = laminar_core::ids::Epoch::FIRST,
            "its epoch (EPOCH-2) is 1, expected 2",
        ),
        ("owner", 1, |r| r[17].record.owner.0 = 9, "its owner (EPOCH-2) is 9, expected 2"),
        ("time back", 1, |r| r[17].time_ms = 1, "its time (APPLY-2) is 1, expected"),
        ("time ahead", 1, |r| r[16].time_ms += 1, "its time (APPLY-2) is"),
        (
            "trim",
            5,
            |r| r.last_mut().unwrap().record.change = Change::Trim(TrimTo::Offset(5)),
            "has no such record",
        ),
        (
            "fence of the same epoch",
            1,
            |r| r[14].record.change = Change::Fence(Fence { run: 0, metadata_index: 0 }),
            "its epoch (EPOCH-2) is 2, expected 3 or more",
        ),
        (
            "creation twice",
            1,
            |r| r[17].record.change = Change::Create(MachineKind::Log),
            "the place of its creation",
        ),
        ("cut below the snapshot", 2, |r| r.truncate(3), "and records up to 8 were on disk"),
        (
            "other offsets below the snapshot",
            2,
            |r| {
                r[3].record.change = rows(2, "two rows");
                r[4..].iter_mut().for_each(|record| record.first_offset += 1);
            },
            "the offset behind it (LOG-2, by the snapshot) is 7, expected 6",
        ),
    ];
    for (name, partition, change, expected) in cases {
        let fs = rewritten(&fs, partition, change);
        let report = verified(&fs);
        let error = report.first_error.unwrap_or_else(|| panic!("{name}: it was not found"));
        assert!(error.message.contains(expected), "{name}: {}", error.message);
        assert_eq!(error.partition, Some(partition), "{name}");
        assert_eq!(error.log, format!("partitions/{partition:08x}"), "{name}");
        assert!(error.record.is_some(), "{name}");
    }
}

#[test]
fn a_bad_record_is_named_with_segment_record_byte_and_checksums() {
    let fs = sample(1500, 30).close();
    let mut damaged = files(&fs);
    let raft = damaged.keys().find(|path| path.starts_with("raft")).unwrap().clone();
    damaged.get_mut(&raft).unwrap()[9000] ^= 4;
    let fs = with_files(&damaged);
    let error = verified(&fs).first_error.unwrap();
    let id = u64::from_str_radix(raft.file_stem().unwrap().to_str().unwrap(), 16).unwrap();
    assert_eq!((error.log.as_str(), error.segment), ("raft", Some(id)));
    assert!(error.byte.unwrap() <= 9000 && error.record.is_some());
    let (found, expected) = (error.found.unwrap(), error.expected.unwrap());
    assert!(error.message.contains(&format!("checksum {found}, expected {expected}")), "{}", error.message);
    assert!(error.message.contains(&format!("segment {id}, record {}", error.record.unwrap())));
    // A segment that is whole by its trailer is not read by an inspection, which shows the rest.
    assert_eq!(inspected(&fs).partitions.len(), 4);
}

#[test]
fn a_missing_segment_a_missing_partition_and_a_foreign_snapshot_are_found() {
    let whole = files(&sample(2000, 60).close());
    {
        let mut gone = whole.clone();
        let second = gone.keys().filter(|path| path.starts_with("raft")).nth(1).unwrap().clone();
        gone.remove(&second);
        assert!(message(&with_files(&gone)).contains("are missing before segment"));
    }
    {
        let mut gone = whole.clone();
        let last = gone.keys().rfind(|path| path.starts_with("raft")).unwrap().clone();
        gone.remove(&last);
        let text = message(&with_files(&gone));
        assert!(text.contains("and the segmented log ends with 3-"), "{text}");
    }
    {
        let mut gone = whole.clone();
        gone.retain(|path, _| !path.starts_with("partitions/00000003"));
        assert!(message(&with_files(&gone)).contains("partition 3: its log ends before record 1"));
    }
    {
        let mut renamed = whole.clone();
        let name = renamed.keys().find(|path| path.starts_with("snapshots")).unwrap().clone();
        let bytes = renamed.remove(&name).unwrap();
        renamed.insert("snapshots/00000000000000ff-0000000000000003.snap".into(), bytes);
        assert!(message(&with_files(&renamed)).contains("the entry of the snapshot is"));
    }
    {
        let mut renamed = whole.clone();
        let moved: Vec<_> =
            renamed.keys().filter(|path| path.starts_with("partitions/00000003")).cloned().collect();
        for path in moved {
            let bytes = renamed.remove(&path).unwrap();
            renamed.insert(Path::new("partitions/00000005").join(path.file_name().unwrap()), bytes);
        }
        let text = message(&with_files(&renamed));
        assert!(text.contains("partition 5, record"), "{text}");
    }
}

#[test]
fn a_damaged_partition_does_not_hide_the_others() {
    let whole = files(&sample(300, 5).close());
    let mut damaged = whole.clone();
    let name = damaged.keys().find(|path| path.starts_with("partitions/00000002")).unwrap().clone();
    damaged.get_mut(&name).unwrap()[0] ^= 1;
    let report = inspected(&with_files(&damaged));
    let errors: Vec<bool> = report.partitions.iter().map(|partition| partition.error.is_some()).collect();
    assert_eq!(errors, [false, true, false, false]);
    assert_eq!(report.first_error, report.partitions[1].error);
    assert_eq!(report.first_error.unwrap().log, "partitions/00000002");
}

#[test]
fn a_folder_of_one_log_is_looked_at_as_what_it_is() {
    let fs = sample(300, 5).close();
    let look = |dir: &Path| inspect(Arc::new(fs.clone()), dir, None).unwrap();
    let check = |dir: &Path| verify(Arc::new(fs.clone()), dir, None).unwrap();
    let raft = layout::raft_dir(dir());
    let report = look(&raft);
    assert_eq!((report.kind, report.partitions.len()), (LogKind::SegmentedLog, 0));
    assert_eq!(report.segmented_log.unwrap().last, inspected(&fs).segmented_log.unwrap().last);
    assert!(check(&raft).ok && check(&raft).records > 10);
    let partition = partition_folder(&layout::partitions_dir(dir()), PartitionId(3));
    let report = look(&partition);
    assert_eq!((report.kind, report.partitions[0].partition), (LogKind::PartitionLog, PartitionId(3)));
    assert!(check(&partition).ok && check(&partition).records == 6);
    // A log of something else, and one whose folder has another name.
    let committer = manual(&fs);
    let (aof, _) = Aof::open(&committer, Path::new("/else"), AofConfig::default()).unwrap();
    drop(aof.append(vec![Bytes::from_static(b"x"), Bytes::from_static(b"y")]).unwrap());
    aof.close().unwrap();
    let report = look(Path::new("/else"));
    assert_eq!((report.kind, report.files.unwrap().end), (LogKind::Files, 2));
    assert_eq!(check(Path::new("/else")).records, 2);
}

#[test]
fn a_folder_without_a_log_is_refused() {
    let fs = sample(300, 2).close();
    laminar_aof::fs::FileSystem::create_dir(&fs, Path::new("/empty")).unwrap();
    let error = verify(Arc::new(fs.clone()), Path::new("/empty"), None).unwrap_err();
    assert!(matches!(&error, InspectError::NotALog { .. }));
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(
        error.line(),
        "/empty: there is no log here; give the folder of a replica (it has raft, partitions and snapshots in it), or \
         one with segment files"
    );
    let error = inspect(Arc::new(fs), Path::new("/none"), None).unwrap_err();
    assert!(matches!(&error, InspectError::Folder { .. }));
    assert_eq!(error.line(), "/none: the folder cannot be listed: entity not found");
}

#[test]
fn whoever_waits_is_told_how_far_it_is_and_can_stop_it() {
    let fs = sample(1500, 30).close();
    let last = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&last);
    let progress: Progress = Arc::new(move |done, total| {
        assert!(done <= total && total > 100_000);
        assert!(seen.swap(done, Ordering::Relaxed) <= done);
        true
    });
    assert!(verify(Arc::new(fs.clone()), dir(), Some(progress)).unwrap().ok);
    assert!(last.load(Ordering::Relaxed) > 100_000);
    let stop: Progress = Arc::new(|_, _| false);
    let stopped = verify(Arc::new(fs.clone()), dir(), Some(Arc::clone(&stop)));
    assert!(matches!(stopped, Err(InspectError::Stopped)));
    assert!(matches!(inspect(Arc::new(fs), dir(), Some(stop)), Err(InspectError::Stopped)));
}

/// The hardest case on real files: segments are begun, sealed, recycled and removed while the log is read.
#[test]
fn a_log_that_is_written_to_meanwhile_is_never_called_damaged() {
    let temporary = tempfile::tempdir().unwrap();
    let raft = temporary.path().join("raft");
    let fs: Arc<RealFileSystem> = Arc::default();
    let committer = Committer::start(CommitterConfig::default(), fs).unwrap();
    let mut config = log_config();
    config.files.recycled_files_max = 2;
    let (log, _) = SegmentedLogStore::open(&committer, &raft, config).unwrap();
    log.append([LogEntry { id: LogId::new(1, 0), payload: EntryPayload::Blank }])
        .unwrap()
        .wait(Duration::from_secs(30))
        .unwrap();
    let writer = std::thread::spawn(move || {
        for index in (0..4_000).step_by(8) {
            let entry = |index| {
                let records = vec![Record::Partition(record(1, 1, 1, rows(1, noise(index, 700))))];
                let bytes = encode_entry(&Entry { time_ms: index, records, ..Entry::default() });
                LogEntry { id: LogId::new(1, index), payload: EntryPayload::Normal(bytes) }
            };
            let entries: Vec<LogEntry> = (index + 1..=index + 8).map(entry).collect();
            log.append(&entries).unwrap().wait(Duration::from_secs(30)).unwrap();
            if index % 160 == 0 && index > 400 {
                drop(log.purge(LogId::new(1, index - 300)).unwrap());
            }
        }
    });
    let mut rounds = 0;
    while !writer.is_finished() {
        let fs: Arc<RealFileSystem> = Arc::default();
        let dir = if rounds % 2 == 0 { temporary.path() } else { &raft };
        let report = verify(fs.clone(), dir, None).unwrap();
        assert!(report.ok, "round {rounds}: {:?}", report.first_error);
        assert_eq!(inspect(fs, dir, None).unwrap().first_error, None, "round {rounds}");
        rounds += 1;
    }
    writer.join().unwrap();
    assert!(rounds > 10, "{rounds} rounds");
}

#[test]
fn the_replica_of_release_0_1_is_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/0.1/replica.hex");
    if std::env::var_os("LAMINAR_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
        std::fs::write(&golden, to_text(&files(&sample(40, 3).close()))).unwrap();
    }
    let files = from_text(&std::fs::read_to_string(&golden).unwrap());
    let fs = with_files(&files);
    let report = verified(&fs);
    assert!(report.ok, "{:?}", report.first_error);
    assert_eq!((report.records, report.cuts.len()), (29, 0));
    let report = inspected(&fs);
    assert_eq!(report.segmented_log.unwrap().last, Some(LogId::new(TERM, 19)));
    assert_eq!(report.partitions[0].files.end, PartitionLogIndex(13).0);
}
