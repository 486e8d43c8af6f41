//! The machine of a stream of keys and values: keeps the last value of each key.
//!
//! ```text
//!  payload of an append: one operation a row
//!   0            4              8
//!  +------------+--------------+-----+-------+
//!  | key length | value length | key | value |  again and again
//!  | u32        | u32          |     |       |
//!  +------------+--------------+-----+-------+
//!   value length   u32::MAX: a tombstone, which has no value and removes the key
//!
//!  piece of a snapshot; all keys of all pieces in order
//!   0         1       2     4        8        12
//!  +---------+-------+-----+--------+--------+---------+------+------+-----+
//!  | version | flags | 0   | crc32c | number | entries | pair | pair | ... |
//!  | u8      | u8    | u16 | u32    | u32    | u32     |      |      |     |
//!  +---------+-------+-----+--------+--------+---------+------+------+-----+
//!   flags     1: the last piece
//!   crc32c    of everything but itself
//!   number    of the piece, from 0
//!   pair      as an operation, with a value
//! ```

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};
use crc32c::{crc32c, crc32c_append};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{Applying, MachineError, PartitionStateMachine};
use crate::entry::{Append, Change, Payload};
use crate::verdict::AcceptedRecord;

/// A piece of a snapshot is closed when it has so many bytes.
const PIECE_BYTES: usize = 1 << 20;
const PIECE_HEADER_BYTES: usize = 16;
const PIECE_VERSION: u8 = 1;
const FLAG_LAST: u8 = 1;
const OPERATION_HEADER_BYTES: usize = 8;
/// The length of a value that is none.
const TOMBSTONE: u32 = u32::MAX;
/// What a pair takes beside its bytes: its place in the tree, two handles and two allocations, as
/// measured with random keys.
const PAIR_OVERHEAD_BYTES: u64 = 128;

/// One change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvOperation {
    /// The key.
    pub key: Bytes,
    /// Its value from now on; none removes the key.
    pub value: Option<Bytes>,
}

/// The payload of an append that makes these changes, one a row.
///
/// # Panics
///
/// If a key or a value is 4 GiB long, which no entry can carry.
pub fn encode_operations(operations: &[KvOperation]) -> Bytes {
    let bytes = |operation: &KvOperation| {
        OPERATION_HEADER_BYTES + operation.key.len() + operation.value.as_ref().map_or(0, Bytes::len)
    };
    let mut buffer = Vec::with_capacity(operations.iter().map(bytes).sum());
    for operation in operations {
        put_operation(&mut buffer, &operation.key, operation.value.as_deref());
    }
    buffer.into()
}

fn put_operation(buffer: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    let length = |bytes: &[u8]| {
        u32::try_from(bytes.len())
            .ok()
            .filter(|length| *length != TOMBSTONE)
            .expect("entries are capped far below")
    };
    buffer.put_u32_le(length(key));
    buffer.put_u32_le(value.map_or(TOMBSTONE, length));
    buffer.extend_from_slice(key);
    buffer.extend_from_slice(value.unwrap_or_default());
}

/// The changes that a payload makes, as parts of it.
///
/// # Errors
///
/// The bytes are not whole operations.
pub fn decode_operations(payload: &Bytes) -> Result<Vec<KvOperation>, MachineError> {
    let mut rest = payload.clone();
    // A hostile count cannot make room for more than there are bytes.
    let mut operations = Vec::new();
    while !rest.is_empty() {
        let at = payload.len() - rest.len();
        let operation = take_operation(&mut rest).ok_or_else(|| {
            error(format!("kv payload, operation {} at byte {at}: it is cut short", operations.len()))
        })?;
        operations.push(operation);
    }
    Ok(operations)
}

fn take_operation(rest: &mut Bytes) -> Option<KvOperation> {
    let (key, value) = (rest.try_get_u32_le().ok()?, rest.try_get_u32_le().ok()?);
    let mut take = |length: u32| (length as usize <= rest.len()).then(|| rest.split_to(length as usize));
    let key = take(key)?;
    let value = if value == TOMBSTONE { None } else { Some(take(value)?) };
    Some(KvOperation { key, value })
}

fn error(reason: String) -> MachineError {
    MachineError { reason }
}

/// Keeps the last value of each key. Nothing is kept of a removed one.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct KvMachine {
    /// Keys and values are copies: parts of a payload would keep all of it in memory.
    pairs: BTreeMap<Bytes, Bytes>,
    /// The bytes of all keys and values.
    content_bytes: u64,
    /// The sum of the hashes of all pairs, so that a change costs as much as what it changes.
    sum: u128,
}

impl KvMachine {
    /// One without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> u64 {
        self.content_bytes + PAIR_OVERHEAD_BYTES * self.pairs.len() as u64
    }

    fn append(&mut self, append: &Append) -> Result<(), MachineError> {
        let payload = match &append.payload {
            Payload::Inline(payload) => payload,
            Payload::Pointer(pointer) => {
                return Err(error(format!(
                    "kv payload: it is in block {:032x}, and a kv machine takes operations in the entry only",
                    pointer.block.0
                )));
            }
        };
        let operations = decode_operations(payload)?;
        if operations.len() as u64 != u64::from(append.rows) {
            return Err(error(format!(
                "kv payload: {} operations in an append of {} rows",
                operations.len(),
                append.rows
            )));
        }
        // From here on nothing fails: the state changes whole or not at all.
        for KvOperation { key, value } in operations {
            match value {
                Some(value) => self.set(&key, Bytes::copy_from_slice(&value)),
                None => self.remove(&key),
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: Bytes) {
        self.sum = self.sum.wrapping_add(pair_hash(key, &value));
        self.content_bytes += value.len() as u64;
        match self.pairs.get_mut(key) {
            Some(kept) => {
                let before = std::mem::replace(kept, value);
                self.sum = self.sum.wrapping_sub(pair_hash(key, &before));
                self.content_bytes -= before.len() as u64;
            }
            None => {
                self.content_bytes += key.len() as u64;
                self.pairs.insert(Bytes::copy_from_slice(key), value);
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(before) = self.pairs.remove(key) {
            self.sum = self.sum.wrapping_sub(pair_hash(key, &before));
            self.content_bytes -= (key.len() + before.len()) as u64;
        }
    }
}

fn pair_hash(key: &[u8], value: &[u8]) -> u128 {
    let mut hash = Xxh3::new();
    hash.update(&(key.len() as u64).to_le_bytes());
    hash.update(key);
    hash.update(value);
    hash.digest128()
}

impl PartitionStateMachine for KvMachine {
    fn apply<'a>(&'a mut self, record: &'a AcceptedRecord) -> Applying<'a> {
        Applying::Done(match &record.record.change {
            Change::Append(append) => self.append(append),
            // A trim drops rows, and values are not rows: the last one of a key stays.
            Change::Fence(_)
            | Change::Create(_)
            | Change::Destroy
            | Change::Trim(_)
            | Change::Skip(_)
            | Change::ExpectEnd(_) => Ok(()),
        })
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn snapshot(&self) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut piece = Piece::new(0);
        for (key, value) in &self.pairs {
            if piece.buffer.len() >= PIECE_BYTES {
                let next = Piece::new(piece.number + 1);
                pieces.push(std::mem::replace(&mut piece, next).finish(false));
            }
            piece.push(key, value);
        }
        pieces.push(piece.finish(true));
        pieces
    }

    fn restore(&mut self, state: &[Bytes]) -> Result<(), MachineError> {
        let mut restored = Self::new();
        let mut last_key: Option<Bytes> = None;
        for (number, piece) in state.iter().enumerate() {
            let last = number + 1 == state.len();
            let damaged = |what| error(format!("kv snapshot, piece {number} of {}: {what}", state.len()));
            let (mut pairs, entries) = open_piece(piece, number, last).map_err(damaged)?;
            for _ in 0..entries {
                let Some(KvOperation { key, value: Some(value) }) = take_operation(&mut pairs) else {
                    return Err(damaged("a pair is cut short"));
                };
                if last_key.as_ref().is_some_and(|before| *before >= key) {
                    return Err(damaged("its keys are not in order"));
                }
                restored.set(&key, Bytes::copy_from_slice(&value));
                last_key = Some(key);
            }
            if !pairs.is_empty() {
                return Err(damaged("it has more than its pairs"));
            }
        }
        if state.is_empty() {
            return Err(error("kv snapshot: it has no pieces".to_owned()));
        }
        *self = restored;
        Ok(())
    }

    fn state_hash(&self) -> u64 {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&(self.pairs.len() as u64).to_le_bytes());
        bytes[8..].copy_from_slice(&self.sum.to_le_bytes());
        xxh3_64(&bytes)
    }

    fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.pairs.get(key).cloned()
    }

    fn scan(&self) -> Vec<(Bytes, Bytes)> {
        self.pairs.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn must_agree(&self) -> bool {
        true
    }
}

/// A piece of a snapshot being filled.
struct Piece {
    number: u32,
    entries: u32,
    buffer: Vec<u8>,
}

impl Piece {
    fn new(number: u32) -> Self {
        let mut buffer = Vec::new();
        buffer.put_u8(PIECE_VERSION);
        buffer.put_bytes(0, 7);
        buffer.put_u32_le(number);
        buffer.put_u32_le(0);
        Self { number, entries: 0, buffer }
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        put_operation(&mut self.buffer, key, Some(value));
        self.entries += 1;
    }

    fn finish(mut self, last: bool) -> Bytes {
        self.buffer[1] = u8::from(last) * FLAG_LAST;
        self.buffer[12..16].copy_from_slice(&self.entries.to_le_bytes());
        let crc = piece_checksum(&self.buffer);
        self.buffer[4..8].copy_from_slice(&crc.to_le_bytes());
        self.buffer.into()
    }
}

fn piece_checksum(piece: &[u8]) -> u32 {
    crc32c_append(crc32c(&piece[..4]), &piece[8..])
}

/// The pairs of a piece that is whole and where it should be, and how many they are.
fn open_piece(piece: &Bytes, number: usize, last: bool) -> Result<(Bytes, u32), &'static str> {
    if piece.len() < PIECE_HEADER_BYTES {
        return Err("it is shorter than its header");
    }
    let mut rest = piece.clone();
    let (version, flags, zero) = (rest.get_u8(), rest.get_u8(), rest.get_u16_le());
    let (checksum, found_number, entries) = (rest.get_u32_le(), rest.get_u32_le(), rest.get_u32_le());
    if version != PIECE_VERSION {
        return Err("it has a version that this release does not read");
    }
    if checksum != piece_checksum(piece) {
        return Err("its checksum is wrong");
    }
    if zero != 0 || flags != u8::from(last) * FLAG_LAST || found_number as usize != number {
        return Err("it is not where it should be, or pieces are missing");
    }
    Ok((rest, entries))
}
