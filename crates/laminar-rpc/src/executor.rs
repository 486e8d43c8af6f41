//! Who runs the tasks of a connection.

use std::future::Future;

use hyper::rt::Executor;
use laminar_crew::Crew;

/// Has the tasks of a connection run by a crew.
#[derive(Debug, Clone)]
pub struct CrewExecutor(pub Crew);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for CrewExecutor {
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}
