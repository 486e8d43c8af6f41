//! What the tests share: files that fail, and a whole replica.

pub(crate) mod files;
pub(crate) mod machines;
pub(crate) mod oracle;
pub(crate) mod replica;
pub(crate) mod runtime;
