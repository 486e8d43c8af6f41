//! Plans.

use laminar_core::assign::{AssignmentPlan as Plan, PartitionMove};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use crate::args;
use crate::errors::invalid;
use crate::values::{class, make};

const MODULE: &str = "laminar.assignment";

// What Python reads of it is built when it is first asked for, and kept; the caller gets a copy.
/// Who should own what, which partitions move for it, and what could not be had.
#[pyclass(frozen, module = "laminar")]
pub(crate) struct AssignmentPlan {
    pub(crate) plan: Plan,
    assignments: PyOnceLock<Py<PyDict>>,
    moves: PyOnceLock<Py<PyList>>,
    stats: PyOnceLock<Py<PyAny>>,
}

impl AssignmentPlan {
    pub(crate) fn new(plan: Plan) -> Self {
        Self { plan, assignments: PyOnceLock::new(), moves: PyOnceLock::new(), stats: PyOnceLock::new() }
    }
}

fn move_fields(moved: &PartitionMove) -> (u32, u64, u64, u64, u64) {
    let (from, to) = (moved.from_node.0, moved.to_node.0);
    (moved.partition_id.0, from, to, moved.old_epoch.get(), moved.new_epoch.get())
}

#[pymethods]
impl AssignmentPlan {
    /// ``{partition: (node, epoch)}``, ready to be the ``current`` of the next rebalance.
    #[getter]
    fn assignments(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let build = || {
            let assignment = class(py, MODULE, "PartitionAssignment")?;
            let by_partition = PyDict::new(py);
            for (partition, assigned) in &self.plan.assignments {
                let value = assignment.call1((partition.0, assigned.node_id.0, assigned.epoch.get()))?;
                by_partition.set_item(partition.0, value)?;
            }
            PyResult::Ok(by_partition.unbind())
        };
        self.assignments.get_or_try_init(py, build)?.bind(py).copy().map(Bound::unbind)
    }

    /// The partitions that change their owner.
    #[getter]
    fn moves(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        let build = || {
            let partition_move = class(py, MODULE, "PartitionMove")?;
            let moves = PyList::empty(py);
            for moved in &self.plan.moves {
                moves.append(partition_move.call1(move_fields(moved))?)?;
            }
            PyResult::Ok(moves.unbind())
        };
        let moves = self.moves.get_or_try_init(py, build)?.bind(py);
        Ok(moves.get_slice(0, moves.len()).unbind())
    }

    /// The plan in numbers, with the violations.
    #[getter]
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let build = || {
            let stats = &self.plan.stats;
            let distribution = PyDict::new(py);
            for (node, count) in &stats.distribution {
                distribution.set_item(node.0, count)?;
            }
            let fields = (
                stats.total_partitions,
                stats.partitions_moved,
                distribution,
                stats.failure_domains_used,
                stats.constraints_satisfied,
                stats.violations.clone(),
            );
            make(py, MODULE, "AssignmentStats", fields)
        };
        self.stats.get_or_try_init(py, build).map(|stats| stats.clone_ref(py))
    }

    /// The plan as JSON.
    fn to_json(&self, py: Python<'_>) -> String {
        py.detach(|| self.plan.to_json())
    }

    /// The plan that ``to_json`` wrote.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &Bound<'_, PyAny>) -> PyResult<Self> {
        let text = args::text(text, "plan")?;
        let plan = py.detach(|| Plan::from_json(&text));
        plan.map(Self::new).map_err(|error| invalid(format!("plan is not a plan in JSON: {error}")))
    }

    /// The plan as JSON would have it, in Python's types.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (self.to_json(py),))
    }

    /// One row a partition: its node and epoch, and from where and when it moves, if it does.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let pyarrow = py.import("pyarrow")?;
        let column = |values: Bound<'py, PyList>, kind: &str| {
            pyarrow.call_method1("array", (values, pyarrow.call_method0(kind)?))
        };
        let assigned = self.plan.assignments.values();
        let moved: std::collections::BTreeMap<_, _> =
            self.plan.moves.iter().map(|moved| (moved.partition_id, moved)).collect();
        let before = || self.plan.assignments.keys().map(|partition| moved.get(partition));
        let columns = PyDict::new(py);
        let list = |values: Vec<Option<u64>>| PyList::new(py, values);
        let all = |values: Vec<u64>| PyList::new(py, values);
        columns.set_item(
            "partition_id",
            column(all(assigned.clone().map(|a| a.partition_id.0.into()).collect())?, "uint32")?,
        )?;
        columns
            .set_item("node_id", column(all(assigned.clone().map(|a| a.node_id.0).collect())?, "uint64")?)?;
        columns.set_item("epoch", column(all(assigned.map(|a| a.epoch.get()).collect())?, "uint64")?)?;
        columns.set_item(
            "from_node",
            column(list(before().map(|m| m.map(|m| m.from_node.0)).collect())?, "uint64")?,
        )?;
        columns.set_item(
            "old_epoch",
            column(list(before().map(|m| m.map(|m| m.old_epoch.get())).collect())?, "uint64")?,
        )?;
        pyarrow.call_method1("table", (columns,))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| self.plan == other.get().plan)
    }

    fn __hash__(&self) -> u64 {
        let totals =
            u64::from(self.plan.stats.total_partitions) << 32 | u64::from(self.plan.stats.partitions_moved);
        self.plan.assignments.values().fold(totals, |hash, assigned| {
            hash.wrapping_mul(31)
                .wrapping_add(assigned.node_id.0)
                .wrapping_mul(31)
                .wrapping_add(assigned.epoch.get())
        })
    }

    fn __repr__(&self) -> String {
        let stats = &self.plan.stats;
        format!(
            "AssignmentPlan <{} partitions on {} nodes, {} moves, {} violations>",
            stats.total_partitions,
            stats.distribution.len(),
            stats.partitions_moved,
            stats.violations.len()
        )
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let rebuild = slf.get_type().getattr("from_json")?;
        Ok((rebuild, (slf.get().to_json(slf.py()),)).into_pyobject(slf.py())?.into_any())
    }
}
