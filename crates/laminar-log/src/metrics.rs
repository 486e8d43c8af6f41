//! The figures of the log, under the names that the design gives them.
//!
//! They go out through the `metrics` facade: whoever embeds laminar chooses where they end. [`publish`] sets gauges
//! from time to time, so that a record costs nothing here; only a sync of the segmented log is told at once.

use std::time::Duration;

use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use laminar_core::ids::NodeId;

use crate::dispatcher::{AdmissionState, DispatcherStats};
use crate::tracking::PartitionDescriptor;

/// Gauge by partition: records accepted and not applied.
pub const PARTITION_ENQUEUED_OPS: &str = "partition_enqueued_ops";
/// Gauge by partition: their bytes.
pub const PARTITION_ENQUEUED_BYTES: &str = "partition_enqueued_bytes";
/// Gauge by partition: the age of the oldest of them, in milliseconds.
pub const PARTITION_BACKLOG_AGE_MS: &str = "partition_backlog_age_ms";
/// Gauge by partition: the last record on this disk.
pub const PARTITION_DURABLE_INDEX: &str = "partition_durable_index";
/// Gauge by partition: the last record applied.
pub const PARTITION_APPLIED_INDEX: &str = "partition_applied_index";
/// Gauge by partition: the raft index that it came from.
pub const PARTITION_APPLIED_GLOBAL: &str = "partition_applied_global";
/// Gauge by partition: 0 open, 1 throttled, 2 closed, 3 frozen, 4 paused.
pub const PARTITION_ADMISSION_STATE: &str = "partition_admission_state";
/// Gauge by partition: its master; 0 for nobody.
pub const PARTITION_MASTER: &str = "partition_master";
/// Gauge by partition: its epoch; 0 if nobody has owned it.
pub const PARTITION_EPOCH: &str = "partition_epoch";
/// Counter by partition: records that were tried again because their machine did not apply them.
pub const PARTITION_APPLY_RETRIES: &str = "partition_apply_retries";
/// Counter by partition: how often it stopped because a record could not be applied.
pub const PARTITION_PAUSES: &str = "partition_pauses";
/// Histogram: how long a sync of the segmented log took, in seconds.
pub const SEGMENTED_FSYNC_SECONDS: &str = "segmented_fsync_seconds";
/// Counter: how often a failed sync was made good by rewriting the tail and syncing that (LOG-6).
pub const SEGMENTED_FSYNC_RETRIES: &str = "segmented_fsync_retries";
/// Gauge: the last entry that the segmented log has synced.
pub const SEGMENTED_DURABLE_INDEX: &str = "segmented_durable_index";
/// Gauge: the segmented log may be truncated up to here.
pub const SEGMENTED_TRUNCATION_FLOOR: &str = "segmented_truncation_floor";
/// Gauge: the leader of the group; 0 while there is none.
pub const SEGMENTED_LEADER: &str = "segmented_leader";
/// Gauge: the term of the group.
pub const SEGMENTED_TERM: &str = "segmented_term";
/// Counter by limit: entries that were not admitted.
pub const DISPATCHER_ADMISSION_REJECTS: &str = "dispatcher_admission_rejects";
/// Counter: entries that were tried again after a refusal.
pub const DISPATCHER_ADMISSION_RETRIES: &str = "dispatcher_admission_retries";
/// Counter: entries admitted.
pub const DISPATCHER_ADMITTED: &str = "dispatcher_admitted";
/// Counter by state: how often a partition came into it.
pub const DISPATCHER_TRANSITIONS: &str = "dispatcher_transitions";
/// Gauge by state: how many partitions are in it.
pub const DISPATCHER_PARTITIONS: &str = "dispatcher_partitions";

/// What the group knows of itself, beside its partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupFigures {
    /// Told apart from other groups of the process by this label.
    pub group: u32,
    /// The leader, if there is one.
    pub leader: Option<NodeId>,
    /// The term.
    pub term: u64,
    /// The last entry that the segmented log has synced.
    pub segmented_durable: u64,
    /// How far the segmented log may be truncated.
    pub truncation_floor: u64,
    /// What the dispatcher did.
    pub dispatcher: DispatcherStats,
}

/// Tells the recorder what each figure means. To be called once, after a recorder is installed.
pub fn describe() {
    describe_gauge!(PARTITION_ENQUEUED_OPS, Unit::Count, "records accepted and not applied");
    describe_gauge!(PARTITION_ENQUEUED_BYTES, Unit::Bytes, "bytes accepted and not applied");
    describe_gauge!(PARTITION_BACKLOG_AGE_MS, Unit::Milliseconds, "age of the oldest record not applied");
    describe_counter!(PARTITION_APPLY_RETRIES, Unit::Count, "records tried again");
    describe_counter!(PARTITION_PAUSES, Unit::Count, "stops at a record that cannot be applied");
    describe_gauge!(PARTITION_DURABLE_INDEX, "last record on this disk");
    describe_gauge!(PARTITION_APPLIED_INDEX, "last record applied");
    describe_gauge!(PARTITION_APPLIED_GLOBAL, "raft index of the last record applied");
    describe_gauge!(PARTITION_ADMISSION_STATE, "0 open, 1 throttled, 2 closed, 3 frozen, 4 paused");
    describe_gauge!(PARTITION_MASTER, "master node, 0 for nobody");
    describe_gauge!(PARTITION_EPOCH, "epoch, 0 if never owned");
    describe_histogram!(SEGMENTED_FSYNC_SECONDS, Unit::Seconds, "time of one sync of the segmented log");
    describe_counter!(SEGMENTED_FSYNC_RETRIES, Unit::Count, "failed syncs made good by rewriting the tail");
    describe_gauge!(SEGMENTED_DURABLE_INDEX, "last entry synced");
    describe_gauge!(SEGMENTED_TRUNCATION_FLOOR, "the log may be truncated up to this entry");
    describe_gauge!(SEGMENTED_LEADER, "leader node, 0 while there is none");
    describe_gauge!(SEGMENTED_TERM, "term of the group");
    describe_counter!(DISPATCHER_ADMISSION_REJECTS, Unit::Count, "entries not admitted, by limit");
    describe_counter!(DISPATCHER_ADMISSION_RETRIES, Unit::Count, "entries tried again after a refusal");
    describe_counter!(DISPATCHER_ADMITTED, Unit::Count, "entries admitted");
    describe_counter!(DISPATCHER_TRANSITIONS, Unit::Count, "changes of admission state, by the new state");
    describe_gauge!(DISPATCHER_PARTITIONS, Unit::Count, "partitions in each admission state");
}

/// A sync of the segmented log took this long.
pub fn record_fsync(time: Duration) {
    histogram!(SEGMENTED_FSYNC_SECONDS).record(time);
}

/// A failed sync was made good.
pub fn record_fsync_retry() {
    counter!(SEGMENTED_FSYNC_RETRIES).increment(1);
}

/// Sets every gauge and counter from what is known now. To be called every few seconds.
pub fn publish(partitions: &[PartitionDescriptor], figures: &GroupFigures) {
    let group = figures.group.to_string();
    for descriptor in partitions {
        publish_partition(descriptor, &group);
    }
    gauge!(SEGMENTED_LEADER, "group" => group.clone()).set(figures.leader.map_or(0.0, |node| number(node.0)));
    gauge!(SEGMENTED_TERM, "group" => group.clone()).set(number(figures.term));
    gauge!(SEGMENTED_DURABLE_INDEX, "group" => group.clone()).set(number(figures.segmented_durable));
    gauge!(SEGMENTED_TRUNCATION_FLOOR, "group" => group.clone()).set(number(figures.truncation_floor));
    for state in AdmissionState::ALL {
        let count = partitions.iter().filter(|descriptor| descriptor.admission.state == state).count();
        let labels = [("group", group.clone()), ("state", state.as_str().to_owned())];
        gauge!(DISPATCHER_PARTITIONS, &labels).set(number(count as u64));
    }
    publish_dispatcher(&figures.dispatcher, &group);
}

fn publish_partition(descriptor: &PartitionDescriptor, group: &str) {
    let labels = [("group", group.to_owned()), ("partition", descriptor.partition.to_string())];
    let (manifest, admission) = (&descriptor.manifest, &descriptor.admission);
    let age_ms = admission.backlog_age.as_secs_f64() * 1000.0;
    gauge!(PARTITION_ENQUEUED_OPS, &labels).set(number(admission.backlog_ops));
    gauge!(PARTITION_ENQUEUED_BYTES, &labels).set(number(admission.backlog_bytes));
    gauge!(PARTITION_BACKLOG_AGE_MS, &labels).set(age_ms);
    gauge!(PARTITION_DURABLE_INDEX, &labels).set(number(manifest.durable().0));
    gauge!(PARTITION_APPLIED_INDEX, &labels).set(number(manifest.applied().0));
    gauge!(PARTITION_APPLIED_GLOBAL, &labels).set(number(manifest.applied_global().0));
    gauge!(PARTITION_ADMISSION_STATE, &labels).set(f64::from(admission.state.number()));
    gauge!(PARTITION_MASTER, &labels).set(descriptor.master.map_or(0.0, |node| number(node.0)));
    gauge!(PARTITION_EPOCH, &labels).set(descriptor.owner.map_or(0.0, |owner| number(owner.epoch.get())));
}

fn publish_dispatcher(stats: &DispatcherStats, group: &str) {
    counter!(DISPATCHER_ADMITTED, "group" => group.to_owned()).absolute(stats.admitted);
    counter!(DISPATCHER_ADMISSION_RETRIES, "group" => group.to_owned()).absolute(stats.retries);
    for (limit, count) in &stats.rejects {
        let labels = [("group", group.to_owned()), ("limit", limit.clone())];
        counter!(DISPATCHER_ADMISSION_REJECTS, &labels).absolute(*count);
    }
    for (state, count) in &stats.transitions {
        let labels = [("group", group.to_owned()), ("state", state.as_str().to_owned())];
        counter!(DISPATCHER_TRANSITIONS, &labels).absolute(*count);
    }
}

/// Gauges are floats: indices are exact up to 2^53.
fn number(value: u64) -> f64 {
    value as f64
}
