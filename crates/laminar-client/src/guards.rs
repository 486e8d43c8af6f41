//! Keeps the guards of all writers of a session fresh: changes are watched, asked for now and then, and writers are kept
//! alive. One set of tasks a session, there while it has writers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use laminar_core::metadata::DeltaMetadata;
use laminar_rpc::Failure;
use laminar_rpc::proto::{HeartbeatRequest, MetadataRequest, WatchRequest, WatchResponse};

use crate::ownership::told;
use crate::retry::{Repeat, back_off};
use crate::run::Run;
use crate::session::{Limit, Session, lock};

const HEARTBEAT_DEFAULT_MS: u64 = 1000;
const REFRESH_DEFAULT_MS: u64 = 2000;
/// How long a call in the background may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The writers of a session, and what was heard of partitions.
#[derive(Default)]
pub(crate) struct GuardFeed {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: Vec<Weak<Run>>,
    running: bool,
    /// Owner and epoch by partition id, for writers that come later.
    heard: BTreeMap<u32, (u64, u64)>,
    /// Everything up to this metadata index was heard.
    index: u64,
}

impl GuardFeed {
    /// Keeps a writer's guards fresh from now on.
    pub(crate) fn join(self: &Arc<Self>, session: &Arc<Session>, run: &Arc<Run>) {
        let start = {
            let mut state = lock(&self.state);
            state.runs.push(Arc::downgrade(run));
            // A takeover between the claim and now was told already, and is not told again.
            for partition in run.ownership().partition_ids() {
                if let Some((owner, epoch)) = state.heard.get(&partition) {
                    run.ownership().hear(partition, told(*owner, *epoch));
                }
            }
            !std::mem::replace(&mut state.running, true)
        };
        if start {
            tokio::spawn(keep(session.clone(), self.clone()));
        }
    }

    fn runs(&self) -> Vec<Arc<Run>> {
        let mut state = lock(&self.state);
        state.runs.retain(|run| run.upgrade().is_some_and(|run| !run.is_closed()));
        state.runs.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether nobody is left; then the tasks end.
    fn rest(&self) -> bool {
        let mut state = lock(&self.state);
        state.runs.retain(|run| run.upgrade().is_some_and(|run| !run.is_closed()));
        if !state.runs.is_empty() {
            return false;
        }
        // Changes are not heard from now on: what is known grows old.
        *state = State::default();
        true
    }

    /// Takes over changes of ownership.
    fn hear(&self, news: &WatchResponse) {
        let runs = self.runs();
        let mut state = lock(&self.state);
        let mut changed: Vec<u32> = news.changes.iter().map(|change| change.partition_id).collect();
        if news.whole {
            changed.extend(runs.iter().flat_map(|run| run.ownership().partition_ids()));
            state.heard.clear();
        }
        for change in &news.changes {
            if change.epoch == 0 {
                state.heard.remove(&change.partition_id);
            } else {
                state.heard.insert(change.partition_id, (change.owner, change.epoch));
            }
        }
        state.index = state.index.max(news.metadata_index);
        for partition in changed {
            let current = state.heard.get(&partition).and_then(|(owner, epoch)| told(*owner, *epoch));
            for run in &runs {
                run.ownership().hear(partition, current);
            }
        }
    }
}

/// Works while there are writers.
async fn keep(session: Arc<Session>, feed: Arc<GuardFeed>) {
    let mut running = Running { feed: &feed, rested: false };
    while !feed.rest() {
        tokio::select! {
            () = watch(&session, &feed) => {}
            () = beat(&session, &feed) => {}
            () = refresh(&session, &feed) => {}
        }
    }
    running.rested = true;
}

/// Tasks at work. If the runtime ends them, the next writer starts them again.
struct Running<'a> {
    feed: &'a GuardFeed,
    rested: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // After a rest another task may be at work already.
        if !self.rested {
            lock(&self.feed.state).running = false;
        }
    }
}

/// Hears changes as they are applied, for ever.
async fn watch(session: &Session, feed: &GuardFeed) {
    let mut failed = 0;
    loop {
        match watch_once(session, feed).await {
            Ok(heard) if heard => failed = 0,
            Ok(_) => failed += 1,
            Err(failure) => {
                tracing::debug!(%failure, "watch of ownership ended, beginning again");
                failed += 1;
            }
        }
        tokio::time::sleep(back_off(failed)).await;
    }
}

/// Hears changes over one connection; tells whether there were any.
async fn watch_once(session: &Session, feed: &GuardFeed) -> Result<bool, Failure> {
    let limit = Limit::of(CALL_TIMEOUT);
    let live = session.live(limit).await?;
    let after_index = lock(&feed.state).index;
    let mut news = match live.transport.watch(WatchRequest { after_index }, limit.deadline).await {
        Ok(news) => news,
        Err(failure) => {
            session.lose(&live);
            return Err(failure);
        }
    };
    let mut heard = false;
    while let Some(part) = news.next().await {
        feed.hear(&part?);
        heard = true;
    }
    // A node that ends a watch is going: another, or the same one, is looked for.
    session.lose(&live);
    Ok(heard)
}

/// Says that writers are alive, until there are none.
async fn beat(session: &Arc<Session>, feed: &GuardFeed) {
    loop {
        tokio::time::sleep(interval(session, |hello| hello.heartbeat_interval_ms, HEARTBEAT_DEFAULT_MS))
            .await;
        let runs = feed.runs();
        if runs.is_empty() {
            return;
        }
        let node_ids: Vec<u64> = runs.iter().map(|run| run.node_id()).collect();
        match heartbeat(session, node_ids, Limit::of(CALL_TIMEOUT)).await {
            Ok(ended) => {
                // Each on its own: the heartbeats of the others must not wait for it.
                for run in runs.into_iter().filter(|run| ended.contains(&run.node_id())) {
                    tokio::spawn(async move { run.reclaim_in_background().await });
                }
            }
            Err(failure) => tracing::warn!(%failure, "heartbeat of writers failed"),
        }
    }
}

/// One heartbeat; tells whose registrations had ended.
pub(crate) async fn heartbeat(
    session: &Session,
    node_ids: Vec<u64>,
    limit: Limit,
) -> Result<Vec<u64>, Failure> {
    let answer = session.call(limit, Repeat::Safe, |live| {
        let message = HeartbeatRequest { node_ids: node_ids.clone() };
        async move { live.transport.heartbeat(message, limit.deadline).await }
    });
    Ok(answer.await?.ended)
}

/// Asks for the metadata now and then, in case the watch is silent for another reason than peace.
async fn refresh(session: &Session, feed: &GuardFeed) {
    loop {
        tokio::time::sleep(interval(session, |hello| hello.guard_refresh_ms, REFRESH_DEFAULT_MS)).await;
        let runs = feed.runs();
        if runs.is_empty() {
            return;
        }
        match metadata(session).await {
            Ok(metadata) => runs.iter().for_each(|run| {
                run.ownership().guards().refresh_all(&metadata);
            }),
            Err(failure) => tracing::warn!(%failure, "refresh of guards failed"),
        }
    }
}

async fn metadata(session: &Session) -> Result<DeltaMetadata, Failure> {
    let limit = Limit::of(CALL_TIMEOUT);
    let answer = session.call(limit, Repeat::Safe, |live| async move {
        live.transport.metadata(MetadataRequest { linearizable: false }, limit.deadline).await
    });
    let restored = DeltaMetadata::restore(&answer.await?.snapshot);
    restored.map_err(|error| Failure::new(laminar_rpc::ErrorClass::Corruption, error.to_string()))
}

/// How often, as the node wants it.
fn interval(
    session: &Session,
    told: impl Fn(&laminar_rpc::proto::HelloResponse) -> u64,
    default_ms: u64,
) -> Duration {
    let told = session.hello().map_or(0, |hello| told(&hello));
    Duration::from_millis(if told == 0 { default_ms } else { told.clamp(10, 60_000) })
}
