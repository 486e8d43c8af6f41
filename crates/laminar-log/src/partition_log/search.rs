//! Finds records by row offset, time and raft index, all of which grow with the place.

use std::ops::Range;

use laminar_aof::{Aof, AofError};
use laminar_core::ids::LogIndex;

use super::inner::Inner;
use super::tail::{Point, index, rows};
use crate::error::LogError;
use crate::log_id::PartitionLogIndex;

/// So many records are read in a row rather than halved further: they mostly stand in one piece of the file.
const SCAN_RECORDS: u64 = 16;

impl Inner {
    /// The first record that `before` does not say yes to, or the end. Records that it says yes to must come first.
    pub(super) fn partition_point(
        &self,
        log: &Aof,
        before: impl Fn(&Point) -> bool,
    ) -> Result<u64, LogError> {
        loop {
            let indices = log.sequences();
            match self.search(log, &indices, &before) {
                // What was looked at was dropped meanwhile. A pin would prevent that, and keep others from dropping.
                Err(LogError::Files(AofError::OutOfRange { sequence, first, .. }))
                    if sequence < first && indices.start < first => {}
                searched => return searched,
            }
        }
    }

    fn search(
        &self,
        log: &Aof,
        indices: &Range<u64>,
        before: &impl Fn(&Point) -> bool,
    ) -> Result<u64, LogError> {
        let mut within = self.tail().points.bracket(indices, before);
        while within.end - within.start > SCAN_RECORDS {
            let middle = within.start + (within.end - within.start) / 2;
            let point = self.point(log, middle)?;
            if before(&point) {
                within.start = middle + 1;
            } else {
                within.end = middle;
            }
        }
        let mut reader = log.reader(within.start);
        while within.start < within.end
            && let Some(record) = reader.next()?
        {
            let header = self.decode_header(record.sequence, &record.payload)?;
            if !before(&Point::from(&header)) {
                break;
            }
            within.start += 1;
        }
        Ok(within.start)
    }

    /// A record to look at, and to remember for the next search.
    fn point(&self, log: &Aof, sequence: u64) -> Result<Point, LogError> {
        let point = Point::from(&self.decode_header(sequence, &log.read(sequence)?)?);
        self.tail().points.keep(point, self.config.points_max as usize);
        Ok(point)
    }

    pub(super) fn find_offset(&self, log: &Aof, offset: u64) -> Result<Option<PartitionLogIndex>, LogError> {
        // Of records that begin at one offset only the last has rows.
        let behind = self.partition_point(log, |point| point.first_offset <= offset)?;
        let found = behind.saturating_sub(1);
        if !log.sequences().contains(&found) {
            return Ok(None);
        }
        let record = match log.read(found) {
            // It was dropped meanwhile.
            Err(AofError::OutOfRange { sequence, first, .. }) if sequence < first => return Ok(None),
            read => self.decode(found, &read?)?,
        };
        let ends = record.first_offset.saturating_add(rows(&record.record));
        Ok((record.first_offset <= offset && offset < ends).then_some(index(found)))
    }

    pub(super) fn find_time(&self, log: &Aof, time_ms: u64) -> Result<Option<PartitionLogIndex>, LogError> {
        let found = self.partition_point(log, |point| point.time_ms < time_ms)?;
        Ok(log.sequences().contains(&found).then_some(index(found)))
    }

    pub(super) fn find_after(&self, log: &Aof, entry: LogIndex) -> Result<PartitionLogIndex, LogError> {
        Ok(index(self.partition_point(log, |point| point.raft_index <= entry.0)?))
    }
}
