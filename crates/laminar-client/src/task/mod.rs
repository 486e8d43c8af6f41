//! Rows that many tasks write and one commit makes visible.
//!
//! 1. Each task has a [`TaskWriter`] (`writer.rs`): it splits and encodes rows as they come, and stages them as blocks while
//!    more come. Nothing of it can be read.
//! 2. `finish` gives a message (`message.rs`): where the parts are, and small ones themselves. It travels as bytes.
//! 3. Whoever has the messages of all tasks commits them (`commit.rs`) as one entry, all or nothing (TXN-1);
//!    small parts become few (`join.rs`).

mod commit;
mod join;
pub(crate) mod message;
pub(crate) mod writer;

pub use commit::Commit;
pub use writer::{TaskOptions, TaskWriter};
