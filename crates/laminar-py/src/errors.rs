//! Rust errors become the exceptions of `laminar.errors`, with their typed fields.

use laminar_core::error::{AssignmentError, EpochError, ErrorKind, FormatError, InvalidError};
use laminar_core::ids::PartitionId;
use laminar_log::inspect::InspectError;
use laminar_rpc::{Failure, Field as FailureField};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

/// The exception for an error of the core.
pub(crate) fn to_py(error: impl Into<Raised>) -> PyErr {
    let Raised { class, message, fields } = error.into();
    Python::attach(|py| build(py, class, &message, &fields).unwrap_or_else(|error| error))
}

/// An `InvalidError` with this message.
pub(crate) fn invalid(message: String) -> PyErr {
    to_py(Raised { class: "InvalidError", message, fields: Vec::new() })
}

/// Class, message and fields of an exception.
pub(crate) struct Raised {
    class: &'static str,
    message: String,
    fields: Vec<(&'static str, Field)>,
}

impl Raised {
    /// The error of a guard of a stream, whose partition is named as the stream counts it.
    pub(crate) fn of_stream(error: EpochError, stream: &str, partition: u32) -> Self {
        let id = error.partition();
        let mut raised = Raised::from(named(error, PartitionId(partition)));
        raised.message = format!("{stream}, {}", raised.message);
        raised.fields.push(("stream", stream.to_owned().into()));
        raised.fields.push(("partition_id", id.0.into()));
        raised
    }
}

/// The same error of a partition by another name.
fn named(mut error: EpochError, name: PartitionId) -> EpochError {
    match &mut error {
        EpochError::StaleEpoch { partition, .. }
        | EpochError::UnknownPartition { partition }
        | EpochError::NotOwned { partition, .. }
        | EpochError::ConditionalPutFailed { partition, .. } => *partition = name,
    }
    error
}

/// The value of a field.
enum Field {
    Number(u64),
    Large(u128),
    Text(String),
}

impl From<u64> for Field {
    fn from(number: u64) -> Self {
        Field::Number(number)
    }
}

impl From<u32> for Field {
    fn from(number: u32) -> Self {
        Field::Number(number.into())
    }
}

impl From<u128> for Field {
    fn from(number: u128) -> Self {
        Field::Large(number)
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Field::Text(text)
    }
}

/// The exception for an error of a node or client.
pub(crate) fn of_failure(failure: &Failure) -> PyErr {
    Python::attach(|py| build_of_failure(py, failure).unwrap_or_else(|error| error))
}

fn build_of_failure(py: Python<'_>, failure: &Failure) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    for (name, value) in &failure.fields {
        match value {
            FailureField::Text(text) => fields.set_item(name, text)?,
            FailureField::Integer(number) => fields.set_item(name, number)?,
            FailureField::Unsigned(number) => fields.set_item(name, number)?,
            FailureField::Flag(flag) => fields.set_item(name, flag)?,
            FailureField::Real(real) => fields.set_item(name, real)?,
        }
    }
    let arguments = (failure.class.name(), &failure.message, failure.outcome_unknown, fields);
    let error = errors(py)?.getattr("_from_node")?.call1(arguments)?;
    Ok(PyErr::from_value(error))
}

fn errors(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let errors = ERRORS.get_or_try_init(py, || py.import("laminar.errors").map(Bound::unbind))?;
    Ok(errors.bind(py))
}

fn build(py: Python<'_>, class: &str, message: &str, fields: &[(&str, Field)]) -> PyResult<PyErr> {
    let by_name = PyDict::new(py);
    for (name, value) in fields {
        match value {
            Field::Number(number) => by_name.set_item(name, number)?,
            Field::Large(number) => by_name.set_item(name, number)?,
            Field::Text(text) => by_name.set_item(name, text)?,
        }
    }
    let error = errors(py)?.getattr(class)?.call((message,), Some(&by_name))?;
    Ok(PyErr::from_value(error))
}

/// The exception object itself, for results that carry errors as values.
pub(crate) fn to_object(py: Python<'_>, error: impl Into<Raised>) -> Py<PyAny> {
    to_py(error).into_value(py).into_any()
}

impl From<InvalidError> for Raised {
    fn from(error: InvalidError) -> Self {
        Raised { class: "InvalidError", message: error.to_string(), fields: Vec::new() }
    }
}

impl From<EpochError> for Raised {
    fn from(error: EpochError) -> Self {
        let message = error.to_string();
        let mut fields = vec![("partition", error.partition().0.into())];
        let class = match error {
            EpochError::StaleEpoch { node, local_epoch, current_epoch, current_owner, .. } => {
                fields.push(("epoch", local_epoch.get().into()));
                fields.push(("current_epoch", current_epoch.get().into()));
                fields.push(("node", node.0.into()));
                fields.extend(current_owner.map(|owner| ("owner", owner.0.into())));
                "StaleEpochError"
            }
            EpochError::UnknownPartition { .. } => "UnknownPartitionError",
            EpochError::NotOwned { node, owner, .. } => {
                fields.push(("node", node.0.into()));
                fields.extend(owner.map(|owner| ("owner", owner.0.into())));
                "NotOwnedError"
            }
            EpochError::ConditionalPutFailed { expected_epoch, actual_epoch, .. } => {
                fields.push(("expected_epoch", expected_epoch.get().into()));
                fields.push(("actual_epoch", actual_epoch.get().into()));
                "ConditionalPutFailedError"
            }
        };
        Raised { class, message, fields }
    }
}

impl From<AssignmentError> for Raised {
    fn from(error: AssignmentError) -> Self {
        let message = error.to_string();
        let (class, fields) = match error {
            AssignmentError::Invalid(error) => return error.into(),
            AssignmentError::NoActiveNodes { nodes } => ("NoActiveNodesError", vec![("nodes", nodes.into())]),
            AssignmentError::InsufficientCapacity { node, partition, needed_bytes, available_bytes } => {
                let mut fields =
                    vec![("needed_bytes", needed_bytes.into()), ("available_bytes", available_bytes.into())];
                fields.extend(node.map(|node| ("node", node.0.into())));
                fields.extend(partition.map(|partition| ("partition", partition.0.into())));
                ("InsufficientCapacityError", fields)
            }
            AssignmentError::ConstraintViolation { constraint, .. } => {
                ("ConstraintViolationError", vec![("constraint", constraint.to_string().into())])
            }
            AssignmentError::MaxPartitionsExceeded { node, partitions, max, .. } => {
                let mut fields = vec![("partitions", partitions.into()), ("limit", max.into())];
                fields.extend(node.map(|node| ("node", node.0.into())));
                ("MaxPartitionsExceededError", fields)
            }
            AssignmentError::AffinityConflict { hint, .. } => {
                ("AffinityConflictError", vec![("hint", hint.into())])
            }
            AssignmentError::EmptyPartitionList => ("EmptyPartitionListError", Vec::new()),
        };
        Raised { class, message, fields }
    }
}

impl From<InspectError> for Raised {
    fn from(error: InspectError) -> Self {
        let class = match error.kind() {
            ErrorKind::Invalid => "InvalidError",
            ErrorKind::Corrupt => "CorruptionError",
            ErrorKind::Unavailable | ErrorKind::Overloaded => "UnavailableError",
            _ => "InternalError",
        };
        Raised { class, message: error.line(), fields: Vec::new() }
    }
}

impl From<FormatError> for Raised {
    fn from(error: FormatError) -> Self {
        let class = match error.kind() {
            ErrorKind::Invalid => "InvalidError",
            _ => "CorruptionError",
        };
        Raised { class, message: error.to_string(), fields: Vec::new() }
    }
}
