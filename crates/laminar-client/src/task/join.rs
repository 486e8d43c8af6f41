//! Small parts of many tasks, made into few.

use std::collections::BTreeMap;

use bytes::Bytes;
use laminar_rpc::Failure;
use laminar_rpc::proto::{PartitionRows, partition_rows};

use crate::description::StreamInfo;

/// Small parts of a partition are joined up to so many bytes.
const JOINED_BYTES_MAX: usize = 1 << 20;

/// The rows of a part, if it has them itself.
pub(super) fn inline(part: &PartitionRows) -> Option<&Bytes> {
    match &part.payload {
        Some(partition_rows::Payload::Inline(bytes)) => Some(bytes),
        _ => None,
    }
}

/// Makes one part of small ones of a partition that follow each other: each part costs the log and its readers something.
pub(super) fn join_inline(
    info: &StreamInfo,
    parts: Vec<PartitionRows>,
) -> Result<Vec<PartitionRows>, Failure> {
    let mut runs: Vec<Vec<PartitionRows>> = Vec::with_capacity(parts.len());
    // The run of each partition that its next small part belongs to, and its bytes.
    let mut open: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for part in parts {
        let (id, bytes) = (part.partition_id, inline(&part).map(Bytes::len));
        match (open.get_mut(&id), bytes) {
            (Some((run, length)), Some(bytes)) if *length + bytes <= JOINED_BYTES_MAX => {
                *length += bytes;
                runs[*run].push(part);
                continue;
            }
            (_, Some(bytes)) => {
                open.insert(id, (runs.len(), bytes));
            }
            (_, None) => {
                open.remove(&id);
            }
        }
        runs.push(vec![part]);
    }
    runs.into_iter().map(|run| join_run(info, run)).collect()
}

fn join_run(info: &StreamInfo, mut run: Vec<PartitionRows>) -> Result<PartitionRows, Failure> {
    let codec = info.codec();
    let last = run.pop().ok_or_else(|| Failure::internal("a run of parts is empty; report it"))?;
    if run.is_empty() {
        return Ok(last);
    }
    run.push(last.clone());
    let mut batches = Vec::with_capacity(run.len());
    for part in &run {
        let rows = codec.decode(inline(part).unwrap_or(&Bytes::new()))?;
        if rows.num_rows() as u64 != u64::from(part.rows) {
            let (found, said) = (rows.num_rows(), part.rows);
            return Err(Failure::invalid(format!(
                "message of a task refused: a part has {found} rows and says that it has {said}"
            )));
        }
        batches.push(rows);
    }
    let joined = codec.join(batches)?.ok_or_else(|| Failure::internal("parts without rows; report it"))?;
    let part = codec.part(0, &joined)?;
    Ok(PartitionRows {
        rows: part.rows,
        payload: Some(partition_rows::Payload::Inline(part.payload.joined())),
        ..last
    })
}
