//! Batches of a query that many processes write together: each asks for itself, and keeps nothing but the answer.

use laminar_rpc::Failure;
use laminar_rpc::proto::{
    Batch, BeginBatchRequest, CheckRunRequest, LastBatchRequest, PartitionEpoch, ReleaseRequest, RequestId,
};

use crate::chance;
use crate::retry::Repeat;
use crate::run;
use crate::stream::StreamHandle;

/// A batch that a task of a run wants to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBatch {
    /// The writer's name.
    pub writer: String,
    /// The run, the same for all its tasks. Not 0.
    pub run: u128,
    /// The query.
    pub query: String,
    /// The batch.
    pub number: u64,
    /// The writer may belong to another query, and belongs to this one then.
    pub adopt_query: bool,
    /// The writer's name stays free for other queries, as batch jobs want it.
    pub unbound: bool,
    /// The machine that `why` shows; this one if none is named.
    pub host: Option<String>,
    /// The process that `why` shows; this one if none is named.
    pub pid: Option<u32>,
}

/// What a run holds for its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunBatch {
    /// The run; 0 if it has claimed nothing, because the batch is committed.
    pub node_id: u64,
    /// Every partition of the stream, in its order.
    pub epochs: Vec<HeldEpoch>,
    /// The batch is the last one that was committed.
    pub committed: bool,
    /// The last committed batch of the query.
    pub last_batch: Option<u64>,
}

/// A partition under the epoch that a run holds it with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldEpoch {
    /// Its number in the stream.
    pub partition: u32,
    /// Its id in the cluster.
    pub partition_id: u32,
    /// The epoch.
    pub epoch: u64,
}

impl StreamHandle {
    /// Begins a batch: the run claims the whole stream, goes on with what it holds, or learns that the batch is
    /// committed. Every task of the run may ask, at once and again; all get the same.
    ///
    /// # Errors
    /// Stale: another run has taken over, or was first; or the run is unseen and its batch is below the last one. Invalid: the
    /// batch is below the last one, or the writer belongs to another query.
    pub async fn begin_batch(&self, batch: &NewBatch) -> Result<BegunBatch, Failure> {
        let (info, limit) = (self.info(), self.limit());
        let request = BeginBatchRequest {
            stream_id: info.stream_id,
            writer: batch.writer.clone(),
            run: Some(run_id(batch.run)),
            batch: Some(Batch { query: batch.query.clone(), number: batch.number }),
            adopt_query: batch.adopt_query,
            unbound: batch.unbound,
            host: batch.host.clone().unwrap_or_else(chance::host),
            pid: batch.pid.unwrap_or_else(std::process::id),
            timeout_ms: 0,
        };
        // The run makes it the same request however often it is sent.
        let begun = self.session().call(limit, Repeat::Safe, |live| {
            let message = BeginBatchRequest { timeout_ms: limit.node_timeout_ms(), ..request.clone() };
            async move { live.transport.begin_batch(message, limit.deadline).await }
        });
        let begun = begun.await.map_err(|failure| info.name(failure))?;
        // The stream may have got partitions since this handle looked.
        if !begun.partitions.is_empty() && begun.partitions.len() != info.partition_count() as usize {
            self.refresh_within(limit).await?;
        }
        let epochs = (0..).zip(&begun.partitions).map(|(partition, told)| HeldEpoch {
            partition,
            partition_id: told.partition_id,
            epoch: told.epoch,
        });
        Ok(BegunBatch {
            node_id: begun.node_id,
            epochs: epochs.collect(),
            committed: begun.committed,
            last_batch: begun.last_batch,
        })
    }

    /// Whether a run still has these partitions under these epochs; the batch is only for the error to tell about.
    ///
    /// # Errors
    /// Stale, as a write would be: another run has taken over.
    pub async fn check_run(
        &self,
        node_id: u64,
        epochs: &[HeldEpoch],
        batch: Option<(&str, u64)>,
    ) -> Result<(), Failure> {
        let (info, limit) = (self.info(), self.limit());
        let held =
            epochs.iter().map(|held| PartitionEpoch { partition_id: held.partition_id, epoch: held.epoch });
        let request = CheckRunRequest {
            stream_id: info.stream_id,
            node_id,
            partitions: held.collect(),
            batch: batch.map(|(query, number)| Batch { query: query.to_owned(), number }),
        };
        let checked = self.session().call(limit, Repeat::Safe, |live| {
            let message = request.clone();
            async move { live.transport.check_run(message, limit.deadline).await }
        });
        checked.await.map(drop).map_err(|failure| info.name(failure))
    }

    /// The last committed batch of a query on this stream; everything that was acknowledged before is counted.
    ///
    /// # Errors
    /// Unknown partition: the stream was dropped. Unavailable.
    pub async fn last_batch(&self, query: &str) -> Result<Option<u64>, Failure> {
        let (info, limit) = (self.info(), self.limit());
        let answer = self.session().call(limit, Repeat::Safe, |live| {
            let message = LastBatchRequest {
                stream_id: info.stream_id,
                query: query.to_owned(),
                timeout_ms: limit.node_timeout_ms(),
            };
            async move { live.transport.last_batch(message, limit.deadline).await }
        });
        Ok(answer.await.map_err(|failure| info.name(failure))?.number)
    }

    /// Gives back what a run holds. A run that holds nothing has nothing to give.
    ///
    /// # Errors
    /// Invalid: it is no run of a writer. Unavailable.
    pub async fn release_run(&self, node_id: u64) -> Result<(), Failure> {
        if node_id == 0 {
            return Ok(());
        }
        self.release(ReleaseRequest { node_id, ..Default::default() }).await
    }

    /// Gives back what a run holds of this stream, by the id that it began its batches with. One that never claimed, or
    /// has lost everything, has nothing to give.
    ///
    /// # Errors
    /// Unavailable.
    pub async fn release_begun(&self, run: u128) -> Result<(), Failure> {
        let stream_id = self.info().stream_id;
        self.release(ReleaseRequest { run: Some(run_id(run)), stream_id, ..Default::default() }).await
    }

    async fn release(&self, request: ReleaseRequest) -> Result<(), Failure> {
        let released = run::release(self.session(), request, self.limit()).await;
        released.map_err(|failure| self.info().name(failure))
    }
}

fn run_id(run: u128) -> RequestId {
    RequestId { high: (run >> 64) as u64, low: run as u64 }
}
