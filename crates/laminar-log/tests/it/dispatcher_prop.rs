//! The document's dispatcher sketch, corrected, as a model: it gives out no index, and its backlog falls when records
//! are applied. Random admissions, lost proposals, accepted and applied records and steps of time; after each, the
//! dispatcher and the model agree on every count and state, and a refusal names a limit that is really reached.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use laminar_core::ids::{LogIndex, PartitionId};
use laminar_log::dispatcher::{
    AdmissionRefusal, AdmissionState, AssemblerConfig, ChunkError, ClientId, DispatcherConfig, Limit,
    PartitionDispatcher, PartitionLimits, PauseReason, Permit, RequestAssembler, RequestChunk, Scope,
    TransferId, Transferred,
};
use proptest::prelude::*;

use crate::dispatcher_support::{ManualClock, append, entry, fence};

const OPS_MAX: u64 = 12;
const BYTES_MAX: u64 = 67_000;
const AGE_MAX: u64 = 50;
const LAG_MAX: u64 = 6;
const GLOBAL_OPS_MAX: u64 = 20;
const GLOBAL_BYTES_MAX: u64 = 80_000;
const GLOBAL_AGE_MAX: u64 = 60;
const THROTTLE: u64 = 30;
const FREEZE: u64 = 80;
const LAG_AFTER: u64 = 20;
const CONTROL: u64 = 2;
const HEADER: u64 = 32;
const PARTITIONS: u32 = 4;

fn config() -> DispatcherConfig {
    DispatcherConfig {
        partition: PartitionLimits {
            ops_max: OPS_MAX,
            bytes_max: BYTES_MAX,
            age_max: Duration::from_millis(AGE_MAX),
            lag_max: LAG_MAX,
        },
        ops_max: GLOBAL_OPS_MAX,
        bytes_max: GLOBAL_BYTES_MAX,
        age_max: Duration::from_millis(GLOBAL_AGE_MAX),
        entry_inline_bytes_max: 1024,
        control_ops_max: CONTROL,
        throttle_after: Duration::from_millis(THROTTLE),
        freeze_after: Duration::from_millis(FREEZE),
        lag_after: Duration::from_millis(LAG_AFTER),
        ..DispatcherConfig::default()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Admit(Vec<(u32, usize)>),
    Fence(u32),
    DropPermit(usize),
    /// The records of a permit are accepted; the reply comes later.
    Accept(usize),
    /// Records of another leader.
    Foreign(u32, u64, u64),
    Apply(u32, u64),
    Advance(u64),
    Pause(u32),
    Clear(u32),
    Remove(u32),
    Discard(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let partition = 0..PARTITIONS;
    prop_oneof![
        8 => prop::collection::vec((partition.clone(), 0usize..600), 1..5).prop_map(Step::Admit),
        2 => partition.clone().prop_map(Step::Fence),
        5 => (0usize..32).prop_map(Step::DropPermit),
        6 => (0usize..32).prop_map(Step::Accept),
        2 => (partition.clone(), 1u64..8, 0u64..50_000).prop_map(|(p, ops, bytes)| Step::Foreign(p, ops, bytes)),
        8 => (partition.clone(), 1u64..6).prop_map(|(p, ops)| Step::Apply(p, ops)),
        5 => (1u64..25).prop_map(Step::Advance),
        1 => partition.clone().prop_map(Step::Pause),
        2 => partition.clone().prop_map(Step::Clear),
        1 => partition.clone().prop_map(Step::Remove),
        1 => partition.prop_map(Step::Discard),
    ]
}

type Loads = BTreeMap<u32, (u64, u64)>;

/// The corrected sketch.
#[derive(Debug, Default)]
struct Context {
    inflight: (u64, u64),
    /// Time enqueued and bytes of each record that is not applied.
    backlog: VecDeque<(u64, u64)>,
    progress: u64,
    lagging_since: Option<u64>,
    state: AdmissionState,
    paused: bool,
    known: bool,
}

impl Context {
    fn backlog(&self) -> (u64, u64) {
        (self.backlog.len() as u64, self.backlog.iter().map(|(_, bytes)| bytes).sum())
    }

    fn queued(&self) -> (u64, u64) {
        let backlog = self.backlog();
        (self.inflight.0.max(backlog.0), self.inflight.1.max(backlog.1))
    }

    fn age(&self, now: u64) -> u64 {
        self.backlog.front().map_or(0, |(at, _)| now - at)
    }

    fn stall(&self, now: u64) -> u64 {
        if self.backlog.is_empty() { 0 } else { now - self.progress }
    }

    fn enqueue(&mut self, now: u64, bytes: impl Iterator<Item = u64>) {
        if self.backlog.is_empty() {
            self.progress = now;
        }
        self.known = true;
        self.backlog.extend(bytes.map(|bytes| (now, bytes)));
    }

    fn evaluate(&mut self, now: u64) {
        let (ops, bytes) = self.backlog();
        self.lagging_since = if ops > LAG_MAX { self.lagging_since.or(Some(now)) } else { None };
        let below_half = ops <= OPS_MAX / 2 && bytes <= BYTES_MAX / 2 && self.age(now) <= AGE_MAX / 2;
        let stood =
            matches!(self.state, AdmissionState::Throttled | AdmissionState::Frozen | AdmissionState::Paused);
        let lagged = self.lagging_since.is_some_and(|since| now - since >= LAG_AFTER);
        self.state = if self.paused {
            AdmissionState::Paused
        } else if self.stall(now) >= FREEZE {
            AdmissionState::Frozen
        } else if lagged || (self.state == AdmissionState::Closed && ops > LAG_MAX / 2) {
            AdmissionState::Closed
        } else if self.stall(now) >= THROTTLE || (stood && !below_half) {
            AdmissionState::Throttled
        } else {
            AdmissionState::Open
        };
    }
}

struct Pair {
    clock: Arc<ManualClock>,
    real: PartitionDispatcher,
    now: u64,
    raft: u64,
    model: BTreeMap<u32, Context>,
    permits: Vec<(Permit, Loads, bool)>,
}

impl Pair {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let real = PartitionDispatcher::new(config(), clock.clone(), Vec::new()).unwrap();
        Self { clock, real, now: 0, raft: 0, model: BTreeMap::new(), permits: Vec::new() }
    }

    fn context(&mut self, partition: u32) -> &mut Context {
        self.model.entry(partition).or_default()
    }

    fn total(&self) -> (u64, u64) {
        self.model.values().map(Context::queued).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn admit(&mut self, records: &[(u32, usize)], control: bool) {
        let mut loads = Loads::new();
        for (partition, bytes) in records {
            let load = loads.entry(*partition).or_default();
            *load = (load.0 + 1, load.1 + HEADER + *bytes as u64);
        }
        let make = |(partition, bytes): &(u32, usize)| {
            if control { fence(*partition) } else { append(*partition, *bytes) }
        };
        match self.real.admit(&entry(records.iter().map(make).collect())) {
            Ok(permit) => {
                self.check_admitted(&loads, control);
                for (partition, load) in &loads {
                    let context = self.context(*partition);
                    context.inflight = (context.inflight.0 + load.0, context.inflight.1 + load.1);
                }
                self.permits.push((permit, loads, false));
            }
            Err(refusal) => self.check_refused(&refusal, &loads, records, control),
        }
    }

    /// No limit was reached.
    fn check_admitted(&mut self, loads: &Loads, control: bool) {
        let (spare, total) = (if control { CONTROL } else { 0 }, self.total());
        let asked = loads.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert!(total.0 + asked.0 <= GLOBAL_OPS_MAX + spare);
        assert!(control || total.1 + asked.1 <= GLOBAL_BYTES_MAX);
        assert!(control || !self.is_aged());
        let now = self.now;
        for (partition, load) in loads {
            let context = self.context(*partition);
            let queued = context.queued();
            assert!(queued.0 + load.0 <= OPS_MAX + spare);
            if !control {
                assert_eq!(context.state, AdmissionState::Open);
                assert!(queued.1 + load.1 <= BYTES_MAX && context.age(now) <= AGE_MAX);
            }
        }
    }

    fn is_aged(&self) -> bool {
        let held = self.model.values().filter(|context| context.known || context.inflight.0 > 0);
        let (aged, all): (Vec<_>, Vec<_>) = held.partition(|context| context.age(self.now) > GLOBAL_AGE_MAX);
        aged.len() > all.len()
    }

    /// The limit it names is really reached, with the value it names, and nothing of the entry is counted.
    fn check_refused(
        &mut self,
        refusal: &AdmissionRefusal,
        loads: &Loads,
        records: &[(u32, usize)],
        control: bool,
    ) {
        let (now, total, spare) = (self.now, self.total(), if control { CONTROL } else { 0 });
        match refusal {
            AdmissionRefusal::InlineTooLarge { bytes, limit: 1024 } => {
                assert!(!control && *bytes > 1024);
                assert_eq!(*bytes, records.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>());
            }
            AdmissionRefusal::Paused { partition, .. } => {
                assert!(!control && self.context(partition.0).paused && loads.contains_key(&partition.0));
            }
            AdmissionRefusal::Overloaded {
                scope: Scope::Global, which, value, asked, retry_after, ..
            } => {
                check_retry_after(*retry_after);
                match which {
                    Limit::Ops => assert!(*value == total.0 && total.0 + asked > GLOBAL_OPS_MAX + spare),
                    Limit::Bytes => assert!(*value == total.1 && total.1 + asked > GLOBAL_BYTES_MAX),
                    Limit::Age => assert!(self.is_aged() && *value > GLOBAL_AGE_MAX),
                    other => panic!("no limit of all partitions: {other:?}"),
                }
            }
            AdmissionRefusal::Overloaded {
                scope: Scope::Partition(id),
                which,
                limit,
                value,
                asked,
                retry_after,
            } => {
                check_retry_after(*retry_after);
                let context = self.context(id.0);
                let (queued, backlog) = (context.queued(), context.backlog());
                let catching_up = context.state == AdmissionState::Throttled;
                match which {
                    Limit::Ops if catching_up && *asked == 0 => {
                        assert!(*value == backlog.0 && backlog.0 > OPS_MAX / 2);
                    }
                    Limit::Bytes if catching_up && *asked == 0 => {
                        assert!(*value == backlog.1 && backlog.1 > BYTES_MAX / 2);
                    }
                    Limit::Age if catching_up => {
                        assert!(*value == context.age(now) && *value > AGE_MAX / 2);
                    }
                    Limit::Ops => {
                        assert!(*limit == OPS_MAX + spare && *value == queued.0 && queued.0 + asked > *limit);
                    }
                    Limit::Bytes => assert!(*value == queued.1 && queued.1 + asked > *limit),
                    Limit::Age => assert!(*value == context.age(now) && *value > AGE_MAX),
                    Limit::Lag => assert_eq!((context.state, *value), (AdmissionState::Closed, backlog.0)),
                    Limit::Throttle => assert!(*value == context.stall(now) && *value >= THROTTLE),
                    Limit::Freeze => assert!(*value == context.stall(now) && *value >= FREEZE),
                    Limit::Waiters { .. } => panic!("nobody waits"),
                }
            }
            other => panic!("not expected: {other:?}"),
        }
    }

    fn drop_permit(&mut self, at: usize) {
        if self.permits.is_empty() {
            return;
        }
        let (permit, loads, _) = self.permits.swap_remove(at % self.permits.len());
        drop(permit);
        for (partition, load) in loads {
            let context = self.context(partition);
            context.inflight = (context.inflight.0 - load.0, context.inflight.1 - load.1);
        }
    }

    fn accept(&mut self, at: usize) {
        let count = self.permits.len();
        let Some((_, loads, accepted)) = self.permits.get_mut(at % count.max(1)) else { return };
        if std::mem::replace(accepted, true) {
            return;
        }
        for (partition, (ops, bytes)) in loads.clone() {
            self.enqueue(partition, ops, bytes);
        }
    }

    /// Spreads the bytes as the model needs them record by record.
    fn enqueue(&mut self, partition: u32, ops: u64, bytes: u64) {
        self.raft += 1;
        self.real.enqueued(PartitionId(partition), ops, bytes, LogIndex(self.raft));
        let now = self.now;
        let each = (0..ops).map(|at| if at == 0 { bytes - bytes / ops * (ops - 1) } else { bytes / ops });
        self.context(partition).enqueue(now, each);
    }

    fn apply(&mut self, partition: u32, ops: u64) {
        let now = self.now;
        let context = self.context(partition);
        let ops = ops.min(context.backlog.len() as u64);
        if ops > 0 {
            let bytes = context.backlog.drain(..ops as usize).map(|(_, bytes)| bytes).sum();
            context.progress = now;
            self.real.applied(PartitionId(partition), ops, bytes);
        }
    }

    fn run(&mut self, step: &Step) {
        let now = self.now;
        match step {
            Step::Admit(records) => self.admit(records, false),
            Step::Fence(partition) => self.admit(&[(*partition, 0)], true),
            Step::DropPermit(at) => self.drop_permit(*at),
            Step::Accept(at) => self.accept(*at),
            Step::Foreign(partition, ops, bytes) => self.enqueue(*partition, *ops, *bytes),
            Step::Apply(partition, ops) => self.apply(*partition, *ops),
            Step::Advance(ms) => {
                self.clock.advance_ms(*ms);
                self.now += ms;
            }
            Step::Pause(partition) => {
                self.real.set_paused(PartitionId(*partition), PauseReason::ApplyFailed("no".to_owned()));
                let context = self.context(*partition);
                (context.paused, context.known) = (true, true);
            }
            Step::Clear(partition) => {
                self.real.clear(PartitionId(*partition));
                let context = self.context(*partition);
                (context.paused, context.progress) = (false, now);
            }
            Step::Remove(partition) => {
                self.real.remove(PartitionId(*partition));
                let context = self.context(*partition);
                context.backlog.clear();
                (context.paused, context.known) = (false, false);
            }
            Step::Discard(partition) => {
                self.real.discard_backlog(PartitionId(*partition));
                self.context(*partition).backlog.clear();
            }
        }
        self.real.tick();
        for context in self.model.values_mut() {
            context.evaluate(self.now);
        }
    }

    fn compare(&mut self) {
        let stats = self.real.stats();
        assert_eq!((stats.ops, stats.bytes), self.total());
        for partition in 0..PARTITIONS {
            let view = self.real.view(PartitionId(partition));
            let now = self.now;
            let context = self.context(partition);
            let real = (view.inflight_ops, view.inflight_bytes, view.backlog_ops, view.backlog_bytes);
            let (backlog, inflight) = (context.backlog(), context.inflight);
            assert_eq!(real, (inflight.0, inflight.1, backlog.0, backlog.1), "partition {partition}");
            assert_eq!(view.backlog_age, Duration::from_millis(context.age(now)));
            assert_eq!(view.state, context.state, "partition {partition}");
            assert!(context.backlog.is_empty() == view.oldest.is_none());
            let delay = self.real.after_commit(PartitionId(partition));
            assert_eq!(delay.is_zero(), backlog.0 <= OPS_MAX && backlog.1 <= BYTES_MAX);
        }
    }

    /// Everything is applied and answered: all is open, and nothing is counted.
    fn settle(&mut self) {
        while !self.permits.is_empty() {
            self.drop_permit(0);
        }
        for partition in 0..PARTITIONS {
            self.apply(partition, u64::MAX);
            self.real.clear(PartitionId(partition));
        }
        self.real.tick();
        let stats = self.real.stats();
        assert_eq!((stats.ops, stats.bytes), (0, 0));
        for partition in 0..PARTITIONS {
            let view = self.real.view(PartitionId(partition));
            assert_eq!((view.state, view.backlog_ops, view.inflight_ops), (AdmissionState::Open, 0, 0));
            drop(self.real.admit(&entry(vec![append(partition, 1)])).unwrap());
        }
    }
}

fn check_retry_after(time: Duration) {
    let config = config();
    assert!(time >= config.retry_after_min && time <= config.retry_after_max);
}

proptest! {
    #[test]
    fn admission_agrees_with_the_corrected_sketch(steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.run(step);
            pair.compare();
        }
        let mut left: BTreeMap<u32, AdmissionState> = BTreeMap::new();
        for event in pair.real.take_events() {
            let before = left.insert(event.partition.0, event.to).unwrap_or_default();
            // A partition that was removed begins again, open.
            prop_assert!(event.from == before || event.from == AdmissionState::Open);
            prop_assert_ne!(event.from, event.to);
        }
        pair.settle();
    }
    /// Chunks of many requests, each chunk at least once, in any order, from clients that come back when there is no
    /// room: every request arrives whole, once, and the room is never passed and given back.
    #[test]
    fn requests_arrive_whole_whatever_the_order_of_their_chunks(
        totals in prop::collection::vec(1u64..12_000, 1..12),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let config = AssemblerConfig {
            chunk_bytes: 4096,
            request_bytes_max: 12_000,
            bytes_max: 30_000,
            client_bytes_max: 20_000,
            ..AssemblerConfig::default()
        };
        let mut assembler = RequestAssembler::new(config).unwrap();
        let mut complete = vec![0; totals.len()];
        let chunks: Vec<RequestChunk> = totals.iter().enumerate().flat_map(|(at, total)| cut(at, *total)).collect();
        let sent = picks.iter().map(|pick| pick.get(&chunks)).chain(chunks.iter().cycle().take(chunks.len() * 12));
        for chunk in sent {
            let at = chunk.request.0 as usize;
            match assembler.accept(chunk, Duration::ZERO) {
                Ok(Transferred::Complete(bytes)) => {
                    prop_assert_eq!(bytes.as_ref(), &payload(at, totals[at])[..]);
                    complete[at] += 1;
                }
                Ok(_) => {}
                Err(ChunkError::NoRoom { limit, value, asked, .. }) => prop_assert!(value + asked > limit),
                Err(other) => prop_assert!(false, "{other}"),
            }
            prop_assert!(assembler.reserved_bytes() <= 30_000);
        }
        prop_assert_eq!((assembler.reserved_bytes(), assembler.requests()), (0, 0));
        // A request of one chunk needs no memory, so it comes out as often as it is sent.
        prop_assert!(complete.iter().zip(&totals).all(|(count, total)| *count == 1 || *total <= 4096));
    }
}

fn payload(at: usize, total: u64) -> Vec<u8> {
    (0..total).map(|byte| (byte % 251) as u8 ^ at as u8).collect()
}

fn cut(at: usize, total: u64) -> Vec<RequestChunk> {
    let whole = payload(at, total);
    let (client, request) = (ClientId(at as u128 % 3), TransferId(at as u64));
    let parts = whole.chunks(4096).enumerate();
    parts
        .map(|(number, part)| RequestChunk {
            client,
            request,
            total_bytes: total,
            number: number as u32,
            bytes: part.to_vec().into(),
        })
        .collect()
}
