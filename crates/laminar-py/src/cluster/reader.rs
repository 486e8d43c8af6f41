//! Rows on their way to Python, batch by batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use laminar_client::{RowReader, ScanReader};
use laminar_rpc::Failure;
use pyo3::prelude::*;
use pyo3_arrow::{PyRecordBatch, PySchema};

use super::of_process::Owned;
use super::runtime::block_on;
use crate::errors::invalid;

/// What rows come from.
pub(crate) enum Source {
    Rows(Box<RowReader>),
    Scan(ScanReader),
}

impl Source {
    fn schema(&self) -> SchemaRef {
        match self {
            Source::Rows(reader) => reader.schema(),
            Source::Scan(reader) => reader.schema(),
        }
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, Failure> {
        match self {
            Source::Rows(reader) => reader.next().await,
            Source::Scan(reader) => reader.next().await,
        }
    }
}

/// Rows of a stream, batch by batch.
#[pyclass(frozen, module = "laminar._native")]
pub(crate) struct Reader {
    schema: SchemaRef,
    /// None while a call uses it, and after its end. The lock is never kept without the GIL.
    source: Mutex<Option<Owned<Source>>>,
    /// A call that waits looks at it whenever it looks for signals. A flag has no lock that a forked child could find taken.
    closed: AtomicBool,
}

impl Reader {
    pub(crate) fn new(source: Source) -> Self {
        Reader {
            schema: source.schema(),
            source: Mutex::new(Some(Owned::new(source))),
            closed: AtomicBool::new(false),
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn source(&self) -> std::sync::MutexGuard<'_, Option<Owned<Source>>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Reader {
    /// The columns of the batches.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PySchema::new(self.schema.clone()).into_pyarrow(py)
    }

    /// The next batch; ``None`` at the end, and once it is closed, also by another thread meanwhile.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.is_closed() {
            return Ok(None);
        }
        let taken = self.source().take();
        let Some(taken) = taken else {
            return Err(invalid(
                "the reader is in use by another thread, failed, or was interrupted; read again".to_owned(),
            ));
        };
        let Some(mut source) = taken.into_inner() else {
            return Err(invalid(
                "a reader belongs to the process that made it; read again in this one".to_owned(),
            ));
        };
        // Interrupted, it is dropped: what was on its way is lost to it.
        let read = block_on(py, async move {
            let batch = {
                let mut next = std::pin::pin!(source.next());
                let until_closed = std::future::poll_fn(|context| match self.is_closed() {
                    true => Poll::Ready(Ok(None)),
                    false => next.as_mut().poll(context),
                });
                until_closed.await?
            };
            Ok((source, batch))
        });
        let (source, batch) = read?;
        if !self.is_closed() {
            *self.source() = Some(Owned::new(source));
        }
        batch.map(|batch| PyRecordBatch::new(batch).into_pyarrow(py)).transpose()
    }

    /// Let go of the node; reading is over, also for a thread that waits for rows.
    fn close(&self) {
        // ORDER: relaxed; nothing else is told by it.
        self.closed.store(true, Ordering::Relaxed);
        drop(self.source().take());
    }
}
