//! The answer to an entry.

use laminar_core::metadata::{MetadataResponse as Response, Minted, Rejection};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::args;
use crate::errors::to_py;

/// The answer to an entry: applied, or rejected with the reason. A rejection is returned, never raised.
#[pyclass(frozen, module = "laminar")]
pub(crate) struct MetadataResponse {
    pub(crate) response: Response,
}

#[pymethods]
impl MetadataResponse {
    /// True if the entry took effect.
    #[getter]
    fn applied(&self) -> bool {
        self.response.is_applied()
    }

    /// The same as ``applied``.
    #[getter]
    fn success(&self) -> bool {
        self.applied()
    }

    /// Why nothing took effect, in a word: ``"stale_epoch"``, ``"not_owner"``, ``"unknown_partition"`` or others.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.response.rejection().map(Rejection::code)
    }

    /// Why nothing took effect, for people.
    #[getter]
    fn message(&self) -> Option<String> {
        self.response.rejection().map(ToString::to_string)
    }

    /// The first answer, if the reason is ``"duplicate_request"``.
    #[getter]
    fn first(&self) -> Option<MetadataResponse> {
        match self.response.rejection() {
            Some(Rejection::DuplicateRequest { first }) => {
                Some(MetadataResponse { response: (**first).clone() })
            }
            _ => None,
        }
    }

    /// The ids of all nodes that a batch registered.
    #[getter]
    fn node_ids(&self) -> Vec<u64> {
        let minted = self.response.minted().iter();
        minted
            .filter_map(|minted| if let Minted::Node(node) = minted { Some(node.0) } else { None })
            .collect()
    }

    /// The id of the node that registered.
    #[getter]
    fn node_id(&self) -> Option<u64> {
        self.node_ids().first().copied()
    }

    /// The ids of all streams that a batch created.
    #[getter]
    fn stream_ids(&self) -> Vec<u64> {
        let minted = self.response.minted().iter();
        minted
            .filter_map(
                |minted| {
                    if let Minted::Stream { stream_id, .. } = minted { Some(stream_id.0) } else { None }
                },
            )
            .collect()
    }

    /// The id of the stream that was created.
    #[getter]
    fn stream_id(&self) -> Option<u64> {
        self.stream_ids().first().copied()
    }

    /// The ids of the partitions that were created with streams or added to them.
    #[getter]
    fn partition_ids(&self) -> Vec<u32> {
        let minted = self.response.minted().iter();
        minted
            .filter_map(|minted| match minted {
                Minted::Stream { partitions, .. } | Minted::Partitions(partitions) => Some(partitions),
                Minted::Node(_) => None,
            })
            .flat_map(|partitions| partitions.iter())
            .map(|partition| partition.0)
            .collect()
    }

    /// The answer as bytes.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.response.encode())
    }

    /// The answer that ``encode`` wrote.
    #[staticmethod]
    fn decode(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let response = Response::decode(&args::bytes(data, "response")?).map_err(to_py)?;
        Ok(Self { response })
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| self.response == other.get().response)
    }

    fn __hash__(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.response.encode())
    }

    fn __repr__(&self) -> String {
        match self.response.rejection() {
            None => "MetadataResponse <applied>".to_owned(),
            Some(rejection) => format!("MetadataResponse <rejected, {}: {rejection}>", rejection.code()),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let decode = slf.get_type().getattr("decode")?;
        Ok((decode, (slf.get().encode(slf.py()),)).into_pyobject(slf.py())?.into_any())
    }
}
