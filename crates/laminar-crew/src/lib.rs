//! Tasks that are run by whoever waits for them.
//!
//! ```text
//!   caller that waits --- turn --.
//!                                 >--- queue of tasks that can go on <--- wakers
//!   keeper, a task of tokio -----'
//! ```
//!
//! A small write goes through a dozen tasks of openraft and of the log, each of which works for a microsecond or two. Where
//! each may run on another thread, waking that thread takes longer than the work: a core of a virtual machine that has gone
//! to sleep needs 20 us and more. So these tasks have a queue of their own, and one thread at a time works it off:
//!
//! 1. A caller that waits takes the **turn** ([`Crew::take_turn`], `turn.rs`) and runs tasks until its own answer is there.
//!    Nobody else is woken meanwhile.
//! 2. With no caller there, the **keeper** has the turn: a task of tokio, which is woken when there is something to do
//!    (`crew.rs`).
//! 3. A task that is about to wait for the disk gives the turn back first ([`in_place`]), so that others go on.
//!
//! Of many callers none takes the turn: none can know when it is given a core again. They come back one after the other
//! (`caller.rs`, `line.rs`).
//!
//! Connections have crews of their own ([`Crew::apart`]), which only their keepers run.
//!
//! Where a task runs changes nothing about what it does. Timers, sockets and channels are tokio's.
//!
//! # Invariants
//!
//! 1. A task that can go on is run: whoever puts it into the queue finds that somebody has the turn, who looks at the queue
//!    again before giving it back, or wakes the keeper.
//! 2. A task is run by one thread at a time (`async-task` sees to that).
//! 3. When the last handle of a crew is gone, or the keeper's runtime, every task has been dropped or is dropped as soon as
//!    it waits.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod caller;
mod crew;
mod joining;
mod line;
#[cfg(test)]
mod tests;
mod turn;

pub use caller::{Caller, Callers};
pub use crew::Crew;
pub use joining::{Joining, NotJoined, spawn};
pub use turn::{Turn, in_place, is_in_crew};
