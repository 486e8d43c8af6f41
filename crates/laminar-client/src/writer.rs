//! The one writer of partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use laminar_core::error::ErrorKind;
use laminar_core::guard::PartitionGuardSet;
use laminar_rpc::Failure;
use laminar_rpc::proto::TrimRequest;

use crate::appended::Appended;
use crate::batch::Batch;
use crate::codec::{Pair, Place, Rows};
use crate::description::StreamInfo;
use crate::producer::{Lane, is_stream_changed};
use crate::retry::Repeat;
use crate::run::Run;
use crate::session::Limit;
use crate::stream::{StreamHandle, append_through};

/// How often an append is sent again because the stream got more partitions or the run had to claim again.
const SENT_AGAIN_MAX: u32 = 3;

/// An exclusive writer: nobody else can write its partitions until it is closed or another takes over. Dropping it
/// releases the partitions in the background; `close` tells whether that worked.
pub struct Writer {
    run: Arc<Run>,
    lane: Arc<Lane>,
    turn: AtomicUsize,
    runtime: tokio::runtime::Handle,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("name", &self.name())
            .field("node_id", &self.node_id())
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Claims partitions of a stream (all if none is named), fencing whoever held them.
    ///
    /// # Errors
    /// Stale: another claim came first. Unknown partition. Unavailable.
    pub async fn open(stream: StreamHandle, name: &str, partitions: Option<&[u32]>) -> Result<Self, Failure> {
        let limit = stream.limit();
        let run = Run::open(stream, name, partitions, limit).await?;
        let stream_id = run.stream().info().stream_id;
        let lane = Lane::new(run.stream().session().clone(), stream_id, Some(run.ownership().clone()));
        Ok(Writer { run, lane, turn: AtomicUsize::new(0), runtime: tokio::runtime::Handle::current() })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.run.name()
    }

    /// The node id of this run.
    pub fn node_id(&self) -> u64 {
        self.run.node_id()
    }

    /// The stream that it writes.
    pub fn stream(&self) -> &StreamHandle {
        self.run.stream()
    }

    /// The partitions of the stream that it claimed.
    pub fn partitions(&self) -> Vec<u32> {
        self.run.ordinals()
    }

    /// Its guards, by the cluster's partition ids.
    pub fn guards(&self) -> &Arc<PartitionGuardSet> {
        self.run.ownership().guards()
    }

    /// Appends rows, each to the partition of its key. Returns when they are on disk.
    ///
    /// # Errors
    /// Stale: another run has taken over; the message says who. Not owned: a row belongs to a partition that this writer
    /// did not claim. Others as [`StreamHandle::append`].
    pub async fn append(&self, batches: &[RecordBatch]) -> Result<Appended, Failure> {
        self.append_at(batches, None).await
    }

    /// Appends keys and values to a stream of bytes: to one partition, or to those of their keys.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn append_bytes(&self, partition: Option<u32>, pairs: &[Pair]) -> Result<Appended, Failure> {
        self.run.stream().info().expect_bytes()?;
        self.append_rows(Rows::Pairs(pairs), partition).await
    }

    /// Appends rows to one partition, whatever their keys; to those of their keys if none is named.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn append_at(
        &self,
        batches: &[RecordBatch],
        partition: Option<u32>,
    ) -> Result<Appended, Failure> {
        self.append_rows(Rows::Batches(batches), partition).await
    }

    async fn append_rows(&self, rows: Rows<'_>, partition: Option<u32>) -> Result<Appended, Failure> {
        let limit = self.run.stream().limit();
        let mut again = 0;
        loop {
            self.run.check()?;
            let info = self.run.stream().info();
            let place = self.place(&info, partition)?;
            let session = self.run.stream().session();
            let sent = append_through(&self.lane, session, &info, rows, place, limit).await;
            let failure = match sent {
                Ok(appended) => return Ok(appended),
                Err(failure) => failure,
            };
            if again >= SENT_AGAIN_MAX || !recovered(&self.run, &failure, limit).await? {
                return Err(refusal(&self.run, failure).await);
            }
            again += 1;
        }
    }

    fn place(&self, info: &StreamInfo, partition: Option<u32>) -> Result<Place, Failure> {
        if let Some(ordinal) = partition {
            info.partition_id(ordinal)?;
            return Ok(Place::Chosen(ordinal));
        }
        if info.codec().schema().has_key() {
            return Ok(Place::ByKey { count: info.partition_count() });
        }
        let claimed = self.run.ordinals();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Ok(Place::Chosen(claimed.get(turn % claimed.len().max(1)).copied().unwrap_or(0)))
    }

    /// Begins a batch that is committed as one entry, once.
    ///
    /// # Errors
    /// Stale: another run has taken over.
    pub fn batch(&self, query: &str, number: u64) -> Result<Batch, Failure> {
        self.run.check_open()?;
        Ok(Batch::new(self.run.clone(), query, number))
    }

    /// Removes the rows of a partition before an offset, and tells where it begins now.
    ///
    /// # Errors
    /// Stale: another run has taken over.
    pub async fn trim(&self, partition: u32, offset: u64) -> Result<u64, Failure> {
        self.run.check()?;
        let stream = self.run.stream();
        let (info, limit) = (stream.info(), stream.limit());
        let partition_id = info.partition_id(partition)?;
        let epoch = match self.run.ownership().epoch(partition_id) {
            Ok(epoch) => epoch,
            Err(failure) => return Err(refusal(&self.run, info.name(failure)).await),
        };
        let owner = self.node_id();
        let answer = stream.session().call(limit, Repeat::Safe, |live| {
            let message = TrimRequest { stream_id: info.stream_id, partition_id, offset, owner, epoch };
            async move { live.transport.trim(message, limit.deadline).await }
        });
        match answer.await {
            Ok(answer) => Ok(answer.start_offset),
            Err(failure) => Err(refusal(&self.run, info.name(failure)).await),
        }
    }

    /// Gives the partitions back. A second time does nothing.
    ///
    /// # Errors
    /// Unavailable: nobody answered; the partitions stay claimed until another takes over.
    pub async fn close(&self) -> Result<(), Failure> {
        self.run.close(self.run.stream().limit()).await
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.run.clone().close_in_background(&self.runtime);
    }
}

/// After a failure of an append or batch: whether it makes sense to send it again, now that something was learned.
pub(crate) async fn recovered(run: &Run, failure: &Failure, limit: Limit) -> Result<bool, Failure> {
    if failure.outcome_unknown {
        return Ok(false);
    }
    if is_stream_changed(failure) {
        run.stream().refresh_within(limit).await?;
        return Ok(true);
    }
    let Some(partition_id) = claimed_partition(run, failure) else {
        return Ok(false);
    };
    let refused = failure.number("epoch").unwrap_or_else(|| run.ownership().held_epoch(partition_id));
    // The log's refusal stands, whatever comes of claiming again: it tells who took over, and whether a batch had landed.
    Ok(run.recover(partition_id, refused, limit).await.unwrap_or(false))
}

/// The refusal of an append, batch or trim, with who has the partition now.
pub(crate) async fn refusal(run: &Run, failure: Failure) -> Failure {
    match claimed_partition(run, &failure) {
        Some(partition_id) => run.story(failure, Some(partition_id)).await,
        None => failure,
    }
}

/// The partition of a refusal for its epoch or owner, if the run ever had it.
fn claimed_partition(run: &Run, failure: &Failure) -> Option<u32> {
    if failure.class.kind() != ErrorKind::Stale {
        return None;
    }
    let partition_id = failure.number("partition_id").and_then(|id| u32::try_from(id).ok())?;
    run.has_claimed(partition_id).then_some(partition_id)
}
