//! What goes wrong below, as users see it.

use std::error::Error;

use laminar_core::error::ErrorKind;
use laminar_core::metadata::Rejection;
use laminar_log::dispatcher::AdmissionRefusal;
use laminar_log::{BarrierError, LogError};
use laminar_raft::{CoordinationError, NotServing, ProposeError, ReadIndexError, ReplicaError};
use laminar_rpc::{ErrorClass, Failure};

/// An error with everything that caused it, in one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        // Transparent errors say what their source says.
        if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}

/// The class that says what a kind means to the caller.
fn class(kind: ErrorKind) -> ErrorClass {
    match kind {
        ErrorKind::Stale | ErrorKind::Fenced => ErrorClass::StaleEpoch,
        ErrorKind::Overloaded => ErrorClass::Backpressure,
        ErrorKind::Unavailable => ErrorClass::Unavailable,
        ErrorKind::Invalid => ErrorClass::Invalid,
        ErrorKind::Corrupt => ErrorClass::Corruption,
        ErrorKind::Internal => ErrorClass::Internal,
    }
}

pub(crate) fn of_log(error: &LogError) -> Failure {
    Failure::new(class(error.kind()), with_causes(error))
}

pub(crate) fn of_not_serving(error: &NotServing) -> Failure {
    Failure::new(class(error.kind()), with_causes(error))
}

pub(crate) fn of_replica(error: &ReplicaError) -> Failure {
    Failure::new(class(error.kind()), with_causes(error))
}

pub(crate) fn of_propose(error: &ProposeError) -> Failure {
    match error {
        ProposeError::Overloaded(refusal) => of_admission(refusal),
        ProposeError::NotLeader { leader, address } => {
            let mut failure = Failure::new(ErrorClass::NotLeader, with_causes(error));
            if let Some(leader) = leader {
                failure = failure.with("leader_id", leader.0);
            }
            if let Some(address) = address {
                failure = failure.with("leader_address", address.as_str());
            }
            failure
        }
        ProposeError::NotServing(error) => of_not_serving(error),
        ProposeError::Unknown { .. } => Failure::unavailable(with_causes(error)).unknown(),
    }
}

pub(crate) fn of_admission(refusal: &AdmissionRefusal) -> Failure {
    let mut failure = Failure::new(class(refusal.kind()), with_causes(refusal));
    if failure.class != ErrorClass::Backpressure {
        return failure;
    }
    if let AdmissionRefusal::Overloaded { value, limit, .. } = refusal {
        failure = failure.with("value", *value).with("limit", *limit);
    }
    if let Some(partition) = refusal.partition() {
        failure = failure.with("partition_id", partition.0);
    }
    let wait = refusal.retry_after().unwrap_or_default();
    failure.with("retry_after_ms", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

pub(crate) fn of_barrier(error: &BarrierError) -> Failure {
    match error {
        BarrierError::TooManyWaiters(refusal) => of_admission(refusal),
        BarrierError::UnknownPartition(partition) => {
            Failure::new(ErrorClass::UnknownPartition, error.to_string()).with("partition_id", partition.0)
        }
        BarrierError::TimedOut { .. } => Failure::unavailable(error.to_string()),
    }
}

pub(crate) fn of_coordination(error: &CoordinationError) -> Failure {
    let text = with_causes(error);
    match error {
        CoordinationError::NotLeader { leader, address } => {
            let mut failure = Failure::new(ErrorClass::NotLeader, text);
            if let Some(leader) = leader {
                failure = failure.with("leader_id", leader.0);
            }
            if let Some(address) = address {
                failure = failure.with("leader_address", address.as_str());
            }
            failure
        }
        CoordinationError::NotInitialized { .. } => Failure::new(ErrorClass::NotInitialized, text),
        CoordinationError::Unknown { .. } => Failure::new(ErrorClass::Raft, text).unknown(),
        CoordinationError::Snapshot { .. } => Failure::new(ErrorClass::Snapshot, text),
        CoordinationError::Network { .. } => Failure::new(ErrorClass::Network, text),
        CoordinationError::Overloaded(refusal) => of_admission(refusal),
        other => Failure::new(class(other.kind()), text),
    }
}

/// A change that the metadata refused.
pub(crate) fn of_rejection(rejection: &Rejection) -> Failure {
    let text = with_causes(rejection);
    match rejection {
        Rejection::InBatch { reason, .. } => of_rejection(reason),
        Rejection::StaleEpoch { partition, expected, current } => {
            let mut failure = Failure::new(ErrorClass::StaleEpoch, text)
                .with("partition_id", partition.0)
                .with("current_epoch", current.epoch.get())
                .with("owner", current.node_id.0);
            if let Some(expected) = expected {
                failure = failure.with("epoch", expected.epoch.get());
            }
            failure
        }
        Rejection::NotOwner { partition, expected, current } => Failure::new(ErrorClass::NotOwned, text)
            .with("partition_id", partition.0)
            .with("node", expected.node_id.0)
            .with("owner", current.node_id.0),
        Rejection::UnknownPartition { partition } => {
            Failure::new(ErrorClass::UnknownPartition, text).with("partition_id", partition.0)
        }
        _ => Failure::invalid(text),
    }
}

pub(crate) fn of_read_index(error: &ReadIndexError) -> Failure {
    match error {
        ReadIndexError::NotLeader { .. } => Failure::new(ErrorClass::NotLeader, with_causes(error)),
        other => Failure::new(class(other.kind()), with_causes(other)),
    }
}
