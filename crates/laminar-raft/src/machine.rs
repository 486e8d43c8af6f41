//! openraft applies entries, builds snapshots and installs them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use laminar_log::{LogError, LogId, Membership, Runtime, SegmentedStateMachine, SnapshotPieces};
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot, SnapshotMeta};
use openraft::{AsyncRuntime, OptionalSend, RaftSnapshotBuilder, StoredMembership};

use crate::convert::{from_log_id, to_io, to_log_id};
use crate::membership::{decode_membership, encode_membership};
use crate::types::{CommittedLeaderId, Data, DataConfig, Node, RaftLogId, RaftPayload, Response};

/// The first wait before a snapshot that failed is tried again; it doubles with each.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

type Meta = SnapshotMeta<CommittedLeaderId, u64, Node>;
type DataSnapshot = Snapshot<CommittedLeaderId, u64, Node, SnapshotData>;
type Members = StoredMembership<CommittedLeaderId, u64, Node>;

/// The state machine of a data group, as openraft wants it.
#[derive(Debug, Clone)]
pub struct RaftMachine {
    machine: SegmentedStateMachine,
    runtime: Arc<dyn Runtime>,
}

/// A snapshot, to be read piece by piece: on its way from a replica to another.
pub struct SnapshotData(pub Box<dyn SnapshotPieces>);

impl fmt::Debug for SnapshotData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnapshotData")
    }
}

impl RaftMachine {
    /// Over a machine that was opened. `runtime` is the one that it runs on.
    pub fn new(machine: SegmentedStateMachine, runtime: Arc<dyn Runtime>) -> Self {
        Self { machine, runtime }
    }

    /// The machine below.
    pub fn machine(&self) -> &SegmentedStateMachine {
        &self.machine
    }

    fn newest(&self) -> Result<Option<DataSnapshot>, LogError> {
        let Some((log_id, members, stream)) = self.machine.newest_snapshot()? else { return Ok(None) };
        let meta = Meta { last_log_id: Some(from_log_id(log_id)), last_membership: stored_members(&members) };
        Ok(Some(Snapshot { meta, snapshot: SnapshotData(Box::new(stream)) }))
    }
}

fn stored_members(members: &Membership) -> Members {
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

    /// Decides the entries. Replies to proposals are sent by the partitions, when they have applied them.
    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<DataConfig<R>>>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let id: LogId = to_log_id(&entry.log_id);
            match entry.payload {
                RaftPayload::Normal(Data(bytes)) => {
                    let reply = responder.map(|responder| {
                        let send = move |verdict| responder.send(Response::Verdict(verdict));
                        Box::new(send) as laminar_log::Reply
                    });
                    self.machine.apply(id, &bytes, reply).map_err(to_io)?;
                    continue;
                }
                RaftPayload::Blank => self.machine.apply_blank(id),
                RaftPayload::Membership(members) => {
                    self.machine.apply_membership(id, encode_membership(&members));
                }
            }
            if let Some(responder) = responder {
                responder.send(Response::Done);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &Meta, mut snapshot: SnapshotData) -> io::Result<()> {
        let log_id = meta.last_log_id.as_ref().map(to_log_id).unwrap_or_default();
        self.machine.install(log_id, snapshot.0.as_mut()).map_err(to_io)
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<DataSnapshot>> {
        self.newest().map_err(to_io)
    }
}

impl<R: AsyncRuntime> RaftSnapshotBuilder<DataConfig<R>> for RaftMachine {
    type SnapshotData = SnapshotData;

    /// Builds a snapshot. One that fails is tried again, because openraft would stop the group; the one before stays
    /// until then.
    async fn build_snapshot(&mut self) -> io::Result<DataSnapshot> {
        let mut wait = RETRY_MIN;
        loop {
            let built = match self.machine.begin_snapshot() {
                Ok(Some(build)) => build.run().await.and_then(|_| self.newest()),
                Ok(None) => {
                    let meta = Meta { last_log_id: None, last_membership: Members::default() };
                    return Ok(Snapshot { meta, snapshot: SnapshotData(Box::new(Nothing)) });
                }
                Err(error) => Err(error),
            };
            match built {
                Ok(Some(snapshot)) => return Ok(snapshot),
                Ok(None) => tracing::warn!("the snapshot that was built is gone; it is built again"),
                Err(error) => {
                    tracing::warn!(%error, "the snapshot failed; the one before stays, and it is tried again")
                }
            }
            self.runtime.sleep(wait).await;
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
