//! Reads a partition's log in order, while it grows.

use std::sync::Arc;

use bytes::Bytes;
use laminar_aof::Reader;

use super::inner::Inner;
use crate::error::LogError;
use crate::log_id::PartitionLogIndex;
use crate::verdict::AcceptedRecord;

/// Reads records one after the other, each verified. It outlives a reopening of the log.
#[derive(Debug)]
pub struct PartitionReader {
    inner: Arc<Inner>,
    next: u64,
    /// The reader of the files, and which opening of them it belongs to.
    reader: Option<(u64, Reader)>,
    /// Whether little is read ahead.
    short: bool,
}

impl PartitionReader {
    pub(super) fn new(inner: Arc<Inner>, from: PartitionLogIndex, short: bool) -> Self {
        Self { inner, next: from.0, reader: None, short }
    }

    /// The place of the record that comes next.
    pub fn index(&self) -> PartitionLogIndex {
        PartitionLogIndex(self.next)
    }

    /// The next record, also if it is not on disk yet; none at the end, and then again once there is more.
    ///
    /// # Errors
    ///
    /// Invalid, if the record was dropped. Corrupt, if it is not what was stored. Unavailable, if the file cannot be
    /// read.
    #[allow(
        clippy::should_implement_trait,
        reason = "it goes on after the end, which an iterator should not"
    )]
    pub fn next(&mut self) -> Result<Option<AcceptedRecord>, LogError> {
        let Some(bytes) = self.next_bytes()? else { return Ok(None) };
        let record = self.inner.decode(self.next, &bytes)?;
        self.next += 1;
        Ok(Some(record))
    }

    /// The next record as it is stored, for those who only pass it on: its headers are verified.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn next_stored(&mut self) -> Result<Option<Bytes>, LogError> {
        let Some(bytes) = self.next_bytes()? else { return Ok(None) };
        self.inner.decode_header(self.next, &bytes)?;
        self.next += 1;
        Ok(Some(bytes))
    }

    fn next_bytes(&mut self) -> Result<Option<Bytes>, LogError> {
        // While this is held the files are not closed, so nothing that is read can be another's.
        let slot = self.inner.slot();
        let reader = match &mut self.reader {
            // An error leaves the reader behind or before the record: then it is looked for again.
            Some((opening, reader)) if *opening == slot.opening && reader.sequence() == self.next => reader,
            reader => {
                let log = slot.log()?;
                let opened = if self.short { log.short_reader(self.next) } else { log.reader(self.next) };
                &mut reader.insert((slot.opening, opened)).1
            }
        };
        Ok(reader.next()?.map(|record| record.payload))
    }
}
