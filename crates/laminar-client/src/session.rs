//! The connection of a cluster handle: made on first use, found anew when it is lost.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use laminar_rpc::proto::{HelloRequest, HelloResponse};
use laminar_rpc::{ErrorClass, Failure};
use tokio::time::Instant;

use crate::config::ClientConfig;
use crate::connector::{ConnectionId, Connector};
use crate::guards::GuardFeed;
use crate::retry::{Attempts, Next, Repeat};
use crate::staging::Stores;
use crate::transport::Transport;

/// How often a client says that it is there.
const GREETING_INTERVAL: Duration = Duration::from_secs(1);
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);

/// The way to the node, shared by everything that one cluster handle gave out.
pub(crate) struct Session {
    connector: Arc<dyn Connector>,
    config: ClientConfig,
    process: Mutex<Arc<OfProcess>>,
    me: Weak<Session>,
}

/// What belongs to one process. A forked child has none of its parent's connections and tasks, and begins anew.
struct OfProcess {
    id: u32,
    live: Mutex<Option<Arc<Live>>>,
    lost: Mutex<Option<ConnectionId>>,
    connecting: tokio::sync::Mutex<()>,
    /// Whether the node is told again and again that this client is there.
    present: AtomicBool,
    feed: Arc<GuardFeed>,
    stores: Arc<Stores>,
}

/// A connection, and who is at its other end.
pub(crate) struct Live {
    pub(crate) transport: Transport,
    pub(crate) id: ConnectionId,
    pub(crate) address: String,
    pub(crate) hello: HelloResponse,
}

/// When a call began and must end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) began: Instant,
    pub(crate) deadline: Instant,
}

impl Limit {
    pub(crate) fn of(timeout: Duration) -> Self {
        let began = Instant::now();
        // A year is as good as never, and cannot overflow.
        let deadline = began + timeout.min(Duration::from_secs(365 * 24 * 3600));
        Limit { began, deadline }
    }

    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// What the node is told: a little less, so that its own answer comes first.
    pub(crate) fn node_timeout_ms(&self) -> u64 {
        let left = self.left();
        let told = left - (left / 10).min(Duration::from_millis(50));
        u64::try_from(told.as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// How a call ended, and whether an attempt before the last may have taken effect.
pub(crate) struct Ended<T> {
    pub(crate) result: Result<T, Failure>,
    pub(crate) unknown: bool,
}

impl Session {
    pub(crate) fn new(connector: Arc<dyn Connector>, config: ClientConfig) -> Arc<Self> {
        let process = Mutex::new(Arc::new(OfProcess::new()));
        Arc::new_cyclic(|me| Session { connector, config, process, me: me.clone() })
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.config
    }

    pub(crate) fn describe(&self) -> String {
        self.connector.describe()
    }

    /// What the node said of itself, if it was asked already.
    pub(crate) fn hello(&self) -> Option<HelloResponse> {
        lock(&self.of_process().live).as_ref().map(|live| live.hello.clone())
    }

    /// Guards of this process' writers.
    pub(crate) fn feed(&self) -> Arc<GuardFeed> {
        self.of_process().feed.clone()
    }

    /// Opened stores of staged blocks.
    pub(crate) fn stores(&self) -> Arc<Stores> {
        self.of_process().stores.clone()
    }

    /// Calls the node until it answers, the answer is final, or the time is over.
    pub(crate) async fn call<T, F, Answer>(&self, limit: Limit, repeat: Repeat, send: F) -> Result<T, Failure>
    where
        F: Fn(Arc<Live>) -> Answer,
        Answer: Future<Output = Result<T, Failure>>,
    {
        self.call_tracked(limit, repeat, send).await.result
    }

    /// As [`call`](Self::call), and tells whether an earlier attempt may have taken effect.
    pub(crate) async fn call_tracked<T, F, Answer>(&self, limit: Limit, repeat: Repeat, send: F) -> Ended<T>
    where
        F: Fn(Arc<Live>) -> Answer,
        Answer: Future<Output = Result<T, Failure>>,
    {
        let mut attempts = Attempts::new(repeat);
        // The last word of the node itself: it says more than the silence that the time ended in.
        let mut told: Option<Failure> = None;
        loop {
            let unknown = attempts.unknown();
            let live = match self.live(limit).await {
                Ok(live) => live,
                Err(failure) => {
                    let failure = match told {
                        Some(told) if is_silence(&failure) => told,
                        _ => failure,
                    };
                    return Ended { result: Err(with_outcome(failure, unknown)), unknown };
                }
            };
            let failure = match send(live.clone()).await {
                Ok(answer) => return Ended { result: Ok(answer), unknown },
                Err(failure) => failure,
            };
            match attempts.after(&failure, limit.left()) {
                Next::Fail => {
                    if failure.class == ErrorClass::Network {
                        self.lose(&live);
                    }
                    let failure = match told {
                        Some(told) if failure.class == ErrorClass::Network => {
                            with_outcome(told, failure.outcome_unknown)
                        }
                        _ => self.explain(failure, &live, limit),
                    };
                    // Refusals stay as they are: whoever sent the call knows what they say about earlier attempts.
                    let unknown_still = unknown && is_unavailable(&failure);
                    let result = Err(with_outcome(failure, unknown_still));
                    return Ended { result, unknown };
                }
                Next::Again { wait, reconnect } => {
                    tracing::debug!(%failure, ?wait, reconnect, "call failed, trying again");
                    if failure.class != ErrorClass::Network {
                        told = Some(failure);
                    }
                    if reconnect {
                        self.lose(&live);
                    }
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// The connection, made if there is none.
    pub(crate) async fn live(&self, limit: Limit) -> Result<Arc<Live>, Failure> {
        let process = self.of_process();
        if let Some(live) = lock(&process.live).clone() {
            return Ok(live);
        }
        let mut last = None;
        let Ok(_turn) = tokio::time::timeout_at(limit.deadline, process.connecting.lock()).await else {
            return Err(self.no_answer(None, limit, None));
        };
        if let Some(live) = lock(&process.live).clone() {
            return Ok(live);
        }
        let mut attempts = Attempts::new(Repeat::Safe);
        loop {
            let failure = match tokio::time::timeout_at(limit.deadline, self.establish(&process, limit)).await
            {
                Ok(Ok(live)) => return Ok(live),
                Ok(Err(failure)) => failure,
                Err(_) => return Err(self.no_answer(None, limit, last.as_ref())),
            };
            match attempts.after(&failure, limit.left()) {
                Next::Again { wait, .. } => tokio::time::sleep(wait).await,
                Next::Fail if failure.class == ErrorClass::Network => {
                    return Err(self.no_answer(None, limit, Some(&failure)));
                }
                // Nothing was sent but a greeting.
                Next::Fail => return Err(Failure { outcome_unknown: false, ..failure }),
            }
            last = Some(failure);
        }
    }

    async fn establish(&self, process: &OfProcess, limit: Limit) -> Result<Arc<Live>, Failure> {
        let seen = lock(&process.lost).clone();
        let connected = self.connector.connect(seen.as_ref(), self.config.cluster.get()).await?;
        let hello = match connected.transport.hello(self.greeting(), limit.deadline).await {
            Ok(hello) => hello,
            Err(failure) => {
                *lock(&process.lost) = Some(connected.id);
                return Err(failure);
            }
        };
        self.check_cluster(&hello)?;
        let live =
            Live { transport: connected.transport, id: connected.id, address: connected.address, hello };
        let live = Arc::new(live);
        *lock(&process.live) = Some(live.clone());
        *lock(&process.lost) = None;
        if !self.config.client_id.is_empty() && !process.present.swap(true, Ordering::AcqRel) {
            tokio::spawn(stay_present(self.me.clone()));
        }
        Ok(live)
    }

    /// Refuses another cluster in the place of the one that this session is of: ids of streams, owners and epochs of one
    /// may well be those of something else in the other.
    fn check_cluster(&self, hello: &HelloResponse) -> Result<(), Failure> {
        let found = hello.cluster_id.as_str();
        let known = self.config.cluster.get_or_set(found);
        if found == known {
            return Ok(());
        }
        let place = self.connector.describe();
        let message = format!(
            "{place}: it now belongs to another cluster, id {found}, and this handle is of cluster {known}; open it anew"
        );
        Err(Failure::invalid(message).with("address", place.as_str()))
    }

    fn greeting(&self) -> HelloRequest {
        let client_version = env!("CARGO_PKG_VERSION").to_owned();
        HelloRequest { client_version, client_id: self.config.client_id.clone() }
    }

    /// Waits for an answer of the node, found anew if it must be.
    pub(crate) async fn greet_within(&self, limit: Limit) -> Result<(), Failure> {
        let greet = |live: Arc<Live>| async move {
            live.transport.hello(self.greeting(), limit.deadline).await.map(drop)
        };
        let answer = self.call(limit, Repeat::Safe, greet).await;
        // Nothing was sent but a greeting.
        answer.map_err(|failure| Failure { outcome_unknown: false, ..failure })
    }

    /// Greets the node that is connected. One that does not answer is left to the calls that need it.
    async fn greet(&self) {
        let live = lock(&self.of_process().live).clone();
        if let Some(live) = live {
            let deadline = Instant::now() + GREETING_TIMEOUT;
            let hello = live.transport.hello(self.greeting(), deadline).await;
            if hello.is_ok_and(|hello| self.check_cluster(&hello).is_err()) {
                self.lose(&live);
            }
        }
    }

    /// Forgets a connection that failed, unless another has replaced it already.
    pub(crate) fn lose(&self, failed: &Arc<Live>) {
        let process = self.of_process();
        let mut live = lock(&process.live);
        if live.as_ref().is_some_and(|live| Arc::ptr_eq(live, failed)) {
            *live = None;
            *lock(&process.lost) = Some(failed.id.clone());
        }
    }

    fn of_process(&self) -> Arc<OfProcess> {
        let mut process = lock(&self.process);
        if process.id != std::process::id() {
            let parents = std::mem::replace(&mut *process, Arc::new(OfProcess::new()));
            // Its channels belong to threads that this process does not have: waking them could wait for ever.
            std::mem::forget(parents);
        }
        process.clone()
    }

    /// A failure of the connection, told as users know it.
    fn explain(&self, failure: Failure, live: &Live, limit: Limit) -> Failure {
        if failure.class == ErrorClass::Network {
            let unknown = failure.outcome_unknown;
            return with_outcome(self.no_answer(Some(live), limit, Some(&failure)), unknown);
        }
        failure
    }

    /// Nobody answered in time.
    fn no_answer(&self, live: Option<&Live>, limit: Limit, last: Option<&Failure>) -> Failure {
        let place = self.connector.describe();
        let pid =
            self.connector.holder_pid().or_else(|| live.map(|live| live.hello.pid).filter(|pid| *pid != 0));
        let failure = silence(&place, pid, limit.began.elapsed(), last);
        live.map_or(failure.clone(), |live| failure.with("address", live.address.as_str()))
    }
}

/// The error of a node that does not answer.
fn silence(place: &str, pid: Option<u32>, waited: Duration, last: Option<&Failure>) -> Failure {
    let seconds = waited.as_secs_f64();
    let last = last.map_or(String::new(), |last| format!(" (last: {last})"));
    let message = match pid {
        Some(pid) => format!(
            "node process {pid} holds {place} and did not answer within {seconds:.1} s; it may be stopped{last}"
        ),
        None => format!("no node of {place} answered within {seconds:.1} s; is one running?{last}"),
    };
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    let failure = Failure::unavailable(message).with("address", place).with("waited_ms", waited_ms);
    match pid {
        Some(pid) => failure.with("pid", pid),
        None => failure,
    }
}

/// Whether nobody answered, and so nobody said why.
fn is_silence(failure: &Failure) -> bool {
    failure.number("waited_ms").is_some()
}

fn is_unavailable(failure: &Failure) -> bool {
    failure.class.kind() == laminar_core::error::ErrorKind::Unavailable
}

fn with_outcome(failure: Failure, unknown: bool) -> Failure {
    if unknown { failure.unknown() } else { failure }
}

impl OfProcess {
    fn new() -> Self {
        OfProcess {
            id: std::process::id(),
            live: Mutex::new(None),
            lost: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            present: AtomicBool::new(false),
            feed: Arc::new(GuardFeed::default()),
            stores: Arc::new(Stores::default()),
        }
    }
}

/// Keeps a detached node alive while the session is there.
async fn stay_present(session: Weak<Session>) {
    loop {
        tokio::time::sleep(GREETING_INTERVAL).await;
        let Some(session) = session.upgrade() else {
            return;
        };
        session.greet().await;
    }
}

/// Nothing that is held under these locks can be left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_node_is_named_by_its_process() {
        let failure = silence("./data", Some(4711), Duration::from_millis(2040), None);
        assert_eq!(
            failure.message,
            "node process 4711 holds ./data and did not answer within 2.0 s; it may be stopped"
        );
        assert_eq!((failure.class, failure.number("pid")), (ErrorClass::Unavailable, Some(4711)));
    }

    #[test]
    fn a_session_stays_with_the_cluster_that_it_found_first() {
        let connector = crate::connector::RemoteConnector::parse("a:7400", None).unwrap();
        let session = Session::new(Arc::new(connector), ClientConfig::default());
        let of = |id: &str| HelloResponse { cluster_id: id.to_owned(), ..HelloResponse::default() };
        session.check_cluster(&of("one")).unwrap();
        session.check_cluster(&of("one")).unwrap();
        let failure = session.check_cluster(&of("two")).unwrap_err();
        assert_eq!(failure.class, ErrorClass::Invalid);
        assert_eq!(
            failure.message,
            "a:7400: it now belongs to another cluster, id two, and this handle is of cluster one; open it anew"
        );
    }

    #[test]
    fn a_cluster_that_is_not_there_is_named_by_its_addresses() {
        let last = Failure::new(ErrorClass::Network, "connection refused");
        let failure = silence("a:7400", None, Duration::from_secs(1), Some(&last));
        assert_eq!(
            failure.message,
            "no node of a:7400 answered within 1.0 s; is one running? (last: connection refused)"
        );
    }
}
