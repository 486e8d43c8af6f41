//! One replica on a disk in memory, driven by a test in the place of Raft: a sole voter, so an entry is committed as
//! soon as it is on its disk.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::{Fault, MemoryFileSystem};
use laminar_aof::{Committer, FileOperation};
use laminar_core::ids::{LogIndex, PartitionId};
use laminar_log::dispatcher::{ClientId, DispatcherConfig, PartitionDispatcher};
use laminar_log::entry::Entry;
use laminar_log::format::encode_entry;
use laminar_log::partition_log::PartitionLogConfig;
use laminar_log::verdict::Verdict;
use laminar_log::{
    EntryPayload, LogEntry, LogId, Parts, Runtime, SegmentedConfig, SegmentedLogConfig, SegmentedLogStore,
    SegmentedStateMachine,
};

use super::files::manual;
use super::machines::{Control, ControlledMachines};
use super::oracle::Oracle;
use super::runtime::TestRuntime;

const DIR: &str = "/replica";

pub(crate) struct Replica {
    pub(crate) fs: MemoryFileSystem,
    pub(crate) runtime: TestRuntime,
    pub(crate) control: Control,
    /// None while the power is off.
    live: Option<Opened>,
    pub(crate) oracle: Oracle,
    /// What was answered, by index.
    pub(crate) replies: Arc<Mutex<BTreeMap<u64, Verdict>>>,
    applied: u64,
    pub(crate) snapshot: Option<LogId>,
    term: u64,
}

struct Opened {
    dispatcher: Arc<PartitionDispatcher>,
    committer: Committer,
    store: SegmentedLogStore,
    machine: SegmentedStateMachine,
}

fn open(fs: &MemoryFileSystem, runtime: &TestRuntime, control: &Control) -> Opened {
    let committer = manual(fs);
    let dir = Path::new(DIR);
    let (store, _) =
        SegmentedLogStore::open(&committer, &dir.join("raft"), SegmentedLogConfig::default()).unwrap();
    let handle: Arc<dyn Runtime> = Arc::new(runtime.clone());
    let dispatcher =
        PartitionDispatcher::new(DispatcherConfig::default(), Arc::clone(&handle), Vec::new()).unwrap();
    let dispatcher = Arc::new(dispatcher);
    let parts = Parts {
        committer: committer.clone(),
        runtime: handle,
        source: Arc::new(store.clone()),
        dispatcher: Arc::clone(&dispatcher),
        machines: Arc::new(ControlledMachines(control.clone())),
    };
    let config = SegmentedConfig {
        apply_queue_bytes_max: 200,
        partition_log: PartitionLogConfig::default(),
        ..SegmentedConfig::default()
    };
    let committed = store.committed().map_or(LogIndex::NONE, |id| id.index);
    let machine = SegmentedStateMachine::open(dir, config, parts, committed).unwrap();
    Opened { dispatcher, committer, store, machine }
}

impl Replica {
    pub(crate) fn new(seed: u64) -> Self {
        let (fs, runtime, control) = (MemoryFileSystem::new(), TestRuntime::new(seed), Control::default());
        let live = Some(open(&fs, &runtime, &control));
        Self {
            fs,
            runtime,
            control,
            live,
            oracle: Oracle::new(),
            replies: Arc::default(),
            applied: 0,
            snapshot: None,
            term: 1,
        }
    }

    fn live(&self) -> &Opened {
        self.live.as_ref().unwrap()
    }

    pub(crate) fn store(&self) -> &SegmentedLogStore {
        &self.live().store
    }

    pub(crate) fn machine(&self) -> &SegmentedStateMachine {
        &self.live().machine
    }

    pub(crate) fn dispatcher(&self) -> &PartitionDispatcher {
        &self.live().dispatcher
    }

    /// A snapshot of another replica was installed: its history is this one's now.
    pub(crate) fn adopt(&mut self, other: &Replica) {
        let (applied, _) = self.machine().applied_state();
        drop(self.store().purge(applied.unwrap()).unwrap());
        self.live().committer.step();
        self.replies = Arc::default();
        self.oracle = Oracle::new();
        self.oracle.verdict = other.oracle.verdict.clone();
        self.oracle.verdicts = other.oracle.verdicts.clone();
        self.oracle.records = other.oracle.records.clone();
        self.applied = applied.unwrap().index.0;
    }

    pub(crate) fn last(&self) -> u64 {
        self.store().state().last.map_or(0, |id| id.index.0)
    }

    /// Puts an entry into the log; it is not on disk yet.
    pub(crate) fn propose(&self, entry: &Entry) {
        let id = LogId::new(self.term, self.last() + 1);
        let entry = LogEntry { id, payload: EntryPayload::Normal(encode_entry(entry)) };
        drop(self.store().append(&[entry]).unwrap());
    }

    /// Takes back entries that are not committed, as a new leader does.
    pub(crate) fn truncate(&mut self, back: u64) {
        let last = self.last().saturating_sub(back).max(self.applied);
        let kept = (last > 0).then(|| self.store().id(last)).flatten().or(self.store().state().purged);
        self.term += 1;
        drop(self.store().truncate_after(kept.filter(|_| last > 0)).unwrap());
    }

    /// Brings everything to disk, and applies it.
    pub(crate) fn commit(&mut self) {
        self.live().committer.step();
        self.apply_up_to(self.last());
    }

    fn apply_up_to(&mut self, last: u64) {
        while self.applied < last {
            let index = self.applied + 1;
            let entry = self.store().entry(index).unwrap();
            let EntryPayload::Normal(bytes) = entry.payload else { panic!("only such are proposed") };
            self.apply(entry.id, &bytes);
        }
        self.store().save_committed(self.store().id(last));
    }

    fn apply(&mut self, id: LogId, bytes: &Bytes) {
        let replies = Arc::clone(&self.replies);
        let reply = Box::new(move |verdict| drop(replies.lock().unwrap().insert(id.index.0, verdict)));
        self.machine().apply(id, bytes, Some(reply)).unwrap();
        self.applied = id.index.0;
        if !self.oracle.verdicts.contains_key(&id.index.0) {
            self.oracle.apply(id, bytes);
        }
    }

    /// Time passes; the disks of the background are synced in it.
    pub(crate) fn run_for(&self, time: Duration) {
        let end = self.runtime.now() + time;
        while self.runtime.now() < end {
            self.runtime.run_for(Duration::from_millis(50).min(end - self.runtime.now()));
            self.fs.advance(Duration::from_millis(50));
            self.live().committer.step();
        }
    }

    /// Builds a snapshot; says whether it was finished in the time given.
    pub(crate) fn snapshot(&mut self, time: Duration) -> bool {
        let Ok(Some(build)) = self.machine().begin_snapshot() else { return false };
        let log_id = build.log_id();
        let done = Arc::new(Mutex::new(None));
        let out = Arc::clone(&done);
        self.runtime.spawn(Box::pin(async move {
            *out.lock().unwrap() = Some(build.run().await);
        }));
        self.run_for(time);
        let outcome = done.lock().unwrap().take();
        match outcome {
            Some(Ok(built)) => {
                assert_eq!(built, log_id);
                self.snapshot = Some(built);
                true
            }
            _ => false,
        }
    }

    /// Lets the log forget what the newest snapshot has.
    pub(crate) fn purge(&self) {
        if let Some(snapshot) = self.snapshot {
            drop(self.store().purge(snapshot).unwrap());
        }
    }

    /// The calls on files of partitions fail from now on, some of them.
    pub(crate) fn break_partition_logs(&self, every: u64) {
        self.fs.on_call(move |call| {
            let writes =
                [FileOperation::Write, FileOperation::Sync, FileOperation::SyncAll, FileOperation::Create];
            let ours =
                call.path.starts_with("/replica/partitions") || call.operation == FileOperation::SyncAll;
            (ours && writes.contains(&call.operation) && call.number.is_multiple_of(every.max(1)))
                .then_some(Fault::Fail(io::ErrorKind::Other))
        });
    }

    /// Cuts the power; what was not synced survives by the bits of `seed`. Then everything is opened again.
    pub(crate) fn crash(&mut self, seed: u64) {
        // From here on nothing that the process does reaches the disk.
        self.fs.on_call(|_| Some(Fault::Fail(io::ErrorKind::Other)));
        self.runtime.kill();
        self.live = None;
        self.fs.heal();
        let acknowledged = self.replies.lock().unwrap().keys().next_back().copied().unwrap_or(0);
        self.fs.power_cut_seeded(seed);
        // A process that is gone waits for nothing.
        self.control.clear();
        self.live = Some(open(&self.fs, &self.runtime, &self.control));
        assert!(self.last() >= acknowledged, "LOG-3: entry {acknowledged} was acknowledged and is gone");
        self.applied = self.machine().applied_state().0.map_or(0, |id| id.index.0);
        assert!(self.applied <= self.last() || self.store().state().purged.is_some());
        self.term += 1;
        // The sole voter commits what is there.
        self.apply_up_to(self.last().max(self.applied));
    }

    /// What must hold at any moment.
    pub(crate) fn check(&self) {
        for (index, verdict) in self.replies.lock().unwrap().iter() {
            assert_eq!(
                self.oracle.verdicts.get(index),
                Some(verdict),
                "entry {index} was answered otherwise"
            );
        }
        let partitions: Vec<PartitionId> = self.oracle.records.keys().copied().collect();
        assert_eq!(self.machine().partition_ids(), partitions);
        for (id, records) in &self.oracle.records {
            let status = self.machine().status(*id).unwrap();
            let highest = records.len() as u64;
            assert_eq!(status.highest.0, highest, "partition {id}: LOG-2");
            assert!(
                status.snapshot <= status.applied && status.applied <= status.highest,
                "LOG-1: {status:?}"
            );
            assert_eq!(status.queued as u64, highest - status.applied.0, "{status:?}");
            if let Some(required) = status.required {
                // LOG-5: nothing that is needed was purged.
                assert!(
                    self.store().state().purged.is_none_or(|purged| purged.index < required),
                    "{status:?}"
                );
            }
            let Some(log) = self.machine().partition_log(*id).filter(|log| log.failure().is_none()) else {
                continue;
            };
            let mut reader = log.reader(log.first());
            while let Some(record) = reader.next().unwrap() {
                assert_eq!(record, records[record.index.0 as usize - 1], "partition {id}: LOG-4");
            }
        }
    }

    /// Ends what a test did to disks and machines, and lets everybody catch up.
    pub(crate) fn end_troubles(&mut self) {
        self.fs.heal();
        self.control.clear();
        self.commit();
        for id in self.machine().partition_ids() {
            self.machine().resume(id);
        }
        self.run_for(Duration::from_secs(30));
    }

    /// Ends all trouble, and compares everything with what must be there.
    pub(crate) fn settle(&mut self) {
        self.end_troubles();
        self.check();
        assert_eq!(self.machine().verdict_bytes(), self.oracle.verdict.encode(), "APPLY-2");
        let (machine, ids) = (self.machine().clone(), self.machine().partition_ids());
        let index = self.machine().decided_index();
        let barrier = async move { machine.barrier(ClientId(1), &ids, index, Duration::from_secs(5)).await };
        let outcome = self.runtime.block_on(barrier);
        assert!(outcome.is_ok(), "{outcome:?} {:?}", self.machine().take_events());
        for (id, records) in &self.oracle.records {
            let status = self.machine().status(*id).unwrap();
            assert_eq!(status.applied.0, records.len() as u64, "{status:?}");
            assert_eq!(status.stored_end.0, records.len() as u64 + 1, "{status:?}");
            let log = self.machine().partition_log(*id).unwrap();
            let events = self.machine().take_events();
            assert_eq!(log.failure().map(|error| format!("{error:?}")), None, "{status:?} {events:?}");
            let (machine, id) = (self.machine().clone(), *id);
            let looked = async move { machine.with_machine(id, |machine| machine.state_hash()).await };
            assert_eq!(
                self.runtime.block_on(looked),
                Some(self.oracle.machine(id).state_hash()),
                "APPLY-2: {status:?}"
            );
        }
        let (first, last) = (self.replies.lock().unwrap().len(), self.applied);
        assert!(first as u64 <= last);
    }
}
