//! At each file call of a long script it fails, in each way, or the power does; then the log is reopened and compared
//! with the model.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use laminar_aof::fs::Fault;
use laminar_aof::{Durability, FileOperation};

use crate::model::{Run, Step};

/// Fills several segments, and truncates, closes and recycles between.
fn script() -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..3 {
        for _ in 0..5 {
            steps.extend([Step::Append(vec![40, 15_000, 40]), Step::Append(vec![40]), Step::Commit]);
        }
        steps.extend([Step::Sync, Step::Idle, Step::Back(200), Step::Append(vec![40, 40]), Step::Commit]);
        steps.extend([Step::Sync, Step::Front(150), Step::Commit, Step::Append(vec![700]), Step::Idle]);
        if round == 1 {
            steps.extend([Step::Close, Step::Append(vec![40]), Step::Reset(9), Step::Commit]);
        }
    }
    steps
}

/// Runs the script, and cuts the power at one call: what was not synced survives by the bits of `survivors`.
fn run_with_power_cut(durability: Durability, at: u64, survivors: u64) {
    let mut run = Run::new(durability);
    run.check_reads = false;
    run.survivors = survivors;
    let power_out = Arc::clone(&run.power_out);
    run.fs.on_call(move |call| {
        (call.number >= at).then(|| {
            power_out.store(true, Ordering::SeqCst);
            Fault::Fail(io::ErrorKind::Other)
        })
    });
    finish(run, at);
}

/// Runs the script with one fault. Returns how many calls it made.
fn run_with(durability: Durability, at: u64, fault: Option<Fault>) -> u64 {
    let mut run = Run::new(durability);
    run.check_reads = fault.is_none();
    run.fs.on_call(move |call| match &fault {
        Some(Fault::Tear(..)) if call.number == at && call.operation != FileOperation::Write => {
            Some(Fault::Fail(io::ErrorKind::Other))
        }
        fault => fault.clone().filter(|_| call.number == at),
    });
    finish(run, at)
}

fn finish(mut run: Run, at: u64) -> u64 {
    for step in script() {
        run.apply(&step);
    }
    let calls = run.fs.calls();
    run.fs.heal();
    run.reopen();
    run.apply(&Step::Append(vec![40]));
    run.apply(&Step::Sync);
    run.apply(&Step::Commit);
    assert!(run.asked.is_empty() && run.acknowledged == run.now, "call {at}: the log works again");
    calls
}

#[test]
fn the_power_fails_at_every_call_and_nothing_acknowledged_is_lost() {
    for durability in [Durability::Synced, Durability::Background] {
        for at in 0..run_with(durability, 0, None) {
            for survivors in [0, u64::MAX, 0x9E37_79B9_7F4A_7C15 ^ at] {
                run_with_power_cut(durability, at, survivors);
            }
        }
    }
}

#[test]
fn every_call_fails_once_and_nothing_acknowledged_is_lost() {
    for durability in [Durability::Synced, Durability::Background] {
        let calls = run_with(durability, 0, None);
        assert!(calls > 150, "the script makes {calls} calls");
        for at in 0..calls {
            for fault in [
                Fault::Fail(io::ErrorKind::Other),
                Fault::Tear(70, io::ErrorKind::Other),
                Fault::Tear(4100, io::ErrorKind::StorageFull),
            ] {
                run_with(durability, at, Some(fault));
            }
        }
    }
}
