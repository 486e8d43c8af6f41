//! The life of nodes in this process: ended with the interpreter, or run as all that the process does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use laminar_node::embedded::{run_detached, stop_all};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::machines::PythonMachines;
use super::runtime::{SIGNALS_INTERVAL, existing_runtime, interpreter_ends, runtime};
use super::settings;
use crate::args;
use crate::errors::of_failure;

/// How long the end of the interpreter waits for nodes to end.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// Makes the end of the interpreter end the nodes of this process, and keep threads that are in a call out of it.
pub(crate) fn stop_at_exit(py: Python<'_>) -> PyResult<()> {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::SeqCst) {
        py.import("atexit")?.call_method1("register", (wrap_pyfunction!(stop_nodes, py)?,))?;
    }
    Ok(())
}

#[pyfunction]
fn stop_nodes(py: Python<'_>) {
    interpreter_ends();
    if let Some(runtime) = existing_runtime() {
        py.detach(|| runtime.block_on(async { drop(tokio::time::timeout(STOP_WAIT, stop_all()).await) }));
    }
}

/// Be the node of a folder until no client has needed it for a while, or ``stop`` says so.
///
/// ``stop`` is called some twenty times a second, from when the node answers. Returns ``False`` at once if another
/// process is the node.
#[pyfunction]
#[pyo3(signature = (path, *, machines, settings, linger, stop))]
pub(crate) fn run_node(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    machines: BTreeMap<String, Py<PyAny>>,
    settings: &Bound<'_, PyDict>,
    linger: Option<&Bound<'_, PyAny>>,
    stop: Py<PyAny>,
) -> PyResult<bool> {
    let path = args::path(path, "path")?;
    let mut config = settings::config(settings)?;
    if let Some(linger) = linger {
        config.client_timeout = args::seconds(linger, "linger")?;
    }
    let runtime = runtime(py)?;
    config.crew = Some(runtime.crew.clone());
    let machines = Arc::new(PythonMachines { classes: machines });
    let asked = Arc::new(std::sync::Mutex::new(Ok(())));
    let told = Arc::clone(&asked);
    let done = py.detach(|| {
        let stop_asked = async move {
            loop {
                let stopped = Python::attach(|py| {
                    py.check_signals()?;
                    stop.call0(py)?.is_truthy(py)
                });
                match stopped {
                    Ok(false) => tokio::time::sleep(SIGNALS_INTERVAL).await,
                    Ok(true) => return,
                    Err(raised) => {
                        *told.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Err(raised);
                        return;
                    }
                }
            }
        };
        runtime.tokio.block_on(run_detached(&path, config, machines, stop_asked))
    });
    let was_the_node = done.map_err(|failure| of_failure(&failure))?;
    std::mem::replace(&mut *asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner), Ok(()))?;
    Ok(was_the_node)
}
