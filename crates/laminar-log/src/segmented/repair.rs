//! Brings a partition's own log up to date from the segmented log: after a fault, or when it could not take a record.

use std::sync::Arc;
use std::time::Duration;

use super::partition::{Partition, PartitionState};
use super::shared::Shared;
use crate::error::LogError;
use crate::log_id::PartitionLogIndex;

/// Records that are stored before others get the partition's lock.
const RECORDS_AT_ONCE: usize = 64;

/// Starts the repair, unless one is under way.
pub(crate) fn start(partition: &Arc<Partition>, shared: &Arc<Shared>) {
    let mut state = partition.state();
    if state.repairing || state.closed {
        return;
    }
    state.repairing = true;
    drop(state);
    let (partition, shared_for_task) = (Arc::clone(partition), Arc::clone(shared));
    shared.runtime.spawn(Box::pin(async move { run(partition, shared_for_task).await }));
}

async fn run(partition: Arc<Partition>, shared: Arc<Shared>) {
    let mut wait = shared.config.repair_backoff_min;
    loop {
        match step(&partition, &shared) {
            Ok(Step::Done) => return,
            Ok(Step::More) => {
                wait = shared.config.repair_backoff_min;
                // Others may run.
                shared.runtime.sleep(Duration::ZERO).await;
                continue;
            }
            Ok(Step::Busy) => {}
            Err(error) => partition.state().log_failed(partition.id, &shared, &error),
        }
        shared.runtime.sleep(wait).await;
        wait = (wait * 2).min(shared.config.repair_backoff_max);
    }
}

enum Step {
    /// The log has everything, or the partition is closed.
    Done,
    /// Some was stored, and there is more.
    More,
    /// The log takes nothing now.
    Busy,
}

fn step(partition: &Partition, shared: &Shared) -> Result<Step, LogError> {
    let mut state = partition.state();
    if state.closed {
        state.repairing = false;
        return Ok(Step::Done);
    }
    match state.log.clone() {
        None => {
            state.log = Some(shared.open_log(partition.id)?);
            let snapshot = state.snapshot;
            state.keep_behind(snapshot);
        }
        Some(log) => {
            if let Some(failure) = log.failure() {
                state.log_failed(partition.id, shared, &failure);
                // LOG-6: only opening it again rewrites what is not known to be on disk.
                log.reopen()?;
            }
        }
    }
    // Whatever it lost was not synced, so its place is known.
    let (end, first) = (state.log.as_ref().expect("it is open").stored_end(), state.unsynced_first());
    if end < first {
        return Err(LogError::RecordsMissing { partition: partition.id, from: end, to: first });
    }
    store_some(partition, shared, &mut state)
}

fn store_some(partition: &Partition, shared: &Shared, state: &mut PartitionState) -> Result<Step, LogError> {
    for _ in 0..RECORDS_AT_ONCE {
        let end: PartitionLogIndex = state.log.as_ref().expect("it is open").stored_end();
        if end > state.highest {
            state.repairing = false;
            return Ok(Step::Done);
        }
        let place = state.unsynced[(end.0 - state.unsynced_first().0) as usize];
        let record = shared.redo(partition.id, end, place)?;
        let appended = state.log.as_ref().expect("it is open").append([&record]);
        match appended {
            Ok(ticket) => drop(ticket),
            Err(LogError::Files(error)) if error.kind() == laminar_core::error::ErrorKind::Overloaded => {
                return Ok(Step::Busy);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Step::More)
}
