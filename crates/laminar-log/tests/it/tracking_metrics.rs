//! Every figure goes out under the name that the document gives it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laminar_core::ids::{Epoch, LogIndex, NodeId, OwnerEpoch, PartitionId};
use laminar_log::PartitionLogIndex;
use laminar_log::dispatcher::{DispatcherConfig, PartitionDispatcher, PartitionLimits, PauseReason};
use laminar_log::metrics::{GroupFigures, describe, publish, record_fsync, record_fsync_retry};
use laminar_log::tracking::{
    AckPolicy, MasterPolicy, PartitionDescriptor, SegmentedAckTracker, SegmentedWatermarks,
};
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::dispatcher_support::{ManualClock, append, entry};

/// Keeps the last value of everything, as `name{label=value,...}`.
#[derive(Default)]
struct Kept {
    numbers: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    samples: Arc<Samples>,
    described: Mutex<BTreeSet<String>>,
}

#[derive(Default)]
struct Samples(Mutex<Vec<f64>>);

impl HistogramFn for Samples {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

fn name(key: &Key) -> String {
    let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl Recorder for Kept {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned());
    }
    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned());
    }
    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned());
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.numbers.lock().unwrap().entry(name(key)).or_default().clone())
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.gauges.lock().unwrap().entry(name(key)).or_default().clone())
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        assert_eq!(key.name(), "segmented_fsync_seconds");
        Histogram::from_arc(self.samples.clone())
    }
}

impl Kept {
    fn gauge(&self, name: &str) -> f64 {
        let gauges = self.gauges.lock().unwrap();
        let bits = gauges.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", gauges.keys()));
        f64::from_bits(bits.load(Ordering::Relaxed))
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.numbers.lock().unwrap();
        let count = counters.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", counters.keys()));
        count.load(Ordering::Relaxed)
    }
}

#[test]
fn figures_go_out_under_the_names_of_the_document() {
    let (p, clock, mut marks) =
        (PartitionId(7), Arc::new(ManualClock::default()), SegmentedWatermarks::new());
    let limits = PartitionLimits { ops_max: 2, ..PartitionLimits::default() };
    let config = DispatcherConfig { partition: limits, ..DispatcherConfig::default() };
    let dispatcher = PartitionDispatcher::new(config, clock.clone(), Vec::new()).unwrap();
    let acks = SegmentedAckTracker::new([NodeId(1)].into(), AckPolicy::Majority);
    marks.accepted(p, PartitionLogIndex(3), LogIndex(9));
    marks.decided(LogIndex(9));
    marks.segmented_durable(LogIndex(9));
    marks.applied(p, PartitionLogIndex(2), LogIndex(9));
    dispatcher.enqueued(p, 2, 84, LogIndex(9));
    clock.advance_ms(12);
    assert!(dispatcher.admit(&entry(vec![append(7, 1)])).is_err());
    assert!(dispatcher.readmit(&entry(vec![append(7, 1)])).is_err());
    dispatcher.set_paused(p, PauseReason::LogFailed("no space".to_owned()));
    let owner = Some(OwnerEpoch { node_id: NodeId(1), epoch: Epoch::FIRST });
    let descriptor =
        PartitionDescriptor::gather(p, owner, &MasterPolicy::HashOfMembership, &marks, &acks, &dispatcher);
    let figures = GroupFigures {
        group: 2,
        leader: Some(NodeId(1)),
        term: 5,
        segmented_durable: marks.segmented_durable_index().0,
        truncation_floor: marks.truncation_floor().0,
        dispatcher: dispatcher.stats(),
    };
    let kept = Kept::default();
    metrics::with_local_recorder(&kept, || {
        describe();
        publish(&[descriptor.unwrap()], &figures);
        record_fsync(Duration::from_micros(250));
        record_fsync_retry();
    });
    for (name, value) in [
        ("partition_enqueued_ops", 2.0),
        ("partition_enqueued_bytes", 84.0),
        ("partition_backlog_age_ms", 12.0),
        ("partition_durable_index", 3.0),
        ("partition_applied_index", 2.0),
        ("partition_applied_global", 9.0),
        ("partition_admission_state", 4.0),
        ("partition_master", 1.0),
        ("partition_epoch", 1.0),
    ] {
        assert_eq!(kept.gauge(&format!("{name}{{group=2,partition=7}}")), value, "{name}");
    }
    assert_eq!((kept.gauge("segmented_leader{group=2}"), kept.gauge("segmented_term{group=2}")), (1.0, 5.0));
    assert_eq!(kept.gauge("segmented_durable_index{group=2}"), 9.0);
    assert_eq!(kept.gauge("segmented_truncation_floor{group=2}"), 8.0);
    assert_eq!(kept.gauge("dispatcher_partitions{group=2,state=paused}"), 1.0);
    assert_eq!(kept.counter("dispatcher_admission_rejects{group=2,limit=log.partition_ops_max}"), 2);
    assert_eq!(kept.counter("dispatcher_admission_retries{group=2}"), 1);
    assert_eq!(kept.counter("dispatcher_admitted{group=2}"), 0);
    assert_eq!(kept.counter("dispatcher_transitions{group=2,state=paused}"), 1);
    assert_eq!(kept.counter("segmented_fsync_retries{}"), 1);
    assert_eq!(*kept.samples.0.lock().unwrap(), [0.00025]);
    // Whatever is published is described too.
    let described = kept.described.lock().unwrap();
    let published: BTreeSet<String> =
        kept.gauges.lock().unwrap().keys().chain(kept.numbers.lock().unwrap().keys()).cloned().collect();
    for name in published {
        let name = name.split('{').next().unwrap();
        assert!(described.contains(name), "{name}");
    }
}
