//! Each file call of a long script fails once, in each way; then the log is reopened and compared with the model.

#![allow(clippy::unwrap_used)]

mod model;

use std::io;

use laminar_aof::fs::Fault;
use laminar_aof::{Durability, FileOperation};
use model::{Run, Step};

/// Fills several segments, and truncates, closes and recycles between.
fn script() -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..3 {
        for _ in 0..14 {
            steps.extend([Step::Append(vec![40, 4900, 40]), Step::Append(vec![40]), Step::Commit]);
        }
        steps.extend([Step::Sync, Step::Idle, Step::Back(200), Step::Append(vec![40, 40]), Step::Commit]);
        steps.extend([Step::Sync, Step::Front(150), Step::Commit, Step::Append(vec![700]), Step::Idle]);
        if round == 1 {
            steps.extend([Step::Close, Step::Append(vec![40]), Step::Reset(9), Step::Commit]);
        }
    }
    steps
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
fn every_call_fails_once_and_nothing_acknowledged_is_lost() {
    for durability in [Durability::Synced, Durability::Background] {
        let calls = run_with(durability, 0, None);
        assert!(calls > 200, "the script makes {calls} calls");
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
