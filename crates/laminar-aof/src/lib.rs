//! An append-only file set that loses nothing: segments, group commit, checksums, recovery, truncation at both ends.
//!
//! The logs of laminar stand on this crate, the segmented log and those of the partitions; it knows neither
//! partitions nor Raft. All file calls go through [`fs::FileSystem`].
//!
//! # One append, through the files in order
//!
//! 1. [`Aof::append`] (`aof.rs`) puts the records into the log's memory (`log/state.rs`) and returns a [`Ticket`]. They
//!    can be read from now on.
//! 2. The log's lane (`lane.rs`) runs a round: on its thread (`committer.rs`), or on that of a caller that waits.
//! 3. The writer (`writer.rs`) encodes everything that waits as one group (`format.rs`) and writes it with one call,
//!    into a segment that was made ready before (`segment.rs`, `housekeeping.rs`) or, in the background, into a draft:
//!    a file that no opening finds until it gets its name.
//! 4. One sync serves everyone who waits, and one of the whole device many logs; a draft gets its name, which is synced
//!    too; then the tickets are told (`ticket.rs`).
//! 5. Reading (`read.rs`) finds a record in memory or by a sparse index in a segment, and verifies it.
//! 6. Opening (`open.rs`) reads trailers, scans what has none (`recover.rs`, `scan.rs`), and rewrites what was not known
//!    to be on disk.
//!
//! # Invariants
//!
//! 1. **LOG-3** (for one disk): a ticket that says `Ok` stands for bytes that were synced, in a file and a folder whose
//!    names are durable; opening never reports a log without them, unless truncation removed them.
//! 2. **LOG-6**: after a failed write or sync nothing more is acknowledged until the log is reopened, which rewrites and
//!    syncs what was not known to be on disk.
//! 3. A segment is synced and its name is durable before the next one gets its first group: `synced mark <= data end`
//!    matters in the last segment only, and a bad record anywhere else is corruption.
//! 4. No byte of a segment's life is written twice: every cut, failure and opening begins another segment.
//! 5. `start <= synced <= next` for every log.
//! 6. A crash leaves a prefix of what was asked of a log: no truncation is found, and no file is removed for one, without
//!    what was asked for before it.
//! 7. A segment has its name only after a sync of its bytes, and a group raises the synced mark only after one of the
//!    name: a draft holds nothing that was acknowledged, and a mark says that folder and file are there to stay.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use laminar_aof::fs::MemoryFileSystem;
//! use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig};
//!
//! let committer = Committer::start(CommitterConfig::default(), Arc::new(MemoryFileSystem::new()))?;
//! let (log, opened) = Aof::open(&committer, "/log".as_ref(), AofConfig::default())?;
//! assert_eq!(opened.sequences, 0..0);
//!
//! let ticket = log.append(vec!["first".into(), "second".into()])?;
//! ticket.wait(Duration::from_secs(5))?; // on disk
//! assert_eq!(log.read(1)?, "second");
//! # Ok::<(), laminar_aof::AofError>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aof;
mod chunks;
mod committer;
mod config;
mod error;
pub mod format;
pub mod fs;
#[doc(hidden)]
pub mod fuzz_targets;
mod handles;
mod housekeeping;
mod lane;
mod log;
mod open;
mod read;
mod recover;
mod scan;
mod segment;
mod stats;
mod ticket;
mod writer;

pub use aof::{Aof, Opened, SegmentInfo};
pub use committer::Committer;
pub use config::{AofConfig, CommitterConfig, Durability};
pub use error::{AofError, FileOperation, SegmentPart};
pub use read::{Reader, Record, SegmentReader};
pub use recover::CutTail;
pub use stats::CommitterStats;
pub use ticket::{Assistant, Outcome, Ticket};
