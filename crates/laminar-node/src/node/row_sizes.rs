//! How many bytes the rows of a partition take, wherever they are: in its log, or in staged blocks that it names.

use std::collections::VecDeque;

use laminar_log::entry::{Append, Change, Payload};
use laminar_log::partition_log::PartitionLogStore;
use laminar_log::{LogError, PartitionLogIndex};

/// Pieces that the bytes which may stay are counted in: so much more than them may stay, at most one in so many.
const PIECES: u64 = 64;

/// A running count. Each record is read once, and again only after a restart.
#[derive(Default)]
pub(super) struct RowSizes {
    /// The first record that was not counted.
    next: PartitionLogIndex,
    /// Oldest first.
    pieces: VecDeque<Piece>,
    bytes: u64,
}

/// Some records that follow each other.
struct Piece {
    /// The offset after its last row.
    end_offset: u64,
    bytes: u64,
}

impl RowSizes {
    /// The first offset that stays if `bytes_max` may stay; the newest rows stay, however large they are.
    pub(super) fn keep_from(
        &mut self,
        log: &PartitionLogStore,
        start_offset: u64,
        bytes_max: u64,
    ) -> Result<u64, LogError> {
        self.count(log, bytes_max / PIECES)?;
        let gone = self.pieces.partition_point(|piece| piece.end_offset <= start_offset);
        self.bytes -= self.pieces.drain(..gone).map(|piece| piece.bytes).sum::<u64>();
        // Nothing is taken off before it is gone: the trim may be refused.
        let (mut from, mut left) = (start_offset, self.bytes);
        for piece in self.pieces.iter().take(self.pieces.len().saturating_sub(1)) {
            if left <= bytes_max {
                break;
            }
            left -= piece.bytes;
            from = piece.end_offset;
        }
        Ok(from)
    }

    /// Counts the records that came since.
    fn count(&mut self, log: &PartitionLogStore, piece_bytes: u64) -> Result<(), LogError> {
        if self.next > log.stored_end() {
            // It was made anew.
            *self = Self::default();
        }
        let from = self.next.max(log.first());
        let _pin = log.pin(from)?;
        let mut reader = log.reader(from);
        while let Some(record) = reader.next()? {
            self.next = PartitionLogIndex(record.index.0 + 1);
            let Change::Append(Append { rows, payload, .. }) = &record.record.change else { continue };
            let bytes = match payload {
                Payload::Inline(bytes) => bytes.len() as u64,
                Payload::Pointer(pointer) => pointer.length,
            };
            self.bytes += bytes;
            let end_offset = record.first_offset + u64::from(*rows);
            match self.pieces.back_mut().filter(|piece| piece.bytes < piece_bytes) {
                Some(piece) => *piece = Piece { end_offset, bytes: piece.bytes + bytes },
                None => self.pieces.push_back(Piece { end_offset, bytes }),
            }
        }
        Ok(())
    }
}
