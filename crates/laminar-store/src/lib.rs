//! Staged blocks on an object store: rows that are too large for an entry of the log, which then only points to them.
//!
//! A block is written once under a name that is used once, and is durable when [`BlockStore::stage`] returns. The log
//! carries where it is ([`BlockRef`]); readers check what they get against the checksum in the log. The crate knows no
//! Raft and no epochs: a block that no accepted record points to is only garbage.
//!
//! One block, file by file: `block.rs` gives it an id and a name, `store.rs` writes, reads, lists and deletes it, and
//! `local.rs` looks after the folder of a local store.
//!
//! What holds:
//!
//! 1. A name has one content for ever. Of two writers of one name one wins, and the other learns it.
//! 2. A block that can be seen is whole: a crash while it is written leaves nothing under its name.
//! 3. What [`BlockStore::read`] returns has the checksum that was asked for.
//!
//! ```
//! use laminar_store::{BlockStore, new_block_id};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), laminar_store::StoreError> {
//! let store = BlockStore::in_memory().await?;
//! let block = store.stage(new_block_id(1_700_000_000_000)?, "rows".into()).await?;
//! assert_eq!(store.read(&block.path, 0..block.length, block.checksum).await?, "rows");
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod block;
mod error;
mod local;
mod store;

pub use block::{BlockId, BlockRef, StagedBlock, checksum, checksum_of_pieces, new_block_id};
pub use error::StoreError;
pub use store::BlockStore;
