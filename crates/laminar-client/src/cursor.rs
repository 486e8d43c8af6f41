//! The place in one partition up to which rows were read. It outlives connections.

use std::ops::Range;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use laminar_rpc::proto::{ReadRequest, ReadResponse, StoredRows};
use laminar_rpc::{ErrorClass, Failure};

use crate::description::StreamInfo;
use crate::retry::{Attempts, Next, Repeat};
use crate::session::{Limit, Live};
use crate::stored;
use crate::stream::StreamHandle;

/// Some records of one partition.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) ordinal: u32,
    pub(crate) pieces: Vec<Piece>,
}

/// A record, and which of its offsets are wanted.
#[derive(Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) record: StoredRows,
    pub(crate) range: Range<u64>,
}

/// Answers as they come, and over which connection.
type Answering = (Arc<Live>, BoxStream<'static, Result<ReadResponse, Failure>>);

/// Reads one partition, over as many connections as it takes.
pub(crate) struct Cursor {
    stream: StreamHandle,
    info: Arc<StreamInfo>,
    ordinal: u32,
    partition_id: u32,
    /// What is left to read.
    left: Range<u64>,
    at: Option<u64>,
    follow: bool,
    /// Whether rows before the first that comes must not be missing: at first, and once some came.
    strict: bool,
    strict_later: bool,
    answers: Option<Answering>,
}

impl Cursor {
    pub(crate) fn new(
        stream: StreamHandle,
        info: Arc<StreamInfo>,
        ordinal: u32,
        left: Range<u64>,
    ) -> Result<Self, Failure> {
        let partition_id = info.partition_id(ordinal)?;
        let (strict, strict_later) = (true, true);
        Ok(Cursor {
            stream,
            info,
            ordinal,
            partition_id,
            left,
            at: None,
            follow: false,
            strict,
            strict_later,
            answers: None,
        })
    }

    pub(crate) fn at(self, at: Option<u64>) -> Self {
        Cursor { at, ..self }
    }

    pub(crate) fn following(self, follow: bool) -> Self {
        Cursor { follow, ..self }
    }

    pub(crate) fn strict(self, strict: bool, strict_later: bool) -> Self {
        Cursor { strict, strict_later, ..self }
    }

    /// The offset of the row that comes next.
    pub(crate) fn next_offset(&self) -> u64 {
        self.left.start
    }

    /// Goes back to a row that was read.
    pub(crate) fn back_to(&mut self, offset: u64) {
        self.left.start = offset;
        self.answers = None;
    }

    /// Chunks until the end, or until an error.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Chunk, Failure>> + Send + 'static {
        stream::unfold(Some(self), |cursor| async move {
            let mut cursor = cursor?;
            match cursor.next_chunk().await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some(cursor))),
                Ok(None) => None,
                Err(failure) => Some((Err(failure), None)),
            }
        })
    }

    /// The next records; none at the end.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Chunk>, Failure> {
        let mut attempts = Attempts::new(Repeat::Safe);
        // Whoever follows may wait for rows as long as it takes; its time runs while the node is away.
        let mut limit = (!self.follow).then(|| self.stream.limit());
        while self.left.start < self.left.end {
            let failure = match self.receive(limit.unwrap_or_else(|| self.stream.limit())).await {
                Ok(Some(response)) => {
                    let taken = self.take(response);
                    let pieces = match taken {
                        Ok(pieces) => pieces,
                        Err((record, what)) => return Err(self.gap_or_corrupt(&record, what).await),
                    };
                    if !pieces.is_empty() {
                        return Ok(Some(Chunk { ordinal: self.ordinal, pieces }));
                    }
                    // It answers, though it has nothing.
                    attempts = Attempts::new(Repeat::Safe);
                    limit = (!self.follow).then(|| self.stream.limit());
                    continue;
                }
                Ok(None) => {
                    self.answers = None;
                    let (ordinal, path, left) = (self.ordinal, &self.info.path, &self.left);
                    let message = format!(
                        "partition {ordinal} of {path}: the node stopped at offset {} of {}",
                        left.start, left.end
                    );
                    Failure::unavailable(message)
                }
                Err(failure) => failure,
            };
            let lost = self.answers.take();
            let left = limit.get_or_insert_with(|| self.stream.limit()).left();
            match attempts.after(&failure, left) {
                Next::Fail => return Err(self.told(failure)),
                Next::Again { wait, reconnect } => {
                    if let Some((live, _)) =
                        lost.filter(|_| reconnect && failure.class == ErrorClass::Network)
                    {
                        self.stream.session().lose(&live);
                    }
                    tokio::time::sleep(wait).await;
                }
            }
        }
        Ok(None)
    }

    /// The next answer; none if the node has ended it.
    async fn receive(&mut self, limit: Limit) -> Result<Option<ReadResponse>, Failure> {
        if self.answers.is_none() {
            self.answers = Some(self.open(limit).await?);
        }
        let Some((_, answers)) = &mut self.answers else {
            return Ok(None);
        };
        if self.follow {
            return answers.next().await.transpose();
        }
        match tokio::time::timeout_at(limit.deadline, answers.next()).await {
            Ok(answer) => answer.transpose(),
            Err(_) => {
                let seconds = self.stream.timeout().as_secs_f64();
                let (ordinal, path) = (self.ordinal, &self.info.path);
                let message = format!("partition {ordinal} of {path}: no rows came within {seconds:.1} s");
                Err(Failure::unavailable(message))
            }
        }
    }

    async fn open(&mut self, limit: Limit) -> Result<Answering, Failure> {
        let message = ReadRequest {
            stream_id: self.info.stream_id,
            partition_id: self.partition_id,
            begin_offset: self.left.start,
            end_offset: (!self.follow).then_some(self.left.end),
            at_index: self.at,
            follow: self.follow,
            fail_on_trimmed: self.strict,
        };
        let session = self.stream.session();
        session
            .call(limit, Repeat::Safe, |live| async move {
                let answers = live.transport.read(message, limit.deadline).await?;
                Ok((live, answers))
            })
            .await
    }

    /// What is wanted of an answer; moves on behind it.
    fn take(&mut self, response: ReadResponse) -> Result<Vec<Piece>, (StoredRows, &'static str)> {
        let mut pieces = Vec::with_capacity(response.records.len());
        for record in response.records {
            let range = match wanted(&record, &self.left, self.strict) {
                Ok(Some(range)) => range,
                Ok(None) => continue,
                // What was read before is not kept back by what comes after it.
                Err(_) if !pieces.is_empty() => {
                    self.answers = None;
                    break;
                }
                Err(what) => return Err((record, what)),
            };
            self.left.start = range.end;
            self.strict = self.strict_later;
            pieces.push(Piece { record, range });
        }
        Ok(pieces)
    }

    /// A failure of the connection as users know it.
    fn told(&self, failure: Failure) -> Failure {
        if failure.class != ErrorClass::Network {
            return failure;
        }
        let (ordinal, path, next) = (self.ordinal, &self.info.path, self.left.start);
        let message = format!(
            "partition {ordinal} of {path}: the connection was lost at offset {next} and no node took the read up again in \
             time; read on from there (last: {})",
            failure.message
        );
        Failure { class: ErrorClass::Unavailable, outcome_unknown: false, message, ..failure }
    }

    /// Rows that are not there were trimmed before they were read, if the partition begins behind them now.
    async fn gap_or_corrupt(&mut self, record: &StoredRows, what: &str) -> Failure {
        // Whatever is not there lies before this record.
        let missing = self.left.start..record.first_offset.max(self.left.start + 1);
        let corrupt = self.corrupt(record, what);
        stored::gone_or(&self.stream, &self.info, self.ordinal, missing, corrupt).await
    }

    fn corrupt(&self, record: &StoredRows, what: &str) -> Failure {
        let (ordinal, path, next) = (self.ordinal, &self.info.path, self.left.start);
        let (first, rows) = (record.first_offset, record.rows);
        let message = format!(
            "partition {ordinal} of {path}: {rows} rows at offset {first} {what} (offset {next} is next)"
        );
        Failure::new(ErrorClass::Corruption, message)
    }
}

/// Which offsets of a record are wanted; none if it lies outside of what is left.
fn wanted(record: &StoredRows, left: &Range<u64>, strict: bool) -> Result<Option<Range<u64>>, &'static str> {
    let first = record.first_offset;
    let end = first.checked_add(u64::from(record.rows)).ok_or("cannot be, offsets end there")?;
    if strict && first > left.start {
        return Err("leave a gap");
    }
    let range = first.max(left.start)..end.min(left.end);
    Ok((range.start < range.end).then_some(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(first_offset: u64, rows: u32) -> StoredRows {
        StoredRows { first_offset, rows, ..Default::default() }
    }

    #[test]
    fn records_are_cut_to_what_is_left() {
        assert_eq!(wanted(&record(10, 5), &(10..100), true), Ok(Some(10..15)));
        assert_eq!(wanted(&record(10, 5), &(12..14), true), Ok(Some(12..14)));
        assert_eq!(wanted(&record(10, 5), &(15..20), true), Ok(None), "read before the connection was lost");
        assert_eq!(wanted(&record(10, 0), &(10..20), true), Ok(None));
    }

    #[test]
    fn a_gap_is_noticed_unless_rows_may_have_been_trimmed() {
        assert!(wanted(&record(11, 5), &(10..100), true).is_err());
        assert_eq!(wanted(&record(11, 5), &(10..100), false), Ok(Some(11..16)));
    }

    #[test]
    fn offsets_that_cannot_be_are_no_rows() {
        assert!(wanted(&record(u64::MAX, 5), &(10..100), false).is_err());
    }
}
