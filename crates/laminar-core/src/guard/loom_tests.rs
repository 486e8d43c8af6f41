//! Every order in which two threads can run through a guard, explored by loom. Run by `make loom`.

use loom::sync::Arc;
use loom::thread;

use super::PartitionGuard;
use super::observation::Poison;
use super::page::{Slot, SlotState};
use crate::error::EpochError;
use crate::ids::{Epoch, NodeId, PartitionId};

fn epoch(value: u64) -> Epoch {
    Epoch::new(value).expect("tests use epochs above 0")
}

fn guard(held: u64) -> PartitionGuard {
    PartitionGuard::new(PartitionId(0), epoch(held), NodeId(1)).expect("node 1 is a node")
}

/// EPOCH-3: whatever arrives in whatever order, a reader that saw the guard fail never sees it pass again.
#[test]
fn guard_never_comes_back_under_concurrent_observations() {
    loom::model(|| {
        let guard = Arc::new(guard(5));
        let newer = thread::spawn({
            let guard = Arc::clone(&guard);
            move || guard.advance(epoch(7))
        });
        let older_then_poison = thread::spawn({
            let guard = Arc::clone(&guard);
            move || {
                guard.advance(epoch(6));
                guard.end_by(Poison::Vanished);
            }
        });
        let first = guard.check();
        let second = guard.check();
        assert!(!(first.is_err() && second.is_ok()), "stale, then fresh again");
        newer.join().expect("no panic");
        older_then_poison.join().expect("no panic");
        assert!(
            matches!(guard.seen(), Err(Poison::Vanished)) || guard.seen() == Ok(epoch(7)),
            "{:?}",
            guard.seen()
        );
    });
}

/// Whoever sees a poisoned guard sees the reason, too.
#[test]
fn poisoned_guard_always_has_its_reason() {
    loom::model(|| {
        let guard = Arc::new(guard(5));
        let poisoner = thread::spawn({
            let guard = Arc::clone(&guard);
            move || guard.end_by(Poison::Vanished)
        });
        if let Err(error) = guard.check() {
            assert_eq!(error, EpochError::UnknownPartition { partition: PartitionId(0) });
        }
        poisoner.join().expect("no panic");
    });
}

/// A guard that is stale when it is put in is stale from the first moment a reader can see it.
#[test]
fn slot_never_shows_a_stale_guard_as_fresh_while_it_is_put_in() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let writer = thread::spawn({
            let slot = Arc::clone(&slot);
            move || slot.put(epoch(9), Ok(epoch(12)))
        });
        assert!(!slot.is_fresh());
        writer.join().expect("no panic");
        assert_eq!(slot.read(), SlotState::Stale { held: epoch(9), seen: epoch(12) });
    });
}

/// A reader never mixes two guards: stale ones that replace each other in a slot are never found fresh.
#[test]
fn slot_never_mixes_two_stale_guards_into_a_fresh_one() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        slot.put(epoch(9), Ok(epoch(12)));
        let writer = thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                slot.take();
                slot.put(epoch(3), Ok(epoch(7)));
            }
        });
        assert!(!slot.is_fresh());
        writer.join().expect("no panic");
        assert_eq!(slot.read(), SlotState::Stale { held: epoch(3), seen: epoch(12) });
    });
}

/// While a fresh guard is replaced by a later fresh one, a reader finds one or the other: there is no moment at which
/// the partition looks lost, and the end of the first is never reported against the second.
#[test]
fn slot_reader_sees_no_staleness_while_a_guard_is_renewed() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        slot.put(epoch(5), Ok(epoch(5)));
        let writer = thread::spawn({
            let slot = Arc::clone(&slot);
            move || slot.put(epoch(6), Ok(epoch(6)))
        });
        assert_eq!(slot.read(), SlotState::Fresh);
        writer.join().expect("no panic");
        assert!(slot.is_fresh());
    });
}

/// EPOCH-3 in a set: a refresh that ends a guard is never undone by an older one that runs behind it.
#[test]
fn slot_stays_stale_once_seen_stale() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        slot.put(epoch(5), Ok(epoch(5)));
        let writer = thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                slot.raise(epoch(7));
                slot.raise(epoch(6));
                slot.poison(Poison::OwnedByOther);
            }
        });
        let first = slot.is_fresh();
        let second = slot.is_fresh();
        assert!(first || !second, "stale, then fresh again");
        writer.join().expect("no panic");
        assert_eq!(slot.read(), SlotState::Stale { held: epoch(5), seen: epoch(7) });
    });
}
