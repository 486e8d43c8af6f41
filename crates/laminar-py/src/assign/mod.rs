//! The assigner and its ring.

pub(crate) mod plan;

use std::collections::{BTreeMap, BTreeSet};

use laminar_core::assign::{
    ConsistentHashAssigner as Assigner, HashRing as Ring, PartitionAssigner, VIRTUAL_NODES_PER_CORE,
    hash_partition,
};
use laminar_core::ids::OwnerEpoch;
use laminar_core::node::NodeInfo;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::args;
use crate::errors::to_py;
use crate::values;
use plan::AssignmentPlan;

fn assigner(virtual_nodes_per_core: Option<&Bound<'_, PyAny>>) -> PyResult<Assigner> {
    let count = virtual_nodes_per_core
        .map(|count| args::number(count, "virtual_nodes_per_core", 0, u32::MAX))
        .transpose()?;
    Assigner::with_virtual_nodes(count.unwrap_or(VIRTUAL_NODES_PER_CORE)).map_err(to_py)
}

fn nodes(values: &Bound<'_, PyAny>) -> PyResult<Vec<NodeInfo>> {
    args::items(values, "nodes", values::node_info)
}

/// Decides which node should own which partition.
///
/// The ring gives each partition its preference, a band around each node's share keeps the balance, and a rebalance
/// moves the fewest partitions that the band allows. The same input gives the same plan on every platform.
///
/// >>> from laminar import ConsistentHashAssigner, NodeInfo
/// >>> plan = ConsistentHashAssigner().initial_assignment(range(6), [NodeInfo(1), NodeInfo(2)])
/// >>> plan.stats.distribution
/// {1: 3, 2: 3}
#[pyclass(frozen, module = "laminar")]
pub(crate) struct ConsistentHashAssigner {
    assigner: Assigner,
}

#[pymethods]
impl ConsistentHashAssigner {
    #[new]
    #[pyo3(signature = (*, virtual_nodes_per_core = None))]
    fn new(virtual_nodes_per_core: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self { assigner: assigner(virtual_nodes_per_core)? })
    }

    /// Points on the ring for each core of a node; 150 unless given.
    #[getter]
    fn virtual_nodes_per_core(&self) -> u32 {
        self.assigner.virtual_nodes_per_core()
    }

    /// A plan for partitions that nobody owns yet, each at epoch 1.
    #[pyo3(signature = (partitions, nodes, constraints = None))]
    fn initial_assignment(
        &self,
        py: Python<'_>,
        partitions: &Bound<'_, PyAny>,
        nodes: &Bound<'_, PyAny>,
        constraints: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<AssignmentPlan> {
        let partitions = args::items(partitions, "partitions", args::partition)?;
        let (nodes, constraints) = (self::nodes(nodes)?, values::constraints(constraints)?);
        let plan = py.detach(|| self.assigner.initial_assignment(&partitions, &nodes, &constraints));
        plan.map(AssignmentPlan::new).map_err(to_py)
    }

    /// A plan for partitions with owners, ``{partition: (node, epoch)}``; whatever moves gets the next epoch.
    ///
    /// ``nodes`` may be the cluster before or after the change. Node 0 owns nothing.
    #[pyo3(signature = (current, nodes, change, constraints = None))]
    fn rebalance(
        &self,
        py: Python<'_>,
        current: &Bound<'_, PyAny>,
        nodes: &Bound<'_, PyAny>,
        change: &Bound<'_, PyAny>,
        constraints: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<AssignmentPlan> {
        let current: BTreeMap<_, OwnerEpoch> =
            args::pairs(current, "current", args::partition, args::owner_epoch)?;
        let (nodes, change) = (self::nodes(nodes)?, values::topology_change(change)?);
        let constraints = values::constraints(constraints)?;
        let plan = py.detach(|| self.assigner.rebalance(&current, &nodes, &change, &constraints));
        plan.map(AssignmentPlan::new).map_err(to_py)
    }

    /// Raise the error of the first constraint that the plan breaks.
    #[pyo3(signature = (plan, nodes, constraints = None))]
    fn validate_plan(
        &self,
        py: Python<'_>,
        plan: &AssignmentPlan,
        nodes: &Bound<'_, PyAny>,
        constraints: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (nodes, constraints) = (self::nodes(nodes)?, values::constraints(constraints)?);
        py.detach(|| self.assigner.validate_plan(&plan.plan, &nodes, &constraints)).map_err(to_py)
    }

    /// For each node its share, the low and high end of its band, and its cap.
    #[pyo3(signature = (partition_count, nodes, constraints = None))]
    fn bands(
        &self,
        partition_count: &Bound<'_, PyAny>,
        nodes: &Bound<'_, PyAny>,
        constraints: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<BTreeMap<u64, (f64, u32, u32, u32)>> {
        let count = args::number(partition_count, "partition_count", 0, u32::MAX)?;
        let bands = self.assigner.bands(count, &self::nodes(nodes)?, &values::constraints(constraints)?);
        let bands = bands.map_err(to_py)?.into_iter();
        Ok(bands.map(|(node, band)| (node.0, (band.share, band.low, band.high, band.cap))).collect())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Self>()
            .is_ok_and(|other| self.virtual_nodes_per_core() == other.get().virtual_nodes_per_core())
    }

    fn __hash__(&self) -> u64 {
        self.virtual_nodes_per_core().into()
    }

    fn __repr__(&self) -> String {
        format!("ConsistentHashAssigner(virtual_nodes_per_core={})", self.virtual_nodes_per_core())
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyTuple>, BTreeMap<&'static str, u32>) {
        (PyTuple::empty(py), BTreeMap::from([("virtual_nodes_per_core", self.virtual_nodes_per_core())]))
    }
}

/// The ring that decides which node a partition prefers.
///
/// Positions are 64-bit hashes (xxh3 with laminar's seed), the same on every platform and in every release.
///
/// >>> from laminar import HashRing, NodeInfo
/// >>> ring = HashRing([NodeInfo(1, cores=2), NodeInfo(2, cores=2)])
/// >>> len(ring)
/// 600
#[pyclass(frozen, module = "laminar")]
pub(crate) struct HashRing {
    ring: Ring,
    /// What it was made of, to make it again in another process.
    nodes: Py<PyList>,
    virtual_nodes_per_core: u32,
    constraints: Option<Py<PyAny>>,
}

#[pymethods]
impl HashRing {
    #[new]
    #[pyo3(signature = (nodes, *, virtual_nodes_per_core = None, constraints = None))]
    fn new(
        py: Python<'_>,
        nodes: &Bound<'_, PyAny>,
        virtual_nodes_per_core: Option<&Bound<'_, PyAny>>,
        constraints: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let assigner = assigner(virtual_nodes_per_core)?;
        let given = PyList::new(py, args::items(nodes, "nodes", |node| Ok(node.clone()))?)?;
        let (nodes, checked) = (self::nodes(&given)?, values::constraints(constraints)?);
        let ring = py.detach(|| assigner.ring(&nodes, &checked)).map_err(to_py)?;
        Ok(Self {
            ring,
            nodes: given.unbind(),
            virtual_nodes_per_core: assigner.virtual_nodes_per_core(),
            constraints: constraints.map(|constraints| constraints.clone().unbind()),
        })
    }

    /// Where a partition stands on the ring.
    #[staticmethod]
    fn partition_hash(partition_id: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(hash_partition(args::partition(partition_id)?))
    }

    /// The node of the first point at or after this position, from the top on if there is none.
    fn lookup(&self, hash: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let hash = args::number(hash, "hash", 0, u64::MAX)?;
        Ok(self.ring.lookup(hash).map(|node| node.0))
    }

    /// The same, passing over the nodes in these failure domains.
    fn lookup_excluding(
        &self,
        hash: &Bound<'_, PyAny>,
        failure_domains: &Bound<'_, PyAny>,
    ) -> PyResult<Option<u64>> {
        let hash = args::number(hash, "hash", 0, u64::MAX)?;
        let domain = |value: &Bound<'_, PyAny>| args::text(value, "failure domain");
        let domains: BTreeSet<String> =
            args::items(failure_domains, "failure_domains", domain)?.into_iter().collect();
        Ok(self.ring.lookup_excluding(hash, &domains).map(|node| node.0))
    }

    fn __len__(&self) -> usize {
        self.ring.len()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| self.ring.nodes() == other.get().ring.nodes())
    }

    fn __hash__(&self) -> usize {
        self.ring.len()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let by_name = PyDict::new(py);
        by_name.set_item("virtual_nodes_per_core", self.virtual_nodes_per_core)?;
        by_name.set_item("constraints", self.constraints.as_ref())?;
        Ok((PyTuple::new(py, [self.nodes.bind(py)])?, by_name))
    }

    fn __repr__(&self) -> String {
        format!("HashRing <{} points, {} nodes>", self.ring.len(), self.ring.nodes().len())
    }
}
