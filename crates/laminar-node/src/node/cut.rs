//! Consistent cuts: how far all partitions of a stream can be read without seeing half of a commit.

use std::collections::BTreeMap;

use laminar_core::ids::{LogIndex, PartitionId};
use laminar_core::metadata::StreamDescriptor;
use laminar_log::cut::{CutLimits, CutPart, cut};
use laminar_log::dispatcher::ClientId;
use laminar_log::partition_log::{PartitionLogStore, RecordPin};
use laminar_log::{PartitionLogIndex, PartitionStatus, SegmentedStateMachine};
use laminar_rpc::{Failure, proto};

use super::Node;
use super::read::first_readable;
use crate::error::of_log;
use crate::random;

/// A partition of the cut.
struct Place {
    id: PartitionId,
    log: PartitionLogStore,
    /// Nothing is dropped while it is looked at.
    _pin: RecordPin,
    status: PartitionStatus,
    /// Where the caller begins.
    from: u64,
}

impl Node {
    pub(crate) async fn cut(&self, request: proto::CutRequest) -> Result<proto::CutResponse, Failure> {
        let Some(named) = request.starts.first() else {
            return Err(Failure::invalid("cut refused, it names no partition; name at least one"));
        };
        self.stream_of(request.stream_id, named.partition_id)?;
        let client = ClientId(random::bits128());
        let timeout = self.timeout(request.timeout_ms);
        let at = match request.at_index {
            // Before the first entry there is nothing to wait for.
            Some(0) => LogIndex(0),
            at => self.wait_for(client, &[], at.unwrap_or(0), timeout).await?.index,
        };
        // Only now: whatever partition has a record up to there is in the metadata and in the log.
        let stream = self.stream_of(request.stream_id, named.partition_id)?;
        let starts = self.starts(&request, &stream)?;
        let mut machine = self.machine()?;
        let (made, coming): (Vec<PartitionId>, Vec<PartitionId>) =
            starts.keys().partition(|id| machine.owner(**id).is_some());
        if at > LogIndex(0) {
            machine = self.wait_for(client, &made, at.0, timeout).await?.machine;
        }
        let mut places = Vec::with_capacity(made.len());
        for id in made {
            places.push(self.place(&machine, id, starts[&id]).await?);
        }
        let limits = CutLimits { rows_max: request.rows_max, bytes_max: request.bytes_max };
        let found = tokio::task::spawn_blocking(move || furthest(places, at, limits)).await;
        let found =
            found.map_err(|_| Failure::internal("looking for a cut ended unexpectedly; report it"))?;
        let mut response = found.map_err(|failure| self.located(failure))?;
        // Known to the metadata and not carried into the log yet: nothing was written there.
        response.partitions.extend(coming.into_iter().map(|id| proto::PartitionCut {
            partition_id: id.0,
            start_offset: 0,
            end_offset: starts[&id],
        }));
        Ok(response)
    }

    /// Where the caller begins, of every partition that the stream has.
    fn starts(
        &self,
        request: &proto::CutRequest,
        stream: &StreamDescriptor,
    ) -> Result<BTreeMap<PartitionId, u64>, Failure> {
        let ids = stream.partition_ids.iter().flat_map(|range| range.iter());
        let mut starts: BTreeMap<PartitionId, u64> = ids.map(|id| (id, 0)).collect();
        for start in &request.starts {
            let id = PartitionId(start.partition_id);
            let Some(from) = starts.get_mut(&id) else {
                return Err(self.located(super::gone(request.stream_id, id)));
            };
            *from = start.offset;
        }
        Ok(starts)
    }

    async fn place(
        &self,
        machine: &SegmentedStateMachine,
        id: PartitionId,
        from: u64,
    ) -> Result<Place, Failure> {
        let log = machine.partition_log(id).ok_or_else(|| {
            let message = format!("partition {id}: its own log cannot be opened now; try again");
            self.located(Failure::unavailable(message).with("partition_id", id.0))
        })?;
        // Before the status is taken: what that says is there stays there.
        let pin = log.pin(PartitionLogIndex::NONE);
        let pin = pin.map_err(|error| self.located(of_log(&error).with("partition_id", id.0)))?;
        let status = self.readable(machine, id).await?;
        if from > status.next_offset {
            let end = status.next_offset;
            let message = format!(
                "partition {id}: cut refused, it is to begin at offset {from} and the partition ends at {end}; begin at its \
                 end or before"
            );
            let failure = Failure::invalid(message).with("partition_id", id.0);
            return Err(self.located(failure.with("offset", from).with("end_offset", end)));
        }
        Ok(Place { id, log, _pin: pin, status, from })
    }
}

fn furthest(places: Vec<Place>, at: LogIndex, limits: CutLimits) -> Result<proto::CutResponse, Failure> {
    let (mut parts, mut starts) = (Vec::with_capacity(places.len()), Vec::with_capacity(places.len()));
    for place in &places {
        let status = &place.status;
        let start = first_readable(&place.log, status)
            .map_err(|error| of_log(&error).with("partition_id", place.id.0))?;
        let end = (status.last_global <= at).then_some(status.next_offset);
        let (log, begin) = (place.log.clone(), place.from.max(start));
        parts.push(CutPart { log, begin, end, last: status.applied });
        starts.push(start);
    }
    let found = cut(&parts, at, limits).map_err(|error| of_log(&error))?;
    let cuts = places.iter().zip(starts).zip(&found.ends);
    let partitions = cuts.map(|((place, start_offset), end_offset)| proto::PartitionCut {
        partition_id: place.id.0,
        start_offset,
        end_offset: *end_offset,
    });
    Ok(proto::CutResponse {
        global_index: found.index.0,
        partitions: partitions.collect(),
        rows: found.rows,
        bytes: found.bytes,
        complete: found.complete,
    })
}
