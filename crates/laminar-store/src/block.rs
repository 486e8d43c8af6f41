//! Names of blocks and what is known of them.
//!
//! ```text
//!  id of a block, 128 bits, as UUIDv7: ids grow with time
//!   127        80 79   76 75     64 63     62 61        0
//!  +-------------+-------+---------+---------+-----------+
//!  | time        | 7     | random  | 2       | random    |
//!  | 48 bits, ms | 4     | 12 bits | 2 bits  | 62 bits   |
//!  +-------------+-------+---------+---------+-----------+
//!  name in the store: stage/<32 hex digits of the id>
//! ```

use bytes::Bytes;
use rustix::rand::{GetRandomFlags, getrandom};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::error::StoreError;

pub(crate) const STAGE: &str = "stage";
const ID_DIGITS: usize = 32;
const TIME_BITS: u32 = 48;

/// A staged block. Ids grow with time, so that the memory of expired ones can be bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u128);

impl BlockId {
    /// When the id was made, in milliseconds since 1970.
    pub fn time_ms(self) -> u64 {
        (self.0 >> (128 - TIME_BITS)) as u64
    }

    /// The name of the block in the store.
    pub fn path(self) -> String {
        format!("{STAGE}/{:032x}", self.0)
    }

    /// The block of a name.
    ///
    /// # Errors
    ///
    /// Invalid: it is no name of a block.
    pub fn from_path(path: &str) -> Result<Self, StoreError> {
        let digits = path.strip_prefix(STAGE).and_then(|rest| rest.strip_prefix('/'));
        digits
            .filter(|digits| digits.len() == ID_DIGITS && digits.bytes().all(is_digit))
            .and_then(|digits| u128::from_str_radix(digits, 16).ok())
            .map(BlockId)
            .ok_or_else(|| StoreError::BadPath { path: path.to_owned() })
    }
}

/// One name for a block, so lowercase only.
fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// A new id, from the time and 74 random bits.
///
/// # Errors
///
/// Unavailable: the system gives no random numbers.
pub fn new_block_id(now_ms: u64) -> Result<BlockId, StoreError> {
    let mut random = [0; 10];
    let given = getrandom(&mut random, GetRandomFlags::empty());
    // The system gives all of so few bytes, or none.
    if given.map_err(|source| StoreError::NoRandom { source: source.into() })? != random.len() {
        return Err(StoreError::NoRandom { source: std::io::ErrorKind::UnexpectedEof.into() });
    }
    let [first, second, low @ ..] = random;
    let high = u128::from(u16::from_be_bytes([first, second]) & 0xfff);
    let low = u128::from(u64::from_be_bytes(low) & (u64::MAX >> 2));
    let time = u128::from(now_ms & ((1 << TIME_BITS) - 1));
    Ok(BlockId(time << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))
}

/// The checksum of a block or a part of it: xxh3, 64 bits.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The checksum of bytes that come in pieces.
pub fn checksum_of_pieces<'a>(pieces: impl IntoIterator<Item = &'a Bytes>) -> u64 {
    let mut hash = Xxh3::new();
    pieces.into_iter().for_each(|piece| hash.update(piece));
    hash.digest()
}

/// Where a staged block is, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRef {
    /// The block.
    pub id: BlockId,
    /// Its name in the store.
    pub path: String,
    /// How long it is.
    pub length: u64,
    /// xxh3 of all of it.
    pub checksum: u64,
}

/// A block that the store lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedBlock {
    /// The block.
    pub id: BlockId,
    /// Its name in the store.
    pub path: String,
    /// How long it is.
    pub length: u64,
    /// When it was written, by the store's clock, in milliseconds since 1970.
    pub written_ms: i64,
}

impl StagedBlock {
    /// How long ago it was written; 0 if the clock stands before that.
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.written_ms.max(0) as u64)
    }
}
