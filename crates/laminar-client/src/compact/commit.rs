//! The commit of compacted rows: on the condition that nobody has appended what they do not know of.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use laminar_rpc::Failure;
use laminar_rpc::proto::{PartitionRows, TaskParts, partition_rows};

use super::{CompactedRows, fold, stage};
use crate::codec;
use crate::description::StreamInfo;
use crate::stream::StreamHandle;
use crate::task::{Commit, message};

/// How often an append is tried while others append.
const ATTEMPTS_MAX: u32 = 10;
/// About how many bytes one append has. The node reads them before it proposes the entry, and meanwhile others append.
const ENTRY_BYTES: u64 = 64 << 20;

/// What became of compacted rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactOutcome {
    /// They are there; rows before the end that they were read up to can be trimmed.
    Committed,
    /// Others appended all the time, or trimmed. Nothing may be trimmed.
    Busy,
}

/// What became of compacted rows, and how much landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactCommit {
    /// What became of them.
    pub outcome: CompactOutcome,
    /// Rows that landed.
    pub rows: u64,
    /// Their encoded bytes.
    pub bytes: u64,
    /// How often others had appended before.
    pub moved: u32,
}

impl StreamHandle {
    /// Appends what [`compact`](Self::compact) staged, under the run of `held`, or as the server if it names none. Rows whose
    /// key was written meanwhile are left out. Then the partition may be trimmed to the end of `rows`.
    ///
    /// # Errors
    /// Stale: another run has taken over. Not owned: a writer holds the stream. Invalid: a block has expired, because it was
    /// staged too long ago. Unavailable: as the message says; what landed is right, and can be compacted again.
    ///
    /// # Cancel safety
    /// Some of it may land; it can be compacted again.
    pub async fn commit_compacted(
        &self,
        partition: u32,
        rows: &CompactedRows,
        held: &Commit,
    ) -> Result<CompactCommit, Failure> {
        let info = self.info();
        let partition_id = info.partition_id(partition)?;
        let parts = message::decode(&rows.message)?.parts;
        if parts.iter().any(|part| part.partition_id != partition_id) {
            let (path, message) =
                (&info.path, "its rows are of another partition or stream; compact this one");
            return Err(Failure::invalid(format!(
                "partition {partition} of {path}: commit refused, {message}"
            )));
        }
        let committing = Committing {
            stream: self,
            info,
            ordinal: partition,
            partition_id,
            held,
            end: rows.end,
            newer: BTreeSet::new(),
            done: CompactCommit { outcome: CompactOutcome::Committed, rows: 0, bytes: 0, moved: 0 },
        };
        committing.run(parts).await
    }
}

/// A commit under way.
struct Committing<'a> {
    stream: &'a StreamHandle,
    info: Arc<StreamInfo>,
    ordinal: u32,
    partition_id: u32,
    held: &'a Commit,
    /// Rows up to here are known.
    end: u64,
    /// Keys that were written since the rows were read.
    newer: BTreeSet<Bytes>,
    done: CompactCommit,
}

impl Committing<'_> {
    async fn run(mut self, mut parts: Vec<PartitionRows>) -> Result<CompactCommit, Failure> {
        while !parts.is_empty() {
            let rest = parts.split_off(first_entry(&parts));
            if !self.land(parts).await? {
                self.done.outcome = CompactOutcome::Busy;
                break;
            }
            parts = rest;
        }
        Ok(self.done)
    }

    /// Appends parts as one entry; tells whether they landed.
    async fn land(&mut self, mut parts: Vec<PartitionRows>) -> Result<bool, Failure> {
        for _ in 0..ATTEMPTS_MAX {
            parts = self.without_newer(parts).await?;
            let rows = parts.iter().map(|part| u64::from(part.rows)).sum();
            if rows == 0 {
                return Ok(true);
            }
            let bytes: u64 = parts.iter().map(bytes_of).sum();
            let stream_id = self.info.stream_id;
            let task = TaskParts { stream_id, partition_count: 0, rows, parts: parts.clone() };
            let expected_ends = [(self.partition_id, self.end)].into();
            let commit = Commit { expected_ends, ..self.held.clone() };
            match self.stream.commit_batch(&[message::encode(&task)], &commit).await {
                Ok(_) => {
                    self.end += rows;
                    self.done.rows += rows;
                    self.done.bytes += bytes;
                    return Ok(true);
                }
                Err(failure) if failure.number("end_moved").is_some() && !failure.outcome_unknown => {
                    self.done.moved += 1;
                    if !self.look_at_newer().await? {
                        return Ok(false);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(false)
    }

    /// Learns of the rows that came since; tells whether that was possible.
    async fn look_at_newer(&mut self) -> Result<bool, Failure> {
        let (start, end) = self.stream.bounds(self.ordinal).await?;
        // Rows that were trimmed cannot be read, and name keys all the same. The rows to compact are gone with them.
        if start > self.end {
            return Ok(false);
        }
        let keys = fold::keys(self.stream, &self.info, self.ordinal, self.end..end).await;
        self.newer.extend(keys.map_err(|failure| self.info.name(failure))?);
        self.end = end;
        Ok(true)
    }

    /// The parts without rows whose key was written since.
    async fn without_newer(&self, parts: Vec<PartitionRows>) -> Result<Vec<PartitionRows>, Failure> {
        if self.newer.is_empty() {
            return Ok(parts);
        }
        let mut left = Vec::with_capacity(parts.len());
        for mut part in parts {
            let payload = stage::payload(self.stream, &part).await?;
            if let Some((payload, rows)) = without(&payload, &self.newer)? {
                part.rows = rows;
                part.payload = Some(partition_rows::Payload::Inline(payload));
            }
            if part.rows > 0 {
                left.push(part);
            }
        }
        Ok(left)
    }
}

/// How many of the parts go into one entry.
fn first_entry(parts: &[PartitionRows]) -> usize {
    let mut bytes = 0;
    let within = parts.iter().take_while(|part| {
        bytes += bytes_of(part);
        bytes <= ENTRY_BYTES
    });
    within.count().max(1)
}

fn bytes_of(part: &PartitionRows) -> u64 {
    match &part.payload {
        Some(partition_rows::Payload::Inline(payload)) => payload.len() as u64,
        Some(partition_rows::Payload::Pointer(pointer)) => pointer.length,
        None => 0,
    }
}

/// A payload without the operations of these keys, and how many rows it has; none if it has no such operation.
fn without(payload: &Bytes, keys: &BTreeSet<Bytes>) -> Result<Option<(Bytes, u32)>, Failure> {
    let operations = laminar_rows::operations(payload).map_err(codec::failure)?;
    let stays = |operation: &&laminar_rows::Operation| !keys.contains(&payload[operation.key.clone()]);
    if operations.iter().all(|operation| stays(&operation)) {
        return Ok(None);
    }
    let (mut left, mut rows) = (Vec::with_capacity(payload.len()), 0);
    for operation in operations.iter().filter(stays) {
        let value = operation.value.clone().map(|value| &payload[value]);
        laminar_rows::put_operation(&mut left, &payload[operation.key.clone()], value);
        rows += 1;
    }
    Ok(Some((left.into(), rows)))
}

#[cfg(test)]
mod tests {
    use laminar_rpc::proto::BlockPointer;

    use super::*;

    #[test]
    fn operations_of_keys_that_were_written_since_are_taken_out() {
        let mut payload = Vec::new();
        for (key, value) in [(b"a", Some(&b"1"[..])), (b"b", None), (b"c", Some(b""))] {
            laminar_rows::put_operation(&mut payload, key, value);
        }
        let payload = Bytes::from(payload);
        let keys =
            |keys: &[&'static str]| keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
        assert_eq!(without(&payload, &keys(&["d", ""])).unwrap(), None);
        let mut left = Vec::new();
        laminar_rows::put_operation(&mut left, b"b", None);
        assert_eq!(without(&payload, &keys(&["a", "c", "x"])).unwrap(), Some((left.into(), 1)));
        assert_eq!(without(&payload, &keys(&["a", "b", "c"])).unwrap(), Some((Bytes::new(), 0)));
    }

    #[test]
    fn an_entry_has_as_many_parts_as_fit_and_at_least_one() {
        let part = |length| PartitionRows {
            payload: Some(partition_rows::Payload::Pointer(BlockPointer { length, ..Default::default() })),
            ..Default::default()
        };
        let parts: Vec<_> = (0..20).map(|_| part(8 << 20)).collect();
        assert_eq!(first_entry(&parts), 8);
        assert_eq!(first_entry(&parts[..3]), 3);
        assert_eq!(first_entry(&[part(1 << 30), part(1)]), 1);
    }
}
