//! The Raft log on files in memory, one behaviour at a time.

use std::io;

use bytes::{Bytes, BytesMut};
use laminar_aof::fs::{Fault, MemoryFileSystem, Survival};
use laminar_aof::{CommitterConfig, FileOperation};
use laminar_core::ids::NodeId;

use super::*;

struct Fixture {
    fs: MemoryFileSystem,
    committer: Committer,
}

impl Fixture {
    fn new() -> Self {
        let fs = MemoryFileSystem::new();
        let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).unwrap();
        Self { fs, committer }
    }

    fn open(&self) -> SegmentedLogStore {
        self.open_with(8 << 20)
    }

    fn open_with(&self, cache_bytes_max: u64) -> SegmentedLogStore {
        let config = SegmentedLogConfig { cache_bytes_max, ..SegmentedLogConfig::default() };
        SegmentedLogStore::open(&self.committer, Path::new("/raft"), config).unwrap().0
    }

    /// Cuts the power; nothing that was not synced survives.
    fn power_cut(&self, store: SegmentedLogStore) -> SegmentedLogStore {
        self.fs.power_cut(|_: &Survival| false);
        drop(store);
        self.open()
    }
}

fn entry(term: u64, index: u64) -> LogEntry {
    LogEntry { id: LogId::new(term, index), payload: EntryPayload::Normal(format!("{term}-{index}").into()) }
}

fn entries(term: u64, range: Range<u64>) -> Vec<LogEntry> {
    range.map(|index| entry(term, index)).collect()
}

fn vote(term: u64) -> Vote {
    Vote { term, node: NodeId(7), committed: false }
}

#[test]
fn entries_are_read_at_once_and_durable_after_the_ticket() {
    let fixture = Fixture::new();
    let store = fixture.open();
    assert_eq!(store.state(), StoreState::default());
    let ticket = store.append(entries(1, 0..3)).unwrap();
    assert_eq!(store.read(0..9, u64::MAX).unwrap(), entries(1, 0..3));
    assert_eq!((store.state().last, store.state().durable), (Some(LogId::new(1, 2)), None));
    let until = store.until_durable(2).unwrap().unwrap();
    fixture.committer.step();
    assert!(ticket.outcome().unwrap().is_ok() && until.outcome().unwrap().is_ok());
    assert!(store.until_durable(2).unwrap().is_none());
    assert_eq!(store.state().durable, Some(LogId::new(1, 2)));
    drop(store.append(entries(2, 3..5)).unwrap());
    assert_eq!(store.state().durable, Some(LogId::new(1, 2)));
    let store = fixture.power_cut(store);
    assert_eq!(store.read(0..9, u64::MAX).unwrap(), entries(1, 0..3));
}

#[test]
fn entries_that_do_not_follow_are_refused_and_change_nothing() {
    let store = Fixture::new().open();
    drop(store.append(entries(2, 5..7)).unwrap());
    for bad in [entry(2, 6), entry(2, 8), entry(1, 7)] {
        let error = store.append(vec![bad]).unwrap_err();
        assert!(
            matches!(error, LogError::NotConsecutive { last: Some(last), .. } if last == LogId::new(2, 6))
        );
    }
    assert!(matches!(
        store.append(vec![entry(2, 7), entry(2, 9)]),
        Err(LogError::NotConsecutive { given, .. }) if given == LogId::new(2, 9)
    ));
    assert_eq!(store.state().last, Some(LogId::new(2, 6)));
}

#[test]
fn a_truncation_and_what_replaces_it_are_one_story() {
    let fixture = Fixture::new();
    let store = fixture.open();
    drop(store.append(entries(1, 0..6)).unwrap());
    drop(store.save_vote(vote(1)).unwrap());
    fixture.committer.step();
    drop(store.truncate_after(Some(LogId::new(1, 2))).unwrap());
    assert_eq!(store.state().durable, Some(LogId::new(1, 2)));
    drop(store.append(entries(3, 3..5)).unwrap());
    let expected = [entries(1, 0..3), entries(3, 3..5)].concat();
    assert_eq!(store.read(0..9, u64::MAX).unwrap(), expected);
    fixture.committer.step();
    let store = fixture.power_cut(store);
    assert_eq!(store.read(0..9, u64::MAX).unwrap(), expected);
    assert_eq!((store.vote(), store.state().durable), (Some(vote(1)), Some(LogId::new(3, 4))));
    assert_eq!(store.last_of_terms(0..9), [LogId::new(1, 2), LogId::new(3, 4)]);
    drop(store.truncate_after(None).unwrap());
    assert_eq!(store.state().last, None);
    fixture.committer.step();
    assert_eq!(fixture.power_cut(store).state().last, None);
}

#[test]
fn purged_entries_are_gone_and_the_vote_is_not() {
    let fixture = Fixture::new();
    let store = fixture.open();
    drop(store.save_vote(vote(4)).unwrap());
    drop(store.append(entries(1, 0..10)).unwrap());
    store.save_committed(Some(LogId::new(1, 8)));
    drop(store.purge(LogId::new(1, 6)).unwrap());
    // The state is not on disk yet, so the old records must still be there.
    assert_eq!(store.inner.aof.sequences().start, 0);
    fixture.committer.step();
    assert!(store.flush_committed().unwrap().is_none());
    assert_eq!(store.inner.aof.sequences().start, 8);
    fixture.committer.step();
    assert!(matches!(store.truncate_after(Some(LogId::new(1, 3))), Err(LogError::NoEntry { index: 3, .. })));
    let store = fixture.power_cut(store);
    let state = store.state();
    assert_eq!((state.purged, state.last), (Some(LogId::new(1, 6)), Some(LogId::new(1, 9))));
    assert_eq!((state.vote, state.committed), (Some(vote(4)), Some(LogId::new(1, 8))));
    assert_eq!(store.read(0..99, u64::MAX).unwrap(), entries(1, 7..10));
    assert!(matches!(store.entry(6), Err(LogError::NoEntry { index: 6, first: 7, last: 9 })));
}

#[test]
fn a_purge_beyond_the_end_moves_the_log_there() {
    let fixture = Fixture::new();
    let store = fixture.open();
    drop(store.append(entries(1, 0..3)).unwrap());
    drop(store.purge(LogId::new(5, 20)).unwrap());
    assert_eq!(store.state().last, Some(LogId::new(5, 20)));
    assert!(store.append(entries(5, 3..4)).is_err());
    drop(store.append(entries(5, 21..23)).unwrap());
    fixture.committer.step();
    let store = fixture.power_cut(store);
    assert_eq!(store.read(0..99, u64::MAX).unwrap(), entries(5, 21..23));
    assert_eq!(store.state().purged, Some(LogId::new(5, 20)));
    // A purge that comes late changes nothing.
    drop(store.purge(LogId::new(1, 2)).unwrap());
    assert_eq!(store.state().purged, Some(LogId::new(5, 20)));
}

#[test]
fn what_is_committed_costs_no_sync_and_is_kept_at_close() {
    let fixture = Fixture::new();
    let store = fixture.open();
    drop(store.append(entries(1, 0..3)).unwrap());
    fixture.committer.step();
    let calls = fixture.fs.calls();
    store.save_committed(Some(LogId::new(1, 1)));
    fixture.committer.step();
    assert_eq!((fixture.fs.calls(), store.committed()), (calls, Some(LogId::new(1, 1))));
    let store = fixture.power_cut(store);
    assert_eq!(store.committed(), None);
    store.save_committed(Some(LogId::new(1, 1)));
    drop(store.append(vec![entry(1, 3)]).unwrap());
    fixture.committer.step();
    let store = fixture.power_cut(store);
    assert_eq!(store.committed(), Some(LogId::new(1, 1)));
    store.save_committed(Some(LogId::new(1, 2)));
    store.close().unwrap();
    let store = fixture.open();
    store.save_committed(Some(LogId::new(1, 3)));
    drop(store);
    assert_eq!(fixture.open().committed(), Some(LogId::new(1, 3)));
}

#[test]
fn reads_are_bounded_by_bytes_in_memory_and_in_files() {
    for cache_bytes_max in [0, 500, 1 << 20] {
        let fixture = Fixture::new();
        let store = fixture.open_with(cache_bytes_max);
        let all: Vec<LogEntry> = (0..20)
            .map(|index| LogEntry {
                id: LogId::new(1 + index / 7, index),
                payload: EntryPayload::Normal(vec![index as u8; 100].into()),
            })
            .collect();
        for some in all.chunks(3) {
            drop(store.append(some).unwrap());
            drop(store.save_vote(vote(some[0].id.term)).unwrap());
            fixture.committer.step();
        }
        assert_eq!(store.read(0..100, u64::MAX).unwrap(), all, "cache {cache_bytes_max}");
        assert_eq!(store.read(5..8, u64::MAX).unwrap(), all[5..8]);
        assert_eq!(store.read(5..8, 0).unwrap(), all[5..6]);
        assert_eq!(store.read(5..18, 250).unwrap(), all[5..8]);
        assert_eq!(store.read(18..18, 250).unwrap(), []);
        assert_eq!(store.entry(19).unwrap(), all[19]);
        assert_eq!((store.id(6), store.id(7)), (Some(LogId::new(1, 6)), Some(LogId::new(2, 7))));
    }
}

/// LOG-6.
#[test]
fn after_a_failed_sync_everything_fails_until_the_log_is_reopened() {
    let fixture = Fixture::new();
    let store = fixture.open();
    drop(store.append(entries(1, 0..2)).unwrap());
    drop(store.save_vote(vote(3)).unwrap());
    fixture.committer.step();
    let fails = |call: &laminar_aof::fs::FileCall| {
        (call.operation == FileOperation::Sync).then_some(Fault::Fail(io::ErrorKind::Other))
    };
    fixture.fs.on_call(fails);
    let ticket = store.append(entries(1, 2..4)).unwrap();
    fixture.committer.step();
    fixture.fs.heal();
    assert!(ticket.outcome().unwrap().is_err());
    let failed =
        |result: Result<Ticket, LogError>| matches!(result, Err(LogError::Files(AofError::Failed { .. })));
    assert!(failed(store.append(entries(1, 4..5))));
    assert!(failed(store.save_vote(vote(4))));
    assert!(failed(store.truncate_after(None)));
    assert!(failed(store.purge(LogId::new(1, 0))));
    assert!(store.failure().is_some());
    assert_eq!((store.vote(), store.state().durable), (Some(vote(3)), Some(LogId::new(1, 1))));
    drop(store);
    let store = fixture.open();
    assert_eq!(store.vote(), Some(vote(3)));
    assert_eq!(store.read(0..2, u64::MAX).unwrap(), entries(1, 0..2));
    let next = store.state().last.unwrap().index.0 + 1;
    drop(store.append(entries(1, next..next + 1)).unwrap());
    fixture.committer.step();
    assert_eq!(store.state().durable, Some(LogId::new(1, next)));
}

#[test]
fn a_record_that_makes_no_sense_is_corruption() {
    let good = |index| format::encode_entry(&mut BytesMut::new(), &entry(1, index), None).0;
    let state = |index| {
        let purged = Some(LogId::new(1, index));
        format::encode_state(&format::State { purged, ..format::State::default() })
    };
    let cases = [
        vec![good(0), good(2)],
        vec![Bytes::from_static(b"zz")],
        vec![state(5), state(4)],
        vec![state(5), format::encode_truncate(Some(3))],
    ];
    for records in cases {
        let fixture = Fixture::new();
        let config = SegmentedLogConfig::default();
        let (aof, _) = Aof::open(&fixture.committer, Path::new("/raft"), config.files.clone()).unwrap();
        let last = records.len() as u64 - 1;
        drop(aof.append(records).unwrap());
        aof.close().unwrap();
        let error = SegmentedLogStore::open(&fixture.committer, Path::new("/raft"), config).unwrap_err();
        assert!(matches!(error, LogError::BadRecord { sequence, .. } if sequence == last), "{error:?}");
        assert_eq!(error.kind(), laminar_core::error::ErrorKind::Corrupt);
    }
}

#[test]
fn a_log_opened_to_be_read_is_left_alone() {
    let fixture = Fixture::new();
    let store = fixture.open();
    drop(store.append(entries(1, 0..3)).unwrap());
    store.close().unwrap();
    let config = SegmentedLogConfig::default();
    let (store, opened) =
        SegmentedLogStore::open_read_only(&fixture.committer, Path::new("/raft"), config).unwrap();
    assert_eq!((opened.records_read, opened.cut, opened.state.last), (3, None, Some(LogId::new(1, 2))));
    assert_eq!(store.read(0..3, u64::MAX).unwrap(), entries(1, 0..3));
    assert!(matches!(store.append(entries(1, 3..4)), Err(LogError::Files(AofError::ReadOnly { .. }))));
}
