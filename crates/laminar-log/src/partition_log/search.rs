//! Finds records by row offset, time and raft index, all of which grow with the place.

use std::ops::Range;

use laminar_aof::{Aof, AofError};
use laminar_core::ids::LogIndex;

use super::inner::Inner;
use super::tail::{Point, index, rows};
use crate::error::LogError;
use crate::format::StoredHeader;
use crate::log_id::PartitionLogIndex;

/// So many records are read in a row rather than halved further: they mostly stand in one piece of the file.
const SCAN_RECORDS: u64 = 16;

/// Where a search ended, and what it has seen there.
pub(super) struct Searched {
    /// The place that was looked for.
    pub(super) index: u64,
    /// The record at that place.
    pub(super) at: Option<StoredHeader>,
    /// The record before it.
    pub(super) before: Option<StoredHeader>,
}

impl Inner {
    /// The first record that `before` does not say yes to, or the end. Records that it says yes to must come first.
    pub(super) fn partition_point(
        &self,
        log: &Aof,
        before: impl Fn(&Point) -> bool,
    ) -> Result<u64, LogError> {
        Ok(self.look_for(log, before)?.index)
    }

    /// The same, with what was seen.
    pub(super) fn look_for(&self, log: &Aof, before: impl Fn(&Point) -> bool) -> Result<Searched, LogError> {
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
    ) -> Result<Searched, LogError> {
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
        let mut found = Searched { index: within.start, at: None, before: None };
        let mut reader = log.short_reader(within.start);
        while found.index < within.end
            && let Some(record) = reader.next()?
        {
            let header = self.decode_header(record.sequence, &record.payload)?;
            if !before(&Point::from(&header)) {
                found.at = Some(header);
                break;
            }
            found.before = Some(header);
            found.index += 1;
        }
        Ok(found)
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

    pub(super) fn first_after(
        &self,
        log: &Aof,
        entry: LogIndex,
        within: &Range<u64>,
    ) -> Result<Option<StoredHeader>, LogError> {
        let found = self.search(log, within, &|point: &Point| point.raft_index <= entry.0)?;
        match found.at {
            None if found.index < within.end => {
                self.decode_header(found.index, &log.read(found.index)?).map(Some)
            }
            header => Ok(header),
        }
    }
}
