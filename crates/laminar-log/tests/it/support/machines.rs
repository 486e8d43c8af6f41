//! Machines that stop, fail and recover when a test says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use bytes::Bytes;
use laminar_core::ids::PartitionId;
use laminar_log::MachineFactory;
use laminar_log::entry::MachineKind;
use laminar_log::machine::{Applying, KvMachine, LogMachine, MachineError, PartitionStateMachine};
use laminar_log::verdict::AcceptedRecord;

/// What happens to the next applies of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// They wait until the trouble is over.
    Frozen,
    /// So many fail.
    Fails(u32),
    /// So many panic.
    Panics(u32),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Control {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    troubles: BTreeMap<PartitionId, Trouble>,
    wakers: Vec<Waker>,
    in_flight: BTreeMap<PartitionId, u32>,
}

impl Control {
    pub(crate) fn set(&self, partition: PartitionId, trouble: Option<Trouble>) {
        let mut inner = self.inner.lock().unwrap();
        match trouble {
            Some(trouble) => drop(inner.troubles.insert(partition, trouble)),
            None => drop(inner.troubles.remove(&partition)),
        }
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn clear(&self) {
        let mut inner = self.inner.lock().unwrap();
        inner.troubles.clear();
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What the next apply should do; counts it.
    fn next(&self, partition: PartitionId) -> Option<Trouble> {
        let mut inner = self.inner.lock().unwrap();
        let trouble = *inner.troubles.get(&partition)?;
        let left = match trouble {
            Trouble::Frozen => return Some(trouble),
            Trouble::Fails(left) | Trouble::Panics(left) => left,
        };
        match (left, trouble) {
            (0 | 1, _) => drop(inner.troubles.remove(&partition)),
            (_, Trouble::Fails(_)) => drop(inner.troubles.insert(partition, Trouble::Fails(left - 1))),
            _ => drop(inner.troubles.insert(partition, Trouble::Panics(left - 1))),
        }
        (left > 0).then_some(trouble)
    }
}

/// Keeps keys and values, and lets the records below a snapshot go.
pub(crate) const FORGETFUL: MachineKind = MachineKind::Custom(200);

/// Makes the built-in machines, under the control of a test. Those of even partitions are immediate.
#[derive(Debug, Clone, Default)]
pub(crate) struct ControlledMachines(pub(crate) Control);

impl MachineFactory for ControlledMachines {
    fn make(&self, partition: PartitionId, kind: MachineKind) -> Box<dyn PartitionStateMachine> {
        let inner: Box<dyn PartitionStateMachine> = match kind {
            MachineKind::Log => Box::new(LogMachine),
            MachineKind::Kv | MachineKind::Custom(_) => Box::new(KvMachine::default()),
        };
        let keeps_rows = kind != FORGETFUL;
        Box::new(Controlled { partition, inner, keeps_rows, control: self.0.clone() })
    }
}

struct Controlled {
    partition: PartitionId,
    inner: Box<dyn PartitionStateMachine>,
    keeps_rows: bool,
    control: Control,
}

/// APPLY-1: entering twice at once is a failed test.
struct InFlight<'a>(&'a Control, PartitionId);

impl<'a> InFlight<'a> {
    fn enter(control: &'a Control, partition: PartitionId) -> Self {
        let mut inner = control.inner.lock().unwrap();
        let count = inner.in_flight.entry(partition).or_default();
        *count += 1;
        assert_eq!(*count, 1, "APPLY-1: two applies in flight of partition {partition}");
        Self(control, partition)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        *self.0.inner.lock().unwrap().in_flight.entry(self.1).or_default() -= 1;
    }
}

impl PartitionStateMachine for Controlled {
    fn apply<'a>(&'a mut self, record: &'a AcceptedRecord) -> Applying<'a> {
        let Self { partition, inner, control, .. } = self;
        let control: &Control = control;
        if partition.0.is_multiple_of(2) {
            return match control.next(*partition) {
                None => inner.apply(record),
                Some(Trouble::Panics(_)) => panic!("a panic that the test asked for"),
                Some(_) => Applying::Done(Err(MachineError { reason: "the test said so".to_owned() })),
            };
        }
        let flight = InFlight::enter(control, *partition);
        Applying::Later(Box::pin(async move {
            let _flight = flight;
            let trouble = std::future::poll_fn(|context| match control.next(*partition) {
                Some(Trouble::Frozen) => {
                    control.inner.lock().unwrap().wakers.push(context.waker().clone());
                    Poll::Pending
                }
                other => Poll::Ready(other),
            })
            .await;
            match trouble {
                Some(Trouble::Panics(_)) => panic!("a panic that the test asked for"),
                Some(_) => return Err(MachineError { reason: "the test said so".to_owned() }),
                None => {}
            }
            match inner.apply(record) {
                Applying::Done(outcome) => outcome,
                Applying::Later(later) => later.await,
            }
        }))
    }

    fn is_immediate(&self) -> bool {
        self.partition.0.is_multiple_of(2)
    }

    fn is_stateless(&self) -> bool {
        self.inner.is_stateless()
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.inner.snapshot()
    }

    fn restore(&mut self, state: &[Bytes]) -> Result<(), MachineError> {
        self.inner.restore(state)
    }

    fn state_hash(&self) -> u64 {
        self.inner.state_hash()
    }

    fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.inner.get(key)
    }

    fn scan(&self) -> Vec<(Bytes, Bytes)> {
        self.inner.scan()
    }

    fn keeps_rows(&self) -> bool {
        self.keeps_rows
    }

    fn must_agree(&self) -> bool {
        self.inner.must_agree()
    }
}
