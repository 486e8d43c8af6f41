//! A process with a data group of one node is killed with SIGKILL; what it had acknowledged is there, in order, once
//! (LOG-2, LOG-3, TXN-2).
//!
//! `LAMINAR_CRASH_ROUNDS=1000 cargo test --release -p laminar-raft --test it replica_crash::` kills it more often.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::RealFileSystem;
use laminar_aof::{AofConfig, Committer, CommitterConfig};
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_log::entry::{Append, Change, Entry, MachineKind, PartitionRecord, Payload, Record};
use laminar_log::verdict::Verdict;
use laminar_log::{BuiltInMachines, SegmentedLogConfig};
use laminar_raft::testing::Router;
use laminar_raft::{DataReplica, Node, RaftSettings, ReplicaConfig, ReplicaParts, TokioRuntime};

const CHILD_DIR: &str = "LAMINAR_CRASH_CHILD_DIR";
const CHILD_ROUND: &str = "LAMINAR_CRASH_CHILD_ROUND";
const PARTITIONS: u32 = 5;

type Replica = DataReplica<TokioRuntime>;

/// Small segments and frequent snapshots, so that rotation, purge and compaction are in every run.
async fn open(dir: &Path) -> Replica {
    let files = AofConfig { segment_bytes_max: 1 << 17, ..AofConfig::default() };
    let config = ReplicaConfig {
        raft: RaftSettings { snapshot_entries: 60, kept_entries: 5, ..RaftSettings::default() },
        log: SegmentedLogConfig { files, ..SegmentedLogConfig::default() },
        ..ReplicaConfig::default()
    };
    let committer =
        Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
    let parts = ReplicaParts {
        dir: dir.to_owned(),
        node: NodeId(1),
        committer,
        machines: Arc::new(BuiltInMachines),
        clock: Arc::new(|| 1_700_000_000_000),
        signals: Vec::new(),
    };
    let router: Router<TokioRuntime, Replica> = Router::new(1);
    let replica = Replica::open(parts, config, router.factory(1)).await.unwrap();
    // A group that has members already says so.
    drop(replica.initialize(BTreeMap::from([(1, Node { address: String::new() })])).await);
    while !(replica.status().recovered && replica.status().leader == Some(NodeId(1))) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    replica
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn append(partition: u32, text: &str) -> Record {
    let payload = Payload::Inline(Bytes::copy_from_slice(text.as_bytes()));
    Record::Partition(PartitionRecord {
        partition: PartitionId(partition),
        owner: NodeId(1),
        epoch: Epoch::FIRST,
        change: Change::Append(Append { rows: 1, create: Some(MachineKind::Log), payload }),
    })
}

/// The process that is killed: several callers append, and tell the parent where their rows are.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let round = std::env::var(CHILD_ROUND).unwrap();
    runtime().block_on(async {
        let replica = open(Path::new(&dir)).await;
        println!("\nopen");
        let callers: Vec<_> = (0..4_u32)
            .map(|caller| {
                let (replica, round) = (replica.clone(), round.clone());
                tokio::spawn(async move {
                    for number in 0_u32.. {
                        let text = format!("{round}-{caller}-{number}");
                        let partitions =
                            [(caller + number) % PARTITIONS, (caller + number * 3 + 1) % PARTITIONS];
                        let partitions: BTreeSet<u32> = partitions.into_iter().collect();
                        let records = partitions.iter().map(|p| append(*p, &text)).collect();
                        let verdict = replica.propose(Entry { records, ..Entry::default() }).await.unwrap();
                        let Verdict::Accepted(outcome) = verdict else { panic!("{verdict:?}") };
                        let places: Vec<String> = outcome
                            .placed
                            .iter()
                            .map(|placed| format!("{}:{}", placed.partition, placed.first_offset))
                            .collect();
                        println!("ack {text} {}", places.join(" "));
                        std::io::stdout().flush().unwrap();
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
    });
}

#[test]
fn what_was_acknowledged_survives_sigkill() {
    let rounds: u64 = std::env::var("LAMINAR_CRASH_ROUNDS").map_or(15, |rounds| rounds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    // Where each acknowledged text must be, over all rounds.
    let mut acknowledged: BTreeMap<(u32, u64), String> = BTreeMap::new();
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "replica_crash::child", "--nocapture", "--test-threads=1"])
            .env(CHILD_DIR, dir.path())
            .env(CHILD_ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = 1 + round.wrapping_mul(0x9E37_79B9) % 120;
        let mut killed = false;
        while let Some(Ok(line)) = lines.next() {
            let mut words = line.split(' ');
            // What the kill cut in the middle was not told.
            if words.next() != Some("ack") || (killed && !line.contains(':')) {
                continue;
            }
            let text = words.next().unwrap().to_owned();
            for place in words {
                let Some((partition, offset)) = place.split_once(':') else { continue };
                let place = (partition.parse().unwrap(), offset.parse::<u64>());
                if let (partition, Ok(offset)) = place
                    && !(killed && lines_cut(&line))
                {
                    acknowledged.insert((partition, offset), text.clone());
                }
            }
            left = left.saturating_sub(1);
            if left == 0 && !killed {
                killed = true;
                child.kill().unwrap();
            }
        }
        assert!(killed, "round {round}: the child ended by itself");
        child.wait().unwrap();
        check(dir.path(), &acknowledged, round);
    }
}

/// After the kill the last line may be cut: such a line is not trusted.
fn lines_cut(line: &str) -> bool {
    line.split(' ').count() < 3
}

fn check(dir: &Path, acknowledged: &BTreeMap<(u32, u64), String>, round: u64) {
    let runtime = runtime();
    runtime.block_on(async {
        let replica = open(dir).await;
        let machine = replica.machine();
        let mut rows: BTreeMap<(u32, u64), String> = BTreeMap::new();
        let mut seen: BTreeSet<(u32, String)> = BTreeSet::new();
        for id in machine.partition_ids() {
            let log = machine.partition_log(id).unwrap();
            let mut reader = log.reader(log.first());
            let mut next = (1, 0);
            while let Some(record) = reader.next().unwrap() {
                assert_eq!((record.index.0, record.first_offset), next, "round {round}: LOG-2");
                let Change::Append(Append { payload: Payload::Inline(bytes), rows: count, .. }) =
                    record.record.change
                else {
                    panic!("only appends were proposed")
                };
                next = (record.index.0 + 1, record.first_offset + u64::from(count));
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                assert!(seen.insert((id.0, text.clone())), "round {round}: {text} is there twice");
                rows.insert((id.0, record.first_offset), text);
            }
        }
        for (place, text) in acknowledged {
            assert_eq!(rows.get(place), Some(text), "round {round}: {place:?} was acknowledged (LOG-3)");
        }
        replica.shutdown().await.unwrap();
    });
}
