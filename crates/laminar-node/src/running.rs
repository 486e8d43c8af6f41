//! The nodes that run in this process, by folder, and whose turn it is to open or close one.
//!
//! A folder is opened or closed by one at a time, and one folder does not hold up another. A node that is to stop keeps the
//! turn and the folder's lock until it has stopped, however long whoever closed it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laminar_rpc::Failure;
use tokio::sync::OwnedMutexGuard;

use crate::folder::Endpoint;
use crate::node::{Node, lock};

/// Locked for moments only, and never while something is waited for: a forked child could find it locked for ever.
static NODES: Mutex<Nodes> = Mutex::new(Nodes { running: BTreeMap::new(), turns: BTreeMap::new() });

struct Nodes {
    running: BTreeMap<PathBuf, Running>,
    turns: BTreeMap<PathBuf, Arc<tokio::sync::Mutex<()>>>,
}

/// A node of this process.
pub(crate) struct Running {
    pub(crate) node: Node,
    pub(crate) endpoint: Endpoint,
    /// The handles that need it.
    pub(crate) users: usize,
}

/// The right to open or close a folder.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// Waits for the turn of a folder, by its path without links.
pub(crate) async fn turn(path: &Path) -> Turn {
    let turn = {
        let turns = &mut lock(&NODES).turns;
        // Those that nobody has or waits for are made again when they are wanted.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(path.to_owned()).or_default())
    };
    turn.lock_owned().await
}

/// Looks at the node of a folder, if it runs in this process.
pub(crate) fn with<T>(path: &Path, look: impl FnOnce(&mut Running) -> T) -> Option<T> {
    lock(&NODES).running.get_mut(path).map(look)
}

/// Keeps a node. One that stopped by itself may still stand there.
pub(crate) fn keep(path: &Path, running: Running) {
    let before = lock(&NODES).running.insert(path.to_owned(), running);
    drop(before);
}

/// Takes back one use of the node of a folder; the last one ends it. Waits for that up to a limit.
///
/// # Errors
///
/// Unavailable: what was written last could not be synced, or the node needs longer. It goes on then, and the folder stays
/// its own until it has ended: whoever opens the folder waits for that, here and in other processes.
pub(crate) async fn close(path: &Path, wait: Duration) -> Result<(), Failure> {
    // A task of its own: a node that has begun to stop must come to its end also if nobody waits any more.
    let closing = tokio::spawn(end(path.to_owned(), leave));
    match tokio::time::timeout(wait, closing).await {
        Ok(Ok(stopped)) => stopped,
        Ok(Err(_)) => Err(Failure::internal("ending the node ended unexpectedly; report it")),
        Err(_) => Err(Failure::unavailable(format!(
            "{}: its node did not stop within {wait:?} (close_timeout); it goes on stopping, and the folder stays locked \
             until it has",
            path.display()
        ))),
    }
}

/// Ends every node of this process: the interpreter is going.
pub async fn stop_all() {
    let known: BTreeSet<PathBuf> = {
        let nodes = lock(&NODES);
        // Also those that are being opened, and do not run yet.
        nodes.running.keys().chain(nodes.turns.keys()).cloned().collect()
    };
    let take = |path: &Path| lock(&NODES).running.remove(path);
    futures_util::future::join_all(known.into_iter().map(|path| end(path, take))).await;
}

/// Ends what is taken out for a folder when it is its turn.
async fn end(path: PathBuf, take: impl FnOnce(&Path) -> Option<Running>) -> Result<(), Failure> {
    let _turn = turn(&path).await;
    let Some(running) = take(&path) else { return Ok(()) };
    let stopped = running.node.shutdown().await;
    running.endpoint.remove(&path);
    running.node.folder().release();
    stopped
}

/// Counts one user less, and takes the node out if that was the last.
fn leave(path: &Path) -> Option<Running> {
    let running = &mut lock(&NODES).running;
    let found = running.get_mut(path)?;
    found.users = found.users.saturating_sub(1);
    if found.users > 0 { None } else { running.remove(path) }
}

/// Forgets the parent's nodes in a forked child: their threads are not here, and the locks are the parent's. So are the
/// turns: whoever had one in the parent will never give it back here.
pub fn forget_in_forked_child() {
    if let Ok(mut nodes) = NODES.try_lock() {
        // Dropped, they would wait for threads that do not exist.
        std::mem::forget(std::mem::take(&mut nodes.running));
        std::mem::forget(std::mem::take(&mut nodes.turns));
    }
    crate::metrics::listener::close_in_forked_child();
    crate::folder::close_locks_in_forked_child();
}
