//! The state machine of a partition: what its records mean.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use thiserror::Error;

use crate::verdict::AcceptedRecord;

mod kv;
mod log;

pub use kv::{KvMachine, KvOperation, decode_operations, encode_operations};
pub use log::LogMachine;

/// A future that can be sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An apply: done, or to be awaited.
pub enum Applying<'a> {
    /// Done, one way or the other.
    Done(Result<(), MachineError>),
    /// Done when this is. Dropped halfway, it must leave the state as it was or be able to run again.
    Later(BoxFuture<'a, Result<(), MachineError>>),
}

/// Why a machine did not apply a record. The record is tried again, and then its partition pauses.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct MachineError {
    /// What is wrong.
    pub reason: String,
}

/// What a partition's records do. One record is applied at a time (APPLY-1), in the order of the partition's log.
///
/// Two machines of a kind that applied the same records must be equal, byte for byte (APPLY-2): no clock, no chance,
/// no unordered iteration. A failed apply must leave the state as it was.
pub trait PartitionStateMachine: Send {
    /// Applies a record.
    fn apply<'a>(&'a mut self, record: &'a AcceptedRecord) -> Applying<'a>;

    /// Whether `apply` is always done at once and never waits, so that it needs no task of its own.
    fn is_immediate(&self) -> bool {
        false
    }

    /// Whether the records are all there is: then its state is the same behind every record.
    fn is_stateless(&self) -> bool {
        false
    }

    /// Its state, in pieces: equal states give equal bytes.
    fn snapshot(&self) -> Vec<Bytes>;

    /// Takes over a state.
    ///
    /// # Errors
    ///
    /// The bytes are not of a snapshot; the machine is as it was.
    fn restore(&mut self, state: &[Bytes]) -> Result<(), MachineError>;

    /// A hash of the state; equal states give equal hashes.
    fn state_hash(&self) -> u64;

    /// The last value of a key, if the machine keeps values.
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        let _ = key;
        None
    }

    /// All keys with their values in order, if the machine keeps values.
    fn scan(&self) -> Vec<(Bytes, Bytes)> {
        Vec::new()
    }

    /// Whether the records of the partition stay below a snapshot of this machine, until rows are trimmed: yes where
    /// somebody reads them.
    fn keeps_rows(&self) -> bool {
        true
    }

    /// Whether a record that was applied here, and that all replicas are told to leave out, makes this machine another than
    /// theirs, so that it has to come from a snapshot.
    fn must_agree(&self) -> bool {
        !self.keeps_rows()
    }
}

impl fmt::Debug for dyn PartitionStateMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionStateMachine").finish_non_exhaustive()
    }
}
