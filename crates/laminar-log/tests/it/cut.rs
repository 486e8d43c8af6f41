//! Consistent cuts beside a model that goes through all commits.

use std::sync::Arc;

use bytes::Bytes;
use laminar_aof::fs::MemoryFileSystem;
use laminar_aof::{Committer, CommitterConfig};
use laminar_core::ids::{LogIndex, PartitionId};
use laminar_log::cut::{Cut, CutLimits, CutPart, cut};
use laminar_log::entry::{Append, BlockId, BlockPointer, Change, Payload};
use laminar_log::partition_log::PartitionLogStore;
use laminar_log::verdict::AcceptedRecord;
use laminar_log::{LogId, PartitionLogIndex};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::partition_log_model::{append_change, config, first_record, root};

const PARTITIONS: usize = 4;

/// Rows of one partition in one commit; none of them makes a fence.
#[derive(Debug, Clone, Copy)]
struct Part {
    partition: usize,
    rows: u32,
    bytes: u16,
    staged: bool,
}

/// Where rows of a commit landed.
#[derive(Debug, Clone, Copy)]
struct Landed {
    entry: u64,
    partition: usize,
    begin: u64,
    end: u64,
    bytes: u64,
}

/// The logs of some partitions, and what is in them.
struct Logs {
    _committer: Committer,
    logs: Vec<PartitionLogStore>,
    places: [u64; PARTITIONS],
    ends: [u64; PARTITIONS],
    starts: [u64; PARTITIONS],
    landed: Vec<Landed>,
    entry: u64,
}

impl Logs {
    fn new() -> Self {
        let fs = MemoryFileSystem::default();
        let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs)).unwrap();
        let open = |n: usize| {
            PartitionLogStore::open(&committer, root(), PartitionId(n as u32), config()).unwrap().0
        };
        let logs = (0..PARTITIONS).map(open).collect();
        let zeros = [0; PARTITIONS];
        Self {
            _committer: committer,
            logs,
            places: zeros,
            ends: zeros,
            starts: zeros,
            landed: Vec::new(),
            entry: 0,
        }
    }

    fn commit(&mut self, gap: u64, parts: &[Part]) {
        self.entry += gap;
        for part in parts {
            let p = part.partition;
            self.places[p] += 1;
            let change = match (part.rows, part.staged) {
                (0, _) => first_record().record.change,
                (rows, false) => append_change(rows, Bytes::from(vec![7; usize::from(part.bytes)])),
                (rows, true) => {
                    Change::Append(Append { rows, create: None, payload: pointer(u64::from(part.bytes)) })
                }
            };
            let mut record = AcceptedRecord {
                index: PartitionLogIndex(self.places[p]),
                first_offset: self.ends[p],
                log_id: LogId::new(1, self.entry),
                time_ms: self.entry,
                ..first_record()
            };
            record.record.partition = PartitionId(p as u32);
            record.record.change = change;
            drop(self.logs[p].append([&record]).unwrap());
            let begin = self.ends[p];
            self.ends[p] += u64::from(part.rows);
            let (entry, end, bytes) = (self.entry, self.ends[p], u64::from(part.bytes));
            self.landed.push(Landed { entry, partition: p, begin, end, bytes });
        }
    }

    fn trim(&mut self, partition: usize, offset: u64) {
        self.starts[partition] = offset;
        drop(self.logs[partition].trim(offset).unwrap());
    }

    fn cut(&self, from: &[u64], at: u64, limits: CutLimits, known: bool) -> Cut {
        let part = |p: usize| CutPart {
            log: self.logs[p].clone(),
            begin: from[p].max(self.starts[p]),
            end: (known && at >= self.entry).then_some(self.ends[p]),
            last: PartitionLogIndex(self.logs[p].stored_end().0 - 1),
        };
        let parts: Vec<CutPart> = (0..PARTITIONS).map(part).collect();
        cut(&parts, LogIndex(at), limits).unwrap()
    }

    /// What the cut must be, found by going through all commits. The index is the last commit of it.
    fn expected(&self, from: &[u64], at: u64, limits: CutLimits) -> Cut {
        let begins: Vec<u64> = (0..PARTITIONS).map(|p| from[p].max(self.starts[p])).collect();
        let wanted =
            |landed: &&Landed| landed.entry <= at && landed.end > landed.begin.max(begins[landed.partition]);
        let wanted: Vec<&Landed> = self.landed.iter().filter(wanted).collect();
        let mut cut =
            Cut { index: LogIndex(0), ends: begins.clone(), rows: 0, bytes: Some(0), complete: true };
        for commit in wanted.chunk_by(|a, b| a.entry == b.entry) {
            let begin = |landed: &Landed| landed.begin.max(begins[landed.partition]);
            let rows: u64 = commit.iter().map(|landed| landed.end - begin(landed)).sum();
            let bytes = cut.bytes.unwrap() + commit.iter().map(|landed| landed.bytes).sum::<u64>();
            let over = limits.rows_max.is_some_and(|max| cut.rows + rows > max)
                || limits.bytes_max.is_some_and(|max| bytes > max);
            if over && cut.index > LogIndex(0) {
                cut.complete = false;
                break;
            }
            cut.index = LogIndex(commit[0].entry);
            cut.rows += rows;
            cut.bytes = Some(bytes);
            commit.iter().for_each(|landed| cut.ends[landed.partition] = landed.end);
        }
        cut
    }

    fn check(&self, from: &[u64], at: u64, limits: CutLimits, known: bool) -> Cut {
        let (found, expected) = (self.cut(from, at, limits, known), self.expected(from, at, limits));
        assert_eq!(
            (&found.ends, found.rows, found.complete),
            (&expected.ends, expected.rows, expected.complete)
        );
        assert_eq!(found.bytes, expected.bytes.filter(|_| limits.bytes_max.is_some()));
        // The index is one at which the partitions end there: no other commit lies between.
        assert!(expected.index <= found.index && found.index <= LogIndex(at));
        assert_eq!(self.expected(from, found.index.0, CutLimits::default()).ends, found.ends);
        found
    }
}

fn pointer(length: u64) -> Payload {
    let path = "stage/block".to_owned();
    Payload::Pointer(Box::new(BlockPointer { block: BlockId(1), begin: 0, length, checksum: 0, path }))
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part =
        (0..PARTITIONS, 0..6_u32, 1..200_u16, any::<bool>()).prop_map(|(partition, rows, bytes, staged)| {
            Part { partition, rows, bytes: bytes * rows.min(1) as u16, staged }
        });
    vec(part, 1..6)
}

fn limits() -> impl Strategy<Value = CutLimits> {
    (proptest::option::of(1..60_u64), proptest::option::of(1..3000_u64))
        .prop_map(|(rows_max, bytes_max)| CutLimits { rows_max, bytes_max })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chained_cuts_are_whole_commits_within_limits_and_cover_everything_once(
        commits in vec((1..4_u64, parts()), 1..60),
        limits in vec(limits(), 1..8),
        trims in vec((0..PARTITIONS, 0..255_u64), 0..3),
        known in any::<bool>(),
    ) {
        let mut logs = Logs::new();
        commits.iter().for_each(|(gap, parts)| logs.commit(*gap, parts));
        for (partition, share) in trims {
            let offset = logs.ends[partition] * share / 255;
            logs.trim(partition, offset.max(logs.starts[partition]));
        }
        let (mut from, mut rows) = (vec![0; PARTITIONS], 0);
        for turn in 0.. {
            let cut = logs.check(&from, logs.entry, limits[turn % limits.len()], known);
            rows += cut.rows;
            from = cut.ends;
            if cut.complete {
                break;
            }
            assert!(cut.rows > 0, "every cut but the last has at least one commit");
        }
        let there: u64 = (0..PARTITIONS).map(|p| logs.ends[p] - logs.starts[p]).sum();
        prop_assert_eq!(rows, there);
        prop_assert_eq!(from, logs.ends.to_vec());
    }

    #[test]
    fn a_cut_from_anywhere_up_to_anywhere_is_what_the_commits_say(
        commits in vec((1..4_u64, parts()), 1..60),
        limits in limits(),
        shares in vec(0..255_u64, PARTITIONS),
        at in 0..255_u64,
    ) {
        let mut logs = Logs::new();
        commits.iter().for_each(|(gap, parts)| logs.commit(*gap, parts));
        let from: Vec<u64> = logs.ends.iter().zip(&shares).map(|(end, share)| end * share / 255).collect();
        logs.check(&from, logs.entry * at / 255, limits, false);
    }
}

#[test]
fn a_long_backlog_is_cut_where_the_commits_say() {
    let mut logs = Logs::new();
    for n in 0..20_000_u64 {
        // One partition gets nearly everything, and now and then a commit is large.
        let partition = if n % 97 == 0 { (n % 3) as usize } else { 3 };
        let rows = if n % 1000 == 0 { 5000 } else { 1 };
        logs.commit(1 + n % 5, &[Part { partition, rows, bytes: 10, staged: false }]);
    }
    for rows_max in [1, 2, 4999, 5001, 20_000, 60_000, 119_980] {
        let limits = CutLimits { rows_max: Some(rows_max), bytes_max: None };
        logs.check(&[0; PARTITIONS], logs.entry, limits, true);
        logs.check(&[0, 1, 2, 7000], logs.entry, limits, false);
    }
}
