//! openraft on a crew: its tasks are the crew's, its timers and most channels are tokio's.

use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

use laminar_crew::{Crew, Joining, NotJoined};
use openraft::{AsyncRuntime, OptionalSend};
use openraft_rt_tokio::{TokioInstant, TokioMpsc, TokioMutex, TokioOneshot, TokioRuntime};

use crate::watch::CrewWatch;

/// openraft's runtime whose tasks belong to the crew that they are spawned in: in a task of it, or in [`Crew::scope`].
/// Elsewhere it is tokio.
pub struct CrewRuntime {
    tokio: TokioRuntime,
}

impl fmt::Debug for CrewRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CrewRuntime")
    }
}

impl AsyncRuntime for CrewRuntime {
    type JoinError = NotJoined;
    type JoinHandle<T: OptionalSend + 'static> = Joining<T>;
    type Sleep = tokio::time::Sleep;
    type Instant = TokioInstant;
    type TimeoutError = tokio::time::error::Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = tokio::time::Timeout<T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = TokioMpsc;
    type Watch = CrewWatch;
    type Oneshot = TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = TokioMutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        laminar_crew::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        *error == NotJoined::Panicked
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        TokioRuntime::thread_rng()
    }

    /// On tokio's threads for such work; the default would start a thread for each.
    async fn spawn_blocking<F, T>(work: F) -> io::Result<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
    }

    fn new(threads: usize) -> Self {
        Self { tokio: TokioRuntime::new(threads) }
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.tokio.block_on(async move {
            let crew = Crew::new();
            crew.scope(future).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openraft_runs_on_a_crew() {
        openraft_rt::testing::Suite::<CrewRuntime>::test_all();
    }
}
