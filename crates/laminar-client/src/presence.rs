//! Whether the node of a follower answers. Rows may take as long as they do, the node may not.
//!
//! The connection itself notices a node that is stopped only after seconds, whatever the limit of the caller is. So it is
//! asked, by a task of its own: whoever takes rows may be away for long, and must not find the node silent for that.

use std::time::Duration;

use laminar_core::error::ErrorKind;
use laminar_rpc::Failure;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::stream::StreamHandle;

/// How often a node is asked at most, and at least; in between, four times in the time that it may be silent.
const ASK_INTERVAL_MIN: Duration = Duration::from_millis(20);
const ASK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Asks a node again and again.
pub(crate) struct Presence {
    /// What was told when the node last did not answer in time; none while it does.
    silent: watch::Receiver<Option<Failure>>,
    asking: JoinHandle<()>,
}

impl Presence {
    pub(crate) fn of(stream: StreamHandle) -> Self {
        let (tell, silent) = watch::channel(None);
        Presence { silent, asking: tokio::spawn(ask(stream, tell)) }
    }

    /// Returns when the node has not answered for the time of the handle.
    pub(crate) async fn silent(&mut self) -> Failure {
        match self.silent.wait_for(Option::is_some).await.map(|failure| failure.clone()) {
            Ok(Some(failure)) => failure,
            // The task is gone with its runtime, and so is whoever waits.
            _ => std::future::pending().await,
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

async fn ask(stream: StreamHandle, tell: watch::Sender<Option<Failure>>) {
    let interval = (stream.timeout() / 4).clamp(ASK_INTERVAL_MIN, ASK_INTERVAL_MAX);
    loop {
        tokio::time::sleep(interval).await;
        let answer = stream.session().greet_within(stream.limit()).await;
        // Refusals are told by whoever reads.
        let silence = answer.err().filter(|failure| failure.class.kind() == ErrorKind::Unavailable);
        tell.send_if_modified(|known| {
            let changed = known.is_some() != silence.is_some();
            *known = silence;
            changed
        });
    }
}
