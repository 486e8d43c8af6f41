//! openraft's log ids and votes as ours, and back.

use std::io;

use laminar_core::error::ErrorKind;
use laminar_core::ids::NodeId;
use laminar_log::{EntryPayload, LogEntry, LogError, LogId, Vote};
use openraft::vote::RaftVote as _;

use crate::membership::{decode_membership, encode_membership};
use crate::types::{Data, LeaderId, RaftEntry, RaftLogId, RaftPayload, RaftVote};

/// Our log id as openraft's.
pub fn from_log_id(id: LogId) -> RaftLogId {
    RaftLogId::new_term_index(id.term, id.index.0)
}

/// openraft's log id as ours.
pub fn to_log_id(id: &RaftLogId) -> LogId {
    LogId::new(id.committed_leader_id().term, id.index())
}

pub(crate) fn from_vote(vote: Vote) -> RaftVote {
    let leader = LeaderId { term: vote.term, voted_for: vote.node.0 };
    RaftVote::from_leader_id(leader, vote.committed)
}

pub(crate) fn to_vote(vote: &RaftVote) -> Vote {
    let leader = vote.leader_id();
    Vote { term: leader.term, node: NodeId(leader.voted_for), committed: vote.is_committed() }
}

pub(crate) fn to_entry(entry: RaftEntry) -> LogEntry {
    let payload = match entry.payload {
        RaftPayload::Blank => EntryPayload::Blank,
        RaftPayload::Normal(Data(bytes)) => EntryPayload::Normal(bytes),
        RaftPayload::Membership(membership) => EntryPayload::Membership(encode_membership(&membership)),
    };
    LogEntry { id: to_log_id(&entry.log_id), payload }
}

pub(crate) fn from_entry(entry: LogEntry) -> io::Result<RaftEntry> {
    let payload = match entry.payload {
        EntryPayload::Blank => RaftPayload::Blank,
        EntryPayload::Normal(bytes) => RaftPayload::Normal(Data(bytes)),
        EntryPayload::Membership(bytes) => RaftPayload::Membership(
            decode_membership(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
        ),
    };
    Ok(RaftEntry { log_id: from_log_id(entry.id), payload })
}

/// An error of the log as openraft takes them: any of them stops the group on this node.
pub(crate) fn to_io(error: LogError) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::Corrupt => io::ErrorKind::InvalidData,
        ErrorKind::Overloaded => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
