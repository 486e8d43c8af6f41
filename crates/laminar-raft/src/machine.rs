//! openraft applies entries, builds snapshots and installs them.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use laminar_log::{LogError, LogId, Membership, Runtime, SegmentedStateMachine, SnapshotPieces};
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot, SnapshotMeta};
use openraft::{AsyncRuntime, OptionalSend, RaftSnapshotBuilder, StoredMembership};

use crate::convert::{from_log_id, to_io, to_log_id};
use crate::late::late_verdict;
use crate::membership::{decode_membership, encode_membership};
use crate::retire::Retirement;
use crate::source::LogSource;
use crate::types::{CommittedLeaderId, Data, DataConfig, Node, RaftLogId, RaftPayload, Response};

/// The first wait before a snapshot that failed is tried again; it doubles with each.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

type Meta = SnapshotMeta<CommittedLeaderId, u64, Node>;
/// A snapshot of a data group, with what openraft knows of it.
pub type DataSnapshot = Snapshot<CommittedLeaderId, u64, Node, SnapshotData>;
type Members = StoredMembership<CommittedLeaderId, u64, Node>;

/// The state machine of a data group, as openraft wants it.
#[derive(Debug, Clone)]
pub struct RaftMachine {
    machine: SegmentedStateMachine,
    runtime: Arc<dyn Runtime>,
    log: LogSource,
    retirement: Retirement,
    faults: SnapshotFaults,
}

/// What went wrong with snapshots. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct SnapshotFaults(Arc<Mutex<SnapshotFault>>);

#[derive(Debug, Clone, Default)]
pub(crate) struct SnapshotFault {
    /// How many could not be built.
    pub(crate) failures: u64,
    /// Why the last one could not; none once another was.
    pub(crate) last: Option<String>,
}

impl SnapshotFaults {
    pub(crate) fn get(&self) -> SnapshotFault {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn failed(&self, error: &LogError) {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults.failures += 1;
        faults.last = Some(error.to_string());
    }

    fn built(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last = None;
    }
}

/// A snapshot, to be read piece by piece: on its way from a replica to another.
pub struct SnapshotData(pub Box<dyn SnapshotPieces>);

impl fmt::Debug for SnapshotData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnapshotData")
    }
}

impl RaftMachine {
    /// Over a machine that was opened. `runtime` is the one that it runs on, and `log` has the entries that it applies.
    pub fn new(machine: SegmentedStateMachine, runtime: Arc<dyn Runtime>, log: LogSource) -> Self {
        let (retirement, faults) = (Retirement::default(), SnapshotFaults::default());
        Self { machine, runtime, log, retirement, faults }
    }

    /// Tells what goes wrong with snapshots here.
    pub(crate) fn with_faults(self, faults: SnapshotFaults) -> Self {
        Self { faults, ..self }
    }

    /// The machine below.
    pub fn machine(&self) -> &SegmentedStateMachine {
        &self.machine
    }

    /// Ends what it does on its own, and tells what it could not do.
    pub(crate) fn retirement(&self) -> &Retirement {
        &self.retirement
    }

    fn newest(&self) -> Result<Option<DataSnapshot>, LogError> {
        let Some((log_id, members, stream)) = self.machine.newest_snapshot()? else { return Ok(None) };
        let meta = Meta { last_log_id: Some(from_log_id(log_id)), last_membership: stored_members(&members) };
        Ok(Some(Snapshot { meta, snapshot: SnapshotData(Box::new(stream)) }))
    }

    /// Decides an entry; the answer is its verdict, or the promise of one.
    fn decide(&self, id: LogId, bytes: &bytes::Bytes) -> Result<Response, LogError> {
        let (sender, late) = late_verdict();
        self.machine.apply(id, bytes, Some(Box::new(move |verdict| sender.send(verdict))))?;
        Ok(late.take().map_or_else(|| Response::Later(late), Response::Verdict))
    }

    fn failed(&self, error: LogError) -> io::Error {
        self.retirement.failed(error.clone());
        to_io(error)
    }
}

pub(crate) fn stored_members(members: &Membership) -> Members {
    let decoded = decode_membership(&members.bytes).unwrap_or_default();
    StoredMembership::new(members.log_id.map(from_log_id), decoded)
}

impl<R: AsyncRuntime> RaftStateMachine<DataConfig<R>> for RaftMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<(Option<RaftLogId>, Members)> {
        let (applied, members) = self.machine.applied_state();
        Ok((applied.map(from_log_id), stored_members(&members)))
    }

    /// Decides the entries. openraft is answered at once; verdicts follow when the partitions have applied them.
    ///
    /// openraft applies what a quorum has on disk, and this replica need not be in it: each entry is waited for
    /// (LOG-1). What was found durable is remembered for this call only, because a later one may bring other entries
    /// in the place of those that were there; within one call all entries are committed and stay.
    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<DataConfig<R>>>> + Unpin + OptionalSend,
    {
        let mut durable = None;
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let id: LogId = to_log_id(&entry.log_id);
            if durable < Some(id.index.0) {
                durable = Some(self.log.until_durable(id.index.0).await?);
            }
            let response = match entry.payload {
                RaftPayload::Normal(Data(bytes)) if responder.is_some() => {
                    self.decide(id, &bytes).map_err(|error| self.failed(error))?
                }
                RaftPayload::Normal(Data(bytes)) => {
                    self.machine.apply(id, &bytes, None).map_err(|error| self.failed(error))?;
                    Response::Done
                }
                RaftPayload::Blank => {
                    self.machine.apply_blank(id);
                    Response::Done
                }
                RaftPayload::Membership(members) => {
                    self.machine.apply_membership(id, encode_membership(&members));
                    Response::Done
                }
            };
            if let Some(responder) = responder {
                responder.send(response);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &Meta, mut snapshot: SnapshotData) -> io::Result<()> {
        let log_id = meta.last_log_id.as_ref().map(to_log_id).unwrap_or_default();
        // The machine may be half replaced if this fails: it has to be opened again.
        self.machine.install(log_id, snapshot.0.as_mut()).map_err(|error| self.failed(error))
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<DataSnapshot>> {
        self.newest().map_err(|error| self.failed(error))
    }
}

impl<R: AsyncRuntime> RaftSnapshotBuilder<DataConfig<R>> for RaftMachine {
    type SnapshotData = SnapshotData;

    /// Builds a snapshot. One that fails is tried again, because openraft would stop the group; the one before stays
    /// until then. Ends when the group does.
    async fn build_snapshot(&mut self) -> io::Result<DataSnapshot> {
        let mut wait = RETRY_MIN;
        loop {
            let retired = || io::Error::new(io::ErrorKind::Interrupted, "the group has ended");
            let run = match self.machine.begin_snapshot() {
                Ok(Some(build)) => self.retirement.unless_retired(build.run()).await.ok_or_else(retired)?,
                Ok(None) => {
                    let meta = Meta { last_log_id: None, last_membership: Members::default() };
                    return Ok(Snapshot { meta, snapshot: SnapshotData(Box::new(Nothing)) });
                }
                Err(error) => Err(error),
            };
            match run.and_then(|_| self.newest()) {
                Ok(Some(snapshot)) => {
                    self.faults.built();
                    return Ok(snapshot);
                }
                Ok(None) => tracing::warn!("the snapshot that was built is gone; it is built again"),
                Err(error) => {
                    self.faults.failed(&error);
                    tracing::warn!(%error, "the snapshot failed; the one before stays, and it is tried again")
                }
            }
            let sleep = self.runtime.sleep(wait);
            self.retirement.unless_retired(sleep).await.ok_or_else(retired)?;
            wait = (wait * 2).min(RETRY_MAX);
        }
    }
}

/// The snapshot of a group that has applied nothing.
struct Nothing;

impl SnapshotPieces for Nothing {
    fn next_piece(&mut self) -> Result<Option<bytes::Bytes>, LogError> {
        Ok(None)
    }
}
