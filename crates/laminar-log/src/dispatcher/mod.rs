//! Admission: what may become a Raft entry, and what has to wait outside.
//!
//! ADM-1: a limit refuses before the Raft append, never after commit; after commit we may only delay. The dispatcher
//! gives out no index: `apply` does, so that a lost proposal leaves no gap (LOG-2).
//!
//! One append, in order:
//!
//! 1. [`RequestAssembler`] puts a large request together from its chunks; small ones pass it by.
//! 2. [`PartitionDispatcher::admit`] checks every limit and gives a [`Permit`], or an [`AdmissionRefusal`].
//! 3. The entry is proposed. The permit is dropped when the reply arrives or the proposal is lost.
//! 4. `apply` accepts the records: [`PartitionDispatcher::enqueued`]; [`PartitionDispatcher::after_commit`] tells how
//!    long to wait before handing them over.
//! 5. The worker applies them: [`PartitionDispatcher::applied`]. Only now the backlog falls.
//!
//! [`PartitionDispatcher::tick`], called a few times a second, notices workers that stand still.
//!
//! ```text
//!                  no progress for throttle_after        for freeze_after
//!         .------------------------------> Throttled ----------------------> Frozen
//!         |        below half of every limit    |      progress again           |
//!       Open <----------------------------------+<------------------------------'
//!         |  ^---------------- lag below half of lag_max -----------.
//!         '------------- lag above lag_max for lag_after ------> Closed
//!       any  --- set_paused --->  Paused  --- clear --->  whatever holds then
//! ```

mod assembler;
mod assembly;
mod charge;
mod config;
mod ledger;
mod partition;
mod permit;
mod refusal;
mod shared;
mod state;

pub use assembler::{ChunkError, ClientId, RequestAssembler, RequestChunk, TransferId, Transferred};
pub use charge::record_bytes;
pub use config::{AssemblerConfig, DispatcherConfig, PartitionLimits};
pub use permit::{Permit, WaiterPermit};
pub use refusal::{AdmissionRefusal, Limit, Scope};
pub use shared::PartitionDispatcher;
pub use state::{
    AdmissionSignal, AdmissionState, AdmissionView, DispatcherEvent, DispatcherStats, PauseReason,
    SignalRefusal, StateReason,
};
