//! What is counted as it happens. Each is an addition: nothing on the path of an append takes a lock or makes a text.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use laminar_rpc::{ErrorClass, Failure, proto};
use tokio::time::Instant;

use super::histogram::Histogram;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    // ORDER: figures stand for themselves; nothing is read because of them.
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts by the class of an error.
#[derive(Debug)]
pub(crate) struct ByClass(Vec<Count>);

impl Default for ByClass {
    fn default() -> Self {
        ByClass(ErrorClass::ALL.iter().map(|_| Count::default()).collect())
    }
}

impl ByClass {
    fn add(&self, class: ErrorClass) {
        if let Some(at) = ErrorClass::ALL.iter().position(|known| *known == class) {
            self.0[at].add(1);
        }
    }

    /// The classes with their counts.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ErrorClass::ALL.iter().zip(&self.0).map(|(class, count)| (class.name(), count.get()))
    }
}

macro_rules! calls {
    ($($name:ident)*) => {
        /// A call of the service.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Call { $($name,)* }

        impl Call {
            /// All calls, in order.
            pub(crate) const ALL: &[Call] = &[$(Call::$name,)*];

            /// Its name in the service.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Call::$name => stringify!($name),)* }
            }
        }
    };
}

calls! {
    Hello CreateStream DescribeStream ListStreams AlterStream DropStream MintProducer Append AppendEach Read Offsets Cut Barrier
    Get Scan Trim RegisterWorker Heartbeat Claim Release BeginBatch CheckRun LastBatch Watch Why Status Metrics Metadata Resume
    Skip Snapshot
}

/// How one call ended, each time.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    pub(crate) done: Count,
    pub(crate) refused: ByClass,
}

/// How calls ended, in the order of `Call::ALL`.
#[derive(Debug)]
struct ByCall(Vec<Answered>);

impl Default for ByCall {
    fn default() -> Self {
        ByCall(Call::ALL.iter().map(|_| Answered::default()).collect())
    }
}

/// What one node counts.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    calls: ByCall,
    pub(crate) appends: Count,
    pub(crate) append_duplicates: Count,
    pub(crate) append_rows: Count,
    pub(crate) append_bytes: Count,
    pub(crate) append_refusals: ByClass,
    pub(crate) append_seconds: Histogram,
    pub(crate) appends_abandoned: Count,
    appends_begun: Count,
    appends_ended: Count,
    pub(crate) staged_parts: Count,
    pub(crate) staged_bytes: Count,
    pub(crate) staged_blocks_deleted: Count,
    pub(crate) fsync_seconds: Histogram,
    pub(crate) claims: Count,
    pub(crate) takeovers: Count,
    pub(crate) read_rows: Count,
    pub(crate) read_bytes: Count,
    readers_begun: Count,
    readers_ended: Count,
}

/// How much an append brings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    rows: u64,
    bytes: u64,
    staged_parts: u64,
    staged_bytes: u64,
}

impl Size {
    fn of(request: &proto::AppendRequest) -> Self {
        let mut size = Size::default();
        // What a client says of itself may be anything, until it is checked.
        for part in &request.rows {
            size.rows = size.rows.saturating_add(u64::from(part.rows));
            match &part.payload {
                Some(proto::partition_rows::Payload::Inline(rows)) => {
                    size.bytes = size.bytes.saturating_add(rows.len() as u64);
                }
                Some(proto::partition_rows::Payload::Pointer(pointer)) => {
                    size.staged_parts += 1;
                    size.staged_bytes = size.staged_bytes.saturating_add(pointer.length);
                }
                None => {}
            }
        }
        size.bytes = size.bytes.saturating_add(size.staged_bytes);
        size
    }
}

impl Figures {
    /// A call was answered.
    pub(crate) fn answered<T>(&self, call: Call, outcome: &Result<T, Failure>) {
        let answered = &self.calls.0[call as usize];
        match outcome {
            Ok(_) => answered.done.add(1),
            Err(failure) => answered.refused.add(failure.class),
        }
    }

    /// All calls, and how they ended.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (Call, &Answered)> {
        Call::ALL.iter().copied().zip(&self.calls.0)
    }

    /// An append came. It is abandoned if the result is dropped before it is told the answer.
    pub(crate) fn appending(self: &Arc<Self>, request: &proto::AppendRequest) -> Appending {
        self.appends_begun.add(1);
        Appending {
            figures: Arc::clone(self),
            began: Instant::now(),
            size: Size::of(request),
            is_answered: false,
        }
    }

    /// How many appends are under way.
    pub(crate) fn appends_in_flight(&self) -> u64 {
        let ended = self.appends_ended.get();
        self.appends_begun.get().saturating_sub(ended)
    }

    fn appended(&self, size: Size, took: Duration, outcome: &Result<proto::AppendResponse, Failure>) {
        self.append_seconds.observe(took);
        match outcome {
            Ok(response) if response.duplicate => self.append_duplicates.add(1),
            Ok(_) => {
                self.appends.add(1);
                self.append_rows.add(size.rows);
                self.append_bytes.add(size.bytes);
                self.staged_parts.add(size.staged_parts);
                self.staged_bytes.add(size.staged_bytes);
            }
            Err(failure) => self.append_refusals.add(failure.class),
        }
    }

    /// Partitions were taken for a run; from another run, if it is a takeover.
    pub(crate) fn claimed(&self, takeover: bool) {
        self.claims.add(1);
        self.takeovers.add(u64::from(takeover));
    }

    /// Somebody reads, until the result is dropped.
    pub(crate) fn reading(self: &Arc<Self>) -> Reading {
        self.readers_begun.add(1);
        Reading(Arc::clone(self))
    }

    /// How many read now.
    pub(crate) fn readers(&self) -> u64 {
        let ended = self.readers_ended.get();
        self.readers_begun.get().saturating_sub(ended)
    }
}

/// An append under way.
#[derive(Debug)]
pub(crate) struct Appending {
    figures: Arc<Figures>,
    began: Instant,
    size: Size,
    is_answered: bool,
}

impl Appending {
    /// Counts what became of it.
    pub(crate) fn answered(mut self, outcome: &Result<proto::AppendResponse, Failure>) {
        self.is_answered = true;
        self.figures.appended(self.size, self.began.elapsed(), outcome);
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        self.figures.appends_ended.add(1);
        self.figures.appends_abandoned.add(u64::from(!self.is_answered));
    }
}

/// A reader of a partition.
#[derive(Debug)]
pub(crate) struct Reading(Arc<Figures>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.readers_ended.add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_call_of_the_service_is_counted_under_its_name() {
        let service = include_str!("../../../laminar-rpc/proto/laminar/v1/laminar.proto");
        let names: BTreeSet<&str> =
            service.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next()).collect();
        assert_eq!(Call::ALL.iter().map(|call| call.name()).collect::<BTreeSet<_>>(), names);
    }

    #[test]
    fn appends_are_counted_by_what_became_of_them() {
        let figures = Figures::default();
        let size = Size { rows: 10, bytes: 100, staged_parts: 1, staged_bytes: 90 };
        let answer = |duplicate| Ok(proto::AppendResponse { duplicate, ..Default::default() });
        figures.appended(size, Duration::from_millis(1), &answer(false));
        figures.appended(size, Duration::from_millis(1), &answer(true));
        figures.appended(size, Duration::from_millis(1), &Err(Failure::new(ErrorClass::StaleEpoch, "no")));
        let rows = (figures.append_rows.get(), figures.append_bytes.get(), figures.staged_bytes.get());
        assert_eq!((figures.appends.get(), figures.append_duplicates.get(), rows), (1, 1, (10, 100, 90)));
        let refused: Vec<_> = figures.append_refusals.all().filter(|(_, count)| *count > 0).collect();
        assert_eq!(refused, [("StaleEpochError", 1)]);
        assert_eq!(figures.append_seconds.observed().count, 3);
    }

    #[test]
    fn appends_whose_caller_went_away_are_abandoned() {
        let figures = Arc::new(Figures::default());
        let request = proto::AppendRequest::default();
        let (first, second) = (figures.appending(&request), figures.appending(&request));
        assert_eq!(figures.appends_in_flight(), 2);
        first.answered(&Ok(proto::AppendResponse::default()));
        drop(second);
        assert_eq!((figures.appends_in_flight(), figures.appends_abandoned.get()), (0, 1));
        assert_eq!((figures.appends.get(), figures.append_seconds.observed().count), (1, 1));
    }

    #[test]
    fn readers_are_those_that_have_not_ended() {
        let figures = Arc::new(Figures::default());
        let (first, second) = (figures.reading(), figures.reading());
        drop(first);
        assert_eq!(figures.readers(), 1);
        drop(second);
        assert_eq!(figures.readers(), 0);
    }
}
