//! What the tests of this crate share.

#![allow(dead_code, unused_imports, reason = "each test uses a part")]

mod cluster;
mod machine;

pub(crate) use cluster::Cluster;
pub(crate) use machine::Machine;
