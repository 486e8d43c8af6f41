//! The node of a folder, found or made: what `laminar.open` stands on.
//!
//! ```text
//!   this process is the node          call it
//!   nobody holds the lock             become the node (embedded), or start a process for it (detached)
//!   another process holds the lock    connect to where node.json says
//! ```
//!
//! A client that loses its node asks again: if the lock is free by then, it becomes the node itself, and the others find it.
//! It is then of one cluster: a folder that is gone is not made anew, and one of another cluster is left alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use laminar_client::{Connected, ConnectionId, Connector, Transport};
use laminar_rpc::{ErrorClass, Failure};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;

pub use crate::detached::{EXIT_INVALID, EXIT_NOT_THE_NODE, run_detached};
pub use crate::running::{forget_in_forked_child, stop_all};

use crate::config::NodeConfig;
use crate::detached::{self, Starts};
use crate::folder::{Endpoint, Folder};
use crate::machines::ApplicationMachines;
use crate::node::Node;
use crate::running::{self, Running};
use crate::serve::serve;

/// How long a detached node may take to answer after it was started.
const START_WAIT: Duration = Duration::from_secs(30);
/// How long a connection to a node on this machine may take.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// What a process may be to a folder.
#[derive(Debug, Clone)]
pub enum Role {
    /// It becomes the node if nobody is.
    Embedded,
    /// It starts a process of its own for the node if nobody is, with this command.
    Detached(Vec<String>),
    /// It never becomes the node, and never makes a folder.
    ClientOnly,
}

/// Finds the node of a folder. The handle of one `laminar.open`.
pub struct FolderConnector {
    path: PathBuf,
    role: Role,
    config: NodeConfig,
    machines: Arc<dyn ApplicationMachines>,
    /// Whether this handle counts among the users of a node in this process.
    uses: AtomicBool,
    closed: AtomicBool,
    starts: Starts,
}

impl FolderConnector {
    /// A handle on a folder. Nothing is opened before the first call.
    pub fn new(path: &Path, role: Role, config: NodeConfig, machines: Arc<dyn ApplicationMachines>) -> Self {
        Self {
            path: without_links(path),
            role,
            config,
            machines,
            uses: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            starts: Starts::default(),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the handle. A node in this process ends with its last handle.
    ///
    /// # Errors
    ///
    /// Unavailable: what was written last could not be synced, or the node did not stop within its `close_timeout`. It goes
    /// on stopping then, and the folder stays locked until it has.
    pub async fn close(&self) -> Result<(), Failure> {
        self.closed.store(true, Ordering::SeqCst);
        if !self.uses.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        running::close(&self.path, self.config.close_timeout).await
    }

    /// The node, if it runs in this process.
    pub fn local_node(&self) -> Option<Node> {
        running::with(&self.path, |running| running.node.clone())
    }

    async fn find(&self, cluster: Option<&str>) -> Result<Connected, Failure> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Failure::invalid(format!(
                "{}: the handle is closed; open it again",
                self.path.display()
            )));
        }
        let _turn = running::turn(&self.path).await;
        if let Some(connected) = self.running_here() {
            return Ok(connected);
        }
        let (path, cluster) = (self.path.clone(), cluster.map(str::to_owned));
        match &self.role {
            Role::Detached(command) => {
                if blocking(move || Folder::is_free(&path, cluster.as_deref())).await?? {
                    return self.start_node(command).await;
                }
            }
            Role::Embedded => {
                if let Some(folder) = blocking(move || Folder::take(&path, cluster.as_deref())).await?? {
                    return self.become_node(folder).await;
                }
            }
            Role::ClientOnly => {
                // A node that was killed leaves its address behind, and another program may listen there by now: it must
                // not be sent anything.
                if !blocking(move || Folder::has_node(&path, cluster.as_deref())).await?? {
                    return Err(self.no_node());
                }
            }
        }
        self.other_process().await
    }

    fn running_here(&self) -> Option<Connected> {
        running::with(&self.path, |found| {
            if found.node.is_stopping() {
                return None;
            }
            if !self.uses.swap(true, Ordering::SeqCst) {
                found.users += 1;
            }
            Some(local(found))
        })
        .flatten()
    }

    async fn become_node(&self, folder: Folder) -> Result<Connected, Failure> {
        let node = Node::open(folder, self.config.clone(), Arc::clone(&self.machines)).await?;
        let endpoint = match serve(&node).await {
            Ok(endpoint) => endpoint,
            Err(failure) => {
                drop(node.shutdown().await);
                return Err(failure);
            }
        };
        let running = Running { node, endpoint, users: 1 };
        let connected = local(&running);
        self.uses.store(true, Ordering::SeqCst);
        running::keep(&self.path, running);
        Ok(connected)
    }

    fn no_node(&self) -> Failure {
        let what = "no node runs in this folder; open it with laminar.open first";
        Failure::unavailable(format!("{}: {what}", self.path.display()))
    }

    fn busy(&self) -> Failure {
        let what = "another process is opening or closing it; try again";
        Failure::unavailable(format!("{}: {what}", self.path.display()))
    }

    async fn other_process(&self) -> Result<Connected, Failure> {
        let path = self.path.clone();
        let endpoint = blocking(move || Endpoint::read(&path)).await??;
        let Some(endpoint) = endpoint else {
            return Err(self.busy());
        };
        let transport = match tokio::time::timeout(CONNECT_WAIT, self.transport(&endpoint)).await {
            Ok(connected) => connected?,
            Err(_) => {
                let message = format!(
                    "{}: process {} holds it and did not take a connection within {CONNECT_WAIT:?}; it may be stopped",
                    self.path.display(),
                    endpoint.pid
                );
                return Err(Failure::new(ErrorClass::Network, message).with("pid", endpoint.pid));
            }
        };
        self.starts.succeed();
        let id = ConnectionId(format!("{} of process {}", endpoint.address, endpoint.pid));
        Ok(Connected { transport, id, address: endpoint.address })
    }

    /// Over the socket in the folder; over the port where that cannot be had.
    async fn transport(&self, endpoint: &Endpoint) -> Result<Transport, Failure> {
        let (secret, crew) = (Some(endpoint.secret.as_str()), self.config.crew.as_ref());
        if let Some(socket) = endpoint.socket_path(&self.path)
            && let Ok(transport) =
                Transport::remote(&format!("unix:{}", socket.display()), secret, crew).await
        {
            return Ok(transport);
        }
        Transport::remote(&endpoint.address, secret, crew).await
    }

    /// Starts a process for the node, and waits until it answers.
    async fn start_node(&self, command: &[String]) -> Result<Connected, Failure> {
        self.starts.check(Instant::now())?;
        let before = Endpoint::read(&self.path).ok().flatten();
        let shown = command.join(" ");
        let command = command.to_vec();
        let mut ending = match blocking(move || detached::start(&command)).await? {
            Ok(ending) => ending,
            Err(error) => {
                let what = format!("the node's process could not be started ({shown}): {error}");
                return Err(self.starts.fail(Failure::unavailable(what), Instant::now()));
            }
        };
        let until = Instant::now() + START_WAIT;
        loop {
            let now = Endpoint::read(&self.path).ok().flatten();
            if now.is_some() && now != before {
                match self.other_process().await {
                    Ok(connected) => return Ok(connected),
                    Err(failure) if Instant::now() >= until => return Err(failure),
                    Err(_) => {}
                }
            }
            match ending.try_recv() {
                // Whoever calls asks again at once, and finds the winner, or that the lock was held for a moment only.
                Ok(ended) if ended.is_not_the_node() => return Err(self.busy()),
                Ok(ended) => return Err(self.starts.fail(ended.failure(&shown), Instant::now())),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Closed) => {
                    return Err(Failure::internal("waiting for the node's process ended; report it"));
                }
            }
            if Instant::now() >= until {
                let what = format!("the node's process did not answer within {START_WAIT:?} ({shown})");
                return Err(self.starts.fail(Failure::unavailable(what), Instant::now()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The path of a folder without links, also of one that is not there yet: a folder has one name in this process.
fn without_links(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = path.ancestors().find_map(|there| Some((there.canonicalize().ok()?, there)));
    match real.and_then(|(real, there)| Some((real, path.strip_prefix(there).ok()?))) {
        Some((real, rest)) if !rest.as_os_str().is_empty() => real.join(rest),
        Some((real, _)) => real,
        None => path,
    }
}

fn local(running: &Running) -> Connected {
    let endpoint = &running.endpoint;
    Connected {
        transport: Transport::Local(Arc::new(running.node.clone())),
        id: ConnectionId(format!("this process, epoch {}", endpoint.folder_epoch)),
        address: endpoint.address.clone(),
    }
}

impl Connector for FolderConnector {
    fn connect<'a>(
        &'a self,
        _seen: Option<&ConnectionId>,
        cluster: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Connected, Failure>> {
        Box::pin(self.find(cluster))
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn holder_pid(&self) -> Option<u32> {
        Endpoint::read(&self.path).ok().flatten().map(|endpoint| endpoint.pid)
    }
}

impl std::fmt::Debug for FolderConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FolderConnector")
            .field("path", &self.path)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Failure::internal("work on the folder ended unexpectedly; report it"))
}
