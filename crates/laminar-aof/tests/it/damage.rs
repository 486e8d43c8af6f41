//! Damaged files: every flipped bit, every length, every subset of unsynced pages, every leftover of an earlier life.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::format::{DATA_START, GROUP_HEADER_BYTES, GroupHeader, SegmentHeader, TRAILER_BYTES};
use laminar_aof::fs::{MemoryFileSystem, Survival};
use laminar_aof::{Aof, AofConfig, AofError, Committer, CommitterConfig, Durability, Opened};
use laminar_core::error::ErrorKind;

const DIR: &str = "/log";

fn config() -> AofConfig {
    AofConfig { segment_bytes_max: 1 << 16, index_interval_bytes: 512, ..AofConfig::default() }
}

fn manual(fs: &MemoryFileSystem) -> Committer {
    Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).unwrap()
}

fn open(fs: &MemoryFileSystem, config: AofConfig) -> Result<(Aof, Opened, Vec<Bytes>), AofError> {
    let (log, opened) = Aof::open(&manual(fs), Path::new(DIR), config)?;
    let records = log.read_range(log.sequences(), u64::MAX)?;
    let payloads = records.into_iter().map(|record| record.payload).collect();
    Ok((log, opened, payloads))
}

fn record(sequence: u64) -> Bytes {
    format!("{sequence:05}").repeat(8).into()
}

/// A log of 12 records in groups of 3, as a killed process leaves it: synced throughout, marked as far as `marked`.
fn small_log(idle_after: &[u64]) -> (MemoryFileSystem, PathBuf, Vec<Bytes>) {
    let fs = MemoryFileSystem::new();
    let committer = manual(&fs);
    let (log, _) = Aof::open(&committer, Path::new(DIR), config()).unwrap();
    for group in 0..4 {
        let ticket = log.append((group * 3..group * 3 + 3).map(record).collect()).unwrap();
        committer.step();
        ticket.outcome().unwrap().unwrap();
        if idle_after.contains(&group) {
            fs.advance(Duration::from_millis(5));
            committer.step();
        }
    }
    let killed = fs.copy();
    let path = killed.paths().pop().unwrap();
    (killed, path, (0..12).map(record).collect())
}

/// The groups that are intact, with the byte after each.
fn intact_groups(bytes: &[u8]) -> Vec<GroupHeader> {
    let Ok(header) = SegmentHeader::decode(bytes) else { return Vec::new() };
    (DATA_START..bytes.len() as u64 - GROUP_HEADER_BYTES as u64)
        .step_by(8)
        .filter_map(|at| GroupHeader::decode(&bytes[at as usize..], &header.key, at).ok())
        .collect()
}

/// Checks what an opening made of a damaged copy of `whole`: corrupt, or an intact prefix above the synced mark.
fn check_damaged(fs: &MemoryFileSystem, bytes: &[u8], whole: &[Bytes], groups: &[GroupHeader]) {
    let mark = intact_groups(bytes).iter().map(|group| group.synced).max().unwrap_or(0);
    let needed: u32 = groups.iter().filter(|group| group.end() <= mark).map(|group| group.records).sum();
    match open(fs, config()) {
        Ok((_, opened, found)) => {
            assert!(whole.starts_with(&found), "not a prefix");
            assert!(found.len() >= needed as usize, "cut below the mark: {} of {needed}", found.len());
            assert!(found.len() == whole.len() || opened.cut.is_some(), "cut without a word");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
    }
}

#[test]
fn every_flipped_bit_gives_an_intact_prefix_above_the_mark_or_corrupt() {
    for idle_after in [vec![], vec![1], vec![3], vec![0, 1, 2, 3]] {
        let (fs, path, whole) = small_log(&idle_after);
        let bytes = fs.bytes(&path).unwrap();
        let groups = intact_groups(&bytes);
        let used = groups.last().unwrap().end() as usize;
        let places = (0..64).chain(DATA_START as usize..used + 64);
        for (byte, bit) in places.flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1 << bit;
            let copy = fs.copy();
            copy.set_bytes(&path, damaged.clone());
            check_damaged(&copy, &damaged, &whole, &groups);
        }
    }
}

#[test]
fn a_bad_record_below_the_mark_is_named() {
    let (fs, path, _) = small_log(&[2]);
    let mut bytes = fs.bytes(&path).unwrap();
    let groups = intact_groups(&bytes);
    // The second record of the second group, in its payload.
    let byte = groups[1].offset + GROUP_HEADER_BYTES as u64 + 56;
    bytes[byte as usize + 20] ^= 1;
    fs.set_bytes(&path, bytes);
    match open(&fs, config()) {
        Err(AofError::Corrupt { segment: 1, record: 4, byte: at, found, expected, synced, .. }) => {
            assert_eq!((at, synced), (byte, groups.iter().map(|group| group.synced).max().unwrap()));
            assert_ne!(found, expected);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_length_of_a_shortened_file_is_corrupt() {
    let (fs, path, whole) = small_log(&[1]);
    let bytes = fs.bytes(&path).unwrap();
    let groups = intact_groups(&bytes);
    let used = groups.last().unwrap().end() as usize;
    for length in (0..100).chain(4000..used + 100).chain((used..bytes.len()).step_by(511)) {
        let copy = fs.copy();
        copy.set_bytes(&path, bytes[..length].to_vec());
        assert_eq!(open(&copy, config()).unwrap_err().kind(), ErrorKind::Corrupt, "{length} bytes");
    }
    // Zeros where the end was: as if it had never been written, which above the mark may be.
    for length in (DATA_START as usize..used).step_by(8) {
        let mut zeroed = bytes.clone();
        zeroed[length..].fill(0);
        let copy = fs.copy();
        copy.set_bytes(&path, zeroed.clone());
        let mark = intact_groups(&zeroed).iter().map(|group| group.synced).max().unwrap_or(0);
        let needed: u32 = groups.iter().filter(|group| group.end() <= mark).map(|group| group.records).sum();
        let (_, _, found) = open(&copy, config()).unwrap();
        assert!(whole.starts_with(&found) && found.len() >= needed as usize);
    }
}

/// Three sealed segments and a tail of equal-sized records with equal bytes.
fn long_log(records: usize, durability: Durability) -> (MemoryFileSystem, Committer, Aof) {
    let fs = MemoryFileSystem::new();
    let committer = manual(&fs);
    let (log, _) = Aof::open(&committer, Path::new(DIR), AofConfig { durability, ..config() }).unwrap();
    for _ in 0..records {
        drop(log.append(vec![Bytes::from_static(&[7; 4000])]).unwrap());
        committer.step();
    }
    (fs, committer, log)
}

#[test]
fn damage_in_a_sealed_segment_is_found_by_verifying_and_by_reading() {
    let (fs, committer, log) = long_log(60, Durability::Synced);
    drop(log);
    drop(committer);
    let sealed = fs.paths().remove(0);
    let bytes = fs.bytes(&sealed).unwrap();
    let verify = || AofConfig { verify_sealed: true, ..config() };
    assert_eq!(open(&fs, verify()).unwrap().2.len(), 60);
    for byte in (0..64).chain((DATA_START as usize..bytes.len()).step_by(199)) {
        let copy = fs.copy();
        let mut damaged = bytes.clone();
        damaged[byte] ^= 0x10;
        copy.set_bytes(&sealed, damaged);
        match open(&copy, verify()) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {byte}: {error}"),
            // Without its trailer a segment of full length is scanned, and every record is there.
            Ok((_, opened, found)) => {
                assert!(byte >= bytes.len() - TRAILER_BYTES, "byte {byte}");
                assert_eq!((found.len(), opened.records_verified), (60, 60));
            }
        }
        // Unverified, the damage is found when it is read at the latest.
        if let Err(error) = open(&copy, config()) {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {byte}: {error}");
        }
    }
    // A sealed segment that is gone is missed.
    for gone in fs.paths().into_iter().rev().skip(1) {
        let copy = MemoryFileSystem::new();
        fs.paths()
            .iter()
            .filter(|path| **path != gone)
            .for_each(|path| copy.set_bytes(path, fs.bytes(path).unwrap()));
        assert!(matches!(open(&copy, config()), Err(AofError::Missing { .. })), "{}", gone.display());
    }
}

#[test]
fn every_subset_of_unsynced_pages_recovers_to_a_prefix_with_all_that_was_acknowledged() {
    // Two acknowledged records, then two groups that are written and not synced, over eight pages.
    let build = || {
        let fs = MemoryFileSystem::new();
        let committer = manual(&fs);
        let background = AofConfig { durability: Durability::Background, ..config() };
        let (log, _) = Aof::open(&committer, Path::new(DIR), background).unwrap();
        drop(log.append(vec![record(0), record(1)]).unwrap());
        drop(log.sync().unwrap());
        committer.step();
        assert_eq!(log.synced(), 2);
        for group in [2..6, 6..9] {
            drop(log.append(group.map(|n| record(n).repeat(100).into()).collect()).unwrap());
            committer.step();
        }
        (fs, committer, log)
    };
    let whole: Vec<Bytes> =
        (0..9).map(|n| if n < 2 { record(n) } else { record(n).repeat(100).into() }).collect();
    let pages = build().0.unsynced().len();
    assert!((7..=10).contains(&pages), "{pages} pages");
    let mut lengths = std::collections::BTreeSet::new();
    for subset in 0_u32..1 << pages {
        let (fs, _committer, _log) = build();
        let mut place = 0;
        fs.power_cut(|survival: &Survival| {
            assert!(matches!(survival, Survival::Page(..)), "{survival:?}");
            place += 1;
            subset >> (place - 1) & 1 == 1
        });
        let (log, opened, found) = open(&fs, config()).unwrap();
        assert!(found.len() >= 2 && whole.starts_with(&found), "subset {subset:b}");
        lengths.insert(found.len());
        // What was reported stays, whatever the disk does next.
        let rewritten = opened.records_rewritten as usize;
        assert!(rewritten >= found.len() - 2);
        fs.power_cut(|_| false);
        drop(log);
        assert_eq!(open(&fs, config()).unwrap().2, found);
    }
    assert!(lengths.len() > 4, "{lengths:?}");
}

#[test]
fn leftovers_of_a_recycled_file_never_pass_as_records() {
    let (fs, committer, log) = long_log(60, Durability::Background);
    drop(log.truncate_front(50).unwrap());
    committer.step();
    committer.step();
    let free = |fs: &MemoryFileSystem| fs.paths().iter().filter(|p| p.extension().unwrap() == "free").count();
    assert_eq!(free(&fs), 2, "{:?}", fs.paths());
    // Equal records again, until the recycled files are in use; the last ones are not synced.
    for _ in 0..20 {
        drop(log.append(vec![Bytes::from_static(&[7; 4000])]).unwrap());
        committer.step();
    }
    assert!(free(&fs) < 2);
    let unsynced = fs.unsynced();
    let (synced, end) = (log.synced(), log.sequences().end);
    assert!(unsynced.len() > 4 && synced < end);
    // Any one page is lost: the log ends at it, at the latest, whatever stands behind it.
    for lost in &unsynced {
        let fs = rebuild_recycled();
        fs.power_cut(|survival| survival != lost);
        let (_, opened, found) = open(&fs, config()).unwrap();
        assert!(opened.sequences.end >= synced && opened.sequences.end <= end);
        assert!(found.iter().all(|record| record == &[7; 4000][..]));
    }
    // All of them are lost: exactly what was synced is there.
    let fs = rebuild_recycled();
    fs.power_cut(|_| false);
    let (_, opened, _) = open(&fs, config()).unwrap();
    assert_eq!(opened.sequences, 50..synced);
}

/// The same as in the test above, on a disk of its own.
fn rebuild_recycled() -> MemoryFileSystem {
    let (fs, committer, log) = long_log(60, Durability::Background);
    drop(log.truncate_front(50).unwrap());
    committer.step();
    committer.step();
    for _ in 0..20 {
        drop(log.append(vec![Bytes::from_static(&[7; 4000])]).unwrap());
        committer.step();
    }
    // As a killed process: nothing is written on the way out.
    std::mem::forget(log);
    fs
}
