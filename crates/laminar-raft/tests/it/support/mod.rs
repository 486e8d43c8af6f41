//! What the tests of this crate share.

mod cluster;
mod coordinators;
mod machine;
mod replicas;
mod seeds;
mod workload;

pub(crate) use cluster::Cluster;
pub(crate) use coordinators::{Coordinators, assign, claim, open_alone, owner};
pub(crate) use machine::Machine;
pub(crate) use replicas::{Replicas, nodes, small_config};
pub(crate) use seeds::simulate;
pub(crate) use workload::{Workload, plain};
