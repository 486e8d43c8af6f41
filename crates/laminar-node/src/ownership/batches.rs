//! Claims for a batch of a query: what every task of a run asks before it writes.
//!
//! ```text
//!   run        its batch against the last committed    becomes
//!   unseen     above, or nothing is committed          it claims the whole stream
//!              equal                                   acknowledged; nothing is claimed
//!              below                                   refused: stale if another run holds the stream, else invalid
//!   holding    above, equal                            it goes on
//!              below                                   refused: invalid
//!   over       any                                     refused: stale, for good
//! ```
//!
//! So a driver that was paused before its first task cannot fence its successor: once the successor has committed that
//! batch, it is not above the last one any more. The order of the three steps is what makes this hold:
//!
//! 1. owners and epochs, from the metadata, linearizable;
//! 2. the last committed batch, from the data log, linearizable;
//! 3. a compare-and-set on what step 1 read.
//!
//! A successor that claimed after step 1 makes step 3 fail. One that claimed before it, and committed before step 2, is
//! seen in step 2. One that claimed before and has not committed yet is superseded as any holder is, and its commit is then
//! refused by the log, or lands before the fence and makes ours a duplicate (TXN-1).
//!
//! A run is found by its tag, because the table of answered requests forgets. It claims once: the batch of changes that
//! takes the partitions moves its registration from joining to active (as in `claim.rs`). A run that lost this race to
//! another is over, so that the retries of its tasks do not take the stream from the winner.
//!
//! A streaming query binds the writer's name: another query that comes with it has lost its checkpoint, and would write
//! everything again. A batch job has none to lose, and leaves the name free.

use std::collections::BTreeMap;

use laminar_core::ids::{NodeId, OwnerEpoch, PartitionId, RequestId};
use laminar_core::metadata::{
    DeltaMetadata, MetadataChange, OwnershipCause, PartitionOwnership, Rejection, StreamDescriptor,
};
use laminar_core::node::{NodeRegistration, NodeState};
use laminar_log::verdict::Refusal;
use laminar_rpc::{ErrorClass, Failure, proto, utc};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_128;

use super::claim::owners_of;
use crate::error::of_rejection;
use crate::node::queries::{check_query, is_committed};
use crate::node::{Node, holder, lock, request_id, tag, tags, writer_name};

/// How often it is looked again when the metadata changes under a claim.
const ATTEMPTS: u32 = 16;

/// What is asked for.
struct Asked {
    stream_id: u64,
    writer: String,
    query: String,
    number: u64,
    /// In 32 hexadecimal digits.
    run: String,
    adopt_query: bool,
    unbound: bool,
    host: String,
    pid: u32,
}

/// What the metadata says, all at one index.
struct Found {
    stream: StreamDescriptor,
    run: Option<Run>,
    owners: Vec<(PartitionId, PartitionOwnership)>,
    /// The query that the writer is bound to.
    bound: Option<String>,
}

/// A run that has registered for this stream.
struct Run {
    node_id: NodeId,
    state: NodeState,
    writer: String,
}

/// What a run needs to begin its batch.
enum Next {
    /// Nothing: the batch is committed.
    Committed,
    /// Nothing: it holds the stream.
    Holds(NodeId),
    /// These changes, all or none.
    Take(NodeId, Vec<MetadataChange>),
}

impl Node {
    pub(crate) async fn begin_batch(
        &self,
        request: proto::BeginBatchRequest,
    ) -> Result<proto::BeginBatchResponse, Failure> {
        let timeout = self.timeout(request.timeout_ms);
        let asked = Asked::new(request)?;
        for _ in 0..ATTEMPTS {
            self.current().await?;
            let found = self.find_run(&asked)?;
            // After the owners were read: see above.
            let last = self.last_committed(asked.stream_id, &asked.query, timeout).await?;
            let next = match &found.run {
                Some(run) if run.state != NodeState::Joining => {
                    self.next_of_known(&asked, &found, run, last).await?
                }
                _ => self.next_of_unseen(&asked, &found, last).await?,
            };
            let node_id = match next {
                Next::Committed => {
                    return Ok(proto::BeginBatchResponse {
                        committed: true,
                        last_batch: last,
                        ..Default::default()
                    });
                }
                Next::Holds(node_id) => node_id,
                Next::Take(node_id, changes) => match self.try_change(request_id(None), changes).await? {
                    Ok(_) => {
                        if found.run.as_ref().is_none_or(|run| run.state == NodeState::Joining) {
                            let takeover = found.owners.iter().any(|(_, owner)| owner.node_id.is_worker());
                            self.inner.figures.claimed(takeover);
                        }
                        node_id
                    }
                    Err(rejection) => {
                        self.look_again(&asked, &found, node_id, &rejection).await?;
                        continue;
                    }
                },
            };
            if let Some(begun) = self.begun(&asked, &found, node_id).await? {
                return Ok(begun);
            }
        }
        Err(Failure::unavailable(format!(
            "batch {} of query {}: the owners of its stream keep changing; try again",
            asked.number, asked.query
        )))
    }

    /// The answer to a run that holds the stream, once the data log has it too. None if it lost it meanwhile, or the
    /// stream got partitions.
    async fn begun(
        &self,
        asked: &Asked,
        found: &Found,
        node_id: NodeId,
    ) -> Result<Option<proto::BeginBatchResponse>, Failure> {
        let ids: Vec<PartitionId> = found.owners.iter().map(|(id, _)| *id).collect();
        self.carry(&ids).await?;
        lock(&self.inner.workers).insert(node_id, Instant::now());
        let owners = self.ownerships(&ids)?;
        let grown = self.stream_by_id(asked.stream_id)?.partition_count() != found.stream.partition_count();
        if grown || owners.iter().any(|(_, ownership)| ownership.node_id != node_id) {
            return Ok(None);
        }
        // Once more, behind the fence: the run before may have committed this batch up to there.
        let last = self.last_decided(asked.stream_id, &asked.query)?;
        if last.is_some_and(|last| asked.number < last) {
            return Err(asked.backwards(&found.stream, last));
        }
        Ok(Some(proto::BeginBatchResponse {
            node_id: node_id.0,
            partitions: self.describe_owners(&owners),
            committed: last == Some(asked.number),
            last_batch: last,
        }))
    }

    fn find_run(&self, asked: &Asked) -> Result<Found, Failure> {
        let stream = self.stream_by_id(asked.stream_id)?;
        let ids: Vec<PartitionId> = stream.partition_ids.iter().flat_map(|range| range.iter()).collect();
        // All at one index: of a run that another task claims for meanwhile, an old owner would look like a new one.
        let (owners, run, bound) = self.inner.metadata.read_local(|metadata| {
            let owners = owners_of(metadata, &ids)?;
            let run = asked.find(metadata, &owners);
            let bound = metadata.bound_query(stream.stream_id, &asked.writer).map(str::to_owned);
            Ok::<_, Failure>((owners, run, bound))
        })?;
        if let Some(run) = run.as_ref().filter(|run| run.writer != asked.writer) {
            return Err(Failure::invalid(format!(
                "run {} of stream {}: it began as writer {:?} and comes as writer {:?}; a run has one name on a stream",
                asked.run, stream.path, run.writer, asked.writer
            ))
            .with("stream", stream.path.as_str())
            .with("writer", asked.writer.as_str()));
        }
        Ok(Found { stream, run, owners, bound })
    }

    async fn next_of_unseen(&self, asked: &Asked, found: &Found, last: Option<u64>) -> Result<Next, Failure> {
        match last {
            Some(last) if last == asked.number => return Ok(Next::Committed),
            Some(last) if last > asked.number => return Err(self.behind(asked, found, last)),
            _ => {}
        }
        let binding = self.binding(asked, found).await?;
        let node_id = match &found.run {
            Some(run) => run.node_id,
            None => self.register(asked.registration_id(), asked.tags(&found.stream.path)).await?,
        };
        let mut changes = vec![MetadataChange::UpdateNodeState {
            node_id,
            state: NodeState::Active,
            metadata: None,
            expected: Some(NodeState::Joining),
        }];
        changes.extend(binding);
        for (id, ownership) in &found.owners {
            changes.push(acquire(*id, ownership, node_id)?);
        }
        Ok(Next::Take(node_id, changes))
    }

    async fn next_of_known(
        &self,
        asked: &Asked,
        found: &Found,
        run: &Run,
        last: Option<u64>,
    ) -> Result<Next, Failure> {
        let node_id = run.node_id;
        let (own, others): (Vec<_>, Vec<_>) =
            found.owners.iter().partition(|(_, ownership)| ownership.node_id == node_id);
        let over = matches!(run.state, NodeState::Left | NodeState::Draining) || own.is_empty();
        if over || others.iter().any(|(id, _)| self.may_have_held(*id, node_id)) {
            return Err(self.over(asked, found, node_id, last));
        }
        // Partitions that the stream got after the claim. One that another run holds is not ours to take.
        if let Some((id, ownership)) = others.iter().find(|(_, ownership)| ownership.node_id.is_worker()) {
            return Err(self.claimed(*id, ownership.node_id, ownership.epoch));
        }
        if last.is_some_and(|last| asked.number < last) {
            return Err(asked.backwards(&found.stream, last));
        }
        let mut changes = Vec::new();
        if run.state == NodeState::Failed {
            // It was not heard for a while, and nobody has claimed since.
            changes.push(MetadataChange::UpdateNodeState {
                node_id,
                state: NodeState::Active,
                metadata: None,
                expected: Some(NodeState::Failed),
            });
        }
        if found.bound.as_deref() != Some(asked.query.as_str()) {
            changes.extend(self.binding(asked, found).await?);
        }
        for (id, ownership) in &others {
            changes.push(acquire(*id, ownership, node_id)?);
        }
        if changes.is_empty() {
            return Ok(Next::Holds(node_id));
        }
        // All of this only if the run still has everything that it had when it was looked: were it superseded between the
        // look and the change, it would win something that its successor, who may not have seen the new partitions, could
        // not take back. The checks stand in the same batch, so either the successor's claim comes first and these fail, or
        // this comes first and the successor's compare-and-set on the same owners is looked at again.
        let checks = own.iter().map(|(id, ownership)| MetadataChange::CheckOwner {
            partition_id: *id,
            expected: ownership.owner_epoch(),
        });
        Ok(Next::Take(node_id, checks.chain(changes).collect()))
    }

    /// After a rejected change: whether it is worth another look. It is not if another run has won.
    async fn look_again(
        &self,
        asked: &Asked,
        found: &Found,
        node_id: NodeId,
        rejection: &Rejection,
    ) -> Result<(), Failure> {
        let reason = match rejection {
            Rejection::InBatch { reason, .. } => reason,
            other => other,
        };
        match reason {
            Rejection::StaleEpoch { .. }
            | Rejection::NotOwner { .. }
            | Rejection::UnknownPartition { .. }
            | Rejection::NodeStateChanged { .. }
            | Rejection::QueryChanged { .. }
            | Rejection::UnknownStream { .. }
            | Rejection::StreamReplaced { .. } => {}
            // It is forgotten: so many other runs have come and gone since.
            Rejection::UnknownNode { .. } => return Err(self.over(asked, found, node_id, None)),
            other => return Err(of_rejection(other)),
        }
        let ids: Vec<PartitionId> = found.owners.iter().map(|(id, _)| *id).collect();
        let owners = self.ownerships(&ids)?;
        let state = self.inner.metadata.read_local(|metadata| metadata.node(node_id).map(|node| node.state));
        let seen = |node: NodeId| found.owners.iter().any(|(_, ownership)| ownership.node_id == node);
        let winner = owners.iter().find(|(_, ownership)| {
            let owner = ownership.node_id;
            owner.is_worker() && owner != node_id && !seen(owner)
        });
        match winner {
            // Unless another task of this run has claimed: then the next look tells who has it now.
            Some((id, ownership)) if state == Some(NodeState::Joining) => {
                self.update(node_id, NodeState::Left, Some(NodeState::Joining)).await?;
                Err(self.beaten(asked, node_id, *id, ownership))
            }
            _ => Ok(()),
        }
    }

    /// The change that binds the writer to the query, if it may be; none for one that does not want it.
    async fn binding(&self, asked: &Asked, found: &Found) -> Result<Option<MetadataChange>, Failure> {
        if asked.unbound {
            return Ok(None);
        }
        if let Some(bound) = found.bound.as_deref()
            && bound != asked.query
            && !asked.adopt_query
            && self.last_committed(asked.stream_id, bound, self.timeout(0)).await?.is_some()
        {
            let (writer, query, path) = (&asked.writer, &asked.query, &found.stream.path);
            let message = format!(
                "stream {path}: writer {writer:?} belongs to query {bound} and query {query} comes with its name; a checkpoint \
                 that was deleted or moved gives a query another id, and what the other wrote would be written again; \
                 restore the checkpoint, choose another writer, or allow it with adoptQuery=true"
            );
            return Err(Failure::invalid(message)
                .with("stream", path.as_str())
                .with("writer", writer.as_str())
                .with("query", query.as_str())
                .with("bound_query", bound));
        }
        Ok(Some(MetadataChange::BindQuery {
            path: found.stream.path.clone(),
            stream_id: found.stream.stream_id,
            writer: asked.writer.clone(),
            query: asked.query.clone(),
            expected: found.bound.clone(),
        }))
    }

    /// Whether a run had a partition that another has now. Of one whose first steps are forgotten nobody knows: the run is
    /// not given it, since it must never win back what it lost.
    fn may_have_held(&self, id: PartitionId, node_id: NodeId) -> bool {
        self.inner.metadata.read_local(|metadata| {
            let mut steps = metadata.history(id).peekable();
            let known = steps.peek().is_some_and(|first| first.cause == OwnershipCause::Created);
            !known || steps.any(|step| step.owner == node_id)
        })
    }

    /// The run held the stream and has lost something since, or it gave it back.
    fn over(&self, asked: &Asked, found: &Found, node_id: NodeId, last: Option<u64>) -> Failure {
        let batch_committed = is_committed(last, asked.number);
        let lost = self.inner.metadata.read_local(|metadata| {
            found.owners.iter().filter(|(_, now)| now.node_id != node_id).find_map(|(id, now)| {
                let held = metadata.history(*id).rev().find(|step| step.owner == node_id)?;
                Some((*id, held.epoch, now.clone()))
            })
        });
        if let Some((partition, given, now)) = lost {
            return self.explained(
                true,
                &Refusal::StaleEpoch {
                    partition,
                    given,
                    given_owner: node_id,
                    current: now.epoch,
                    owner: now.node_id,
                    since_ms: u64::try_from(now.assigned_at_ms).unwrap_or(0),
                    batch_committed,
                },
            );
        }
        let what = format!("this run of writer {:?} (node {node_id}) is over", asked.writer);
        self.refused_batch(asked, found, node_id, &what).with_known("batch_committed", batch_committed)
    }

    /// An unseen run with a batch below the last one.
    fn behind(&self, asked: &Asked, found: &Found, last: u64) -> Failure {
        if !found.owners.iter().any(|(_, ownership)| ownership.node_id.is_worker()) {
            return asked.backwards(&found.stream, Some(last));
        }
        let node_id = found.run.as_ref().map_or(NodeId::UNASSIGNED, |run| run.node_id);
        let what = format!("batch {last} was committed already and this run never held the stream");
        self.refused_batch(asked, found, node_id, &what)
    }

    /// A batch of a run that holds nothing: who holds the stream, since when, at which epoch.
    fn refused_batch(&self, asked: &Asked, found: &Found, node_id: NodeId, what: &str) -> Failure {
        let Asked { number, query, .. } = asked;
        let held = found.owners.iter().find(|(_, ownership)| ownership.node_id.is_worker());
        let Some((partition, now)) = held.or(found.owners.first()) else {
            return asked.backwards(&found.stream, None);
        };
        let (name, held_by) = self.names(now.node_id);
        let since_ms = u64::try_from(now.assigned_at_ms).unwrap_or(0);
        let message = format!(
            "partition {partition}: batch {number} of query {query} refused, {what}, and {held_by} holds it with epoch {} \
             since {}; stop this run",
            now.epoch,
            utc(since_ms)
        );
        let failure = Failure::new(ErrorClass::StaleEpoch, message)
            .with("partition_id", partition.0)
            .with("current_epoch", now.epoch.get())
            .with("owner", now.node_id.0)
            .with("writer", name)
            .with("since_ms", since_ms);
        let known = node_id.is_assigned().then_some(node_id.0);
        self.located(failure.with_known("node", known))
    }

    /// Another run claimed at the same time.
    fn beaten(
        &self,
        asked: &Asked,
        node_id: NodeId,
        partition: PartitionId,
        now: &PartitionOwnership,
    ) -> Failure {
        let (name, held_by) = self.names(now.node_id);
        let since_ms = u64::try_from(now.assigned_at_ms).unwrap_or(0);
        let message = format!(
            "partition {partition}: batch {} of query {} refused, {held_by} claimed it at the same time and was first (epoch {} \
             at {}); nothing was taken, and this run is over",
            asked.number,
            asked.query,
            now.epoch,
            utc(since_ms)
        );
        self.located(
            Failure::new(ErrorClass::StaleEpoch, message)
                .with("partition_id", partition.0)
                .with("current_epoch", now.epoch.get())
                .with("node", node_id.0)
                .with("owner", now.node_id.0)
                .with("writer", name)
                .with("since_ms", since_ms)
                .with("batch_committed", false),
        )
    }

    /// The registration of a run on a stream, if it has one.
    pub(super) fn run_of(&self, stream_id: u64, run: &proto::RequestId) -> Option<NodeId> {
        let run = run_tag(number(run));
        self.inner.metadata.read_local(|metadata| {
            let mut nodes = metadata.node_states().values().rev();
            nodes.find(|node| is_run(node, stream_id, &run)).map(|node| node.node_id)
        })
    }

    fn names(&self, node_id: NodeId) -> (String, String) {
        self.inner.metadata.read_local(|metadata| (writer_name(metadata, node_id), holder(metadata, node_id)))
    }
}

impl Asked {
    fn new(request: proto::BeginBatchRequest) -> Result<Self, Failure> {
        let batch = request.batch.unwrap_or_default();
        check_query(&batch.query)?;
        super::workers::check_writer(&request.writer)?;
        let run = request.run.as_ref().map_or(0, number);
        if run == 0 {
            return Err(Failure::invalid("a batch was begun by no run; name it by an id that is not 0"));
        }
        Ok(Asked {
            stream_id: request.stream_id,
            writer: request.writer,
            query: batch.query,
            number: batch.number,
            run: run_tag(run),
            adopt_query: request.adopt_query,
            unbound: request.unbound,
            host: request.host,
            pid: request.pid,
        })
    }

    /// The registration of this run. The holder of the stream is looked at first: mostly it is the one.
    fn find(&self, metadata: &DeltaMetadata, owners: &[(PartitionId, PartitionOwnership)]) -> Option<Run> {
        let holder = owners.first().and_then(|(_, ownership)| metadata.node(ownership.node_id));
        let mut nodes = holder.into_iter().chain(metadata.node_states().values().rev());
        let node = nodes.find(|node| is_run(node, self.stream_id, &self.run))?;
        let writer = tag(node, tags::WRITER).to_owned();
        Some(Run { node_id: node.node_id, state: node.state, writer })
    }

    /// The same for every task of the run, and another for each stream: a run may write to several.
    fn registration_id(&self) -> RequestId {
        RequestId(xxh3_128(format!("{}/{}", self.run, self.stream_id).as_bytes()).max(1))
    }

    fn tags(&self, path: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            (tags::WRITER.to_owned(), self.writer.clone()),
            (tags::STREAM.to_owned(), path.to_owned()),
            (tags::STREAM_ID.to_owned(), self.stream_id.to_string()),
            (tags::HOST.to_owned(), self.host.clone()),
            (tags::PID.to_owned(), self.pid.to_string()),
            (tags::RUN.to_owned(), self.run.clone()),
            (tags::QUERY.to_owned(), self.query.clone()),
        ])
    }

    fn backwards(&self, stream: &StreamDescriptor, last: Option<u64>) -> Failure {
        let last = last.map_or_else(|| "a later one".to_owned(), |last| format!("batch {last}"));
        let message = format!(
            "stream {}: batch {} of query {} refused, {last} was committed already; batches must not go back",
            stream.path, self.number, self.query
        );
        Failure::invalid(message)
            .with("stream", stream.path.as_str())
            .with("query", self.query.as_str())
            .with("value", self.number)
    }
}

fn number(run: &proto::RequestId) -> u128 {
    (u128::from(run.high) << 64) | u128::from(run.low)
}

fn run_tag(run: u128) -> String {
    format!("{run:032x}")
}

/// Whether a registration is that of a run on a stream.
fn is_run(node: &NodeRegistration, stream_id: u64, run: &str) -> bool {
    tag(node, tags::RUN) == run && tag(node, tags::STREAM_ID) == stream_id.to_string()
}

fn acquire(
    partition_id: PartitionId,
    ownership: &PartitionOwnership,
    node_id: NodeId,
) -> Result<MetadataChange, Failure> {
    let expected: OwnerEpoch = ownership.owner_epoch();
    let epoch = expected.epoch.next().map_err(|error| Failure::invalid(error.to_string()))?;
    Ok(MetadataChange::AcquirePartition { partition_id, node_id, epoch, expected })
}
