//! One log on real files and in memory: what goes in comes out, also after a restart.

use std::sync::Arc;

use bytes::Bytes;
use laminar_aof::fs::{FileSystem, MemoryFileSystem, RealFileSystem};
use laminar_aof::{Aof, AofConfig, AofError, Committer, CommitterConfig, Durability};

use crate::LONG;

fn payload(sequence: u64, length: usize) -> Bytes {
    let mut bytes = format!("record {sequence} ").into_bytes();
    bytes.resize(length.max(1), b'.');
    bytes.into()
}

fn start(fs: impl FileSystem + 'static) -> Committer {
    Committer::start(CommitterConfig::default(), Arc::new(fs)).unwrap()
}

fn check(log: &Aof, length: usize) {
    let sequences = log.sequences();
    let mut reader = log.reader(sequences.start);
    for sequence in sequences.clone() {
        let record = reader.next().unwrap().unwrap();
        assert_eq!((record.sequence, record.payload), (sequence, payload(sequence, length)));
    }
    assert_eq!(reader.next().unwrap(), None);
    for sequence in sequences.step_by(37) {
        assert_eq!(log.read(sequence).unwrap(), payload(sequence, length));
    }
}

#[test]
fn records_come_back_after_a_restart_on_real_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/log");
    let committer = start(RealFileSystem::default());
    for durability in [Durability::Synced, Durability::Background] {
        let path = path.join(format!("{durability:?}"));
        let config = || AofConfig { durability, segment_bytes_max: 1 << 18, ..AofConfig::default() };
        let mut next = 0;
        for round in 0..4 {
            let (log, opened) = Aof::open(&committer, &path, config()).unwrap();
            assert_eq!(
                (opened.sequences, opened.cut, opened.records_rewritten),
                (0..next, None, 0),
                "round {round}"
            );
            check(&log, 300);
            let tickets: Vec<_> = (0..50)
                .map(|_| {
                    let batch: Vec<Bytes> = (0..60).map(|i| payload(next + i, 300)).collect();
                    next += 60;
                    log.append(batch).unwrap()
                })
                .collect();
            check(&log, 300);
            log.sync().unwrap().wait(LONG).unwrap();
            tickets.iter().for_each(|ticket| ticket.wait(LONG).unwrap());
            assert_eq!(log.synced(), next);
            check(&log, 300);
            log.close().unwrap();
        }
        let sealed = AofConfig { verify_sealed: true, ..config() };
        let (log, opened) = Aof::open_read_only(&committer, &path, sealed).unwrap();
        assert_eq!((opened.sequences, opened.records_verified), (0..next, next));
        assert!(matches!(log.append(vec![Bytes::new()]), Err(AofError::ReadOnly { .. })));
    }
}

#[test]
fn truncation_at_both_ends_holds_after_a_restart() {
    let committer = start(MemoryFileSystem::new());
    let config = AofConfig { segment_bytes_max: 1 << 16, ..AofConfig::default() };
    let (log, _) = Aof::open(&committer, "/log".as_ref(), config.clone()).unwrap();
    for sequence in 0..2000 {
        drop(log.append(vec![payload(sequence, 200)]).unwrap());
    }
    log.truncate_back(1500).unwrap().wait(LONG).unwrap();
    assert_eq!(log.sequences(), 0..1500);
    check(&log, 200);
    log.append(vec![payload(1500, 200)]).unwrap().wait(LONG).unwrap();
    log.truncate_front(700).unwrap().wait(LONG).unwrap();
    check(&log, 200);
    assert!(matches!(log.read(699), Err(AofError::OutOfRange { first: 700, end: 1501, .. })));
    log.close().unwrap();
    let (log, opened) = Aof::open(&committer, "/log".as_ref(), config.clone()).unwrap();
    assert_eq!(opened.sequences, 700..1501);
    check(&log, 200);
    log.truncate_front(5000).unwrap().wait(LONG).unwrap();
    assert_eq!(log.sequences(), 5000..5000);
    log.append(vec![payload(5000, 200)]).unwrap().wait(LONG).unwrap();
    drop(log);
    let (log, opened) = Aof::open(&committer, "/log".as_ref(), config).unwrap();
    assert_eq!(opened.sequences, 5000..5001);
    check(&log, 200);
}
