//! Reads a snapshot out of bytes as they come.

use bytes::BytesMut;
use xxhash_rust::xxh3::Xxh3;

use super::error::SnapshotError;
use super::format::{FRAME_HEADER_BYTES, decode_frame, decode_header};
use super::frame::{Frame, SnapshotSummary};
use super::order::Order;

/// Takes the bytes of a snapshot in pieces of any length, and gives back its frames, each verified. Only after the last
/// frame is it known that all of them are there.
pub struct SnapshotDecoder {
    buffer: BytesMut,
    order: Order,
    hash: Xxh3,
    /// Once something was wrong nothing more is right.
    failed: Option<SnapshotError>,
}

impl std::fmt::Debug for SnapshotDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotDecoder").field("order", &self.order).finish_non_exhaustive()
    }
}

impl Default for SnapshotDecoder {
    fn default() -> Self {
        Self { buffer: BytesMut::new(), order: Order::new(), hash: Xxh3::new(), failed: None }
    }
}

impl SnapshotDecoder {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes. Frames should be taken out before more is pushed: what is here is in memory.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame; none if more bytes are needed, or after the last.
    ///
    /// # Errors
    ///
    /// Corrupt, if this is not what was written. Invalid, if a newer release wrote it.
    #[allow(clippy::should_implement_trait, reason = "it goes on once there are more bytes")]
    pub fn next(&mut self) -> Result<Option<Frame>, SnapshotError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let next = self.take();
        self.failed = next.as_ref().err().cloned();
        next
    }

    fn take(&mut self) -> Result<Option<Frame>, SnapshotError> {
        let at = self.order.seen.bytes;
        if self.order.is_done() {
            return if self.buffer.is_empty() { Ok(None) } else { Err(SnapshotError::TooLong { at }) };
        }
        let Some(header) = self.buffer.first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
        let length = FRAME_HEADER_BYTES + decode_header(header, at)?;
        if self.buffer.len() < length {
            return Ok(None);
        }
        let bytes = self.buffer.split_to(length).freeze();
        let frame = decode_frame(&bytes, at)?;
        if let Frame::End(_) = frame {
            self.order.seen.hash = self.hash.digest();
        }
        self.order.take(&frame, at)?;
        self.hash.update(&bytes);
        self.order.seen.bytes += bytes.len() as u64;
        if self.order.is_done() && !self.buffer.is_empty() {
            return Err(SnapshotError::TooLong { at: self.order.seen.bytes });
        }
        Ok(Some(frame))
    }

    /// How many bytes were understood so far.
    pub fn bytes(&self) -> u64 {
        self.order.seen.bytes
    }

    /// Whether the last frame was seen: the snapshot is whole.
    pub fn is_done(&self) -> bool {
        self.order.is_done() && self.failed.is_none()
    }

    /// There are no more bytes.
    ///
    /// # Errors
    ///
    /// Corrupt, if the snapshot is not whole.
    pub fn finish(mut self) -> Result<SnapshotSummary, SnapshotError> {
        while self.next()?.is_some() {}
        if !self.is_done() {
            return Err(SnapshotError::CutShort { at: self.order.seen.bytes + self.buffer.len() as u64 });
        }
        Ok(self.order.seen)
    }
}
