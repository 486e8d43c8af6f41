//! A partition's log beside a model of what it must and may hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::MemoryFileSystem;
use laminar_aof::{AofError, Committer, Ticket};
use laminar_core::ids::{Epoch, LogIndex, NodeId, PartitionId};
use laminar_log::entry::{Append, Change, Fence, PartitionRecord, Payload};
use laminar_log::partition_log::{
    PartitionLogConfig, PartitionLogStore, RecordPin, clean_root, list_partitions,
};
use laminar_log::verdict::AcceptedRecord;
use laminar_log::{LogError, LogId, PartitionLogIndex};

use crate::support::files::{FaultKind, fail_call, manual, xorshift};

pub(crate) const PARTITION: PartitionId = PartitionId(0x2a);

pub(crate) fn root() -> &'static Path {
    Path::new("/partitions")
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Records of so many rows and bytes; none of either makes a fence.
    Append(Vec<(u8, u16)>),
    /// Everything that waits is written.
    Commit,
    /// Time passes: the background is synced, marks are raised.
    Idle,
    Sync,
    /// Trims to this share of the rows, in 255ths.
    Trim(u8),
    Compact(u8),
    /// Cuts what came from entries above that of this share of the records.
    Cut(u8),
    Reset(u8),
    Pin(u8),
    Unpin,
    Reopen,
    Destroy,
    /// What was not synced survives by the bits of this number.
    PowerCut(u64),
    /// The call with this number from now on fails.
    Fail(u8, FaultKind),
}

/// The records from `start` on.
#[derive(Debug, Clone, Default, PartialEq)]
struct Content {
    start: u64,
    records: Vec<AcceptedRecord>,
}

impl Content {
    fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }

    fn get(&self, index: u64) -> Option<&AcceptedRecord> {
        self.records.get(usize::try_from(index.checked_sub(self.start)?).unwrap())
    }
}

pub(crate) struct Run {
    pub(crate) fs: MemoryFileSystem,
    pub(crate) committer: Committer,
    store: PartitionLogStore,
    now: Content,
    /// Every record that was ever at its place since the log was last known to be empty.
    ever: BTreeMap<u64, Vec<AcceptedRecord>>,
    pin: Option<RecordPin>,
    /// Where rows, entries and times go on.
    next: AcceptedRecord,
    serial: u64,
}

pub(crate) fn config() -> PartitionLogConfig {
    PartitionLogConfig { segment_bytes_max: 1 << 16, points_max: 8, ..PartitionLogConfig::default() }
}

fn rows(record: &AcceptedRecord) -> u64 {
    match &record.record.change {
        Change::Append(append) => u64::from(append.rows),
        _ => 0,
    }
}

/// A record with everything 0 or 1, to be changed.
pub(crate) fn first_record() -> AcceptedRecord {
    AcceptedRecord {
        index: PartitionLogIndex(1),
        first_offset: 0,
        log_id: LogId::new(1, 1),
        time_ms: 1,
        record: PartitionRecord {
            partition: PARTITION,
            owner: NodeId(1),
            epoch: Epoch::FIRST,
            change: Change::Fence(Fence { run: 0, metadata_index: 0 }),
        },
    }
}

pub(crate) fn append_change(rows: u32, bytes: Bytes) -> Change {
    Change::Append(Append { rows, create: None, payload: Payload::Inline(bytes) })
}

fn share(range: std::ops::Range<u64>, share: u8) -> u64 {
    range.start + (range.end - range.start) * u64::from(share) / 255
}

fn open(committer: &Committer) -> Result<PartitionLogStore, LogError> {
    clean_root(committer, root())?;
    PartitionLogStore::open(committer, root(), PARTITION, config()).map(|(store, _)| store)
}

fn read_all(store: &PartitionLogStore) -> Result<Content, LogError> {
    let mut reader = store.reader(store.first());
    let mut content = Content { start: store.first().0, records: Vec::new() };
    while let Some(record) = reader.next()? {
        content.records.push(record);
    }
    Ok(content)
}

impl Run {
    pub(crate) fn new() -> Self {
        let fs = MemoryFileSystem::new();
        let committer = manual(&fs);
        let store = open(&committer).unwrap();
        let now = Content { start: 1, records: Vec::new() };
        Self { fs, committer, store, now, ever: BTreeMap::new(), pin: None, next: first_record(), serial: 0 }
    }

    fn make(&mut self, row_count: u8, bytes: u16) -> AcceptedRecord {
        self.serial += 1;
        let mut record = self.next.clone();
        let mut payload = vec![b'x'; usize::from(bytes)];
        payload.iter_mut().zip(self.serial.to_le_bytes()).for_each(|(byte, new)| *byte = new);
        record.record.change = match (row_count, bytes) {
            (0, 0) => Change::Fence(Fence { run: u128::from(self.serial), metadata_index: 1 }),
            _ => append_change(u32::from(row_count), payload.into()),
        };
        self.goes_on(&record);
        // Some entries have several records for a partition.
        self.next.log_id.index.0 += self.serial % 3;
        self.next.time_ms += self.serial % 4;
        record
    }

    fn goes_on(&mut self, last: &AcceptedRecord) {
        self.next = last.clone();
        self.next.index = last.index.next();
        self.next.first_offset += rows(last);
    }

    /// Takes the outcome of a call: `changed` if it went well; a log that failed is opened again.
    fn asked(&mut self, ticket: Result<Option<Ticket>, LogError>, changed: Content) {
        match ticket {
            Ok(_) => self.now = changed,
            Err(error) => {
                assert!(matches!(error, LogError::Files(AofError::Failed { .. })), "{error:?}");
                self.reopen_after_failure();
            }
        }
    }

    pub(crate) fn apply(&mut self, step: &Step) {
        let here = self.now.start..self.now.end();
        match step {
            Step::Append(lengths) => {
                let before = self.next.clone();
                let records: Vec<_> = lengths.iter().map(|(rows, bytes)| self.make(*rows, *bytes)).collect();
                let ticket = self.store.append(&records);
                if ticket.is_ok() {
                    for record in &records {
                        self.ever.entry(record.index.0).or_default().push(record.clone());
                    }
                } else {
                    self.next = before;
                }
                let mut changed = self.now.clone();
                changed.records.extend(records);
                self.asked(ticket.map(Some), changed);
            }
            Step::Commit => self.committer.step(),
            Step::Idle => {
                self.fs.advance(Duration::from_secs(2));
                self.committer.step();
            }
            Step::Sync => {
                let ticket = self.store.sync();
                self.asked(ticket.map(Some), self.now.clone());
            }
            Step::Trim(to) => {
                let first_offset = self.now.records.first().map_or(0, |first| first.first_offset);
                let offset = share(first_offset..self.next.first_offset + 2, *to);
                let keep = self.now.records.iter().rposition(|record| record.first_offset <= offset);
                let ticket = self.store.trim(offset);
                let below = self.now.start + keep.unwrap_or(0) as u64;
                self.dropped(ticket, below);
            }
            Step::Compact(to) => {
                let below = share(here, *to);
                let ticket = self.store.compact(PartitionLogIndex(below));
                self.dropped(ticket, below);
            }
            Step::Cut(to) => {
                let limit = self.now.get(share(here.clone(), *to)).map_or(u64::MAX, |r| r.log_id.index.0);
                let ticket = self.store.cut_above(LogIndex(limit));
                let mut changed = self.now.clone();
                changed.records.retain(|record| record.log_id.index.0 <= limit);
                if ticket.is_ok()
                    && let Some(cut) = self.now.get(changed.end())
                {
                    // The entries above the limit are filled anew, by another leader.
                    self.next = AcceptedRecord {
                        log_id: LogId::new(self.next.log_id.term + 1, limit + 1),
                        ..cut.clone()
                    };
                }
                self.asked(ticket, changed);
            }
            Step::Reset(by) => {
                let first = (self.now.start + u64::from(*by)).saturating_sub(8).max(1);
                let done = self.store.reset(PartitionLogIndex(first));
                self.emptied(done, first);
            }
            Step::Pin(at) => self.pin = self.store.pin(PartitionLogIndex(share(here, *at))).ok(),
            Step::Unpin => self.pin = None,
            Step::Reopen => self.crash(|_| ()),
            Step::Destroy => {
                let done = self.store.clone().destroy();
                if done.is_ok() {
                    self.fs.heal();
                    assert_eq!(list_partitions(&self.committer, root()).unwrap(), []);
                    assert_eq!(self.fs.paths(), Vec::<std::path::PathBuf>::new());
                }
                self.emptied(done, 1);
            }
            Step::PowerCut(seed) => {
                let mut random = xorshift(*seed);
                self.crash(move |fs| fs.power_cut(|_| random() & 1 == 1));
            }
            Step::Fail(call, kind) => fail_call(&self.fs, *call, *kind),
        }
        if self.store.failure().is_some() {
            self.reopen_after_failure();
        }
        self.check();
    }

    fn dropped(&mut self, ticket: Result<Option<Ticket>, LogError>, below: u64) {
        let pinned = self.pin.as_ref().map_or(u64::MAX, |pin| pin.first().0);
        let below = below.min(self.now.end() - 1).min(pinned).max(self.now.start);
        let mut changed = self.now.clone();
        changed.records.drain(..(below - self.now.start) as usize);
        changed.start = below;
        self.asked(ticket, changed);
    }

    /// The log was emptied, or a fault came in between: then it is as it was, or empty.
    fn emptied(&mut self, done: Result<(), LogError>, first: u64) {
        if done.is_ok() {
            self.ever.clear();
            self.next.index = PartitionLogIndex(first);
            self.now = Content { start: first, records: Vec::new() };
            if self.store.failure().is_some() {
                self.reopen();
            }
            return;
        }
        self.fs.heal();
        self.reopen();
        let found = read_all(&self.store).unwrap();
        if found.records.is_empty() {
            assert!([1, first, self.now.start, self.now.end()].contains(&found.start), "{}", found.start);
            self.ever.clear();
        }
        self.found(found);
    }

    fn reopen(&mut self) {
        // A fault may hit the opening; then it is opened again.
        if self.store.reopen().is_err() {
            self.fs.heal();
            self.store.reopen().unwrap();
        }
    }

    fn reopen_after_failure(&mut self) {
        self.fs.heal();
        self.crash(|_| ());
    }

    /// Whatever `happens`, everything known to be synced is there afterwards, and nothing that never was.
    fn crash(&mut self, happens: impl FnOnce(&MemoryFileSystem)) {
        let synced = self.store.synced_end().0;
        happens(&self.fs);
        self.reopen();
        let found = read_all(&self.store).unwrap();
        let known = self.now.start.max(found.start)..synced;
        assert!(found.start <= self.now.start, "records {} on were never dropped", self.now.start);
        assert!(known.clone().all(|n| self.now.get(n) == found.get(n)), "{known:?} was synced");
        self.found(found);
    }

    /// The log goes on from what was found.
    fn found(&mut self, found: Content) {
        for record in &found.records {
            assert!(self.ever[&record.index.0].contains(record), "record {} never was", record.index);
        }
        // LOG-2, also where parts of several versions come together.
        for pair in found.records.windows(2) {
            assert_eq!(pair[0].index.next(), pair[1].index);
            assert_eq!(pair[0].first_offset + rows(&pair[0]), pair[1].first_offset);
        }
        let log_id = self.next.log_id;
        match found.records.last() {
            Some(last) => self.goes_on(&last.clone()),
            None => self.next.index = PartitionLogIndex(found.start),
        }
        self.next.log_id.term = self.next.log_id.term.max(log_id.term);
        self.next.log_id.index = self.next.log_id.index.max(log_id.index);
        self.now = found;
    }

    fn check(&self) {
        let store = &self.store;
        assert_eq!((store.first().0, store.stored_end().0), (self.now.start, self.now.end()));
        assert!(store.synced_end() <= store.stored_end());
        assert_eq!(read_all(store).unwrap(), self.now);
        let Some(record) = self.now.get(self.now.start + self.now.records.len() as u64 * 2 / 3) else {
            assert_eq!(
                (store.find_offset(0).unwrap(), store.find_time(0, PartitionLogIndex::NONE).unwrap()),
                (None, None)
            );
            return;
        };
        assert_eq!(&store.record(record.index).unwrap(), record);
        store.check_tuple(record.index, record.log_id).unwrap();
        let wrong = LogId::new(record.log_id.term + 1, record.log_id.index.0);
        assert!(matches!(store.check_tuple(record.index, wrong), Err(LogError::WrongTuple { .. })));
        if rows(record) > 0 {
            let last_row = record.first_offset + rows(record) - 1;
            assert_eq!(store.find_offset(record.first_offset).unwrap(), Some(record.index));
            assert_eq!(store.find_offset(last_row).unwrap(), Some(record.index));
        }
        let last = self.now.records.last().unwrap();
        let of_time = self.now.records.iter().find(|other| other.time_ms >= record.time_ms).unwrap();
        assert_eq!(store.find_time(record.time_ms, last.index).unwrap(), Some(of_time.index));
        assert_eq!(store.find_offset(last.first_offset + rows(last)).unwrap(), None);
        assert_eq!(store.find_time(last.time_ms + 1, last.index).unwrap(), None);
        // A record that the log does not have may be of any time, and from any entry.
        let lacks = |found| matches!(found, Err(LogError::NotStoredAgain { .. }));
        assert!(lacks(store.find_time(0, last.index.next()).map(drop)));
        assert!(lacks(store.end_at(last.log_id.index, last.index.next()).map(drop)));
    }
}

pub(crate) fn run(steps: &[Step]) {
    let mut run = Run::new();
    for step in steps {
        run.apply(step);
    }
    // Whatever happened, the log still works.
    run.fs.heal();
    run.apply(&Step::Append(vec![(1, 100)]));
    run.apply(&Step::Sync);
    run.committer.step();
    assert_eq!(run.store.synced_end(), run.store.stored_end());
    run.apply(&Step::PowerCut(0));
}
