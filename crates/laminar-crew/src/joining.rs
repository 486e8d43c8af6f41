//! Tasks that can be waited for.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_task::FallibleTask;
use futures_util::FutureExt;

use crate::{crew, turn};

/// Starts a task of the crew that this thread runs a task of; of tokio, if it runs none.
pub fn spawn<F>(future: F) -> Joining<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Joining(match turn::current() {
        Some(shared) => Task::Crew(Some(crew::spawn(&shared, AssertUnwindSafe(future).catch_unwind()))),
        None => Task::Tokio(tokio::spawn(future)),
    })
}

/// A task that can be waited for. Dropping it lets the task run on its own.
#[derive(Debug)]
pub struct Joining<T>(Task<T>);

#[derive(Debug)]
enum Task<T> {
    Crew(Option<FallibleTask<std::thread::Result<T>>>),
    Tokio(tokio::task::JoinHandle<T>),
}

/// Why a task has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotJoined {
    /// It panicked.
    #[error("the task panicked")]
    Panicked,
    /// Its crew or its runtime ended before it did.
    #[error("the task was ended with its runtime")]
    Ended,
}

impl<T> Future for Joining<T> {
    type Output = Result<T, NotJoined>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match &mut self.0 {
            Task::Crew(Some(task)) => match ready!(task.poll_unpin(context)) {
                Some(Ok(done)) => Ok(done),
                Some(Err(_)) => Err(NotJoined::Panicked),
                None => Err(NotJoined::Ended),
            },
            Task::Crew(None) => Err(NotJoined::Ended),
            Task::Tokio(task) => match ready!(task.poll_unpin(context)) {
                Ok(done) => Ok(done),
                Err(error) if error.is_panic() => Err(NotJoined::Panicked),
                Err(_) => Err(NotJoined::Ended),
            },
        })
    }
}

impl<T> Drop for Joining<T> {
    fn drop(&mut self) {
        if let Task::Crew(task) = &mut self.0
            && let Some(task) = task.take()
        {
            task.detach();
        }
    }
}
