//! What one task writes: encoded as it comes, staged while more comes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use laminar_rpc::Failure;
use laminar_rpc::proto::{BlockPointer, PartitionRows, TaskParts, partition_rows};
use tokio::task::JoinHandle;

use super::message;
use crate::chance;
use crate::codec::{Part, Place};
use crate::description::StreamInfo;
use crate::staging;
use crate::stream::StreamHandle;

/// Bytes of a block, unless the caller says otherwise.
pub(crate) const BLOCK_BYTES: usize = 32 << 20;
/// Rows and bytes of a part: enough for columns to compress well, few enough to read one for a few rows.
pub(crate) const PART_ROWS: usize = 1 << 16;
pub(crate) const PART_BYTES: u64 = 8 << 20;
/// Blocks that are being staged while more rows come.
const IN_FLIGHT_MAX: usize = 2;
/// What is smaller travels in the message: a block of its own would cost a sync.
pub(crate) const INLINE_BYTES_MAX: u64 = 128 << 10;

/// How a task writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskOptions {
    /// How many encoded bytes make a block; 32 MiB if none is named.
    pub block_bytes: Option<usize>,
    /// The partition of all rows; by their keys if none is named, or by turns if they have none.
    pub partition: Option<u32>,
}

/// Where the next rows go.
#[derive(Debug, Clone, Copy)]
enum Placing {
    /// Each where its key says, or all to one.
    As(Place),
    /// To one partition, until they make a part; then to the next.
    Turn { ordinal: u32, count: u32 },
}

/// Rows of a partition that do not make a part yet.
#[derive(Default)]
struct Waiting {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: u64,
}

/// A block on its way to the store, and what its parts are.
struct Staging {
    parts: Vec<(u32, u32)>,
    pointers: JoinHandle<Result<Vec<BlockPointer>, Failure>>,
}

/// Writes the rows of one task. Nothing of them can be read before they are committed. Dropping it leaves blocks that
/// nobody names, which are collected.
pub struct TaskWriter {
    stream: StreamHandle,
    info: Arc<StreamInfo>,
    placing: Placing,
    block_bytes: usize,
    waiting: BTreeMap<u32, Waiting>,
    waiting_bytes: u64,
    /// Encoded and not staged.
    block: Vec<Part>,
    block_length: usize,
    staging: VecDeque<Staging>,
    /// Staged, in order.
    staged: Vec<PartitionRows>,
    rows: u64,
    bytes: u64,
    finished: Option<Bytes>,
}

impl std::fmt::Debug for TaskWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskWriter")
            .field("stream", &self.info.path)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl TaskWriter {
    /// Begins to write. Nobody is asked anything yet.
    ///
    /// # Errors
    /// Unknown partition: the stream has fewer.
    pub fn new(stream: StreamHandle, options: TaskOptions) -> Result<Self, Failure> {
        let info = stream.info();
        let count = info.partition_count();
        let placing = match options.partition {
            Some(ordinal) => {
                info.partition_id(ordinal)?;
                Placing::As(Place::Chosen(ordinal))
            }
            None if info.codec().schema().has_key() => Placing::As(Place::ByKey { count }),
            // By chance, so that many small tasks do not all begin with the same.
            None => {
                let ordinal = (chance::random_id()? % u128::from(count.max(1))) as u32;
                Placing::Turn { ordinal, count }
            }
        };
        Ok(TaskWriter {
            stream,
            info,
            placing,
            block_bytes: options.block_bytes.unwrap_or(BLOCK_BYTES).max(1),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            block: Vec::new(),
            block_length: 0,
            staging: VecDeque::new(),
            staged: Vec::new(),
            rows: 0,
            bytes: 0,
            finished: None,
        })
    }

    /// The stream that it writes.
    pub fn stream(&self) -> &StreamHandle {
        &self.stream
    }

    /// Rows that were added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Their bytes, before they were encoded.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds rows. They are encoded by whoever polls the future; it waits only while enough blocks are being staged.
    ///
    /// # Errors
    /// Invalid: rows do not fit the schema or a limit. Unavailable: the store failed; the task has to begin anew.
    ///
    /// # Cancel safety
    /// Rows may have been added or not: begin anew.
    pub async fn add(&mut self, batches: &[RecordBatch]) -> Result<(), Failure> {
        if self.finished.is_some() {
            return Err(Failure::invalid("rows refused, the task is finished; begin another"));
        }
        let info = self.info.clone();
        let named = |failure| info.name(failure);
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            let batch = info.codec().conform(batch).map_err(named)?;
            let bytes = laminar_rows::batch_bytes(&batch);
            let step = rows_of_a_part(batch.num_rows(), bytes);
            for begin in (0..batch.num_rows()).step_by(step) {
                let rows = batch.slice(begin, step.min(batch.num_rows() - begin));
                self.take(rows).map_err(named)?;
                self.stage_full(false).await.map_err(named)?;
            }
            self.rows += batch.num_rows() as u64;
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Puts rows to those of their partitions, and encodes what makes a part.
    fn take(&mut self, rows: RecordBatch) -> Result<(), Failure> {
        let place = match self.placing {
            Placing::As(place) => place,
            Placing::Turn { ordinal, .. } => Place::Chosen(ordinal),
        };
        for (ordinal, rows) in self.info.codec().split(rows, place)? {
            let bytes = laminar_rows::batch_bytes(&rows);
            let waiting = self.waiting.entry(ordinal).or_default();
            waiting.rows += rows.num_rows();
            waiting.bytes += bytes;
            waiting.batches.push(rows);
            self.waiting_bytes += bytes;
            if waiting.rows >= PART_ROWS || waiting.bytes >= PART_BYTES {
                self.encode(ordinal)?;
            }
        }
        if self.waiting_bytes >= self.block_bytes as u64 {
            self.encode_all()?;
        }
        Ok(())
    }

    fn encode_all(&mut self) -> Result<(), Failure> {
        let ordinals: Vec<u32> = self.waiting.keys().copied().collect();
        ordinals.into_iter().try_for_each(|ordinal| self.encode(ordinal))
    }

    /// Makes a part of what waits for a partition.
    fn encode(&mut self, ordinal: u32) -> Result<(), Failure> {
        let Some(waiting) = self.waiting.remove(&ordinal) else { return Ok(()) };
        self.waiting_bytes -= waiting.bytes;
        let codec = self.info.codec();
        if let Some(rows) = codec.join(waiting.batches)? {
            let part = codec.part(ordinal, &rows)?;
            self.block_length += part.payload.len();
            self.block.push(part);
        }
        if let Placing::Turn { ordinal, count } = &mut self.placing {
            *ordinal = (*ordinal + 1) % (*count).max(1);
        }
        Ok(())
    }

    /// Stages the block if it is full, or in any case; waits if too many are being staged.
    async fn stage_full(&mut self, in_any_case: bool) -> Result<(), Failure> {
        if self.block.is_empty() || (self.block_length < self.block_bytes && !in_any_case) {
            return Ok(());
        }
        let limit = self.stream.limit();
        let session = self.stream.session();
        let live = session.live(limit).await?;
        staging::check_staging(self.block_length as u64, &live.hello, &self.info.machine)?;
        let store = session.stores().open(&live.hello.store_path).await?;
        while self.staging.len() >= IN_FLIGHT_MAX {
            self.settle().await?;
        }
        self.block_length = 0;
        let block = std::mem::take(&mut self.block);
        let parts = block.iter().map(|part| (part.ordinal, part.rows)).collect();
        let limit = self.stream.limit();
        let pointers = tokio::spawn(async move { staging::stage(&store, &block, limit).await });
        self.staging.push_back(Staging { parts, pointers });
        Ok(())
    }

    /// Waits for the oldest block that is being staged.
    async fn settle(&mut self) -> Result<(), Failure> {
        let Some(Staging { parts, pointers }) = self.staging.front_mut() else { return Ok(()) };
        let pointers = pointers
            .await
            .map_err(|_| Failure::unavailable("staging a block was stopped; run the task again"))??;
        for ((ordinal, rows), pointer) in parts.iter().zip(pointers) {
            self.staged.push(PartitionRows {
                partition_id: self.info.partition_id(*ordinal)?,
                epoch: 0,
                rows: *rows,
                payload: Some(partition_rows::Payload::Pointer(pointer)),
            });
        }
        self.staging.pop_front();
        Ok(())
    }

    /// Waits until everything is staged, and returns the message for the commit. A second time it is the same.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub async fn finish(&mut self) -> Result<Bytes, Failure> {
        if let Some(message) = &self.finished {
            return Ok(message.clone());
        }
        let info = self.info.clone();
        let named = |failure| info.name(failure);
        self.encode_all().map_err(named)?;
        if self.block_length as u64 > self.inline_bytes_max().await.map_err(named)? {
            self.stage_full(true).await.map_err(named)?;
        }
        while !self.staging.is_empty() {
            self.settle().await.map_err(named)?;
        }
        let mut parts = std::mem::take(&mut self.staged);
        for part in self.block.drain(..) {
            parts.push(PartitionRows {
                partition_id: info.partition_id(part.ordinal)?,
                epoch: 0,
                rows: part.rows,
                payload: Some(partition_rows::Payload::Inline(part.payload.joined())),
            });
        }
        let partition_count = match self.placing {
            Placing::As(place) => place.partition_count(),
            Placing::Turn { .. } => 0,
        };
        let parts = TaskParts { stream_id: info.stream_id, partition_count, rows: self.rows, parts };
        Ok(self.finished.insert(message::encode(&parts)).clone())
    }

    /// How much may travel in the message: little, unless there is nowhere to put it.
    async fn inline_bytes_max(&self) -> Result<u64, Failure> {
        if self.block.is_empty() {
            return Ok(0);
        }
        let hello = &self.stream.session().live(self.stream.limit()).await?.hello;
        let stageable = staging::check_staging(0, hello, &self.info.machine).is_ok();
        let most = hello.inline_bytes_max;
        Ok(if stageable { most.min(INLINE_BYTES_MAX) } else { most })
    }
}

/// How many rows of a batch make a part.
fn rows_of_a_part(rows: usize, bytes: u64) -> usize {
    let by_bytes = (rows as u64).saturating_mul(PART_BYTES) / bytes.max(1);
    usize::try_from(by_bytes).unwrap_or(usize::MAX).clamp(1, PART_ROWS)
}
