//! The metadata that everybody on this node reads, the newest answers, and the newest changes of ownership.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::task::Waker;

use laminar_core::error::FormatError;
use laminar_core::ids::{LogIndex, OwnerEpoch, PartitionId, RequestId};
use laminar_core::metadata::{DeltaMetadata, MetadataLogEntry, MetadataResponse};

/// Ids in the answers that are kept, all together: a few huge batches would otherwise be kept in gigabytes.
const MINTED_MAX: usize = 262_144;

/// What became of an entry.
pub(super) type Answer = Result<MetadataResponse, FormatError>;

/// A partition, and who owns it now; none if it is gone.
pub(super) type OwnershipChange = (PartitionId, Option<OwnerEpoch>);

pub(super) struct Published {
    metadata: RwLock<DeltaMetadata>,
    /// The last entry that the metadata has.
    applied: AtomicU64,
    feed: Mutex<Feed>,
}

/// What follows from applying, for those who wait for it.
pub(super) struct Feed {
    answers: VecDeque<(LogIndex, Answer)>,
    answers_max: usize,
    minted: usize,
    changes: VecDeque<(LogIndex, OwnershipChange)>,
    changes_max: usize,
    /// Changes up to this entry are not all here.
    floor: LogIndex,
    wakers: BTreeMap<u64, Option<Waker>>,
    watches_made: u64,
    closed: bool,
}

impl Published {
    pub(super) fn new(answers_max: usize, changes_max: usize) -> Self {
        let feed = Feed {
            answers: VecDeque::new(),
            answers_max,
            minted: 0,
            changes: VecDeque::new(),
            changes_max,
            floor: LogIndex::NONE,
            wakers: BTreeMap::new(),
            watches_made: 0,
            closed: false,
        };
        Self {
            metadata: RwLock::new(DeltaMetadata::new()),
            applied: AtomicU64::new(0),
            feed: Mutex::new(feed),
        }
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&DeltaMetadata) -> T) -> T {
        read(&self.metadata.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The last entry that the metadata has.
    pub(super) fn applied(&self) -> LogIndex {
        // ORDER: acquire, with the release of `set_applied`: whoever sees the index finds its answer and its changes.
        LogIndex(self.applied.load(Ordering::Acquire))
    }

    fn set_applied(&self, index: LogIndex) {
        self.applied.store(index.0, Ordering::Release);
    }

    pub(super) fn feed(&self) -> MutexGuard<'_, Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another state in the place of this one, which is not ahead of it.
    pub(super) fn publish(&self, state: DeltaMetadata) {
        let (before, now) = (self.applied(), state.last_applied_log());
        *self.metadata.write().unwrap_or_else(PoisonError::into_inner) = state;
        if now > before {
            let mut feed = self.feed();
            feed.changes.clear();
            feed.floor = now;
            let wakers = feed.take_wakers();
            drop(feed);
            self.set_applied(now);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    pub(super) fn apply(&self, index: LogIndex, entry: &MetadataLogEntry) {
        let mut metadata = self.metadata.write().unwrap_or_else(PoisonError::into_inner);
        let (response, touched) = metadata.apply_noting(index, entry);
        let owner = |partition| metadata.partition_ownership(partition).map(|o| o.owner_epoch());
        let changes: Vec<_> = touched.into_iter().map(|partition| (partition, owner(partition))).collect();
        drop(metadata);
        let mut feed = self.feed();
        feed.keep_answer(index, Ok(response));
        let wakers = if changes.is_empty() { Vec::new() } else { feed.take_wakers() };
        feed.keep_changes(index, changes);
        drop(feed);
        self.set_applied(index);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Notes an entry that could not be read and changed nothing.
    pub(super) fn unreadable(&self, index: LogIndex, error: FormatError) {
        self.feed().keep_answer(index, Err(error));
    }

    /// How the entry at `index` was answered. One that is not kept any more may be among the requests that the metadata
    /// remembers.
    pub(super) fn answer(&self, index: LogIndex, request_id: RequestId) -> Option<Answer> {
        let kept = self.feed().answer(index);
        kept.or_else(|| self.read(|metadata| metadata.answer(request_id).cloned()).map(Ok))
    }

    /// Ends all watches.
    pub(super) fn close(&self) {
        let mut feed = self.feed();
        feed.closed = true;
        let wakers = feed.take_wakers();
        drop(feed);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Feed {
    fn answer(&self, index: LogIndex) -> Option<Answer> {
        let at = self.answers.binary_search_by_key(&index, |(at, _)| *at).ok()?;
        Some(self.answers[at].1.clone())
    }

    fn keep_answer(&mut self, index: LogIndex, answer: Answer) {
        self.minted += minted(&answer);
        self.answers.push_back((index, answer));
        while self.answers.len() > self.answers_max || (self.minted > MINTED_MAX && self.answers.len() > 1) {
            let Some((_, oldest)) = self.answers.pop_front() else { return };
            self.minted -= minted(&oldest);
        }
    }

    fn keep_changes(&mut self, index: LogIndex, changes: Vec<OwnershipChange>) {
        self.changes.extend(changes.into_iter().map(|change| (index, change)));
        while self.changes.len() > self.changes_max {
            let Some((oldest, _)) = self.changes.pop_front() else { return };
            self.floor = oldest;
        }
    }

    /// The changes behind an entry, merged, and the last of them; none if they are not all here.
    pub(super) fn changes_after(&self, after: LogIndex) -> Option<(LogIndex, Vec<OwnershipChange>)> {
        if after < self.floor {
            return None;
        }
        let begin = self.changes.partition_point(|(index, _)| *index <= after);
        let last = self.changes.back().map_or(after, |(index, _)| (*index).max(after));
        let merged: BTreeMap<_, _> = self.changes.range(begin..).map(|(_, change)| *change).collect();
        Some((last, merged.into_iter().collect()))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn add_watch(&mut self) -> u64 {
        self.watches_made += 1;
        self.wakers.insert(self.watches_made, None);
        self.watches_made
    }

    pub(super) fn remove_watch(&mut self, watch: u64) {
        self.wakers.remove(&watch);
    }

    pub(super) fn watches(&self) -> usize {
        self.wakers.len()
    }

    /// Has a watch woken by the next change.
    pub(super) fn wake_later(&mut self, watch: u64, waker: &Waker) {
        self.wakers.insert(watch, Some(waker.clone()));
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        self.wakers.values_mut().filter_map(Option::take).collect()
    }
}

fn minted(answer: &Answer) -> usize {
    answer.as_ref().map_or(0, |response| response.minted().len())
}
