//! The logs of a folder, looked at.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use laminar_aof::fs::{FileSystem, RealFileSystem};
use laminar_log::inspect::{InspectError, Progress, inspect, verify};
use pyo3::prelude::*;
use serde::Serialize;

use crate::args;
use crate::errors::{Raised, to_py};

/// What the logs in a folder hold, as JSON: a replica's, or that of one log. Nothing is changed.
///
/// ``progress`` is called with the bytes read so far and about how many there are, some ten times a second.
#[pyfunction]
#[pyo3(signature = (path, progress = None))]
pub(crate) fn inspect_log(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    look(py, path, progress, inspect)
}

/// Reads every record of every log and every snapshot in a folder, and returns what was found, as JSON.
///
/// A bad place is part of it: ``first_error``. Nothing is changed. ``progress`` is called as by ``inspect_log``.
#[pyfunction]
#[pyo3(signature = (path, progress = None))]
pub(crate) fn verify_log(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    look(py, path, progress, verify)
}

fn look<T: Serialize + Send>(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(Arc<dyn FileSystem>, &Path, Option<Progress>) -> Result<T, InspectError> + Send,
) -> PyResult<String> {
    let path = args::path(path, "path")?;
    let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
    let slot = Arc::clone(&raised);
    // Whether Ctrl-C was pressed is looked at also if nobody wants to know how far it is.
    let told: Progress = Arc::new(move |done, total| {
        let outcome = Python::attach(|py| {
            py.check_signals()?;
            progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done, total)).map(drop))
        });
        let stop = outcome.err();
        let goes_on = stop.is_none();
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = stop;
        goes_on
    });
    let fs: Arc<dyn FileSystem> = Arc::new(RealFileSystem::default());
    // The one thing that it shares with others is the beginning of its clock: that must not be half made in a fork.
    fs.now();
    // Not a section that a fork waits for: it may take minutes, and takes the GIL on its way. Its locks are its own.
    let outcome = py.detach(|| work(fs, &path, Some(told)));
    if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    let report = outcome.map_err(|error| to_py(Raised::from(error)))?;
    Ok(serde_json::to_string(&report).expect("a report has nothing that JSON cannot say"))
}
