//! Work on files that no append waits for: the next segment, early syncs, trailers, removal.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::log::Log;
use crate::segment::{Segment, SegmentExtent};

/// Something to do, in order; but for the first two, once what it depends on is synced.
#[derive(Debug)]
pub(crate) enum Job {
    /// Make the next segment ready, with zeros written to all of it if it is `filled`.
    Prepare { capacity: u64, filled: bool },
    /// Sync what was written of a segment so far.
    Flush { segment: Arc<Segment> },
    /// Write index and trailer of a segment that is left behind, when the log began at `start`.
    Seal { segment: Arc<Segment>, extent: SegmentExtent, start: u64 },
    /// Remove the file of a segment, or keep it to be used again.
    Remove { segment: Arc<Segment> },
}

/// The queue of such work. Each log adds at most a few jobs a segment, so the segments bound it.
#[derive(Default)]
pub(crate) struct Housekeeper {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Arc<Log>, Job)>,
    /// The log that is being worked on.
    busy: Option<u64>,
    stopped: bool,
}

impl Housekeeper {
    pub(crate) fn submit(&self, log: &Arc<Log>, jobs: &mut Vec<Job>) {
        let mut queue = self.queue();
        if !jobs.is_empty() && !queue.stopped {
            queue.jobs.extend(jobs.drain(..).map(|job| (Arc::clone(log), job)));
            self.changed.notify_all();
        }
    }

    /// Works until it is stopped.
    pub(crate) fn run(&self) {
        while let Some((log, job)) = self.wait_for_job() {
            log.do_job(job);
            self.done();
        }
    }

    /// Does everything there is to do, and returns whether there was anything.
    pub(crate) fn run_ready(&self) -> bool {
        let mut any = false;
        loop {
            let mut queue = self.queue();
            let Some((log, job)) = queue.jobs.pop_front() else { return any };
            queue.busy = Some(log.uid);
            drop(queue);
            log.do_job(job);
            self.done();
            any = true;
        }
    }

    fn wait_for_job(&self) -> Option<(Arc<Log>, Job)> {
        let idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.stopped;
        let mut queue = self.changed.wait_while(self.queue(), idle).unwrap_or_else(PoisonError::into_inner);
        let next = queue.jobs.pop_front()?;
        queue.busy = Some(next.0.uid);
        Some(next)
    }

    fn done(&self) {
        self.queue().busy = None;
        self.changed.notify_all();
    }

    /// Drops what is to be done for a log, and waits for what is being done.
    pub(crate) fn forget(&self, log: u64) {
        let mut queue = self.queue();
        queue.jobs.retain(|(other, _)| other.uid != log);
        drop(self.changed.wait_while(queue, |queue| queue.busy == Some(log)));
    }

    pub(crate) fn stop(&self) {
        self.queue().stopped = true;
        self.changed.notify_all();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
