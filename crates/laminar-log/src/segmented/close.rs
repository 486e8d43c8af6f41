//! Ending a replica's partitions, so that their logs can be opened again in this process.

use super::SegmentedStateMachine;
use crate::partition_log::PartitionLogStore;

impl SegmentedStateMachine {
    /// Ends every partition: nothing more is applied, workers and repairs end, whoever waits for a reply is told what
    /// was decided, and the partitions' logs are closed, also for those who still read. To be called when
    /// nothing is applied any more and no snapshot is being built; the replica is of no use afterwards.
    pub fn close(&self) {
        let partitions: Vec<_> = self.partitions().values().cloned().collect();
        for partition in partitions {
            partition.close(&self.inner.shared).iter().for_each(PartitionLogStore::close);
        }
    }
}
