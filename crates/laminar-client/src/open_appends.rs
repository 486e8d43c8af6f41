//! Appends to a node in another process over one call that stays open.
//!
//! ```text
//!  append --> number it --> AppendCall ----.                      one HTTP/2 stream for all lanes of a connection
//!    ^                                      `--> node
//!    `--- by its number <-- AppendAnswer <--'    task `hand_out`
//! ```
//!
//! A call of its own has headers, a stream and trailers, which cost both sides more than a small append itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use laminar_crew::Crew;
use laminar_rpc::proto::append_answer::Outcome;
use laminar_rpc::proto::{AppendAnswer, AppendCall, AppendRequest, AppendResponse};
use laminar_rpc::{ErrorClass, Failure};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::session::lock;
use crate::transport::{RemoteNode, remote_failure};

/// Appends that wait for the connection to take them.
const QUEUED_MAX: usize = 64;

type Answered = Result<AppendResponse, Failure>;

/// The open call of a connection, begun with the first append and again if it ends.
#[derive(Debug)]
pub struct OpenAppends {
    open: tokio::sync::Mutex<Option<Open>>,
    /// Who hands out the answers.
    crew: Option<Crew>,
}

#[derive(Debug, Clone)]
struct Open {
    calls: mpsc::Sender<AppendCall>,
    waiting: Arc<Waiting>,
}

impl OpenAppends {
    pub(crate) fn new(crew: Option<Crew>) -> Self {
        OpenAppends { open: tokio::sync::Mutex::default(), crew }
    }

    /// Sends an append, and waits for its answer.
    ///
    /// # Errors
    /// What the node refused it with. Network: the connection is lost; `outcome_unknown` if the node may have it.
    pub(crate) async fn append(&self, node: &RemoteNode, request: AppendRequest) -> Answered {
        let open = self.open(node).await?;
        let (reply, answered) = oneshot::channel();
        // Whoever stops waiting takes its number away.
        let expected = open.waiting.expect(reply)?;
        let call = AppendCall { call: expected.call, request: Some(request) };
        open.calls.send(call).await.map_err(|_| ended())?;
        answered.await.unwrap_or_else(|_| Err(ended().unknown()))
    }

    async fn open(&self, node: &RemoteNode) -> Result<Open, Failure> {
        let mut kept = self.open.lock().await;
        if let Some(open) = kept.as_ref().filter(|open| !open.waiting.has_ended()) {
            return Ok(open.clone());
        }
        let (calls, queued) = mpsc::channel(QUEUED_MAX);
        let begun = node.clone().append_each(ReceiverStream::new(queued)).await;
        // No append was sent yet.
        let begun = begun.map_err(|status| Failure { outcome_unknown: false, ..remote_failure(&status) })?;
        let open = Open { calls, waiting: Arc::default() };
        let hand_out = hand_out(begun.into_inner(), open.waiting.clone());
        match &self.crew {
            Some(crew) => crew.spawn(hand_out),
            None => drop(tokio::spawn(hand_out)),
        }
        *kept = Some(open.clone());
        Ok(open)
    }
}

/// Gives the node's answers to those who wait, until the call ends.
async fn hand_out(mut answers: Streaming<AppendAnswer>, waiting: Arc<Waiting>) {
    let failure = loop {
        match answers.message().await {
            Ok(Some(answer)) => waiting.answer(answer),
            Ok(None) => break ended(),
            Err(status) => break lost(&status),
        }
    };
    waiting.end(&failure.unknown());
}

fn ended() -> Failure {
    Failure::new(ErrorClass::Network, "the node ended the connection")
}

/// Whatever the call ended with is no answer to the appends in it.
fn lost(status: &Status) -> Failure {
    Failure::new(ErrorClass::Network, remote_failure(status).message)
}

/// Appends that were sent, by their numbers.
#[derive(Debug, Default)]
struct Waiting(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    has_ended: bool,
    replies: BTreeMap<u64, oneshot::Sender<Answered>>,
}

impl Waiting {
    fn expect(self: &Arc<Self>, reply: oneshot::Sender<Answered>) -> Result<Expected, Failure> {
        let mut state = lock(&self.0);
        if state.has_ended {
            return Err(ended());
        }
        state.last += 1;
        let call = state.last;
        state.replies.insert(call, reply);
        Ok(Expected { call, waiting: self.clone() })
    }

    fn has_ended(&self) -> bool {
        lock(&self.0).has_ended
    }

    fn answer(&self, answer: AppendAnswer) {
        // Nobody waits for it any more.
        let Some(reply) = lock(&self.0).replies.remove(&answer.call) else { return };
        let outcome = match answer.outcome {
            Some(Outcome::Appended(appended)) => Ok(appended),
            Some(Outcome::Failed(detail)) => Err(detail.into()),
            None => Err(Failure::internal("the node answered an append with nothing; report it").unknown()),
        };
        drop(reply.send(outcome));
    }

    fn end(&self, failure: &Failure) {
        let mut state = lock(&self.0);
        state.has_ended = true;
        for reply in std::mem::take(&mut state.replies).into_values() {
            drop(reply.send(Err(failure.clone())));
        }
    }
}

/// An append that an answer is expected for.
struct Expected {
    call: u64,
    waiting: Arc<Waiting>,
}

impl Drop for Expected {
    fn drop(&mut self) {
        lock(&self.waiting.0).replies.remove(&self.call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(call: u64, global_index: u64) -> AppendAnswer {
        let appended = AppendResponse { global_index, ..Default::default() };
        AppendAnswer { call, outcome: Some(Outcome::Appended(appended)) }
    }

    #[test]
    fn answers_find_their_append_in_any_order() {
        let waiting = Arc::new(Waiting::default());
        let (first, mut first_answer) = oneshot::channel();
        let (second, mut second_answer) = oneshot::channel();
        let first = waiting.expect(first).unwrap();
        let second = waiting.expect(second).unwrap();
        waiting.answer(answer(second.call, 22));
        waiting.answer(answer(first.call, 11));
        waiting.answer(answer(99, 0));
        assert_eq!(first_answer.try_recv().unwrap().unwrap().global_index, 11);
        assert_eq!(second_answer.try_recv().unwrap().unwrap().global_index, 22);
    }

    #[test]
    fn when_the_call_ends_everybody_is_told_that_it_may_have_landed_and_nobody_is_taken() {
        let waiting = Arc::new(Waiting::default());
        let (reply, mut answered) = oneshot::channel();
        let _expected = waiting.expect(reply).unwrap();
        waiting.end(&ended().unknown());
        let failure = answered.try_recv().unwrap().unwrap_err();
        assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::Network, true));
        let refused = waiting.expect(oneshot::channel().0).map(|_| ()).unwrap_err();
        assert_eq!((refused.class, refused.outcome_unknown), (ErrorClass::Network, false));
    }

    #[test]
    fn whoever_stops_waiting_leaves_nothing_behind() {
        let waiting = Arc::new(Waiting::default());
        let expected = waiting.expect(oneshot::channel().0).unwrap();
        drop(expected);
        assert!(lock(&waiting.0).replies.is_empty());
    }
}
