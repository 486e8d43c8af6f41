//! The files of release 0.1 stay readable, and the same log gives the same bytes.
//!
//! `LAMINAR_WRITE_GOLDEN=1 cargo test --release -p laminar-aof --test it golden` writes `tests/data/0.1/` anew. That is
//! right only as long as 0.1 is not released.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use laminar_aof::fs::MemoryFileSystem;
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig};

use crate::LONG;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/0.1")
}

fn open(fs: &MemoryFileSystem, verify_sealed: bool) -> (Aof, laminar_aof::Opened) {
    let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).unwrap();
    let config = AofConfig { index_interval_bytes: 512, verify_sealed, ..AofConfig::default() };
    Aof::open(&committer, Path::new("/log"), config).unwrap()
}

fn record(sequence: u64) -> Bytes {
    Bytes::from(format!("record {sequence} of release 0.1, {}", "=".repeat(sequence as usize * 3)))
}

/// A sealed segment, cut at the back; the segment that cut it, closed; all below record 2 truncated.
fn write_log() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    let (log, _) = open(&fs, false);
    for first in [0, 5] {
        log.append_and_wait((first..first + 5).map(record).collect(), LONG).unwrap();
    }
    log.truncate_back(8).unwrap().wait(LONG).unwrap();
    log.append_and_wait((8..12).map(record).collect(), LONG).unwrap();
    log.truncate_front(2).unwrap().wait(LONG).unwrap();
    log.close().unwrap();
    fs
}

/// Lines of `offset: bytes`, without runs of zeros.
fn to_text(bytes: &[u8]) -> String {
    let mut text = format!("length {}\n", bytes.len());
    for (at, line) in bytes.chunks(32).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0)) {
        write!(text, "{:08x}:", at * 32).unwrap();
        line.iter().for_each(|byte| write!(text, " {byte:02x}").unwrap());
        text.push('\n');
    }
    text
}

fn from_text(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let mut bytes = vec![0; lines.next().unwrap().strip_prefix("length ").unwrap().parse().unwrap()];
    for line in lines {
        let (at, line) = line.split_once(": ").unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for (within, byte) in line.split(' ').enumerate() {
            bytes[at + within] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    bytes
}

#[test]
fn the_same_log_gives_the_bytes_of_release_0_1() {
    let fs = write_log();
    for path in fs.paths() {
        let text = to_text(&fs.bytes(&path).unwrap());
        let golden = data().join(format!("{}.hex", path.file_name().unwrap().to_str().unwrap()));
        if std::env::var_os("LAMINAR_WRITE_GOLDEN").is_some() {
            fs::create_dir_all(data()).unwrap();
            fs::write(&golden, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&golden).unwrap(), text, "{}", golden.display());
    }
    assert_eq!(fs.paths().len(), fs::read_dir(data()).unwrap().count());
}

#[test]
fn files_of_release_0_1_are_read() {
    let fs = MemoryFileSystem::new();
    for entry in fs::read_dir(data()).unwrap().map(Result::unwrap) {
        let path = Path::new("/log").join(entry.path().file_stem().unwrap());
        fs.set_bytes(&path, from_text(&fs::read_to_string(entry.path()).unwrap()));
    }
    let (log, opened) = open(&fs, true);
    assert_eq!((opened.sequences, opened.cut, opened.records_rewritten), (2..12, None, 0));
    for found in log.read_range(2..12, u64::MAX).unwrap() {
        assert_eq!(found.payload, record(found.sequence));
    }
}
