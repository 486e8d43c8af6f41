//! Reads a snapshot out of a file.

use std::path::Path;
use std::sync::Arc;

use laminar_aof::FileOperation;
use laminar_aof::fs::File;

use super::decoder::SnapshotDecoder;
use super::error::SnapshotError;
use super::file::SnapshotDir;
use super::format::PART_BYTES;
use super::frame::{Frame, SnapshotForm, SnapshotHead};
use crate::log_id::LogId;

/// Reads the frames of a snapshot in order, each verified. Only after the last frame is it known that all are there.
#[derive(Debug)]
pub struct SnapshotReader {
    file: Arc<dyn File>,
    path: Arc<Path>,
    length: u64,
    at: u64,
    decoder: SnapshotDecoder,
}

impl SnapshotReader {
    pub(super) fn open(dir: &SnapshotDir, name: &str) -> Result<Self, SnapshotError> {
        let path: Arc<Path> = dir.path(name).into();
        let file =
            dir.fs.open(&path, false).map_err(|e| SnapshotError::file(FileOperation::Open, &path, e))?;
        let length = file.length().map_err(|e| SnapshotError::file(FileOperation::Length, &path, e))?;
        Ok(Self { file, path, length, at: 0, decoder: SnapshotDecoder::new() })
    }

    /// How long the file is.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// How much of it was understood so far.
    pub fn bytes(&self) -> u64 {
        self.decoder.bytes()
    }

    /// The next frame; none after the last.
    ///
    /// # Errors
    ///
    /// Corrupt, if the file is not what was written. Invalid, if a newer release wrote it. Unavailable, if it cannot be
    /// read.
    #[allow(clippy::should_implement_trait, reason = "an iterator could not end with an error for good")]
    pub fn next(&mut self) -> Result<Option<Frame>, SnapshotError> {
        loop {
            match self.decoder.next().map_err(|error| error.in_file(&self.path))? {
                Some(Frame::End(_)) if self.decoder.bytes() != self.length => {
                    let at = self.decoder.bytes();
                    return Err(SnapshotError::TooLong { at }.in_file(&self.path));
                }
                Some(frame) => return Ok(Some(frame)),
                None if self.decoder.is_done() => return Ok(None),
                None => self.fill()?,
            }
        }
    }

    fn fill(&mut self) -> Result<(), SnapshotError> {
        let mut buffer =
            vec![0; PART_BYTES.min(usize::try_from(self.length - self.at).unwrap_or(PART_BYTES))];
        let read = self.file.read_at(&mut buffer, self.at);
        let read = read.map_err(|e| SnapshotError::file(FileOperation::Read, &self.path, e))?;
        if read == 0 {
            return Err(SnapshotError::CutShort { at: self.at }.in_file(&self.path));
        }
        self.at += read as u64;
        self.decoder.push(&buffer[..read]);
        Ok(())
    }

    /// Reads all of it, and begins again: nothing is taken over from a file that is not whole. Says what it is of.
    pub(super) fn validate(
        mut self,
        form: SnapshotForm,
        log_id: LogId,
    ) -> Result<(SnapshotHead, Self), SnapshotError> {
        let Some(Frame::Head(found_form, head)) = self.next()? else {
            return Err(SnapshotError::CutShort { at: 0 }.in_file(&self.path));
        };
        if head.log_id != log_id {
            let other = SnapshotError::WrongValue {
                at: 0,
                what: "the entry of the snapshot",
                found: head.log_id.index.0,
                expected: log_id.index.0,
            };
            return Err(other.in_file(&self.path));
        }
        if found_form != form {
            let other = SnapshotError::OutOfOrder { at: 0, frame: "head", after: "in this form" };
            return Err(other.in_file(&self.path));
        }
        while self.next()?.is_some() {}
        self.at = 0;
        self.decoder = SnapshotDecoder::new();
        Ok((head, self))
    }
}
