//! A network of groups in one process, for tests and simulations: it delays, loses and cuts what nodes say.
//!
//! Messages are passed as they are, a snapshot too. Chance comes from a seed and time from the group's runtime, so a
//! simulated run can be repeated.

mod link;
mod peer;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use openraft::AsyncRuntime;

pub use self::link::{Factory, Link};
pub use self::peer::Peer;

/// The network between the nodes of a group. Clones are the same network.
pub struct Router<R: AsyncRuntime, P: Peer<R>> {
    inner: Shared<P>,
    runtime: PhantomData<fn() -> R>,
}

type Shared<T> = Arc<Mutex<Inner<T>>>;

struct Inner<T> {
    nodes: BTreeMap<u64, T>,
    /// How often each node was started: what an earlier life of it says or hears is lost.
    lives: BTreeMap<u64, u64>,
    /// Pairs that cannot talk, from the first to the second.
    blocked: BTreeSet<(u64, u64)>,
    lost_percent: u64,
    delay: Range<Duration>,
    chance: u64,
}

impl<T> Inner<T> {
    /// A number below `below`.
    fn draw(&mut self, below: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % below.max(1)
    }

    fn draw_delay(&mut self) -> Duration {
        let width = self.delay.end.saturating_sub(self.delay.start);
        let micros = u64::try_from(width.as_micros()).unwrap_or(u64::MAX);
        self.delay.start + Duration::from_micros(self.draw(micros))
    }
}

/// Why a message did not arrive.
enum Lost {
    /// Nobody knows.
    Silently,
    /// The other node is not there.
    Refused,
}

impl<R: AsyncRuntime, P: Peer<R>> Router<R, P> {
    /// A network without nodes that loses nothing and takes no time.
    pub fn new(seed: u64) -> Self {
        let inner = Inner {
            nodes: BTreeMap::new(),
            lives: BTreeMap::new(),
            blocked: BTreeSet::new(),
            lost_percent: 0,
            delay: Duration::ZERO..Duration::ZERO,
            // Zero would stay zero.
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        Self { inner: Arc::new(Mutex::new(inner)), runtime: PhantomData }
    }

    fn inner(&self) -> MutexGuard<'_, Inner<P>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network as a node sees it that is being started; ends its earlier life.
    pub fn factory(&self, node: u64) -> Factory<R, P> {
        self.leave(node);
        Factory { router: self.clone(), from: node, life: self.inner().lives[&node] }
    }

    /// Lets a node be reached.
    pub fn join(&self, node: u64, peer: P) {
        self.inner().nodes.insert(node, peer);
    }

    /// Takes a node off the network, with all that it has sent and not had answered.
    pub fn leave(&self, node: u64) {
        let mut inner = self.inner();
        *inner.lives.entry(node).or_default() += 1;
        // Dropped without the lock: it may be the last handle.
        let left = inner.nodes.remove(&node);
        drop(inner);
        drop(left);
    }

    /// The nodes that can be reached.
    pub fn nodes(&self) -> Vec<(u64, P)> {
        self.inner().nodes.iter().map(|(id, peer)| (*id, peer.clone())).collect()
    }

    /// Lets nothing through between a node and the others, in both directions.
    pub fn isolate(&self, node: u64, others: &[u64]) {
        let pairs =
            others.iter().filter(|other| **other != node).flat_map(|other| [(node, *other), (*other, node)]);
        self.inner().blocked.extend(pairs);
    }

    /// Lets nothing through from one node to another.
    pub fn block(&self, from: u64, to: u64) {
        self.inner().blocked.insert((from, to));
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        let mut inner = self.inner();
        inner.blocked.clear();
        inner.lost_percent = 0;
    }

    /// Loses so many of a hundred messages, requests and answers alike.
    pub fn lose(&self, percent: u64) {
        self.inner().lost_percent = percent;
    }

    /// Each message takes a time out of this range.
    pub fn delay(&self, delay: Range<Duration>) {
        self.inner().delay = delay;
    }

    /// A number below `below`, for the test that drives it all.
    pub fn draw(&self, below: u64) -> u64 {
        self.inner().draw(below)
    }

    /// Carries a message one way.
    async fn carry(&self, from: u64, to: u64) -> Result<(), Lost> {
        let (delay, lost) = {
            let mut inner = self.inner();
            (inner.draw_delay(), inner.draw(100) < inner.lost_percent)
        };
        if !delay.is_zero() {
            R::sleep(delay).await;
        }
        if lost || self.inner().blocked.contains(&(from, to)) { Err(Lost::Silently) } else { Ok(()) }
    }
}

impl<R: AsyncRuntime, P: Peer<R>> Clone for Router<R, P> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), runtime: PhantomData }
    }
}

impl<R: AsyncRuntime, P: Peer<R>> fmt::Debug for Router<R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner();
        f.debug_struct("Router")
            .field("lives", &inner.lives)
            .field("blocked", &inner.blocked)
            .finish_non_exhaustive()
    }
}
