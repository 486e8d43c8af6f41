//! How far a stream can be read without seeing half of a commit.

use std::collections::BTreeMap;

use laminar_rpc::Failure;
use laminar_rpc::proto::{CutRequest, PartitionStart};

use crate::retry::Repeat;
use crate::stream::StreamHandle;

/// What a cut may hold: whole commits, as many as fit and at least one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutOptions {
    /// The most rows.
    pub rows_max: Option<u64>,
    /// The most bytes of encoded rows.
    pub bytes_max: Option<u64>,
    /// Not beyond this global index; none: everything that was acknowledged before the call.
    pub at: Option<u64>,
}

/// A consistent cut over all partitions of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The cut: everything that was accepted up to here.
    pub global_index: u64,
    /// Where each partition ends; never below where it begins.
    pub ends: BTreeMap<u32, u64>,
    /// The first offset of each partition that is still there.
    pub starts: BTreeMap<u32, u64>,
    /// Rows up to the ends.
    pub rows: u64,
    /// Bytes up to the ends; only counted if they are limited.
    pub bytes: Option<u64>,
    /// Whether nothing was left out.
    pub complete: bool,
}

impl StreamHandle {
    /// The furthest consistent cut behind `start`, which names offsets by partition; partitions that are not named begin at
    /// 0. Partitions that the stream got meanwhile are in it.
    ///
    /// # Errors
    /// Invalid: a partition ends before its start. Unknown partition. Unavailable.
    pub async fn cut(&self, start: &BTreeMap<u32, u64>, options: CutOptions) -> Result<Cut, Failure> {
        let limit = self.limit();
        let mut info = self.info();
        if start.keys().any(|ordinal| info.partition_id(*ordinal).is_err()) {
            info = self.refresh_within(limit).await?;
        }
        let mut starts = Vec::with_capacity(start.len().max(1));
        for (ordinal, offset) in start {
            starts.push(PartitionStart { partition_id: info.partition_id(*ordinal)?, offset: *offset });
        }
        if starts.is_empty() {
            starts.push(PartitionStart { partition_id: info.partition_id(0)?, offset: 0 });
        }
        let answer = self.session().call(limit, Repeat::Safe, |live| {
            let message = CutRequest {
                stream_id: info.stream_id,
                starts: starts.clone(),
                rows_max: options.rows_max,
                bytes_max: options.bytes_max,
                at_index: options.at,
                timeout_ms: limit.node_timeout_ms(),
            };
            async move { live.transport.cut(message, limit.deadline).await }
        });
        let answer = answer.await.map_err(|failure| info.name(failure))?;
        if answer.partitions.iter().any(|told| info.ordinal(told.partition_id).is_none()) {
            info = self.refresh_within(limit).await?;
        }
        let (mut ends, mut begins) = (BTreeMap::new(), BTreeMap::new());
        for told in answer.partitions {
            let ordinal = info.answered_ordinal(told.partition_id)?;
            ends.insert(ordinal, told.end_offset);
            begins.insert(ordinal, told.start_offset);
        }
        Ok(Cut {
            global_index: answer.global_index,
            ends,
            starts: begins,
            rows: answer.rows,
            bytes: answer.bytes,
            complete: answer.complete,
        })
    }
}
