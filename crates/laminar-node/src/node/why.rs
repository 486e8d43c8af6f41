//! The story of a partition: who owned it when, why it changed hands, and which writes were refused.

use laminar_core::ids::{NodeId, PartitionId};
use laminar_core::metadata::DeltaMetadata;
use laminar_rpc::{Failure, proto};

use super::Node;
use super::locate::writer_name;

impl Node {
    pub(crate) async fn why(&self, request: &proto::WhyRequest) -> Result<proto::WhyResponse, Failure> {
        self.current().await?;
        let stream = self.stream_at(&request.path)?;
        let count = stream.partition_count();
        if let Some(asked) = request.partition.filter(|asked| *asked >= count) {
            let message = format!(
                "stream {}: there is no partition {asked}; it has {count}, from 0 to {}",
                stream.path,
                count.saturating_sub(1)
            );
            return Err(Failure::invalid(message).with("stream", stream.path.as_str()));
        }
        let ids = stream.partition_ids.iter().flat_map(|range| range.iter());
        let chosen =
            (0_u32..).zip(ids).filter(|(ordinal, _)| request.partition.is_none_or(|asked| asked == *ordinal));
        let partitions = self
            .inner
            .metadata
            .read_local(|metadata| chosen.map(|(ordinal, id)| self.story(metadata, ordinal, id)).collect());
        Ok(proto::WhyResponse { partitions })
    }

    fn story(&self, metadata: &DeltaMetadata, partition: u32, id: PartitionId) -> proto::PartitionStory {
        let refused = self.inner.refused.of(id);
        let owner = metadata.partition_owner(id).unwrap_or(NodeId::UNASSIGNED);
        let steps = metadata.history(id).map(|event| proto::OwnershipStep {
            epoch: event.epoch.get(),
            owner: event.owner.0,
            previous_owner: event.previous_owner.0,
            cause: event.cause.to_string(),
            time_ms: event.time_ms,
            metadata_index: event.log_index.0,
            writer: writer_name(metadata, event.owner),
            previous_writer: writer_name(metadata, event.previous_owner),
        });
        proto::PartitionStory {
            partition,
            partition_id: id.0,
            owner: owner.0,
            epoch: metadata.partition_epoch(id).map_or(0, |epoch| epoch.get()),
            writer: writer_name(metadata, owner),
            steps: steps.collect(),
            refused: refused.count,
            last_refused: refused.last.into(),
            refused_since_ms: self.inner.refused.since_ms,
        }
    }
}
