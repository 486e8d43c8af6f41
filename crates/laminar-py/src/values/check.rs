//! What the dataclasses call when they are made, so that a wrong value is reported where it was written.

use pyo3::prelude::*;

use super::{affinity_hint, anti_affinity_group, constraints, node_info, topology_change};
use crate::errors::to_py;

#[pyfunction]
#[pyo3(signature = (node, /))]
pub(crate) fn check_node_info(node: &Bound<'_, PyAny>) -> PyResult<()> {
    node_info(node).map(drop)
}

#[pyfunction]
#[pyo3(signature = (group, /))]
pub(crate) fn check_anti_affinity_group(group: &Bound<'_, PyAny>) -> PyResult<()> {
    anti_affinity_group(group).map(drop)
}

#[pyfunction]
#[pyo3(signature = (hint, /))]
pub(crate) fn check_affinity_hint(hint: &Bound<'_, PyAny>) -> PyResult<()> {
    affinity_hint(hint)?.check().map_err(to_py)
}

#[pyfunction]
#[pyo3(signature = (constraints_, /))]
pub(crate) fn check_constraints(constraints_: &Bound<'_, PyAny>) -> PyResult<()> {
    constraints(Some(constraints_)).map(drop)
}

#[pyfunction]
#[pyo3(signature = (change, /))]
pub(crate) fn check_topology_change(change: &Bound<'_, PyAny>) -> PyResult<()> {
    topology_change(change).map(drop)
}
