//! One node's part in a data group: the owner of its log, its partitions and openraft.
//!
//! ```text
//!   propose (propose.rs)         handle_append, handle_vote, ... (rpc.rs)      status, descriptor (view.rs)
//!        \                          |                                             |
//!         `------> Life (life.rs): openraft over RaftLog and RaftMachine <--------'
//!                     |   ended by a fault of the storage
//!                     v
//!                  supervise.rs: opens again what failed, and begins the next life
//! ```
//!
//! A handle works through all lives: while the group is started again, proposals get
//! [`NotServing::Rebuilding`], and what was under way [`ProposeError::Unknown`]. A replica whose log was cut when it was
//! opened is kept back until it has caught up (`hold.rs`).

mod config;
mod error;
mod figures;
mod hold;
mod life;
mod propose;
mod purge;
mod read;
mod rpc;
mod supervise;
mod view;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use futures_util::FutureExt;
use laminar_core::ids::{LogIndex, NodeId};
use laminar_log::dispatcher::PartitionDispatcher;
use laminar_log::metrics::record_fsync;
use laminar_log::{LogError, Runtime, SegmentedStateMachine};
use openraft::alias::MutexOf;
use openraft::async_runtime::Mutex as _;
use openraft::errors::{InitializeError, RaftError};
use openraft::network::NetSnapshot;
use openraft::type_config::TypeConfigExt;
use openraft::{AsyncRuntime, Config, RaftNetworkFactory};

pub use self::config::{ReplicaConfig, ReplicaParts, WallClock};
pub(crate) use self::error::leads;
pub use self::error::{NotServing, ProposeError, ReplicaError, RpcRefusal, UnknownReason};
pub use self::propose::Decided;
pub use self::read::ReadIndexError;
pub use self::view::{ReplicaPhase, ReplicaStatus};

use self::figures::Figures;
use self::life::{Life, StartRaft};
use self::propose::{LatestTime, ProposalSender};
use self::supervise::{end_hold_in_time, supervise};
use self::view::Counts;
use crate::blocking::blocking;
use crate::config::raft_config;
use crate::machine::{SnapshotData, SnapshotFaults};
use crate::runtime::OpenraftRuntime;
use crate::source::LogSource;
use crate::types::{DataConfig, Node};

/// One node's part in a data group. Clones are the same replica; when the last one is dropped, the group ends here.
pub struct DataReplica<R: AsyncRuntime> {
    inner: Arc<Inner<R>>,
}

struct Inner<R: AsyncRuntime> {
    parts: ReplicaParts,
    config: ReplicaConfig,
    raft_config: Arc<Config>,
    start_raft: StartRaft<R>,
    runtime: Arc<dyn Runtime>,
    dispatcher: Arc<PartitionDispatcher>,
    source: LogSource,
    machine: RwLock<Option<SegmentedStateMachine>>,
    /// How far machines before this one had decided.
    decided_before: AtomicU64,
    phase: Mutex<Phase<R>>,
    /// Held while lives change: starting again and shutting down do not cross.
    gate: MutexOf<DataConfig<R>, ()>,
    proposals: ProposalSender<R>,
    latest_time: LatestTime,
    counts: Mutex<Counts>,
    snapshot_faults: SnapshotFaults,
    figures: Mutex<Figures>,
}

enum Phase<R: AsyncRuntime> {
    Serving(Arc<Life<R>>),
    Rebuilding,
    Failed(LogError),
    ShutDown,
}

impl<R: AsyncRuntime> DataReplica<R> {
    /// Opens the replica in its folder and lets it take part. On a simulated runtime this must be called inside of it.
    ///
    /// A sole voter leads soon after; others when a quorum is there. What the state machine shows is complete only when
    /// [`ReplicaStatus::recovered`] says so.
    ///
    /// # Errors
    ///
    /// Corrupt, Invalid, Overloaded and Unavailable, as the log and the partitions are opened.
    pub async fn open<N>(parts: ReplicaParts, config: ReplicaConfig, network: N) -> Result<Self, ReplicaError>
    where
        N: RaftNetworkFactory<DataConfig<R>> + Clone,
        N::Network: NetSnapshot<DataConfig<R>, SnapshotData = SnapshotData>,
    {
        config.check()?;
        let raft_config = raft_config(&config.raft)?;
        // One committer serves all groups of the process: the first of them has its syncs told.
        parts.committer.observe_syncs(record_fsync);
        let runtime: Arc<dyn Runtime> = Arc::new(OpenraftRuntime::<R>::new());
        let dispatcher =
            PartitionDispatcher::new(config.dispatcher.clone(), Arc::clone(&runtime), parts.signals.clone())?;
        let node = parts.node.0;
        let start_raft: StartRaft<R> = Box::new(move |config, log, machine| {
            openraft::Raft::build(node, config, network.clone(), log, machine).boxed()
        });
        let (proposals, queue) = DataConfig::<R>::mpsc(config.proposals_max);
        let inner = Arc::new(Inner {
            figures: Mutex::new(Figures::new(config.acks.clone())),
            parts,
            config,
            raft_config,
            start_raft,
            runtime,
            dispatcher: Arc::new(dispatcher),
            source: LogSource::default(),
            machine: RwLock::new(None),
            decided_before: AtomicU64::new(0),
            phase: Mutex::new(Phase::Rebuilding),
            gate: DataConfig::<R>::mutex(()),
            proposals,
            latest_time: LatestTime::default(),
            counts: Mutex::default(),
            snapshot_faults: SnapshotFaults::default(),
        });
        let (store, opened) = inner.open_store().await?;
        inner.source.put(Some(store.clone()));
        let machine = inner.open_machine(&store)?;
        inner.set_machine(machine.clone());
        let life = inner.begin_life(store, &opened, machine).await?;
        end_hold_in_time(&life, inner.config.cut_wait);
        let metrics = life.raft.metrics();
        inner.enter(Phase::Serving(life));
        drop(R::spawn(supervise(Arc::downgrade(&inner), metrics)));
        drop(R::spawn(propose::batch(Arc::downgrade(&inner), queue)));
        drop(R::spawn(figures::tick(Arc::downgrade(&inner))));
        drop(R::spawn(purge::keep_short(Arc::downgrade(&inner))));
        Ok(Self { inner })
    }

    /// Gives a new group its members. To be called on one of them, once.
    ///
    /// # Errors
    ///
    /// Invalid, if the group has members already, or this node is none of them. Unavailable, if the replica does not
    /// serve.
    pub async fn initialize(&self, members: BTreeMap<u64, Node>) -> Result<(), ReplicaError> {
        let life = self.inner.serving()?;
        let node = self.inner.parts.node;
        life.raft.initialize(members).await.map_err(|error| match error {
            RaftError::APIError(InitializeError::NotAllowed(_)) => ReplicaError::Initialized { node },
            RaftError::APIError(error) => ReplicaError::BadMembers { node, source: Box::new(error) },
            RaftError::Fatal(_) => NotServing::Rebuilding.into(),
        })
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.inner.parts.node
    }

    /// The partitions as they are now, to read from. Until [`ReplicaStatus::recovered`] they may lack what was
    /// committed before a restart. To be asked again after a while: a snapshot that could not be installed has it
    /// opened anew.
    pub fn machine(&self) -> SegmentedStateMachine {
        self.inner.machine()
    }

    /// The last entry that this replica has decided, also if it had to open its partitions again since and they are not
    /// there yet. A sole voter has acknowledged nothing above it.
    pub fn decided_index(&self) -> LogIndex {
        let machine = self.inner.machine.read().unwrap_or_else(PoisonError::into_inner);
        let now = machine.as_ref().map_or(LogIndex::NONE, SegmentedStateMachine::decided_index);
        // ORDER: see `set_machine`.
        now.max(LogIndex(self.inner.decided_before.load(Ordering::Relaxed)))
    }

    /// The partitions, to serve reads from: only once everything is there that was committed before the replica was
    /// opened.
    ///
    /// # Errors
    ///
    /// Unavailable, until then.
    pub fn serving_machine(&self) -> Result<SegmentedStateMachine, NotServing> {
        if self.inner.note_recovery() {
            return Ok(self.inner.machine());
        }
        self.inner.serving()?;
        Err(NotServing::Recovering)
    }

    /// Admission.
    pub fn dispatcher(&self) -> &PartitionDispatcher {
        &self.inner.dispatcher
    }

    /// openraft itself, while the replica serves: for what this crate does not offer.
    ///
    /// # Errors
    ///
    /// Unavailable, if it does not.
    pub fn raft(&self) -> Result<crate::types::DataGroup<R, crate::machine::RaftMachine>, NotServing> {
        Ok(self.inner.serving()?.raft.clone())
    }

    /// Has a snapshot built, soon. Returns before it is there.
    ///
    /// # Errors
    ///
    /// Unavailable, if the replica does not serve.
    pub async fn snapshot(&self) -> Result<(), NotServing> {
        let life = self.inner.serving()?;
        life.raft.trigger().snapshot().await.map_err(|_| NotServing::Rebuilding)
    }

    /// Ends the group on this node: nothing is served any more, everything is written, and the files are closed when
    /// this returns.
    ///
    /// # Errors
    ///
    /// Unavailable, if what was written last could not be synced. The files are closed all the same.
    pub async fn shutdown(&self) -> Result<(), LogError> {
        let inner = &self.inner;
        // From here on no other life begins; one that is beginning is waited for.
        let life = inner.leave(Phase::ShutDown);
        let _gate = inner.gate.lock().await;
        let mut flushed = Ok(());
        if let Some(life) = life {
            drop(life.raft.shutdown().await);
            let (store, retirement) = (life.store.clone(), life.retirement.clone());
            inner.end_life(life).await;
            inner.quiet(&retirement).await;
            inner.machine().close();
            flushed = blocking::<R, _, _>(move || store.close()).await.unwrap_or(Ok(()));
        } else if let Some(machine) = inner.machine.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            machine.close();
        }
        flushed
    }
}

impl<R: AsyncRuntime> Inner<R> {
    fn phase(&self) -> MutexGuard<'_, Phase<R>> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life that serves.
    fn serving(&self) -> Result<Arc<Life<R>>, NotServing> {
        match &*self.phase() {
            Phase::Serving(life) => Ok(Arc::clone(life)),
            Phase::Rebuilding => Err(NotServing::Rebuilding),
            Phase::Failed(error) => Err(NotServing::Failed(error.clone())),
            Phase::ShutDown => Err(NotServing::ShutDown),
        }
    }

    /// Stops serving; returns the life that served. A replica that was shut down stays so.
    fn leave(&self, next: Phase<R>) -> Option<Arc<Life<R>>> {
        let mut phase = self.phase();
        if matches!(*phase, Phase::ShutDown) {
            return None;
        }
        match std::mem::replace(&mut *phase, next) {
            Phase::Serving(life) => Some(life),
            _ => None,
        }
    }

    /// Goes over to another phase; false if the replica was shut down meanwhile.
    fn enter(&self, next: Phase<R>) -> bool {
        let mut phase = self.phase();
        let may = !matches!(*phase, Phase::ShutDown);
        if may {
            *phase = next;
        }
        may
    }

    fn machine(&self) -> SegmentedStateMachine {
        let machine = self.machine.read().unwrap_or_else(PoisonError::into_inner);
        machine.clone().expect("it is set before the replica is handed out")
    }

    fn set_machine(&self, machine: SegmentedStateMachine) {
        let mut place = self.machine.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = place.as_ref() {
            let decided = before.decided_index().0;
            // ORDER: the lock of the machine orders it with whoever looks at both.
            self.decided_before.fetch_max(decided, Ordering::Relaxed);
        }
        *place = Some(machine);
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<R: AsyncRuntime> Clone for DataReplica<R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<R: AsyncRuntime> fmt::Debug for DataReplica<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataReplica").field("parts", &self.inner.parts).finish_non_exhaustive()
    }
}
