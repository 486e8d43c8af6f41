//! Whether a run still has what it claimed, asked by its tasks while they work.

use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_core::metadata::{DeltaMetadata, PartitionOwnership};
use laminar_log::verdict::Refusal;
use laminar_rpc::{Failure, proto};
use tokio::time::Instant;

use crate::node::queries::{check_query, is_committed};
use crate::node::{Node, gone, lock};

/// A partition that is not as a run thinks.
enum Lost {
    Gone(PartitionId),
    To(PartitionId, PartitionOwnership, Epoch),
}

impl Node {
    /// Changes nothing but when the run was heard.
    pub(crate) async fn check_run(
        &self,
        request: proto::CheckRunRequest,
    ) -> Result<proto::CheckRunResponse, Failure> {
        request.batch.as_ref().map_or(Ok(()), |batch| check_query(&batch.query))?;
        let node_id = NodeId(request.node_id);
        self.current().await?;
        let lost = self.inner.metadata.read_local(|metadata| first_lost(metadata, &request, node_id))?;
        match lost {
            Some(Lost::Gone(partition)) => Err(gone(request.stream_id, partition)),
            Some(Lost::To(partition, now, given)) => {
                let refusal = Refusal::StaleEpoch {
                    partition,
                    given,
                    given_owner: node_id,
                    current: now.epoch,
                    owner: now.node_id,
                    since_ms: u64::try_from(now.assigned_at_ms).unwrap_or(0),
                    batch_committed: self.landed(&request).await?,
                };
                let failure = self.explained(request.batch.is_some(), &refusal);
                // The task that hears it writes no more: this is the refusal that `why` is asked for.
                self.remember(partition, node_id, given.get(), 0, &failure);
                Err(failure)
            }
            None => {
                if let Some(heard) = lock(&self.inner.workers).get_mut(&node_id) {
                    *heard = Instant::now();
                }
                Ok(proto::CheckRunResponse {})
            }
        }
    }

    async fn landed(&self, request: &proto::CheckRunRequest) -> Result<Option<bool>, Failure> {
        let Some(batch) = &request.batch else { return Ok(Some(false)) };
        let last = self.last_committed(request.stream_id, &batch.query, self.timeout(0)).await?;
        Ok(is_committed(last, batch.number))
    }
}

fn first_lost(
    metadata: &DeltaMetadata,
    request: &proto::CheckRunRequest,
    node_id: NodeId,
) -> Result<Option<Lost>, Failure> {
    for held in &request.partitions {
        let partition = PartitionId(held.partition_id);
        let epoch = Epoch::new(held.epoch).map_err(|error| Failure::invalid(error.to_string()))?;
        let is_of_stream =
            metadata.stream_of(partition).is_some_and(|stream| stream.stream_id.0 == request.stream_id);
        match metadata.partition_ownership(partition).filter(|_| is_of_stream) {
            None => return Ok(Some(Lost::Gone(partition))),
            Some(now) if (now.node_id, now.epoch) != (node_id, epoch) => {
                return Ok(Some(Lost::To(partition, now.clone(), epoch)));
            }
            Some(_) => {}
        }
    }
    Ok(None)
}
