//! Partitions that stand still because their machine fails: whoever waits for one is told so, and not left to wait.
//!
//! A caller that hears it may ask again until its own time is over: if the partition goes on meanwhile, it is answered.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use laminar_core::ids::{LogIndex, PartitionId};
use laminar_log::dispatcher::ClientId;
use laminar_log::entry::BatchId;
use laminar_log::{BarrierError, SegmentedStateMachine};
use laminar_rpc::{ErrorClass, Failure, proto, utc};

use super::{Node, lock};
use crate::error::of_barrier;
use crate::random;

/// When it is looked first whether what is waited for stands still; mostly it is over by then. Later looks are further
/// apart, up to the most.
const LOOK_AFTER_MIN: Duration = Duration::from_millis(50);
const LOOK_AFTER_MAX: Duration = Duration::from_secs(1);

/// A partition that stands still.
struct Paused {
    partition: PartitionId,
    /// The record that its machine cannot apply.
    record: u64,
    reason: String,
    /// None for a moment, until it was noted.
    since_ms: Option<u64>,
}

impl Node {
    /// Waits for an append, unless a partition of it stands still.
    pub(super) async fn append_unless_paused<T>(
        &self,
        request: &proto::AppendRequest,
        batch: Option<&BatchId>,
        append: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let machine = self.machine()?;
        let mut append = pin!(append);
        let mut wait = LOOK_AFTER_MIN;
        loop {
            let ended = tokio::select! {
                ended = &mut append => Some(ended),
                () = tokio::time::sleep(wait) => None,
            };
            if let Some(Ok(appended)) = ended {
                return Ok(appended);
            }
            let refused = match ended {
                Some(Err(failure)) if failure.class != ErrorClass::Unavailable => return Err(failure),
                Some(Err(failure)) => Some(failure),
                _ => None,
            };
            let paused =
                request.rows.iter().find_map(|rows| self.paused(&machine, PartitionId(rows.partition_id)));
            match (paused, refused) {
                (Some(paused), _) if is_in_log(&machine, request, batch) => {
                    return Err(self.located(paused.rows_wait()));
                }
                (Some(paused), Some(failure)) if !failure.outcome_unknown => {
                    return Err(self.located(paused.failure("append refused, it")));
                }
                (_, Some(failure)) => return Err(failure),
                (_, None) => {}
            }
            wait = (wait * 2).min(LOOK_AFTER_MAX);
        }
    }

    /// Waits until partitions have applied everything up to a global index, unless one of them stands still before it.
    pub(super) async fn barrier_unless_paused(
        &self,
        machine: &SegmentedStateMachine,
        client: ClientId,
        partitions: &[PartitionId],
        index: LogIndex,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let mut barrier = pin!(machine.barrier(client, partitions, index, timeout));
        let mut wait = LOOK_AFTER_MIN;
        loop {
            tokio::select! {
                ended = &mut barrier => {
                    return ended.map_err(|error| match error {
                        BarrierError::UnknownPartition(partition) => self.vanished(partition),
                        error => self.located(of_barrier(&error)),
                    });
                }
                () = tokio::time::sleep(wait) => {}
            }
            for paused in partitions.iter().filter_map(|partition| self.paused(machine, *partition)) {
                // It may stand behind what is waited for.
                let alone = ClientId(random::bits128());
                let reached = machine.barrier(alone, &[paused.partition], index, Duration::ZERO).await;
                if matches!(reached, Err(BarrierError::TimedOut { .. })) {
                    return Err(self.located(paused.failure("it")));
                }
            }
            wait = (wait * 2).min(LOOK_AFTER_MAX);
        }
    }

    fn paused(&self, machine: &SegmentedStateMachine, partition: PartitionId) -> Option<Paused> {
        let (record, reason) = machine.paused(partition)?;
        let since_ms = lock(&self.inner.paused_since).get(&partition).copied();
        Some(Paused { partition, record: record.0, reason, since_ms })
    }
}

impl Paused {
    /// What cannot be done because of it.
    fn failure(&self, what: &str) -> Failure {
        let Paused { partition, record, reason, since_ms } = self;
        let since = since_ms.map_or_else(String::new, |since| format!(" since {}", utc(since)));
        let message = format!(
            "partition {partition}: {what} is paused{since}, its machine cannot apply record {record}: {reason}; resume the \
             partition once the machine can, or skip the record"
        );
        Failure::unavailable(message)
            .with("partition_id", partition.0)
            .with("paused_at", *record)
            .with_known("since_ms", *since_ms)
    }

    /// Rows that are in the log. Whether they take effect is open: the machine may apply them yet, or they are skipped.
    fn rows_wait(&self) -> Failure {
        self.failure("the rows are in the log and wait, do not append them again: it")
            .with("in_log", true)
            .unknown()
    }
}

/// Whether the log has accepted an append already.
fn is_in_log(
    machine: &SegmentedStateMachine,
    request: &proto::AppendRequest,
    batch: Option<&BatchId>,
) -> bool {
    let of_producer = request.producer.as_ref().is_some_and(|producer| {
        let last = machine.last_sequence(laminar_log::entry::ProducerId(producer.id));
        last.is_some_and(|last| last >= producer.sequence)
    });
    of_producer || batch.is_some_and(|batch| machine.committed(batch).is_some())
}
