//! One answer: what was counted, and what is looked up now.

use laminar_core::ids::PartitionId;
use laminar_core::node::NodeState;
use laminar_log::LogId;
use laminar_raft::{ReplicaPhase, ReplicaStatus};
use laminar_rpc::Failure;

use super::page::{Kind, Page};
use crate::clock::wall_ms;
use crate::node::{Node, lock, resident_bytes};

/// What the names of the node mean. Those of the log say it themselves.
const HELP: &[(&str, Kind, &str)] = &[
    ("build_info", Kind::Gauge, "1; the label is the version of laminar"),
    ("node_uptime_seconds", Kind::Gauge, "time since the node was opened"),
    ("node_resident_bytes", Kind::Gauge, "memory of the node's process that is in RAM"),
    ("node_clients", Kind::Gauge, "clients heard lately that keep a detached node"),
    ("node_readers", Kind::Gauge, "reads of one partition under way"),
    ("streams", Kind::Gauge, "streams"),
    ("partitions", Kind::Gauge, "partitions of all streams"),
    ("writers", Kind::Gauge, "runs of writers, by state"),
    (
        "calls_total",
        Kind::Counter,
        "calls answered, by method and outcome: ok, or the class of the error; each append is one",
    ),
    ("appends_total", Kind::Counter, "appends that landed"),
    ("append_duplicates_total", Kind::Counter, "appends that had landed before"),
    ("append_rows_total", Kind::Counter, "rows that landed"),
    ("append_bytes_total", Kind::Counter, "bytes of rows that landed, as they were encoded"),
    ("append_refusals_total", Kind::Counter, "appends refused or failed, by the class of the error"),
    ("append_seconds", Kind::Histogram, "time of an append, from the call to the answer"),
    ("appends_in_flight", Kind::Gauge, "appends under way"),
    (
        "appends_abandoned_total",
        Kind::Counter,
        "appends whose caller went away before the answer; they may have landed",
    ),
    ("read_rows_total", Kind::Counter, "rows sent to readers"),
    ("read_bytes_total", Kind::Counter, "bytes of rows sent to readers; of staged rows only their pointers"),
    ("claims_total", Kind::Counter, "claims that took partitions for a run"),
    ("takeovers_total", Kind::Counter, "claims that took partitions from another run"),
    ("staged_parts_total", Kind::Counter, "parts of appends that came as staged blocks"),
    ("staged_bytes_total", Kind::Counter, "bytes in them"),
    ("staged_blocks_deleted_total", Kind::Counter, "staged blocks deleted because nothing named them"),
    ("raft_serving", Kind::Gauge, "1 while the group serves on this node"),
    ("raft_term", Kind::Gauge, "term of the group"),
    ("raft_leader", Kind::Gauge, "leader of the group, 0 while there is none"),
    ("raft_last_index", Kind::Gauge, "last entry of the group's log"),
    ("raft_durable_index", Kind::Gauge, "last entry on disk"),
    ("raft_committed_index", Kind::Gauge, "last entry committed"),
    ("raft_applied_index", Kind::Gauge, "last entry decided"),
    ("raft_snapshot_index", Kind::Gauge, "last entry in the newest snapshot"),
    ("raft_rebuilds_total", Kind::Counter, "starts of the group after a fault of its storage"),
    ("raft_snapshot_failures_total", Kind::Counter, "snapshots that could not be built"),
    ("partition_info", Kind::Gauge, "1; the labels are the stream and the partition's place in it"),
    ("partition_start_offset", Kind::Gauge, "offset of the first row"),
    ("partition_next_offset", Kind::Gauge, "offset of the next row"),
];

impl Node {
    /// All figures as text, in the format that Prometheus reads.
    ///
    /// # Errors
    ///
    /// Internal, if putting them together failed.
    pub(crate) async fn metrics(&self) -> Result<String, Failure> {
        let node = self.clone();
        // Ten thousand partitions take a while.
        let text = tokio::task::spawn_blocking(move || node.page().text()).await;
        text.map_err(|_| Failure::internal("gathering figures ended unexpectedly; report it"))
    }

    /// Whether the node serves.
    ///
    /// # Errors
    ///
    /// Unavailable, with the reason why it does not.
    pub(crate) fn health(&self) -> Result<(), Failure> {
        if self.is_stopping() {
            return Err(Failure::unavailable("the node is shutting down"));
        }
        let inner = &self.inner;
        for (group, status) in [("metadata", inner.metadata.status().replica), ("data", inner.data.status())]
        {
            if status.phase != ReplicaPhase::Serving || !status.recovered || status.leader.is_none() {
                let fault = status.last_fault.map_or_else(String::new, |fault| format!(" ({fault})"));
                return Err(Failure::unavailable(format!("the {group} group does not serve{fault}")));
            }
        }
        Ok(())
    }

    fn page(&self) -> Page {
        let page = Page::default();
        for (name, kind, help) in HELP {
            page.describe(name, *kind, help);
        }
        ::metrics::with_local_recorder(&page, || {
            laminar_log::metrics::describe();
            self.inner.data.publish();
        });
        self.gather_node(&page);
        self.gather_counted(&page);
        let groups = [("metadata", self.inner.metadata.status().replica), ("data", self.inner.data.status())];
        for (group, status) in &groups {
            gather_group(&page, group, status);
        }
        let retries = groups.iter().map(|(_, status)| status.fsync_retries).sum();
        page.counter(laminar_log::metrics::SEGMENTED_FSYNC_RETRIES, &[], retries);
        self.gather_partitions(&page);
        page
    }

    fn gather_node(&self, page: &Page) {
        let inner = &self.inner;
        page.gauge("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        let up_ms = wall_ms().saturating_sub(inner.started_at_ms);
        page.gauge("node_uptime_seconds", &[], up_ms as f64 / 1000.0);
        page.gauge("node_resident_bytes", &[], resident_bytes() as f64);
        let timeout = inner.config.client_timeout;
        let clients = lock(&inner.clients).values().filter(|heard| heard.elapsed() < timeout).count();
        page.gauge("node_clients", &[], clients as f64);
        page.gauge("node_readers", &[], inner.figures.readers() as f64);
        let (streams, partitions, states) = inner.metadata.read_local(|metadata| {
            let workers = metadata.node_states().values().filter(|node| node.node_id.is_worker());
            let states: Vec<NodeState> = workers.map(|node| node.state).collect();
            (metadata.streams("").count(), metadata.partition_map().len(), states)
        });
        page.gauge("streams", &[], streams as f64);
        page.gauge("partitions", &[], partitions as f64);
        for state in NodeState::ALL {
            let count = states.iter().filter(|found| **found == state).count();
            page.gauge("writers", &[("state", state.as_str())], count as f64);
        }
    }

    fn gather_counted(&self, page: &Page) {
        let figures = &self.inner.figures;
        for (call, answered) in figures.calls() {
            let method = ("method", call.name());
            page.counter("calls_total", &[method, ("outcome", "ok")], answered.done.get());
            // Most never come: thirty calls with all classes would be most of the page.
            for (class, count) in answered.refused.all().filter(|(_, count)| *count > 0) {
                page.counter("calls_total", &[method, ("outcome", class)], count);
            }
        }
        for (class, count) in figures.append_refusals.all() {
            page.counter("append_refusals_total", &[("class", class)], count);
        }
        page.gauge("appends_in_flight", &[], figures.appends_in_flight() as f64);
        page.times("append_seconds", &[], figures.append_seconds.observed());
        let fsyncs = laminar_log::metrics::SEGMENTED_FSYNC_SECONDS;
        page.times(fsyncs, &[], figures.fsync_seconds.observed());
        for (name, count) in [
            ("appends_total", &figures.appends),
            ("append_duplicates_total", &figures.append_duplicates),
            ("append_rows_total", &figures.append_rows),
            ("append_bytes_total", &figures.append_bytes),
            ("appends_abandoned_total", &figures.appends_abandoned),
            ("read_rows_total", &figures.read_rows),
            ("read_bytes_total", &figures.read_bytes),
            ("claims_total", &figures.claims),
            ("takeovers_total", &figures.takeovers),
            ("staged_parts_total", &figures.staged_parts),
            ("staged_bytes_total", &figures.staged_bytes),
            ("staged_blocks_deleted_total", &figures.staged_blocks_deleted),
        ] {
            page.counter(name, &[], count.get());
        }
    }

    /// What the log does not tell of partitions.
    fn gather_partitions(&self, page: &Page) {
        let places: Vec<(PartitionId, String, u32)> = self.inner.metadata.read_local(|metadata| {
            let places = metadata.streams("").flat_map(|stream| {
                let ids = stream.partition_ids.iter().flat_map(|range| range.iter());
                ids.zip(0_u32..).map(|(id, ordinal)| (id, stream.path.clone(), ordinal))
            });
            places.collect()
        });
        let machine = self.inner.data.machine();
        for (id, path, ordinal) in places {
            let Some(status) = machine.status(id) else { continue };
            let (id, ordinal) = (id.0.to_string(), ordinal.to_string());
            let labels =
                [("partition", id.as_str()), ("stream", path.as_str()), ("ordinal", ordinal.as_str())];
            page.gauge("partition_info", &labels, 1.0);
            let label = [("partition", id.as_str())];
            page.gauge("partition_start_offset", &label, status.start_offset as f64);
            page.gauge("partition_next_offset", &label, status.next_offset as f64);
            page.counter(laminar_log::metrics::PARTITION_APPLY_RETRIES, &label, status.apply_retries);
            page.counter(laminar_log::metrics::PARTITION_PAUSES, &label, status.pauses);
        }
    }
}

fn gather_group(page: &Page, group: &str, status: &ReplicaStatus) {
    let labels = [("group", group)];
    let index = |id: Option<LogId>| id.map_or(0.0, |id| id.index.0 as f64);
    let serving = if status.phase == ReplicaPhase::Serving { 1.0 } else { 0.0 };
    page.gauge("raft_serving", &labels, serving);
    page.gauge("raft_term", &labels, status.term as f64);
    page.gauge("raft_leader", &labels, status.leader.map_or(0.0, |leader| leader.0 as f64));
    page.gauge("raft_last_index", &labels, index(status.last));
    page.gauge("raft_durable_index", &labels, index(status.durable));
    page.gauge("raft_committed_index", &labels, index(status.committed));
    page.gauge("raft_applied_index", &labels, index(status.applied));
    page.gauge("raft_snapshot_index", &labels, index(status.snapshot));
    page.counter("raft_rebuilds_total", &labels, status.rebuilds);
    page.counter("raft_snapshot_failures_total", &labels, status.snapshot_failures);
}
