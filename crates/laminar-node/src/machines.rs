//! The state machines of partitions: the built-in ones, and those that an application brings.

use std::fmt;
use std::sync::{Arc, OnceLock};

use laminar_core::ids::PartitionId;
use laminar_core::metadata::StreamMachine;
use laminar_log::MachineFactory;
use laminar_log::entry::MachineKind;
use laminar_log::machine::{Applying, KvMachine, LogMachine, MachineError, PartitionStateMachine};
use laminar_log::verdict::AcceptedRecord;
use laminar_raft::{CrewRuntime, RaftCoordinator};
use laminar_store::BlockStore;

use crate::staged_kv::StagedKv;

/// The kind of all machines that applications bring; the stream tells which one it is.
pub(crate) const APPLICATION: MachineKind = MachineKind::Custom(128);

/// Machines that an application brings, by the names that streams give.
pub trait ApplicationMachines: Send + Sync {
    /// A new machine of this name, or `None` if this process does not have it.
    fn make(&self, name: &str, partition: PartitionId) -> Option<Box<dyn PartitionStateMachine>>;

    /// The names of those that this process has.
    fn names(&self) -> Vec<String>;
}

/// No machines but the built-in ones.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoMachines;

impl ApplicationMachines for NoMachines {
    fn make(&self, _name: &str, _partition: PartitionId) -> Option<Box<dyn PartitionStateMachine>> {
        None
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The kind of machine that the data group runs for a stream.
pub(crate) fn machine_kind(machine: &StreamMachine) -> MachineKind {
    match machine {
        StreamMachine::Log => MachineKind::Log,
        StreamMachine::Kv => MachineKind::Kv,
        StreamMachine::Custom(_) => APPLICATION,
    }
}

/// Makes the machines of the data group's partitions.
pub(crate) struct NodeMachines {
    application: Arc<dyn ApplicationMachines>,
    /// Given before the data group is opened.
    parts: OnceLock<Parts>,
}

struct Parts {
    /// Says which stream a partition belongs to.
    metadata: RaftCoordinator<CrewRuntime>,
    /// Has the rows that records only point to.
    store: BlockStore,
}

impl NodeMachines {
    pub(crate) fn new(application: Arc<dyn ApplicationMachines>) -> Self {
        Self { application, parts: OnceLock::new() }
    }

    /// The names of all machines that streams can have here, but for the built-in ones.
    pub(crate) fn names(&self) -> Vec<String> {
        self.application.names()
    }

    pub(crate) fn give(&self, metadata: RaftCoordinator<CrewRuntime>, store: BlockStore) {
        drop(self.parts.set(Parts { metadata, store }));
    }

    fn application_machine(&self, partition: PartitionId) -> Box<dyn PartitionStateMachine> {
        let name = self.parts.get().and_then(|parts| {
            parts
                .metadata
                .read_local(|metadata| metadata.stream_of(partition).map(|stream| stream.machine.to_string()))
        });
        let missing =
            |name: Option<String>| -> Box<dyn PartitionStateMachine> { Box::new(MissingMachine { name }) };
        match name {
            Some(name) => self.application.make(&name, partition).unwrap_or_else(|| missing(Some(name))),
            // Its stream was dropped, and the record that destroys it follows.
            None => missing(None),
        }
    }
}

impl fmt::Debug for NodeMachines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeMachines")
    }
}

impl MachineFactory for NodeMachines {
    fn make(&self, partition: PartitionId, kind: MachineKind) -> Box<dyn PartitionStateMachine> {
        match kind {
            MachineKind::Log => Box::new(LogMachine),
            MachineKind::Kv => {
                let store = self.parts.get().map(|parts| parts.store.clone());
                Box::new(StagedKv { machine: KvMachine::default(), store })
            }
            MachineKind::Custom(_) => self.application_machine(partition),
        }
    }
}

/// Stands for a machine that this process does not have: applies nothing, so its partition pauses and says why.
struct MissingMachine {
    name: Option<String>,
}

impl MissingMachine {
    fn error(&self) -> MachineError {
        let reason = match &self.name {
            Some(name) => format!(
                "the machine {name:?} is not known to the process that is the node; open the folder with machines={{{name:?}: ...}}"
            ),
            None => "the stream was dropped".to_owned(),
        };
        MachineError { reason }
    }
}

impl PartitionStateMachine for MissingMachine {
    fn apply<'a>(&'a mut self, _record: &'a AcceptedRecord) -> Applying<'a> {
        Applying::Done(Err(self.error()))
    }

    fn snapshot(&self) -> Vec<bytes::Bytes> {
        Vec::new()
    }

    fn restore(&mut self, _state: &[bytes::Bytes]) -> Result<(), MachineError> {
        Err(self.error())
    }

    fn state_hash(&self) -> u64 {
        0
    }
}
