//! A log beside a model of what it must and may hold (LOG-3, LOG-6).
//!
//! The committer has no threads here: the test decides what is written when, and cuts the power anywhere between.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::{Fault, MemoryFileSystem};
use laminar_aof::{Aof, AofConfig, AofError, Committer, CommitterConfig, Durability, FileOperation, Ticket};

const DIR: &str = "/log";

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Records of these lengths, in one call.
    Append(Vec<u16>),
    /// Everything that waits is written, and synced if it is due.
    Commit,
    /// Time passes: idle logs raise their marks, the background is synced.
    Idle,
    Sync,
    /// Back to this share of what is there, in 256ths.
    Back(u8),
    Front(u8),
    /// Beyond the end.
    Reset(u8),
    Close,
    /// What was not synced survives by the bits of this number.
    PowerCut(u64),
    /// The call with this number from now on fails; later the log is reopened without a power cut.
    Fail(u8, FaultKind),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FaultKind {
    Error,
    Full,
    Tear(u16),
}

/// What the log must and may hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Content {
    start: u64,
    records: Vec<Bytes>,
}

impl Content {
    fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }

    fn get(&self, sequence: u64) -> Option<&Bytes> {
        self.records.get(usize::try_from(sequence.checked_sub(self.start)?).unwrap())
    }
}

/// One thing asked of the log, and the content once it was done.
pub(crate) struct Asked {
    content: Content,
    ticket: Ticket,
}

pub(crate) struct Run {
    pub(crate) fs: MemoryFileSystem,
    pub(crate) committer: Committer,
    dir: PathBuf,
    config: AofConfig,
    log: Option<Aof>,
    pub(crate) now: Content,
    /// The content that was last acknowledged, and everything asked for since.
    pub(crate) acknowledged: Content,
    pub(crate) asked: Vec<Asked>,
    serial: u64,
    /// Whether the log is read after each step; not while a fault may hit that.
    pub(crate) check_reads: bool,
    /// Set by a hook that fails every call from now on: the power is out, and comes back with the next opening.
    pub(crate) power_out: Arc<AtomicBool>,
    /// What survives that, by its bits.
    pub(crate) survivors: u64,
}

impl Run {
    pub(crate) fn new(durability: Durability) -> Self {
        let fs = MemoryFileSystem::new();
        let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).unwrap();
        Self::beside(fs, committer, Path::new(DIR), durability)
    }

    /// A log that shares disk and committer with others.
    fn beside(fs: MemoryFileSystem, committer: Committer, dir: &Path, durability: Durability) -> Self {
        let config = AofConfig {
            durability,
            segment_bytes_max: 1 << 16,
            index_interval_bytes: 512,
            read_chunk_bytes: 4096,
            ..AofConfig::default()
        };
        let mut run = Self {
            fs,
            committer,
            dir: dir.to_owned(),
            config,
            log: None,
            now: Content::default(),
            acknowledged: Content::default(),
            asked: Vec::new(),
            serial: 0,
            check_reads: true,
            power_out: Arc::default(),
            survivors: 0,
        };
        run.reopen();
        run
    }

    fn log(&self) -> &Aof {
        self.log.as_ref().unwrap()
    }

    fn payload(&mut self, length: u16) -> Bytes {
        // Most records have equal sizes and equal bytes but for a few: leftovers would look just like them.
        self.serial += 1;
        let mut bytes = vec![b'x'; usize::from(length)];
        if self.serial.is_multiple_of(3) {
            bytes.iter_mut().zip(self.serial.to_le_bytes()).for_each(|(byte, new)| *byte = new);
        }
        bytes.into()
    }

    fn asked(&mut self, ticket: Result<Ticket, AofError>) {
        match ticket {
            Ok(ticket) => self.asked.push(Asked { content: self.now.clone(), ticket }),
            // A log that failed in the background says so at the next call.
            Err(error) => {
                assert!(matches!(error, AofError::Failed { .. }), "{error:?}");
                self.reopen_after_failure();
            }
        }
    }

    pub(crate) fn apply(&mut self, step: &Step) {
        let share = |range: std::ops::Range<u64>, share: u8| {
            range.start + (range.end - range.start) * u64::from(share) / 255
        };
        let here = self.now.start..self.now.end();
        match step {
            Step::Append(lengths) => {
                let records: Vec<Bytes> = lengths.iter().map(|length| self.payload(*length)).collect();
                let ticket = self.log().append(records.clone());
                if ticket.is_ok() {
                    self.now.records.extend(records);
                }
                self.asked(ticket);
            }
            Step::Commit => self.committer.step(),
            Step::Idle => {
                self.fs.advance(Duration::from_secs(2));
                self.committer.step();
            }
            Step::Sync => {
                let ticket = self.log().sync();
                self.asked(ticket);
            }
            Step::Back(to) => {
                let from = share(here, *to);
                let ticket = self.log().truncate_back(from);
                if ticket.is_ok() {
                    self.now.records.truncate((from - self.now.start) as usize);
                }
                self.asked(ticket);
            }
            Step::Front(to) => {
                let before = share(here, *to);
                let ticket = self.log().truncate_front(before);
                if ticket.is_ok() {
                    self.now.records.drain(..(before - self.now.start) as usize);
                    self.now.start = before;
                }
                self.asked(ticket);
            }
            Step::Reset(by) => {
                let before = self.now.end() + u64::from(*by);
                let ticket = self.log().truncate_front(before);
                if ticket.is_ok() {
                    self.now = Content { start: before, records: Vec::new() };
                }
                self.asked(ticket);
            }
            Step::Close => {
                if self.log.take().unwrap().close().is_ok() {
                    self.acknowledged = self.now.clone();
                    self.asked.clear();
                }
                self.reopen();
            }
            Step::PowerCut(seed) => {
                self.settle();
                let said = self.said();
                self.fs.power_cut_seeded(*seed);
                self.reopen();
                self.check_said(&said);
            }
            Step::Fail(call, kind) => {
                let (mut left, kind) = (*call, *kind);
                self.fs.on_call(move |call| {
                    // The test itself reads after each step.
                    let reads = [FileOperation::Read, FileOperation::Open, FileOperation::Length];
                    if reads.contains(&call.operation) || left == u8::MAX {
                        return None;
                    }
                    let now = left == 0;
                    left = left.wrapping_sub(1);
                    now.then_some(match kind {
                        FaultKind::Error => Fault::Fail(io::ErrorKind::Other),
                        FaultKind::Full => Fault::Fail(io::ErrorKind::StorageFull),
                        FaultKind::Tear(_) if call.operation != FileOperation::Write => {
                            Fault::Fail(io::ErrorKind::Other)
                        }
                        FaultKind::Tear(bytes) => Fault::Tear(usize::from(bytes), io::ErrorKind::Other),
                    })
                });
            }
        }
        self.look();
    }

    /// Takes note of what has become of the log.
    fn look(&mut self) {
        self.settle();
        if self.log().failure().is_some() {
            self.reopen_after_failure();
        }
        if self.check_reads {
            self.check();
        }
    }

    /// Up to where the log says that it is on disk, and what it holds.
    fn said(&self) -> (u64, Content) {
        (self.log().synced(), self.now.clone())
    }

    /// What the log said is on disk, is.
    fn check_said(&self, (synced, before): &(u64, Content)) {
        let known = before.start.max(self.now.start)..*synced;
        assert!(known.clone().all(|n| before.get(n) == self.now.get(n)), "{known:?} was synced");
    }

    /// Takes note of what was acknowledged since.
    pub(crate) fn settle(&mut self) {
        while let Some(first) = self.asked.first() {
            match first.ticket.outcome() {
                Some(Ok(())) => self.acknowledged = self.asked.remove(0).content,
                Some(Err(_)) | None => break,
            }
        }
        // LOG-6: once one has failed, none after it is acknowledged.
        let outcomes = || self.asked.iter().map(|asked| asked.ticket.outcome());
        assert!(!outcomes().any(|outcome| matches!(outcome, Some(Ok(())))), "acknowledged out of order");
    }

    fn reopen_after_failure(&mut self) {
        self.settle();
        if self.power_out.load(Ordering::SeqCst) {
            return self.reopen();
        }
        self.fs.heal();
        // LOG-6: what is not known to be on disk is not acknowledged; what is, can still be read.
        let log = self.log();
        assert!(matches!(log.append(vec![Bytes::new()]), Err(AofError::Failed { .. })));
        for sequence in log.sequences() {
            let record = log.read(sequence).unwrap();
            let asked = self.asked.iter().map(|asked| &asked.content);
            assert!(asked.chain([&self.acknowledged]).any(|content| content.get(sequence) == Some(&record)));
        }
        self.reopen();
    }

    fn restore_power(&self) {
        if self.power_out.swap(false, Ordering::SeqCst) {
            let mut bits = self.survivors;
            self.fs.power_cut(|_| {
                bits = bits.rotate_left(1);
                bits & 1 == 1
            });
            self.fs.heal();
        }
    }

    /// Opens the log anew and compares what it holds with everything it may hold.
    pub(crate) fn reopen(&mut self) {
        drop(self.log.take());
        self.restore_power();
        // A fault may hit the opening too; then it is opened again.
        let opened = Aof::open(&self.committer, &self.dir, self.config.clone()).or_else(|error| {
            assert!(matches!(error, AofError::Io { .. } | AofError::DiskFull { .. }), "{error}");
            self.restore_power();
            self.fs.heal();
            Aof::open(&self.committer, &self.dir, self.config.clone())
        });
        let (log, opened) = opened.unwrap();
        // A fault hits one call, unless the power is out.
        let found = read_all(&log).or_else(|_| read_all(&log));
        if self.power_out.load(Ordering::SeqCst) {
            self.log = Some(log);
            return self.reopen();
        }
        let found = found.unwrap();
        assert_eq!(opened.sequences, found.start..found.end());
        assert!(self.may_hold(&found), "found {}..{}, which was never there", found.start, found.end());
        self.log = Some(log);
        self.now = found.clone();
        self.acknowledged = found;
        self.asked.clear();
    }

    /// After a crash a log holds what was acknowledged, and beyond that any prefix of what was asked for since.
    fn may_hold(&self, found: &Content) -> bool {
        let mut before = &self.acknowledged;
        if found == before {
            return true;
        }
        for Asked { content: after, .. } in &self.asked {
            // An append may be there in part.
            let (low, high) = (before.end().min(after.end()), before.end().max(after.end()));
            let starts_known = [before.start, after.start].contains(&found.start);
            let ends_known = (low..=high).contains(&found.end()) || found.records.is_empty();
            let equal = |sequence: u64| {
                let record = found.get(sequence);
                record == after.get(sequence) || record == before.get(sequence)
            };
            if starts_known && ends_known && (found.start..found.end()).all(equal) {
                return true;
            }
            before = after;
        }
        false
    }

    fn check(&self) {
        let log = self.log();
        assert_eq!(log.sequences(), self.now.start..self.now.end());
        assert_eq!(read_all(log).unwrap(), self.now);
        assert!(log.synced() <= self.now.end());
        if !self.now.records.is_empty() {
            let middle = self.now.start + self.now.records.len() as u64 / 2;
            assert_eq!(log.read(middle).unwrap(), self.now.get(middle).unwrap());
        }
    }
}

fn read_all(log: &Aof) -> Result<Content, AofError> {
    let sequences = log.sequences();
    let records = log.read_range(sequences.clone(), u64::MAX)?;
    assert!(records.iter().map(|record| record.sequence).eq(sequences.clone()));
    Ok(Content {
        start: sequences.start,
        records: records.into_iter().map(|record| record.payload).collect(),
    })
}

pub(crate) fn run(durability: Durability, steps: &[Step]) {
    let mut run = Run::new(durability);
    for step in steps {
        run.apply(step);
    }
    run.finish();
}

impl Run {
    /// Whatever happened, the log still works.
    fn finish(&mut self) {
        self.fs.heal();
        self.reopen();
        self.apply(&Step::Append(vec![100]));
        self.apply(&Step::Sync);
        self.committer.step();
        self.settle();
        assert!(self.asked.is_empty());
        assert_eq!(self.acknowledged, self.now);
    }
}

/// Several logs in the background, synced together where two or more have something; each step is for one of them.
pub(crate) fn run_many(logs: usize, steps: &[(u8, Step)]) {
    let fs = MemoryFileSystem::new();
    let config = CommitterConfig { sync_all_files_min: 2, open_files_max: 2, ..CommitterConfig::default() };
    let committer = Committer::manual(config, Arc::new(fs.clone())).unwrap();
    let open = |number| {
        let dir = PathBuf::from(format!("/logs/{number}"));
        Run::beside(fs.clone(), committer.clone(), &dir, Durability::Background)
    };
    let mut runs: Vec<Run> = (0..logs).map(open).collect();
    for (log, step) in steps {
        if let Step::PowerCut(seed) = step {
            runs.iter_mut().for_each(Run::settle);
            let said: Vec<(u64, Content)> = runs.iter().map(Run::said).collect();
            fs.power_cut_seeded(*seed);
            // What ran until then does nothing more.
            fs.on_call(|_| Some(Fault::Fail(io::ErrorKind::Other)));
            runs.iter_mut().for_each(|run| drop(run.log.take()));
            fs.heal();
            runs.iter_mut().for_each(Run::reopen);
            runs.iter().zip(&said).for_each(|(run, said)| run.check_said(said));
        } else {
            runs[usize::from(*log) % logs].apply(step);
            runs.iter_mut().for_each(Run::look);
        }
    }
    runs.iter_mut().for_each(Run::finish);
}
