//! What a replica must hold: the verdict over all committed entries, and everything that was accepted, kept forever.

use std::collections::BTreeMap;

use bytes::Bytes;
use laminar_core::ids::PartitionId;
use laminar_log::LogId;
use laminar_log::entry::{Change, MachineKind};
use laminar_log::format::decode_entry;
use laminar_log::machine::{Applying, KvMachine, LogMachine, PartitionStateMachine};
use laminar_log::verdict::{AcceptedRecord, Verdict, VerdictLimits, VerdictState};

pub(crate) struct Oracle {
    pub(crate) verdict: VerdictState,
    pub(crate) verdicts: BTreeMap<u64, Verdict>,
    /// The records of each partition; the first has place 1.
    pub(crate) records: BTreeMap<PartitionId, Vec<AcceptedRecord>>,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        let verdict = VerdictState::new(VerdictLimits::default()).unwrap();
        Self { verdict, verdicts: BTreeMap::new(), records: BTreeMap::new() }
    }

    pub(crate) fn apply(&mut self, id: LogId, bytes: &Bytes) {
        let decision = self.verdict.decide(id, &decode_entry(bytes).unwrap());
        self.verdicts.insert(id.index.0, decision.verdict);
        for record in decision.accepted {
            let partition = record.record.partition;
            if record.record.change == Change::Destroy {
                self.records.remove(&partition);
                continue;
            }
            let records = self.records.entry(partition).or_default();
            assert_eq!(record.index.0, records.len() as u64 + 1, "LOG-2");
            records.push(record);
        }
    }

    /// A machine that has applied all records of a partition but those that are skipped.
    pub(crate) fn machine(&self, partition: PartitionId) -> Box<dyn PartitionStateMachine> {
        let verdict = self.verdict.partition(partition).unwrap();
        let mut machine: Box<dyn PartitionStateMachine> = match verdict.machine {
            MachineKind::Log => Box::new(LogMachine),
            MachineKind::Kv | MachineKind::Custom(_) => Box::new(KvMachine::default()),
        };
        for record in &self.records[&partition] {
            if verdict.skipped.contains(&record.index) {
                continue;
            }
            match machine.apply(record) {
                Applying::Done(outcome) => outcome.unwrap(),
                Applying::Later(_) => unreachable!("the built-in machines never wait"),
            }
        }
        machine
    }
}
