//! One log inside: its files, its memory, and the steps that keep the two in line.
//!
//! ORDER: `writer`, then `state` or `files`; the committer's locks are taken while none of these is held.

pub(crate) mod state;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use crc32c::crc32c;

use crate::committer::{Lane, Shared};
use crate::config::{AofConfig, Durability};
use crate::error::AofError;
use crate::format::{DATA_START, free_file_name, record_bytes};
use crate::fs::{Folder, OpenFile};
use crate::housekeeping::Job;
use crate::read::SegmentReader;
use crate::recover::{Recovered, SegmentRange};
use crate::segment::{OpenSegment, Segment};
use crate::ticket::Ticket;
use crate::writer::Writer;
use state::{Load, Op, State, Taken};

pub(crate) struct Log {
    /// A number of this opening, which no other in this process has.
    pub(crate) uid: u64,
    pub(crate) folder: Folder,
    pub(crate) device: u64,
    pub(crate) config: AofConfig,
    pub(crate) shared: Arc<Shared>,
    pub(crate) lane: Arc<Lane>,
    /// Itself, to hand to the committer.
    this: Weak<Log>,
    writable: bool,
    state: Mutex<State>,
    /// Told whenever less is pending.
    room: Condvar,
    /// The count in `State::cuts`, which readers look at before each record.
    cuts: AtomicU64,
    writer: Mutex<Writer>,
    files: Mutex<Files>,
    /// Whether the folder's own name is durable.
    folder_durable: AtomicBool,
}

/// Files that are no segments yet.
#[derive(Default)]
struct Files {
    next_id: u64,
    prepared: Option<OpenSegment>,
    recycled: Vec<u64>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("dir", &self.folder.dir).field("uid", &self.uid).finish_non_exhaustive()
    }
}

impl Log {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        folder: Folder,
        device: u64,
        config: AofConfig,
        writable: bool,
        recovered: Recovered,
    ) -> Arc<Self> {
        // An opening for writing brings the tail to disk before it reports anything; one for reading cannot.
        let unsynced = recovered.unsynced.filter(|_| !writable);
        let synced = unsynced.map_or(recovered.end, |unsynced| unsynced.sequence);
        let folder_durable = AtomicBool::new(recovered.is_durable());
        let state = State {
            ranges: recovered.ranges,
            pending: Vec::new(),
            writing: Arc::default(),
            pending_bytes: 0,
            pending_appends: 0,
            start: recovered.start,
            next: recovered.end,
            synced,
            cuts: 0,
            completion: Arc::default(),
            failed: None,
            writable,
            queued: false,
            sleeping: 0,
        };
        let files = Files { next_id: recovered.next_id.max(1), ..Files::default() };
        Arc::new_cyclic(|this| Self {
            uid: shared.new_uid(),
            folder,
            device,
            lane: Arc::clone(shared.lane(config.durability)),
            config,
            shared: Arc::clone(shared),
            this: this.clone(),
            writable,
            state: Mutex::new(state),
            room: Condvar::new(),
            cuts: AtomicU64::new(0),
            writer: Mutex::new(Writer::new(recovered.start)),
            files: Mutex::new(files),
            folder_durable,
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cuts(&self) -> u64 {
        // ORDER: acquire, with the release of `count_cut`: a reader that sees no cut may use what it found before.
        self.cuts.load(Ordering::Acquire)
    }

    fn count_cut(&self, state: &mut State) {
        state.cuts += 1;
        self.cuts.store(state.cuts, Ordering::Release);
    }

    // ---- what callers ask for -------------------------------------------------------------------------------------

    /// Puts records behind what waits.
    pub(crate) fn append(
        &self,
        records: Vec<Bytes>,
        timeout: Duration,
        wake: bool,
    ) -> Result<Ticket, AofError> {
        let mut bytes = 0;
        for record in &records {
            let (given, limit) = (record.len() as u64, self.config.record_bytes_max);
            if given > limit {
                return Err(AofError::TooLarge { name: "record_bytes_max", given, limit });
            }
            bytes += record_bytes(record.len()) as u64;
        }
        let limit = self.config.pending_bytes_max;
        if bytes > limit {
            return Err(AofError::TooLarge { name: "pending_bytes_max", given: bytes, limit });
        }
        // Here, where callers run side by side, rather than in the committer.
        let crcs = records.iter().map(|record| crc32c(record)).collect();
        let full = |state: &mut State| state.failed.is_none() && state.pending_bytes + bytes > limit;
        let mut state = self.state();
        if full(&mut state) && !timeout.is_zero() {
            drop(state);
            self.lane.assist();
            state = self.state();
            state.sleeping += 1;
            let waited = self.room.wait_timeout_while(state, timeout, full);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.sleeping -= 1;
        }
        self.check_writable(&state)?;
        if full(&mut state) {
            return Err(AofError::Overloaded { pending: state.pending_bytes, given: bytes, limit });
        }
        let (first, count) = (state.next, records.len() as u64);
        if count == 0 {
            return Ok(self.enqueue(state, Op::Sync, wake));
        }
        state.push_records(records, crcs, bytes);
        self.lane.count_append(bytes);
        Ok(self.ticket(state, first..first + count, wake))
    }

    /// Puts anything but records behind what waits.
    pub(crate) fn enqueue(&self, mut state: MutexGuard<'_, State>, op: Op, wake: bool) -> Ticket {
        state.pending.push(op);
        let next = state.next;
        self.ticket(state, next..next, wake)
    }

    fn ticket(
        &self,
        mut state: MutexGuard<'_, State>,
        sequences: std::ops::Range<u64>,
        wake: bool,
    ) -> Ticket {
        let completion = Arc::clone(&state.completion);
        let newly = !std::mem::replace(&mut state.queued, true);
        drop(state);
        if newly {
            self.lane.submit(self.this.upgrade().expect("a method of it is running"), wake);
        }
        Ticket { completion, sequences, lane: Arc::clone(&self.lane), waker_at: None }
    }

    pub(crate) fn check_writable(&self, state: &State) -> Result<(), AofError> {
        match &state.failed {
            Some(error) => Err(error.clone()),
            None if !state.writable => Err(AofError::ReadOnly { dir: self.folder.dir.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn sync(&self) -> Result<Ticket, AofError> {
        let state = self.state();
        self.check_writable(&state)?;
        self.lane.want_sync();
        Ok(self.enqueue(state, Op::Sync, true))
    }

    pub(crate) fn truncate_back(&self, from: u64) -> Result<Ticket, AofError> {
        let mut state = self.state();
        self.check_writable(&state)?;
        if !(state.start..=state.next).contains(&from) {
            return Err(AofError::OutOfRange { sequence: from, first: state.start, end: state.next });
        }
        self.lane.want_sync();
        if from == state.next {
            return Ok(self.enqueue(state, Op::Sync, true));
        }
        state.next = from;
        state.synced = state.synced.min(from);
        self.count_cut(&mut state);
        Ok(self.enqueue(state, Op::Cut { from }, true))
    }

    pub(crate) fn truncate_front(&self, before: u64) -> Result<Ticket, AofError> {
        let mut state = self.state();
        self.check_writable(&state)?;
        self.lane.want_sync();
        if before <= state.start {
            return Ok(self.enqueue(state, Op::Sync, true));
        }
        state.start = before;
        state.next = state.next.max(before);
        self.count_cut(&mut state);
        Ok(self.enqueue(state, Op::Front { before }, true))
    }

    /// A reader of the segment that has this record, unless it is only in memory.
    pub(crate) fn read_one(self: &Arc<Self>, sequence: u64) -> Result<Bytes, AofError> {
        let place = self.state().place(sequence, 1)?;
        match place {
            state::Place::Memory(mut records) => Ok(records.swap_remove(0)),
            state::Place::File { range, .. } => {
                // Just enough to hold the record, in most cases: a slice keeps all that was read alive.
                let chunk_bytes = self.config.index_interval_bytes.min(self.config.read_chunk_bytes);
                let mut reader = SegmentReader::new(self, range, sequence, sequence + 1, chunk_bytes)?;
                let record = reader.next()?.expect("the log has the record, and it is in this segment");
                Ok(record.payload)
            }
        }
    }

    // ---- what the committer does ----------------------------------------------------------------------------------

    /// Writes what waits. Says how much, if there is anything to sync.
    pub(crate) fn write_pending(&self) -> Option<Load> {
        let mut writer = self.writer();
        let (taken, sleeping) = {
            let mut state = self.state();
            (state.take(), state.sleeping)
        };
        if sleeping > 0 {
            self.room.notify_all();
        }
        let Taken { ops, completion, load } = taken?;
        self.lane.took(load);
        let written = writer.write(self, &ops, completion);
        match &written {
            Ok(()) => self.state().writing = Arc::default(),
            Err(error) => self.fail(&mut writer, error.clone()),
        }
        written.is_ok().then_some(load)
    }

    /// Syncs what was written.
    pub(crate) fn sync_written(&self) {
        let mut writer = self.writer();
        if writer.is_unsynced()
            && let Err(error) = writer.sync(self)
        {
            self.fail(&mut writer, error);
        }
    }

    /// Takes the outcome of a sync of the whole device. Says whether another one is needed, for a name that only now
    /// could be given.
    pub(crate) fn device_synced(&self, outcome: Result<(), AofError>) -> bool {
        let mut writer = self.writer();
        if !writer.is_unsynced() {
            return false;
        }
        let named = outcome.and_then(|()| writer.give_name(self));
        match &named {
            Ok(true) => {}
            Ok(false) => writer.synced(self),
            Err(error) => self.fail(&mut writer, error.clone()),
        }
        matches!(named, Ok(true))
    }

    /// Raises the synced mark, on disk too where appends are synced.
    pub(crate) fn raise_mark(&self, closed: bool) -> Result<(), AofError> {
        let mut writer = self.writer();
        if !closed && !writer.needs_mark() {
            return Ok(());
        }
        let synced = closed || self.config.durability == Durability::Synced;
        let marked = writer
            .mark(self, closed)
            .and_then(|marked| if marked && synced { writer.sync_mark(self) } else { Ok(()) });
        if !synced {
            writer.release_file();
        }
        if let Err(error) = &marked {
            self.fail(&mut writer, error.clone());
        }
        marked
    }

    /// Stops the log (LOG-6) and tells everyone who waits.
    fn fail(&self, writer: &mut Writer, cause: AofError) {
        let mut waiting = writer.abandon();
        let mut state = self.state();
        let cause = Box::new(cause);
        let error = AofError::Failed { dir: self.folder.dir.clone(), synced: state.synced, cause };
        let (completion, load) = state.fail(error.clone());
        waiting.push(completion);
        self.count_cut(&mut state);
        drop(state);
        self.lane.took(load);
        self.room.notify_all();
        for completion in waiting {
            completion.complete(Err(error.clone()));
        }
    }

    /// Shows readers what was written; returns the segments that it replaced.
    pub(crate) fn publish(&self, range: SegmentRange) -> Vec<SegmentRange> {
        let mut state = self.state();
        if let Some(last) = state.ranges.last_mut().filter(|last| last.segment.key.id == range.segment.key.id)
        {
            *last = range;
            return Vec::new();
        }
        let first = range.extent.first;
        let kept = state.ranges.partition_point(|other| other.extent.first < first);
        let replaced = state.ranges.split_off(kept);
        if let Some(last) = state.ranges.last_mut() {
            last.end = last.end.min(first);
        }
        state.ranges.push(range);
        replaced
    }

    /// Takes out the segments below `start`, which is on disk as the log's start.
    pub(crate) fn unneeded(&self, start: u64) -> Vec<SegmentRange> {
        let mut state = self.state();
        let older = state.ranges.len().saturating_sub(1);
        let unneeded = state.ranges[..older].iter().take_while(|range| range.end <= start).count();
        state.ranges.drain(..unneeded).collect()
    }

    pub(crate) fn timed_sync(&self, file: &OpenFile) -> Result<(), AofError> {
        let begun = self.folder.fs.now();
        let outcome = file.sync();
        let time = self.folder.fs.now().saturating_sub(begun);
        self.shared.stats.synced(time);
        if self.config.durability == Durability::Synced {
            self.shared.stats.waited(time);
        }
        outcome
    }

    /// The file of a segment of this log.
    pub(crate) fn file(&self, segment: &Segment) -> Result<OpenFile, AofError> {
        self.shared.handles.get(self.uid, &self.folder, segment, self.writable)
    }

    // ---- segments -------------------------------------------------------------------------------------------------

    /// How large the next segment is made: as large as the log is, within its bounds, and large enough for `needed`.
    pub(crate) fn capacity_for(&self, needed: u64) -> u64 {
        let held: u64 = self.state().ranges.iter().map(|range| range.extent.data_end - DATA_START).sum();
        let (min, max) = (self.config.segment_bytes_min, self.config.segment_bytes_max);
        held.next_power_of_two().clamp(min, max).max(needed.next_multiple_of(DATA_START))
    }

    /// The segment that was made ready, if it is large enough.
    pub(crate) fn take_prepared(&self, capacity: u64) -> Option<OpenSegment> {
        let prepared = self.files().prepared.take()?;
        if prepared.segment.capacity >= capacity {
            return Some(prepared);
        }
        self.submit_jobs(&mut vec![Job::Remove { segment: prepared.segment }]);
        None
    }

    /// Makes an empty segment that is on disk under its name.
    fn ready_segment(&self, capacity: u64, filled: bool) -> Result<OpenSegment, AofError> {
        let made = self.draft_segment(capacity)?;
        if filled {
            made.fill()?;
        }
        made.file.sync()?;
        let file = self.give_name(&made.segment, made.file)?;
        self.sync_names()?;
        Ok(OpenSegment { file, ..made })
    }

    /// Makes a segment for what is to be written now.
    pub(crate) fn make_segment(&self, capacity: u64) -> Result<OpenSegment, AofError> {
        match self.config.durability {
            Durability::Synced => self.ready_segment(capacity, false),
            Durability::Background => self.draft_segment(capacity),
        }
    }

    /// Gives a segment its name, not durably yet.
    pub(crate) fn give_name(&self, segment: &Segment, file: OpenFile) -> Result<OpenFile, AofError> {
        segment.give_name(&self.folder)?;
        let file = file.renamed(self.folder.path(&segment.file_name()));
        self.shared.handles.put(self.uid, segment, file.clone());
        Ok(file)
    }

    /// Makes the names of all files durable, and that of the folder.
    pub(crate) fn sync_names(&self) -> Result<(), AofError> {
        self.folder.sync_dir()?;
        // ORDER: relaxed, whoever does not see it syncs once more.
        if !self.folder_durable.load(Ordering::Relaxed) {
            self.folder.sync_parent()?;
            self.set_folder_durable();
        }
        Ok(())
    }

    pub(crate) fn set_folder_durable(&self) {
        self.folder_durable.store(true, Ordering::Relaxed);
    }

    /// Makes an empty segment whose file has no name yet.
    pub(crate) fn draft_segment(&self, capacity: u64) -> Result<OpenSegment, AofError> {
        let mut files = self.files();
        let id = files.next_id;
        files.next_id += 1;
        let recycled = files.recycled.pop();
        drop(files);
        OpenSegment::draft(&self.folder, id, capacity, recycled)
    }

    pub(crate) fn submit_jobs(&self, jobs: &mut Vec<Job>) {
        self.shared.housekeeper.submit(&self.this.upgrade().expect("a method of it is running"), jobs);
    }

    /// Does what no append waits for. A failure here costs room or time and is made up for at the next opening; the
    /// append that needs the file reports it.
    pub(crate) fn do_job(&self, job: Job) {
        let done = match job {
            Job::Prepare { capacity, filled } => self.prepare(capacity, filled),
            Job::Flush { segment } => self.flush(&segment),
            Job::Seal { segment, extent, start } => {
                self.file(&segment).and_then(|file| segment.seal(&file, extent, start))
            }
            Job::Remove { segment } => self.remove(segment),
        };
        if done.is_err() {
            self.shared.stats.housekeeping_failed();
        }
    }

    /// Syncs what was written of a segment so far, and tells nobody: that is up to the writer's own sync.
    ///
    /// Through a handle of its own, because the kernel tells each handle once that bytes were lost, and the writer must
    /// not acknowledge what this one lost.
    fn flush(&self, segment: &Segment) -> Result<(), AofError> {
        let flushed = segment.open(&self.folder, true)?.sync();
        if let Err(error) = &flushed {
            self.fail(&mut self.writer(), error.clone());
        }
        flushed
    }

    fn prepare(&self, capacity: u64, filled: bool) -> Result<(), AofError> {
        if self.files().prepared.is_some() {
            return Ok(());
        }
        let made = self.ready_segment(capacity, filled)?;
        let mut files = self.files();
        // A segment that was begun meanwhile has a higher id, and ids give the order.
        if files.next_id == made.segment.key.id + 1 && files.prepared.is_none() {
            files.prepared = Some(made);
            return Ok(());
        }
        drop(files);
        self.folder.remove(&made.segment.file_name())
    }

    fn remove(&self, segment: Arc<Segment>) -> Result<(), AofError> {
        let name = segment.file_name();
        self.shared.handles.forget(self.uid, segment.key.id);
        let room = self.files().recycled.len() < self.config.recycled_files_max as usize;
        // Whoever still reads it must not see it change.
        let unused = Arc::strong_count(&segment) == 1;
        if !(room && unused && segment.capacity == self.config.segment_bytes_max) {
            return self.folder.remove(&name);
        }
        self.folder.rename(&name, &free_file_name(segment.key.id))?;
        // The old name must be gone for good before the file gets other content.
        self.folder.sync_dir()?;
        self.files().recycled.push(segment.key.id);
        Ok(())
    }

    /// Lets go of everything that is outside the files of the log's records.
    pub(crate) fn release(&self) {
        self.lane.forget(self);
        self.shared.housekeeper.forget(self.uid);
        if let Some(prepared) = self.files().prepared.take() {
            // What fails here is removed by the next opening.
            drop(self.folder.remove(&prepared.segment.file_name()));
        }
        self.shared.handles.forget_log(self.uid);
        self.state().writable = false;
        self.shared.deregister(&self.folder.dir);
    }
}
