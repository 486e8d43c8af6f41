//! The newest row of every key, partition after partition.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use laminar_rpc::proto::{ScanRequest, ScanResponse};
use laminar_rpc::{ErrorClass, Failure};

use crate::description::StreamInfo;
use crate::retry::Repeat;
use crate::stream::StreamHandle;

/// The newest rows as they come. `next` decodes on the thread that polls it.
pub struct ScanReader {
    stream: StreamHandle,
    info: Arc<StreamInfo>,
    ordinal: u32,
    answers: Option<BoxStream<'static, Result<ScanResponse, Failure>>>,
    done: bool,
}

impl std::fmt::Debug for ScanReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanReader").field("stream", &self.info.path).finish_non_exhaustive()
    }
}

impl ScanReader {
    pub(crate) fn new(stream: StreamHandle, info: Arc<StreamInfo>) -> Self {
        ScanReader { stream, info, ordinal: 0, answers: None, done: false }
    }

    /// The columns of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.info.schema().clone()
    }

    /// The next rows; none at the end.
    ///
    /// # Errors
    /// Unavailable: the connection was lost in the middle of a partition, whose state may have changed since; scan again.
    /// Reading ends with an error.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, Failure> {
        let result = self.advance().await;
        if !matches!(result, Ok(Some(_))) {
            self.done = true;
        }
        result.map_err(|failure| self.info.name(failure))
    }

    async fn advance(&mut self) -> Result<Option<RecordBatch>, Failure> {
        while !self.done && self.ordinal < self.info.partition_count() {
            let limit = self.stream.limit();
            let answers = match &mut self.answers {
                Some(answers) => answers,
                None => {
                    let answers = self.open().await?;
                    self.answers.insert(answers)
                }
            };
            let answer = tokio::time::timeout_at(limit.deadline, answers.next()).await;
            match answer {
                Ok(None) => {
                    self.answers = None;
                    self.ordinal += 1;
                }
                Ok(Some(Ok(response))) => {
                    let pairs: Vec<(Bytes, Bytes)> =
                        response.pairs.into_iter().map(|pair| (pair.key, pair.value)).collect();
                    if !pairs.is_empty() {
                        return self.info.codec().decode_values(&pairs).map(Some);
                    }
                }
                Ok(Some(Err(failure))) if failure.class != ErrorClass::Network => return Err(failure),
                Ok(Some(Err(failure))) => return Err(self.broken(&failure.message)),
                Err(_) => return Err(self.broken("the node did not answer in time")),
            }
        }
        Ok(None)
    }

    async fn open(&mut self) -> Result<BoxStream<'static, Result<ScanResponse, Failure>>, Failure> {
        let limit = self.stream.limit();
        let (stream_id, partition_id) = (self.info.stream_id, self.info.partition_id(self.ordinal)?);
        let session = self.stream.session();
        session
            .call(limit, Repeat::Safe, |live| async move {
                let message = ScanRequest { stream_id, partition_id, timeout_ms: limit.node_timeout_ms() };
                live.transport.scan(message, limit.deadline).await
            })
            .await
    }

    fn broken(&self, cause: &str) -> Failure {
        let (ordinal, path) = (self.ordinal, &self.info.path);
        Failure::unavailable(format!(
            "partition {ordinal} of {path}: the scan broke off ({cause}); scan again"
        ))
        .with(
            "partition_id",
            self.info.partitions.get(ordinal as usize).map_or(0, |known| known.partition_id),
        )
    }
}
