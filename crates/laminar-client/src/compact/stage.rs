//! Rows of one partition, written into few and large parts.

use bytes::Bytes;
use laminar_rpc::Failure;
use laminar_rpc::proto::{PartitionRows, partition_rows};

use super::fold::Newest;
use crate::codec::Part;
use crate::description::StreamInfo;
use crate::staging;
use crate::stream::StreamHandle;
use crate::task::writer::{BLOCK_BYTES, INLINE_BYTES_MAX, PART_BYTES, PART_ROWS};

/// Fills parts up to their limits.
#[derive(Default)]
struct Filling {
    payload: Vec<u8>,
    rows: u32,
}

impl Filling {
    /// Whether a row of so many bytes has to go into the next part.
    fn is_full_for(&self, bytes: u64) -> bool {
        let full = self.rows as usize >= PART_ROWS || self.payload.len() as u64 + bytes > PART_BYTES;
        self.rows > 0 && full
    }

    fn take(&mut self, ordinal: u32) -> Option<Part> {
        let Filling { payload, rows } = std::mem::take(self);
        (rows > 0).then(|| Part { ordinal, rows, payload: Bytes::from(payload).into() })
    }
}

/// How many parts these rows make.
pub(super) fn parts_of(rows: &[Newest]) -> u64 {
    let (mut parts, mut filled, mut bytes) = (0, 0, 0);
    for row in rows {
        if filled == 0 || filled >= PART_ROWS || bytes + row.bytes() > PART_BYTES {
            parts += 1;
            (filled, bytes) = (0, 0);
        }
        filled += 1;
        bytes += row.bytes();
    }
    parts
}

/// Writes rows as parts, staged in blocks unless they are few.
pub(super) async fn stage(
    stream: &StreamHandle,
    info: &StreamInfo,
    ordinal: u32,
    rows: Vec<Newest>,
    block_bytes: Option<usize>,
) -> Result<Vec<PartitionRows>, Failure> {
    let block_bytes = block_bytes.unwrap_or(BLOCK_BYTES).max(1);
    let mut staged = Vec::new();
    let (mut block, mut block_length) = (Vec::new(), 0);
    let mut filling = Filling::default();
    for row in rows {
        if filling.is_full_for(row.bytes())
            && let Some(part) = filling.take(ordinal)
        {
            block_length += part.payload.len();
            block.push(part);
        }
        if block_length >= block_bytes {
            stage_block(stream, info, std::mem::take(&mut block), &mut staged).await?;
            block_length = 0;
        }
        laminar_rows::put_operation(&mut filling.payload, &row.key, row.value.as_deref());
        filling.rows += 1;
    }
    block.extend(filling.take(ordinal));
    let length: u64 = block.iter().map(|part| part.payload.len() as u64).sum();
    let hello = &stream.session().live(stream.limit()).await?.hello;
    // A block of its own would cost a sync; and some clients have nowhere to put one.
    let inline = staged.is_empty() && staging::check_staging(length, hello, &info.machine).is_err();
    let most = if inline { hello.inline_bytes_max } else { hello.inline_bytes_max.min(INLINE_BYTES_MAX) };
    if length > most {
        stage_block(stream, info, block, &mut staged).await?;
        return Ok(staged);
    }
    for part in block {
        staged.push(PartitionRows {
            partition_id: info.partition_id(part.ordinal)?,
            epoch: 0,
            rows: part.rows,
            payload: Some(partition_rows::Payload::Inline(part.payload.joined())),
        });
    }
    Ok(staged)
}

/// Writes parts as one block.
async fn stage_block(
    stream: &StreamHandle,
    info: &StreamInfo,
    block: Vec<Part>,
    staged: &mut Vec<PartitionRows>,
) -> Result<(), Failure> {
    let length: u64 = block.iter().map(|part| part.payload.len() as u64).sum();
    let live = stream.session().live(stream.limit()).await?;
    staging::check_staging(length, &live.hello, &info.machine)?;
    let store = stream.session().stores().open(&live.hello.store_path).await?;
    let pointers = staging::stage(&store, &block, stream.limit()).await?;
    for (part, pointer) in block.iter().zip(pointers) {
        staged.push(PartitionRows {
            partition_id: info.partition_id(part.ordinal)?,
            epoch: 0,
            rows: part.rows,
            payload: Some(partition_rows::Payload::Pointer(pointer)),
        });
    }
    Ok(())
}

/// The encoded rows of a part, from the store if they are there.
pub(super) async fn payload(stream: &StreamHandle, part: &PartitionRows) -> Result<Bytes, Failure> {
    match &part.payload {
        Some(partition_rows::Payload::Inline(payload)) => Ok(payload.clone()),
        Some(partition_rows::Payload::Pointer(pointer)) => {
            let session = stream.session();
            let live = session.live(stream.limit()).await?;
            staging::fetch(&session.stores(), &live.hello.store_path, pointer).await
        }
        None => Err(Failure::invalid("a part of the compacted rows has none; compact again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, value_bytes: usize) -> Vec<Newest> {
        let value = Some(Bytes::from(vec![7; value_bytes]));
        let row = |offset: usize| Newest {
            key: Bytes::copy_from_slice(&offset.to_le_bytes()),
            value: value.clone(),
            offset: offset as u64,
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn parts_are_counted_as_they_are_filled() {
        for (count, value_bytes) in
            [(0, 1), (1, 1), (PART_ROWS, 1), (PART_ROWS + 1, 1), (5, 3 << 20), (2, 9 << 20)]
        {
            let rows = rows(count, value_bytes);
            let mut filling = Filling::default();
            let mut parts = 0;
            for row in &rows {
                if filling.is_full_for(row.bytes()) {
                    parts += u64::from(filling.take(0).is_some());
                }
                laminar_rows::put_operation(&mut filling.payload, &row.key, row.value.as_deref());
                filling.rows += 1;
            }
            parts += u64::from(filling.take(0).is_some());
            assert_eq!(parts_of(&rows), parts, "{count} rows of {value_bytes} bytes");
        }
    }
}
