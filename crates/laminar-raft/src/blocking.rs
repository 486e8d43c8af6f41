//! Work that waits for files, off the threads that serve everybody where there are others.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use openraft::AsyncRuntime;

/// Runs `work` where it may block. The simulated runtime has no other threads: there it runs here. It must not spawn
/// tasks, because it may run outside of the runtime.
pub(crate) async fn blocking<R, T, F>(work: F) -> io::Result<T>
where
    R: AsyncRuntime,
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let work = Arc::new(Mutex::new(Some(work)));
    let there = Arc::clone(&work);
    let run = move || {
        let work = there.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.map(|work| work())
    };
    match R::spawn_blocking(run).await {
        Ok(Some(done)) => Ok(done),
        Ok(None) => Err(io::Error::other("the work was done twice")),
        Err(error) => {
            let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
            match work.filter(|_| error.kind() == io::ErrorKind::Unsupported) {
                Some(work) => Ok(work()),
                None => Err(error),
            }
        }
    }
}
