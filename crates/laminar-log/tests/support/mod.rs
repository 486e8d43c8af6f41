//! What the tests of a whole replica share.

#![allow(clippy::unwrap_used, dead_code, reason = "each test uses its part")]

pub(crate) mod machines;
pub(crate) mod oracle;
pub(crate) mod replica;
pub(crate) mod runtime;
