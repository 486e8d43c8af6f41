//! The types that openraft is instantiated with.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use laminar_log::verdict::Verdict;
use openraft::impls::{BoxedErrorSource, InlineBatch, ProgressResponder};
use openraft::vote::leader_id_std;
use openraft::{AppDataResponse, AsyncRuntime, OptionalSend, RaftTypeConfig};

use crate::late::LateVerdict;

/// The types of a Raft group that runs on `R` and answers proposals with `A`.
pub struct GroupConfig<R, A> {
    // A function of the two, so that it can be sent and shared whatever they are.
    types: PhantomData<fn() -> (R, A)>,
}

/// The types of a data group.
pub type DataConfig<R> = GroupConfig<R, Response>;

/// A node's part in a group whose state machine is `M`.
pub type Group<R, A, M> = openraft::Raft<GroupConfig<R, A>, M>;
/// A node's part in a data group whose state machine is `M`.
pub type DataGroup<R, M> = Group<R, Response, M>;

/// A term and the node that leads it: one a term.
pub type LeaderId = leader_id_std::LeaderId<u64, u64>;
/// The term of a leader that a quorum voted for.
pub type CommittedLeaderId = leader_id_std::CommittedLeaderId<u64>;
/// A place in the log.
pub type RaftLogId = openraft::LogId<CommittedLeaderId>;
/// Whom a node voted for.
pub type RaftVote = openraft::Vote<LeaderId>;
/// What an entry holds.
pub type RaftPayload = openraft::EntryPayload<Data, u64, Node>;
/// An entry of the log.
pub type RaftEntry = openraft::Entry<CommittedLeaderId, RaftPayload>;
/// The members of a group.
pub type RaftMembership = openraft::Membership<u64, Node>;

impl<R, A> RaftTypeConfig for GroupConfig<R, A>
where
    R: AsyncRuntime,
    A: AppDataResponse,
{
    type D = Data;
    type R = A;
    type NodeId = u64;
    type Node = Node;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = RaftVote;
    type Payload = RaftPayload;
    type Entry = RaftEntry;
    type AsyncRuntime = R;
    type Responder<T>
        = ProgressResponder<Self, T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

// There is one value of it. Derived, these would ask the same of `R` and `A`.
impl<R, A> Clone for GroupConfig<R, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, A> Copy for GroupConfig<R, A> {}

impl<R, A> Default for GroupConfig<R, A> {
    fn default() -> Self {
        Self { types: PhantomData }
    }
}

impl<R, A> fmt::Debug for GroupConfig<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupConfig")
    }
}

impl<R, A> PartialEq for GroupConfig<R, A> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<R, A> Eq for GroupConfig<R, A> {}

impl<R, A> PartialOrd for GroupConfig<R, A> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R, A> Ord for GroupConfig<R, A> {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

/// A member of a group: where it can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// `host:port` of its Raft service.
    pub address: String,
}

/// What is proposed: an encoded entry. openraft does not look into it.
#[derive(Clone, PartialEq, Eq)]
pub struct Data(pub Bytes);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({} bytes)", self.0.len())
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What a data group answers to an entry.
#[derive(Debug)]
pub enum Response {
    /// There was nothing to decide: a blank entry, or one that changed the members.
    Done,
    /// What became of the entry.
    Verdict(Verdict),
    /// The entry is decided and its partitions have not applied it yet: the verdict comes when they have. openraft is
    /// answered at once, so that a slow partition does not hold back the answers behind its own.
    Later(LateVerdict),
}
