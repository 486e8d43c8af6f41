//! Admission: what is refused, in which words, and how it opens again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use laminar_core::error::ErrorKind;
use laminar_core::ids::{LogIndex, PartitionId};
use laminar_log::dispatcher::{
    AdmissionRefusal, AdmissionSignal, AdmissionState, AssemblerConfig, ChunkError, ClientId,
    DispatcherConfig, Limit, PartitionDispatcher, PartitionLimits, PauseReason, RequestAssembler,
    RequestChunk, Scope, SignalRefusal, StateReason, TransferId, Transferred,
};
use laminar_log::entry::Record;

use crate::dispatcher_support::{ManualClock, append, entry, fence};

const P: PartitionId = PartitionId(42);

fn small() -> DispatcherConfig {
    let partition = PartitionLimits { ops_max: 4, lag_max: 2, ..PartitionLimits::default() };
    DispatcherConfig { partition, ops_max: 6, ..DispatcherConfig::default() }
}

fn dispatcher(config: DispatcherConfig) -> (PartitionDispatcher, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (PartitionDispatcher::new(config, clock.clone(), Vec::new()).unwrap(), clock)
}

fn appends(partition: u32, count: usize) -> laminar_log::entry::Entry {
    entry((0..count).map(|_| append(partition, 10)).collect())
}

#[test]
fn every_bound_of_the_configuration_is_checked() {
    DispatcherConfig::default().check().unwrap();
    AssemblerConfig::default().check().unwrap();
    let crossed = DispatcherConfig { freeze_after: Duration::from_millis(1), ..DispatcherConfig::default() };
    let error = crossed.check().unwrap_err();
    assert_eq!(error.to_string(), "log.freeze_after_ms is 1; it must be from 2000 to 86400000");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let (dispatcher, _) = dispatcher(DispatcherConfig::default());
    let none = PartitionLimits { lag_max: 0, ..PartitionLimits::default() };
    assert_eq!(dispatcher.set_limits(P, Some(none)).unwrap_err().name, "log.partition_lag_max");
}

#[test]
fn messages_say_what_where_which_limit_and_what_to_do() {
    let (dispatcher, clock) = dispatcher(small());
    let permit = dispatcher.admit(&appends(42, 4)).unwrap();
    assert_eq!((permit.ops(), permit.bytes()), (4, 4 * 42));
    let refusal = dispatcher.admit(&appends(42, 1)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "partition 42: append refused, 4 of 4 records queued and 1 more asked for (log.partition_ops_max); wait 5 ms \
         or raise it"
    );
    assert_eq!(refusal.kind(), ErrorKind::Overloaded);
    assert_eq!((refusal.partition(), refusal.limit_name()), (Some(P), "log.partition_ops_max"));
    let refusal = dispatcher.admit(&appends(7, 3)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "all partitions: append refused, 4 of 6 records queued and 3 more asked for (log.ops_max); wait 5 ms or raise it"
    );
    assert_eq!(
        dispatcher.admit(&appends(7, 5)).unwrap_err().to_string(),
        "partition 7: entry refused, it holds 5 and 4 are the most (log.partition_ops_max); split it or raise it"
    );
    let large = dispatcher.admit(&entry(vec![append(7, (1 << 20) + 1)])).unwrap_err();
    assert_eq!(
        large.to_string(),
        "entry refused, it carries 1048577 bytes of rows and 1048576 are the most (log.entry_inline_bytes_max); stage \
         the rows and append a pointer, or send less at once"
    );
    assert_eq!((large.kind(), large.is_retryable()), (ErrorKind::Invalid, false));
    dispatcher.enqueued(PartitionId(7), 1, 42, LogIndex(1));
    clock.advance_ms(2_500);
    assert_eq!(
        dispatcher.admit(&appends(7, 1)).unwrap_err().to_string(),
        "partition 7: append refused, throttled, its worker has made no progress for 2500 ms and 2000 ms are the most \
         (log.throttle_after_ms); wait 5 ms or raise it"
    );
    dispatcher.set_paused(P, PauseReason::ApplyFailed("bad row".to_owned()));
    let paused = dispatcher.admit(&appends(42, 1)).unwrap_err();
    assert_eq!(
        paused.to_string(),
        "partition 42: append refused, it is paused: a record cannot be applied (bad row); mend the cause, or skip the \
         record"
    );
    assert_eq!((paused.kind(), paused.is_retryable()), (ErrorKind::Unavailable, true));
    drop(permit);
}

#[test]
fn a_refused_entry_of_many_partitions_reserves_nothing() {
    let (dispatcher, _) = dispatcher(small());
    let full = dispatcher.admit(&appends(42, 4)).unwrap();
    let both = entry(vec![append(1, 1), append(42, 1), append(1, 1)]);
    assert_eq!(dispatcher.admit(&both).unwrap_err().partition(), Some(P));
    assert_eq!((dispatcher.stats().ops, dispatcher.partitions()), (4, 1));
    drop(full);
    let permit = dispatcher.admit(&both).unwrap();
    assert_eq!(dispatcher.view(PartitionId(1)).inflight_ops, 2);
    drop(permit);
    assert_eq!((dispatcher.stats().ops, dispatcher.partitions()), (0, 0));
}

#[test]
fn control_records_pass_a_frozen_partition_within_their_own_limit() {
    let config = DispatcherConfig { control_ops_max: 2, ..small() };
    let (dispatcher, clock) = dispatcher(config);
    dispatcher.enqueued(P, 4, 100, LogIndex(1));
    clock.advance_ms(20_000);
    assert_eq!(dispatcher.view(P).state, AdmissionState::Frozen);
    let permits = [0, 1].map(|_| dispatcher.admit(&entry(vec![fence(42)])));
    assert!(permits.iter().all(Result::is_ok));
    // They are in flight beside a backlog that counts more; accepted, they add to it.
    dispatcher.enqueued(P, 2, 64, LogIndex(2));
    let refused = dispatcher.admit(&entry(vec![fence(42)])).unwrap_err();
    assert!(matches!(refused, AdmissionRefusal::Overloaded { which: Limit::Ops, limit: 6, value: 6, .. }));
    assert!(dispatcher.admit(&entry(vec![Record::Noop])).is_ok());
}

#[test]
fn a_stalled_worker_throttles_then_freezes_and_opens_below_half() {
    let config = DispatcherConfig {
        partition: PartitionLimits { ops_max: 100, lag_max: 100, ..PartitionLimits::default() },
        ..DispatcherConfig::default()
    };
    let (dispatcher, clock) = dispatcher(config);
    dispatcher.enqueued(P, 80, 8000, LogIndex(9));
    clock.advance_ms(1_999);
    assert!(dispatcher.admit(&appends(42, 1)).is_ok());
    clock.advance_ms(1);
    dispatcher.tick();
    let view = dispatcher.view(P);
    assert_eq!((view.state, view.since), (AdmissionState::Throttled, Duration::from_millis(2000)));
    assert_eq!(view.reason, StateReason::Stalled(Duration::from_millis(2000)));
    assert_eq!((view.oldest, view.backlog_age), (Some(LogIndex(9)), Duration::from_millis(2000)));
    clock.advance_ms(13_000);
    dispatcher.tick();
    assert_eq!(dispatcher.view(P).state, AdmissionState::Frozen);
    // Others do not notice.
    assert!(dispatcher.admit(&appends(1, 1)).is_ok());
    // It works again: throttled until it is below half of every limit, age included.
    dispatcher.applied(P, 29, 2900);
    assert_eq!(dispatcher.view(P).state, AdmissionState::Throttled);
    assert_eq!(dispatcher.view(P).reason, StateReason::CatchingUp);
    dispatcher.enqueued(P, 1, 100, LogIndex(10));
    dispatcher.applied(P, 51, 5100);
    assert_eq!(dispatcher.view(P).state, AdmissionState::Open);
    let states: Vec<_> = dispatcher.take_events().into_iter().map(|event| event.to).collect();
    use AdmissionState::{Frozen, Open, Throttled};
    assert_eq!(states, [Throttled, Frozen, Throttled, Open]);
    assert_eq!(dispatcher.stats().transitions, [(Open, 1), (Throttled, 2), (Frozen, 1)]);
}

#[test]
fn chronic_lag_closes_admission_and_catching_up_opens_it() {
    let (dispatcher, clock) = dispatcher(small());
    dispatcher.enqueued(P, 3, 30, LogIndex(1));
    // The worker works, and never gets below its lag of two.
    for raft in 2..=6 {
        clock.advance_ms(1_000);
        dispatcher.tick();
        dispatcher.applied(P, 1, 10);
        dispatcher.enqueued(P, 1, 10, LogIndex(raft));
    }
    // Every apply went below the lag for a moment, so it is not chronic.
    assert_eq!(dispatcher.view(P).state, AdmissionState::Open);
    for raft in 7..=11 {
        clock.advance_ms(1_000);
        dispatcher.enqueued(P, 1, 10, LogIndex(raft));
        dispatcher.applied(P, 1, 10);
    }
    assert_eq!(dispatcher.view(P).state, AdmissionState::Closed);
    let refused = dispatcher.admit(&appends(42, 1)).unwrap_err();
    assert!(matches!(refused, AdmissionRefusal::Overloaded { which: Limit::Lag, limit: 2, value: 3, .. }));
    dispatcher.applied(P, 1, 10);
    assert_eq!(dispatcher.view(P).state, AdmissionState::Closed, "above half");
    dispatcher.applied(P, 1, 10);
    assert_eq!(dispatcher.view(P).state, AdmissionState::Open);
}

#[test]
fn the_node_refuses_by_age_only_if_most_partitions_are_late() {
    let config = DispatcherConfig {
        age_max: Duration::from_secs(1),
        throttle_after: Duration::from_secs(100),
        freeze_after: Duration::from_secs(100),
        ..DispatcherConfig::default()
    };
    let (dispatcher, clock) = dispatcher(config);
    (0..4).for_each(|id| dispatcher.register(PartitionId(id)));
    let late = |id| dispatcher.enqueued(PartitionId(id), 1, 1, LogIndex(1));
    late(0);
    late(1);
    clock.advance_ms(1_500);
    dispatcher.tick();
    assert!(dispatcher.admit(&appends(3, 1)).is_ok(), "two of four");
    late(2);
    clock.advance_ms(1_500);
    dispatcher.tick();
    let refused = dispatcher.admit(&appends(3, 1)).unwrap_err();
    assert!(
        matches!(
            refused,
            AdmissionRefusal::Overloaded {
                scope: Scope::Global,
                which: Limit::Age,
                limit: 1000,
                value: 1500,
                ..
            }
        ),
        "{refused:?}"
    );
    dispatcher.applied(PartitionId(2), 1, 1);
    clock.advance_ms(5);
    assert!(dispatcher.admit(&appends(3, 1)).is_ok(), "found out without a tick");
}

#[test]
fn back_off_doubles_when_callers_came_back_and_not_with_their_number() {
    let (dispatcher, clock) = dispatcher(small());
    let full = dispatcher.admit(&appends(42, 4)).unwrap();
    let refuse = || dispatcher.admit(&appends(42, 1)).unwrap_err().retry_after().unwrap().as_millis();
    assert_eq!([refuse(), refuse(), refuse()], [5, 5, 5]);
    clock.advance_ms(5);
    assert_eq!([refuse(), refuse()], [10, 10]);
    for _ in 0..20 {
        clock.advance_ms(2_000);
        refuse();
    }
    assert_eq!(refuse(), 2_000);
    drop(full);
    drop(dispatcher.readmit(&appends(42, 4)).unwrap());
    let stats = dispatcher.stats();
    assert_eq!((stats.admitted, stats.retries), (2, 1));
    assert_eq!(stats.rejects, [("log.partition_ops_max".to_owned(), 26)]);
}

#[test]
fn after_commit_there_is_only_delay() {
    let (dispatcher, _) = dispatcher(small());
    dispatcher.enqueued(P, 4, 40, LogIndex(1));
    assert_eq!(dispatcher.after_commit(P), Duration::ZERO);
    dispatcher.enqueued(P, 2, 20, LogIndex(2));
    assert_eq!(dispatcher.after_commit(P), Duration::from_millis(25));
    dispatcher.enqueued(P, 100, 20, LogIndex(3));
    assert_eq!(dispatcher.after_commit(P), Duration::from_millis(50));
    assert_eq!(dispatcher.after_commit(PartitionId(1)), Duration::ZERO);
    dispatcher.enqueued(PartitionId(1), 1, (16 << 20) + 1, LogIndex(4));
    assert!(!dispatcher.after_commit(PartitionId(1)).is_zero(), "one byte above the limit");
}

#[derive(Default)]
struct DiskFull(AtomicBool);

impl AdmissionSignal for DiskFull {
    fn check(&self, partition: Option<PartitionId>, _now: Duration) -> Option<SignalRefusal> {
        let full = self.0.load(Ordering::Relaxed) && partition == Some(P);
        full.then(|| SignalRefusal { name: "disk_used_bytes".to_owned(), value: 99, limit: 90 })
    }
}

#[test]
fn a_signal_refuses_appends_of_its_partition() {
    let (signal, clock) = (Arc::new(DiskFull::default()), Arc::new(ManualClock::default()));
    let dispatcher = PartitionDispatcher::new(small(), clock, vec![signal.clone()]).unwrap();
    assert!(dispatcher.admit(&appends(42, 1)).is_ok());
    signal.0.store(true, Ordering::Relaxed);
    let refused = dispatcher.admit(&appends(42, 1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "partition 42: append refused by signal disk_used_bytes, 99 of 90; wait 5 ms"
    );
    assert_eq!((refused.kind(), refused.limit_name()), (ErrorKind::Overloaded, "disk_used_bytes"));
    assert!(dispatcher.admit(&appends(1, 1)).is_ok());
    assert!(dispatcher.admit(&entry(vec![fence(42)])).is_ok());
}

#[test]
fn waiters_are_limited_for_each_client_and_in_all() {
    let config = DispatcherConfig { waiters_max: 3, waiters_client_max: 2, ..DispatcherConfig::default() };
    let (dispatcher, _) = dispatcher(config);
    let first = [(); 2].map(|()| dispatcher.admit_waiter(ClientId(1)).unwrap());
    assert_eq!(dispatcher.admit_waiter(ClientId(1)).unwrap_err().limit_name(), "log.waiters_client_max");
    let second = dispatcher.admit_waiter(ClientId(2)).unwrap();
    assert_eq!(dispatcher.admit_waiter(ClientId(3)).unwrap_err().limit_name(), "log.waiters_max");
    drop(first);
    assert!(dispatcher.admit_waiter(ClientId(3)).is_ok());
    drop(second);
    assert_eq!(dispatcher.stats().waiters, 0);
}

#[test]
fn threads_never_pass_a_limit_together() {
    let (dispatcher, _) = dispatcher(small());
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let dispatcher = dispatcher.clone();
            scope.spawn(move || {
                for round in 0..5_000u32 {
                    let held = dispatcher.admit(&appends((thread + round) % 3, 1 + round as usize % 3));
                    assert!(dispatcher.stats().ops <= 6);
                    assert!(dispatcher.view(PartitionId(round % 3)).inflight_ops <= 4);
                    drop(held);
                }
            });
        }
    });
    assert_eq!((dispatcher.stats().ops, dispatcher.stats().bytes, dispatcher.partitions()), (0, 0, 0));
}

fn chunk(client: u128, request: u64, total: u64, number: u32) -> RequestChunk {
    let begin = u64::from(number) * 4096;
    let bytes: Vec<u8> = (begin..total.min(begin + 4096)).map(|at| (at % 251) as u8).collect();
    let (client, request) = (ClientId(client), TransferId(request));
    RequestChunk { client, request, total_bytes: total, number, bytes: Bytes::from(bytes) }
}

fn assembler() -> RequestAssembler {
    let config = AssemblerConfig {
        chunk_bytes: 4096,
        request_bytes_max: 20_000,
        bytes_max: 40_000,
        client_bytes_max: 30_000,
        client_requests_max: 2,
        remembered_max: 2,
        ..AssemblerConfig::default()
    };
    RequestAssembler::new(config).unwrap()
}

const T0: Duration = Duration::ZERO;

#[test]
fn chunks_in_any_order_and_twice_make_one_request() {
    let mut assembler = assembler();
    let total = 10_000;
    assert_eq!(assembler.accept(&chunk(1, 1, total, 2), T0), Ok(Transferred::Missing(2)));
    assert_eq!(assembler.accept(&chunk(1, 1, total, 2), T0), Ok(Transferred::Duplicate));
    assert_eq!(assembler.accept(&chunk(1, 1, total, 0), T0), Ok(Transferred::Missing(1)));
    assert_eq!(assembler.reserved_bytes(), total);
    let whole: Vec<u8> = (0..total).map(|at| (at % 251) as u8).collect();
    assert_eq!(assembler.accept(&chunk(1, 1, total, 1), T0), Ok(Transferred::Complete(whole.into())));
    assert_eq!(assembler.accept(&chunk(1, 1, total, 1), T0), Ok(Transferred::AlreadyComplete));
    assert_eq!((assembler.reserved_bytes(), assembler.requests()), (0, 0));
}

#[test]
fn a_small_request_needs_no_room_and_a_begun_one_always_ends() {
    let mut assembler = assembler();
    assert_eq!(assembler.accept(&chunk(1, 1, 20_000, 0), T0), Ok(Transferred::Missing(4)));
    assert_eq!(assembler.accept(&chunk(2, 1, 20_000, 0), T0), Ok(Transferred::Missing(4)));
    let refused = assembler.accept(&chunk(3, 1, 5_000, 0), T0).unwrap_err();
    assert!(matches!(refused, ChunkError::NoRoom { name: "log.assembly_bytes_max", value: 40_000, .. }));
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    assert!(matches!(assembler.accept(&chunk(3, 2, 4_096, 0), T0), Ok(Transferred::Complete(_))));
    for client in [1, 2] {
        for number in 1..4 {
            assembler.accept(&chunk(client, 1, 20_000, number), T0).unwrap();
        }
        assert!(matches!(assembler.accept(&chunk(client, 1, 20_000, 4), T0), Ok(Transferred::Complete(_))));
    }
    assert_eq!(assembler.reserved_bytes(), 0);
}

#[test]
fn one_client_cannot_take_all_the_room() {
    let mut assembler = assembler();
    assembler.accept(&chunk(1, 1, 20_000, 0), T0).unwrap();
    let refused = assembler.accept(&chunk(1, 2, 20_000, 0), T0).unwrap_err();
    assert!(matches!(refused, ChunkError::NoRoom { name: "log.assembly_client_bytes_max", .. }));
    assembler.accept(&chunk(1, 2, 5_000, 0), T0).unwrap();
    let refused = assembler.accept(&chunk(1, 3, 5_000, 0), T0).unwrap_err();
    assert!(matches!(refused, ChunkError::NoRoom { name: "log.assembly_client_requests_max", .. }));
    assembler.abort(ClientId(1), TransferId(2));
    assembler.accept(&chunk(1, 3, 5_000, 0), T0).unwrap();
    assembler.disconnect(ClientId(1));
    assert_eq!((assembler.reserved_bytes(), assembler.requests()), (0, 0));
}

#[test]
fn chunks_that_do_not_fit_are_refused_and_change_nothing() {
    let mut assembler = assembler();
    let large = assembler.accept(&chunk(1, 1, 20_001, 0), T0).unwrap_err();
    assert_eq!(large, ChunkError::TooLarge { bytes: 20_001, limit: 20_000 });
    for (total, number) in [(0, 0), (8_192, 2), (8_192, u32::MAX)] {
        let wrong = assembler.accept(&chunk(1, 1, total, number), T0).unwrap_err();
        assert!(matches!(wrong, ChunkError::WrongLength { expected: 0, .. }), "{wrong:?}");
    }
    let short = RequestChunk { bytes: Bytes::from_static(b"x"), ..chunk(1, 1, 8_192, 0) };
    assert!(matches!(
        assembler.accept(&short, T0),
        Err(ChunkError::WrongLength { expected: 4096, found: 1, .. })
    ));
    assert_eq!(assembler.requests(), 0);
    assembler.accept(&chunk(1, 1, 8_192, 0), T0).unwrap();
    let other = RequestChunk { bytes: Bytes::from(vec![0; 4096]), ..chunk(1, 1, 8_192, 0) };
    assert!(matches!(assembler.accept(&other, T0), Err(ChunkError::Contradiction { number: 0, .. })));
    let longer = chunk(1, 1, 10_000, 1);
    assert!(matches!(assembler.accept(&longer, T0), Err(ChunkError::Contradiction { number: 1, .. })));
    assert!(matches!(assembler.accept(&chunk(1, 1, 8_192, 1), T0), Ok(Transferred::Complete(_))));
}

#[test]
fn what_does_not_end_in_time_is_dropped() {
    let mut assembler = assembler();
    let at = Duration::from_secs;
    assembler.accept(&chunk(1, 1, 20_000, 0), T0).unwrap();
    assert_eq!(assembler.expire(at(9)), []);
    assembler.accept(&chunk(1, 1, 20_000, 1), at(9)).unwrap();
    // A chunk that was there is no sign of life.
    assembler.accept(&chunk(1, 1, 20_000, 1), at(18)).unwrap();
    assert_eq!(assembler.expire(at(19)), [(ClientId(1), TransferId(1))]);
    assert_eq!(assembler.reserved_bytes(), 0);
    // Nor does a new chunk every now and then hold the room for ever.
    let slow = AssemblerConfig { time_max: at(15), ..AssemblerConfig::default() };
    let mut assembler = RequestAssembler::new(slow).unwrap();
    let part = |number| RequestChunk { bytes: Bytes::from(vec![1; 65_536]), ..chunk(1, 1, 1 << 20, number) };
    assembler.accept(&part(0), T0).unwrap();
    assembler.accept(&part(1), at(9)).unwrap();
    assert_eq!(assembler.expire(at(15)), [(ClientId(1), TransferId(1))]);
}
