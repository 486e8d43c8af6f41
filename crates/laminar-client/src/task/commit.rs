//! One commit of what many tasks wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use laminar_core::error::ErrorKind;
use laminar_rpc::Failure;
use laminar_rpc::proto::{
    self, AppendRequest, AppendResponse, Batch, ExpectedEnd, HelloResponse, MintProducerRequest,
    PartitionEpoch, PartitionRows, Producer, TaskParts, partition_rows,
};

use super::join::{inline, join_inline};
use super::message;
use crate::appended::Appended;
use crate::codec::Part;
use crate::description::StreamInfo;
use crate::producer::check_places;
use crate::retry::Repeat;
use crate::session::Limit;
use crate::staging;
use crate::stream::StreamHandle;

/// Inline rows of many tasks are staged in blocks of about so many bytes.
const BLOCK_BYTES: usize = 32 << 20;

/// How rows of tasks are committed.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// Query and number of the batch; a second commit of it is recognised. None: only a retry of the same call is.
    pub batch: Option<(String, u64)>,
    /// The run that holds the partitions; 0: the rows are the server's.
    pub node_id: u64,
    /// The run's epochs, by the cluster's partition ids.
    pub epochs: BTreeMap<u32, u64>,
    /// Trims everything that was there before, in the same entry.
    pub overwrite: bool,
    /// Records a batch even if it has no rows.
    pub record_empty: bool,
    /// Where partitions must end before the commit, by the cluster's partition ids.
    pub expected_ends: BTreeMap<u32, u64>,
}

impl StreamHandle {
    /// Commits what tasks wrote as one entry, all or nothing. Parts of a partition land in the order of the messages.
    /// Without rows nothing is written or recorded, unless `record_empty` or `overwrite` say so.
    ///
    /// # Errors
    /// Stale: another run has taken over; `batch_committed` tells whether the batch had landed. Not owned: a writer holds
    /// the stream. Invalid: a message is none, a limit is reached, a block has expired, a later batch of the query was
    /// committed; `stream_changed`: the stream got more partitions since the rows were placed; `end_moved`: a partition ends
    /// there, and not where it was expected to.
    ///
    /// # Cancel safety
    /// It may land or not. With a batch it can be committed again.
    pub async fn commit_batch(&self, messages: &[Bytes], commit: &Commit) -> Result<Appended, Failure> {
        let limit = self.limit();
        let tasks: Vec<TaskParts> = messages.iter().map(message::decode).collect::<Result<_, _>>()?;
        let rows: u64 = tasks.iter().map(|task| task.rows).sum();
        if rows == 0 && !commit.overwrite && !(commit.record_empty && commit.batch.is_some()) {
            return Ok(Appended::default());
        }
        let info = self.info_of(&tasks, limit).await?;
        let named = |failure| info.name(failure);
        let live = self.session().live(limit).await?;
        let placed_over = placed_over(&info, &tasks)?;
        let parts: Vec<PartitionRows> = tasks.into_iter().flat_map(|task| task.parts).collect();
        let parts = join_inline(&info, parts).map_err(named)?;
        check_limits(&info, &parts, &live.hello)?;
        let parts = self.staged(&info, parts, &live.hello, limit).await.map_err(named)?;
        let request = AppendRequest {
            stream_id: info.stream_id,
            partition_count: placed_over,
            producer: self.producer(commit, limit).await.map_err(named)?,
            batch: commit
                .batch
                .as_ref()
                .map(|(query, number)| Batch { query: query.clone(), number: *number }),
            owner: commit.node_id,
            rows: under_epochs(&info, commit, parts)?,
            timeout_ms: 0,
            commit: Some(beside_rows(&info, commit, rows == 0)?),
        };
        let ended = self
            .session()
            .call_tracked(limit, Repeat::Safe, |live| {
                let request = AppendRequest { timeout_ms: limit.node_timeout_ms(), ..request.clone() };
                async move { live.transport.append(request, limit.deadline).await }
            })
            .await;
        match ended.result {
            Ok(response) => appended(&info, &request, &response),
            // An earlier attempt that is still on its way may land after this refusal, unless it is too late for that.
            Err(failure) if ended.unknown && !is_final(commit, &failure) => Err(named(failure.unknown())),
            Err(failure) => Err(named(failure)),
        }
    }

    /// The stream as the tasks knew it, or newer.
    async fn info_of(&self, tasks: &[TaskParts], limit: Limit) -> Result<Arc<StreamInfo>, Failure> {
        let info = self.info();
        if let Some(other) = tasks.iter().find(|task| task.stream_id != info.stream_id) {
            let (path, id, found) = (&info.path, info.stream_id, other.stream_id);
            let message = format!(
                "stream {path}: commit refused, a task wrote to stream id {found} and this is {id}; it was dropped and created \
                 again, or the message is of another stream"
            );
            return Err(Failure::invalid(message).with("stream", path.as_str()));
        }
        let newer = tasks.iter().any(|task| {
            task.partition_count > info.partition_count()
                || task.parts.iter().any(|part| info.ordinal(part.partition_id).is_none())
        });
        if newer { self.refresh_within(limit).await } else { Ok(info) }
    }

    /// Rows that are too many for an entry go to the store first.
    async fn staged(
        &self,
        info: &StreamInfo,
        mut parts: Vec<PartitionRows>,
        hello: &HelloResponse,
        limit: Limit,
    ) -> Result<Vec<PartitionRows>, Failure> {
        let bytes: u64 = parts.iter().map(|part| inline(part).map_or(0, |bytes| bytes.len() as u64)).sum();
        if bytes <= hello.inline_bytes_max {
            return Ok(parts);
        }
        staging::check_staging(bytes, hello, &info.machine)?;
        let store = self.session().stores().open(&hello.store_path).await?;
        let mut block = Vec::new();
        let mut block_length = 0;
        let mut places = Vec::new();
        let last = parts.iter().rposition(|part| inline(part).is_some());
        for at in 0..parts.len() {
            let part = &parts[at];
            if let Some(payload) = inline(part) {
                block_length += payload.len();
                block.push(Part {
                    ordinal: part.partition_id,
                    rows: part.rows,
                    payload: payload.clone().into(),
                });
                places.push(at);
            }
            if block_length >= BLOCK_BYTES || (Some(at) == last && !block.is_empty()) {
                let pointers = staging::stage(&store, &block, limit).await?;
                for (place, pointer) in places.drain(..).zip(pointers) {
                    parts[place].payload = Some(partition_rows::Payload::Pointer(pointer));
                }
                block.clear();
                block_length = 0;
            }
        }
        Ok(parts)
    }

    /// Without a batch, a producer of its own tells a retry from another commit.
    async fn producer(&self, commit: &Commit, limit: Limit) -> Result<Option<Producer>, Failure> {
        if commit.batch.is_some() {
            return Ok(None);
        }
        let minted = self.session().call(limit, Repeat::Safe, |live| async move {
            live.transport.mint_producer(MintProducerRequest {}, limit.deadline).await
        });
        match minted.await {
            Ok(minted) => Ok(Some(Producer { id: minted.producer_id, sequence: 1 })),
            // No rows were sent.
            Err(failure) => Err(Failure { outcome_unknown: false, ..failure }),
        }
    }
}

/// Whether no attempt of the same commit can land after this refusal: its epoch is over, or a partition has grown beyond the
/// end that it expects. Neither goes back.
fn is_final(commit: &Commit, failure: &Failure) -> bool {
    let grown = || {
        let partition_id = u32::try_from(failure.number("partition_id")?).ok()?;
        Some(failure.number("end_moved")? > *commit.expected_ends.get(&partition_id)?)
    };
    failure.class.kind() == ErrorKind::Stale || grown() == Some(true)
}

/// By how many partitions rows were placed; 0: by none of their keys.
fn placed_over(info: &StreamInfo, tasks: &[TaskParts]) -> Result<u32, Failure> {
    let mut counts = tasks.iter().map(|task| task.partition_count).filter(|count| *count != 0);
    let Some(first) = counts.next() else { return Ok(0) };
    match counts.find(|count| *count != first) {
        None => Ok(first),
        Some(other) => Err(changed(
            info,
            &format!("some tasks placed their rows over {first} partitions and others over {other}"),
        )),
    }
}

fn check_limits(info: &StreamInfo, parts: &[PartitionRows], hello: &HelloResponse) -> Result<(), Failure> {
    let path = info.path.as_str();
    let refused = |value: u64, limit: u64, what: &str| {
        let message = format!("stream {path}: commit refused, {value} of {limit} {what}");
        Err(Failure::invalid(message).with("stream", path).with("value", value).with("limit", limit))
    };
    let most = u64::from(hello.commit_parts_max);
    if parts.len() as u64 > most {
        return refused(
            parts.len() as u64,
            most,
            "parts (node.commit_parts_max); use fewer tasks, or raise it",
        );
    }
    let bytes = parts.iter().map(|part| match &part.payload {
        Some(partition_rows::Payload::Inline(bytes)) => bytes.len() as u64,
        Some(partition_rows::Payload::Pointer(pointer)) => pointer.length,
        None => 0,
    });
    let bytes = bytes.fold(0_u64, u64::saturating_add);
    if bytes > hello.commit_bytes_max {
        let most = hello.commit_bytes_max;
        return refused(bytes, most, "bytes (node.commit_bytes_max); commit fewer rows at once, or raise it");
    }
    Ok(())
}

/// The parts under the epochs of the run.
fn under_epochs(
    info: &StreamInfo,
    commit: &Commit,
    mut parts: Vec<PartitionRows>,
) -> Result<Vec<PartitionRows>, Failure> {
    for part in &mut parts {
        part.epoch = epoch(info, commit, part.partition_id)?;
    }
    Ok(parts)
}

fn epoch(info: &StreamInfo, commit: &Commit, partition_id: u32) -> Result<u64, Failure> {
    if commit.node_id == 0 {
        return Ok(0);
    }
    commit.epochs.get(&partition_id).copied().ok_or_else(|| {
        let partition =
            info.ordinal(partition_id).map_or_else(|| "?".to_owned(), |ordinal| ordinal.to_string());
        changed(info, &format!("the run holds no epoch of partition {partition}"))
    })
}

/// What the commit is checked against, or trims, beside its rows.
fn beside_rows(info: &StreamInfo, commit: &Commit, empty: bool) -> Result<proto::Commit, Failure> {
    let held = || commit.epochs.iter().map(|(id, epoch)| PartitionEpoch { partition_id: *id, epoch: *epoch });
    let all = || info.partitions.iter().map(|partition| partition.partition_id);
    let partitions = match (commit.overwrite, commit.node_id) {
        (true, _) => {
            let named = all().map(|partition_id| {
                Ok(PartitionEpoch { partition_id, epoch: epoch(info, commit, partition_id)? })
            });
            named.collect::<Result<_, Failure>>()?
        }
        (false, _) if !empty => Vec::new(),
        (false, 0) => all().map(|partition_id| PartitionEpoch { partition_id, epoch: 0 }).collect(),
        (false, _) => held().collect(),
    };
    let expected = commit.expected_ends.iter().map(|(id, end)| {
        Ok(ExpectedEnd { partition_id: *id, epoch: epoch(info, commit, *id)?, end_offset: *end })
    });
    let expected_ends = expected.collect::<Result<_, Failure>>()?;
    Ok(proto::Commit { overwrite: commit.overwrite, partitions, expected_ends })
}

fn changed(info: &StreamInfo, what: &str) -> Failure {
    let path = info.path.as_str();
    let message =
        format!("stream {path}: commit refused, {what}: the stream got more partitions; repeat the batch");
    Failure::invalid(message).with("stream", path).with("stream_changed", true)
}

/// Where the rows are. A batch that landed before may have had other rows, and its places are told as they are.
fn appended(
    info: &StreamInfo,
    request: &AppendRequest,
    response: &AppendResponse,
) -> Result<Appended, Failure> {
    if !response.duplicate {
        check_places(request, response)?;
    }
    let mut appended = Appended {
        global_index: response.global_index,
        duplicate: response.duplicate,
        ..Appended::default()
    };
    for placed in &response.placed {
        if let Some(ordinal) = info.ordinal(placed.partition_id) {
            appended.add(ordinal, placed.first_offset, placed.rows);
        }
    }
    Ok(appended)
}
