//! All that is counted, under one lock: every step is short, and an entry of many partitions is admitted as a whole.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use laminar_core::ids::PartitionId;

use super::assembler::ClientId;
use super::charge::{Charges, Load};
use super::config::DispatcherConfig;
use super::partition::{Backoff, Partition, Reached};
use super::refusal::{AdmissionRefusal, Limit, Scope};
use super::state::{AdmissionState, DispatcherEvent, DispatcherStats};
use crate::setting::millis;

#[derive(Debug)]
pub(super) struct Ledger {
    config: DispatcherConfig,
    partitions: BTreeMap<PartitionId, Partition>,
    /// Permits of records that have no partition.
    unpartitioned: Load,
    /// What all partitions have queued, and the above.
    total: Load,
    /// While more than half of the partitions are older than `age_max`: the least of their ages, and when it was
    /// found out.
    aged: Option<(Duration, Duration)>,
    backoff: Backoff,
    waiters: BTreeMap<ClientId, u64>,
    waiters_total: u64,
    events: VecDeque<DispatcherEvent>,
    events_lost: u64,
    admitted: u64,
    retries: u64,
    rejects: BTreeMap<String, u64>,
    transitions: BTreeMap<AdmissionState, u64>,
}

impl Ledger {
    pub(super) fn new(config: DispatcherConfig) -> Self {
        Self {
            config,
            partitions: BTreeMap::new(),
            unpartitioned: Load::default(),
            total: Load::default(),
            aged: None,
            backoff: Backoff::default(),
            waiters: BTreeMap::new(),
            waiters_total: 0,
            events: VecDeque::new(),
            events_lost: 0,
            admitted: 0,
            retries: 0,
            rejects: BTreeMap::new(),
            transitions: BTreeMap::new(),
        }
    }

    pub(super) fn config(&self) -> &DispatcherConfig {
        &self.config
    }

    pub(super) fn get(&self, partition: PartitionId) -> Option<&Partition> {
        self.partitions.get(&partition)
    }

    pub(super) fn ids_from(&self, from: Bound<PartitionId>, count: usize) -> Vec<PartitionId> {
        self.partitions.range((from, Bound::Unbounded)).take(count).map(|(id, _)| *id).collect()
    }

    /// Changes one partition, making it first if `create` says so, and keeps sums and state right.
    pub(super) fn update<T>(
        &mut self,
        id: PartitionId,
        now: Duration,
        create: bool,
        change: impl FnOnce(&mut Partition) -> T,
    ) -> Option<T> {
        if create {
            self.partitions.entry(id).or_insert_with(|| Partition::new(now));
        }
        let partition = self.partitions.get_mut(&id)?;
        let before = partition.queued();
        let result = change(partition);
        self.total = self.total.minus(before).plus(partition.queued());
        let forget = partition.is_forgettable();
        self.evaluate(id, now);
        if forget {
            self.partitions.remove(&id);
        }
        Some(result)
    }

    /// Brings the state of a partition up to date, and keeps an event if it changed.
    pub(super) fn evaluate(&mut self, id: PartitionId, now: Duration) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let Some(from) = partition.evaluate(now, &self.config) else { return };
        let reason = partition.reason(now, &self.config);
        let event = DispatcherEvent { partition: id, from, to: partition.state, reason, at: now };
        *self.transitions.entry(event.to).or_default() += 1;
        self.events.push_back(event);
        while self.events.len() as u64 > self.config.events_max {
            self.events.pop_front();
            self.events_lost += 1;
        }
    }

    /// Checks every limit, then counts the entry.
    pub(super) fn admit(&mut self, charges: &Charges, now: Duration) -> Result<(), AdmissionRefusal> {
        for (id, load) in charges.partitions() {
            self.check_partition(id, load, charges.appends, now)?;
        }
        self.check_global(charges, now)?;
        for (id, load) in charges.partitions() {
            // Not through `update`: the state is up to date, and permits do not change it.
            let partition = self.partitions.entry(id).or_insert_with(|| Partition::new(now));
            let before = partition.queued();
            partition.inflight = partition.inflight.plus(load);
            partition.backoff.reset();
            self.total = self.total.minus(before).plus(partition.queued());
        }
        self.unpartitioned = self.unpartitioned.plus(charges.unpartitioned);
        self.total = self.total.plus(charges.unpartitioned);
        self.backoff.reset();
        self.admitted += 1;
        Ok(())
    }

    pub(super) fn release(&mut self, charges: &Charges, now: Duration) {
        for (id, load) in charges.partitions() {
            self.update(id, now, false, |partition| partition.inflight = partition.inflight.minus(load));
        }
        self.unpartitioned = self.unpartitioned.minus(charges.unpartitioned);
        self.total = self.total.minus(charges.unpartitioned);
    }

    fn check_partition(
        &mut self,
        id: PartitionId,
        load: Load,
        appends: bool,
        now: Duration,
    ) -> Result<(), AdmissionRefusal> {
        self.evaluate(id, now);
        let config = &self.config;
        let mut fresh = None;
        let partition = match self.partitions.get_mut(&id) {
            Some(partition) => partition,
            None => fresh.insert(Partition::new(now)),
        };
        let reached = partition.reached(load, appends, now, config);
        match (reached, &partition.paused) {
            (Some(reached), _) if reached.never_fits => {
                Err(refusal(Scope::Partition(id), reached, &mut partition.backoff, now, config))
            }
            (_, Some(reason)) if appends => {
                let reason = reason.clone();
                let retry_after = partition.backoff.refuse(now, 0, 1, config);
                Err(AdmissionRefusal::Paused { partition: id, reason, retry_after })
            }
            (Some(reached), _) => {
                Err(refusal(Scope::Partition(id), reached, &mut partition.backoff, now, config))
            }
            (None, _) => Ok(()),
        }
    }

    fn check_global(&mut self, charges: &Charges, now: Duration) -> Result<(), AdmissionRefusal> {
        let asked = charges.total();
        let spare = if charges.appends { 0 } else { self.config.control_ops_max };
        let reached = Reached::above(Limit::Ops, self.config.ops_max + spare, self.total.ops, asked.ops)
            .or_else(|| {
                let bytes =
                    Reached::above(Limit::Bytes, self.config.bytes_max, self.total.bytes, asked.bytes);
                bytes.filter(|_| charges.appends)
            })
            .or_else(|| if charges.appends { self.aged_reached(now) } else { None });
        match reached {
            None => Ok(()),
            Some(reached) => Err(refusal(Scope::Global, reached, &mut self.backoff, now, &self.config)),
        }
    }

    fn aged_reached(&mut self, now: Duration) -> Option<Reached> {
        let (_, found_at) = self.aged?;
        // Under overload many ask; they all get an answer that is no older than their back-off.
        if now >= found_at.saturating_add(self.config.retry_after_min) {
            let aged = self.partitions.values().map(|partition| partition.age(now)).collect();
            self.set_ages(aged, now);
        }
        let (age, _) = self.aged?;
        let (limit, value) = (millis(self.config.age_max), millis(age));
        Some(Reached { which: Limit::Age, limit, value, asked: 0, never_fits: false })
    }

    /// Takes the ages of all partitions and judges the node by them.
    pub(super) fn set_ages(&mut self, mut ages: Vec<Duration>, now: Duration) {
        let partitions = ages.len();
        ages.retain(|age| *age > self.config.age_max);
        let many = ages.len() * 2 > partitions;
        self.aged = ages.into_iter().min().filter(|_| many).map(|age| (age, now));
    }

    pub(super) fn signal_refused(
        &mut self,
        scope: Scope,
        signal: super::state::SignalRefusal,
        now: Duration,
    ) -> AdmissionRefusal {
        let config = &self.config;
        let partition = scope.partition().and_then(|id| self.partitions.get_mut(&id));
        let backoff = partition.map_or(&mut self.backoff, |partition| &mut partition.backoff);
        let retry_after = backoff.refuse(now, signal.value, signal.limit, config);
        let (name, limit, value) = (signal.name, signal.limit, signal.value);
        AdmissionRefusal::Signal { scope, name, limit, value, retry_after }
    }

    pub(super) fn count_reject(&mut self, refusal: &AdmissionRefusal) {
        let name = refusal.limit_name();
        match self.rejects.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                self.rejects.insert(name.to_owned(), 1);
            }
        }
    }

    pub(super) fn count_retry(&mut self) {
        self.retries += 1;
    }

    pub(super) fn admit_waiter(&mut self, client: ClientId, now: Duration) -> Result<(), AdmissionRefusal> {
        let of_client = self.waiters.get(&client).copied().unwrap_or(0);
        let limits = [
            (Limit::Waiters { client: true }, self.config.waiters_client_max, of_client),
            (Limit::Waiters { client: false }, self.config.waiters_max, self.waiters_total),
        ];
        for (which, limit, value) in limits {
            if let Some(reached) = Reached::above(which, limit, value, 1) {
                return Err(refusal(Scope::Global, reached, &mut Backoff::default(), now, &self.config));
            }
        }
        self.waiters.insert(client, of_client + 1);
        self.waiters_total += 1;
        Ok(())
    }

    pub(super) fn release_waiter(&mut self, client: ClientId) {
        if let Some(count) = self.waiters.get_mut(&client) {
            *count -= 1;
            self.waiters_total -= 1;
            if *count == 0 {
                self.waiters.remove(&client);
            }
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<DispatcherEvent> {
        self.events.drain(..).collect()
    }

    pub(super) fn stats(&self) -> DispatcherStats {
        DispatcherStats {
            admitted: self.admitted,
            rejects: self.rejects.iter().map(|(name, count)| (name.clone(), *count)).collect(),
            retries: self.retries,
            transitions: self.transitions.iter().map(|(state, count)| (*state, *count)).collect(),
            events_lost: self.events_lost,
            ops: self.total.ops,
            bytes: self.total.bytes,
            waiters: self.waiters_total,
        }
    }
}

fn refusal(
    scope: Scope,
    reached: Reached,
    backoff: &mut Backoff,
    now: Duration,
    config: &DispatcherConfig,
) -> AdmissionRefusal {
    let Reached { which, limit, value, asked, never_fits } = reached;
    if never_fits {
        return AdmissionRefusal::NeverFits { scope, which, limit, asked };
    }
    let retry_after = backoff.refuse(now, value, limit, config);
    AdmissionRefusal::Overloaded { scope, which, limit, value, asked, retry_after }
}
