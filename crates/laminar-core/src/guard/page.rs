//! Where a guard set keeps its guards: a table indexed by partition id, in pages that are never freed or moved.
//!
//! ```text
//!   partition id, 32 bits:   root (8) | middle (9) | leaf (9) | slot in page (6)
//! ```
//!
//! Each level is made when an id first needs it and stays until the set is dropped, so a reader walks four loads and
//! needs neither a lock nor a reclamation scheme. Dense ids share pages; a lone id costs one path, 18 KB.

use std::sync::OnceLock;

use super::observation::Poison;
use super::sync::{AtomicU8, AtomicU64, Ordering};
use crate::ids::{Epoch, PartitionId};

const SLOT_BITS: u32 = 6;
const LEAF_BITS: u32 = 9;
const MIDDLE_BITS: u32 = 9;
const ROOT_BITS: u32 = 32 - MIDDLE_BITS - LEAF_BITS - SLOT_BITS;

type Level<T, const N: usize> = [OnceLock<Box<T>>; N];
type Middle = Level<Leaf, { 1 << MIDDLE_BITS }>;

/// The pages by number, made as needed.
pub(super) struct PageTable {
    root: Level<Middle, { 1 << ROOT_BITS }>,
}

impl PageTable {
    pub(super) fn new() -> Self {
        Self { root: new_level() }
    }

    /// The number of the leaf that holds `partition`: neighbours over 32,768 ids share one.
    #[inline]
    pub(super) fn leaf_number(partition: PartitionId) -> u32 {
        partition.0 >> (SLOT_BITS + LEAF_BITS)
    }

    /// The leaf, if any id of it was ever inserted.
    #[inline]
    pub(super) fn leaf(&self, number: u32) -> Option<&Leaf> {
        let (root, middle) = Self::path(number);
        self.root[root].get()?[middle].get().map(|leaf| &**leaf)
    }

    /// The slot of `partition`, if its page exists.
    #[inline]
    pub(super) fn slot(&self, partition: PartitionId) -> Option<&Slot> {
        self.leaf(Self::leaf_number(partition))?.slot(partition)
    }

    /// The slot of `partition`, with its page if that does not exist yet.
    pub(super) fn slot_or_new(&self, partition: PartitionId) -> &Slot {
        let (root, middle) = Self::path(Self::leaf_number(partition));
        let middles = self.root[root].get_or_init(|| Box::new(new_level()));
        middles[middle].get_or_init(|| Box::new(Leaf { pages: new_level() })).slot_or_new(partition)
    }

    /// All pages, in the order of partition ids.
    pub(super) fn pages(&self) -> impl Iterator<Item = &Page> {
        self.root
            .iter()
            .filter_map(OnceLock::get)
            .flat_map(|middle| middle.iter().filter_map(OnceLock::get))
            .flat_map(|leaf| leaf.pages.iter().filter_map(OnceLock::get))
            .map(|page| &**page)
    }

    #[inline]
    fn path(leaf_number: u32) -> (usize, usize) {
        (low_bits(leaf_number >> MIDDLE_BITS, ROOT_BITS), low_bits(leaf_number, MIDDLE_BITS))
    }
}

#[inline]
fn low_bits(value: u32, bits: u32) -> usize {
    (value & ((1 << bits) - 1)) as usize
}

fn new_level<T, const N: usize>() -> Level<T, N> {
    std::array::from_fn(|_| OnceLock::new())
}

/// The pages of 32,768 neighbouring partitions.
pub(super) struct Leaf {
    pages: Level<Page, { 1 << LEAF_BITS }>,
}

impl Leaf {
    /// The slot of a partition of this leaf, if its page exists.
    #[inline]
    pub(super) fn slot(&self, partition: PartitionId) -> Option<&Slot> {
        Some(self.pages[Self::page_index(partition)].get()?.slot(partition))
    }

    fn slot_or_new(&self, partition: PartitionId) -> &Slot {
        let page = &self.pages[Self::page_index(partition)];
        page.get_or_init(|| Box::new(Page::new(partition.0 >> SLOT_BITS))).slot(partition)
    }

    #[inline]
    fn page_index(partition: PartitionId) -> usize {
        low_bits(partition.0 >> SLOT_BITS, LEAF_BITS)
    }
}

/// The slots of 64 neighbouring partitions.
pub(super) struct Page {
    number: u32,
    slots: [Slot; 1 << SLOT_BITS],
}

impl Page {
    fn new(number: u32) -> Self {
        Self { number, slots: std::array::from_fn(|_| Slot::new()) }
    }

    #[inline]
    pub(super) fn slot(&self, partition: PartitionId) -> &Slot {
        &self.slots[low_bits(partition.0, SLOT_BITS)]
    }

    /// First and last partition of the page.
    pub(super) fn range(&self) -> (PartitionId, PartitionId) {
        let first = self.number << SLOT_BITS;
        (PartitionId(first), PartitionId(first | ((1 << SLOT_BITS) - 1)))
    }

    /// The slots that hold a guard, in the order of partition ids.
    pub(super) fn guards(&self) -> impl Iterator<Item = (PartitionId, &Slot)> {
        self.all().filter(|(_, slot)| slot.is_present())
    }

    /// What was heard of each partition, in the order of partition ids.
    pub(super) fn epochs_seen(&self) -> impl Iterator<Item = (PartitionId, Epoch)> {
        self.all().filter_map(|(partition, slot)| Some((partition, slot.seen()?)))
    }

    fn all(&self) -> impl Iterator<Item = (PartitionId, &Slot)> {
        let (first, last) = self.range();
        (first.0..=last.0).map(PartitionId).zip(&self.slots)
    }
}

/// What a slot says of its guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    Fresh,
    Absent,
    Stale { held: Epoch, seen: Epoch },
    Poisoned(Poison),
}

const ABSENT: u8 = 0;
const OWNED_BY_OTHER: u8 = Poison::OwnedByOther as u8;
const VANISHED: u8 = Poison::Vanished as u8;
const PRESENT: u8 = 3;

/// The guard of one partition, or none. Written under the set's writer lock, read by anyone at any time.
///
/// The guard is fresh while `seen <= held`. A reader loads `held`, then `seen`. `seen` only ever grows, also over
/// removals and insertions, so what the reader finds fresh was fresh at the moment of the first load, and no mixture of
/// two guards can pass (EPOCH-3). A guard that is stale when it is put in raises `seen` before its epoch appears in
/// `held`; one that is fresh raises it after, so that renewing a guard has no moment at which neither holds.
pub(super) struct Slot {
    /// The epoch of the guard, or 0 if there is none or it is poisoned.
    held: AtomicU64,
    /// The newest epoch of the partition this set has heard of; at least 1, so that an empty slot is never fresh.
    seen: AtomicU64,
    /// The epoch of the guard, also while it is poisoned.
    epoch: AtomicU64,
    /// [`ABSENT`], [`PRESENT`], or the [`Poison`] of the guard.
    state: AtomicU8,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            held: AtomicU64::new(0),
            seen: AtomicU64::new(1),
            epoch: AtomicU64::new(0),
            state: AtomicU8::new(ABSENT),
        }
    }

    #[inline]
    pub(super) fn is_fresh(&self) -> bool {
        // ORDER: `held` first, both Acquire; see the type.
        let held = self.held.load(Ordering::Acquire);
        self.seen.load(Ordering::Acquire) <= held
    }

    pub(super) fn is_present(&self) -> bool {
        self.state.load(Ordering::Acquire) != ABSENT
    }

    /// The whole truth, for the path that fails. Starts again while a writer replaces the guard under the reader, so
    /// that the end of one guard is not reported against its successor.
    #[cold]
    pub(super) fn read(&self) -> SlotState {
        loop {
            let held = self.held.load(Ordering::Acquire);
            let seen = self.seen.load(Ordering::Acquire);
            let state = self.state.load(Ordering::Acquire);
            if held != self.held.load(Ordering::Acquire) {
                continue;
            }
            let (Ok(held), Ok(seen)) = (Epoch::new(held), Epoch::new(seen)) else {
                return match state {
                    OWNED_BY_OTHER => SlotState::Poisoned(Poison::OwnedByOther),
                    VANISHED => SlotState::Poisoned(Poison::Vanished),
                    _ => SlotState::Absent,
                };
            };
            return if seen <= held { SlotState::Fresh } else { SlotState::Stale { held, seen } };
        }
    }

    /// The newest epoch heard of; `None` for the first, which says nothing.
    fn seen(&self) -> Option<Epoch> {
        Epoch::new(self.seen.load(Ordering::Acquire)).ok().filter(|seen| *seen > Epoch::FIRST)
    }

    /// The epoch of the guard in the slot, poisoned or not. For writers.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        if self.is_present() { Epoch::new(self.epoch.load(Ordering::Acquire)).ok() } else { None }
    }

    /// Puts a guard in, in place of the one that was there.
    pub(super) fn put(&self, epoch: Epoch, seen: Result<Epoch, Poison>) {
        self.epoch.store(epoch.get(), Ordering::Release);
        match seen {
            Ok(seen) => {
                // ORDER: a stale guard raises `seen` before `held` shows it, a fresh one after; see the type.
                if seen > epoch {
                    self.raise(seen);
                }
                self.state.store(PRESENT, Ordering::Release);
                self.held.store(epoch.get(), Ordering::Release);
                self.raise(epoch);
            }
            Err(poison) => self.end(poison as u8),
        }
    }

    /// Empties the slot; what was heard of the partition stays.
    pub(super) fn take(&self) {
        self.end(ABSENT);
    }

    /// A later epoch was heard of.
    pub(super) fn raise(&self, seen: Epoch) {
        // Looked at before it is written: a refresh that brings nothing new must not take the line from the readers.
        if self.seen.load(Ordering::Relaxed) < seen.get() {
            self.seen.store(seen.get(), Ordering::Release);
        }
    }

    /// Poisons a fresh guard; one that is stale already stays so, because its error says more.
    pub(super) fn poison(&self, poison: Poison) {
        if self.is_fresh() {
            self.end(poison as u8);
        }
    }

    /// ORDER: the reason first, so that whoever finds nothing held also finds why.
    fn end(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.held.store(0, Ordering::Release);
    }
}
