//! What producers appended last, so that a retry is recognised (TXN-2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use laminar_core::ids::LogIndex;

use super::types::{Outcome, Refusal};
use crate::entry::{Producer, ProducerId};

/// The producers that are known. The one that was used longest ago in the log is forgotten first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Producers {
    table: BTreeMap<ProducerId, ProducerVerdict>,
    /// The same producers by when they were used; those that one entry used, by id.
    by_use: BTreeSet<(LogIndex, ProducerId)>,
    forgotten: Option<ProducerId>,
}

/// What one producer appended last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProducerVerdict {
    /// Its last sequence, or 0.
    pub(super) last_sequence: u64,
    /// The last entry that it appended, or that minted it.
    pub(super) last_used: LogIndex,
    /// Its last appends, the oldest first; the newest has `last_sequence`.
    pub(super) window: VecDeque<Remembered>,
}

/// An append, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) checksum: u64,
    pub(super) outcome: Outcome,
}

impl Producers {
    /// What became of this append if it came before; nothing if it is the producer's next.
    pub(super) fn check(&self, given: &Producer) -> Result<Option<&Outcome>, Refusal> {
        let (producer, sequence) = (given.id, given.sequence);
        let Some(known) = self.table.get(&producer) else {
            let forgotten = self.forgotten.unwrap_or(ProducerId(0));
            return Err(Refusal::UnknownProducer { producer, forgotten });
        };
        let last = known.last_sequence;
        match last.checked_sub(sequence) {
            None if sequence - last == 1 => Ok(None),
            // No append has sequence 0.
            None => Err(Refusal::SequenceGap { producer, given: sequence, last }),
            Some(_) if sequence == 0 => Err(Refusal::SequenceGap { producer, given: sequence, last }),
            Some(back) => {
                let remembered =
                    usize::try_from(back).ok().and_then(|back| known.window.iter().nth_back(back));
                match remembered {
                    Some(remembered) if remembered.checksum == given.checksum => {
                        Ok(Some(&remembered.outcome))
                    }
                    _ => Err(Refusal::SequenceReused { producer, given: sequence }),
                }
            }
        }
    }

    /// Notes what became of an append that [`check`](Self::check) found to be the next.
    pub(super) fn remember(&mut self, given: &Producer, outcome: Outcome, used: LogIndex, window_max: u32) {
        let Some(known) = self.table.get_mut(&given.id) else {
            return;
        };
        self.by_use.remove(&(known.last_used, given.id));
        self.by_use.insert((used, given.id));
        known.last_used = used;
        known.last_sequence = given.sequence;
        while known.window.len() >= window_max as usize {
            known.window.pop_front();
        }
        known.window.push_back(Remembered { checksum: given.checksum, outcome });
    }

    /// Adds a producer, and forgets the one that was used longest ago if there are too many.
    pub(super) fn mint(&mut self, minted: ProducerId, used: LogIndex, producers_max: u32) {
        self.insert(minted, ProducerVerdict { last_sequence: 0, last_used: used, window: VecDeque::new() });
        while self.table.len() > producers_max as usize {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.table.remove(&oldest);
            self.forgotten = self.forgotten.max(Some(oldest));
        }
    }

    pub(super) fn insert(&mut self, id: ProducerId, producer: ProducerVerdict) {
        self.by_use.insert((producer.last_used, id));
        self.table.insert(id, producer);
    }

    pub(super) fn get(&self, id: ProducerId) -> Option<&ProducerVerdict> {
        self.table.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerVerdict)> {
        self.table.iter().map(|(id, producer)| (*id, producer))
    }

    pub(super) fn last(&self) -> Option<ProducerId> {
        self.table.last_key_value().map(|(id, _)| *id)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The highest id that was forgotten.
    pub(super) fn forgotten(&self) -> Option<ProducerId> {
        self.forgotten
    }

    pub(super) fn set_forgotten(&mut self, forgotten: Option<ProducerId>) {
        self.forgotten = forgotten;
    }
}
