//! Opening: what the folder holds, and what must be mended before anything is reported.

use std::sync::Arc;

use crate::aof::Opened;
use crate::committer::Shared;
use crate::config::AofConfig;
use crate::error::AofError;
use crate::fs::Folder;
use crate::housekeeping::Job;
use crate::log::Log;
use crate::read::SegmentReader;
use crate::recover::recover;
use crate::scan::Boundary;

pub(crate) fn open_log(
    shared: &Arc<Shared>,
    folder: Folder,
    config: AofConfig,
    writable: bool,
) -> Result<(Arc<Log>, Opened), AofError> {
    config.check()?;
    shared.register(&folder.dir)?;
    let opened = open_registered(shared, &folder, config, writable);
    if opened.is_err() {
        shared.deregister(&folder.dir);
    }
    opened
}

fn open_registered(
    shared: &Arc<Shared>,
    folder: &Folder,
    config: AofConfig,
    writable: bool,
) -> Result<(Arc<Log>, Opened), AofError> {
    if writable {
        folder.make()?;
    }
    let mut recovered = recover(folder, &config)?;
    let mut opened = Opened {
        sequences: recovered.start..recovered.end,
        cut: recovered.cut,
        records_verified: recovered.records_verified,
        records_rewritten: 0,
    };
    let leftovers = std::mem::take(&mut recovered.leftovers);
    let unsynced = recovered.unsynced;
    if !writable {
        return Ok((Log::new(shared, folder.clone(), 0, config, false, recovered), opened));
    }
    let device = folder.device()?;
    let log = Log::new(shared, folder.clone(), device, config, true, recovered);
    match mend(&log, unsynced, &leftovers) {
        Ok(rewritten) => opened.records_rewritten = rewritten,
        Err(error) => {
            log.release();
            return Err(error);
        }
    }
    Ok((log, opened))
}

/// Makes what was found durable, and removes what is not needed.
fn mend(log: &Arc<Log>, unsynced: Option<Boundary>, leftovers: &[String]) -> Result<u64, AofError> {
    let rewritten = unsynced.map_or(Ok(0), |unsynced| rewrite(log, unsynced))?;
    for name in leftovers {
        log.folder.remove(name)?;
    }
    seal_older(log);
    Ok(rewritten)
}

/// Writes everything from `unsynced` on into a new segment and syncs it: what reads well in the page cache may never
/// have reached the disk, and after a failed sync never will (LOG-6).
fn rewrite(log: &Arc<Log>, unsynced: Boundary) -> Result<u64, AofError> {
    let (start, last) = {
        let state = log.state();
        (state.start, state.ranges.last().cloned().expect("it has an unsynced tail"))
    };
    let first = unsynced.sequence.max(start);
    let (end, bytes) = (last.end, last.extent.data_end - unsynced.offset);
    let tail = if first < end {
        Some(SegmentReader::new(log, last, first, end, log.config.read_chunk_bytes)?)
    } else {
        None
    };
    log.writer().rewrite(log, first, tail, bytes)
}

/// Gives trailers to the segments before the last that have none, so that the next opening need not read them.
fn seal_older(log: &Arc<Log>) {
    let state = log.state();
    let older = state.ranges.len().saturating_sub(1);
    let unsealed = state.ranges[..older].iter().filter(|range| !range.sealed);
    let mut jobs: Vec<Job> = unsealed
        .map(|range| Job::Seal {
            segment: Arc::clone(&range.segment),
            extent: range.extent,
            start: state.start,
        })
        .collect();
    drop(state);
    log.submit_jobs(&mut jobs);
}
