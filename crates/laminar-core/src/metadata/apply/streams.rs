//! The rules of streams: which ids a new one gets, and what is left of a dropped one.

use crate::ids::{Epoch, NodeId, OwnerEpoch, PartitionId, PartitionRange, StreamId};
use crate::metadata::DeltaMetadata;
use crate::metadata::catalogue::{
    Retention, StreamDescriptor, StreamLimits, check_settings, check_stream_path,
};
use crate::metadata::history::OwnershipCause;
use crate::metadata::journal::Edit;
use crate::metadata::limits::{BOUND_QUERIES_MAX, Bound, Limit, STREAMS_MAX};
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
        Ok((StreamId(self.state().counters.stream_id), self.admit_partitions(partitions)?))
    }

    /// The ids that new partitions may have.
    fn admit_partitions(&self, partitions: u32) -> Result<PartitionRange, Rejection> {
        self.check_room_for_partitions(partitions)?;
        self.state()
            .unused_partitions(partitions)
            .ok_or(Rejection::LimitReached { limit: Limit::PartitionIds })
    }

    pub(super) fn create_stream(&mut self, stream: StreamDescriptor) {
        for &range in &stream.partition_ids {
            self.create_partitions(range);
            self.minted.push(Minted::Stream { stream_id: stream.stream_id, partitions: range });
        }
        let mut counters = self.state().counters;
        counters.stream_id = stream.stream_id.0 + 1;
        self.set_counters(counters);
        self.insert_stream(stream);
    }

    /// New partitions wait for an owner at the first epoch.
    fn create_partitions(&mut self, range: PartitionRange) {
        let waiting = OwnerEpoch { node_id: NodeId::UNASSIGNED, epoch: Epoch::FIRST };
        for partition_id in range.iter() {
            self.set_owner(partition_id, NodeId::UNASSIGNED, waiting, OwnershipCause::Created);
        }
        let mut counters = self.state().counters;
        counters.partition_id = u64::from(range.last().0) + 1;
        self.set_counters(counters);
    }

    pub(super) fn alter_stream(
        &mut self,
        path: &str,
        expected: StreamId,
        partitions: Option<u32>,
        retention: Option<Retention>,
        limits: Option<StreamLimits>,
    ) -> Result<(), Rejection> {
        check_stream_path(path)?;
        let stream = self.expected_stream(path, Some(expected))?;
        let (retention, limits) = (retention.unwrap_or(stream.retention), limits.unwrap_or(stream.limits));
        check_settings(&retention, &limits)?;
        let current = stream.partition_count();
        let added = match partitions {
            None => 0,
            Some(given) => {
                Bound::StreamPartitions.check(given as usize)?;
                given.checked_sub(current).ok_or_else(|| Rejection::PartitionsShrunk {
                    path: path.to_owned(),
                    current,
                    given,
                })?
            }
        };
        self.partitions_created += added as usize;
        Bound::BatchPartitions.check(self.partitions_created)?;
        let range = if added == 0 { None } else { Some(self.admit_partitions(added)?) };

        self.set_stream_settings(path, retention, limits);
        if let Some(range) = range {
            self.create_partitions(range);
            self.extend_stream(path, range);
            self.minted.push(Minted::Partitions(range));
        }
        Ok(())
    }

    /// The stream of this path, if it is the expected one (OWN-2).
    fn expected_stream(
        &self,
        path: &str,
        expected: Option<StreamId>,
    ) -> Result<&StreamDescriptor, Rejection> {
        let stream =
            self.state().stream(path).ok_or_else(|| Rejection::UnknownStream { path: path.to_owned() })?;
        let current = stream.stream_id;
        match expected.filter(|expected| *expected != current) {
            Some(expected) => Err(Rejection::StreamReplaced { path: path.to_owned(), expected, current }),
            None => Ok(stream),
        }
    }

    pub(super) fn drop_stream(&mut self, path: &str, expected: Option<StreamId>) -> Result<(), Rejection> {
        check_stream_path(path)?;
        let stream = self.expected_stream(path, expected)?;
        let (stream_id, ranges) = (stream.stream_id, stream.partition_ids.clone());
        for range in ranges {
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
        let of_stream = (stream_id, String::new())..(StreamId(stream_id.0 + 1), String::new());
        let bound: Vec<_> = self.state().bound_queries.range(of_stream).map(|(key, _)| key.clone()).collect();
        for key in bound {
            self.set_bound_query(key, None);
        }
        self.remove_stream(path);
        Ok(())
    }

    /// A compare-and-set on the query of a writer's name (OWN-2).
    pub(super) fn bind_query(
        &mut self,
        path: &str,
        stream_id: StreamId,
        writer: &str,
        query: &str,
        expected: Option<&str>,
    ) -> Result<(), Rejection> {
        check_stream_path(path)?;
        Bound::WriterBytes.check(writer.len())?;
        Bound::QueryBytes.check(query.len())?;
        self.expected_stream(path, Some(stream_id))?;
        let current = self.state().bound_query(stream_id, writer);
        if current != expected {
            return Err(Rejection::QueryChanged {
                path: path.to_owned(),
                writer: writer.to_owned(),
                expected: expected.map(str::to_owned),
                current: current.map(str::to_owned),
            });
        }
        if current.is_none() && self.state().bound_queries.len() >= BOUND_QUERIES_MAX {
            return Err(Rejection::LimitReached { limit: Limit::BoundQueries });
        }
        if current != Some(query) {
            self.set_bound_query((stream_id, writer.to_owned()), Some(query.to_owned()));
        }
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
