//! Ending a replica's partitions, so that their logs can be opened again in this process.

use super::SegmentedStateMachine;

impl SegmentedStateMachine {
    /// Ends every partition: nothing more is applied, workers and repairs end, whoever waits for a reply is told what
    /// was decided, and the partitions' logs are closed, but for those that somebody still reads. To be called when
    /// nothing is applied any more and no snapshot is being built; the replica is of no use afterwards.
    pub fn close(&self) {
        let partitions: Vec<_> = self.partitions().values().cloned().collect();
        for partition in partitions {
            drop(partition.close(&self.inner.shared));
        }
    }
}
