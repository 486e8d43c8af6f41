//! Every byte of a record of the Raft log, encoded and decoded.
//!
//! The log's files hold operations, in the order in which they were asked for; replaying them gives the log. The files
//! have checksums of their own. All numbers are little-endian.
//!
//! ```text
//!  0      1         2       4
//! +------+---------+-------+------+
//! | kind | version | flags | body |
//! | u8   | u8      | u16   |      |
//! +------+---------+-------+------+
//!  kind and body
//!   1 entry      term u64, index u64, [committed], payload
//!                flags 0 - 3: 0 blank, 1 normal, 2 membership; 4: committed (term u64, index u64) is there
//!   2 vote       term u64, node u64                                        flags 1: a quorum gave it
//!   3 committed  term u64, index u64                                       flags 1: there is one, else zeros
//!   4 truncate   index u64: entries after it are gone                      flags 1: there is one, else all are gone
//!   5 state      vote (term u64, node u64), committed (term u64, index u64), purged (term u64, index u64)
//!                flags 1: vote, 2: a quorum gave it, 4: committed, 8: purged; zeros for what is not there
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use laminar_core::ids::NodeId;

use super::types::{EntryPayload, LogEntry};
use crate::format::FormatError;
use crate::log_id::{LogId, Vote};

/// The version this release writes.
const RECORD_VERSION: u8 = 1;

const HEADER_BYTES: usize = 4;
const ID_BYTES: usize = 16;

const KIND_ENTRY: u8 = 1;
const KIND_VOTE: u8 = 2;
const KIND_COMMITTED: u8 = 3;
const KIND_TRUNCATE: u8 = 4;
const KIND_STATE: u8 = 5;

/// The kind of payload is in these bits of an entry's flags.
const ENTRY_PAYLOAD: u16 = 0b11;
const ENTRY_COMMITTED: u16 = 0b100;

/// One operation on the Raft log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    Entry {
        entry: LogEntry,
        /// What was known to be committed before, if that was not written yet.
        committed: Option<LogId>,
    },
    Vote(Vote),
    Committed(Option<LogId>),
    /// Entries after this index are gone; all, if there is none.
    Truncate(Option<u64>),
    /// Everything that older records say and that the log must not lose with them.
    State(State),
}

/// What is written before older records are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct State {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    pub(super) purged: Option<LogId>,
}

/// Bytes of an entry beside its payload.
pub(super) const ENTRY_BYTES_MAX: usize = HEADER_BYTES + 2 * ID_BYTES;

/// Encodes an entry, and returns the record together with the entry as a part of it.
pub(super) fn encode_entry(
    buffer: &mut BytesMut,
    entry: &LogEntry,
    committed: Option<LogId>,
) -> (Bytes, LogEntry) {
    let (kind, bytes): (u16, &[u8]) = match &entry.payload {
        EntryPayload::Blank => (0, &[]),
        EntryPayload::Normal(bytes) => (1, bytes),
        EntryPayload::Membership(bytes) => (2, bytes),
    };
    let flags = kind | if committed.is_some() { ENTRY_COMMITTED } else { 0 };
    put_header(buffer, KIND_ENTRY, flags);
    put_id(buffer, Some(entry.id));
    if committed.is_some() {
        put_id(buffer, committed);
    }
    buffer.put_slice(bytes);
    let record = buffer.split().freeze();
    let kept = record.slice(record.len() - bytes.len()..);
    let payload = match kind {
        0 => EntryPayload::Blank,
        1 => EntryPayload::Normal(kept),
        _ => EntryPayload::Membership(kept),
    };
    (record, LogEntry { id: entry.id, payload })
}

/// Encodes anything but an entry.
pub(super) fn encode_vote(vote: Vote) -> Bytes {
    let mut buffer = BytesMut::with_capacity(HEADER_BYTES + ID_BYTES);
    put_header(&mut buffer, KIND_VOTE, u16::from(vote.committed));
    put_vote(&mut buffer, Some(vote));
    buffer.freeze()
}

pub(super) fn encode_committed(committed: Option<LogId>) -> Bytes {
    let mut buffer = BytesMut::with_capacity(HEADER_BYTES + ID_BYTES);
    put_header(&mut buffer, KIND_COMMITTED, u16::from(committed.is_some()));
    put_id(&mut buffer, committed);
    buffer.freeze()
}

pub(super) fn encode_truncate(after: Option<u64>) -> Bytes {
    let mut buffer = BytesMut::with_capacity(HEADER_BYTES + 8);
    put_header(&mut buffer, KIND_TRUNCATE, u16::from(after.is_some()));
    buffer.put_u64_le(after.unwrap_or(0));
    buffer.freeze()
}

pub(super) fn encode_state(state: &State) -> Bytes {
    let bit = |set: bool, bit: u16| if set { bit } else { 0 };
    let flags = bit(state.vote.is_some(), 1)
        | bit(state.vote.is_some_and(|vote| vote.committed), 2)
        | bit(state.committed.is_some(), 4)
        | bit(state.purged.is_some(), 8);
    let mut buffer = BytesMut::with_capacity(HEADER_BYTES + 3 * ID_BYTES);
    put_header(&mut buffer, KIND_STATE, flags);
    put_vote(&mut buffer, state.vote);
    put_id(&mut buffer, state.committed);
    put_id(&mut buffer, state.purged);
    buffer.freeze()
}

fn put_header(buffer: &mut BytesMut, kind: u8, flags: u16) {
    buffer.put_u8(kind);
    buffer.put_u8(RECORD_VERSION);
    buffer.put_u16_le(flags);
}

fn put_id(buffer: &mut BytesMut, id: Option<LogId>) {
    let id = id.unwrap_or_default();
    buffer.put_u64_le(id.term);
    buffer.put_u64_le(id.index.0);
}

fn put_vote(buffer: &mut BytesMut, vote: Option<Vote>) {
    buffer.put_u64_le(vote.map_or(0, |vote| vote.term));
    buffer.put_u64_le(vote.map_or(0, |vote| vote.node.0));
}

/// Reads a record; a payload stays a part of it.
pub(super) fn decode(record: &Bytes) -> Result<Operation, FormatError> {
    let what = "log record";
    let Some(&[kind, version, low, high]) = record.first_chunk::<HEADER_BYTES>() else {
        return Err(FormatError::Length { what, at: 0, found: record.len(), expected: HEADER_BYTES });
    };
    match version {
        RECORD_VERSION => {}
        0 => return Err(FormatError::Value { what, at: 1, found: 0 }),
        found => return Err(FormatError::VersionTooNew { what, at: 1, found }),
    }
    let flags = u16::from_le_bytes([low, high]);
    match kind {
        KIND_ENTRY => decode_entry(record, flags),
        KIND_VOTE => {
            let fields = Fields::of::<2>("vote", record, flags, 1)?;
            let vote = fields.vote(0, true, flags & 1 != 0)?;
            Ok(Operation::Vote(vote.expect("asked for as being there")))
        }
        KIND_COMMITTED => {
            let fields = Fields::of::<2>("committed", record, flags, 1)?;
            Ok(Operation::Committed(fields.id(0, flags & 1 != 0)?))
        }
        KIND_TRUNCATE => {
            let fields = Fields::of::<1>("truncation", record, flags, 1)?;
            Ok(Operation::Truncate(fields.number(0, flags & 1 != 0)?))
        }
        KIND_STATE => {
            let fields = Fields::of::<6>("state", record, flags, 0b1111)?;
            if flags & 0b11 == 0b10 {
                return Err(FormatError::Value { what: "state", at: 2, found: u64::from(flags) });
            }
            Ok(Operation::State(State {
                vote: fields.vote(0, flags & 1 != 0, flags & 2 != 0)?,
                committed: fields.id(2, flags & 4 != 0)?,
                purged: fields.id(4, flags & 8 != 0)?,
            }))
        }
        found => Err(FormatError::Value { what, at: 0, found: u64::from(found) }),
    }
}

fn decode_entry(record: &Bytes, flags: u16) -> Result<Operation, FormatError> {
    let what = "log entry";
    let bad_flags = FormatError::Value { what, at: 2, found: u64::from(flags) };
    if flags & !(ENTRY_PAYLOAD | ENTRY_COMMITTED) != 0 {
        return Err(bad_flags);
    }
    let has_committed = flags & ENTRY_COMMITTED != 0;
    let begin = HEADER_BYTES + ID_BYTES * if has_committed { 2 } else { 1 };
    if record.len() < begin {
        return Err(FormatError::Length { what, at: 0, found: record.len(), expected: begin });
    }
    let fields = Fields { what, bytes: &record[HEADER_BYTES..begin] };
    let bytes = record.slice(begin..);
    let payload = match flags & ENTRY_PAYLOAD {
        0 if bytes.is_empty() => EntryPayload::Blank,
        0 => return Err(FormatError::Length { what, at: begin, found: bytes.len(), expected: 0 }),
        1 => EntryPayload::Normal(bytes),
        2 => EntryPayload::Membership(bytes),
        _ => return Err(bad_flags),
    };
    let id = fields.id(0, true)?.expect("asked for as being there");
    let committed = if has_committed { fields.id(2, true)? } else { None };
    Ok(Operation::Entry { entry: LogEntry { id, payload }, committed })
}

/// Numbers of eight bytes, one after the other.
struct Fields<'a> {
    what: &'static str,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// A body of exactly `N` numbers, of a record that may have these flags.
    fn of<const N: usize>(
        what: &'static str,
        record: &'a [u8],
        flags: u16,
        flags_known: u16,
    ) -> Result<Self, FormatError> {
        let expected = HEADER_BYTES + 8 * N;
        if record.len() != expected {
            return Err(FormatError::Length { what, at: 0, found: record.len(), expected });
        }
        if flags & !flags_known != 0 {
            return Err(FormatError::Value { what, at: 2, found: u64::from(flags) });
        }
        Ok(Self { what, bytes: &record[HEADER_BYTES..] })
    }

    fn get(&self, n: usize) -> u64 {
        let bytes = self.bytes[8 * n..].first_chunk().expect("the length was checked");
        u64::from_le_bytes(*bytes)
    }

    /// The number, or none: then it must be zero.
    fn number(&self, n: usize, is_there: bool) -> Result<Option<u64>, FormatError> {
        match self.get(n) {
            found if is_there => Ok(Some(found)),
            0 => Ok(None),
            found => Err(FormatError::Value { what: self.what, at: HEADER_BYTES + 8 * n, found }),
        }
    }

    fn id(&self, n: usize, is_there: bool) -> Result<Option<LogId>, FormatError> {
        let (term, index) = (self.number(n, is_there)?, self.number(n + 1, is_there)?);
        if let Some(found @ u64::MAX) = index {
            // There would be no place behind it.
            return Err(FormatError::Value { what: self.what, at: HEADER_BYTES + 8 * (n + 1), found });
        }
        Ok(term.zip(index).map(|(term, index)| LogId::new(term, index)))
    }

    fn vote(&self, n: usize, is_there: bool, committed: bool) -> Result<Option<Vote>, FormatError> {
        let (term, node) = (self.number(n, is_there)?, self.number(n + 1, is_there)?);
        Ok(term.zip(node).map(|(term, node)| Vote { term, node: NodeId(node), committed }))
    }
}

#[cfg(test)]
mod tests;
