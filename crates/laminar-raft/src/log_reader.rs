//! openraft reads the log: for replication, for apply, and at start.

use std::fmt;
use std::io;
use std::ops::{Bound, Range, RangeBounds, RangeInclusive};

use futures_util::Stream;
use futures_util::stream::{BoxStream, try_unfold};
use openraft::{AppDataResponse, AsyncRuntime, OptionalSend, RaftLogReader};

use crate::convert::{from_entry, from_log_id, from_vote, to_io};
use crate::log_storage::RaftLog;
use crate::types::{GroupConfig, RaftEntry, RaftLogId, RaftVote};

impl RaftLog {
    /// Entries of `range`, but no more than `bytes_max` of payload after the first.
    ///
    /// What is not in memory is read from files where that may block.
    async fn entries<R: AsyncRuntime>(
        &self,
        range: Range<u64>,
        bytes_max: u64,
    ) -> io::Result<Vec<RaftEntry>> {
        let entries = match self.store.read_cached(range.clone(), bytes_max) {
            Some(entries) => entries,
            None => {
                let store = self.store.clone();
                let blocking = range.clone();
                match R::spawn_blocking(move || store.read(blocking, bytes_max)).await {
                    Ok(read) => read.map_err(to_io)?,
                    // The simulated runtime has no other threads.
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                        self.store.read(range, bytes_max).map_err(to_io)?
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        entries.into_iter().map(from_entry).collect()
    }

    /// The indices of a range that the log has.
    fn indices(&self, range: &impl RangeBounds<u64>) -> Range<u64> {
        let begin = match range.start_bound() {
            Bound::Included(begin) => *begin,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let there = self.store.indices();
        begin.max(there.start)..end.min(there.end)
    }
}

impl<R, A> RaftLogReader<GroupConfig<R, A>> for RaftLog
where
    R: AsyncRuntime,
    A: AppDataResponse,
{
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<RaftEntry>> {
        self.entries::<R>(self.indices(&range), u64::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<RaftEntry>> {
        self.entries::<R>(start..end, self.read_bytes_max).await
    }

    /// In pieces: what is to be applied after a restart may be more than fits into memory.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<RaftEntry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend,
    {
        let begin = (self.clone(), self.indices(&range), Vec::new().into_iter());
        let stream = try_unfold(begin, |(log, mut left, mut read)| async move {
            if read.len() == 0 && !left.is_empty() {
                read = log.entries::<R>(left.clone(), log.read_bytes_max).await?.into_iter();
            }
            let Some(entry): Option<RaftEntry> = read.next() else { return Ok(None) };
            left.start = entry.log_id.index() + 1;
            Ok(Some((entry, (log, left, read))))
        });
        Box::pin(stream) as BoxStream<'static, io::Result<RaftEntry>>
    }

    async fn read_vote(&mut self) -> io::Result<Option<RaftVote>> {
        Ok(self.store.vote().map(from_vote))
    }

    async fn get_key_log_ids(&mut self, range: RangeInclusive<RaftLogId>) -> io::Result<Vec<RaftLogId>> {
        let indices = range.start().index()..range.end().index().saturating_add(1);
        Ok(self.store.last_of_terms(indices).into_iter().map(from_log_id).collect())
    }
}
