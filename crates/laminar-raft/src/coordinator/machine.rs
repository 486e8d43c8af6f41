//! The metadata as the machine of the group's one partition.
//!
//! A machine is made empty, restored from a snapshot or not, and then applies entries. The one that is furthest is what
//! everybody reads; one that was opened again after a fault applies for itself until it has come that far, so that nobody
//! sees the metadata go back.

use std::sync::Arc;

use bytes::Bytes;
use laminar_core::error::FormatError;
use laminar_core::ids::PartitionId;
use laminar_core::metadata::{DeltaMetadata, MetadataLogEntry};
use laminar_log::MachineFactory;
use laminar_log::entry::{Append, Change, MachineKind, Payload};
use laminar_log::machine::{Applying, MachineError, PartitionStateMachine};
use laminar_log::verdict::AcceptedRecord;
use xxhash_rust::xxh3::xxh3_64;

use super::published::Published;

/// The partition of the metadata group.
pub(super) const PARTITION: PartitionId = PartitionId(0);
/// The kind of its machine.
pub(super) const KIND: MachineKind = MachineKind::Custom(200);
/// A snapshot is handed over in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// Makes the machine of the metadata group.
pub(super) struct MetadataMachines(pub(super) Arc<Published>);

impl MachineFactory for MetadataMachines {
    fn make(&self, _: PartitionId, _: MachineKind) -> Box<dyn PartitionStateMachine> {
        Box::new(MetadataMachine { published: Arc::clone(&self.0), behind: Some(Box::default()) })
    }
}

struct MetadataMachine {
    published: Arc<Published>,
    /// Its state, until it is the one that is published.
    behind: Option<Box<DeltaMetadata>>,
}

impl MetadataMachine {
    /// Lets everybody read this machine's state, if it is not behind what they read now.
    fn publish_if_level(&mut self) {
        if let Some(state) = self.behind.take_if(|state| state.last_applied_log() >= self.published.applied())
        {
            self.published.publish(*state);
        }
    }

    fn bytes(&self) -> Bytes {
        match &self.behind {
            Some(state) => state.snapshot(),
            None => self.published.read(DeltaMetadata::snapshot),
        }
        .into()
    }
}

impl PartitionStateMachine for MetadataMachine {
    fn apply<'a>(&'a mut self, record: &'a AcceptedRecord) -> Applying<'a> {
        let Change::Append(Append { payload: Payload::Inline(bytes), .. }) = &record.record.change else {
            return Applying::Done(Ok(()));
        };
        let index = record.log_id.index;
        self.publish_if_level();
        match (MetadataLogEntry::decode(bytes), &mut self.behind) {
            // Replicas of a newer release apply it: this one must not pass it.
            (Err(error @ FormatError::VersionTooNew { .. }), _) => {
                let reason = format!("metadata entry {index}: {error}");
                return Applying::Done(Err(MachineError { reason }));
            }
            (Err(error), None) => self.published.unreadable(index, error),
            (Err(_), Some(_)) => {}
            (Ok(entry), None) => self.published.apply(index, &entry),
            (Ok(entry), Some(state)) => drop(state.apply_at(index, &entry)),
        }
        Applying::Done(Ok(()))
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn snapshot(&self) -> Vec<Bytes> {
        let bytes = self.bytes();
        (0..bytes.len())
            .step_by(PIECE_BYTES)
            .map(|begin| bytes.slice(begin..bytes.len().min(begin + PIECE_BYTES)))
            .collect()
    }

    fn restore(&mut self, state: &[Bytes]) -> Result<(), MachineError> {
        let restored = DeltaMetadata::restore(&state.concat());
        let restored = restored.map_err(|error| MachineError { reason: error.to_string() })?;
        self.behind = Some(Box::new(restored));
        self.publish_if_level();
        Ok(())
    }

    fn state_hash(&self) -> u64 {
        xxh3_64(&self.bytes())
    }

    /// The state has everything; the entries behind a snapshot are not needed.
    fn keeps_rows(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use laminar_core::ids::{DataGroupId, Epoch, LogIndex, NodeId, RequestId};
    use laminar_core::metadata::{MetadataChange, Retention, StreamLimits, StreamMachine};
    use laminar_log::entry::PartitionRecord;
    use laminar_log::{LogId, PartitionLogIndex};

    use super::*;
    use crate::coordinator::watch::OwnershipWatch;

    /// The entry at `index` creates the partition of the same number.
    fn record(index: u64) -> AcceptedRecord {
        let change = MetadataChange::AssignPartition {
            partition_id: PartitionId(index as u32),
            node_id: NodeId(1),
            epoch: Epoch::FIRST,
            expected: None,
        };
        record_of(index, change)
    }

    fn record_of(index: u64, change: MetadataChange) -> AcceptedRecord {
        let bytes = MetadataLogEntry::one(0, RequestId::NONE, change).encode();
        let append = Append { rows: 1, create: None, payload: Payload::Inline(bytes.into()) };
        AcceptedRecord {
            index: PartitionLogIndex(index),
            first_offset: index - 1,
            log_id: LogId { term: 1, index: LogIndex(index) },
            time_ms: 0,
            record: PartitionRecord {
                partition: PARTITION,
                owner: NodeId::UNASSIGNED,
                epoch: Epoch::FIRST,
                change: Change::Append(append),
            },
        }
    }

    fn apply(machine: &mut dyn PartitionStateMachine, index: u64) {
        assert!(matches!(machine.apply(&record(index)), Applying::Done(Ok(()))));
    }

    fn partitions(published: &Published) -> usize {
        published.read(|metadata| metadata.partition_map().len())
    }

    #[test]
    fn a_machine_that_begins_anew_is_not_seen_until_it_is_level() {
        let published = Arc::new(Published::new(16, 16));
        let machines = MetadataMachines(Arc::clone(&published));
        let mut first = machines.make(PARTITION, KIND);
        (1..=5).for_each(|index| apply(first.as_mut(), index));
        let early = first.snapshot();
        apply(first.as_mut(), 6);
        let mut watch = OwnershipWatch::new(Arc::clone(&published), LogIndex(6));

        // From nothing, and from a snapshot that is older than what is seen.
        for from in [None, Some(&early)] {
            let mut again = machines.make(PARTITION, KIND);
            let begin = match from {
                Some(state) => again.restore(state).map(|()| 6).unwrap(),
                None => 1,
            };
            for index in begin..=6 {
                assert_eq!((partitions(&published), published.applied()), (6, LogIndex(6)));
                apply(again.as_mut(), index);
            }
            assert_eq!(again.snapshot(), first.snapshot(), "APPLY-2");
            assert_eq!(again.state_hash(), first.state_hash());
        }
        let mut last = machines.make(PARTITION, KIND);
        last.restore(&first.snapshot()).unwrap();
        apply(last.as_mut(), 7);
        assert_eq!((partitions(&published), published.applied()), (7, LogIndex(7)));
        let event = futures_util::FutureExt::now_or_never(watch.next()).unwrap().unwrap();
        assert_eq!((event.index, event.whole, event.changes.len()), (LogIndex(7), false, 1));
    }

    #[test]
    fn a_machine_that_is_only_made_disturbs_nobody() {
        let published = Arc::new(Published::new(16, 16));
        let machines = MetadataMachines(Arc::clone(&published));
        let mut machine = machines.make(PARTITION, KIND);
        apply(machine.as_mut(), 1);
        let empty = machines.make(PARTITION, KIND);
        assert_eq!(empty.snapshot().concat(), DeltaMetadata::new().snapshot());
        assert_ne!(empty.state_hash(), machine.state_hash());
        assert_eq!(partitions(&published), 1);
        let damaged = machines.make(PARTITION, KIND).restore(&[Bytes::from_static(b"LAMIMETA")]);
        assert!(damaged.is_err());
        assert_eq!(partitions(&published), 1);
    }

    #[test]
    fn a_large_state_is_handed_over_in_pieces() {
        let machines = MetadataMachines(Arc::new(Published::new(16, 16)));
        let mut machine = machines.make(PARTITION, KIND);
        let create = MetadataChange::CreateStream {
            path: "/a".to_owned(),
            partitions: 100_000,
            schema: Vec::new(),
            key: Vec::new(),
            machine: StreamMachine::default(),
            data_group: DataGroupId(0),
            retention: Retention::default(),
            limits: StreamLimits::default(),
        };
        assert!(matches!(machine.apply(&record_of(1, create)), Applying::Done(Ok(()))));
        let pieces = machine.snapshot();
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        let mut restored = MetadataMachines(Arc::new(Published::new(16, 16))).make(PARTITION, KIND);
        restored.restore(&pieces).unwrap();
        assert_eq!(restored.state_hash(), machine.state_hash());
        assert_eq!(restored.snapshot(), pieces);
    }
}
