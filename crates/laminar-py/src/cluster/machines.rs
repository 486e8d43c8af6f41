//! State machines that an application brings: Python objects with `apply`, `snapshot` and `restore`.
//!
//! The node calls them from its own threads; each call takes the GIL for as long as it lasts. `apply` runs where waiting
//! is allowed, so a slow machine holds up its own partition and nothing else.
//!
//! ```text
//!  state of a machine, in pieces of 1 MiB
//!   0          1
//!  +----------+---------------------------------+
//!  | kind u8  | what snapshot() returned        |
//!  +----------+---------------------------------+
//!   kind   0: a state   1: there is none, and the text says why
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use bytes::{BufMut, Bytes, BytesMut};
use laminar_core::ids::PartitionId;
use laminar_log::entry::{Change, Payload};
use laminar_log::machine::{Applying, MachineError, PartitionStateMachine};
use laminar_log::verdict::AcceptedRecord;
use laminar_node::ApplicationMachines;
use laminar_rows::StreamSchema;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::PyRecordBatch;
use tokio::task::JoinHandle;
use xxhash_rust::xxh3::xxh3_64;

const PIECE_BYTES: usize = 1 << 20;
const KIND_STATE: u8 = 0;
const KIND_NONE: u8 = 1;
/// Rows with their columns begin after this many bytes of a payload (laminar-rows, kind 3).
const ROWS_HEADER_BYTES: usize = 8;

/// The classes of an application's machines, by the names that streams give.
pub(crate) struct PythonMachines {
    pub(crate) classes: BTreeMap<String, Py<PyAny>>,
}

impl ApplicationMachines for PythonMachines {
    fn make(&self, name: &str, _partition: PartitionId) -> Option<Box<dyn PartitionStateMachine>> {
        let class = self.classes.get(name)?;
        let object = with_python(|py| class.call0(py).map_err(|error| said(py, name, &error)));
        let machine = PythonMachine {
            name: Arc::from(name),
            object: object.map(Arc::new),
            applying: None,
            broken: Mutex::new(None),
            state: Mutex::new(None),
        };
        Some(Box::new(machine))
    }

    fn names(&self) -> Vec<String> {
        self.classes.keys().cloned().collect()
    }
}

/// A machine of one partition.
struct PythonMachine {
    name: Arc<str>,
    /// The object, or why there is none.
    object: Result<Arc<Py<PyAny>>, MachineError>,
    /// A call that was begun, and the record it is for: whoever waited for it may have gone.
    applying: Option<(u64, JoinHandle<Result<(), MachineError>>)>,
    /// Why no state can be had of it. Nothing more is applied then, or what is applied could be lost.
    broken: Mutex<Option<MachineError>>,
    /// The state since the last record, once it was asked for.
    state: Mutex<Option<Bytes>>,
}

impl PartitionStateMachine for PythonMachine {
    fn apply<'a>(&'a mut self, record: &'a AcceptedRecord) -> Applying<'a> {
        match &record.record.change {
            Change::Append(append) => match &append.payload {
                Payload::Inline(payload) => {
                    Applying::Later(Box::pin(self.append(record.index.0, payload.clone())))
                }
                Payload::Pointer(_) => {
                    let reason = "the rows are in a staged block, and a machine takes rows in the entry only"
                        .to_owned();
                    Applying::Done(Err(MachineError { reason }))
                }
            },
            // A trim drops rows, and the state is not rows.
            Change::Fence(_)
            | Change::Create(_)
            | Change::Destroy
            | Change::Trim(_)
            | Change::Skip(_)
            | Change::ExpectEnd(_) => Applying::Done(Ok(())),
        }
    }

    fn snapshot(&self) -> Vec<Bytes> {
        let mut state = self.state();
        let mut pieces = Vec::new();
        while state.len() > PIECE_BYTES {
            pieces.push(state.split_to(PIECE_BYTES));
        }
        pieces.push(state);
        pieces
    }

    fn restore(&mut self, state: &[Bytes]) -> Result<(), MachineError> {
        let joined = state.concat();
        let (kind, state) = joined.split_first().ok_or_else(|| error("its state has no bytes".to_owned()))?;
        if *kind != KIND_STATE {
            return Err(error(format!("there is no state of it: {}", String::from_utf8_lossy(state))));
        }
        let object = self.object.as_ref().map_err(Clone::clone)?;
        with_python(|py| {
            let restored = object.call_method1(py, "restore", (PyBytes::new(py, state),));
            restored.map(drop).map_err(|error| said(py, &self.name, &error))
        })?;
        *lock(&self.state) = None;
        Ok(())
    }

    fn state_hash(&self) -> u64 {
        xxh3_64(&self.state())
    }
}

impl PythonMachine {
    async fn append(&mut self, index: u64, payload: Bytes) -> Result<(), MachineError> {
        if let Some(broken) = lock(&self.broken).clone() {
            return Err(broken);
        }
        *lock(&self.state) = None;
        let begun = match &self.applying {
            Some((of, _)) if *of == index => self.applying.take(),
            Some(_) => {
                // Its record was given up; the object must be let go of before it gets another.
                if let Some((_, call)) = self.applying.take() {
                    drop(call.await);
                }
                None
            }
            None => None,
        };
        let call = match begun {
            Some((_, call)) => call,
            None => {
                let object = Arc::clone(self.object.as_ref().map_err(Clone::clone)?);
                let name = Arc::clone(&self.name);
                tokio::task::spawn_blocking(move || apply(&object, &name, &payload))
            }
        };
        let (_, call) = self.applying.insert((index, call));
        let done = call.await;
        self.applying = None;
        done.unwrap_or_else(|ended| Err(error(format!("its apply ended unexpectedly: {ended}"))))
    }

    /// The state in one piece.
    fn state(&self) -> Bytes {
        let mut kept = lock(&self.state);
        if let Some(state) = &*kept {
            return state.clone();
        }
        let taken =
            self.object.as_ref().map_err(Clone::clone).and_then(|object| snapshot(object, &self.name));
        let (kind, bytes) = match &taken {
            Ok(bytes) => (KIND_STATE, &bytes[..]),
            Err(error) => {
                *lock(&self.broken) = Some(error.clone());
                (KIND_NONE, error.reason.as_bytes())
            }
        };
        let mut state = BytesMut::with_capacity(1 + bytes.len());
        state.put_u8(kind);
        state.put_slice(bytes);
        kept.insert(state.freeze()).clone()
    }
}

fn apply(object: &Py<PyAny>, name: &str, payload: &Bytes) -> Result<(), MachineError> {
    let rows = rows(payload).map_err(|reason| error(format!("its rows cannot be read: {reason}")))?;
    with_python(|py| {
        let batch = PyRecordBatch::new(rows).into_pyarrow(py);
        let applied = batch.and_then(|batch| object.call_method1(py, "apply", (batch,)));
        applied.map(drop).map_err(|error| said(py, name, &error))
    })
}

fn rows(payload: &Bytes) -> Result<RecordBatch, String> {
    let schema = payload.get(ROWS_HEADER_BYTES..).ok_or("they are cut short")?;
    let schema = StreamSchema::from_bytes(schema, &[]).map_err(|error| error.to_string())?;
    laminar_rows::decode(payload, &schema).map_err(|error| error.to_string())
}

fn snapshot(object: &Py<PyAny>, name: &str) -> Result<Vec<u8>, MachineError> {
    with_python(|py| {
        let state = object.call_method0(py, "snapshot").map_err(|error| said(py, name, &error))?;
        let state = state.bind(py);
        let bytes = state.cast::<PyBytes>().map_err(|_| {
            let found =
                state.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string());
            error(format!("machine {name}: snapshot() returned {found}; it must return bytes"))
        })?;
        Ok(bytes.as_bytes().to_vec())
    })
}

/// Runs work with the GIL, unless the interpreter is ending.
fn with_python<T>(work: impl FnOnce(Python<'_>) -> Result<T, MachineError>) -> Result<T, MachineError> {
    Python::try_attach(work).unwrap_or_else(|| Err(error("the interpreter is ending".to_owned())))
}

/// What a Python exception says.
fn said(py: Python<'_>, name: &str, raised: &PyErr) -> MachineError {
    let class = raised.get_type(py).name().map_or_else(|_| "Exception".to_owned(), |name| name.to_string());
    let message = raised.value(py).str().map_or_else(|_| String::new(), |text| text.to_string());
    error(format!("machine {name}: {class}: {message}"))
}

fn error(reason: String) -> MachineError {
    MachineError { reason }
}

/// Nothing that is held under these locks can be left half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
