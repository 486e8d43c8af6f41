//! Many callers and many logs on one committer: groups, tickets, limits, failures, with real threads.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::{Fault, MemoryFileSystem, Survival};
use laminar_aof::{Aof, AofConfig, AofError, Committer, CommitterConfig, Durability, FileOperation};
use laminar_core::error::ErrorKind;

use crate::LONG;

fn start(fs: &MemoryFileSystem, config: CommitterConfig) -> Committer {
    Committer::start(config, Arc::new(fs.clone())).unwrap()
}

fn open(committer: &Committer, name: &str, config: AofConfig) -> Aof {
    Aof::open(committer, &PathBuf::from("/logs").join(name), config).unwrap().0
}

/// A gate that a hook waits at, until the test opens it.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn wait(&self) {
        let opened = self.1.wait_timeout_while(self.0.lock().unwrap(), LONG, |open| !*open).unwrap();
        assert!(!opened.1.timed_out(), "the gate was opened");
    }
}

#[test]
fn what_waits_during_a_sync_shares_the_next_one() {
    let fs = MemoryFileSystem::new();
    let committer = start(&fs, CommitterConfig::default());
    let log = open(&committer, "one", AofConfig::default());
    log.append_and_wait(vec![Bytes::from_static(b"first")], LONG).unwrap();
    let (gate, reached) = (Arc::new(Gate::default()), mpsc::channel());
    let (hook_gate, hook_reached) = (Arc::clone(&gate), reached.0);
    let mut held = false;
    fs.on_call(move |call| {
        if call.operation == FileOperation::Sync && !held {
            held = true;
            hook_reached.send(()).unwrap();
            hook_gate.wait();
        }
        None
    });
    let slow = log.append(vec![Bytes::from_static(b"slow")]).unwrap();
    reached.1.recv_timeout(LONG).unwrap();
    let syncs = committer.stats().syncs;
    let waiting: Vec<_> = (0..100).map(|_| log.append(vec![Bytes::from_static(b"next")]).unwrap()).collect();
    assert!(slow.outcome().is_none());
    // Read from memory, while the disk is stuck.
    assert_eq!(log.read_range(2..102, u64::MAX).unwrap().len(), 100);
    gate.open();
    waiting.iter().for_each(|ticket| ticket.wait(LONG).unwrap());
    slow.wait(LONG).unwrap();
    let stats = committer.stats();
    assert!(stats.syncs - syncs <= 3, "{} syncs for 100 appends", stats.syncs - syncs);
    assert_eq!(stats.records, 102);
}

struct CountingWaker(AtomicU64);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn tickets_can_be_polled_awaited_called_back_and_waited_on() {
    let fs = MemoryFileSystem::new();
    let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs)).unwrap();
    let background = AofConfig { durability: Durability::Background, ..AofConfig::default() };
    let log = open(&committer, "one", background);
    let append = || log.append(vec![Bytes::from_static(b"x"), Bytes::from_static(b"y")]).unwrap();
    let (sent, received) = mpsc::channel();
    let (early, polled, called) = (append(), append(), append());
    assert_eq!((early.sequences(), polled.sequences(), called.sequences()), (0..2, 2..4, 4..6));
    called.on_outcome(move |outcome| sent.send(outcome.is_ok()).unwrap());
    let woken = Arc::new(CountingWaker(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut polled = Box::pin(polled);
    for _ in 0..3 {
        assert!(matches!(polled.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending));
    }
    // Written, and not synced yet.
    committer.step();
    assert!(early.outcome().is_none() && received.try_recv().is_err());
    early.wait(LONG).unwrap();
    assert_eq!((woken.0.load(Ordering::SeqCst), received.try_recv()), (1, Ok(true)));
    assert!(matches!(polled.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(()))));
    let late = append();
    late.wait(LONG).unwrap();
    let (sent, received) = mpsc::channel();
    late.on_outcome(move |outcome| sent.send(outcome.is_ok()).unwrap());
    assert_eq!(received.try_recv(), Ok(true));
}

#[test]
fn a_ticket_times_out_and_can_be_waited_on_again() {
    let fs = MemoryFileSystem::new();
    let committer = start(&fs, CommitterConfig::default());
    let log =
        open(&committer, "one", AofConfig { durability: Durability::Background, ..AofConfig::default() });
    let ticket = log.append(vec![Bytes::from_static(b"x")]).unwrap();
    // The clock of this file system stands still, so the background never syncs by itself.
    let error = ticket.wait(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, AofError::TimedOut { .. }), "{error}");
    log.sync().unwrap().wait(LONG).unwrap();
    ticket.wait(LONG).unwrap();
}

#[test]
fn limits_refuse_by_name() {
    let fs = MemoryFileSystem::new();
    let committer =
        Committer::manual(CommitterConfig { logs_max: 1, ..CommitterConfig::default() }, Arc::new(fs))
            .unwrap();
    let config = AofConfig { record_bytes_max: 100, pending_bytes_max: 300, ..AofConfig::default() };
    let log = open(&committer, "one", config.clone());
    let record = |bytes: usize| Bytes::from(vec![1; bytes]);
    let refused = log.append(vec![record(101)]).unwrap_err();
    assert!(matches!(refused, AofError::TooLarge { name: "record_bytes_max", given: 101, limit: 100 }));
    let refused = log.append(vec![record(100); 3]).unwrap_err();
    assert!(matches!(refused, AofError::TooLarge { name: "pending_bytes_max", given: 360, limit: 300 }));
    let first = log.append(vec![record(100); 2]).unwrap();
    let refused = log.append(vec![record(100)]).unwrap_err();
    assert!(matches!(refused, AofError::Overloaded { pending: 240, given: 120, limit: 300 }));
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    // Whoever waits for room gets it.
    let second = log.append_within(vec![record(100)], LONG).unwrap();
    second.wait(LONG).unwrap();
    first.wait(LONG).unwrap();
    assert_eq!(log.sequences(), 0..3);
    let twice = Aof::open(&committer, &PathBuf::from("/logs/one"), config.clone()).unwrap_err();
    assert!(matches!(twice, AofError::AlreadyOpen { .. }));
    let more = Aof::open(&committer, &PathBuf::from("/logs/two"), config.clone()).unwrap_err();
    assert!(matches!(more, AofError::TooManyLogs { logs: 1 }));
    assert!(matches!(log.truncate_back(4), Err(AofError::OutOfRange { sequence: 4, first: 0, end: 3 })));
    drop(log);
    drop(open(&committer, "two", config));
}

#[test]
fn a_full_disk_stops_the_log_and_leaves_it_readable() {
    let fs = MemoryFileSystem::new();
    let committer = start(&fs, CommitterConfig::default());
    let config = AofConfig { segment_bytes_max: 1 << 16, ..AofConfig::default() };
    let log = open(&committer, "one", config.clone());
    fs.limit_room(200 << 10);
    let record = Bytes::from(vec![1; 1000]);
    let error = loop {
        if let Err(error) = log.append_and_wait(vec![record.clone()], LONG) {
            break error;
        }
    };
    assert!(error.is_disk_full() && error.kind() == ErrorKind::Overloaded, "{error}");
    let held = log.sequences();
    assert!(held.end > 100 && log.synced() == held.end);
    assert_eq!(log.read_range(held.clone(), u64::MAX).unwrap().len(), held.end as usize);
    // LOG-6: until it is reopened it takes nothing more, also with room again.
    fs.heal();
    assert!(log.append(vec![record.clone()]).unwrap_err().is_disk_full());
    drop(log);
    let log = open(&committer, "one", config);
    assert_eq!(log.sequences(), held);
    log.append_and_wait(vec![record], LONG).unwrap();
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_until_the_tail_is_rewritten() {
    let fs = MemoryFileSystem::new();
    let committer = start(&fs, CommitterConfig::default());
    let log = open(&committer, "one", AofConfig::default());
    let append = |text: &'static str| log.append_and_wait(vec![Bytes::from_static(text.as_bytes())], LONG);
    append("kept").unwrap();
    let mut failed = false;
    fs.on_call(move |call| {
        let now = call.operation == FileOperation::Sync && !std::mem::replace(&mut failed, true);
        now.then_some(Fault::Fail(io::ErrorKind::Other))
    });
    let error = append("unsure").unwrap_err();
    assert!(matches!(&error, AofError::Failed { synced: 1, .. }), "{error}");
    assert!(append("refused").is_err() && log.failure().is_some());
    assert_eq!(log.sequences(), 0..1);
    drop(log);
    // The page cache still has the record, and no disk does: it is written once more.
    let (log, opened) = Aof::open(&committer, &PathBuf::from("/logs/one"), AofConfig::default()).unwrap();
    assert_eq!((opened.sequences, opened.records_rewritten), (0..2, 1));
    fs.power_cut(|_| false);
    drop(log);
    let (_, opened) = Aof::open(&committer, &PathBuf::from("/logs/one"), AofConfig::default()).unwrap();
    assert_eq!(opened.sequences, 0..2);
}

#[test]
fn a_disk_that_lies_is_noticed_where_it_can_be_and_never_crashes_us() {
    let fs = MemoryFileSystem::new();
    let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).unwrap();
    let log = open(&committer, "one", AofConfig::default());
    fs.on_call(|call| (call.operation == FileOperation::Sync).then_some(Fault::Lie));
    for _ in 0..5 {
        log.append_and_wait(vec![Bytes::from(vec![1; 3000])], LONG).unwrap();
    }
    let mut keep = false;
    fs.power_cut(|_| {
        keep = !keep;
        !keep
    });
    drop(log);
    fs.heal();
    match Aof::open(&committer, &PathBuf::from("/logs/one"), AofConfig::default()) {
        Ok((_, opened)) => assert!(opened.sequences.end < 5),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
    }
}

#[test]
fn thousands_of_logs_share_files_and_syncs() {
    const LOGS: u64 = 2000;
    let fs = MemoryFileSystem::new();
    let config =
        CommitterConfig { open_files_max: 16, unsynced_files_max: 128, ..CommitterConfig::default() };
    let committer = Committer::manual(config, Arc::new(fs)).unwrap();
    let background = AofConfig { durability: Durability::Background, ..AofConfig::default() };
    let logs: Vec<Aof> = (0..LOGS).map(|n| open(&committer, &n.to_string(), background.clone())).collect();
    assert_eq!(committer.stats(), Default::default());
    for round in 0..3 {
        let before = committer.stats();
        for log in &logs {
            drop(log.append(vec![Bytes::from(vec![round; 100])]).unwrap());
        }
        logs[0].sync().unwrap().wait(LONG).unwrap();
        let stats = committer.stats();
        assert_eq!(stats.records - before.records, LOGS);
        // The first time once more for the names.
        let times = if round == 0 { 2 } else { 1 };
        let syncs = stats.syncs - before.syncs;
        assert!(syncs <= times * (LOGS / 128 + 2), "{syncs} syncs");
        assert!(logs.iter().all(|log| log.synced() == u64::from(round) + 1));
    }
    for log in &logs {
        assert_eq!(log.read_range(0..3, u64::MAX).unwrap().len(), 3);
    }
}

#[test]
fn readers_keep_up_with_appends_and_truncation() {
    let fs = MemoryFileSystem::new();
    let committer = start(&fs, CommitterConfig::default());
    let config = AofConfig { segment_bytes_max: 1 << 16, ..AofConfig::default() };
    let log = Arc::new(open(&committer, "one", config));
    let payload = |n: u64| Bytes::from(n.to_le_bytes().repeat(1 + n as usize % 40));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let log = Arc::clone(&log);
            scope.spawn(move || {
                let mut reader = log.reader(0);
                while reader.sequence() < 20_000 {
                    match reader.next() {
                        Ok(Some(record)) => assert_eq!(record.payload, payload(record.sequence)),
                        Ok(None) => std::thread::yield_now(),
                        // Truncation was faster.
                        Err(AofError::OutOfRange { first, .. }) => reader = log.reader(first),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let log = Arc::clone(&log);
        scope.spawn(move || {
            for first in (0..20_000_u64).step_by(10) {
                drop(log.append_within((first..first + 10).map(payload).collect(), LONG).unwrap());
                if first % 1000 == 0 {
                    drop(log.truncate_front(first.saturating_sub(3000)).unwrap());
                }
            }
        });
    });
}

/// Only one file is kept open, so that each read opens one: under the name that it has before its first sync, or after.
#[test]
fn a_record_can_be_read_while_its_file_gets_its_name() {
    let fs = MemoryFileSystem::new();
    let config = CommitterConfig { open_files_max: 1, sync_all_files_min: 2, ..CommitterConfig::default() };
    let committer = start(&fs, config);
    let background = AofConfig { durability: Durability::Background, ..AofConfig::default() };
    for round in 0..200 {
        let logs = ["a", "b"].map(|name| open(&committer, &format!("{round}-{name}"), background.clone()));
        logs.iter().for_each(|log| drop(log.append(vec![Bytes::from_static(b"x")]).unwrap()));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while logs.iter().any(|log| log.synced() == 0) {
                    logs.iter().for_each(|log| assert_eq!(log.read(0).unwrap(), "x"));
                }
            });
            logs.iter().for_each(|log| log.sync().unwrap().wait(LONG).unwrap());
            reader.join().unwrap();
        });
        logs.iter().for_each(|log| assert_eq!(log.read(0).unwrap(), "x"));
    }
}

#[test]
fn syncs_that_appends_wait_for_are_told() {
    let (told, tells) = mpsc::channel();
    let committer = Committer::start(CommitterConfig::default(), Arc::new(MemoryFileSystem::new())).unwrap();
    let told = Mutex::new(told);
    assert!(committer.observe_syncs(move |time| told.lock().unwrap().send(time).unwrap()));
    assert!(!committer.observe_syncs(drop), "only the first one counts");
    let behind = AofConfig { durability: Durability::Background, ..AofConfig::default() };
    let (behind, _) = Aof::open(&committer, "/behind".as_ref(), behind).unwrap();
    drop(behind.append(vec!["a".into()]).unwrap());
    behind.sync().unwrap().wait(Duration::from_secs(30)).unwrap();
    assert!(tells.try_recv().is_err(), "nobody waits for a log in the background");
    let (log, _) = Aof::open(&committer, "/log".as_ref(), AofConfig::default()).unwrap();
    log.append_and_wait(vec!["a".into()], Duration::from_secs(30)).unwrap();
    assert!(tells.try_recv().is_ok());
}

#[test]
fn much_in_the_background_is_synced_on_the_side_and_a_failure_of_that_stops_the_log() {
    let fs = MemoryFileSystem::new();
    let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).unwrap();
    let config =
        AofConfig { durability: Durability::Background, segment_bytes_min: 64 << 20, ..AofConfig::default() };
    let log = open(&committer, "one", config);
    let nine_megabytes = || log.append(vec![Bytes::from(vec![7; 1 << 20]); 9]).unwrap();
    let early = nine_megabytes();
    committer.step();
    // On its way, and nobody is told before the log's own sync.
    assert!(early.outcome().is_none() && log.synced() == 0);
    assert_eq!(fs.unsynced().iter().filter(|left| matches!(left, Survival::Page(..))).count(), 0);
    early.wait(LONG).unwrap();
    assert_eq!(log.synced(), 9);
    fs.on_call(|call| (call.operation == FileOperation::Sync).then_some(Fault::Fail(io::ErrorKind::Other)));
    let lost = nine_megabytes();
    committer.step();
    fs.heal();
    let error = lost.wait(LONG).unwrap_err();
    assert!(matches!(error, AofError::Failed { synced: 9, .. }), "{error}");
    assert!(log.failure().is_some());
}

#[test]
fn a_log_that_callers_sync_by_themselves_is_marked_when_it_is_idle() {
    let fs = MemoryFileSystem::new();
    let committer = start(&fs, CommitterConfig::default());
    let log = open(&committer, "one", AofConfig::default());
    for text in ["first", "second"] {
        log.append_and_wait(vec![Bytes::from_static(text.as_bytes())], LONG).unwrap();
    }
    let (told, marked) = mpsc::channel();
    fs.on_call(move |call| {
        if call.operation == FileOperation::Write {
            let _nobody_asks = told.send(());
        }
        None
    });
    fs.advance(Duration::from_secs(1));
    marked.recv_timeout(LONG).expect("an empty group raises the mark, though nobody appends any more");
}

#[test]
fn callers_leave_a_disk_that_was_slow_to_the_thread_until_it_is_fast_again() {
    let fs = MemoryFileSystem::new();
    let committer = start(&fs, CommitterConfig::default());
    let log = open(&committer, "one", AofConfig::default());
    log.append_and_wait(vec![Bytes::from_static(b"makes the segment")], LONG).unwrap();
    let (told, synced_by) = mpsc::channel();
    let mut slow = true;
    fs.on_call(move |call| {
        if call.operation != FileOperation::Sync {
            return None;
        }
        let _nobody_asks = told.send(std::thread::current().name() == Some("laminar-aof-sync"));
        std::mem::take(&mut slow).then_some(Fault::Delay(Duration::from_millis(30)))
    });
    let append = || {
        log.append_and_wait(vec![Bytes::from_static(b"row")], LONG).unwrap();
        synced_by.try_iter().last().expect("it was synced")
    };
    assert!(!append(), "the caller is alone, and syncs by itself");
    assert!(append(), "the disk took 30 ms");
    assert!(!append(), "it is fast again");
}

/// How often the second segment was written to while groups of so many bytes were appended to the first.
fn writes_ahead(group_bytes: usize, groups: usize, durability: Durability) -> usize {
    let fs = MemoryFileSystem::new();
    let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).unwrap();
    let written = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&written);
    fs.on_call(move |call| {
        if call.operation == FileOperation::Write {
            seen.lock().unwrap().push(call.path.clone());
        }
        None
    });
    let config = AofConfig { durability, segment_bytes_min: 2 << 20, ..AofConfig::default() };
    let log = open(&committer, "one", config);
    for _ in 0..groups {
        drop(log.append(vec![Bytes::from(vec![1; group_bytes])]).unwrap());
        committer.step();
        committer.step();
    }
    let written = written.lock().unwrap();
    written.iter().filter(|path| **path != written[0]).count()
}

#[test]
fn the_next_segment_of_small_synced_groups_is_written_before_it_is_used() {
    // A header, and a megabyte at a time.
    assert_eq!(writes_ahead(30_000, 40, Durability::Synced), 3);
    // Large groups would only be written twice.
    assert_eq!(writes_ahead(200_000, 6, Durability::Synced), 1);
    // Nobody waits for the sync of one in the background.
    assert_eq!(writes_ahead(30_000, 40, Durability::Background), 1);
}
