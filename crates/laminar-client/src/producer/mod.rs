//! The idempotent lane of one handle: one request in flight, everything that waits goes with the next.
//!
//! `queue.rs` holds what waits and chooses what goes together, `send.rs` sends it, `fate.rs` decides what a failure means
//! for those who wait.

mod fate;
mod queue;
mod send;

pub(crate) use fate::is_stream_changed;
pub(crate) use send::check_places;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use laminar_rpc::{ErrorClass, Failure};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use self::queue::{Item, Progress, Step};
use crate::appended::Appended;
use crate::ownership::Ownership;
use crate::session::{Limit, Session, lock};
use crate::staging::Carried;

/// How long a caller still waits for the lane's answer when its time is over: the lane's names the cause.
const GRACE: Duration = Duration::from_millis(50);

/// Appends of one handle in one process.
pub(crate) struct Lane {
    session: Arc<Session>,
    stream_id: u64,
    /// Whose epochs the appends come under; none: the node's.
    ownership: Option<Arc<Ownership>>,
    process: u32,
    state: Mutex<State>,
    arrived: Notify,
    appends: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    inline_bytes_max: AtomicUsize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Item>,
    driven: bool,
    /// The producer's id and its last sequence that landed.
    producer: Option<(u64, u64)>,
}

impl Lane {
    pub(crate) fn new(session: Arc<Session>, stream_id: u64, ownership: Option<Arc<Ownership>>) -> Arc<Self> {
        let config = session.config();
        let appends = Arc::new(Semaphore::new(config.queued_appends_max.clamp(1, Semaphore::MAX_PERMITS)));
        let bytes = Arc::new(Semaphore::new(config.queued_bytes_max.clamp(1, u32::MAX as usize)));
        Arc::new(Lane {
            session,
            stream_id,
            ownership,
            process: std::process::id(),
            state: Mutex::default(),
            arrived: Notify::new(),
            appends,
            bytes,
            inline_bytes_max: AtomicUsize::new(0),
        })
    }

    /// Whether it was made in this process: a forked child must not use its parent's producer.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Sends rows, together with those of others. Dropping the future gives them up if they were not sent yet.
    pub(crate) async fn append(
        self: &Arc<Self>,
        carried: Vec<Carried>,
        partition_count: u32,
        inline_bytes_max: u64,
        limit: Limit,
    ) -> Result<Appended, Failure> {
        let inline = usize::try_from(inline_bytes_max).unwrap_or(usize::MAX);
        self.inline_bytes_max.store(inline, Ordering::Relaxed);
        let bytes = carried.iter().map(Carried::inline_bytes).sum();
        let room = self.room(bytes, limit).await?;
        let (reply, answer) = oneshot::channel();
        let progress = Arc::new(Progress::default());
        let caller = Caller(progress.clone());
        let driver = self.enqueue(Item {
            carried,
            partition_count,
            limit,
            not_before: None,
            progress,
            reply,
            _room: room,
        });
        match tokio::time::timeout_at(limit.deadline + GRACE, Led { driver, answer }).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Failure::unavailable("append given up, the client is being closed").unknown()),
            Err(_) => Err(self.late(&caller.0.abandon(), limit)),
        }
    }

    /// Waits until there is room for so many bytes.
    async fn room(&self, bytes: usize, limit: Limit) -> Result<[OwnedSemaphorePermit; 2], Failure> {
        let config = self.session.config();
        let bytes_max = config.queued_bytes_max.clamp(1, u32::MAX as usize);
        let wanted = u32::try_from(bytes.clamp(1, bytes_max)).unwrap_or(u32::MAX);
        let full = |value: usize, most: usize, what: &str, key: &str| {
            let waited = limit.began.elapsed().as_secs_f64();
            let message = format!(
                "append not sent, {value} of {most} {what} of this handle still wait after {waited:.1} s ({key}); send \
                 less, or raise it"
            );
            let (value, most) = (value as u64, most as u64);
            Failure::new(ErrorClass::Backpressure, message)
                .with("value", value)
                .with("limit", most)
                .with("retry_after_ms", 10_u64)
        };
        let appends = tokio::time::timeout_at(limit.deadline, self.appends.clone().acquire_owned());
        let appends = appends.await.ok().and_then(Result::ok).ok_or_else(|| {
            full(config.queued_appends_max, config.queued_appends_max, "appends", "queued_appends_max")
        })?;
        let held = tokio::time::timeout_at(limit.deadline, self.bytes.clone().acquire_many_owned(wanted));
        let held = held.await.ok().and_then(Result::ok).ok_or_else(|| {
            let waiting = bytes_max.saturating_sub(self.bytes.available_permits());
            full(waiting, bytes_max, "bytes", "queued_bytes_max")
        })?;
        Ok([appends, held])
    }

    /// Puts an append behind others. Whoever finds the lane idle drives it.
    fn enqueue(self: &Arc<Self>, item: Item) -> Option<Driver> {
        let driven = {
            let mut state = lock(&self.state);
            state.waiting.push_back(item);
            std::mem::replace(&mut state.driven, true)
        };
        if driven {
            self.arrived.notify_one();
            return None;
        }
        Some(Box::pin(send::drive(self.clone())))
    }

    /// The time of a caller is over.
    fn late(&self, step: &Step, limit: Limit) -> Failure {
        let waited = limit.began.elapsed().as_secs_f64();
        match step {
            Step::Parked(failure) => failure.clone(),
            Step::Sent => {
                let place = self.session.describe();
                let message =
                    format!("append to {place} was not answered within {waited:.1} s; it may have landed");
                Failure::unavailable(message).with("address", place).unknown()
            }
            Step::Queued | Step::Abandoned => Failure::unavailable(format!(
                "append not sent, others of this handle were before it for {waited:.1} s; nothing of it landed"
            )),
        }
    }
}

/// Sends what waits in a lane, until nothing does.
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A caller's answer, and the lane if it drives it: alone it needs nobody else. Whatever others have in the lane when it goes
/// is left to a task.
struct Led<A> {
    driver: Option<Driver>,
    answer: A,
}

impl<A: Future + Unpin> Future for Led<A> {
    type Output = A::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<A::Output> {
        if self.driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready()) {
            self.driver = None;
        }
        Pin::new(&mut self.answer).poll(context)
    }
}

impl<A> Drop for Led<A> {
    fn drop(&mut self) {
        // Outside of a runtime nobody can go on: those who wait are told when the driver is dropped.
        if let (Some(driver), Ok(runtime)) = (self.driver.take(), Handle::try_current()) {
            runtime.spawn(driver);
        }
    }
}

/// A caller that waits. When it goes, an append that was not sent yet is given up.
struct Caller(Arc<Progress>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
