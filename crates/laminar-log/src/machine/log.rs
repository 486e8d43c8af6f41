//! The machine of a stream whose records are all there is to know.

use bytes::Bytes;

use super::{Applying, MachineError, PartitionStateMachine};
use crate::verdict::AcceptedRecord;

/// Keeps nothing: the partition's log has the records, and the verdict state has the indices.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LogMachine;

impl PartitionStateMachine for LogMachine {
    fn apply<'a>(&'a mut self, _record: &'a AcceptedRecord) -> Applying<'a> {
        Applying::Done(Ok(()))
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn is_stateless(&self) -> bool {
        true
    }

    fn snapshot(&self) -> Vec<Bytes> {
        Vec::new()
    }

    fn restore(&mut self, state: &[Bytes]) -> Result<(), MachineError> {
        if state.iter().all(Bytes::is_empty) {
            return Ok(());
        }
        Err(MachineError { reason: "a log machine has no state, and this snapshot has".to_owned() })
    }

    fn state_hash(&self) -> u64 {
        0
    }
}
