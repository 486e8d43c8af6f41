//! One large request while its chunks arrive.

use std::time::Duration;

use bytes::Bytes;

/// The bytes of a request so far. The memory is asked for at once and touched chunk by chunk.
#[derive(Debug)]
pub(super) struct Assembly {
    bytes: Vec<u8>,
    chunk_bytes: usize,
    /// One bit a chunk.
    seen: Vec<u64>,
    missing: usize,
    pub(super) begun: Duration,
    pub(super) deadline: Duration,
}

/// What a chunk was to an assembly.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Put {
    New,
    Same,
    Different,
}

impl Assembly {
    pub(super) fn new(total: usize, chunk_bytes: usize, begun: Duration) -> Self {
        let chunks = total.div_ceil(chunk_bytes);
        Self {
            bytes: vec![0; total],
            chunk_bytes,
            seen: vec![0; chunks.div_ceil(64)],
            missing: chunks,
            begun,
            deadline: begun,
        }
    }

    pub(super) fn total(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn missing(&self) -> usize {
        self.missing
    }

    /// Puts a chunk, of the right length, into its place.
    pub(super) fn put(&mut self, number: usize, chunk: &[u8]) -> Put {
        let begin = number * self.chunk_bytes;
        let place = &mut self.bytes[begin..begin + chunk.len()];
        let (word, bit) = (number / 64, 1u64 << (number % 64));
        if self.seen[word] & bit != 0 {
            return if place == chunk { Put::Same } else { Put::Different };
        }
        place.copy_from_slice(chunk);
        self.seen[word] |= bit;
        self.missing -= 1;
        Put::New
    }

    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from(self.bytes)
    }
}
