//! Opening: replays the operations that the files hold.

use std::path::Path;
use std::sync::{Arc, Mutex};

use laminar_aof::{Aof, Committer, Durability};

use super::format::{Operation, decode};
use super::types::{SegmentedLogConfig, StoreOpened};
use super::{Inner, SegmentedLogStore, State, follows};
use crate::error::LogError;
use crate::format::FormatError;
use crate::log_id::LogId;

pub(super) fn open(
    committer: &Committer,
    dir: &Path,
    mut config: SegmentedLogConfig,
    writable: bool,
) -> Result<(SegmentedLogStore, StoreOpened), LogError> {
    config.files.durability = Durability::Synced;
    let open = if writable { Aof::open } else { Aof::open_read_only };
    let (aof, opened) = open(committer, dir, config.files.clone())?;
    let mut state = State::new(&config);
    let mut reader = aof.reader(opened.sequences.start);
    while let Some(record) = reader.next()? {
        let bad = |source| LogError::BadRecord { sequence: record.sequence, source };
        let operation = decode(&record.payload).map_err(bad)?;
        replay(&mut state, operation, record.sequence).map_err(bad)?;
    }
    let inner = Inner { state: Mutex::new(state), aof, config };
    let store = SegmentedLogStore { inner: Arc::new(inner) };
    let opened = StoreOpened {
        state: store.state(),
        cut: opened.cut,
        records_read: opened.sequences.end - opened.sequences.start,
        records_rewritten: opened.records_rewritten,
    };
    Ok((store, opened))
}

/// Does once more what was done then. What could not have been done then is not what was written.
fn replay(state: &mut State, operation: Operation, sequence: u64) -> Result<(), FormatError> {
    match operation {
        Operation::Entry { entry, committed } => {
            if !follows(state.last(), entry.id) {
                return Err(out_of_place("log entry", entry.id));
            }
            state.push(entry, sequence);
            state.committed = committed.or(state.committed);
        }
        Operation::Vote(vote) => state.vote = Some(vote),
        Operation::Committed(committed) => state.committed = committed,
        Operation::Truncate(after) => {
            if after < state.purged.map(|purged| purged.index.0) {
                return Err(out_of_place("truncation", LogId::new(0, after.unwrap_or(0))));
            }
            state.truncate(after);
        }
        Operation::State(written) => {
            state.vote = written.vote;
            state.committed = written.committed;
            match written.purged {
                Some(purged) if state.purged.is_none_or(|before| before.index < purged.index) => {
                    state.purge(purged);
                }
                Some(purged) => return Err(out_of_place("state", purged)),
                None => return Err(out_of_place("state", LogId::default())),
            }
        }
    }
    Ok(())
}

fn out_of_place(what: &'static str, id: LogId) -> FormatError {
    FormatError::Value { what, at: 0, found: id.index.0 }
}
