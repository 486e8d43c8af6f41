//! What others may read of a partition.

use laminar_core::ids::{LogIndex, NodeId, OwnerEpoch, PartitionId};

use super::acks::{AckView, SegmentedAckTracker};
use super::manifest::PartitionManifest;
use super::master::MasterPolicy;
use super::watermarks::SegmentedWatermarks;
use crate::dispatcher::{AdmissionView, PartitionDispatcher};
use crate::log_id::PartitionLogIndex;

/// One partition at one moment: who has it, how far it is, and whether it takes more.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionDescriptor {
    /// Which partition.
    pub partition: PartitionId,
    /// Who owns it and since which epoch, as the log says it.
    pub owner: Option<OwnerEpoch>,
    /// Its master.
    pub master: Option<NodeId>,
    /// How far it is (LOG-1).
    pub manifest: PartitionManifest,
    /// The last record that its own log has synced.
    pub synced: PartitionLogIndex,
    /// The raft index up to which every record of it is applied; an idle partition is as far as the group.
    pub applied_through: LogIndex,
    /// The lowest raft index that it needs, if anything is outstanding (LOG-5).
    pub required: Option<LogIndex>,
    /// Its acknowledgements.
    pub acks: AckView,
    /// Whether it takes appends, and what is queued.
    pub admission: AdmissionView,
}

impl PartitionDescriptor {
    /// Gathers what each part knows of a partition, or `None` if the watermarks do not know it.
    pub fn gather(
        partition: PartitionId,
        owner: Option<OwnerEpoch>,
        master: &MasterPolicy,
        watermarks: &SegmentedWatermarks,
        acks: &SegmentedAckTracker,
        dispatcher: &PartitionDispatcher,
    ) -> Option<Self> {
        Some(Self {
            partition,
            owner,
            master: master.master(partition, acks.members()),
            manifest: watermarks.manifest(partition)?,
            synced: watermarks.synced_index(partition)?,
            applied_through: watermarks.applied_through(partition)?,
            required: watermarks.required(partition),
            acks: acks.view(partition),
            admission: dispatcher.view(partition),
        })
    }
}
