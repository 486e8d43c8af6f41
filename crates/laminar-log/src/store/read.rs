//! Reading entries: from memory, or from the stretches of the files that hold them.

use std::ops::Range;
use std::sync::PoisonError;

use laminar_aof::AofError;

use super::format::{Operation, decode};
use super::index::Run;
use super::types::LogEntry;
use super::{Inner, State};
use crate::error::LogError;
use crate::format::FormatError;

pub(super) fn read(inner: &Inner, range: Range<u64>, bytes_max: u64) -> Result<Vec<LogEntry>, LogError> {
    loop {
        let state = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = read_cached(&state, range.clone(), bytes_max) {
            return Ok(entries);
        }
        let there = state.index.range();
        let runs = state.index.runs(clamp(&range, &there));
        drop(state);
        match read_runs(inner, runs, bytes_max) {
            // Purged while they were read: what is left is read anew. The front only moves on, so this ends.
            Err(LogError::Files(AofError::OutOfRange { .. })) if moved_on(inner, &there) => {}
            Err(LogError::Files(AofError::OutOfRange { sequence, .. })) => return Err(gone(inner, sequence)),
            outcome => return outcome,
        }
    }
}

/// What memory has; none if the files must be asked.
pub(super) fn read_cached(state: &State, range: Range<u64>, bytes_max: u64) -> Option<Vec<LogEntry>> {
    let wanted = clamp(&range, &state.index.range());
    if wanted.is_empty() {
        return Some(Vec::new());
    }
    state.tail.read(wanted, bytes_max)
}

fn clamp(range: &Range<u64>, there: &Range<u64>) -> Range<u64> {
    range.start.max(there.start)..range.end.min(there.end)
}

/// A log that has failed does not have what it had not written.
fn gone(inner: &Inner, sequence: u64) -> LogError {
    let there = inner.aof.sequences();
    let out_of_range = AofError::OutOfRange { sequence, first: there.start, end: there.end };
    LogError::Files(inner.aof.failure().unwrap_or(out_of_range))
}

fn moved_on(inner: &Inner, there: &Range<u64>) -> bool {
    let state = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
    state.index.first() != Some(there.start)
}

fn read_runs(inner: &Inner, runs: Vec<Run>, bytes_max: u64) -> Result<Vec<LogEntry>, LogError> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for run in runs {
        if bytes >= bytes_max.max(1) {
            break;
        }
        let mut reader = inner.aof.reader(run.sequence);
        for n in 0..run.count {
            if bytes >= bytes_max.max(1) {
                break;
            }
            let sequence = run.sequence + n;
            let Some(record) = reader.next()? else { return Err(gone(inner, sequence)) };
            let entry = match decode(&record.payload) {
                Ok(Operation::Entry { entry, .. }) => entry,
                Ok(_) => return Err(misplaced(sequence, 0)),
                Err(source) => return Err(LogError::BadRecord { sequence, source }),
            };
            if (entry.id.index.0, entry.id.term) != (run.first + n, run.term) {
                return Err(misplaced(sequence, entry.id.index.0));
            }
            bytes += entry.payload_bytes();
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// The files have something else at this place than was put there.
fn misplaced(sequence: u64, found: u64) -> LogError {
    LogError::BadRecord { sequence, source: FormatError::Value { what: "log entry", at: 0, found } }
}
