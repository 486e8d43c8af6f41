//! Proposals: admitted, given a time, and handed to Raft together with whatever else waits.
//!
//! ```text
//!  propose --> admit --> time, encode --> queue --> batcher --> client_write_many      one message for all that wait
//!                                                      `------> one task a batch: answers in the order of the log
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use laminar_core::ids::NodeId;
use laminar_log::dispatcher::Permit;
use laminar_log::entry::Entry;
use laminar_log::format::encode_entry;
use laminar_log::verdict::Verdict;
use openraft::AsyncRuntime;
use openraft::alias::{MpscReceiverOf, MpscSenderOf, OneshotSenderOf};
use openraft::async_runtime::{MpscReceiver, MpscSender, OneshotSender};
use openraft::errors::{ClientWriteError, Fatal, ForwardToLeader};
use openraft::raft::WriteResult;
use openraft::type_config::TypeConfigExt;
use tracing::Instrument;

use super::error::{NotServing, ProposeError, UnknownReason};
use super::{DataReplica, Inner};
use crate::late::LateVerdict;
use crate::types::{Data, DataConfig, Response};

type Answers<R> = BoxStream<'static, Result<WriteResult<DataConfig<R>>, Fatal<DataConfig<R>>>>;

/// An entry on its way to Raft.
pub(super) struct Proposal<R: AsyncRuntime> {
    bytes: Bytes,
    /// Held until the answer is there, also if nobody waits for it any more.
    permit: Permit,
    answer: OneshotSenderOf<DataConfig<R>, Answer>,
}

type Answer = (Permit, Result<Decided, ProposeError>);

/// What became of an entry once it was decided.
#[derive(Debug)]
pub enum Decided {
    /// Its verdict: it was refused, or every partition it touches has applied it.
    Verdict(Verdict),
    /// It was accepted, and partitions still apply it; the verdict comes when they have. Only accepted entries have
    /// anything to apply.
    Accepted(LateVerdict),
}

pub(super) type ProposalSender<R> = MpscSenderOf<DataConfig<R>, Proposal<R>>;
pub(super) type ProposalReceiver<R> = MpscReceiverOf<DataConfig<R>, Proposal<R>>;

/// A time that never goes back, whatever the clock does.
#[derive(Debug, Default)]
pub(super) struct LatestTime(AtomicU64);

impl LatestTime {
    pub(super) fn at(&self, now_ms: u64) -> u64 {
        // ORDER: relaxed; only the number itself matters.
        self.0.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }
}

impl<R: AsyncRuntime> DataReplica<R> {
    /// Proposes an entry and waits for its verdict: every partition it touches has applied it then, and it is on the
    /// disks of a quorum. Its time is set here.
    ///
    /// # Errors
    ///
    /// Overloaded, Unavailable and Invalid as [`admit`](laminar_log::dispatcher::PartitionDispatcher::admit), or
    /// because this node does not lead or serve: nothing was proposed then. Unavailable with
    /// [`ProposeError::Unknown`], also after `proposal_timeout`: the entry may have taken effect.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws nothing: the outcome is unknown.
    pub async fn propose(&self, entry: Entry) -> Result<Verdict, ProposeError> {
        self.propose_within(entry, self.inner.config.proposal_timeout).await
    }

    /// [`propose`](Self::propose) with a time limit of its own.
    ///
    /// # Errors
    ///
    /// As `propose`.
    pub async fn propose_within(&self, entry: Entry, timeout: Duration) -> Result<Verdict, ProposeError> {
        let span = tracing::debug_span!("propose", records = entry.records.len());
        match R::timeout(timeout, self.propose_and_wait(entry).instrument(span)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(unknown(UnknownReason::TimedOut(timeout))),
        }
    }

    /// [`propose_within`](Self::propose_within), but waits only until the entry is decided. What a fence, a trim or a
    /// skip says holds from there; a partition that is paused may apply it much later, or never.
    ///
    /// # Errors
    ///
    /// As `propose`.
    pub async fn propose_decided(&self, entry: Entry, timeout: Duration) -> Result<Decided, ProposeError> {
        let span = tracing::debug_span!("propose", records = entry.records.len());
        let decided = async { self.propose_and_decide(entry).await.map(|(_permit, decided)| decided) };
        match R::timeout(timeout, decided.instrument(span)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(unknown(UnknownReason::TimedOut(timeout))),
        }
    }

    async fn propose_and_wait(&self, entry: Entry) -> Result<Verdict, ProposeError> {
        let (_permit, decided) = self.propose_and_decide(entry).await?;
        let verdict = match decided {
            Decided::Verdict(verdict) => verdict,
            Decided::Accepted(late) => late.await.ok_or_else(|| unknown(UnknownReason::Stopped))?,
        };
        self.inner.delay(&verdict).await;
        Ok(verdict)
    }

    async fn propose_and_decide(&self, mut entry: Entry) -> Result<(Permit, Decided), ProposeError> {
        let inner = &self.inner;
        inner.serving()?;
        let permit = inner.dispatcher.admit(&entry)?;
        entry.time_ms = inner.latest_time.at((inner.parts.clock)());
        let bytes = encode_entry(&entry);
        // Waiting for a slow partition must not keep the rows a second time.
        drop(entry);
        let (answer, answered) = DataConfig::<R>::oneshot();
        let proposal = Proposal { bytes, permit, answer };
        inner.proposals.send(proposal).await.map_err(|_| NotServing::ShutDown)?;
        let (permit, decided) = answered.await.map_err(|_| unknown(UnknownReason::Stopped))?;
        Ok((permit, decided?))
    }
}

impl<R: AsyncRuntime> Inner<R> {
    /// ADM-1: after commit nothing is refused; a caller of a partition with too much in it is answered later, and holds
    /// its permit until then.
    async fn delay(&self, verdict: &Verdict) {
        let Verdict::Accepted(outcome) = verdict else { return };
        let delay = outcome.placed.iter().map(|placed| self.dispatcher.after_commit(placed.partition)).max();
        if let Some(delay) = delay.filter(|delay| !delay.is_zero()) {
            self.runtime.sleep(delay).await;
        }
    }
}

fn unknown(reason: UnknownReason) -> ProposeError {
    ProposeError::Unknown { reason }
}

/// Hands proposals to Raft until the replica is gone.
pub(super) async fn batch<R: AsyncRuntime>(inner: std::sync::Weak<Inner<R>>, mut queue: ProposalReceiver<R>) {
    while let Some(first) = queue.recv().await {
        let Some(inner) = inner.upgrade() else { return };
        let (count_max, bytes_max) = (inner.config.proposal_batch_max, inner.config.proposal_batch_bytes_max);
        let mut bytes = first.bytes.len();
        let mut batch = vec![first];
        while batch.len() < count_max
            && bytes < bytes_max
            && let Ok(next) = queue.try_recv()
        {
            bytes += next.bytes.len();
            batch.push(next);
        }
        submit(&inner, batch).await;
    }
}

async fn submit<R: AsyncRuntime>(inner: &Arc<Inner<R>>, batch: Vec<Proposal<R>>) {
    let life = match inner.serving() {
        Ok(life) => life,
        Err(error) => {
            let refuse = |proposal: Proposal<R>| proposal.answer(Err(error.clone().into()));
            return batch.into_iter().for_each(refuse);
        }
    };
    let entries: Vec<Data> = batch.iter().map(|proposal| Data(proposal.bytes.clone())).collect();
    match life.raft.client_write_many(entries).await {
        // Its own task: the next batch need not wait for this one to be committed.
        Ok(answers) => drop(R::spawn(answer_all(answers, batch))),
        Err(_) => {
            let lose = |proposal: Proposal<R>| proposal.answer(Err(unknown(UnknownReason::Stopped)));
            batch.into_iter().for_each(lose);
        }
    }
}

/// Answers in the order of the log, which is the order in which entries are decided.
async fn answer_all<R: AsyncRuntime>(answers: Answers<R>, batch: Vec<Proposal<R>>) {
    // When the group ends, openraft's stream ends early, and must not be asked again.
    let mut answers = answers.fuse();
    for proposal in batch {
        let outcome = match answers.next().await {
            Some(Ok(Ok(written))) => match written.response {
                Response::Verdict(verdict) => Ok(Decided::Verdict(verdict)),
                Response::Later(late) => Ok(Decided::Accepted(late)),
                // Only blank and membership entries are answered so, and none is proposed here.
                Response::Done => Err(unknown(UnknownReason::Stopped)),
            },
            Some(Ok(Err(error))) => Err(refused(error)),
            Some(Err(_)) | None => Err(unknown(UnknownReason::Stopped)),
        };
        proposal.answer(outcome);
    }
}

impl<R: AsyncRuntime> Proposal<R> {
    fn answer(self, outcome: Result<Decided, ProposeError>) {
        // Whoever asked may be gone; the permit ends with the answer then.
        drop(self.answer.send((self.permit, outcome)));
    }
}

fn refused<R: AsyncRuntime>(error: ClientWriteError<DataConfig<R>>) -> ProposeError {
    match error {
        ClientWriteError::ForwardToLeader(ForwardToLeader { leader_id, leader_node, .. }) => {
            ProposeError::NotLeader {
                leader: leader_id.map(NodeId),
                address: leader_node.map(|node| node.address),
            }
        }
        // Of another kind of request, or discarded: it may have been committed by another leader.
        _ => unknown(UnknownReason::LeaderChanged),
    }
}
