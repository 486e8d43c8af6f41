//! What fuzzers call, and what the tests call with proptest: any bytes into any decoder, any damage into any folder.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::format::{
    FileName, GroupHeader, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentKey, Trailer, decode_index,
    decode_record, record_bytes,
};
use crate::fs::MemoryFileSystem;
use crate::{Aof, AofConfig, Committer, CommitterConfig};

const DIR: &str = "/log";
const RECORDS: u64 = 60;

/// No bytes make a decoder panic or accept more than there is.
pub fn decoders(data: &[u8]) {
    if let Ok(header) = SegmentHeader::decode(data) {
        assert_eq!(header.encode(), data[..SEGMENT_HEADER_BYTES]);
    }
    let word =
        |at: usize| data.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().expect("8 bytes")));
    let key = SegmentKey::new(word(0), word(8));
    for offset in [word(16), 4096] {
        if let Ok(group) = GroupHeader::decode(data, &key, offset) {
            assert!(group.synced <= group.offset && group.offset == offset);
        }
    }
    for length in [word(24), data.len() as u64] {
        if let Ok(trailer) = Trailer::decode(data, &key, length) {
            assert_eq!(trailer.file_bytes(), length);
        }
    }
    if let Ok(record) = decode_record(data, &key, word(8)) {
        assert!(record.payload.end <= record.next && record.next <= data.len());
        assert_eq!(record_bytes(record.payload.len()), record.next);
    }
    if let Ok(index) = decode_index(data, crc32c::crc32c(data)) {
        assert_eq!(index.len() * crate::format::INDEX_ENTRY_BYTES, data.len());
    }
    if let Some(name) = FileName::parse(&String::from_utf8_lossy(data)) {
        assert!(matches!(name, FileName::Segment(_) | FileName::Free(_)));
    }
}

fn record(sequence: u64) -> Bytes {
    Bytes::from(format!("{sequence:07}").repeat(1 + sequence as usize * 37 % 500))
}

fn config(verify_sealed: bool) -> AofConfig {
    AofConfig {
        segment_bytes_max: 1 << 16,
        index_interval_bytes: 512,
        read_chunk_bytes: 4096,
        verify_sealed,
        ..AofConfig::default()
    }
}

fn manual(fs: &MemoryFileSystem) -> Committer {
    Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).expect("the defaults are in range")
}

/// A log of sealed segments and an open one, as a killed process leaves it.
fn whole() -> &'static MemoryFileSystem {
    static WHOLE: OnceLock<MemoryFileSystem> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let fs = MemoryFileSystem::new();
        let committer = manual(&fs);
        let (log, _) = Aof::open(&committer, Path::new(DIR), config(false)).expect("the folder is empty");
        for first in (0..RECORDS).step_by(4) {
            drop(log.append((first..first + 4).map(record).collect()).expect("there is room"));
            committer.step();
        }
        fs.copy()
    })
}

/// Damages the files of a log as `data` says, 8 bytes a change, and opens it: what is found was written.
pub fn folder(data: &[u8]) {
    let fs = whole().copy();
    for change in data.chunks_exact(8).take(16) {
        damage(&fs, change);
    }
    for verify_sealed in [false, true] {
        let fs = fs.copy();
        let Ok((log, opened)) = Aof::open(&manual(&fs), Path::new(DIR), config(verify_sealed)) else {
            continue;
        };
        for sequence in opened.sequences {
            if let Ok(found) = log.read(sequence) {
                assert_eq!(found, record(sequence), "record {sequence} was never written like this");
            }
        }
    }
}

/// One change: a flipped bit, a shortened, lengthened or removed file, zeros, or bytes of one place in another.
fn damage(fs: &MemoryFileSystem, change: &[u8]) {
    let paths = fs.paths();
    let pick = |byte: u8| paths.get(usize::from(byte) % paths.len().max(1)).cloned();
    let (Some(path), Some(other)) = (pick(change[1]), pick(change[2])) else { return };
    let mut bytes = fs.bytes(&path).unwrap_or_default();
    let place =
        |high: u8, low: u8, length: usize| usize::from(high) * 251 + usize::from(low) * 8 % (length + 1);
    let at = place(change[3], change[4], bytes.len()).min(bytes.len());
    let span = (1 << (change[5] % 14)).min(bytes.len() - at);
    match change[0] % 7 {
        0 if at < bytes.len() => bytes[at] ^= 1 << (change[5] % 8),
        1 => bytes.truncate(at),
        2 => bytes.resize(bytes.len() + at, 0),
        3 => bytes[at..at + span].fill(0),
        4 | 5 => {
            let source = fs.bytes(&other).unwrap_or_default();
            let from = (place(change[6], change[7], source.len()) / 8 * 8).min(source.len());
            let span = span.min(source.len() - from);
            let at = if change[0] % 7 == 4 { at / 8 * 8 } else { at };
            bytes[at..at + span].copy_from_slice(&source[from..from + span]);
        }
        _ => {
            return fs.set_bytes(
                &PathBuf::from(DIR).join(crate::format::segment_file_name(change[5].into())),
                bytes,
            );
        }
    }
    fs.set_bytes(&path, bytes);
}
