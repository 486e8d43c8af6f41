//! Threads that wait for their calls.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use tokio::time::Instant;

use crate::Turn;
use crate::line::{Line, Place};

/// How long a caller that is alone stays awake.
const AWAKE_MAX: Duration = Duration::from_micros(500);
/// A yield that took longer gave the core to another thread.
const YIELDED: Duration = Duration::from_micros(10);

/// The calls of a process that wait. Whoever comes back from one needs a lock that the others need too: Python's.
#[derive(Debug, Default)]
pub struct Callers {
    count: AtomicUsize,
    line: Line,
}

impl Callers {
    /// A call of this thread, which gives the lock back.
    pub fn enter(&'static self) -> Caller {
        self.line.set_locked(false);
        // ORDER: relaxed; it decides who does the work, never whether it is done.
        self.count.fetch_add(1, Ordering::Relaxed);
        let thread = std::thread::current();
        let parked = Parked { callers: self, thread, woken: AtomicBool::new(false), place: Mutex::default() };
        Caller(Arc::new(parked))
    }

    /// Whether a caller is the only one.
    pub fn is_one(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 1
    }
}

/// A thread in a call, until it has the lock again.
#[derive(Debug)]
pub struct Caller(Arc<Parked>);

impl Caller {
    /// What wakes it.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    /// Returns when it is woken, or at a time. Runs what the call waits for, if it is this thread's turn.
    pub fn wait(&self, turn: Option<Turn>, until: Instant) -> Option<Turn> {
        self.0.callers.line.step_ahead(&self.0);
        self.0.wait(turn, until)
    }

    /// The call is over, and the lock is taken next. Waits a moment for whoever has it.
    pub fn before_lock(&self) {
        self.0.callers.line.wait_for_lock();
    }

    /// The lock is taken: there is a way for the next one.
    pub fn with_lock(self) {
        self.0.callers.line.set_locked(true);
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.callers.line.leave(&self.0);
        self.0.callers.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread that waits for its call. It parks by itself: a timer of the runtime would wake a worker for each call.
#[derive(Debug)]
pub(crate) struct Parked {
    callers: &'static Callers,
    thread: Thread,
    woken: AtomicBool,
    place: Mutex<Place>,
}

impl Parked {
    /// Where it is in the line.
    pub(crate) fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets it look at its call.
    pub(crate) fn call(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }

    fn wait(&self, turn: Option<Turn>, until: Instant) -> Option<Turn> {
        // ORDER: acquire, with the release of `call`: whoever sees it finds what the call was woken for.
        if let Some(turn) = &turn {
            // There may be no end to what others want of the node, and Ctrl-C must not wait for it.
            turn.run_until(|| self.woken.load(Ordering::Acquire) || Instant::now() >= until);
        }
        if self.woken.swap(false, Ordering::Acquire) {
            return turn;
        }
        // The others must not wait for a thread that waits.
        drop(turn);
        if !self.stay_awake() {
            std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
            self.woken.store(false, Ordering::Release);
        }
        None
    }

    /// Waits a moment without going to sleep, if it is alone: waking a core that has gone to sleep takes as long as a fast disk
    /// takes to sync. Whether it was woken.
    fn stay_awake(&self) -> bool {
        let began = Instant::now();
        let mut woken = false;
        let mut looked = began;
        while !woken && self.callers.is_one() && looked.duration_since(began) < AWAKE_MAX {
            std::thread::yield_now();
            woken = self.woken.swap(false, Ordering::Acquire);
            let now = Instant::now();
            // Somebody else had the core meanwhile, and has more to do on it than to wait.
            if now.duration_since(looked) > YIELDED {
                break;
            }
            looked = now;
        }
        woken
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.callers.line.join(self);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::line::COMING_MAX;

    fn callers() -> &'static Callers {
        Box::leak(Box::default())
    }

    fn places(callers: &[Caller]) -> Vec<Place> {
        callers.iter().map(|caller| *caller.0.place()).collect()
    }

    fn woken(callers: &'static Callers, count: usize) -> Vec<Caller> {
        let entered: Vec<Caller> = (0..count).map(|_| callers.enter()).collect();
        entered.iter().for_each(|caller| caller.waker().wake());
        entered
    }

    #[test]
    fn a_few_are_called_and_each_calls_the_next_in_order() {
        let mut line = woken(callers(), COMING_MAX + 2);
        let first = line.remove(0);
        assert_eq!(places(&line)[COMING_MAX - 1..], [Place::Queued, Place::Queued]);
        first.with_lock();
        assert_eq!(places(&line)[COMING_MAX - 1..], [Place::Called, Place::Queued]);
        line.drain(..COMING_MAX).for_each(Caller::with_lock);
        assert_eq!(places(&line), [Place::Called]);
    }

    #[test]
    fn whoever_is_woken_late_takes_nobodys_place() {
        let callers = callers();
        let gone: Vec<Waker> = woken(callers, 2 * COMING_MAX).iter().map(Caller::waker).collect();
        gone.iter().for_each(Waker::wake_by_ref);
        assert_eq!(places(&woken(callers, COMING_MAX)), [Place::Called; COMING_MAX]);
    }

    #[test]
    fn one_that_leaves_before_it_is_called_is_passed_over() {
        let mut line = woken(callers(), COMING_MAX + 2);
        drop(line.remove(COMING_MAX));
        drop(line.remove(0));
        assert_eq!(places(&line), [Place::Called; COMING_MAX]);
    }

    #[test]
    fn one_that_was_called_too_early_lets_the_next_pass_and_does_not_queue_again() {
        let line = woken(callers(), COMING_MAX + 1);
        assert_eq!(*line[COMING_MAX].0.place(), Place::Queued);
        assert!(line[0].wait(None, Instant::now() + Duration::from_secs(60)).is_none(), "it was woken");
        assert_eq!(*line[0].0.place(), Place::Ahead);
        assert_eq!(*line[COMING_MAX].0.place(), Place::Called);
        line[0].waker().wake();
        assert!(line[0].0.woken.load(Ordering::Acquire));
    }

    #[test]
    fn one_that_queues_when_it_begins_to_wait_is_still_called() {
        let mut line = woken(callers(), COMING_MAX + 1);
        let queued = line.pop().unwrap();
        queued.wait(None, Instant::now());
        assert_eq!(*queued.0.place(), Place::Queued);
        line.remove(0).with_lock();
        assert_eq!(*queued.0.place(), Place::Called);
        assert!(queued.0.woken.load(Ordering::Acquire));
    }

    #[test]
    fn everybody_comes_back() {
        const THREADS: usize = 32;
        const CALLS: usize = 500;
        // A caller that nobody calls comes back after this.
        const LOST: Duration = Duration::from_secs(60);
        let (callers, lock) = (callers(), &Mutex::new(()));
        let (calls, called) = mpsc::channel::<(Waker, Arc<AtomicBool>)>();
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(move || {
                while let Ok(first) = called.recv() {
                    for (waker, answered) in [first].into_iter().chain(called.try_iter()) {
                        answered.store(true, Ordering::Release);
                        waker.wake_by_ref();
                        // A future may be woken more often than it has something to say, also when it is over.
                        waker.wake();
                    }
                }
            });
            for _ in 0..THREADS {
                let calls = calls.clone();
                scope.spawn(move || {
                    for _ in 0..CALLS {
                        let caller = callers.enter();
                        let answered = Arc::new(AtomicBool::new(false));
                        calls.send((caller.waker(), Arc::clone(&answered))).unwrap();
                        while !answered.load(Ordering::Acquire) {
                            caller.wait(None, Instant::now() + LOST);
                        }
                        caller.before_lock();
                        let _locked = lock.lock();
                        caller.with_lock();
                    }
                });
            }
            drop(calls);
        });
        assert!(began.elapsed() < LOST, "a caller was not called");
        assert_eq!(callers.count.load(Ordering::Relaxed), 0);
        assert!(callers.line.is_empty());
    }
}
