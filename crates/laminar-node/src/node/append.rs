//! Appends: checked, given their owner and epoch, proposed, answered.

use std::time::Duration;

use bytes::Bytes;
use laminar_core::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};
use laminar_core::metadata::StreamMachine;
use laminar_log::SegmentedStateMachine;
use laminar_log::entry::{
    Append, BlockId, BlockPointer, Change, Entry, PartitionRecord, Payload, Producer, ProducerId, Record,
    payload_checksum,
};
use laminar_log::machine::decode_operations;
use laminar_log::verdict::{Outcome, Refusal, Verdict};
use laminar_raft::Decided;
use laminar_rpc::{ErrorClass, Failure, proto};

use super::Node;
use super::commit::{commit_changes, first_partition};
use super::locate::{gone, holder, writer_name};
use super::queries::{batch_id, in_users_words};
use super::stages::blocks_of;
use crate::clock::wall_ms;
use crate::error::{of_propose, with_causes};

/// How often a managed append is tried again when its partitions change hands under it.
const MANAGED_ATTEMPTS: u32 = 8;

impl Node {
    /// Mints a producer.
    pub(crate) async fn mint_producer(&self) -> Result<proto::MintProducerResponse, Failure> {
        let entry = Entry { records: vec![Record::MintProducer], ..Entry::default() };
        match self.propose(entry, 0).await? {
            Verdict::Accepted(Outcome { minted: Some(id), .. }) => {
                Ok(proto::MintProducerResponse { producer_id: id.0 })
            }
            other => {
                Err(Failure::internal(format!("minting a producer was answered with {other:?}; report it")))
            }
        }
    }

    pub(crate) async fn append(
        &self,
        request: proto::AppendRequest,
    ) -> Result<proto::AppendResponse, Failure> {
        self.check_append(&request)?;
        let batch = request.batch.as_ref().map(|batch| batch_id(request.stream_id, batch)).transpose()?;
        self.check_staged(&request, batch.as_ref()).await?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let records = match self.records(&request) {
                Ok(records) => records,
                Err(failure) => return self.landed_before(&request, batch.as_ref(), failure).await,
            };
            let (checksum, blocks) = (payload_checksum(&records), blocks_of(&records));
            let producer = request.producer.as_ref().map(|producer| Producer {
                id: ProducerId(producer.id),
                sequence: producer.sequence,
                checksum,
            });
            let entry = Entry { time_ms: 0, producer, batch: batch.clone(), records };
            let proposed = self.propose(entry, request.timeout_ms);
            match self.append_unless_paused(&request, batch.as_ref(), proposed).await? {
                Verdict::Accepted(outcome) => {
                    self.remember_named(blocks);
                    return Ok(answer(outcome, false));
                }
                Verdict::Duplicate(outcome) => return Ok(answer(outcome, true)),
                // The server's own epoch moved on between looking and landing: a claim, or a release.
                Verdict::Refused(Refusal::StaleEpoch { .. } | Refusal::NotOwned { .. })
                    if request.owner == 0 && attempt < MANAGED_ATTEMPTS => {}
                Verdict::Refused(refusal) => return Err(self.refused(&request, &refusal)),
            }
        }
    }

    /// Proposes an entry to the data group and waits for what becomes of it.
    pub(crate) async fn propose(&self, entry: Entry, timeout_ms: u64) -> Result<Verdict, Failure> {
        self.check_stays()?;
        let timeout = self.timeout(timeout_ms);
        let proposed = self.inner.data.propose_within(entry, timeout).await;
        proposed.map_err(|error| self.located(of_propose(&error)))
    }

    /// Proposes an entry to the data group and waits until it is decided, and not until paused partitions have applied it.
    pub(crate) async fn decide(&self, entry: Entry) -> Result<Result<(), Refusal>, Failure> {
        self.check_stays()?;
        match self.inner.data.propose_decided(entry, self.timeout(0)).await {
            Ok(Decided::Verdict(Verdict::Refused(refusal))) => Ok(Err(refusal)),
            Ok(Decided::Verdict(_) | Decided::Accepted(_)) => Ok(Ok(())),
            Err(error) => Err(self.located(of_propose(&error))),
        }
    }

    /// The time that a call may take.
    pub(crate) fn timeout(&self, asked_ms: u64) -> Duration {
        let most = self.inner.config.call_timeout;
        if asked_ms == 0 { most } else { Duration::from_millis(asked_ms).min(most) }
    }

    /// What is wrong with a request whatever the epochs are.
    fn check_append(&self, request: &proto::AppendRequest) -> Result<(), Failure> {
        let config = &self.inner.config;
        let (mut inline_bytes, mut bytes) = (0_u64, 0_u64);
        let Some(first) = first_partition(request) else {
            return Err(Failure::invalid("append refused, it has no rows; send at least one"));
        };
        let stream = self.stream_of(request.stream_id, first)?;
        if request.partition_count != 0 && request.partition_count != stream.partition_count() {
            let message = format!(
                "stream {}: append refused, its rows were placed over {} partitions and there are {}; place them again",
                stream.path,
                request.partition_count,
                stream.partition_count()
            );
            return Err(Failure::invalid(message).with("stream_changed", true));
        }
        for rows in &request.rows {
            let partition = PartitionId(rows.partition_id);
            if !stream.partition_ids.iter().any(|range| range.contains(partition)) {
                return Err(gone(request.stream_id, partition));
            }
            let refuse = |what: &str| {
                Err(self.located(
                    Failure::invalid(format!("partition {partition}: append refused, {what}"))
                        .with("partition_id", partition.0),
                ))
            };
            if rows.rows == 0 {
                return refuse("a part of it has no rows; leave it out");
            }
            if request.owner != 0 && rows.epoch == 0 {
                return refuse("it names an owner and no epoch; send both, or neither");
            }
            match (&rows.payload, &stream.machine) {
                (None, _) => {
                    return refuse("a part of it has no payload; send the rows or a pointer to them");
                }
                (Some(proto::partition_rows::Payload::Inline(payload)), machine) => {
                    inline_bytes += payload.len() as u64;
                    // A payload that the machine cannot read would stop the partition for everybody.
                    if *machine == StreamMachine::Kv {
                        keyed_rows(payload, rows.rows).or_else(|what| refuse(&what))?;
                    }
                }
                // Of a stream of keys they are read before they are proposed.
                (
                    Some(proto::partition_rows::Payload::Pointer(pointer)),
                    StreamMachine::Log | StreamMachine::Kv,
                ) => {
                    bytes = bytes.saturating_add(pointer.length);
                }
                (Some(proto::partition_rows::Payload::Pointer(_)), machine) => {
                    return refuse(&format!(
                        "the machine {machine} takes rows only in the entry, at most {} bytes together \
                         (node.inline_bytes_max); append fewer rows at a time",
                        config.inline_bytes_max
                    ));
                }
            }
        }
        let limit = |given: u64, most: u64, name: &str| {
            let message = format!(
                "stream {}: append refused, it has {given} bytes and {most} are the most ({name}); append fewer rows at a time",
                stream.path
            );
            if given > most {
                Err(Failure::invalid(message).with("stream", stream.path.as_str()))
            } else {
                Ok(())
            }
        };
        limit(inline_bytes, config.inline_bytes_max, "node.inline_bytes_max")?;
        if let Some(commit) = &request.commit {
            limit(inline_bytes.saturating_add(bytes), config.commit_bytes_max, "node.commit_bytes_max")?;
            return self.check_commit(request, commit, &stream);
        }
        limit(inline_bytes.saturating_add(bytes), config.append_bytes_max, "node.append_bytes_max")
    }

    /// The records of an append, each under its owner and epoch; those of a commit beside its rows come first.
    fn records(&self, request: &proto::AppendRequest) -> Result<Vec<Record>, Failure> {
        let machine = self.machine()?;
        let record = |partition_id: u32, epoch: u64, change: Change| {
            let partition = PartitionId(partition_id);
            let owner = self.writes_under(&machine, request, partition, epoch)?;
            let OwnerEpoch { node_id: owner, epoch } = owner;
            Ok::<_, Failure>(Record::Partition(PartitionRecord { partition, owner, epoch, change }))
        };
        let mut records = Vec::with_capacity(request.rows.len());
        for (partition_id, epoch, change) in commit_changes(request) {
            records.push(record(partition_id, epoch, change)?);
        }
        for rows in &request.rows {
            let payload =
                payload(rows).ok_or_else(|| Failure::invalid("a part of the append has no payload"))?;
            let change = Change::Append(Append { rows: rows.rows, create: None, payload });
            records.push(record(rows.partition_id, rows.epoch, change)?);
        }
        Ok(records)
    }

    /// Under whom a partition is written: the run that the request names, or the server.
    fn writes_under(
        &self,
        machine: &SegmentedStateMachine,
        request: &proto::AppendRequest,
        partition: PartitionId,
        epoch: u64,
    ) -> Result<OwnerEpoch, Failure> {
        match request.owner {
            0 => self.managed_owner(partition, machine.owner(partition)).inspect_err(|failure| {
                if failure.class == ErrorClass::NotOwned {
                    self.remember_refused(request, partition, failure);
                }
            }),
            owner => Ok(OwnerEpoch {
                node_id: NodeId(owner),
                epoch: Epoch::new(epoch).map_err(|error| Failure::invalid(error.to_string()))?,
            }),
        }
    }

    /// Under whom a managed append is written: the partition's server, unless a writer holds it.
    fn managed_owner(
        &self,
        partition: PartitionId,
        current: Option<OwnerEpoch>,
    ) -> Result<OwnerEpoch, Failure> {
        match current {
            Some(owner) if !owner.node_id.is_worker() => Ok(owner),
            Some(OwnerEpoch { node_id, epoch }) => Err(self.claimed(partition, node_id, epoch)),
            None => Err(self.located(
                Failure::unavailable(format!("partition {partition}: it is being created; try again"))
                    .with("partition_id", partition.0),
            )),
        }
    }

    pub(crate) fn claimed(&self, partition: PartitionId, owner: NodeId, epoch: Epoch) -> Failure {
        let (name, held_by) = self
            .inner
            .metadata
            .read_local(|metadata| (writer_name(metadata, owner), holder(metadata, owner)));
        let message = format!(
            "partition {partition}: append refused, {held_by} holds it at epoch {epoch}; write as that writer, or wait until it \
             is released"
        );
        self.located(
            Failure::new(ErrorClass::NotOwned, message)
                .with("partition_id", partition.0)
                .with("node", self.inner.id.0)
                .with("owner", owner.0)
                .with("writer", name),
        )
    }

    /// A refusal of the data log as users see it. It is remembered for `why`.
    pub(super) fn refused(&self, request: &proto::AppendRequest, refusal: &Refusal) -> Failure {
        let failure = self.explained(request.batch.is_some(), refusal);
        if matches!(failure.class, ErrorClass::StaleEpoch | ErrorClass::NotOwned)
            && let Some(id) = failure.number("partition_id").and_then(|id| u32::try_from(id).ok())
        {
            self.remember_refused(request, PartitionId(id), &failure);
        }
        failure
    }

    /// A refusal in the words of users, of a batch or of something else.
    pub(crate) fn explained(&self, is_batch: bool, refusal: &Refusal) -> Failure {
        let refusal = &in_users_words(refusal);
        let describe = |node: NodeId| {
            self.inner.metadata.read_local(|metadata| (writer_name(metadata, node), holder(metadata, node)))
        };
        let failure = match refusal {
            Refusal::StaleEpoch {
                partition,
                given,
                given_owner,
                current,
                owner,
                since_ms,
                batch_committed,
            } => {
                let ((given_name, _), (name, held_by)) = (describe(*given_owner), describe(*owner));
                let landed = match (is_batch, batch_committed) {
                    (true, Some(true)) => "; this batch had landed before",
                    (true, Some(false)) => "; this batch has not landed",
                    (true, None) => "; a later batch of its query was committed",
                    (false, _) => "",
                };
                let message = format!(
                    "partition {partition}: write refused, writer {given_name:?} (node {given_owner}) came under epoch {given} \
                     and {held_by} took over with epoch {current} at {}{landed}; stop this run",
                    laminar_rpc::utc(*since_ms)
                );
                Failure::new(ErrorClass::StaleEpoch, message)
                    .with("partition_id", partition.0)
                    .with("epoch", given.get())
                    .with("current_epoch", current.get())
                    .with("node", given_owner.0)
                    .with("owner", owner.0)
                    .with("writer", name)
                    .with("since_ms", *since_ms)
                    .with_known("batch_committed", *batch_committed)
            }
            Refusal::NotOwned { partition, given, owner, batch_committed } => {
                let (name, held_by) = describe(*owner);
                let message = format!(
                    "partition {partition}: write refused, node {given} does not own it, {held_by} does"
                );
                Failure::new(ErrorClass::NotOwned, message)
                    .with("partition_id", partition.0)
                    .with("node", given.0)
                    .with("owner", owner.0)
                    .with("writer", name)
                    .with_known("batch_committed", *batch_committed)
            }
            Refusal::UnknownPartition { partition } | Refusal::Destroyed { partition } => {
                Failure::new(ErrorClass::UnknownPartition, refusal.to_string())
                    .with("partition_id", partition.0)
            }
            Refusal::UnknownProducer { .. } => {
                Failure::invalid(refusal.to_string()).with("unknown_producer", true)
            }
            Refusal::EndMoved { partition, end, .. } => Failure::invalid(refusal.to_string())
                .with("partition_id", partition.0)
                .with("end_moved", *end),
            // Of too many queries clients must not wait: room comes only from what users do.
            Refusal::TooManyPartitions { .. } | Refusal::TooManySkips { .. } => {
                Failure::new(ErrorClass::Backpressure, refusal.to_string())
            }
            Refusal::Unreadable(_) | Refusal::AlreadyDecided { .. } => {
                Failure::internal(with_causes(refusal))
            }
            _ => Failure::invalid(refusal.to_string()),
        };
        self.located(failure)
    }

    fn remember_refused(&self, request: &proto::AppendRequest, partition: PartitionId, failure: &Failure) {
        let rows = request.rows.iter().find(|rows| rows.partition_id == partition.0);
        let (epoch, rows) = rows.map_or((0, 0), |rows| (rows.epoch, rows.rows));
        self.remember(partition, NodeId(request.owner), epoch, rows, failure);
    }

    /// Keeps a refusal for `why`.
    pub(crate) fn remember(
        &self,
        partition: PartitionId,
        owner: NodeId,
        epoch: u64,
        rows: u32,
        failure: &Failure,
    ) {
        self.inner.refused.add(
            partition,
            proto::RefusedWrite {
                time_ms: i64::try_from(wall_ms()).unwrap_or(i64::MAX),
                owner: owner.0,
                epoch,
                writer: self.inner.metadata.read_local(|metadata| writer_name(metadata, owner)),
                reason: failure.message.clone(),
                rows,
            },
        );
    }
}

/// Whether the machine of keys can apply a payload; else what is wrong with it.
pub(super) fn keyed_rows(payload: &Bytes, rows: u32) -> Result<(), String> {
    match decode_operations(payload) {
        Ok(operations) if operations.len() as u64 == u64::from(rows) => Ok(()),
        Ok(operations) => Err(format!("it has {} rows and says that it has {rows}", operations.len())),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn payload(rows: &proto::PartitionRows) -> Option<Payload> {
    Some(match rows.payload.as_ref()? {
        proto::partition_rows::Payload::Inline(bytes) => Payload::Inline(bytes.clone()),
        proto::partition_rows::Payload::Pointer(pointer) => Payload::Pointer(Box::new(BlockPointer {
            block: BlockId((u128::from(pointer.block_high) << 64) | u128::from(pointer.block_low)),
            begin: pointer.begin,
            length: pointer.length,
            checksum: pointer.checksum,
            path: pointer.path.clone(),
        })),
    })
}

pub(super) fn to_pointer(pointer: &BlockPointer) -> proto::BlockPointer {
    proto::BlockPointer {
        block_high: (pointer.block.0 >> 64) as u64,
        block_low: pointer.block.0 as u64,
        begin: pointer.begin,
        length: pointer.length,
        checksum: pointer.checksum,
        path: pointer.path.clone(),
    }
}

pub(super) fn answer(outcome: Outcome, duplicate: bool) -> proto::AppendResponse {
    let placed = outcome.placed.iter().map(|placed| proto::Placed {
        partition_id: placed.partition.0,
        first_offset: placed.first_offset,
        rows: placed.rows,
    });
    proto::AppendResponse { global_index: outcome.index.0, duplicate, placed: placed.collect() }
}
