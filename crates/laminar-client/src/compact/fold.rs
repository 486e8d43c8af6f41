//! The newest operation of each key of a range of rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use laminar_rpc::Failure;

use crate::codec;
use crate::cursor::{Cursor, Piece};
use crate::description::StreamInfo;
use crate::stored;
use crate::stream::StreamHandle;

/// How often reading begins again because rows were trimmed meanwhile.
const READ_AGAIN_MAX: u32 = 5;
/// An operation beside its key and value.
const OPERATION_HEADER_BYTES: u64 = 8;

/// The newest row of a key. Key and value are copies: parts of a payload would keep all of it in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Newest {
    pub(super) key: Bytes,
    /// None: the key was removed.
    pub(super) value: Option<Bytes>,
    pub(super) offset: u64,
}

impl Newest {
    /// How long its operation is.
    pub(super) fn bytes(&self) -> u64 {
        OPERATION_HEADER_BYTES + self.key.len() as u64 + self.value.as_ref().map_or(0, Bytes::len) as u64
    }
}

/// What was read of a partition: its memory is that of the live keys and values, and of removed keys.
#[derive(Debug, Default)]
pub(super) struct Fold {
    pub(super) range: Range<u64>,
    pub(super) records: u64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    keys: BTreeMap<Bytes, Last>,
}

#[derive(Debug)]
struct Last {
    value: Option<Bytes>,
    offset: u64,
    time_ms: u64,
}

impl Fold {
    /// All rows of a partition there are now.
    pub(super) async fn read(
        stream: &StreamHandle,
        info: &Arc<StreamInfo>,
        ordinal: u32,
    ) -> Result<Self, Failure> {
        let mut again = 0;
        loop {
            let (start, end) = stream.bounds(ordinal).await?;
            let mut fold = Fold { range: start..end, ..Fold::default() };
            let read =
                each_piece(stream, info, ordinal, start..end, |piece, payload| fold.add(piece, payload));
            let Err(failure) = read.await else { return Ok(fold) };
            // Rows that are dropped while they are read were not lost.
            let (first, _) = stream.bounds(ordinal).await?;
            again += 1;
            if first <= start || again > READ_AGAIN_MAX {
                return Err(failure);
            }
        }
    }

    fn add(&mut self, piece: &Piece, payload: &Bytes) -> Result<(), Failure> {
        self.records += 1;
        self.bytes += payload.len() as u64;
        let time_ms = piece.record.time_ms;
        for (offset, operation) in operations(piece, payload)? {
            self.rows += 1;
            let value = operation.value.map(|value| Bytes::copy_from_slice(&payload[value]));
            let last = Last { value, offset, time_ms };
            let key = &payload[operation.key];
            match self.keys.get_mut(key) {
                Some(known) => *known = last,
                None => drop(self.keys.insert(Bytes::copy_from_slice(key), last)),
            }
        }
        Ok(())
    }

    /// The newest rows in the order of their offsets, without keys that were removed before this time; and how many these are.
    pub(super) fn newest(self, keep_from_ms: u64) -> (Vec<Newest>, u64) {
        let keys = self.keys.len();
        let kept =
            self.keys.into_iter().filter(|(_, last)| last.value.is_some() || last.time_ms > keep_from_ms);
        let mut newest: Vec<Newest> =
            kept.map(|(key, Last { value, offset, .. })| Newest { key, value, offset }).collect();
        newest.sort_unstable_by_key(|row| row.offset);
        let dropped = (keys - newest.len()) as u64;
        (newest, dropped)
    }
}

/// The keys that rows of a range name.
pub(super) async fn keys(
    stream: &StreamHandle,
    info: &Arc<StreamInfo>,
    ordinal: u32,
    range: Range<u64>,
) -> Result<BTreeSet<Bytes>, Failure> {
    let mut keys = BTreeSet::new();
    let read = each_piece(stream, info, ordinal, range, |piece, payload| {
        for (_, operation) in operations(piece, payload)? {
            let key = &payload[operation.key];
            if !keys.contains(key) {
                keys.insert(Bytes::copy_from_slice(key));
            }
        }
        Ok(())
    });
    read.await?;
    Ok(keys)
}

/// Gives each record of a range with its encoded rows, which were checked.
async fn each_piece(
    stream: &StreamHandle,
    info: &Arc<StreamInfo>,
    ordinal: u32,
    range: Range<u64>,
    mut take: impl FnMut(&Piece, &Bytes) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if range.is_empty() {
        return Ok(());
    }
    let mut cursor = Cursor::new(stream.clone(), info.clone(), ordinal, range)?;
    while let Some(chunk) = cursor.next_chunk().await? {
        for piece in &chunk.pieces {
            let payload = stored::payload(stream, info, ordinal, &piece.record).await?;
            let told = |failure: Failure| stored::corrupt(info, ordinal, &piece.record, &failure.message);
            take(piece, &payload).map_err(told)?;
        }
    }
    Ok(())
}

/// The operations of a record that are wanted, with their offsets.
fn operations(
    piece: &Piece,
    payload: &Bytes,
) -> Result<impl Iterator<Item = (u64, laminar_rows::Operation)>, Failure> {
    let operations = laminar_rows::operations(payload).map_err(codec::failure)?;
    if operations.len() as u64 != u64::from(piece.record.rows) {
        let (said, found) = (piece.record.rows, operations.len());
        return Err(Failure::internal(format!("says {said} rows and has {found}")));
    }
    let wanted = piece.range.clone();
    let placed = (piece.record.first_offset..).zip(operations);
    Ok(placed.filter(move |(offset, _)| wanted.contains(offset)))
}

#[cfg(test)]
mod tests {
    use laminar_rpc::proto::StoredRows;

    use super::*;

    fn payload(operations: &[(&str, Option<&str>)]) -> Bytes {
        let mut payload = Vec::new();
        for (key, value) in operations {
            laminar_rows::put_operation(&mut payload, key.as_bytes(), value.map(str::as_bytes));
        }
        payload.into()
    }

    fn piece(first_offset: u64, rows: u32, time_ms: u64, range: Range<u64>) -> Piece {
        Piece { record: StoredRows { first_offset, rows, time_ms, ..Default::default() }, range }
    }

    /// Offset, key and value of each row; the removed have none.
    fn shown(newest: &[Newest]) -> Vec<String> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let value = |row: &Newest| row.value.as_ref().map_or("removed".to_owned(), text);
        newest.iter().map(|row| format!("{} {}={}", row.offset, text(&row.key), value(row))).collect()
    }

    #[test]
    fn the_newest_row_of_each_key_stays_where_it_was() {
        let mut fold = Fold::default();
        let first = payload(&[("a", Some("1")), ("b", Some("2")), ("a", Some("3"))]);
        fold.add(&piece(10, 3, 5, 10..13), &first).unwrap();
        fold.add(&piece(13, 1, 6, 13..14), &payload(&[("b", Some(""))])).unwrap();
        assert_eq!((fold.records, fold.rows), (2, 4));
        let (newest, dropped) = fold.newest(u64::MAX);
        assert_eq!(shown(&newest), ["12 a=3", "13 b="]);
        assert_eq!((dropped, newest[0].bytes()), (0, 10));
    }

    #[test]
    fn removed_keys_stay_while_they_are_young() {
        for (keep_from, kept) in [(0, 3), (6, 2), (9, 1)] {
            let mut fold = Fold::default();
            fold.add(&piece(0, 2, 6, 0..2), &payload(&[("a", None), ("b", Some("2"))])).unwrap();
            fold.add(&piece(2, 1, 9, 2..3), &payload(&[("c", None)])).unwrap();
            let (newest, dropped) = fold.newest(keep_from);
            assert_eq!((newest.len(), dropped), (kept, 3 - kept as u64), "{keep_from}");
        }
    }

    #[test]
    fn rows_outside_of_the_range_are_left_out() {
        let mut fold = Fold::default();
        let rows = payload(&[("a", Some("1")), ("b", Some("2")), ("c", Some("3"))]);
        fold.add(&piece(10, 3, 5, 11..12), &rows).unwrap();
        assert_eq!(shown(&fold.newest(0).0), ["11 b=2"]);
    }

    #[test]
    fn payloads_that_are_not_what_the_record_says_are_refused() {
        let rows = payload(&[("a", Some("1"))]);
        let mut fold = Fold::default();
        assert!(
            fold.add(&piece(0, 2, 5, 0..2), &rows).unwrap_err().message.contains("says 2 rows and has 1")
        );
        assert!(fold.add(&piece(0, 1, 5, 0..1), &rows.slice(..9)).is_err());
    }
}
