//! One run of a writer: its registration, what it owns, and how it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laminar_core::error::ErrorKind;
use laminar_rpc::proto::{ClaimRequest, PartitionStory, RegisterWorkerRequest, ReleaseRequest, WhyRequest};
use laminar_rpc::{ErrorClass, Failure, utc};

use crate::chance;
use crate::description::StreamInfo;
use crate::guards;
use crate::ownership::Ownership;
use crate::retry::Repeat;
use crate::session::{Limit, Session, lock};
use crate::stream::StreamHandle;

/// How long the story of a refusal may take: the refusal itself is known.
const STORY_TIMEOUT: Duration = Duration::from_secs(1);
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// A run of a writer. Every open is another run with another node id.
pub(crate) struct Run {
    stream: StreamHandle,
    name: String,
    ownership: Arc<Ownership>,
    process: u32,
    closed: AtomicBool,
    /// Why it is over, once another run has taken over.
    over: Mutex<Option<Failure>>,
    reclaiming: tokio::sync::Mutex<()>,
}

impl Run {
    /// Registers a run and claims partitions for it.
    pub(crate) async fn open(
        stream: StreamHandle,
        name: &str,
        partitions: Option<&[u32]>,
        limit: Limit,
    ) -> Result<Arc<Self>, Failure> {
        let info = stream.refresh_within(limit).await?;
        let partition_ids = info.partition_ids(partitions)?;
        if partition_ids.is_empty() {
            let message = format!(
                "writer {name}: no partition of stream {} is named; name some, or none for all",
                info.path
            );
            return Err(Failure::invalid(message).with("stream", info.path.as_str()));
        }
        let session = stream.session().clone();
        let register = RegisterWorkerRequest {
            writer: name.to_owned(),
            stream: info.path.clone(),
            run: Some(chance::request_id()?),
            host: chance::host(),
            pid: std::process::id(),
        };
        // The run's id makes it the same registration however often it is sent.
        let registered = session.call(limit, Repeat::Safe, |live| {
            let message = register.clone();
            async move { live.transport.register_worker(message, limit.deadline).await }
        });
        let node_id = registered.await.map_err(|failure| info.name(failure))?.node_id;
        let run = Run {
            stream,
            name: name.to_owned(),
            ownership: Arc::new(Ownership::new(node_id)?),
            process: std::process::id(),
            closed: AtomicBool::new(false),
            over: Mutex::new(None),
            reclaiming: tokio::sync::Mutex::new(()),
        };
        if let Err(failure) = run.claim(&info, partition_ids, limit).await {
            // A registration that owns nothing is only in the way.
            release(&session, of_node(node_id), Limit::of(RELEASE_TIMEOUT)).await.ok();
            return Err(failure);
        }
        let run = Arc::new(run);
        session.feed().join(&session, &run);
        Ok(run)
    }

    pub(crate) fn node_id(&self) -> u64 {
        self.ownership.node_id()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn stream(&self) -> &StreamHandle {
        &self.stream
    }

    pub(crate) fn ownership(&self) -> &Arc<Ownership> {
        &self.ownership
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The partitions of the stream that it claimed.
    pub(crate) fn ordinals(&self) -> Vec<u32> {
        let info = self.stream.info();
        let mut ordinals: Vec<u32> =
            self.ownership.partition_ids().into_iter().filter_map(|id| info.ordinal(id)).collect();
        ordinals.sort_unstable();
        ordinals
    }

    /// Whether it can be used at all: in this process, open, and not superseded as far as is known here.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.check_open()?;
        match &*lock(&self.over) {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// Whether it was opened in this process and not closed. A batch asks no more: the log refuses it if the run is over,
    /// and only the log knows whether the batch had landed before.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.process != std::process::id() {
            let (name, process) = (&self.name, self.process);
            let message = format!(
                "writer {name}: it was opened in process {process}, and a forked child cannot write as its parent; open \
                 another"
            );
            return Err(Failure::invalid(message).with("pid", process));
        }
        if self.is_closed() {
            return Err(Failure::invalid(format!("writer {}: it is closed; open another", self.name)));
        }
        Ok(())
    }

    /// Whether one of its partitions is claimed by it at all: rows may belong to others.
    pub(crate) fn has_claimed(&self, partition_id: u32) -> bool {
        self.ownership.held_epoch(partition_id) != 0
    }

    async fn claim(&self, info: &StreamInfo, partition_ids: Vec<u32>, limit: Limit) -> Result<(), Failure> {
        let request = chance::request_id()?;
        let claimed = self.stream.session().call(limit, Repeat::Safe, |live| {
            let message = ClaimRequest {
                stream_id: info.stream_id,
                node_id: self.node_id(),
                partition_ids: partition_ids.clone(),
                request: Some(request),
                timeout_ms: limit.node_timeout_ms(),
            };
            async move { live.transport.claim(message, limit.deadline).await }
        });
        let claimed = claimed.await.map_err(|failure| info.name(failure))?;
        let mut granted: Vec<u32> =
            claimed.partitions.iter().map(|partition| partition.partition_id).collect();
        let mut asked = partition_ids;
        granted.sort_unstable();
        asked.sort_unstable();
        asked.dedup();
        if granted != asked {
            let (name, found, expected) = (&self.name, granted.len(), asked.len());
            let message = format!(
                "writer {name}: {expected} partitions were claimed and the node named {found}; report it"
            );
            return Err(Failure::internal(message));
        }
        self.ownership.grant(&claimed.partitions)
    }

    /// After a refusal: if the registration had ended for missed heartbeats and nobody has claimed since, claims again.
    /// Tells whether the partition has another epoch now than `refused`.
    pub(crate) async fn recover(
        &self,
        partition_id: u32,
        refused: u64,
        limit: Limit,
    ) -> Result<bool, Failure> {
        let Ok(_turn) = tokio::time::timeout_at(limit.deadline, self.reclaiming.lock()).await else {
            return Ok(false);
        };
        if self.ownership.held_epoch(partition_id) > refused {
            return Ok(true);
        }
        let ended = guards::heartbeat(self.stream.session(), vec![self.node_id()], limit).await?;
        if !ended.contains(&self.node_id()) {
            return Ok(false);
        }
        self.reclaim(limit).await?;
        Ok(self.ownership.held_epoch(partition_id) > refused)
    }

    /// Claims again after missed heartbeats. What fails for now is tried at the next heartbeat.
    pub(crate) async fn reclaim_in_background(&self) {
        // Whoever has the turn claims already.
        let Ok(_turn) = self.reclaiming.try_lock() else { return };
        if let Err(failure) = self.reclaim(Limit::of(RELEASE_TIMEOUT)).await {
            tracing::warn!(%failure, writer = %self.name, "writer could not claim again after missed heartbeats");
        }
    }

    async fn reclaim(&self, limit: Limit) -> Result<(), Failure> {
        if self.is_closed() || lock(&self.over).is_some() {
            return Ok(());
        }
        let info = self.stream.info();
        let ids = self.ownership.partition_ids();
        let Err(failure) = self.claim(&info, ids.clone(), limit).await else {
            return Ok(());
        };
        if failure.class.kind() == ErrorKind::Unavailable || failure.class.kind() == ErrorKind::Overloaded {
            return Err(failure);
        }
        // Superseded: this run never writes again.
        let partition =
            failure.number("partition_id").and_then(|id| u32::try_from(id).ok()).or(ids.first().copied());
        let over = self.story(failure, partition).await;
        *lock(&self.over) = Some(over.clone());
        Err(over)
    }

    /// Tells who has a partition now, and since when. Best effort: the refusal stands without it.
    pub(crate) async fn story(&self, refusal: Failure, partition_id: Option<u32>) -> Failure {
        let info = self.stream.info();
        let ordinal = partition_id.and_then(|id| info.ordinal(id));
        // A refusal of the log tells it already; a guard only knows the epoch.
        if refusal.fields.contains_key("since_ms") || ordinal.is_none() {
            return info.name(refusal);
        }
        let limit = Limit::of(STORY_TIMEOUT);
        let message = WhyRequest { path: info.path.clone(), partition: ordinal };
        let told = self.stream.session().call(limit, Repeat::Safe, |live| {
            let message = message.clone();
            async move { live.transport.why(message, limit.deadline).await }
        });
        let told = told.await.map(|told| told.partitions).unwrap_or_default();
        match told.iter().find(|story| Some(story.partition_id) == partition_id) {
            Some(story) => superseded(refusal, &self.name, self.node_id(), &self.ownership, &info, story),
            None => info.name(refusal),
        }
    }

    /// Gives the partitions back; a second time does nothing.
    pub(crate) async fn close(&self, limit: Limit) -> Result<(), Failure> {
        if self.process != std::process::id() || self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        release(self.stream.session(), of_node(self.node_id()), limit).await
    }

    /// Gives the partitions back when nobody waits for it.
    pub(crate) fn close_in_background(self: Arc<Self>, runtime: &tokio::runtime::Handle) {
        if self.is_closed() || self.process != std::process::id() {
            return;
        }
        runtime.spawn(async move {
            if let Err(failure) = self.close(Limit::of(RELEASE_TIMEOUT)).await {
                tracing::warn!(%failure, writer = %self.name, "writer was dropped and could not be released");
            }
        });
    }
}

fn of_node(node_id: u64) -> ReleaseRequest {
    ReleaseRequest { node_id, ..Default::default() }
}

pub(crate) async fn release(session: &Session, request: ReleaseRequest, limit: Limit) -> Result<(), Failure> {
    let request = ReleaseRequest { request: Some(chance::request_id()?), ..request };
    let released = session.call(limit, Repeat::Safe, |live| {
        let message = request;
        async move { live.transport.release(message, limit.deadline).await }
    });
    released.await.map(drop)
}

/// The refusal of a partition that somebody else has now.
fn superseded(
    refusal: Failure,
    writer: &str,
    node: u64,
    ownership: &Ownership,
    info: &StreamInfo,
    story: &PartitionStory,
) -> Failure {
    let (owner, epoch, held) = (story.owner, story.epoch, ownership.held_epoch(story.partition_id));
    if epoch <= held {
        return info.name(refusal);
    }
    let step = story.steps.iter().find(|step| step.epoch == epoch);
    let since_ms = step.and_then(|step| u64::try_from(step.time_ms).ok());
    let when = since_ms.map_or(String::new(), |since_ms| format!(" at {}", utc(since_ms)));
    let holder = match story.writer.as_str() {
        "" => format!("node {owner}"),
        name => format!("writer {name:?} (node {owner})"),
    };
    let message = format!(
        "partition {} of {}: write refused, writer {writer:?} (node {node}) holds epoch {held} and {holder} took over with epoch \
         {epoch}{when}; stop this run",
        story.partition, info.path
    );
    let mut failure = Failure::new(ErrorClass::StaleEpoch, message)
        .with("partition_id", story.partition_id)
        .with("epoch", held)
        .with("current_epoch", epoch)
        .with("node", node)
        .with("owner", owner)
        .with("writer", story.writer.as_str());
    failure.outcome_unknown = refusal.outcome_unknown;
    if let Some(since_ms) = since_ms {
        failure = failure.with("since_ms", since_ms);
    }
    if let Some(committed) = refusal.fields.get("batch_committed") {
        failure.fields.insert("batch_committed".to_owned(), committed.clone());
    }
    info.name(failure)
}

#[cfg(test)]
mod tests {
    use laminar_rpc::proto::{OwnershipStep, PartitionDescription};

    use super::*;

    #[test]
    fn a_writer_that_was_superseded_is_told_by_whom_and_when() {
        let node = (1 << 32) + 1;
        let ownership = Ownership::new(node).unwrap();
        let granted =
            PartitionDescription { partition_id: 103, owner: node, epoch: 7, writer: String::new() };
        ownership.grant(&[granted]).unwrap();
        let step = OwnershipStep { epoch: 8, time_ms: 1_794_825_001_250, ..Default::default() };
        let story = PartitionStory {
            partition: 3,
            partition_id: 103,
            owner: node + 1,
            epoch: 8,
            writer: "b".to_owned(),
            steps: vec![step],
            ..Default::default()
        };
        let info = crate::description::tests::bytes_stream(4);
        let refusal = Failure::new(ErrorClass::StaleEpoch, "stale").with("batch_committed", true);
        let told = superseded(refusal.clone(), "a", node, &ownership, &info, &story);
        assert_eq!(
            told.message,
            "partition 3 of /a: write refused, writer \"a\" (node 4294967297) holds epoch 7 and writer \"b\" (node \
             4294967298) took over with epoch 8 at 2026-11-16T10:30:01.250Z; stop this run"
        );
        assert_eq!((told.number("partition"), told.number("current_epoch")), (Some(3), Some(8)));
        assert_eq!(told.fields["batch_committed"], true.into());
        let own = PartitionStory { epoch: 7, ..story };
        assert_eq!(superseded(refusal, "a", node, &ownership, &info, &own).message, "stale");
    }
}
