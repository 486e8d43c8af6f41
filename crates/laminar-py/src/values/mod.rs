//! The dataclasses of `python/laminar/`: read by attribute, built by calling their classes.

pub(crate) mod check;

use std::collections::BTreeMap;

use laminar_core::assign::{
    AffinityHint, AntiAffinityGroup, AssignmentConstraints, PartitionMemory, TopologyChange,
};
use laminar_core::node::{NodeInfo, NodeMetadata, NodeState};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::args::{self, field};
use crate::errors::{invalid, to_py};

/// One of our Python classes.
pub(crate) fn class<'py>(py: Python<'py>, module: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import(module)?.getattr(name)
}

/// A value of one of our Python classes.
pub(crate) fn make<'py>(
    py: Python<'py>,
    module: &str,
    name: &str,
    args: impl PyCallArgs<'py>,
) -> PyResult<Py<PyAny>> {
    Ok(class(py, module, name)?.call1(args)?.unbind())
}

pub(crate) fn node_state(value: &Bound<'_, PyAny>) -> PyResult<NodeState> {
    args::text(value, "node state")?.parse().map_err(to_py)
}

pub(crate) fn node_info(value: &Bound<'_, PyAny>) -> PyResult<NodeInfo> {
    let get = |name| field(value, "NodeInfo", name);
    Ok(node_metadata_fields(&get)?.to_node_info(
        args::node(&get("id")?)?,
        node_state(&get("state")?)?,
        &args::text(&get("address")?, "address")?,
    ))
}

pub(crate) fn node_metadata(value: &Bound<'_, PyAny>) -> PyResult<NodeMetadata> {
    node_metadata_fields(&|name| field(value, "NodeMetadata", name))
}

/// The fields that `NodeInfo` and `NodeMetadata` share.
fn node_metadata_fields<'py>(
    get: &impl Fn(&'static str) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<NodeMetadata> {
    let text = |what| move |value: &Bound<'py, PyAny>| args::text(value, what);
    Ok(NodeMetadata {
        cores: args::number(&get("cores")?, "cores", 0, u32::MAX)?,
        memory_bytes: args::number(&get("memory_bytes")?, "memory_bytes", 0, u64::MAX)?,
        failure_domain: args::optional(&get("failure_domain")?, text("failure_domain"))?,
        tags: args::pairs(&get("tags")?, "tags", text("tag name"), text("tag value"))?,
    })
}

pub(crate) fn anti_affinity_group(value: &Bound<'_, PyAny>) -> PyResult<AntiAffinityGroup> {
    let get = |name| field(value, "AntiAffinityGroup", name);
    Ok(AntiAffinityGroup {
        name: args::text(&get("name")?, "name of the anti-affinity group")?,
        partition_ids: args::items(&get("partition_ids")?, "partition_ids", args::partition)?,
    })
}

pub(crate) fn affinity_hint(value: &Bound<'_, PyAny>) -> PyResult<AffinityHint> {
    let get = |name| field(value, "AffinityHint", name);
    Ok(AffinityHint {
        name: args::text(&get("name")?, "name of the affinity hint")?,
        partition_ids: args::items(&get("partition_ids")?, "partition_ids", args::partition)?,
        strength: args::fraction(&get("strength")?, "strength")?,
    })
}

pub(crate) fn constraints(value: Option<&Bound<'_, PyAny>>) -> PyResult<AssignmentConstraints> {
    let Some(value) = value else { return Ok(AssignmentConstraints::default()) };
    let get = |name| field(value, "AssignmentConstraints", name);
    let count = |what| move |value: &Bound<'_, PyAny>| args::number(value, what, 1, u32::MAX);
    let bytes = |what| move |value: &Bound<'_, PyAny>| args::number(value, what, 0, u64::MAX);
    let (groups, hints) = (get("anti_affinity_groups")?, get("affinity_hints")?);
    let constraints = AssignmentConstraints {
        max_partitions_per_node: args::optional(
            &get("max_partitions_per_node")?,
            count("max_partitions_per_node"),
        )?,
        min_failure_domains: args::optional(&get("min_failure_domains")?, count("min_failure_domains"))?,
        anti_affinity_groups: args::items(&groups, "anti_affinity_groups", anti_affinity_group)?,
        affinity_hints: args::items(&hints, "affinity_hints", affinity_hint)?,
        max_memory_per_node: args::optional(&get("max_memory_per_node")?, bytes("max_memory_per_node"))?,
        partition_memory_bytes: partition_memory(&get("partition_memory_bytes")?)?,
        node_weights: args::pairs(&get("node_weights")?, "node_weights", args::node, |weight| {
            args::fraction(weight, "node weight")
        })?,
    };
    constraints.check().map_err(to_py)?;
    Ok(constraints)
}

fn partition_memory(value: &Bound<'_, PyAny>) -> PyResult<PartitionMemory> {
    let bytes = |value: &Bound<'_, PyAny>| args::number(value, "partition_memory_bytes", 0, u64::MAX);
    if value.is_none() {
        return Ok(PartitionMemory::None);
    }
    if value.hasattr("items")? {
        let by_partition: BTreeMap<_, _> =
            args::pairs(value, "partition_memory_bytes", args::partition, bytes)?;
        return Ok(PartitionMemory::Map(by_partition));
    }
    bytes(value).map(PartitionMemory::One)
}

pub(crate) fn topology_change(value: &Bound<'_, PyAny>) -> PyResult<TopologyChange> {
    let get = |name| field(value, "TopologyChange", name);
    let kind = args::text(&get("kind")?, "kind of change")?;
    match kind.as_str() {
        "node_joined" => Ok(TopologyChange::NodeJoined(node_info(&get("node")?)?)),
        "node_left" => Ok(TopologyChange::NodeLeft(args::node(&get("node")?)?)),
        "node_updated" => Ok(TopologyChange::NodeUpdated(node_info(&get("node")?)?)),
        "manual_rebalance" if get("node")?.is_none() => Ok(TopologyChange::ManualRebalance),
        "manual_rebalance" => Err(invalid("a manual rebalance names no node; leave it out".to_owned())),
        _ => Err(invalid(format!(
            "kind of change is {kind:?}; it must be node_joined, node_left, node_updated or manual_rebalance"
        ))),
    }
}
