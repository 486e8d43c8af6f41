//! A handle of a stream.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use laminar_rpc::proto::{
    BarrierRequest, DescribeStreamRequest, GetRequest, OffsetsRequest, PartitionOffsets, StreamDescription,
    TrimRequest,
};
use laminar_rpc::{ErrorClass, Failure};

use crate::appended::Appended;
use crate::codec::{Pair, Place, Rows};
use crate::description::StreamInfo;
use crate::producer::{Lane, is_stream_changed};
use crate::reader::{ReadOptions, RowReader};
use crate::retry::Repeat;
use crate::scan::ScanReader;
use crate::session::{Limit, Session, lock};
use crate::staging;
use crate::writer::Writer;

/// How often rows are placed anew because the stream got more partitions meanwhile.
const PLACED_MAX: u32 = 3;

/// A stream of a cluster. Clones share everything, but for their time limit.
#[derive(Clone)]
pub struct StreamHandle {
    shared: Arc<Shared>,
    timeout: Duration,
}

struct Shared {
    session: Arc<Session>,
    info: RwLock<Arc<StreamInfo>>,
    lane: Mutex<Option<Arc<Lane>>>,
    /// The partition of the next rows without a key.
    turn: AtomicU32,
}

/// Where a partition begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetRange {
    /// The offset of its first row.
    pub start: u64,
    /// The offset after its last row.
    pub end: u64,
}

/// Everything up to a global index is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    /// The global index; `read` takes it as `at`.
    pub global_index: u64,
}

impl std::fmt::Debug for StreamHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamHandle").field("path", &self.info().path).finish_non_exhaustive()
    }
}

impl StreamHandle {
    pub(crate) fn new(session: Arc<Session>, info: StreamInfo) -> Self {
        let timeout = session.config().timeout;
        let turn = AtomicU32::new(std::process::id());
        let shared = Shared { session, info: RwLock::new(Arc::new(info)), lane: Mutex::new(None), turn };
        StreamHandle { shared: Arc::new(shared), timeout }
    }

    /// The same handle with another limit for each call.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        StreamHandle { shared: self.shared.clone(), timeout }
    }

    /// What is known of the stream.
    pub fn info(&self) -> Arc<StreamInfo> {
        self.shared.info.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.shared.session
    }

    pub(crate) fn limit(&self) -> Limit {
        Limit::of(self.timeout)
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Asks the node what the stream is now.
    ///
    /// # Errors
    /// Unknown partition: it was dropped, or dropped and created again; the handle is of the one that was.
    pub async fn refresh(&self) -> Result<Arc<StreamInfo>, Failure> {
        self.refresh_within(self.limit()).await
    }

    pub(crate) async fn refresh_within(&self, limit: Limit) -> Result<Arc<StreamInfo>, Failure> {
        let known = self.info();
        let path = known.path.clone();
        let described = self.shared.session.call(limit, Repeat::Safe, |live| {
            let message = DescribeStreamRequest { path: path.clone() };
            async move { live.transport.describe_stream(message, limit.deadline).await }
        });
        self.learn(described.await.map_err(|failure| known.name(failure))?)
    }

    /// Goes on with what the node says of the stream.
    pub(crate) fn learn(&self, described: StreamDescription) -> Result<Arc<StreamInfo>, Failure> {
        let (known, info) = (self.info(), StreamInfo::new(described)?);
        let path = &known.path;
        if info.stream_id != known.stream_id {
            let message = format!(
                "stream {path}: it was dropped and created again since this handle was made; open it anew"
            );
            return Err(Failure::new(ErrorClass::UnknownPartition, message).with("stream", path.as_str()));
        }
        let info = Arc::new(info);
        *self.shared.info.write().unwrap_or_else(std::sync::PoisonError::into_inner) = info.clone();
        Ok(info)
    }

    /// Appends rows, each to the partition of its key. Returns when they are on disk.
    ///
    /// Rows are split and encoded by whoever polls the future first. Rows of a stream without a key go to one partition,
    /// another each time.
    ///
    /// # Errors
    /// Invalid: rows do not fit the schema or a limit. Not owned: a writer holds one of the partitions. Overloaded or
    /// unavailable: as the message says, and `outcome_unknown` tells whether they may have landed.
    ///
    /// # Cancel safety
    /// Rows that were sent may land.
    pub async fn append(&self, batches: &[RecordBatch]) -> Result<Appended, Failure> {
        self.append_at(batches, None).await
    }

    /// Appends keys and values to a stream of bytes: to one partition, or to those of their keys. A value that is none
    /// removes the key.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn append_bytes(&self, partition: Option<u32>, pairs: &[Pair]) -> Result<Appended, Failure> {
        self.info().expect_bytes()?;
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
        let limit = self.limit();
        let lane = self.lane();
        let mut placed = 0;
        loop {
            let info = self.info();
            let place = self.place(&info, partition)?;
            let result = append_through(&lane, self.session(), &info, rows, place, limit).await;
            match result {
                Err(failure)
                    if is_stream_changed(&failure) && !failure.outcome_unknown && placed < PLACED_MAX =>
                {
                    placed += 1;
                    self.refresh_within(limit).await?;
                }
                other => return other,
            }
        }
    }

    fn place(&self, info: &StreamInfo, partition: Option<u32>) -> Result<Place, Failure> {
        if let Some(ordinal) = partition {
            info.partition_id(ordinal)?;
            return Ok(Place::Chosen(ordinal));
        }
        let count = info.partition_count();
        if info.codec().schema().has_key() {
            return Ok(Place::ByKey { count });
        }
        Ok(Place::Chosen(self.shared.turn.fetch_add(1, Ordering::Relaxed) % count.max(1)))
    }

    fn lane(&self) -> Arc<Lane> {
        let mut lane = lock(&self.shared.lane);
        match &*lane {
            Some(lane) if lane.is_of_this_process() => lane.clone(),
            _ => {
                let made = Lane::new(self.shared.session.clone(), self.info().stream_id, None);
                // A parent's lane belongs to threads that this process does not have.
                std::mem::forget(lane.replace(made.clone()));
                made
            }
        }
    }

    /// Where partitions begin and end, counting everything that was acknowledged before the call.
    ///
    /// # Errors
    /// Unknown partition, or unavailable.
    pub async fn offsets(&self) -> Result<BTreeMap<u32, OffsetRange>, Failure> {
        let offsets = self.ask_offsets(None, None, None, self.limit()).await?;
        Ok(offsets.into_iter().map(|(ordinal, told)| (ordinal, range(&told))).collect())
    }

    /// Where partitions began and ended as of a global index.
    ///
    /// # Errors
    /// As [`offsets`](Self::offsets).
    pub async fn offsets_at(&self, global_index: u64) -> Result<BTreeMap<u32, OffsetRange>, Failure> {
        let offsets = self.ask_offsets(None, None, Some(global_index), self.limit()).await?;
        Ok(offsets.into_iter().map(|(ordinal, told)| (ordinal, range(&told))).collect())
    }

    /// The offset of the first row at or after a time in milliseconds since 1970, or the end, by partition.
    ///
    /// # Errors
    /// As [`offsets`](Self::offsets).
    pub async fn offsets_at_time(&self, time_ms: u64) -> Result<BTreeMap<u32, u64>, Failure> {
        let offsets = self.ask_offsets(None, Some(time_ms), None, self.limit()).await?;
        Ok(offsets.into_iter().map(|(ordinal, told)| (ordinal, told.time_offset)).collect())
    }

    pub(crate) async fn ask_offsets(
        &self,
        partitions: Option<&[u32]>,
        time_ms: Option<u64>,
        at_index: Option<u64>,
        limit: Limit,
    ) -> Result<BTreeMap<u32, PartitionOffsets>, Failure> {
        let info = self.info();
        let mut partition_ids = info.partition_ids(partitions)?;
        partition_ids.sort_unstable();
        partition_ids.dedup();
        let message = OffsetsRequest {
            stream_id: info.stream_id,
            partition_ids,
            time_ms,
            at_index,
            linearizable: true,
        };
        let wanted = message.partition_ids.len();
        let answer = self.shared.session.call(limit, Repeat::Safe, |live| {
            let message = message.clone();
            async move { live.transport.offsets(message, limit.deadline).await }
        });
        let answer = answer.await.map_err(|failure| info.name(failure))?;
        let named =
            answer.partitions.into_iter().map(|told| Ok((info.answered_ordinal(told.partition_id)?, told)));
        let offsets = named.collect::<Result<BTreeMap<_, _>, Failure>>()?;
        if offsets.len() != wanted {
            let (path, found) = (&info.path, offsets.len());
            let message = format!(
                "stream {path}: the node told offsets of {found} partitions, {wanted} were asked; report it"
            );
            return Err(Failure::internal(message));
        }
        Ok(offsets)
    }

    /// Waits until all partitions have applied everything that was acknowledged before the call.
    ///
    /// # Errors
    /// Unavailable: they have not within the time.
    pub async fn barrier(&self, timeout: Duration) -> Result<Barrier, Failure> {
        self.barrier_at(0, None, Limit::of(timeout)).await
    }

    /// Waits until partitions have applied a global index; 0: everything that was acknowledged before the call.
    pub(crate) async fn barrier_at(
        &self,
        global_index: u64,
        partitions: Option<&[u32]>,
        limit: Limit,
    ) -> Result<Barrier, Failure> {
        let info = self.info();
        let partition_ids = info.partition_ids(partitions)?;
        let client_id = self.shared.session.config().client_id.clone();
        let answer = self.shared.session.call(limit, Repeat::Safe, |live| {
            let message = BarrierRequest {
                stream_id: info.stream_id,
                partition_ids: partition_ids.clone(),
                global_index,
                timeout_ms: limit.node_timeout_ms(),
                client_id: client_id.clone(),
            };
            async move { live.transport.barrier(message, limit.deadline).await }
        });
        let answer = answer.await.map_err(|failure| info.name(failure))?;
        Ok(Barrier { global_index: answer.global_index })
    }

    /// The newest row of a key, linearizable. The batch holds the key columns of one row.
    ///
    /// # Errors
    /// Invalid: the stream keeps no newest rows, or the key does not fit its schema.
    pub async fn get(&self, key: &RecordBatch) -> Result<Option<RecordBatch>, Failure> {
        let info = self.info();
        info.codec().needs_kv(&info.path, &info.machine)?;
        let (key, ordinal) = info.codec().key(key, info.partition_count())?;
        let Some(value) = self.ask_value(&info, ordinal, key.clone()).await? else {
            return Ok(None);
        };
        Ok(Some(info.codec().decode_values(&[(key, value)])?))
    }

    /// The newest value of a key of a stream of bytes, linearizable.
    ///
    /// # Errors
    /// Invalid: the stream keeps no newest rows, or has a schema.
    pub async fn get_bytes(&self, key: &[u8]) -> Result<Option<Bytes>, Failure> {
        let info = self.info();
        info.codec().needs_kv(&info.path, &info.machine)?;
        if !info.is_bytes() {
            let message = format!("stream {}: its key is columns, and bytes were given", info.path);
            return Err(Failure::invalid(message).with("stream", info.path.as_str()));
        }
        let ordinal = info.codec().partition_of(key, info.partition_count());
        self.ask_value(&info, ordinal, Bytes::copy_from_slice(key)).await
    }

    async fn ask_value(&self, info: &StreamInfo, ordinal: u32, key: Bytes) -> Result<Option<Bytes>, Failure> {
        let limit = self.limit();
        let partition_id = info.partition_id(ordinal)?;
        let answer = self.shared.session.call(limit, Repeat::Safe, |live| {
            let message = GetRequest {
                stream_id: info.stream_id,
                partition_id,
                key: key.clone(),
                timeout_ms: limit.node_timeout_ms(),
            };
            async move { live.transport.get(message, limit.deadline).await }
        });
        Ok(answer.await.map_err(|failure| info.name(failure))?.value)
    }

    /// The newest row of every key, linearizable for each partition.
    ///
    /// # Errors
    /// Invalid: the stream keeps no newest rows.
    pub fn scan(&self) -> Result<ScanReader, Failure> {
        let info = self.info();
        info.codec().needs_kv(&info.path, &info.machine)?;
        Ok(ScanReader::new(self.clone(), info))
    }

    /// Reads rows. A partition that is named twice is read once.
    ///
    /// # Errors
    /// Invalid: options that do not fit the stream. Unknown partition. Unavailable.
    pub async fn read(&self, mut options: ReadOptions) -> Result<RowReader, Failure> {
        if let Some(partitions) = &mut options.partitions {
            partitions.sort_unstable();
            partitions.dedup();
        }
        RowReader::open(self.clone(), options).await
    }

    /// Removes the rows of a partition before an offset, and tells where it begins now.
    ///
    /// # Errors
    /// Not owned: a writer holds the partition.
    pub async fn trim(&self, partition: u32, offset: u64) -> Result<u64, Failure> {
        let (info, limit) = (self.info(), self.limit());
        let partition_id = info.partition_id(partition)?;
        // Trimming to the same offset twice trims once.
        let answer = self.shared.session.call(limit, Repeat::Safe, |live| {
            let message = TrimRequest { stream_id: info.stream_id, partition_id, offset, owner: 0, epoch: 0 };
            async move { live.transport.trim(message, limit.deadline).await }
        });
        Ok(answer.await.map_err(|failure| info.name(failure))?.start_offset)
    }

    /// Claims partitions for this process (all if none is named), fencing whoever held them.
    ///
    /// # Errors
    /// Stale: another claim came first.
    pub async fn writer(&self, name: &str, partitions: Option<&[u32]>) -> Result<Writer, Failure> {
        Writer::open(self.clone(), name, partitions).await
    }
}

/// Encodes rows, stages them if they are many, and appends them through a lane.
pub(crate) async fn append_through(
    lane: &Arc<Lane>,
    session: &Session,
    info: &StreamInfo,
    rows: Rows<'_>,
    place: Place,
    limit: Limit,
) -> Result<Appended, Failure> {
    let parts = info.codec().encode(rows, place).map_err(|failure| info.name(failure))?;
    if parts.is_empty() {
        return Ok(Appended::default());
    }
    let live = session.live(limit).await?;
    let stores = session.stores();
    let carried = staging::carry(&stores, &live.hello, &info.machine, parts, limit, |ordinal| {
        info.partition_id(ordinal)
    });
    let carried = carried.await.map_err(|failure| info.name(failure))?;
    let appended = lane.append(carried, place.partition_count(), live.hello.inline_bytes_max, limit).await;
    appended.map_err(|failure| info.name(failure))
}

fn range(told: &PartitionOffsets) -> OffsetRange {
    OffsetRange { start: told.start_offset, end: told.end_offset }
}
