//! How the node is.

use std::collections::VecDeque;
use std::time::Duration;

use laminar_core::ids::PartitionId;
use laminar_core::metadata::DeltaMetadata;
use laminar_log::{LogId, PartitionEvent};
use laminar_raft::{ReplicaPhase, ReplicaStatus};
use laminar_rpc::{Failure, proto, utc};

use super::locate::{ordinal, tag, tags, writer_name};
use super::{Node, lock};
use crate::clock::wall_ms;

/// Events that are kept for `status`.
const EVENTS_KEPT: usize = 100;

impl Node {
    pub(crate) fn status(&self, request: &proto::StatusRequest) -> Result<proto::StatusResponse, Failure> {
        let inner = &self.inner;
        if !request.stream.is_empty() {
            self.stream_at(&request.stream)?;
        }
        let (streams, partition_count, nodes) = inner.metadata.read_local(|metadata| {
            (metadata.streams("").count(), metadata.partition_map().len(), self.nodes(metadata))
        });
        let partitions = if request.partitions { self.partitions(&request.stream)? } else { Vec::new() };
        Ok(proto::StatusResponse {
            node: Some(self.describe()),
            started_at_ms: inner.started_at_ms,
            metadata_group: Some(group(&inner.metadata.status().replica)),
            data_group: Some(group(&inner.data.status())),
            streams: u32::try_from(streams).unwrap_or(u32::MAX),
            partition_count: u32::try_from(partition_count).unwrap_or(u32::MAX),
            nodes,
            partitions,
            events: lock(&inner.events).iter().cloned().collect(),
            resident_bytes: resident_bytes(),
        })
    }

    fn nodes(&self, metadata: &DeltaMetadata) -> Vec<proto::NodeStatus> {
        let heard = lock(&self.inner.workers);
        let mut owned = std::collections::BTreeMap::<_, u32>::new();
        for ownership in metadata.partition_map().values() {
            *owned.entry(ownership.node_id).or_default() += 1;
        }
        let nodes = metadata.node_states().values().map(|node| proto::NodeStatus {
            node_id: node.node_id.0,
            role: node.role.to_string(),
            state: node.state.to_string(),
            address: node.rpc_address.clone(),
            writer: tag(node, tags::WRITER).to_owned(),
            stream: tag(node, tags::STREAM).to_owned(),
            host: tag(node, tags::HOST).to_owned(),
            pid: tag(node, tags::PID).parse().unwrap_or(0),
            partitions: owned.get(&node.node_id).copied().unwrap_or(0),
            silent_ms: heard
                .get(&node.node_id)
                .map_or(0, |heard| u64::try_from(heard.elapsed().as_millis()).unwrap_or(u64::MAX)),
            registered_at_ms: node.registered_at_ms,
        });
        nodes.collect()
    }

    fn partitions(&self, stream: &str) -> Result<Vec<proto::PartitionStatus>, Failure> {
        let machine = self.machine()?;
        let places: Vec<(PartitionId, String, u32)> = self.inner.metadata.read_local(|metadata| {
            let chosen = metadata.streams("").filter(|found| stream.is_empty() || found.path == stream);
            let ids = chosen.flat_map(|stream| {
                stream.partition_ids.iter().flat_map(|range| range.iter()).map(move |id| (stream, id))
            });
            ids.map(|(stream, id)| (id, stream.path.clone(), ordinal(stream, id).unwrap_or(0))).collect()
        });
        let statuses = places.into_iter().filter_map(|(id, path, partition)| {
            let status = machine.status(id)?;
            let bytes = machine
                .partition_log(id)
                .map_or(0, |log| log.segments().iter().map(|segment| segment.bytes).sum());
            let stream_machine = self
                .inner
                .metadata
                .read_local(|metadata| metadata.stream_of(id).map(|stream| stream.machine.to_string()));
            Some(proto::PartitionStatus {
                partition_id: id.0,
                stream: path,
                partition,
                owner: status.owner.0,
                epoch: status.epoch.get(),
                writer: self.inner.metadata.read_local(|metadata| writer_name(metadata, status.owner)),
                start_offset: status.start_offset,
                next_offset: status.next_offset,
                applied_index: status.applied.0,
                queued: status.queued as u64,
                paused_at: if status.paused.is_some() { status.applied.0 + 1 } else { 0 },
                paused: status.paused.unwrap_or_default(),
                repairing: status.repairing,
                machine: stream_machine.unwrap_or_default(),
                admission: self.inner.data.dispatcher().view(id).state.as_str().to_owned(),
                bytes,
            })
        });
        Ok(statuses.collect())
    }
}

fn group(status: &ReplicaStatus) -> proto::GroupStatus {
    let index = |id: Option<LogId>| id.map_or(0, |id| id.index.0);
    let phase = match status.phase {
        ReplicaPhase::Serving => "serving",
        ReplicaPhase::Rebuilding => "rebuilding",
        ReplicaPhase::Failed => "failed",
        ReplicaPhase::ShutDown => "shut down",
    };
    proto::GroupStatus {
        phase: phase.to_owned(),
        leader: status.leader.map_or(0, |leader| leader.0),
        term: status.term,
        last_index: index(status.last),
        durable_index: index(status.durable),
        committed_index: index(status.committed),
        applied_index: index(status.applied),
        snapshot_index: index(status.snapshot),
        purged_index: index(status.purged),
        recovered: status.recovered,
        rebuilds: status.rebuilds,
        last_fault: status.last_fault.clone().unwrap_or_default(),
        snapshot_fault: String::new(),
    }
}

/// Memory of this process that is in RAM; 0 where the system does not tell.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.as_deref().and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Takes what happened to partitions out of the data group, for `status` and for the log.
pub(super) async fn collect_events(node: Node) {
    loop {
        tokio::select! {
            () = node.stopped() => return,
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
        let (events, dropped) = node.inner.data.machine().take_events();
        let mut kept = lock(&node.inner.events);
        if dropped > 0 {
            push(&mut kept, format!("{} {dropped} events were dropped", utc(wall_ms())));
        }
        for event in events {
            node.note_pause(&event);
            push(&mut kept, node.tell(&event));
        }
    }
}

fn push(kept: &mut VecDeque<String>, event: String) {
    if kept.len() == EVENTS_KEPT {
        kept.pop_front();
    }
    kept.push_back(event);
}

impl Node {
    fn note_pause(&self, event: &PartitionEvent) {
        let mut since = lock(&self.inner.paused_since);
        match event {
            PartitionEvent::Paused { partition, .. } => drop(since.insert(*partition, wall_ms())),
            PartitionEvent::Resumed { partition } => drop(since.remove(partition)),
            PartitionEvent::LogFailed { .. } | PartitionEvent::LogRepaired { .. } => {}
        }
        since.retain(|partition, _| self.inner.data.machine().owner(*partition).is_some());
    }

    fn tell(&self, event: &PartitionEvent) -> String {
        let (partition, what) = match event {
            PartitionEvent::Paused { partition, index, reason } => {
                (*partition, format!("paused at record {index}: {reason}"))
            }
            PartitionEvent::Resumed { partition } => (*partition, "goes on".to_owned()),
            PartitionEvent::LogFailed { partition, reason } => {
                (*partition, format!("its own log failed: {reason}"))
            }
            PartitionEvent::LogRepaired { partition } => (*partition, "its own log is repaired".to_owned()),
        };
        let name = self.inner.metadata.read_local(|metadata| {
            let stream = metadata.stream_of(partition)?;
            Some(format!("{} partition {}", stream.path, ordinal(stream, partition)?))
        });
        let name = name.unwrap_or_else(|| format!("partition {partition}"));
        format!("{} {name}: {what}", utc(wall_ms()))
    }
}
