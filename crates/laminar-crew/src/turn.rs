//! The right to run tasks, and what a thread knows of the crew whose task it runs.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use crate::crew::Shared;

/// Whoever has an answer still runs so many of the tasks that are left: they take less time than waking the keeper.
const LEFT_TASKS_MAX: usize = 16;

thread_local! {
    /// The crew whose task runs on this thread.
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

#[derive(Clone)]
struct Current {
    shared: Arc<Shared>,
    /// Whether this thread has the turn, and so comes back to the queue.
    has_turn: bool,
    /// Whether the task waits for the disk, and has given the turn back meanwhile.
    is_aside: bool,
}

/// The right of one thread to run tasks. Others run none meanwhile, except while a task waits for the disk.
pub struct Turn {
    shared: Arc<Shared>,
}

impl Turn {
    /// A turn that was counted.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Runs tasks until none can go on, or `done` says that there is no need to.
    pub fn run_until(&self, done: impl Fn() -> bool) {
        let run = || while !done() && self.shared.run_one() {};
        if self.shared.is_apart { run() } else { as_current(&self.shared, true, run) }
    }

    /// Gives the turn back, after running a few of the tasks that are left.
    pub fn finish(self) {
        self.run_some(LEFT_TASKS_MAX);
    }

    pub(crate) fn run_some(&self, most: usize) {
        let ran = Cell::new(0);
        self.run_until(|| ran.replace(ran.get() + 1) == most);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.give_turn_back();
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turn")
    }
}

/// Runs `work`, which waits for the disk. If a task of a crew does it, others of the crew go on meanwhile.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let Some(current) = CURRENT.with_borrow(Clone::clone).filter(|current| current.has_turn) else {
        return work();
    };
    current.shared.give_turn_back();
    let _back = TakeBack(Arc::clone(&current.shared));
    let _before = Restore(CURRENT.replace(Some(Current { is_aside: true, ..current })));
    work()
}

/// Whether a task of a crew runs on this thread.
pub fn is_in_crew() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Whether a task of this crew waits for the disk on this thread, which then comes back to the queue.
pub(crate) fn is_aside(shared: &Arc<Shared>) -> bool {
    CURRENT.with_borrow(|current| {
        current.as_ref().is_some_and(|current| current.is_aside && Arc::ptr_eq(&current.shared, shared))
    })
}

/// The crew whose task runs on this thread.
pub(crate) fn current() -> Option<Arc<Shared>> {
    CURRENT.with_borrow(|current| current.as_ref().map(|current| Arc::clone(&current.shared)))
}

/// Runs something as a task of the crew.
pub(crate) fn as_current<T>(shared: &Arc<Shared>, has_turn: bool, run: impl FnOnce() -> T) -> T {
    let current = Current { shared: Arc::clone(shared), has_turn, is_aside: false };
    let _before = Restore(CURRENT.replace(Some(current)));
    run()
}

struct Restore(Option<Current>);

impl Drop for Restore {
    fn drop(&mut self) {
        drop(CURRENT.replace(self.0.take()));
    }
}

/// Takes a turn again that was given back for a while. There may be two then, until one has nothing left to do.
struct TakeBack(Arc<Shared>);

impl Drop for TakeBack {
    fn drop(&mut self) {
        self.0.state().turns += 1;
    }
}
