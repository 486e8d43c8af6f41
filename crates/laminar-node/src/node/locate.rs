//! Finds streams and partitions, and names them in errors as users know them.

use laminar_core::ids::{NodeId, OwnerEpoch, PartitionId, StreamId};
use laminar_core::metadata::{DeltaMetadata, StreamDescriptor};
use laminar_core::node::NodeRegistration;
use laminar_log::SegmentedStateMachine;
use laminar_raft::NotServing;
use laminar_rpc::{ErrorClass, Failure};

use super::Node;
use crate::error::of_not_serving;

/// The tags under which a worker's registration says what it is.
pub(crate) mod tags {
    pub(crate) const WRITER: &str = "writer";
    pub(crate) const STREAM: &str = "stream";
    pub(crate) const HOST: &str = "host";
    pub(crate) const PID: &str = "pid";
    pub(crate) const RUN: &str = "run";
    pub(crate) const STREAM_ID: &str = "stream_id";
    pub(crate) const QUERY: &str = "query";
}

/// A tag of a node, or nothing.
pub(crate) fn tag<'a>(node: &'a NodeRegistration, name: &str) -> &'a str {
    node.metadata.tags.get(name).map_or("", String::as_str)
}

/// The name of the writer that a node is a run of; empty for servers and for runs that are forgotten.
pub(crate) fn writer_name(metadata: &DeltaMetadata, node: NodeId) -> String {
    metadata.node(node).map_or_else(String::new, |node| tag(node, tags::WRITER).to_owned())
}

/// The place of a partition in its stream.
pub(crate) fn ordinal(stream: &StreamDescriptor, partition: PartitionId) -> Option<u32> {
    let mut before = 0_u64;
    for range in &stream.partition_ids {
        if range.contains(partition) {
            return u32::try_from(before + u64::from(partition.0 - range.first().0)).ok();
        }
        before += range.count();
    }
    None
}

/// A holder as people read it.
pub(crate) fn holder(metadata: &DeltaMetadata, node: NodeId) -> String {
    match (node.is_assigned(), writer_name(metadata, node)) {
        (false, _) => "nobody".to_owned(),
        (true, name) if name.is_empty() => format!("node {node}"),
        (true, name) => format!("writer {name:?} (node {node})"),
    }
}

impl Node {
    /// Refuses what a node that is going does not begin any more.
    pub(super) fn check_stays(&self) -> Result<(), Failure> {
        if self.is_stopping() {
            return Err(Failure::unavailable("the node is shutting down; try again"));
        }
        Ok(())
    }

    /// The partitions of the data group, once everything is there.
    pub(crate) fn machine(&self) -> Result<SegmentedStateMachine, Failure> {
        self.check_stays()?;
        match self.inner.data.serving_machine() {
            // Everything was there when the node was opened, and can be read while its storage is mended.
            Err(NotServing::Rebuilding) => Ok(self.inner.data.machine()),
            serving => serving.map_err(|error| of_not_serving(&error)),
        }
    }

    /// The stream of a path.
    pub(crate) fn stream_at(&self, path: &str) -> Result<StreamDescriptor, Failure> {
        laminar_core::metadata::check_stream_path(path)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        let found = self.inner.metadata.read_local(|metadata| metadata.stream(path).cloned());
        found.ok_or_else(|| {
            Failure::invalid(format!("stream {path}: there is no such stream; create it first"))
                .with("stream", path)
        })
    }

    /// The stream of an id, through one of its partitions: it may be dropped, and another be there under its path.
    pub(crate) fn stream_of(&self, stream_id: u64, partition: u32) -> Result<StreamDescriptor, Failure> {
        let partition = PartitionId(partition);
        let found = self.inner.metadata.read_local(|metadata| metadata.stream_of(partition).cloned());
        match found {
            Some(stream) if stream.stream_id == StreamId(stream_id) => Ok(stream),
            _ => Err(gone(stream_id, partition)),
        }
    }

    /// Adds to an error that names a partition by its id how users know it.
    pub(crate) fn located(&self, mut failure: Failure) -> Failure {
        let Some(id) = failure.number("partition_id").and_then(|id| u32::try_from(id).ok()) else {
            return failure;
        };
        let place = self.inner.metadata.read_local(|metadata| {
            let stream = metadata.stream_of(PartitionId(id))?;
            Some((stream.path.clone(), ordinal(stream, PartitionId(id))?))
        });
        if let Some((path, ordinal)) = place {
            let by_id = format!("partition {id}:");
            if failure.message.starts_with(&by_id) {
                failure.message =
                    failure.message.replacen(&by_id, &format!("{path} partition {ordinal}:"), 1);
            }
            failure = failure.with("stream", path).with("partition", ordinal);
        }
        failure
    }

    /// Who may write a partition now, by the data log.
    pub(crate) fn owner_in_log(&self, partition: PartitionId) -> Result<Option<OwnerEpoch>, Failure> {
        Ok(self.machine()?.owner(partition))
    }
}

/// A stream that is not there any more.
pub(crate) fn gone(stream_id: u64, partition: PartitionId) -> Failure {
    Failure::new(
        ErrorClass::UnknownPartition,
        format!(
            "partition {partition}: refused, stream {stream_id} does not have it; the stream was dropped, open it again"
        ),
    )
    .with("partition_id", partition.0)
}
