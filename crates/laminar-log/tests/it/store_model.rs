//! The Raft log beside a model of what it must hold, through crashes and failures.
//!
//! The files are a log of records, so a crash leaves the state after some record, and never one before the last that
//! was acknowledged. The model keeps the state after every record since then and compares with each.

use std::path::Path;
use std::time::Duration;

use laminar_aof::fs::MemoryFileSystem;
use laminar_aof::{AofConfig, AofError, Committer, Ticket};
use laminar_core::ids::NodeId;
use laminar_log::{EntryPayload, LogEntry, LogError, LogId, SegmentedLogConfig, SegmentedLogStore, Vote};

use crate::support::files::{FaultKind, fail_call, manual};

const DIR: &str = "/raft";

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Entries with payloads of these lengths, of a term so much later.
    Append(Vec<u16>, u8),
    /// To this share of what is there, in 256ths.
    Truncate(u8),
    Purge(u8),
    /// Beyond the end.
    PurgeBeyond(u8),
    Vote(bool),
    Committed(u8),
    FlushCommitted,
    /// Everything that waits is written and synced.
    Commit,
    /// Time passes: marks are raised.
    Idle,
    Close,
    /// What was not synced survives by the bits of this number.
    PowerCut(u64),
    /// The call with this number from now on fails; then the log is reopened without a power cut.
    Fail(u8, FaultKind),
}

/// What the log holds.
#[derive(Debug, Clone, Default, PartialEq)]
struct Content {
    entries: Vec<LogEntry>,
    purged: Option<LogId>,
    vote: Option<Vote>,
    committed: Option<LogId>,
}

impl Content {
    fn last(&self) -> Option<LogId> {
        self.entries.last().map(|entry| entry.id).or(self.purged)
    }

    /// The index at this share of the log, of those that can be truncated to or purged through.
    fn share(&self, share: u8) -> Option<LogId> {
        let at = self.entries.len() * usize::from(share) / 256;
        self.entries.get(at).map(|entry| entry.id)
    }
}

/// One thing asked of the log: how many of the states are known to be on disk once it is done.
struct Asked {
    states: usize,
    ticket: Ticket,
}

pub(crate) struct Run {
    fs: MemoryFileSystem,
    committer: Committer,
    config: SegmentedLogConfig,
    store: Option<SegmentedLogStore>,
    /// The state after each record since the last that was acknowledged, which is the first here.
    states: Vec<Content>,
    asked: Vec<Asked>,
    /// What is committed, if no record says so yet.
    committed_waits: Option<LogId>,
    term: u64,
    serial: u64,
}

impl Run {
    fn new() -> Self {
        let fs = MemoryFileSystem::new();
        let committer = manual(&fs);
        let files = AofConfig {
            segment_bytes_max: 1 << 16,
            index_interval_bytes: 512,
            read_chunk_bytes: 4096,
            ..AofConfig::default()
        };
        let config = SegmentedLogConfig { files, cache_bytes_max: 8000, ..SegmentedLogConfig::default() };
        let mut run = Self {
            fs,
            committer,
            config,
            store: None,
            states: vec![Content::default()],
            asked: Vec::new(),
            committed_waits: None,
            term: 1,
            serial: 0,
        };
        run.reopen();
        run
    }

    fn store(&self) -> &SegmentedLogStore {
        self.store.as_ref().unwrap()
    }

    fn now(&self) -> &Content {
        self.states.last().unwrap()
    }

    /// Takes note of what was asked, and of the state after each of its records.
    fn asked(&mut self, ticket: Result<Ticket, LogError>, states: Vec<Content>) {
        match ticket {
            Ok(ticket) => {
                self.states.extend(states);
                self.asked.push(Asked { states: self.states.len(), ticket });
            }
            Err(error) => {
                assert!(matches!(error, LogError::Files(AofError::Failed { .. })), "{error:?}");
            }
        }
    }

    fn entry(&mut self, length: u16, id: LogId) -> LogEntry {
        self.serial += 1;
        let mut bytes = vec![b'x'; usize::from(length)];
        bytes.iter_mut().zip(self.serial.to_le_bytes()).for_each(|(byte, new)| *byte = new);
        let payload = match self.serial % 5 {
            0 => EntryPayload::Blank,
            1 => EntryPayload::Membership(bytes.into()),
            _ => EntryPayload::Normal(bytes.into()),
        };
        LogEntry { id, payload }
    }

    fn append(&mut self, lengths: &[u16], later: u8) {
        self.term += u64::from(later);
        let mut content = self.now().clone();
        let (mut entries, mut states) = (Vec::new(), Vec::new());
        content.committed = self.committed_waits.or(content.committed);
        for length in lengths {
            let index = content.last().map_or(0, |last| last.index.0 + 1);
            let entry = self.entry(*length, LogId::new(self.term, index));
            entries.push(entry.clone());
            content.entries.push(entry);
            states.push(content.clone());
        }
        let ticket = self.store().append(entries);
        if ticket.is_ok() {
            self.committed_waits = None;
        }
        self.asked(ticket, states);
    }

    /// A record, and behind it one with what is committed if that waits.
    fn with_committed(&mut self, ticket: Result<Ticket, LogError>, content: Content) {
        let mut states = vec![content];
        if let Some(committed) = self.committed_waits.filter(|_| ticket.is_ok()) {
            states.push(Content { committed: Some(committed), ..states[0].clone() });
            self.committed_waits = None;
        }
        self.asked(ticket, states);
    }

    fn truncate(&mut self, share: u8) {
        let mut content = self.now().clone();
        let Some(last) = content.share(share) else { return };
        let same = content.last() == Some(last);
        content.entries.retain(|entry| entry.id.index <= last.index);
        let ticket = self.store().truncate_after(Some(last));
        if same { self.asked(ticket, Vec::new()) } else { self.with_committed(ticket, content) }
    }

    fn purge(&mut self, through: LogId) {
        let mut content = self.now().clone();
        content.entries.retain(|entry| entry.id.index > through.index);
        content.purged = Some(through);
        content.committed = self.committed_waits.or(content.committed);
        let ticket = self.store().purge(through);
        if ticket.is_ok() {
            self.committed_waits = None;
        }
        self.asked(ticket, vec![content]);
    }

    pub(crate) fn apply(&mut self, step: &Step) {
        match step {
            Step::Append(lengths, later) => self.append(lengths, *later),
            Step::Truncate(share) => self.truncate(*share),
            Step::Purge(share) => {
                if let Some(through) = self.now().share(*share) {
                    self.purge(through);
                }
            }
            Step::PurgeBeyond(by) => {
                let next = self.now().last().map_or(0, |last| last.index.0 + 1);
                self.purge(LogId::new(self.term, next + u64::from(*by)));
            }
            Step::Vote(committed) => {
                self.term += u64::from(!committed);
                let vote = Vote { term: self.term, node: NodeId(self.term % 3 + 1), committed: *committed };
                let ticket = self.store().save_vote(vote);
                let content = Content { vote: Some(vote), ..self.now().clone() };
                self.with_committed(ticket, content);
            }
            Step::Committed(share) => {
                let now = self.committed_waits.or(self.now().committed);
                if let Some(committed) = self.now().share(*share).filter(|id| Some(*id) > now) {
                    self.store().save_committed(Some(committed));
                    self.committed_waits = Some(committed);
                }
            }
            Step::FlushCommitted => match self.store().flush_committed() {
                Ok(Some(ticket)) => {
                    let committed = self.committed_waits.take();
                    let content = Content { committed, ..self.now().clone() };
                    self.asked(Ok(ticket), vec![content]);
                }
                Ok(None) => assert_eq!(self.committed_waits, None),
                Err(error) => self.asked(Err(error), Vec::new()),
            },
            Step::Commit => self.committer.step(),
            Step::Idle => {
                self.fs.advance(Duration::from_secs(2));
                self.committer.step();
            }
            Step::Close => self.close(),
            Step::PowerCut(seed) => self.power_cut(*seed),
            Step::Fail(call, kind) => fail_call(&self.fs, *call, *kind),
        }
        self.settle();
        if self.store().failure().is_some() {
            self.check_failed();
            self.fs.heal();
            self.reopen();
        } else {
            self.check();
        }
    }

    fn close(&mut self) {
        let committed = self.committed_waits.take().or(self.now().committed);
        let content = Content { committed, ..self.now().clone() };
        self.states.push(content);
        if self.store.take().unwrap().close().is_ok() {
            self.states.drain(..self.states.len() - 1);
            self.asked.clear();
        }
        self.reopen();
    }

    fn power_cut(&mut self, seed: u64) {
        self.settle();
        let durable = self.store().state().durable;
        self.fs.power_cut_seeded(seed);
        let before = self.now().clone();
        // What is still in memory is lost. The process that died must not write to the disk that the next one opens.
        self.committed_waits = None;
        self.fs = self.fs.copy();
        self.committer = manual(&self.fs);
        self.reopen();
        // What was said to be durable, and was not taken back or purged since, is there.
        let found = self.now();
        for entry in before.entries.iter().filter(|entry| Some(entry.id) <= durable) {
            let purged = found.purged.is_some_and(|purged| purged.index >= entry.id.index);
            assert!(purged || found.entries.contains(entry), "{} was durable", entry.id);
        }
    }

    /// Takes note of what was acknowledged since.
    fn settle(&mut self) {
        while let Some(Asked { states, ticket }) = self.asked.first() {
            if !matches!(ticket.outcome(), Some(Ok(()))) {
                break;
            }
            let gone = states - 1;
            self.states.drain(..gone);
            self.asked.remove(0);
            self.asked.iter_mut().for_each(|asked| asked.states -= gone);
        }
        // LOG-6: once one has failed, none after it is acknowledged.
        let acknowledged = |asked: &Asked| matches!(asked.ticket.outcome(), Some(Ok(())));
        assert!(!self.asked.iter().any(acknowledged), "acknowledged out of order");
    }

    /// LOG-6: nothing is taken any more.
    fn check_failed(&self) {
        let failed = |result: Result<Ticket, LogError>| {
            assert!(matches!(result, Err(LogError::Files(AofError::Failed { .. }))));
        };
        let (store, next) = (self.store(), self.store().state().last.map_or(0, |last| last.index.0 + 1));
        let entry = LogEntry { id: LogId::new(u64::MAX, next), payload: EntryPayload::Blank };
        failed(store.append(vec![entry]));
        failed(store.save_vote(Vote { term: u64::MAX, node: NodeId(1), committed: true }));
        failed(store.sync());
    }

    /// Opens the log anew and compares what it holds with everything it may hold.
    fn reopen(&mut self) {
        // A committed index that waits may be written when the log is dropped.
        let waits = self.committed_waits.take();
        self.store = None;
        let open = || SegmentedLogStore::open(&self.committer, Path::new(DIR), self.config.clone());
        // A fault may hit the opening too; then it is opened again.
        let (store, opened) = open()
            .or_else(|error| {
                assert!(!matches!(error, LogError::BadRecord { .. }), "{error:?}");
                self.fs.heal();
                open()
            })
            .unwrap();
        let found = content(&store);
        let mut may_hold = self.states.clone();
        may_hold.extend(waits.map(|committed| Content { committed: Some(committed), ..self.now().clone() }));
        assert!(may_hold.contains(&found), "found {found:?}, which was never there after {may_hold:?}");
        assert_eq!(opened.state.durable, found.last());
        self.store = Some(store);
        self.states = vec![found];
        self.asked.clear();
    }

    fn check(&self) {
        let (store, now) = (self.store(), self.now());
        let expected = Content { committed: self.committed_waits.or(now.committed), ..now.clone() };
        assert_eq!(content(store), expected);
        let state = store.state();
        assert!(state.purged <= state.durable, "{state:?}");
        if let Some(last) = state.last {
            assert!(state.durable.is_none_or(|durable| durable.index <= last.index), "{state:?}");
        }
        if let Some(middle) = now.entries.get(now.entries.len() / 2) {
            assert_eq!(&store.entry(middle.id.index.0).unwrap(), middle);
            assert_eq!(store.id(middle.id.index.0), Some(middle.id));
        }
        assert!(self.asked.is_empty() || store.failure().is_none());
    }
}

fn content(store: &SegmentedLogStore) -> Content {
    let state = store.state();
    // A fault hits one call.
    let entries = store.read(0..u64::MAX, u64::MAX).or_else(|_| store.read(0..u64::MAX, u64::MAX)).unwrap();
    let content = Content { entries, purged: state.purged, vote: state.vote, committed: state.committed };
    assert_eq!(content.last(), state.last);
    content
}

pub(crate) fn run(steps: &[Step]) {
    let mut run = Run::new();
    for step in steps {
        run.apply(step);
    }
    // Whatever happened, the log still works.
    run.fs.heal();
    run.reopen();
    run.apply(&Step::Append(vec![100], 1));
    run.apply(&Step::Commit);
    assert!(run.asked.is_empty());
    assert_eq!(run.states.len(), 1);
}
