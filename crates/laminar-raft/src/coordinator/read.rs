//! Reads: local ones see what this node has applied, linearizable ones everything that was acknowledged before.

use std::time::Duration;

use laminar_core::ids::LogIndex;
use laminar_core::metadata::DeltaMetadata;
use laminar_log::BarrierError;
use laminar_log::dispatcher::ClientId;
use openraft::{AsyncRuntime, Instant};

use super::error::CoordinationError;
use super::machine::PARTITION;
use super::{POLL, RaftCoordinator};
use crate::replica::{NotServing, ReadIndexError};

impl<R: AsyncRuntime> RaftCoordinator<R> {
    /// Reads what this node has applied. It may be behind others, and right after a start behind what was acknowledged
    /// before. Changes wait while this reads: it should be short.
    pub fn read_local<T>(&self, read: impl FnOnce(&DeltaMetadata) -> T) -> T {
        self.inner.published.read(read)
    }

    /// Reads metadata that has everything which was acknowledged before this was called, on any node. Waits for a leader
    /// to be there, for up to `read_timeout`; only the leader answers.
    ///
    /// # Errors
    ///
    /// Unavailable: another node leads, nobody does, no quorum answers, or this node lags. Overloaded: too many wait.
    pub async fn read_linearizable<T>(
        &self,
        read: impl FnOnce(&DeltaMetadata) -> T,
    ) -> Result<T, CoordinationError> {
        let (begun, timeout) = (R::Instant::now(), self.inner.config.read_timeout);
        let index = self.read_index_within(timeout).await?;
        self.wait_applied(index, timeout.saturating_sub(begun.elapsed())).await?;
        Ok(self.read_local(read))
    }

    /// The entry that a linearizable read must see. A follower asks the leader for it, waits with
    /// [`wait_applied`](Self::wait_applied) and reads locally.
    ///
    /// # Errors
    ///
    /// Unavailable: another node leads, nobody does, or no quorum answers.
    pub async fn read_index(&self) -> Result<LogIndex, CoordinationError> {
        self.read_index_within(self.inner.config.read_timeout).await
    }

    async fn read_index_within(&self, timeout: Duration) -> Result<LogIndex, CoordinationError> {
        let begun = R::Instant::now();
        loop {
            let left = timeout.saturating_sub(begun.elapsed());
            let asked = R::timeout(left, self.inner.replica.read_index()).await;
            let error = match asked {
                Ok(Ok(index)) => return Ok(index),
                Ok(Err(error)) => error,
                Err(_) => return Err(CoordinationError::Network { waited: timeout }),
            };
            let may_pass = matches!(
                error,
                ReadIndexError::NotLeader { leader: None, .. }
                    | ReadIndexError::NotServing(NotServing::Rebuilding | NotServing::Recovering)
            );
            if !may_pass || begun.elapsed() + POLL >= timeout {
                return Err(self.explain_read(error, timeout).await);
            }
            R::sleep(POLL).await;
        }
    }

    async fn explain_read(&self, error: ReadIndexError, waited: Duration) -> CoordinationError {
        match error {
            ReadIndexError::NotLeader { leader: None, .. } if !self.is_initialized().await => {
                CoordinationError::NotInitialized { waited }
            }
            ReadIndexError::NotLeader { leader, address } => CoordinationError::NotLeader { leader, address },
            ReadIndexError::NoQuorum => CoordinationError::Network { waited },
            ReadIndexError::NotServing(error) => error.into(),
        }
    }

    /// Returns when what this node shows has everything up to an entry of the group's log.
    ///
    /// # Errors
    ///
    /// Unavailable, if that takes longer than `timeout`. Overloaded: too many wait.
    pub async fn wait_applied(&self, index: LogIndex, timeout: Duration) -> Result<(), CoordinationError> {
        let begun = R::Instant::now();
        loop {
            // Asked for anew: it is another one after some faults.
            let machine = self.inner.replica.machine();
            let left = timeout.saturating_sub(begun.elapsed());
            match machine.barrier(ClientId(0), &[PARTITION], index, left).await {
                // No partition yet: nothing was ever written.
                Ok(()) | Err(BarrierError::UnknownPartition(_)) => return Ok(()),
                Err(BarrierError::TooManyWaiters(refusal)) => return Err(refusal.into()),
                Err(BarrierError::TimedOut { .. }) if begun.elapsed() < timeout => {}
                Err(BarrierError::TimedOut { .. }) => {
                    let applied = machine.decided_index();
                    return Err(CoordinationError::Behind { index, applied, waited: timeout });
                }
            }
        }
    }
}
