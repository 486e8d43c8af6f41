//! The dispatcher as its users hold it.

use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use laminar_core::ids::{LogIndex, PartitionId};

use super::assembler::ClientId;
use super::charge::{Charges, Load};
use super::config::{DispatcherConfig, PartitionLimits};
use super::ledger::Ledger;
use super::partition::Partition;
use super::permit::{Permit, WaiterPermit};
use super::refusal::{AdmissionRefusal, Scope};
use super::state::{AdmissionSignal, AdmissionView, DispatcherEvent, DispatcherStats, PauseReason};
use crate::entry::Entry;
use crate::runtime::Runtime;
use crate::setting::SettingOutOfRange;

/// Partitions looked at by [`PartitionDispatcher::tick`] before it lets others have the lock.
const TICK_PARTITIONS: usize = 256;

/// Decides what may become a Raft entry. Clones are the same dispatcher.
#[derive(Debug, Clone)]
pub struct PartitionDispatcher {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) runtime: Arc<dyn Runtime>,
    inline_bytes_max: u64,
    signals: Vec<Arc<dyn AdmissionSignal>>,
    // ORDER: the only lock; nothing of others is called while it is held.
    ledger: Mutex<Ledger>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        // Counts are checked before they are changed, so a panic leaves them whole.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionDispatcher").field("signals", &self.signals.len()).finish_non_exhaustive()
    }
}

impl PartitionDispatcher {
    /// A dispatcher with nothing queued. Signals are asked in their order.
    ///
    /// # Errors
    /// Invalid: a setting is out of its range.
    pub fn new(
        config: DispatcherConfig,
        runtime: Arc<dyn Runtime>,
        signals: Vec<Arc<dyn AdmissionSignal>>,
    ) -> Result<Self, SettingOutOfRange> {
        config.check()?;
        let inline_bytes_max = config.entry_inline_bytes_max;
        let ledger = Mutex::new(Ledger::new(config));
        Ok(Self { shared: Arc::new(Shared { runtime, inline_bytes_max, signals, ledger }) })
    }

    /// Admits an entry, all of it or nothing, before it is proposed (ADM-1).
    ///
    /// # Errors
    /// Overloaded: a limit is reached, here or by a signal. Unavailable: a partition is paused. Invalid: the entry
    /// would never fit.
    pub fn admit(&self, entry: &Entry) -> Result<Permit, AdmissionRefusal> {
        let now = self.shared.runtime.now();
        let charges = Charges::of(entry);
        let signal = if charges.appends { self.ask_signals(&charges, now) } else { None };
        let mut ledger = self.shared.lock();
        let admitted = if charges.inline_bytes > self.shared.inline_bytes_max {
            let (bytes, limit) = (charges.inline_bytes, self.shared.inline_bytes_max);
            Err(AdmissionRefusal::InlineTooLarge { bytes, limit })
        } else if let Some((scope, signal)) = signal {
            Err(ledger.signal_refused(scope, signal, now))
        } else {
            ledger.admit(&charges, now)
        };
        match admitted {
            Ok(()) => {
                drop(ledger);
                Ok(Permit { shared: Arc::clone(&self.shared), charges })
            }
            Err(refusal) => {
                ledger.count_reject(&refusal);
                Err(refusal)
            }
        }
    }

    /// [`admit`](Self::admit) for an entry that was refused before; counted as a retry.
    ///
    /// # Errors
    /// As `admit`.
    pub fn readmit(&self, entry: &Entry) -> Result<Permit, AdmissionRefusal> {
        self.shared.lock().count_retry();
        self.admit(entry)
    }

    fn ask_signals(&self, charges: &Charges, now: Duration) -> Option<(Scope, super::state::SignalRefusal)> {
        self.shared.signals.iter().find_map(|signal| {
            signal.check(None, now).map(|refusal| (Scope::Global, refusal)).or_else(|| {
                charges
                    .partitions()
                    .find_map(|(id, _)| Some((Scope::Partition(id), signal.check(Some(id), now)?)))
            })
        })
    }

    /// Admits one more waiter of a client at a barrier.
    ///
    /// # Errors
    /// Overloaded: the client, or all of them, have too many.
    pub fn admit_waiter(&self, client: ClientId) -> Result<WaiterPermit, AdmissionRefusal> {
        let now = self.shared.runtime.now();
        let mut ledger = self.shared.lock();
        match ledger.admit_waiter(client, now) {
            Ok(()) => {
                drop(ledger);
                Ok(WaiterPermit { shared: Arc::clone(&self.shared), client })
            }
            Err(refusal) => {
                ledger.count_reject(&refusal);
                Err(refusal)
            }
        }
    }

    /// `apply` accepted records of a partition from entry `raft`; they wait for its worker now.
    pub fn enqueued(&self, partition: PartitionId, records: u64, bytes: u64, raft: LogIndex) {
        if records > 0 {
            let load = Load { ops: records, bytes };
            self.update(partition, true, |partition, now| {
                partition.known = true;
                partition.enqueue(load, raft, now);
            });
        }
    }

    /// A partition's worker has applied records. Of a partition that is gone this is no news.
    ///
    /// # Panics
    /// More was applied than was enqueued.
    pub fn applied(&self, partition: PartitionId, records: u64, bytes: u64) {
        let load = Load { ops: records, bytes };
        self.update(partition, false, |partition, now| {
            if partition.known {
                partition.apply(load, now);
            }
        });
    }

    /// How long to wait before records of a partition that are committed are handed to its worker. It never refuses
    /// (ADM-1); while it is not zero, admission refuses.
    pub fn after_commit(&self, partition: PartitionId) -> Duration {
        let ledger = self.shared.lock();
        ledger.get(partition).map_or(Duration::ZERO, |partition| partition.commit_delay(ledger.config()))
    }

    /// The state machine knows this partition.
    pub fn register(&self, partition: PartitionId) {
        self.update(partition, true, |partition, _| partition.known = true);
    }

    /// Gives a partition limits of its own, or those of all again.
    ///
    /// # Errors
    /// Invalid: a limit is out of its range.
    pub fn set_limits(
        &self,
        partition: PartitionId,
        limits: Option<PartitionLimits>,
    ) -> Result<(), SettingOutOfRange> {
        if let Some(limits) = &limits {
            self.shared.lock().config().check_partition(limits)?;
        }
        self.update(partition, true, |partition, _| {
            partition.known = true;
            partition.limits = limits;
        });
        Ok(())
    }

    /// The partition was destroyed. Permits of it end as always.
    pub fn remove(&self, partition: PartitionId) {
        self.update(partition, false, |partition, now| {
            partition.discard_backlog(now);
            partition.known = false;
            partition.limits = None;
            partition.paused = None;
        });
    }

    /// What the partition had not applied is void: a snapshot took its place.
    pub fn discard_backlog(&self, partition: PartitionId) {
        self.update(partition, false, Partition::discard_backlog);
    }

    /// The partition applies nothing until [`clear`](Self::clear): a record cannot be applied, or its log failed.
    pub fn set_paused(&self, partition: PartitionId, reason: PauseReason) {
        self.update(partition, true, |partition, _| {
            partition.known = true;
            partition.paused = Some(reason);
        });
    }

    /// The partition goes on.
    pub fn clear(&self, partition: PartitionId) {
        self.update(partition, false, Partition::clear_pause);
    }

    fn update(&self, id: PartitionId, create: bool, change: impl FnOnce(&mut Partition, Duration)) {
        let now = self.shared.runtime.now();
        self.shared.lock().update(id, now, create, |partition| change(partition, now));
    }

    /// Notices partitions whose workers stand still or lag, and whether the node as a whole does. To be called a few
    /// times a second; others get the lock in between.
    pub fn tick(&self) {
        let now = self.shared.runtime.now();
        let mut ages = Vec::new();
        let mut from = Bound::Unbounded;
        loop {
            let mut ledger = self.shared.lock();
            let ids = ledger.ids_from(from, TICK_PARTITIONS);
            for id in &ids {
                ledger.evaluate(*id, now);
                ages.extend(ledger.get(*id).map(|partition| partition.age(now)));
            }
            let Some(last) = ids.last() else {
                ledger.set_ages(ages, now);
                return;
            };
            from = Bound::Excluded(*last);
        }
    }

    /// What is known of a partition now. One that is not known is open and empty.
    pub fn view(&self, partition: PartitionId) -> AdmissionView {
        let now = self.shared.runtime.now();
        let mut ledger = self.shared.lock();
        ledger.evaluate(partition, now);
        let config = ledger.config();
        ledger
            .get(partition)
            .map_or_else(|| Partition::new(now).view(now, config), |partition| partition.view(now, config))
    }

    /// Changes of state since the last call, oldest first.
    pub fn take_events(&self) -> Vec<DispatcherEvent> {
        self.shared.lock().take_events()
    }

    /// What was done so far, and what is queued.
    pub fn stats(&self) -> DispatcherStats {
        self.shared.lock().stats()
    }

    /// How many partitions are kept in memory.
    pub fn partitions(&self) -> usize {
        self.shared.lock().ids_from(Bound::Unbounded, usize::MAX).len()
    }
}
