//! Offsets, barriers, keys and trims.

use laminar_core::ids::{Epoch, LogIndex, NodeId, OwnerEpoch, PartitionId};
use laminar_core::metadata::StreamMachine;
use laminar_log::dispatcher::ClientId;
use laminar_log::entry::{Change, Entry, MachineKind, PartitionRecord, Record, TrimTo};
use laminar_log::partition_log::PartitionLogStore;
use laminar_log::{LogError, PartitionLogIndex, PartitionStatus, SegmentedStateMachine};
use laminar_rpc::{ErrorClass, Failure, proto};
use xxhash_rust::xxh3::xxh3_128;

use super::Node;
use super::read::first_readable;
use crate::error::of_log;
use crate::random;

/// Bytes of keys and values in one piece of a scan.
const PIECE_BYTES: usize = 1 << 20;

impl Node {
    pub(crate) async fn offsets(
        &self,
        request: proto::OffsetsRequest,
    ) -> Result<proto::OffsetsResponse, Failure> {
        let ids: Vec<PartitionId> = request.partition_ids.iter().copied().map(PartitionId).collect();
        for id in &ids {
            self.stream_of(request.stream_id, id.0)?;
        }
        let machine = if request.linearizable || request.at_index.is_some() {
            let client = ClientId(random::bits128());
            self.wait_for(client, &ids, request.at_index.unwrap_or(0), self.timeout(0)).await?.machine
        } else {
            self.machine()?
        };
        let (at, time_ms) = (request.at_index.map(LogIndex), request.time_ms);
        let mut partitions = Vec::with_capacity(ids.len());
        for id in ids {
            partitions.push(self.offsets_of(&machine, id, at, time_ms).await?);
        }
        Ok(proto::OffsetsResponse { partitions })
    }

    async fn offsets_of(
        &self,
        machine: &SegmentedStateMachine,
        id: PartitionId,
        at: Option<LogIndex>,
        time_ms: Option<u64>,
    ) -> Result<proto::PartitionOffsets, Failure> {
        let status = machine.status(id).ok_or_else(|| self.vanished(id))?;
        let knows_start = status.machine == MachineKind::Log;
        let knows_end = at.is_none_or(|at| status.last_global <= at);
        if knows_start && knows_end && time_ms.is_none() {
            let (start_offset, end_offset) = (status.start_offset, status.next_offset);
            return Ok(proto::PartitionOffsets {
                partition_id: id.0,
                start_offset,
                end_offset,
                time_offset: end_offset,
            });
        }
        // Only a log that has all of the partition can say where something is.
        let status = self.readable(machine, id).await?;
        let log = machine.partition_log(id).ok_or_else(|| self.vanished(id))?;
        let found = tokio::task::spawn_blocking(move || find(&log, &status, at, time_ms)).await;
        let found =
            found.map_err(|_| Failure::internal("looking for offsets ended unexpectedly; report it"))?;
        let (start_offset, end_offset, time_offset) =
            found.map_err(|error| self.located(of_log(&error).with("partition_id", id.0)))?;
        Ok(proto::PartitionOffsets { partition_id: id.0, start_offset, end_offset, time_offset })
    }

    pub(crate) async fn barrier(
        &self,
        request: proto::BarrierRequest,
    ) -> Result<proto::BarrierResponse, Failure> {
        let ids: Vec<PartitionId> = request.partition_ids.iter().copied().map(PartitionId).collect();
        for id in &ids {
            self.stream_of(request.stream_id, id.0)?;
        }
        let client = ClientId(xxh3_128(request.client_id.as_bytes()));
        let timeout = self.timeout(request.timeout_ms);
        let reached = self.wait_for(client, &ids, request.global_index, timeout).await?;
        Ok(proto::BarrierResponse { global_index: reached.index.0 })
    }

    pub(crate) async fn get(&self, request: proto::GetRequest) -> Result<proto::GetResponse, Failure> {
        let partition = self.keyed(request.stream_id, request.partition_id)?;
        let client = ClientId(random::bits128());
        let reached = self.wait_for(client, &[partition], 0, self.timeout(request.timeout_ms)).await?;
        let value = reached.machine.with_machine(partition, |machine| machine.get(&request.key)).await;
        let value = value.ok_or_else(|| self.vanished(partition))?;
        Ok(proto::GetResponse { value, global_index: reached.index.0 })
    }

    pub(crate) async fn scan(
        &self,
        request: proto::ScanRequest,
    ) -> Result<Vec<proto::ScanResponse>, Failure> {
        let partition = self.keyed(request.stream_id, request.partition_id)?;
        let client = ClientId(random::bits128());
        let reached = self.wait_for(client, &[partition], 0, self.timeout(request.timeout_ms)).await?;
        let pairs = reached.machine.with_machine(partition, |machine| machine.scan()).await;
        let pairs = pairs.ok_or_else(|| self.vanished(partition))?;
        let mut pieces = Vec::new();
        let (mut piece, mut bytes) = (proto::ScanResponse::default(), 0);
        for (key, value) in pairs {
            bytes += key.len() + value.len();
            piece.pairs.push(proto::KeyValue { key, value });
            if bytes >= PIECE_BYTES {
                pieces.push(std::mem::take(&mut piece));
                bytes = 0;
            }
        }
        if !piece.pairs.is_empty() {
            pieces.push(piece);
        }
        Ok(pieces)
    }

    fn keyed(&self, stream_id: u64, partition: u32) -> Result<PartitionId, Failure> {
        let stream = self.stream_of(stream_id, partition)?;
        if stream.machine != StreamMachine::Kv {
            let message = format!(
                "stream {}: it keeps no keys, its machine is {}; create it with machine=\"kv\"",
                stream.path, stream.machine
            );
            return Err(Failure::invalid(message).with("stream", stream.path));
        }
        Ok(PartitionId(partition))
    }

    pub(crate) async fn trim(&self, request: proto::TrimRequest) -> Result<proto::TrimResponse, Failure> {
        self.stream_of(request.stream_id, request.partition_id)?;
        let partition = PartitionId(request.partition_id);
        let change = Change::Trim(TrimTo::Offset(request.offset));
        self.change_partition(partition, request.owner, request.epoch, change).await?;
        let status = self.machine()?.status(partition).ok_or_else(|| self.vanished(partition))?;
        Ok(proto::TrimResponse { start_offset: status.start_offset })
    }

    pub(crate) async fn skip(&self, request: proto::SkipRequest) -> Result<proto::SkipResponse, Failure> {
        let partition = PartitionId(request.partition_id);
        let status = self.machine()?.status(partition).ok_or_else(|| self.vanished(partition))?;
        let stands_at = status.paused.is_some().then_some(status.applied.0 + 1);
        // Who is stale is told so by the log, whatever it asks for.
        let current = (request.owner, request.epoch) == (0, 0)
            || (request.owner, request.epoch) == (status.owner.0, status.epoch.get());
        if current && stands_at != Some(request.index) {
            let stands = stands_at
                .map_or_else(|| "it is not paused".to_owned(), |at| format!("it stands at record {at}"));
            let message = format!(
                "partition {partition}: skip of record {} refused, {stands}; only the record that a partition stands at can be \
                 left out",
                request.index
            );
            return Err(self.located(Failure::invalid(message).with("partition_id", partition.0)));
        }
        let change = Change::Skip(PartitionLogIndex(request.index));
        self.change_partition(partition, request.owner, request.epoch, change).await?;
        Ok(proto::SkipResponse {})
    }

    /// Proposes a change of one partition, under a writer's epoch, or under the server's if owner and epoch are 0.
    async fn change_partition(
        &self,
        partition: PartitionId,
        owner: u64,
        epoch: u64,
        change: Change,
    ) -> Result<(), Failure> {
        let current = self.owner_in_log(partition)?.ok_or_else(|| self.vanished(partition))?;
        let OwnerEpoch { node_id: owner, epoch } = match (owner, epoch) {
            (0, 0) if current.node_id.is_worker() => {
                let message = format!(
                    "partition {partition}: change refused, node {} holds it at epoch {}; make it as that writer",
                    current.node_id, current.epoch
                );
                let failure = Failure::new(ErrorClass::NotOwned, message)
                    .with("partition_id", partition.0)
                    .with("owner", current.node_id.0);
                return Err(self.located(failure));
            }
            (0, 0) => current,
            (owner, epoch) => OwnerEpoch {
                node_id: NodeId(owner),
                epoch: Epoch::new(epoch).map_err(|error| Failure::invalid(error.to_string()))?,
            },
        };
        let record = Record::Partition(PartitionRecord { partition, owner, epoch, change });
        let entry = Entry { records: vec![record], ..Entry::default() };
        // What it says holds once it is decided; a paused partition may apply it much later.
        match self.decide(entry).await? {
            Ok(()) => {
                // A partition that goes on has done it when the caller is answered; one that stands still must not hold
                // the answer up.
                let client = ClientId(random::bits128());
                drop(self.wait_for(client, &[partition], 0, self.timeout(0)).await);
                Ok(())
            }
            Err(refusal) => {
                let request = proto::AppendRequest { owner: owner.0, ..Default::default() };
                Err(self.refused(&request, &refusal))
            }
        }
    }

    pub(crate) fn resume(&self, request: &proto::ResumeRequest) -> Result<proto::ResumeResponse, Failure> {
        let partition = PartitionId(request.partition_id);
        let machine = self.machine()?;
        if machine.owner(partition).is_none() {
            return Err(self.vanished(partition));
        }
        Ok(proto::ResumeResponse { resumed: machine.resume(partition) })
    }
}

/// The first row of a partition, its end as of an entry, and the first row at or after a time.
fn find(
    log: &PartitionLogStore,
    status: &PartitionStatus,
    at: Option<LogIndex>,
    time_ms: Option<u64>,
) -> Result<(u64, u64, u64), LogError> {
    let start = first_readable(log, status)?;
    let end = match at {
        Some(at) if status.last_global > at => log.end_at(at, status.applied)?.1,
        _ => status.next_offset,
    };
    let mut time_offset = end;
    if let Some(time_ms) = time_ms
        && let Some(found) = log.find_time(time_ms, status.applied)?
    {
        time_offset = log.header(found)?.first_offset.max(start).min(end);
    }
    Ok((start, end, time_offset))
}
