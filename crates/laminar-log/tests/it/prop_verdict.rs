//! Random logs, decided by two replicas and by a simple model. After every step: the answers and the states are those
//! of the model; EPOCH-1, EPOCH-2, LOG-2, LOG-4, TXN-1 and TXN-2 hold; what is refused changes nothing; both replicas have
//! the same bytes, though one of them reads the entries from their bytes and restarts from its own snapshots (APPLY-2).

use std::collections::BTreeMap;

use laminar_core::ids::PartitionId;
use laminar_log::LogId;
use laminar_log::entry::{BlockId, Change, Entry, MachineKind};
use laminar_log::format::{FormatError, decode_entry, encode_entry};
use laminar_log::verdict::{Decision, PartitionVerdict, Verdict, VerdictLimits, VerdictState};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FileFailurePersistence, TestRunner};

use crate::prop_verdict_model::entries::{Step, steps};
use crate::prop_verdict_model::invariants::Invariants;
use crate::prop_verdict_model::{Model, next_offset, ownership, skipped, start_offset};

/// Small, so that every one is reached.
const LIMITS: VerdictLimits = VerdictLimits {
    producers_max: 3,
    producer_window: 2,
    queries_max: 4,
    partitions_max: 5,
    skips_max: 2,
    expired_blocks_max: 4,
};

const UNREADABLE: FormatError = FormatError::Damaged { what: "entry", at: 0, found: 1, expected: 2 };

struct Run {
    state: VerdictState,
    replica: VerdictState,
    model: Model,
    invariants: Invariants,
    index: u64,
    entries: Vec<Entry>,
    /// Every step that was decided, for a replay.
    decided: Vec<(LogId, Entry, Decision)>,
}

impl Run {
    fn new() -> Self {
        let state = VerdictState::new(LIMITS).unwrap();
        Self {
            replica: state.clone(),
            state,
            model: Model::new(LIMITS),
            invariants: Invariants::default(),
            index: 0,
            entries: vec![],
            decided: vec![],
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        if matches!(step, Step::Restart) {
            self.replica = VerdictState::decode(&self.replica.encode()).unwrap();
            return Ok(());
        }
        self.index += 1;
        // A new leader every ten entries.
        let id = LogId::new(1 + self.index / 10, self.index);
        match step {
            Step::Entry(plan) => {
                let entry = plan.entry(&self.model);
                self.entries.push(entry.clone());
                self.decide(id, entry)?;
            }
            Step::Again(which) if !self.entries.is_empty() => {
                self.decide(id, self.entries[which.index(self.entries.len())].clone())?;
            }
            Step::Unreadable => {
                let before = self.state.clone();
                let decision = self.state.decide_unreadable(id, UNREADABLE);
                ensure(decision == self.replica.decide_unreadable(id, UNREADABLE), "replicas differ")?;
                self.unchanged(before, id)?;
            }
            _ => {
                self.state.skip_to(id);
                self.replica.skip_to(id);
            }
        }
        ensure(self.state.last_applied() == Some(id), "it did not move on")?;
        self.compare()
    }

    fn decide(&mut self, id: LogId, entry: Entry) -> Result<(), String> {
        let before = self.state.clone();
        let decision = self.state.decide(id, &entry);
        let mut expected = self.model.decide(id, &entry);
        // The model does not say which record is which; its content does.
        expected.positions = decision.positions.clone();
        ensure(decision.positions.len() == decision.accepted.len(), "each accepted record has its position")?;
        for (taken, position) in decision.accepted.iter().zip(&decision.positions) {
            let laminar_log::entry::Record::Partition(record) = &entry.records[*position as usize] else {
                return Err(format!("record {position} is not of a partition"));
            };
            let same_change =
                std::mem::discriminant(&record.change) == std::mem::discriminant(&taken.record.change);
            let same = (record.partition, record.owner, record.epoch)
                == (taken.record.partition, taken.record.owner, taken.record.epoch);
            ensure(same && same_change, "an accepted record is the one at its position")?;
        }
        ensure(decision.positions.is_sorted_by(|a, b| a < b), "records are accepted in order")?;
        if decision != expected {
            return Err(format!("{id}: {entry:?}\n  is {decision:?}\n  model {expected:?}"));
        }
        self.invariants.check(id, &entry, &decision)?;
        let read = decode_entry(&encode_entry(&entry)).unwrap();
        ensure(self.replica.decide(id, &read) == decision, "APPLY-2: replicas decide differently")?;
        if matches!(decision.verdict, Verdict::Refused(_)) {
            self.unchanged(before, id)?;
        }
        self.decided.push((id, entry, decision));
        Ok(())
    }

    /// All or nothing: but for its place in the log, the state is what it was.
    fn unchanged(&self, mut before: VerdictState, id: LogId) -> Result<(), String> {
        before.skip_to(id);
        ensure(before == self.state && before.encode() == self.state.encode(), "a refusal left a trace")
    }

    fn compare(&self) -> Result<(), String> {
        let bytes = self.state.encode();
        ensure(bytes == self.replica.encode(), "APPLY-2: replicas have different bytes")?;
        let decoded = VerdictState::decode(&bytes).map_err(|error| error.to_string())?;
        ensure(decoded == self.state && decoded.encode() == bytes, "bytes do not give the state back")?;
        let expected: BTreeMap<_, _> = self.model.live().map(|id| (id, self.partition(id))).collect();
        let partitions: BTreeMap<_, _> =
            self.state.partitions().map(|(id, held)| (id, held.clone())).collect();
        if partitions != expected {
            return Err(format!("partitions are {partitions:?}\n  model {expected:?}"));
        }
        for id in (0..8).map(PartitionId) {
            ensure(self.state.is_destroyed(id) == self.model.destroyed.contains(&id), "tombstones differ")?;
            ensure(self.state.partition(id) == expected.get(&id), "a partition differs")?;
        }
        for known in &self.model.producers {
            let last = (!known.forgotten).then_some(known.appends.len() as u64);
            ensure(self.state.last_sequence(known.id) == last, "TXN-2: a producer differs")?;
        }
        for block in (0..82).map(|half: u128| half << 59) {
            ensure(self.state.is_expired(BlockId(block)) == self.model.is_expired(block), "stages differ")?;
        }
        for query in (0..5).map(|query| format!("query-{query}")) {
            let last = self.model.last_batch(&query).map(|(last, outcome)| (last, outcome.index));
            ensure(self.state.last_batch(&query) == last, "TXN-1: a query differs")?;
        }
        let counts = self.state.counts();
        let within = counts.partitions <= LIMITS.partitions_max as usize
            && counts.producers <= LIMITS.producers_max as usize
            && counts.queries <= LIMITS.queries_max as usize
            && counts.expired_blocks <= LIMITS.expired_blocks_max as usize
            && counts.destroyed == self.model.destroyed.len() as u64;
        ensure(within, "a limit does not hold")
    }

    /// What the model makes of a partition's whole past.
    fn partition(&self, id: PartitionId) -> PartitionVerdict {
        let past = &self.model.records[&id];
        let (epoch, owner, since_ms) = ownership(past);
        let fence = past.iter().rev().find_map(|taken| match taken.record.change {
            Change::Fence(fence) => Some(fence),
            _ => None,
        });
        let (first, last) = (&past[0], &past[past.len() - 1]);
        PartitionVerdict {
            epoch,
            owner,
            machine: match &first.record.change {
                Change::Create(machine) => *machine,
                Change::Append(append) => append.create.unwrap(),
                _ => MachineKind::Log,
            },
            highest: last.index,
            next_offset: next_offset(past),
            start_offset: start_offset(past),
            last_time_ms: last.time_ms,
            since_ms,
            fence_run: fence.map_or(0, |fence| fence.run),
            fence_metadata_index: fence.map_or(0, |fence| fence.metadata_index),
            created: first.log_id.index,
            last_log_id: last.log_id,
            skipped: skipped(past),
        }
    }
}

fn ensure(right: bool, what: &str) -> Result<(), String> {
    if right { Ok(()) } else { Err(what.to_owned()) }
}

/// The cases are short and fast: four times as many as usual, also in a soak.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let failure_persistence =
        Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions")) as Box<_>);
    ProptestConfig { cases: usual.cases * 4, failure_persistence, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn decisions_are_those_of_the_model_and_the_invariants_hold(steps in steps(120)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step).map_err(TestCaseError::fail)?;
        }
    }

    /// APPLY-2: a replica that starts from a snapshot in the middle comes to the same decisions and the same bytes.
    #[test]
    fn a_replay_from_a_snapshot_in_the_middle_gives_the_same(
        steps in steps(80),
        middle in any::<prop::sample::Index>(),
    ) {
        let middle = middle.index(steps.len());
        let mut run = Run::new();
        let mut snapshot = None;
        for (at, step) in steps.iter().enumerate() {
            if at == middle {
                snapshot = Some((run.state.encode(), run.decided.len()));
            }
            run.step(step).map_err(TestCaseError::fail)?;
        }
        let (bytes, decided) = snapshot.unwrap();
        let mut replay = VerdictState::decode(&bytes).unwrap();
        for (id, entry, decision) in &run.decided[decided..] {
            prop_assert_eq!(&replay.decide(*id, entry), decision);
        }
        run.state.last_applied().into_iter().for_each(|last| replay.skip_to(last));
        prop_assert_eq!(replay.encode(), run.state.encode());
    }

    /// Damage of any kind is found, and nothing panics.
    #[test]
    fn a_changed_bit_or_a_cut_of_a_snapshot_is_refused(
        steps in steps(30),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step).map_err(TestCaseError::fail)?;
        }
        let bytes = run.state.encode();
        let at = at.index(bytes.len());
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << bit;
        prop_assert!(VerdictState::decode(&flipped).is_err());
        prop_assert!(VerdictState::decode(&bytes[..at]).is_err());
    }
}

/// The random logs would prove little if they never came to some of the answers.
#[test]
fn random_logs_come_to_every_answer() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..150 {
        let steps = steps(120).new_tree(&mut runner).unwrap().current();
        let mut run = Run::new();
        steps.iter().for_each(|step| run.step(step).unwrap());
        for (_, entry, decision) in &run.decided {
            let name = match &decision.verdict {
                Verdict::Accepted(_) => "Accepted".to_owned(),
                Verdict::Duplicate(_) if entry.batch.is_none() => "Duplicate of a producer".to_owned(),
                Verdict::Duplicate(_) if entry.producer.is_none() => "Duplicate of a batch".to_owned(),
                Verdict::Duplicate(_) => "Duplicate of either".to_owned(),
                Verdict::Refused(refusal) => {
                    format!("{refusal:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
                }
            };
            *seen.entry(name).or_default() += 1;
        }
    }
    for name in [
        "Accepted",
        "Duplicate of a producer",
        "Duplicate of a batch",
        "Duplicate of either",
        "StaleEpoch",
        "NotOwned",
        "UnknownPartition",
        "Destroyed",
        "UnknownProducer",
        "SequenceGap",
        "SequenceReused",
        "BatchBackwards",
        "TooManyQueries",
        "TooManyPartitions",
        "TooManySkips",
        "NothingToSkip",
        "StageExpired",
    ] {
        assert!(seen.get(name).is_some_and(|times| *times >= 10), "{name}: {seen:?}");
    }
}
