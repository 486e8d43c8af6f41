//! Files in memory: who writes them, and how they fail.

use std::io;
use std::sync::Arc;

use laminar_aof::fs::{Fault, MemoryFileSystem};
use laminar_aof::{Committer, CommitterConfig, FileOperation};
use proptest::prelude::*;

/// A committer without threads: the test decides what is written when.
pub(crate) fn manual(fs: &MemoryFileSystem) -> Committer {
    Committer::manual(CommitterConfig::default(), Arc::new(fs.clone())).unwrap()
}

/// Chance of a seed.
pub(crate) fn xorshift(seed: u64) -> impl FnMut() -> u64 {
    let mut bits = seed | 1;
    move || {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        bits
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FaultKind {
    Error,
    Full,
    Tear(u16),
}

pub(crate) fn faults() -> impl Strategy<Value = FaultKind> {
    prop_oneof![Just(FaultKind::Error), Just(FaultKind::Full), (0..6000_u16).prop_map(FaultKind::Tear)]
}

/// The call with this number from now on fails, of those that write.
pub(crate) fn fail_call(fs: &MemoryFileSystem, call: u8, kind: FaultKind) {
    let mut left = call;
    fs.on_call(move |call| {
        // The test itself reads after each step.
        let reads = [FileOperation::Read, FileOperation::Open, FileOperation::Length];
        if reads.contains(&call.operation) || left == u8::MAX {
            return None;
        }
        let now = left == 0;
        left = left.wrapping_sub(1);
        now.then_some(match kind {
            FaultKind::Full => Fault::Fail(io::ErrorKind::StorageFull),
            FaultKind::Tear(bytes) if call.operation == FileOperation::Write => {
                Fault::Tear(usize::from(bytes), io::ErrorKind::Other)
            }
            FaultKind::Error | FaultKind::Tear(_) => Fault::Fail(io::ErrorKind::Other),
        })
    });
}
