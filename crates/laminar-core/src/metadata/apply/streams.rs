//! The rules of streams: which ids a new one gets, and what is left of a dropped one.

use crate::ids::{Epoch, NodeId, OwnerEpoch, PartitionId, PartitionRange, StreamId};
use crate::metadata::DeltaMetadata;
use crate::metadata::catalogue::{StreamDescriptor, check_stream_path};
use crate::metadata::history::OwnershipCause;
use crate::metadata::journal::Edit;
use crate::metadata::limits::{Limit, STREAMS_MAX};
use crate::metadata::response::{Minted, Rejection};

impl Edit<'_> {
    /// The ids that a new stream may have.
    pub(super) fn admit_stream(
        &self,
        path: &str,
        partitions: u32,
    ) -> Result<(StreamId, PartitionRange), Rejection> {
        if let Some(stream) = self.state().stream(path) {
            return Err(Rejection::StreamExists { path: path.to_owned(), stream_id: stream.stream_id });
        }
        if self.state().streams.len() >= STREAMS_MAX {
            return Err(Rejection::LimitReached { limit: Limit::Streams });
        }
        self.check_room_for_partitions(partitions)?;
        let range = self
            .state()
            .unused_partitions(partitions)
            .ok_or(Rejection::LimitReached { limit: Limit::PartitionIds })?;
        Ok((StreamId(self.state().counters.stream_id), range))
    }

    pub(super) fn create_stream(&mut self, stream: StreamDescriptor) {
        let mut counters = self.state().counters;
        counters.stream_id = stream.stream_id.0 + 1;
        let waiting = OwnerEpoch { node_id: NodeId::UNASSIGNED, epoch: Epoch::FIRST };
        for &range in &stream.partition_ids {
            counters.partition_id = u64::from(range.last().0) + 1;
            for partition_id in range.iter() {
                self.set_owner(partition_id, NodeId::UNASSIGNED, waiting, OwnershipCause::Created);
            }
            self.minted.push(Minted::Stream { stream_id: stream.stream_id, partitions: range });
        }
        self.set_counters(counters);
        self.insert_stream(stream);
    }

    pub(super) fn drop_stream(&mut self, path: &str, expected: Option<StreamId>) -> Result<(), Rejection> {
        check_stream_path(path)?;
        let stream =
            self.state().stream(path).ok_or_else(|| Rejection::UnknownStream { path: path.to_owned() })?;
        let current = stream.stream_id;
        if let Some(expected) = expected.filter(|expected| *expected != current) {
            return Err(Rejection::StreamReplaced { path: path.to_owned(), expected, current });
        }
        for range in stream.partition_ids.clone() {
            for partition_id in range.iter() {
                self.set_ownership(partition_id, None);
                self.remove_release(partition_id);
                if self.state().latest_checkpoint(partition_id).is_some() {
                    self.set_checkpoint(partition_id, None);
                }
                self.remove_history(partition_id);
            }
            self.retire(range);
        }
        self.remove_stream(path);
        Ok(())
    }
}

impl DeltaMetadata {
    /// The lowest run of `count` ids that no partition has or had.
    ///
    /// Streams take ids from the counter on, around partitions that were assigned by number. Counting from the
    /// highest id instead would let one assignment of partition 4,294,967,295 end the creation of streams for good.
    fn unused_partitions(&self, count: u32) -> Option<PartitionRange> {
        let mut first = self.counters.partition_id;
        if let Ok(start) = u32::try_from(first) {
            for (taken, _) in self.partition_map.range(PartitionId(start)..) {
                if u64::from(taken.0) - first >= u64::from(count) {
                    break;
                }
                first = u64::from(taken.0) + 1;
            }
        }
        let last = u32::try_from(first + u64::from(count) - 1).ok()?;
        PartitionRange::new(PartitionId(u32::try_from(first).ok()?), PartitionId(last))
    }
}
