//! Reads rows of a stream: partitions one after another, or merged as they come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll};
use laminar_rows::{Coalescer, RowPlace};
use laminar_rpc::Failure;
use laminar_rpc::proto::PartitionOffsets;

use crate::codec;
use crate::cursor::{Chunk, Cursor, Piece};
use crate::description::StreamInfo;
use crate::growth::{Grown, Growth};
use crate::presence::Presence;
use crate::session::Limit;
use crate::stored;
use crate::stream::StreamHandle;

/// Where reading begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Start {
    /// With the first row there is.
    #[default]
    Earliest,
    /// After the last row there is.
    Latest,
    /// At these offsets by partition of the stream; partitions that are not named begin with their first row.
    Offsets(BTreeMap<u32, u64>),
    /// With the first row at or after this time, in milliseconds since 1970.
    Time(u64),
}

/// Where reading ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum End {
    /// With the last row that was acknowledged before the call.
    #[default]
    Latest,
    /// Before these offsets by partition of the stream; partitions that are not named end with their last row.
    Offsets(BTreeMap<u32, u64>),
    /// Before the first row at or after this time, in milliseconds since 1970.
    Time(u64),
}

/// What to read, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// Partitions of the stream; all if none.
    pub partitions: Option<Vec<u32>>,
    /// Where reading begins.
    pub start: Start,
    /// Where reading ends.
    pub end: End,
    /// Only rows accepted up to this global index: the same cut over all partitions.
    pub at: Option<u64>,
    /// Columns by name; all if none.
    pub columns: Option<Vec<String>>,
    /// Goes on with rows as they are appended. Without chosen partitions, also with those that the stream gets later, each
    /// from its first row.
    pub follow: bool,
    /// Adds `_partition`, `_offset`, `_timestamp` and `_epoch`.
    pub include_metadata: bool,
    /// How many rows a batch has, about.
    pub batch_rows: Option<usize>,
    /// Offsets that were trimmed are an error; else reading begins with the first row there is.
    pub fail_on_trimmed: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            partitions: None,
            start: Start::Earliest,
            end: End::Latest,
            at: None,
            columns: None,
            follow: false,
            include_metadata: false,
            batch_rows: None,
            fail_on_trimmed: true,
        }
    }
}

/// Rows as they come. `next` decodes on the thread that polls it.
pub struct RowReader {
    stream: StreamHandle,
    info: Arc<StreamInfo>,
    shape: Shape,
    schema: SchemaRef,
    source: Source,
    pieces: VecDeque<(u32, Piece)>,
    coalescer: Coalescer,
    ready: VecDeque<RecordBatch>,
    follow: bool,
    done: bool,
}

/// Where chunks come from.
enum Source {
    /// One partition after another.
    Sequence(VecDeque<Cursor>),
    /// Whichever has rows, as long as the node is there.
    Merged(SelectAll<BoxStream<'static, Result<Event, Failure>>>, Presence),
}

/// What comes from a source.
enum Event {
    Chunk(Chunk),
    /// The stream got more partitions.
    Grown(Grown),
}

/// What rows are given out as.
struct Shape {
    columns: Option<Vec<String>>,
    include_metadata: bool,
}

impl std::fmt::Debug for RowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowReader").field("stream", &self.info.path).finish_non_exhaustive()
    }
}

impl RowReader {
    pub(crate) async fn open(stream: StreamHandle, options: ReadOptions) -> Result<Self, Failure> {
        let limit = stream.limit();
        check(&options)?;
        let info = stream.refresh_within(limit).await?;
        let shape = Shape { columns: options.columns.clone(), include_metadata: options.include_metadata };
        // Also tells now what is wrong with the columns.
        let empty = RecordBatch::new_empty(info.schema().clone());
        let schema =
            shape.give(empty, RowPlace { partition: 0, first_offset: 0, time_ms: 0, epoch: 1 })?.schema();
        let cursors = cursors(&stream, &info, &options, limit).await?;
        let source = if options.follow {
            Source::Merged(followed(&stream, &info, &options, cursors), Presence::of(stream.clone()))
        } else {
            Source::Sequence(cursors.into())
        };
        let batch_rows = options.batch_rows.unwrap_or(stream.session().config().batch_rows).max(1);
        Ok(RowReader {
            stream,
            info,
            shape,
            schema,
            source,
            pieces: VecDeque::new(),
            coalescer: Coalescer::new(batch_rows),
            ready: VecDeque::new(),
            follow: options.follow,
            done: false,
        })
    }

    /// The columns of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The next rows; none at the end. A lost connection is found again, and reading goes on where it was.
    ///
    /// # Errors
    /// Unavailable: no node answered for the time of the handle. Invalid: rows were trimmed. Corrupt: rows are not what
    /// was written. Reading ends with an error.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, Failure> {
        let result = self.advance().await;
        if !matches!(result, Ok(Some(_))) {
            self.done = true;
        }
        result.map_err(|failure| self.info.name(failure))
    }

    async fn advance(&mut self) -> Result<Option<RecordBatch>, Failure> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            if self.done {
                return Ok(None);
            }
            if let Some((ordinal, piece)) = self.pieces.pop_front() {
                let batch = self.decode(ordinal, &piece).await?;
                self.ready.extend(self.coalescer.push(batch).map_err(codec::failure)?);
                // Whoever follows wants rows when they are there, not when there are many.
                if self.follow && self.pieces.is_empty() {
                    self.ready.extend(self.coalescer.finish().map_err(codec::failure)?);
                }
                continue;
            }
            match self.source.next().await? {
                Some(Event::Chunk(chunk)) => {
                    self.pieces.extend(chunk.pieces.into_iter().map(|piece| (chunk.ordinal, piece)))
                }
                Some(Event::Grown(grown)) => {
                    self.info = grown.info;
                    self.source.add(grown.cursors);
                }
                None => {
                    self.done = true;
                    self.ready.extend(self.coalescer.finish().map_err(codec::failure)?);
                }
            }
        }
    }

    async fn decode(&mut self, ordinal: u32, piece: &Piece) -> Result<RecordBatch, Failure> {
        let record = &piece.record;
        let (batch, _) = stored::rows(&self.stream, &self.info, ordinal, record).await?;
        let batch = laminar_rows::slice_offsets(&batch, record.first_offset, piece.range.clone());
        let place = RowPlace {
            partition: ordinal,
            first_offset: piece.range.start,
            time_ms: i64::try_from(record.time_ms).unwrap_or(i64::MAX),
            epoch: record.epoch,
        };
        self.shape.give(batch.map_err(codec::failure)?, place)
    }
}

impl Shape {
    fn give(&self, batch: RecordBatch, place: RowPlace) -> Result<RecordBatch, Failure> {
        let batch = match &self.columns {
            Some(columns) => laminar_rows::project(&batch, columns).map_err(codec::failure)?,
            None => batch,
        };
        if !self.include_metadata {
            return Ok(batch);
        }
        laminar_rows::with_metadata(&batch, place).map_err(codec::failure)
    }
}

impl Source {
    /// Goes on with partitions that came later. Only followers hear of them.
    fn add(&mut self, cursors: Vec<Cursor>) {
        if let Source::Merged(streams, _) = self {
            streams.extend(cursors.into_iter().map(chunks));
        }
    }

    async fn next(&mut self) -> Result<Option<Event>, Failure> {
        match self {
            Source::Merged(streams, presence) => tokio::select! {
                // What has come is given out first.
                biased;
                event = streams.next() => event.transpose(),
                failure = presence.silent() => Err(failure),
            },
            Source::Sequence(cursors) => {
                while let Some(cursor) = cursors.front_mut() {
                    if let Some(chunk) = cursor.next_chunk().await? {
                        return Ok(Some(Event::Chunk(chunk)));
                    }
                    cursors.pop_front();
                }
                Ok(None)
            }
        }
    }
}

fn chunks(cursor: Cursor) -> BoxStream<'static, Result<Event, Failure>> {
    cursor.into_stream().map(|chunk| chunk.map(Event::Chunk)).boxed()
}

/// Rows of partitions as they come, and what the stream gets later if none were chosen.
fn followed(
    stream: &StreamHandle,
    info: &Arc<StreamInfo>,
    options: &ReadOptions,
    cursors: Vec<Cursor>,
) -> SelectAll<BoxStream<'static, Result<Event, Failure>>> {
    let mut events: SelectAll<_> = cursors.into_iter().map(chunks).collect();
    if options.partitions.is_none() {
        let growth = Growth::new(stream.clone(), info.clone(), options.fail_on_trimmed);
        events.push(growth.into_stream().map(|grown| grown.map(Event::Grown)).boxed());
    }
    events
}

fn check(options: &ReadOptions) -> Result<(), Failure> {
    if !options.follow {
        return Ok(());
    }
    let ends = options.end != End::Latest;
    if ends || options.at.is_some() {
        let what = if ends { "an end" } else { "a global index (at)" };
        return Err(Failure::invalid(format!(
            "read with follow never ends, and {what} was given; leave out one of them"
        )));
    }
    Ok(())
}

/// One cursor for each partition that has something to read.
async fn cursors(
    stream: &StreamHandle,
    info: &Arc<StreamInfo>,
    options: &ReadOptions,
    limit: Limit,
) -> Result<Vec<Cursor>, Failure> {
    // Those of this description: the handle may hear of more meanwhile.
    let all: Vec<u32> = (0..info.partition_count()).collect();
    let wanted = Some(options.partitions.as_deref().unwrap_or(&all));
    if let Some(at) = options.at {
        stream.barrier_at(at, wanted, limit).await?;
    }
    let ends = stream.ask_offsets(wanted, None, options.at, limit).await?;
    let starts = match options.start {
        Start::Time(time) => Some(stream.ask_offsets(wanted, Some(time), None, limit).await?),
        _ => None,
    };
    let stops = match options.end {
        End::Time(time) => Some(stream.ask_offsets(wanted, Some(time), None, limit).await?),
        _ => None,
    };
    check_named(info, options)?;
    let time_of = |told: &Option<BTreeMap<u32, PartitionOffsets>>, ordinal: u32| {
        told.as_ref().and_then(|told| told.get(&ordinal)).map(|told| told.time_offset)
    };
    let mut cursors = Vec::with_capacity(ends.len());
    for (ordinal, told) in &ends {
        let given = match &options.start {
            Start::Offsets(offsets) => offsets.get(ordinal).copied(),
            _ => None,
        };
        let begin = match &options.start {
            Start::Earliest => told.start_offset,
            Start::Latest => told.end_offset,
            Start::Offsets(_) => known_start(info, *ordinal, given, told, options)?,
            Start::Time(_) => time_of(&starts, *ordinal).unwrap_or(told.end_offset),
        };
        let end = match &options.end {
            End::Latest => told.end_offset,
            End::Offsets(offsets) => offsets.get(ordinal).copied().unwrap_or(told.end_offset),
            End::Time(_) => time_of(&stops, *ordinal).unwrap_or(told.end_offset),
        };
        let end = if options.follow { None } else { Some(known_end(info, *ordinal, end, told, options)?) };
        // Only offsets that somebody named can be missed.
        let strict = options.fail_on_trimmed && given.is_some();
        let cursor = Cursor::new(stream.clone(), info.clone(), *ordinal, begin..end.unwrap_or(u64::MAX))?;
        cursors.push(cursor.at(options.at).following(options.follow).strict(strict, options.fail_on_trimmed));
    }
    Ok(cursors)
}

/// A start that is there, or where the next row will be: rows that nobody has appended cannot be passed over.
fn known_start(
    info: &StreamInfo,
    ordinal: u32,
    given: Option<u64>,
    told: &PartitionOffsets,
    options: &ReadOptions,
) -> Result<u64, Failure> {
    let last = told.end_offset;
    match given {
        // A cut may end before a row that is there by now; then nothing of it is in the cut.
        Some(start) if start > last && options.at.is_none() => {
            Err(beyond(info, ordinal, "from", start, last))
        }
        given => Ok(given.unwrap_or(told.start_offset)),
    }
}

/// Partitions that are not there have no rows either. Those that were not chosen are of no concern.
fn check_named(info: &StreamInfo, options: &ReadOptions) -> Result<(), Failure> {
    let (Start::Offsets(offsets), None, None) = (&options.start, &options.partitions, options.at) else {
        return Ok(());
    };
    match offsets.range(info.partition_count()..).find(|(_, start)| **start > 0) {
        Some((ordinal, start)) => Err(beyond(info, *ordinal, "from", *start, 0)),
        None => Ok(()),
    }
}

/// An end that is there: rows that nobody has appended cannot be waited for without `follow`.
fn known_end(
    info: &StreamInfo,
    ordinal: u32,
    end: u64,
    told: &PartitionOffsets,
    options: &ReadOptions,
) -> Result<u64, Failure> {
    let last = told.end_offset;
    if end <= last {
        return Ok(end);
    }
    if options.at.is_some() || matches!(options.end, End::Time(_)) {
        return Ok(last);
    }
    Err(beyond(info, ordinal, "up to", end, last))
}

fn beyond(info: &StreamInfo, ordinal: u32, which: &str, offset: u64, last: u64) -> Failure {
    let path = &info.path;
    let message = format!(
        "partition {ordinal} of {path}: read {which} offset {offset} was asked and it ends at {last}; ask for less"
    );
    Failure::invalid(message).with("partition", ordinal).with("stream", path.as_str())
}

#[cfg(test)]
mod tests {
    use laminar_rpc::ErrorClass;

    use super::*;

    fn is_send<T: Send>(_: T) {}

    /// Whoever embeds the client may poll it on any thread.
    #[allow(dead_code)]
    fn readers_and_their_futures_can_change_threads(reader: &mut RowReader, scan: &mut crate::ScanReader) {
        is_send(reader.next());
        is_send(scan.next());
    }

    #[test]
    fn following_has_no_end() {
        assert!(check(&ReadOptions { follow: true, ..Default::default() }).is_ok());
        let at = ReadOptions { follow: true, at: Some(7), ..Default::default() };
        let end = ReadOptions { follow: true, end: End::Time(7), ..Default::default() };
        for options in [at, end] {
            assert_eq!(check(&options).unwrap_err().class, ErrorClass::Invalid);
        }
    }

    #[test]
    fn a_start_beyond_the_last_row_is_refused_unless_a_cut_is_asked_for() {
        let info = crate::description::tests::bytes_stream(1);
        let told = PartitionOffsets { partition_id: 100, start_offset: 3, end_offset: 10, time_offset: 0 };
        let start = |start, options: &ReadOptions| known_start(&info, 0, start, &told, options);
        for follow in [false, true] {
            let options = ReadOptions { follow, ..Default::default() };
            assert_eq!(start(None, &options).unwrap(), 3);
            assert_eq!(start(Some(10), &options).unwrap(), 10, "where the next row will be");
            let failure = start(Some(11), &options).unwrap_err();
            assert!(failure.message.contains("from offset 11 was asked and it ends at 10"), "{failure}");
        }
        assert_eq!(start(Some(11), &ReadOptions { at: Some(3), ..Default::default() }).unwrap(), 11);
        let named = |partition, offset| {
            let start = Start::Offsets(BTreeMap::from([(partition, offset)]));
            check_named(&info, &ReadOptions { start, ..Default::default() })
        };
        assert!(named(0, 7).is_ok() && named(1, 0).is_ok());
        let failure = named(1, 7).unwrap_err();
        assert!(
            failure.message.contains("partition 1 of") && failure.message.contains("it ends at 0"),
            "{failure}"
        );
    }

    #[test]
    fn an_end_beyond_the_last_row_is_refused_unless_a_cut_is_asked_for() {
        let info = crate::description::tests::bytes_stream(1);
        let told = PartitionOffsets { partition_id: 100, start_offset: 0, end_offset: 10, time_offset: 0 };
        let end = |end, options: &ReadOptions| known_end(&info, 0, end, &told, options);
        assert_eq!(end(10, &ReadOptions::default()).unwrap(), 10);
        let failure = end(11, &ReadOptions::default()).unwrap_err();
        assert!(failure.message.contains("offset 11 was asked and it ends at 10"), "{failure}");
        assert_eq!(end(11, &ReadOptions { at: Some(3), ..Default::default() }).unwrap(), 10);
    }
}
