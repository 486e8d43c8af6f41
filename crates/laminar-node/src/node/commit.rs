//! Commits of what many tasks wrote: an append with limits of its own, which may trim what was there before, or only record
//! that a batch is done.

use laminar_core::error::ErrorKind;
use laminar_core::ids::PartitionId;
use laminar_core::metadata::{StreamDescriptor, StreamMachine};
use laminar_log::dispatcher::ClientId;
use laminar_log::entry::{BatchId, Change, Payload, TrimTo};
use laminar_rpc::{ErrorClass, Failure, proto};

use super::Node;
use super::append::{answer, keyed_rows, payload};
use super::locate::gone;
use crate::error::with_causes;
use crate::random;
use crate::staged_kv::read;

impl Node {
    /// What is wrong with a commit beside its rows.
    pub(super) fn check_commit(
        &self,
        request: &proto::AppendRequest,
        commit: &proto::Commit,
        stream: &StreamDescriptor,
    ) -> Result<(), Failure> {
        let path = stream.path.as_str();
        let (parts, most) = (request.rows.len(), self.inner.config.commit_parts_max);
        if parts as u64 > u64::from(most) {
            let message = format!(
                "stream {path}: commit refused, it has {parts} parts and {most} are the most (node.commit_parts_max); use fewer \
                 tasks, or raise it"
            );
            let failure = Failure::invalid(message).with("stream", path);
            return Err(failure.with("value", parts as u64).with("limit", u64::from(most)));
        }
        for (partition_id, epoch) in named_partitions(commit) {
            let partition = PartitionId(partition_id);
            if !stream.partition_ids.iter().any(|range| range.contains(partition)) {
                return Err(gone(request.stream_id, partition));
            }
            if request.owner != 0 && epoch == 0 {
                let message = format!(
                    "partition {partition}: commit refused, it names an owner and no epoch; send both, or neither"
                );
                return Err(self.located(Failure::invalid(message).with("partition_id", partition.0)));
            }
        }
        if !commit.overwrite {
            return Ok(());
        }
        if stream.machine == StreamMachine::Kv {
            let message = format!(
                "stream {path}: overwrite refused, machine \"kv\" keeps the newest row of each key and trims none; append to it"
            );
            return Err(Failure::invalid(message).with("stream", path));
        }
        let mut named: Vec<u32> = commit.partitions.iter().map(|named| named.partition_id).collect();
        named.sort_unstable();
        named.dedup();
        if named.len() as u64 != u64::from(stream.partition_count()) {
            let message = format!(
                "stream {path}: overwrite refused, it names {} partitions and there are {}; look again what the stream has",
                named.len(),
                stream.partition_count()
            );
            return Err(Failure::invalid(message).with("stream_changed", true));
        }
        Ok(())
    }

    /// Reads staged rows of keys before they are proposed: a payload that the machine cannot read would stop the partition
    /// for everybody. A batch that landed before is not looked at: its blocks may be gone, and it is not applied again.
    pub(super) async fn check_staged(
        &self,
        request: &proto::AppendRequest,
        batch: Option<&BatchId>,
    ) -> Result<(), Failure> {
        let Some(first) = first_partition(request) else { return Ok(()) };
        let stream = self.stream_of(request.stream_id, first)?;
        if stream.machine != StreamMachine::Kv {
            return Ok(());
        }
        let machine = self.machine()?;
        if batch.is_some_and(|batch| machine.committed(batch).is_some()) {
            return Ok(());
        }
        for rows in &request.rows {
            let Some(Payload::Pointer(pointer)) = payload(rows) else { continue };
            let partition = PartitionId(rows.partition_id);
            let refuse = |what: &str| {
                let message =
                    format!("partition {partition}: append refused, block {}: {what}", pointer.path);
                self.located(Failure::invalid(message).with("partition_id", partition.0))
            };
            let read = read(&self.inner.store, &pointer).await.map_err(|error| match error.kind() {
                ErrorKind::Unavailable => Failure::unavailable(with_causes(&error)),
                _ => refuse(&with_causes(&error)),
            })?;
            keyed_rows(&read, rows.rows).map_err(|what| refuse(&what))?;
        }
        Ok(())
    }

    /// What became of a managed batch that was refused because a writer has claimed the stream since: it may have landed
    /// before that.
    pub(super) async fn landed_before(
        &self,
        request: &proto::AppendRequest,
        batch: Option<&BatchId>,
        failure: Failure,
    ) -> Result<proto::AppendResponse, Failure> {
        let Some(batch) = batch.filter(|_| request.owner == 0 && failure.class == ErrorClass::NotOwned)
        else {
            return Err(failure);
        };
        let client = ClientId(random::bits128());
        let reached = self.wait_for(client, &[], 0, self.timeout(request.timeout_ms)).await?;
        match reached.machine.committed(batch) {
            Some(outcome) => Ok(answer(outcome, true)),
            None => Err(failure),
        }
    }
}

/// Some partition of the stream.
pub(super) fn first_partition(request: &proto::AppendRequest) -> Option<u32> {
    let named = request.commit.iter().flat_map(named_partitions).map(|(partition_id, _)| partition_id);
    request.rows.iter().map(|rows| rows.partition_id).chain(named).next()
}

/// The partitions that a commit names beside its rows, each with its epoch.
fn named_partitions(commit: &proto::Commit) -> impl Iterator<Item = (u32, u64)> {
    let expected = commit.expected_ends.iter().map(|expected| (expected.partition_id, expected.epoch));
    commit.partitions.iter().map(|named| (named.partition_id, named.epoch)).chain(expected)
}

/// What a commit changes before its rows. A trim to the first offset changes nothing, and is refused under an epoch that
/// is over: so a batch without rows is recorded only by the run that holds the partitions. Each comes with its partition
/// and epoch.
pub(super) fn commit_changes(request: &proto::AppendRequest) -> impl Iterator<Item = (u32, u64, Change)> {
    request.commit.iter().flat_map(|commit| {
        let to = if commit.overwrite { TrimTo::End } else { TrimTo::Offset(0) };
        let expected = commit
            .expected_ends
            .iter()
            .map(|expected| (expected.partition_id, expected.epoch, Change::ExpectEnd(expected.end_offset)));
        let trims =
            commit.partitions.iter().map(move |named| (named.partition_id, named.epoch, Change::Trim(to)));
        expected.chain(trims)
    })
}
