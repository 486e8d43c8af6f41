//! Records that must stay while somebody still needs them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::log_id::PartitionLogIndex;

/// How many pins hold each place.
#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<BTreeMap<u64, u32>>);

impl Pins {
    /// Whoever has this decides what is dropped, and nobody pins meanwhile.
    pub(super) fn lock(&self) -> PinsGuard<'_> {
        PinsGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) struct PinsGuard<'a>(MutexGuard<'a, BTreeMap<u64, u32>>);

impl PinsGuard<'_> {
    /// Nothing from here on may be dropped.
    pub(super) fn lowest(&self) -> Option<u64> {
        self.0.first_key_value().map(|(index, _)| *index)
    }

    pub(super) fn add(&mut self, pins: &Arc<Pins>, index: u64) -> RecordPin {
        *self.0.entry(index).or_default() += 1;
        RecordPin { pins: Arc::clone(pins), index }
    }
}

/// Keeps the records of a partition's log from a place on, until it is dropped.
#[derive(Debug)]
pub struct RecordPin {
    pins: Arc<Pins>,
    index: u64,
}

impl RecordPin {
    /// The first record that it keeps: the one asked for, or the first there was.
    pub fn first(&self) -> PartitionLogIndex {
        PartitionLogIndex(self.index)
    }
}

impl Drop for RecordPin {
    fn drop(&mut self) {
        let mut pins = self.pins.lock();
        if let Some(count) = pins.0.get_mut(&self.index) {
            *count -= 1;
            if *count == 0 {
                pins.0.remove(&self.index);
            }
        }
    }
}
