//! The kv machine of a node: rows that a record only points to are read from the store.

use bytes::Bytes;
use laminar_log::entry::{BlockPointer, Change, Payload};
use laminar_log::machine::{Applying, KvMachine, MachineError, PartitionStateMachine};
use laminar_log::verdict::AcceptedRecord;
use laminar_store::{BlockStore, StoreError};

use crate::error::with_causes;

/// A [`KvMachine`] that is given the rows, wherever they are. Blocks never change, so every replica finds the same (APPLY-2).
pub(crate) struct StagedKv {
    pub(crate) machine: KvMachine,
    /// None only before the node is open.
    pub(crate) store: Option<BlockStore>,
}

impl PartitionStateMachine for StagedKv {
    fn apply<'a>(&'a mut self, record: &'a AcceptedRecord) -> Applying<'a> {
        let Change::Append(append) = &record.record.change else {
            return self.machine.apply(record);
        };
        let Payload::Pointer(pointer) = &append.payload else {
            return self.machine.apply(record);
        };
        let Some(store) = self.store.clone() else {
            let reason = format!("block {}: the store is not open yet", pointer.path);
            return Applying::Done(Err(MachineError { reason }));
        };
        Applying::Later(Box::pin(async move {
            let read = read(&store, pointer).await;
            let rows = read.map_err(|error| MachineError { reason: with_causes(&error) })?;
            let mut given = record.clone();
            if let Change::Append(append) = &mut given.record.change {
                append.payload = Payload::Inline(rows);
            }
            match self.machine.apply(&given) {
                Applying::Done(outcome) => outcome,
                Applying::Later(outcome) => outcome.await,
            }
        }))
    }

    fn is_immediate(&self) -> bool {
        self.machine.is_immediate()
    }

    fn is_stateless(&self) -> bool {
        self.machine.is_stateless()
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.machine.snapshot()
    }

    fn restore(&mut self, state: &[Bytes]) -> Result<(), MachineError> {
        self.machine.restore(state)
    }

    fn state_hash(&self) -> u64 {
        self.machine.state_hash()
    }

    fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.machine.get(key)
    }

    fn scan(&self) -> Vec<(Bytes, Bytes)> {
        self.machine.scan()
    }

    fn keeps_rows(&self) -> bool {
        self.machine.keeps_rows()
    }

    fn must_agree(&self) -> bool {
        self.machine.must_agree()
    }
}

/// The rows that a record points to.
pub(crate) async fn read(store: &BlockStore, pointer: &BlockPointer) -> Result<Bytes, StoreError> {
    let end = pointer.begin.saturating_add(pointer.length);
    store.read(&pointer.path, pointer.begin..end, pointer.checksum).await
}

#[cfg(test)]
mod tests {
    use laminar_core::ids::{Epoch, NodeId, PartitionId};
    use laminar_log::entry::{Append, BlockId, PartitionRecord};
    use laminar_log::machine::{KvOperation, encode_operations};
    use laminar_log::{LogId, PartitionLogIndex};
    use laminar_store::{checksum, new_block_id};

    use super::*;

    async fn apply(machine: &mut StagedKv, pointer: BlockPointer) -> Result<(), MachineError> {
        let append = Append { rows: 1, create: None, payload: Payload::Pointer(Box::new(pointer)) };
        let record = AcceptedRecord {
            index: PartitionLogIndex(1),
            first_offset: 0,
            log_id: LogId::new(1, 1),
            time_ms: 1,
            record: PartitionRecord {
                partition: PartitionId(1),
                owner: NodeId(1),
                epoch: Epoch::new(1).unwrap(),
                change: Change::Append(append),
            },
        };
        match machine.apply(&record) {
            Applying::Done(outcome) => outcome,
            Applying::Later(outcome) => outcome.await,
        }
    }

    #[tokio::test]
    async fn staged_keys_are_applied_and_a_store_that_fails_leaves_the_state() {
        let store = BlockStore::in_memory().await.unwrap();
        let operation = KvOperation { key: Bytes::from_static(b"a"), value: Some(Bytes::from_static(b"1")) };
        let rows = encode_operations(&[operation]);
        let id = new_block_id(7).unwrap();
        let pointer = BlockPointer {
            block: BlockId(id.0),
            begin: 0,
            length: rows.len() as u64,
            checksum: checksum(&rows),
            path: id.path(),
        };
        let mut machine = StagedKv { machine: KvMachine::default(), store: Some(store.clone()) };
        let empty = machine.state_hash();
        let error = apply(&mut machine, pointer.clone()).await.unwrap_err();
        assert!(error.reason.contains(&pointer.path), "{error}");
        assert_eq!(machine.state_hash(), empty);
        store.stage(id, rows).await.unwrap();
        apply(&mut machine, pointer.clone()).await.unwrap();
        assert_eq!(machine.get(b"a"), Some(Bytes::from_static(b"1")));
        let changed = BlockPointer { checksum: 1, ..pointer };
        assert!(apply(&mut machine, changed).await.is_err());
    }
}
