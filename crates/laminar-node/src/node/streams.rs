//! Streams: made, described, altered, dropped.
//!
//! A stream comes to be in the metadata; its partitions wait for an owner there, are given to servers, and are then carried
//! into the data log. A crash between these steps leaves the rest to the next opening.

use laminar_core::ids::{DataGroupId, PartitionId, StreamId};
use laminar_core::metadata::{
    DeltaMetadata, MetadataChange, PARTITIONS_PER_STREAM_MAX, Rejection, Retention, StreamDescriptor,
    StreamLimits, StreamMachine,
};
use laminar_raft::{CoordinationError, NotServing};
use laminar_rpc::{Failure, proto};

use super::locate::writer_name;
use super::{Node, request_id};
use crate::error::of_rejection;

impl Node {
    pub(crate) async fn create_stream(
        &self,
        request: proto::CreateStreamRequest,
    ) -> Result<proto::StreamDescription, Failure> {
        let machine: StreamMachine = request
            .machine
            .parse()
            .map_err(|error: laminar_core::error::InvalidError| Failure::invalid(error.to_string()))?;
        let path = request.path.clone();
        self.check_machine(&path, &machine)?;
        let change = MetadataChange::CreateStream {
            path: request.path,
            partitions: request.partitions,
            schema: request.schema.to_vec(),
            key: request.key,
            machine,
            data_group: DataGroupId(0),
            retention: retention(request.retention.as_ref()),
            limits: limits(request.limits.as_ref()),
        };
        match self.try_change(request_id(request.request.as_ref()), vec![change]).await? {
            Ok(_) => {}
            Err(Rejection::StreamExists { .. }) => {
                let message = format!("stream {path}: it exists already; open it, or choose another path");
                return Err(Failure::invalid(message).with("stream", path.as_str()).with("exists", true));
            }
            Err(rejection) => return Err(of_rejection(&rejection)),
        }
        self.settle_stream(&path).await
    }

    /// Refuses a machine that is not here: the stream would be there, and never take a row.
    fn check_machine(&self, path: &str, machine: &StreamMachine) -> Result<(), Failure> {
        let StreamMachine::Custom(name) = machine else { return Ok(()) };
        let known = self.inner.machines.names();
        if known.contains(name) {
            return Ok(());
        }
        let known: Vec<&str> = ["log", "kv"].into_iter().chain(known.iter().map(String::as_str)).collect();
        let message = format!(
            "stream {path}: the node has no machine {name:?}, it has {}; choose one of these, or open the node with it",
            known.join(", ")
        );
        Err(Failure::invalid(message).with("stream", path))
    }

    pub(crate) async fn alter_stream(
        &self,
        request: proto::AlterStreamRequest,
    ) -> Result<proto::StreamDescription, Failure> {
        let stream = self.stream_at(&request.path)?;
        let expected = if request.stream_id == 0 { stream.stream_id } else { StreamId(request.stream_id) };
        let change = MetadataChange::AlterStream {
            path: request.path.clone(),
            expected,
            partitions: request.partitions,
            retention: request.retention.as_ref().map(|given| retention(Some(given))),
            limits: request.limits.as_ref().map(|given| limits(Some(given))),
        };
        self.change(request_id(request.request.as_ref()), vec![change]).await?;
        self.settle_stream(&request.path).await
    }

    /// Gives the new partitions of a stream to servers, and carries them into the data log.
    async fn settle_stream(&self, path: &str) -> Result<proto::StreamDescription, Failure> {
        self.assign_unowned().await?;
        let stream = self.stream_at(path)?;
        let ids: Vec<PartitionId> = stream.partition_ids.iter().flat_map(|range| range.iter()).collect();
        self.carry(&ids).await?;
        // What this node has changed it has applied: nothing is to be waited for.
        let stream = self.stream_at(path)?;
        Ok(self.inner.metadata.read_local(|metadata| description(metadata, &stream, true)))
    }

    pub(crate) async fn drop_stream(
        &self,
        request: proto::DropStreamRequest,
    ) -> Result<proto::DropStreamResponse, Failure> {
        let id = request_id(request.request.as_ref());
        let stream = self.inner.metadata.read_local(|metadata| metadata.stream(&request.path).cloned());
        let expected = (request.stream_id != 0).then_some(StreamId(request.stream_id));
        let change = MetadataChange::DropStream { path: request.path.clone(), expected };
        self.change(id, vec![change]).await?;
        if let Some(stream) = stream {
            let ids: Vec<PartitionId> = stream.partition_ids.iter().flat_map(|range| range.iter()).collect();
            self.carry(&ids).await?;
            for id in ids {
                self.inner.refused.forget(id);
            }
        }
        Ok(proto::DropStreamResponse {})
    }

    pub(crate) async fn describe_stream(&self, path: &str) -> Result<proto::StreamDescription, Failure> {
        self.current().await?;
        let stream = self.stream_at(path)?;
        Ok(self.inner.metadata.read_local(|metadata| description(metadata, &stream, true)))
    }

    pub(crate) async fn list_streams(&self, prefix: &str) -> Result<proto::ListStreamsResponse, Failure> {
        self.current().await?;
        let streams = self.inner.metadata.read_local(|metadata| {
            metadata.streams(prefix).map(|stream| description(metadata, stream, false)).collect()
        });
        Ok(proto::ListStreamsResponse { streams })
    }

    /// Waits until everything is here that was acknowledged before.
    pub(crate) async fn current(&self) -> Result<(), Failure> {
        match self.inner.metadata.read_linearizable(|_| ()).await {
            // Of the only voter, as for rows: what it has applied is all that was ever acknowledged.
            Ok(()) | Err(CoordinationError::NotServing(NotServing::Rebuilding)) => Ok(()),
            Err(error) => Err(crate::error::of_coordination(&error)),
        }
    }

    pub(crate) async fn metadata(&self, linearizable: bool) -> Result<proto::MetadataResponse, Failure> {
        if linearizable {
            self.current().await?;
        }
        Ok(self.inner.metadata.read_local(|metadata| proto::MetadataResponse {
            snapshot: metadata.snapshot().into(),
            metadata_index: metadata.last_applied_log().0,
        }))
    }

    pub(crate) async fn snapshot(&self, group: &str) -> Result<proto::SnapshotResponse, Failure> {
        match group {
            "metadata" => {
                self.inner
                    .metadata
                    .snapshot()
                    .await
                    .map_err(|error| crate::error::of_coordination(&error))?;
            }
            "data" => {
                self.inner.data.snapshot().await.map_err(|error| crate::error::of_not_serving(&error))?
            }
            other => {
                return Err(Failure::invalid(format!(
                    "group {other:?}: there is none; it is metadata or data"
                )));
            }
        }
        Ok(proto::SnapshotResponse {})
    }
}

/// A stream as clients know it, with its partitions' owners or without.
pub(super) fn description(
    metadata: &DeltaMetadata,
    stream: &StreamDescriptor,
    owners: bool,
) -> proto::StreamDescription {
    let ids =
        stream.partition_ids.iter().flat_map(|range| range.iter()).take(PARTITIONS_PER_STREAM_MAX as usize);
    let partitions = ids.map(|id| match metadata.partition_ownership(id) {
        Some(ownership) if owners => proto::PartitionDescription {
            partition_id: id.0,
            owner: ownership.node_id.0,
            epoch: ownership.epoch.get(),
            writer: writer_name(metadata, ownership.node_id),
        },
        _ => proto::PartitionDescription { partition_id: id.0, ..Default::default() },
    });
    proto::StreamDescription {
        path: stream.path.clone(),
        stream_id: stream.stream_id.0,
        schema: stream.schema.clone().into(),
        key: stream.key.clone(),
        machine: stream.machine.to_string(),
        retention: Some(proto::Retention { age_ms: stream.retention.age_ms, bytes: stream.retention.bytes }),
        limits: Some(proto::StreamLimits { row_bytes_max: stream.limits.row_bytes_max }),
        created_at_ms: stream.created_at_ms,
        partitions: partitions.collect(),
        metadata_index: metadata.last_applied_log().0,
    }
}

fn retention(given: Option<&proto::Retention>) -> Retention {
    given.map_or_else(Retention::default, |given| Retention { age_ms: given.age_ms, bytes: given.bytes })
}

fn limits(given: Option<&proto::StreamLimits>) -> StreamLimits {
    given.map_or_else(StreamLimits::default, |given| StreamLimits { row_bytes_max: given.row_bytes_max })
}
