//! Entries, answers and snapshots as bytes.
//!
//! Entries and answers are the messages of `proto/laminar/v1/metadata.proto` as they are; the log and the wire that
//! carry them have checksums of their own. A snapshot lies in a file or on its way between nodes, and is framed:
//!
//! ```text
//!  byte  0        8         12             20            24              28              28 + length
//!        +--------+---------+--------------+-------------+---------------+---------------+
//!        |LAMIMETA| version | body length  | crc32c of   | crc32c of     | body:         |
//!        |        | u32     | u64          | the body    | bytes 0 to 24 | a             |
//!        |        |         |              | u32         | u32           | MetadataSnapshot
//!        +--------+---------+--------------+-------------+---------------+---------------+
//!        all numbers little-endian
//! ```
//!
//! The header keeps its form in every version. A body has exactly one form: the one that encoding its content gives.
//! So equal states have equal bytes, and a body with anything this release does not know is refused, not half read.

use prost::Message;

use super::{DeltaMetadata, MetadataLogEntry, MetadataResponse};
use crate::error::FormatError;

mod entry;
mod response;
mod snapshot;

/// What `build.rs` makes of the `.proto` files. Private: the types of the parent module are what others see.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/laminar.v1.rs"));
}

const MAGIC: &[u8; 8] = b"LAMIMETA";
const HEADER_BYTES: usize = 28;
const SNAPSHOT_VERSION: u32 = 1;
const ENTRY_VERSION: u32 = 1;

const ENTRY: &str = "metadata entry";
const RESPONSE: &str = "metadata response";
const SNAPSHOT: &str = "metadata snapshot";

impl MetadataLogEntry {
    /// The entry as the log and the wire carry it.
    pub fn encode(&self) -> Vec<u8> {
        entry::to_proto(self).encode_to_vec()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// Invalid: a newer release wrote it. Corrupt: the bytes are not an entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let message = proto::MetadataLogEntry::decode(bytes)
            .map_err(|source| FormatError::Undecodable { what: ENTRY, source })?;
        if message.version > ENTRY_VERSION {
            let (found, newest) = (message.version, ENTRY_VERSION);
            return Err(FormatError::VersionTooNew { what: ENTRY, found, newest });
        }
        entry::from_proto(message).map_err(|Fault(reason)| FormatError::Malformed { what: ENTRY, reason })
    }
}

impl MetadataResponse {
    /// The answer as the wire carries it.
    pub fn encode(&self) -> Vec<u8> {
        response::to_proto(self).encode_to_vec()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// Corrupt: the bytes are not an answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let message = proto::MetadataResponse::decode(bytes)
            .map_err(|source| FormatError::Undecodable { what: RESPONSE, source })?;
        response::from_proto(message)
            .map_err(|Fault(reason)| FormatError::Malformed { what: RESPONSE, reason })
    }
}

impl DeltaMetadata {
    /// The state as bytes: the same state gives the same bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let body = snapshot::to_proto(self).encode_to_vec();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend(MAGIC);
        bytes.extend(SNAPSHOT_VERSION.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(crc32c::crc32c(&body).to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// Reads what [`snapshot`](Self::snapshot) wrote. `restore(b)?.snapshot() == b`, for every `b` it accepts.
    ///
    /// # Errors
    /// Invalid: a newer release wrote them. Corrupt: the bytes are something else, were damaged, or hold a state that no
    /// log could have led to.
    pub fn restore(bytes: &[u8]) -> Result<Self, FormatError> {
        let body = unframe(bytes)?;
        let message = proto::MetadataSnapshot::decode(body)
            .map_err(|source| FormatError::Undecodable { what: SNAPSHOT, source })?;
        let malformed = |Fault(reason)| FormatError::Malformed { what: SNAPSHOT, reason };
        let state = snapshot::from_proto(message).map_err(malformed)?;
        // Catches at once what decoding is lenient about: keys out of order or twice, fields it does not know.
        if snapshot::to_proto(&state).encode_to_vec() != body {
            return Err(malformed(Fault(
                "its tables are out of order, or hold what this release does not know",
            )));
        }
        Ok(state)
    }
}

/// The body of a snapshot whose header and checksums are right.
fn unframe(bytes: &[u8]) -> Result<&[u8], FormatError> {
    let start = bytes.len().min(MAGIC.len());
    if bytes[..start] != MAGIC[..start] {
        return Err(FormatError::NotASnapshot);
    }
    let truncated = |expected| FormatError::Truncated { found: bytes.len() as u64, expected };
    let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(truncated(HEADER_BYTES as u64))?;
    check_crc("header", &header[..24], read_u32(header, 24))?;
    match read_u32(header, 8) {
        SNAPSHOT_VERSION => {}
        0 => return Err(FormatError::Malformed { what: SNAPSHOT, reason: "version 0 never existed" }),
        found => {
            return Err(FormatError::VersionTooNew { what: SNAPSHOT, found, newest: SNAPSHOT_VERSION });
        }
    }
    let length = u64::from(read_u32(header, 12)) | u64::from(read_u32(header, 16)) << 32;
    if (body.len() as u64) < length {
        return Err(truncated(length.saturating_add(HEADER_BYTES as u64)));
    }
    if body.len() as u64 > length {
        return Err(FormatError::Malformed { what: SNAPSHOT, reason: "bytes follow its end" });
    }
    check_crc("body", body, read_u32(header, 20))?;
    Ok(body)
}

fn check_crc(part: &'static str, bytes: &[u8], expected: u32) -> Result<(), FormatError> {
    let found = crc32c::crc32c(bytes);
    if found == expected { Ok(()) } else { Err(FormatError::Checksum { part, found, expected }) }
}

fn read_u32(header: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// What is wrong with the content of a message.
struct Fault(&'static str);

/// The value, or the fault that it is missing.
fn need<T>(value: Option<T>, reason: &'static str) -> Result<T, Fault> {
    value.ok_or(Fault(reason))
}
