//! A file read forward in large pieces, whose parts are handed out without copying.

use bytes::{Bytes, BytesMut};

use crate::error::AofError;
use crate::fs::OpenFile;

/// Reads a file up to a limit. What was read last is kept, and can be sliced as long as it is.
#[derive(Debug)]
pub(crate) struct Chunks {
    file: OpenFile,
    limit: u64,
    chunk_bytes: u64,
    begin: u64,
    chunk: Bytes,
}

impl Chunks {
    pub(crate) fn new(file: OpenFile, limit: u64, chunk_bytes: u64) -> Self {
        Self { file, limit, chunk_bytes, begin: 0, chunk: Bytes::new() }
    }

    /// The bytes at `offset`, at least `length` of them, or none if they would pass the limit or the file's end.
    pub(crate) fn at(&mut self, offset: u64, length: usize) -> Result<Option<&[u8]>, AofError> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.limit) {
            return Ok(None);
        }
        let have = self.begin <= offset && offset + length as u64 <= self.begin + self.chunk.len() as u64;
        if !have {
            let wanted = self.chunk_bytes.max(length as u64).min(self.limit - offset);
            // The last piece is used again, unless somebody still has a part of it.
            let mut chunk =
                std::mem::take(&mut self.chunk).try_into_mut().unwrap_or_else(|_| BytesMut::new());
            chunk.resize(wanted as usize, 0);
            let read = self.file.read_at(&mut chunk, offset)?;
            chunk.truncate(read);
            self.begin = offset;
            self.chunk = chunk.freeze();
            if read < length {
                return Ok(None);
            }
        }
        Ok(Some(&self.chunk[(offset - self.begin) as usize..]))
    }

    /// A part of what [`at`](Self::at) gave last, without a copy.
    pub(crate) fn slice(&self, offset: u64, length: usize) -> Bytes {
        let begin = (offset - self.begin) as usize;
        self.chunk.slice(begin..begin + length)
    }
}
