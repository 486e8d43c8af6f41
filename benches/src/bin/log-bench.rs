//! A data group of one node, end to end: proposals, group commit, verdict, partitions, replies; beside a bare loop of
//! group commit in the same run, with ratios.
//!
//! `cargo run --release -p laminar-benches --bin log-bench -- [FOLDER [CASE...]]`, with cases `callers`, `frozen`, `mixed` and
//! `memory`. The folder should be on the disk that matters. The bare loop has no index, no rotation, no purge, no Raft and
//! no partitions: it is an upper bound.

#![allow(clippy::unwrap_used, reason = "a failed bench should stop")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use laminar_aof::fs::RealFileSystem;
use laminar_aof::{Committer, CommitterConfig};
use laminar_benches::floor::{Bare, Payloads, median, settle};
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_log::MachineFactory;
use laminar_log::entry::{Append, Change, Entry, MachineKind, PartitionRecord, Payload, Record};
use laminar_log::machine::{Applying, LogMachine, MachineError, PartitionStateMachine};
use laminar_log::verdict::{AcceptedRecord, Verdict};
use laminar_raft::testing::Router;
use laminar_raft::{DataReplica, Node, ReplicaConfig, ReplicaParts, TokioRuntime};

const PARTITIONS: u32 = 1000;
const CALLERS: u64 = 64;
const ROUNDS: usize = 3;

type Replica = DataReplica<TokioRuntime>;

/// Log machines; those of frozen partitions never finish an apply.
struct Machines {
    frozen: Arc<AtomicBool>,
}

impl MachineFactory for Machines {
    fn make(&self, partition: PartitionId, _kind: MachineKind) -> Box<dyn PartitionStateMachine> {
        if partition.0 == PARTITIONS {
            return Box::new(Freezing(Arc::clone(&self.frozen)));
        }
        Box::new(LogMachine)
    }
}

struct Freezing(Arc<AtomicBool>);

impl PartitionStateMachine for Freezing {
    fn apply<'a>(&'a mut self, _record: &'a AcceptedRecord) -> Applying<'a> {
        if self.0.load(Ordering::Relaxed) {
            return Applying::Later(Box::pin(std::future::pending()));
        }
        Applying::Done(Ok(()))
    }

    fn snapshot(&self) -> Vec<Bytes> {
        Vec::new()
    }

    fn restore(&mut self, _state: &[Bytes]) -> Result<(), MachineError> {
        Ok(())
    }

    fn state_hash(&self) -> u64 {
        0
    }
}

fn append(partition: u32, payload: Bytes) -> Record {
    Record::Partition(PartitionRecord {
        partition: PartitionId(partition),
        owner: NodeId(1),
        epoch: Epoch::FIRST,
        change: Change::Append(Append {
            rows: 1,
            create: Some(MachineKind::Log),
            payload: Payload::Inline(payload),
        }),
    })
}

fn one(payloads: &Payloads, number: u64) -> Bytes {
    payloads.get(number * 31, 1).remove(0)
}

async fn start(dir: &Path, frozen: &Arc<AtomicBool>) -> Replica {
    start_with(dir, frozen, ReplicaConfig::default()).await
}

async fn start_with(dir: &Path, frozen: &Arc<AtomicBool>, config: ReplicaConfig) -> Replica {
    let committer =
        Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
    let parts = ReplicaParts {
        dir: dir.to_owned(),
        node: NodeId(1),
        committer,
        machines: Arc::new(Machines { frozen: Arc::clone(frozen) }),
        clock: Arc::new(|| 1_700_000_000_000),
        signals: Vec::new(),
    };
    let router: Router<TokioRuntime, Replica> = Router::new(1);
    let replica = Replica::open(parts, config, router.factory(1)).await.unwrap();
    replica.initialize(BTreeMap::from([(1, Node { address: String::new() })])).await.unwrap();
    while replica.status().leader != Some(NodeId(1)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    replica
}

/// Makes the partitions: each has a record.
async fn create(replica: &Replica, payloads: &Payloads, partitions: u32) {
    let begun = Instant::now();
    for first in (0..partitions).step_by(500) {
        let records =
            (first..(first + 500).min(partitions)).map(|p| append(p, one(payloads, u64::from(p)))).collect();
        propose(replica, Entry { records, ..Entry::default() }).await;
    }
    println!("{partitions} partitions made in {:.2} s", begun.elapsed().as_secs_f64());
}

async fn propose(replica: &Replica, entry: Entry) {
    let verdict = replica.propose(entry).await.unwrap();
    assert!(matches!(verdict, Verdict::Accepted(_)), "{verdict:?}");
}

/// Records a second, by callers that each wait for their answer before the next call.
async fn callers(replica: &Replica, payloads: &Arc<Payloads>, records: u64, calls: u64) -> f64 {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (replica, payloads) = (replica.clone(), Arc::clone(payloads));
            tokio::spawn(async move {
                for call in 0..calls {
                    let first = (caller * 7919 + call) * records;
                    let record = |at: u64| {
                        append(((first + at) % u64::from(PARTITIONS)) as u32, one(&payloads, first + at))
                    };
                    propose(
                        &replica,
                        Entry { records: (0..records).map(record).collect(), ..Entry::default() },
                    )
                    .await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    (CALLERS * records * calls) as f64 / begun.elapsed().as_secs_f64()
}

fn bare(floor: &Bare, payloads: &Payloads, calls: u64) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            scope.spawn(move || {
                (0..calls).for_each(|call| floor.append(&payloads.get((caller * 7919 + call) * 31, 1)))
            });
        }
    });
    (CALLERS * calls) as f64 / begun.elapsed().as_secs_f64()
}

fn line(what: &str, value: String, budget: &str) {
    println!("{what:<52} {value:>34}   {budget}");
}

async fn case_callers(dir: &Path, payloads: &Arc<Payloads>) {
    let replica = start(&dir.join("callers"), &Arc::default()).await;
    create(&replica, payloads, PARTITIONS).await;
    let floor = Bare::new(dir);
    let (mut one, mut sixteen, mut bares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        settle();
        one.push(callers(&replica, payloads, 1, 600).await);
        bares.push(bare(&floor, payloads, 600));
        sixteen.push(callers(&replica, payloads, 16, 150).await);
    }
    let (one, sixteen, bare) = (median(one), median(sixteen), median(bares));
    line(
        "64 callers, one record a call",
        format!("{one:.0}/s, {:.2} x the bare loop {bare:.0}/s", one / bare),
        "at least 0.5 x",
    );
    line("64 callers, 16 records a call", format!("{sixteen:.0} records/s"), "at least 100,000");
    replica.shutdown().await.unwrap();
}

async fn case_frozen(dir: &Path, payloads: &Arc<Payloads>) {
    let frozen = Arc::default();
    let replica = start(&dir.join("frozen"), &frozen).await;
    create(&replica, payloads, PARTITIONS + 1).await;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let mut stuck = Vec::new();
    for round in 0..5 {
        settle();
        frozen.store(round % 2 == 1, Ordering::Relaxed);
        if round == 1 {
            for number in 0..100 {
                let (replica, record) = (replica.clone(), append(PARTITIONS, one(payloads, number)));
                stuck.push(tokio::spawn(async move {
                    drop(replica.propose(Entry { records: vec![record], ..Entry::default() }).await);
                }));
            }
        }
        let rate = callers(&replica, payloads, 1, 500).await;
        if round >= 1 { with.push(rate) } else { without.push(rate) }
    }
    stuck.iter().for_each(|task| task.abort());
    let (without, with) = (median(without), median(with));
    line(
        "others beside one frozen partition",
        format!("{:+.1} %", (with / without - 1.0) * 100.0),
        "less than 5 % lost",
    );
}

/// p99 of the cold callers, in microseconds.
async fn cold_p99(replica: &Replica, payloads: &Arc<Payloads>, hot: bool) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let hot_tasks: Vec<_> = (0..if hot { 10_u32 } else { 0 })
        .map(|partition| {
            let (replica, payloads, stop) = (replica.clone(), Arc::clone(payloads), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    let record = append(partition, one(&payloads, number));
                    propose(&replica, Entry { records: vec![record], ..Entry::default() }).await;
                }
            })
        })
        .collect();
    let mut times = Vec::new();
    let next = AtomicU64::new(0);
    for _ in 0..20_000 {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let record = append(10 + (number * 7 % 990) as u32, one(payloads, number));
        let begun = Instant::now();
        propose(replica, Entry { records: vec![record], ..Entry::default() }).await;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    stop.store(true, Ordering::Relaxed);
    for task in hot_tasks {
        task.await.unwrap();
    }
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

async fn case_mixed(dir: &Path, payloads: &Arc<Payloads>) {
    let replica = start(&dir.join("mixed"), &Arc::default()).await;
    create(&replica, payloads, PARTITIONS).await;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        settle();
        without.push(cold_p99(&replica, payloads, false).await);
        with.push(cold_p99(&replica, payloads, true).await);
    }
    let (without, with) = (median(without), median(with));
    line(
        "cold p99 beside 10 hot partitions",
        format!("{with:.0} us, {:.2} x {without:.0} us", with / without),
        "at most 1.2 x",
    );
    replica.shutdown().await.unwrap();
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

async fn case_memory(dir: &Path, payloads: &Arc<Payloads>) {
    let replica = start(&dir.join("memory"), &Arc::default()).await;
    let before = resident_bytes();
    create(&replica, payloads, 10_000).await;
    settle();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle = resident_bytes() - before;
    line("10,000 idle partitions", format!("{:.1} MB", idle as f64 / 1e6), "less than 100 MB");
    replica.shutdown().await.unwrap();
    unapplied(&dir.join("unapplied"), payloads).await;
}

/// What a record takes that its machine does not get to. Payloads beyond `log.apply_queue_bytes_max` are not kept.
async fn unapplied(dir: &Path, payloads: &Arc<Payloads>) {
    const ENTRIES: u64 = 200;
    const RECORDS: u64 = 1000;
    let frozen = Arc::new(AtomicBool::new(false));
    let mut config = ReplicaConfig::default();
    let limits = &mut config.dispatcher;
    (limits.ops_max, limits.bytes_max) = (1 << 20, 1 << 30);
    (limits.partition.ops_max, limits.partition.bytes_max, limits.partition.lag_max) =
        (1 << 20, 1 << 30, 1 << 20);
    let replica = start_with(dir, &frozen, config).await;
    propose(&replica, Entry { records: vec![append(PARTITIONS, one(payloads, 0))], ..Entry::default() })
        .await;
    frozen.store(true, Ordering::Relaxed);
    let mut stuck = Vec::new();
    let mut before = 0;
    let waiting = || replica.machine().status(PartitionId(PARTITIONS)).map_or(0, |status| status.queued);
    for entry in 0..2 * ENTRIES {
        if entry == ENTRIES {
            // What was freed meanwhile is used again by the second half.
            before = resident_bytes();
        }
        let records =
            (0..RECORDS).map(|at| append(PARTITIONS, one(payloads, entry * RECORDS + at))).collect();
        let proposing = replica.clone();
        stuck.push(tokio::spawn(async move {
            drop(proposing.propose(Entry { records, ..Entry::default() }).await);
        }));
        while (waiting() as u64) < (entry + 1) * RECORDS {
            assert!(!stuck.iter().any(tokio::task::JoinHandle::is_finished), "a record was refused");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let records = (ENTRIES * RECORDS) as f64;
    let each = (resident_bytes() - before) as f64 / records;
    line(
        "an unapplied record, its 256 bytes included",
        format!("{each:.0} bytes"),
        "less than 456: 200 beside its payload",
    );
    stuck.iter().for_each(|task| task.abort());
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parent = arguments.first().cloned().unwrap_or_else(|| ".".to_owned());
    let wanted = |case: &str| arguments.len() < 2 || arguments[1..].iter().any(|argument| argument == case);
    let dir = tempfile::tempdir_in(parent).unwrap();
    let payloads = Arc::new(Payloads::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if wanted("callers") {
            case_callers(dir.path(), &payloads).await;
        }
        if wanted("frozen") {
            case_frozen(dir.path(), &payloads).await;
        }
        if wanted("mixed") {
            case_mixed(dir.path(), &payloads).await;
        }
        if wanted("memory") {
            case_memory(dir.path(), &payloads).await;
        }
    });
}
