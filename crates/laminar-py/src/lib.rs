//! `laminar._native`: converts arguments, releases the GIL, calls one Rust function, maps the error.
//!
//! No policy lives here. The values users make and read (nodes, constraints, moves, …) are dataclasses in
//! `python/laminar/`; this crate reads them by attribute and builds them by calling their classes.

mod args;
mod assign;
mod cluster;
mod errors;
mod gate;
mod guard;
mod ids_array;
mod log;
mod metadata;
mod values;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::assign::{ConsistentHashAssigner, HashRing, plan::AssignmentPlan};
    #[pymodule_export]
    use crate::cluster::{
        Cluster, Reader, Stream, TaskWriter, Writer, WriterBatch, WriterGuards, node_settings, run_node,
        stored_schema,
    };
    #[pymodule_export]
    use crate::guard::{ConditionalPut, PartitionGuard, PartitionGuardSet};
    #[pymodule_export]
    use crate::log::{inspect_log, verify_log};
    #[pymodule_export]
    use crate::metadata::{DeltaMetadata, entry::MetadataLogEntry, response::MetadataResponse};
    #[pymodule_export]
    use crate::values::check::{
        check_affinity_hint, check_anti_affinity_group, check_constraints, check_node_info,
        check_topology_change,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::gate::guard_forks(module.py())?;
        module.add("EXIT_INVALID", laminar_node::embedded::EXIT_INVALID)?;
        module.add("EXIT_NOT_THE_NODE", laminar_node::embedded::EXIT_NOT_THE_NODE)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
