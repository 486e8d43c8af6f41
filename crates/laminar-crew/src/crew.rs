//! The queue of tasks, and the keeper who runs them when nobody else does.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use async_task::{FallibleTask, Runnable};

use crate::turn::{self, Turn};

/// The keeper runs so many tasks before tokio may run something else.
const KEEPER_TASKS_MAX: usize = 64;

/// Those who run the tasks of a process. Clones are the same crew, and its tasks end with the last of them.
#[derive(Clone)]
pub struct Crew {
    pub(crate) shared: Arc<Shared>,
    _handles: Arc<Handles>,
}

#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Whether what its tasks spawn is tokio's.
    pub(crate) is_apart: bool,
}

#[derive(Default)]
pub(crate) struct State {
    /// Tasks that can go on, in the order in which they were woken.
    ready: VecDeque<Runnable>,
    /// Threads that run tasks, each of which looks at the queue again before it stops.
    pub(crate) turns: usize,
    keeper: Option<Waker>,
    /// Every task that has not ended, to end it with the crew.
    tasks: BTreeMap<u64, Waker>,
    last_task: u64,
    /// Nothing is run any more.
    pub(crate) closed: bool,
}

impl Crew {
    /// A crew whose keeper runs on the tokio runtime that this is called in. It ends with that runtime too.
    pub fn new() -> Self {
        let shared: Arc<Shared> = Arc::default();
        // Tasks count on going on in one poll of the keeper; tokio's own budget would end them after a hundred steps.
        drop(tokio::spawn(tokio::task::unconstrained(Keeper { shared: Arc::clone(&shared) })));
        Self::of(shared)
    }

    /// A crew for tasks that wait for each other, such as those of a connection: as one task of tokio they wake no thread
    /// for that. What they spawn is not theirs, and they never have a turn to give back.
    pub fn apart() -> Self {
        let shared = Arc::new(Shared { is_apart: true, ..Shared::default() });
        drop(tokio::spawn(Keeper { shared: Arc::clone(&shared) }));
        Self::of(shared)
    }

    fn of(shared: Arc<Shared>) -> Self {
        let handles = Arc::new(Handles(Arc::clone(&shared)));
        Self { shared, _handles: handles }
    }

    /// Polls `future` as a task of this crew is: what it spawns with [`spawn`](crate::spawn) belongs to the crew.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let (shared, mut future) = (Arc::clone(&self.shared), Box::pin(future));
        std::future::poll_fn(move |context| {
            turn::as_current(&shared, false, || future.as_mut().poll(context))
        })
    }

    /// The right to run tasks on this thread, unless another thread has it. The thread must be in the context of the
    /// runtime that the crew is of.
    pub fn take_turn(&self) -> Option<Turn> {
        let mut state = self.shared.state();
        let free = state.turns == 0 && !state.closed;
        state.turns += usize::from(free);
        free.then(|| Turn::new(Arc::clone(&self.shared)))
    }

    /// Starts a task of this crew that nobody waits for.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        spawn(&self.shared, future).detach();
    }
}

impl Default for Crew {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        f.debug_struct("Crew").field("ready", &state.ready.len()).field("tasks", &state.tasks.len()).finish()
    }
}

pub(crate) fn spawn<F>(shared: &Arc<Shared>, future: F) -> FallibleTask<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut state = shared.state();
    state.last_task += 1;
    let number = state.last_task;
    let end = End { shared: Arc::downgrade(shared), number };
    let of = Arc::downgrade(shared);
    let future = async move {
        let _end = end;
        future.await
    };
    let (task, joining) = async_task::spawn(future, move |task| schedule(&of, task));
    state.tasks.insert(number, task.waker());
    drop(state);
    task.schedule();
    joining.fallible()
}

/// Puts a task into the queue that can go on.
fn schedule(shared: &Weak<Shared>, task: Runnable) {
    // Dropping a task ends it.
    let Some(shared) = shared.upgrade() else { return };
    let mut state = shared.state();
    if state.closed {
        drop(state);
        return drop(task);
    }
    state.ready.push_back(task);
    // What the disk was waited for is told from the thread that waited, and it comes back to the queue at once.
    let keeper = if turn::is_aside(&shared) { None } else { state.keeper_if_needed() };
    drop(state);
    if let Some(keeper) = keeper {
        keeper.wake();
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that is held under the lock can be left half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the task that has waited longest; false if none can go on.
    pub(crate) fn run_one(&self) -> bool {
        let Some(task) = self.state().ready.pop_front() else { return false };
        // A task that panics has told so, and whoever joins it learns of it; the others go on.
        drop(catch_unwind(AssertUnwindSafe(|| task.run())));
        true
    }

    pub(crate) fn give_turn_back(&self) {
        let mut state = self.state();
        state.turns -= 1;
        let keeper = state.keeper_if_needed();
        drop(state);
        if let Some(keeper) = keeper {
            keeper.wake();
        }
    }

    /// Ends all tasks: what waits is dropped now, and what runs when it next waits.
    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let (ready, tasks) = (std::mem::take(&mut state.ready), std::mem::take(&mut state.tasks));
        let keeper = state.keeper.take();
        drop(state);
        drop(ready);
        // A task that is woken is scheduled, and one that is scheduled in a closed crew is dropped.
        tasks.into_values().chain(keeper).for_each(Waker::wake);
    }
}

impl State {
    /// Whom to wake, if there is something to do and nobody who looks.
    fn keeper_if_needed(&self) -> Option<Waker> {
        if self.turns > 0 || self.ready.is_empty() { None } else { self.keeper.clone() }
    }
}

/// Takes a task off the list when it ends, however it does.
struct End {
    shared: Weak<Shared>,
    number: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let ended = shared.state().tasks.remove(&self.number);
            // Without the lock: it may be the last of its task.
            drop(ended);
        }
    }
}

/// The handles of a crew. With the last of them it ends.
struct Handles(Arc<Shared>);

impl Drop for Handles {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Runs tasks when nobody else does.
struct Keeper {
    shared: Arc<Shared>,
}

impl Future for Keeper {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.shared.state();
            if state.closed {
                return Poll::Ready(());
            }
            if !state.keeper.as_ref().is_some_and(|keeper| keeper.will_wake(context.waker())) {
                state.keeper = Some(context.waker().clone());
            }
            // Whoever has the turn wakes the keeper if it leaves anything.
            if state.turns > 0 {
                return Poll::Pending;
            }
            state.turns += 1;
        }
        // If there is more to do, giving the turn back wakes the keeper again.
        Turn::new(Arc::clone(&self.shared)).run_some(KEEPER_TASKS_MAX);
        Poll::Pending
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.close();
    }
}
