//! The verdict state as bytes, as they lie in a snapshot file or travel between nodes:
//!
//! ```text
//!  byte  0        8         12             20            24              28              28 + length
//!        +--------+---------+--------------+-------------+---------------+---------------+
//!        |LAMIVERD| version | body length  | crc32c of   | crc32c of     | body: each    |
//!        |        | u32     | u64          | the body    | bytes 0 to 24 | VerdictRow    |
//!        |        |         |              | u32         | u32           | with its length
//!        +--------+---------+--------------+-------------+---------------+---------------+
//!        all numbers little-endian
//! ```
//!
//! The header keeps its form in every version. A body has exactly one form: the one that encoding its content gives.
//! So equal states have equal bytes, and a body with anything this release does not know is refused, not half read.

use bytes::Bytes;
use crc32c::crc32c;
use laminar_core::error::ErrorKind;
use thiserror::Error;

use super::state::VerdictState;

mod read;
mod write;

/// What `build.rs` makes of the `.proto` files. Private: the types of the parent module are what others see.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/laminar.v1.rs"));
}

const MAGIC: &[u8; 8] = b"LAMIVERD";
const HEADER_BYTES: usize = 28;
const VERSION: u32 = 1;

/// Bytes that should be an encoded verdict state, and are not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VerdictSnapshotError {
    /// The bytes do not start as they should.
    #[error("not a verdict snapshot: it does not start with \"LAMIVERD\"; check which file this is")]
    NotASnapshot,
    /// Written by a newer release.
    #[error(
        "verdict snapshot has version {found} and this release reads up to {VERSION}; upgrade laminar on this node"
    )]
    VersionTooNew {
        /// The version found.
        found: u32,
    },
    /// Bytes are missing at the end.
    #[error("verdict snapshot: {found} bytes, expected {expected}; fetch it again from a replica")]
    Truncated {
        /// How many bytes there are.
        found: u64,
        /// How many there should be.
        expected: u64,
    },
    /// The bytes changed since they were written.
    #[error(
        "verdict snapshot: {part} checksum {found:08x}, expected {expected:08x}; fetch it again from a replica"
    )]
    Checksum {
        /// Header or body.
        part: &'static str,
        /// The checksum of the bytes as they are.
        found: u32,
        /// The checksum written with them.
        expected: u32,
    },
    /// A row that is none of ours.
    #[error("verdict snapshot: row {row} is not the message it should be; fetch it again from a replica")]
    Undecodable {
        /// Which row, from 0.
        row: u64,
        /// Where decoding stopped.
        source: prost::DecodeError,
    },
    /// Rows of ours that no log could have led to.
    #[error("verdict snapshot, row {row}: {reason}; fetch it again from a replica")]
    Malformed {
        /// Which row, from 0; the number of rows if it is seen at their end.
        row: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl VerdictSnapshotError {
    /// Invalid where the release is too old for the bytes, else Corrupt.
    pub fn kind(&self) -> ErrorKind {
        match self {
            VerdictSnapshotError::VersionTooNew { .. } => ErrorKind::Invalid,
            VerdictSnapshotError::NotASnapshot
            | VerdictSnapshotError::Truncated { .. }
            | VerdictSnapshotError::Checksum { .. }
            | VerdictSnapshotError::Undecodable { .. }
            | VerdictSnapshotError::Malformed { .. } => ErrorKind::Corrupt,
        }
    }
}

impl VerdictState {
    /// The state as bytes: equal states give equal bytes.
    pub fn encode(&self) -> Bytes {
        let mut bytes = vec![0; HEADER_BYTES];
        write::put_rows(&mut bytes, self);
        let (header, body) = bytes.split_at_mut(HEADER_BYTES);
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..20].copy_from_slice(&(body.len() as u64).to_le_bytes());
        header[20..24].copy_from_slice(&crc32c(body).to_le_bytes());
        let crc = crc32c(&header[..24]);
        header[24..].copy_from_slice(&crc.to_le_bytes());
        bytes.into()
    }

    /// Reads what [`encode`](Self::encode) wrote. `decode(b)?.encode() == b`, for every `b` it accepts.
    ///
    /// # Errors
    ///
    /// Invalid: a newer release wrote them. Corrupt: the bytes are something else, were damaged, or hold a state that no
    /// log could have led to.
    pub fn decode(bytes: &[u8]) -> Result<Self, VerdictSnapshotError> {
        let body = unframe(bytes)?;
        let (state, rows) = read::take_rows(body)?;
        // Catches at once what decoding is lenient about: rows out of order, numbers in a longer form than they need,
        // fields it does not know.
        let mut again = Vec::with_capacity(body.len());
        write::put_rows(&mut again, &state);
        if again != body {
            let reason = "its rows are out of order, or hold what this release does not know";
            return Err(VerdictSnapshotError::Malformed { row: rows, reason });
        }
        Ok(state)
    }
}

/// The body of a snapshot whose header and checksums are right.
fn unframe(bytes: &[u8]) -> Result<&[u8], VerdictSnapshotError> {
    let start = bytes.len().min(MAGIC.len());
    if bytes[..start] != MAGIC[..start] {
        return Err(VerdictSnapshotError::NotASnapshot);
    }
    let truncated = |expected| VerdictSnapshotError::Truncated { found: bytes.len() as u64, expected };
    let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(truncated(HEADER_BYTES as u64))?;
    check_crc("header", &header[..24], read_u32(header, 24))?;
    match read_u32(header, 8) {
        VERSION => {}
        0 => return Err(VerdictSnapshotError::Malformed { row: 0, reason: "version 0 never existed" }),
        found => return Err(VerdictSnapshotError::VersionTooNew { found }),
    }
    let length = u64::from(read_u32(header, 12)) | u64::from(read_u32(header, 16)) << 32;
    if (body.len() as u64) < length {
        return Err(truncated(length.saturating_add(HEADER_BYTES as u64)));
    }
    if body.len() as u64 > length {
        return Err(VerdictSnapshotError::Malformed { row: 0, reason: "bytes follow its end" });
    }
    check_crc("body", body, read_u32(header, 20))?;
    Ok(body)
}

fn check_crc(part: &'static str, bytes: &[u8], expected: u32) -> Result<(), VerdictSnapshotError> {
    let found = crc32c(bytes);
    if found == expected { Ok(()) } else { Err(VerdictSnapshotError::Checksum { part, found, expected }) }
}

fn read_u32(header: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[cfg(test)]
mod tests;
