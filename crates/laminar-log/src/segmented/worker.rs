//! Applies what waits in a partition: one record at a time (APPLY-1), in a task that lives as long as something waits.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::partition::{Afterwards, Partition, Queued};
use super::shared::Shared;
use crate::entry::Change;
use crate::machine::{Applying, MachineError, PartitionStateMachine};
use crate::metrics::PARTITION_APPLY_RETRIES;
use crate::verdict::AcceptedRecord;

/// Starts the worker, unless it runs or may not.
pub(crate) fn start(partition: &Arc<Partition>, shared: &Arc<Shared>) {
    let mut state = partition.state();
    if state.working || state.closed || state.paused.is_some() || state.queue.is_empty() {
        return;
    }
    state.working = true;
    drop(state);
    let (partition, shared_for_task) = (Arc::clone(partition), Arc::clone(shared));
    shared.runtime.spawn(Box::pin(async move { run(partition, shared_for_task).await }));
}

async fn run(partition: Arc<Partition>, shared: Arc<Shared>) {
    while let Some((queued, machine)) = next(&partition) {
        let span = tracing::debug_span!("apply", partition = partition.id.0, index = queued.index.0);
        // The partition was closed if there is no record.
        let record = load(&partition, &shared, &queued).await;
        let (machine, done) = match &record {
            Some(record) => apply(&partition, &shared, machine, record).instrument(span).await,
            None => (machine, Done::Skipped),
        };
        if !give_back(&partition, &shared, queued, record, machine, done) {
            return;
        }
    }
}

/// The record whose turn it is, and the machine. None ends the worker.
fn next(partition: &Partition) -> Option<(Queued, Box<dyn PartitionStateMachine>)> {
    let mut state = partition.state();
    let may = !state.closed && state.paused.is_none();
    match if may { state.queue.pop_front() } else { None } {
        Some(queued) => {
            let machine = state.machine.take().expect("only the one worker takes it (APPLY-1)");
            state.applying = Some(queued.raft);
            Some((queued, machine))
        }
        None => {
            state.working = false;
            None
        }
    }
}

/// The record itself; none if the partition was closed meanwhile.
async fn load(partition: &Partition, shared: &Shared, queued: &Queued) -> Option<AcceptedRecord> {
    if let Some(record) = &queued.record {
        return Some((**record).clone());
    }
    let mut wait = shared.config.repair_backoff_min;
    loop {
        let loaded = {
            let state = partition.state();
            if state.closed {
                return None;
            }
            state.load(partition.id, shared, queued.index)
        };
        match loaded {
            Ok(Some(record)) => return Some(record),
            Ok(None) => {}
            Err(error) => tracing::warn!(partition = partition.id.0, %error, "a record cannot be read yet"),
        }
        shared.runtime.sleep(wait).await;
        wait = (wait * 2).min(shared.config.repair_backoff_max);
    }
}

/// How a record ended.
enum Done {
    Applied,
    /// Left out, on every replica.
    Skipped,
    Failed(MachineError),
}

/// Applies a record, again and again if it fails, within bounds.
async fn apply(
    partition: &Partition,
    shared: &Shared,
    mut machine: Box<dyn PartitionStateMachine>,
    record: &AcceptedRecord,
) -> (Box<dyn PartitionStateMachine>, Done) {
    let mut wait = shared.config.apply_backoff_min;
    let mut attempt = 1;
    loop {
        if matches!(record.record.change, Change::Skip(_)) || partition.state().skips.contains(&record.index)
        {
            return (machine, Done::Skipped);
        }
        let Err(error) = apply_once(machine.as_mut(), record).await else { return (machine, Done::Applied) };
        if attempt >= shared.config.apply_attempts_max || partition.state().closed {
            return (machine, Done::Failed(error));
        }
        tracing::warn!(partition = partition.id.0, index = record.index.0, attempt, %error, "apply failed");
        partition.state().apply_retries += 1;
        ::metrics::counter!(PARTITION_APPLY_RETRIES, "partition" => partition.id.0.to_string()).increment(1);
        shared.runtime.sleep(wait).await;
        wait = (wait * 2).min(shared.config.apply_backoff_max).max(Duration::from_millis(1));
        attempt += 1;
    }
}

async fn apply_once(
    machine: &mut dyn PartitionStateMachine,
    record: &AcceptedRecord,
) -> Result<(), MachineError> {
    match guarded(|| machine.apply(record))? {
        Applying::Done(outcome) => outcome,
        Applying::Later(mut future) => {
            poll_fn(|context| match guarded(|| future.as_mut().poll(context)) {
                Ok(polled) => polled,
                Err(error) => std::task::Poll::Ready(Err(error)),
            })
            .await
        }
    }
}

/// A machine that panics must not take the worker with it: that is a failed apply like any other.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, MachineError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        MachineError { reason: format!("the machine panicked: {}", text.unwrap_or_default()) }
    })
}

/// Puts the machine back and takes note of the outcome; says whether the worker goes on.
fn give_back(
    partition: &Arc<Partition>,
    shared: &Arc<Shared>,
    queued: Queued,
    record: Option<AcceptedRecord>,
    machine: Box<dyn PartitionStateMachine>,
    done: Done,
) -> bool {
    let mut state = partition.state();
    state.machine = Some(machine);
    state.applying = None;
    state.machine_back.drain(..).for_each(|notice| notice.set(()));
    let mut afterwards = Afterwards::default();
    if let (Done::Failed(error), false) = (&done, state.closed) {
        state.working = false;
        let index = queued.index;
        state.queue.push_front(queued);
        state.pause(partition.id, shared, index, error.reason.clone());
        return false;
    }
    afterwards.reply(queued.reply);
    if state.closed {
        state.working = false;
    } else {
        let record = record.expect("a partition that is not closed has its records");
        if queued.record.is_some() {
            state.queue_bytes -= queued.bytes;
        }
        if matches!(done, Done::Applied) && state.skips.contains(&queued.index) {
            state.skipped_too_late(shared, partition.id, queued.index);
        }
        state.applied_one(&record);
        shared.dispatcher.applied(partition.id, 1, queued.bytes as u64);
    }
    let goes_on = !state.closed;
    drop(state);
    partition.finish(shared, afterwards);
    goes_on
}
