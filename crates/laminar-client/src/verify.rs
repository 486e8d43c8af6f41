//! Checks everything that is stored of a partition: records, blocks, and how they follow each other.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use laminar_rpc::proto::{StoredRows, stored_rows};
use laminar_rpc::{ErrorClass, Failure};

use crate::codec;
use crate::cursor::{Cursor, Piece};
use crate::description::StreamInfo;
use crate::stored;
use crate::stream::StreamHandle;

/// What was found in a range of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Records that begin in the range.
    pub records: u64,
    /// Rows of the range.
    pub rows: u64,
    /// Staged blocks that the records point to.
    pub blocks: u64,
    /// Encoded bytes of the records.
    pub bytes: u64,
    /// The epoch of the first record.
    pub first_epoch: Option<u64>,
    /// The epoch of the last record.
    pub last_epoch: Option<u64>,
    /// Rows that their key would have in another partition now: the stream got partitions later, or somebody chose.
    pub misplaced: u64,
    /// The first place that is not as it must be; nothing behind it was looked at.
    pub fault: Option<VerifyFault>,
}

/// A place that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyFault {
    /// The offset of the first row concerned.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

impl StreamHandle {
    /// Reads every record and block of a partition from `start` to `end`, or to what is there now, and checks them. Rows
    /// that were trimmed are left out.
    ///
    /// # Errors
    /// Invalid: the partition ends before `end`. Unknown partition. Unavailable: nothing was found out. What is wrong with
    /// the data is in the answer.
    pub async fn verify(&self, partition: u32, start: u64, end: Option<u64>) -> Result<Verified, Failure> {
        let limit = self.limit();
        let info = self.refresh_within(limit).await?;
        let (first, last) = self.bounds(partition).await?;
        let end = end.unwrap_or(last);
        if start.max(end) > last {
            let (path, asked) = (&info.path, start.max(end));
            let message = format!(
                "partition {partition} of {path}: verify up to offset {asked} was asked and it ends at {last}; ask for less"
            );
            return Err(Failure::invalid(message).with("partition", partition).with("stream", path.as_str()));
        }
        let check = Check {
            stream: self.clone(),
            info: info.clone(),
            ordinal: partition,
            range: start..end,
            found: Verified::default(),
            blocks: BTreeSet::new(),
            last: None,
        };
        check.run(first).await.map_err(|failure| info.name(failure))
    }

    /// Where a partition begins and ends.
    pub(crate) async fn bounds(&self, partition: u32) -> Result<(u64, u64), Failure> {
        let told = self.ask_offsets(Some(&[partition]), None, None, self.limit()).await?;
        Ok(told.get(&partition).map_or((0, 0), |told| (told.start_offset, told.end_offset)))
    }
}

/// A check under way.
struct Check {
    stream: StreamHandle,
    info: Arc<StreamInfo>,
    ordinal: u32,
    range: Range<u64>,
    found: Verified,
    blocks: BTreeSet<(u64, u64)>,
    last: Option<Order>,
}

/// What never goes back from record to record.
#[derive(Debug, Clone, Copy)]
struct Order {
    end: u64,
    epoch: u64,
    global_index: u64,
    time_ms: u64,
}

impl Check {
    async fn run(mut self, first: u64) -> Result<Verified, Failure> {
        let mut next = self.range.start.max(first);
        while next < self.range.end {
            let left = next..self.range.end;
            let mut cursor = Cursor::new(self.stream.clone(), self.info.clone(), self.ordinal, left)?;
            match self.read(&mut cursor).await {
                Ok(()) => break,
                Err(failure) => {
                    let at = cursor.next_offset().max(next);
                    // Rows that are dropped while they are read were not lost.
                    let (first, _) = self.stream.bounds(self.ordinal).await?;
                    if first > at {
                        next = first;
                        self.last = None;
                        continue;
                    }
                    // Anything else says nothing about the data, but about the way to it.
                    if failure.class != ErrorClass::Corruption {
                        return Err(failure);
                    }
                    self.found.fault.get_or_insert(VerifyFault { offset: at, what: failure.message });
                    break;
                }
            }
        }
        self.found.blocks = self.blocks.len() as u64;
        Ok(self.found)
    }

    /// Reads on until the end or a fault.
    async fn read(&mut self, cursor: &mut Cursor) -> Result<(), Failure> {
        while let Some(chunk) = cursor.next_chunk().await? {
            for piece in &chunk.pieces {
                if let Err(failure) = self.piece(piece).await {
                    cursor.back_to(piece.range.start);
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    async fn piece(&mut self, piece: &Piece) -> Result<(), Failure> {
        let record = &piece.record;
        self.follows(record)?;
        let (batch, bytes) = stored::rows(&self.stream, &self.info, self.ordinal, record).await?;
        let batch = laminar_rows::slice_offsets(&batch, record.first_offset, piece.range.clone());
        let batch = batch.map_err(codec::failure)?;
        self.found.misplaced += self.misplaced(&batch)?;
        self.found.rows += batch.num_rows() as u64;
        // A record that lies across two ranges is counted where it begins, so that ranges add up.
        if self.range.contains(&record.first_offset) {
            self.found.records += 1;
            self.found.bytes += bytes;
            if let Some(stored_rows::Payload::Pointer(pointer)) = &record.payload {
                self.blocks.insert((pointer.block_high, pointer.block_low));
            }
        }
        self.found.first_epoch.get_or_insert(record.epoch);
        self.found.last_epoch = Some(record.epoch);
        Ok(())
    }

    /// Whether a record may stand behind the last one (LOG-2, EPOCH-2, APPLY-2).
    fn follows(&mut self, record: &StoredRows) -> Result<(), Failure> {
        let now = Order {
            end: record.first_offset.saturating_add(u64::from(record.rows)),
            epoch: record.epoch,
            global_index: record.global_index,
            time_ms: record.time_ms,
        };
        if let Some(what) = self.last.and_then(|last| out_of_order(last, now, record.first_offset)) {
            let (path, ordinal) = (&self.info.path, self.ordinal);
            let message =
                format!("partition {ordinal} of {path}: the record at offset {} {what}", record.first_offset);
            return Err(Failure::new(ErrorClass::Corruption, message));
        }
        self.last = Some(now);
        Ok(())
    }

    /// How many rows have a key of another partition.
    fn misplaced(&self, batch: &RecordBatch) -> Result<u64, Failure> {
        let schema = self.info.codec().schema();
        if !schema.has_key() {
            return Ok(0);
        }
        let count = self.info.partition_count();
        let hashes = laminar_rows::hashes(batch, schema).map_err(codec::failure)?;
        let elsewhere = |hash: &&u64| laminar_rows::partition_of(**hash, count) != self.ordinal;
        Ok(hashes.iter().filter(elsewhere).count() as u64)
    }
}

fn out_of_order(last: Order, now: Order, first_offset: u64) -> Option<String> {
    let back = |what: &str, now: u64, last: u64| {
        (now < last).then(|| format!("has {what} {now} and the one before it {last}"))
    };
    let gap =
        (first_offset != last.end).then(|| format!("does not follow the one that ends at {}", last.end));
    gap.or_else(|| back("epoch", now.epoch, last.epoch))
        .or_else(|| back("global index", now.global_index, last.global_index))
        .or_else(|| back("time", now.time_ms, last.time_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_go_back_are_told_by_what_goes_back() {
        let last = Order { end: 10, epoch: 5, global_index: 100, time_ms: 1000 };
        assert_eq!(out_of_order(last, last, 10), None, "one commit may have several records of a partition");
        let gap = out_of_order(last, last, 11).unwrap();
        assert_eq!(gap, "does not follow the one that ends at 10");
        for (now, what) in [
            (Order { epoch: 4, ..last }, "has epoch 4 and the one before it 5"),
            (Order { global_index: 99, ..last }, "has global index 99 and the one before it 100"),
            (Order { time_ms: 999, ..last }, "has time 999 and the one before it 1000"),
        ] {
            assert_eq!(out_of_order(last, now, 10).as_deref(), Some(what));
        }
    }
}
