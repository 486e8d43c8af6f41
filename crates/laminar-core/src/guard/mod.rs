//! Guards: the owner's local proof that a partition is still its own, checked before each write (wall 1).
//!
//! A check costs about a nanosecond and asks nobody, so it can only be as new as the last refresh. It makes a stale
//! writer fail early; what makes the write safe is the epoch check where the data lands.
//!
//! ```text
//!   refresh(metadata)          metadata says            cached epoch         check()
//!                              same owner, same epoch   stays E              fresh
//!   guard of epoch E  ------>  a later epoch F          E -> F (only grows)  stale, for good
//!                              same epoch, other owner  poisoned             not owned, for good
//!                              no such partition        poisoned             unknown, for good
//!                              an earlier epoch         stays               as before: that replica is behind
//! ```
//!
//! EPOCH-3: no arrow leads back from stale or poisoned to fresh.

mod conditional_put;
#[cfg(all(test, loom))]
mod loom_tests;
mod observation;
mod page;
mod partition_guard;
mod set;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

pub use conditional_put::ConditionalPut;
pub use partition_guard::PartitionGuard;
pub use set::PartitionGuardSet;
