//! A runtime without threads and with a clock of its own: the same seed gives the same schedule.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use laminar_log::Runtime;
use laminar_log::machine::BoxFuture;

#[derive(Clone)]
pub(crate) struct TestRuntime {
    inner: Arc<Mutex<Inner>>,
}

impl std::fmt::Debug for TestRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestRuntime")
    }
}

#[derive(Default)]
struct Inner {
    tasks: BTreeMap<u64, BoxFuture<'static, ()>>,
    ready: BTreeSet<u64>,
    sleepers: BTreeMap<(Duration, u64), Waker>,
    now: Duration,
    next: u64,
    random: u64,
}

impl Inner {
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

struct TaskWaker {
    id: u64,
    runtime: TestRuntime,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.runtime.inner.lock().unwrap().ready.insert(self.id);
    }
}

struct Sleep {
    runtime: TestRuntime,
    until: Duration,
    key: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let runtime = self.runtime.clone();
        let mut inner = runtime.inner.lock().unwrap();
        if inner.now >= self.until {
            return Poll::Ready(());
        }
        let key = *self.key.get_or_insert_with(|| {
            inner.next += 1;
            inner.next
        });
        inner.sleepers.insert((self.until, key), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.runtime.inner.lock().unwrap().sleepers.remove(&(self.until, key));
        }
    }
}

impl Runtime for TestRuntime {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut inner = self.inner.lock().unwrap();
        inner.next += 1;
        let id = inner.next;
        inner.tasks.insert(id, task);
        inner.ready.insert(id);
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        let until = self.now() + time;
        Box::pin(Sleep { runtime: self.clone(), until, key: None })
    }

    fn now(&self) -> Duration {
        self.inner.lock().unwrap().now
    }
}

impl TestRuntime {
    pub(crate) fn new(seed: u64) -> Self {
        Self { inner: Arc::new(Mutex::new(Inner { random: seed | 1, ..Inner::default() })) }
    }

    /// Runs one task that can run, chosen by chance; false if none can.
    pub(crate) fn step(&self) -> bool {
        let mut inner = self.inner.lock().unwrap();
        if inner.ready.is_empty() {
            return false;
        }
        let at = (inner.random() % inner.ready.len() as u64) as usize;
        let id = *inner.ready.iter().nth(at).unwrap();
        inner.ready.remove(&id);
        let Some(mut task) = inner.tasks.remove(&id) else { return true };
        drop(inner);
        let waker = Waker::from(Arc::new(TaskWaker { id, runtime: self.clone() }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.inner.lock().unwrap().tasks.insert(id, task);
        }
        true
    }

    /// Runs everything that can run now.
    pub(crate) fn run(&self) {
        while self.step() {}
    }

    /// Lets time pass, and runs what is due.
    pub(crate) fn run_for(&self, time: Duration) {
        let end = self.now() + time;
        self.run();
        loop {
            let mut inner = self.inner.lock().unwrap();
            let Some(((at, _), _)) = inner.sleepers.first_key_value().filter(|((at, _), _)| *at <= end)
            else {
                inner.now = end;
                return;
            };
            let at = *at;
            inner.now = at;
            let later = inner.sleepers.split_off(&(at + Duration::from_nanos(1), 0));
            let due = std::mem::replace(&mut inner.sleepers, later);
            drop(inner);
            due.into_values().for_each(Waker::wake);
            self.run();
        }
    }

    /// Ends all tasks, as a crash does.
    pub(crate) fn kill(&self) {
        let tasks = std::mem::take(&mut self.inner.lock().unwrap().tasks);
        drop(tasks);
    }

    /// Runs a future to its end, letting time pass where it must.
    pub(crate) fn block_on<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let slot = Arc::new(Mutex::new(None));
        let out = Arc::clone(&slot);
        self.spawn(Box::pin(async move {
            let value = future.await;
            *out.lock().unwrap() = Some(value);
        }));
        let mut waited = Duration::ZERO;
        loop {
            self.run();
            if let Some(value) = slot.lock().unwrap().take() {
                return value;
            }
            assert!(waited < Duration::from_secs(600), "nothing more happens, and the future is not ready");
            let step = Duration::from_millis(5);
            self.run_for(step);
            waited += step;
        }
    }
}
