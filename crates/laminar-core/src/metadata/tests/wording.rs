use super::*;
use crate::ids::StreamId;

/// Pins the wording that users search for.
#[test]
fn rejections_read_as_documented() {
    let partition = PartitionId(42);
    let path = || "/shop/orders".to_owned();
    let (expected, current) = (owner(1, 7), owner(3, 9));
    let mark = |at, id| CheckpointMark { epoch: epoch(at), checkpoint_id: CheckpointId(id) };
    let invalid = Rejection::Invalid;
    let cases = [
        (
            Rejection::StaleEpoch { partition, expected: Some(expected), current },
            "stale_epoch",
            "partition 42: change refused, it names node 1 at epoch 7 and node 3 at epoch 9 is current; read the metadata \
             and decide again",
        ),
        (
            Rejection::StaleEpoch { partition, expected: None, current },
            "stale_epoch",
            "partition 42: change refused, it names no earlier owner and node 3 at epoch 9 is current; read the metadata \
             and decide again",
        ),
        (
            Rejection::NotOwner { partition, expected: owner(1, 9), current },
            "not_owner",
            "partition 42: change refused, it names node 1 at epoch 9 and node 3 at epoch 9 is current; send it to the \
             owner or claim the partition",
        ),
        (
            Rejection::EpochSkipped { partition, epoch: epoch(12), current },
            "epoch_skipped",
            "partition 42: change refused, it brings epoch 12 and node 3 at epoch 9 is current; bring the next epoch",
        ),
        (
            Rejection::EpochExhausted { partition },
            "epoch_exhausted",
            "partition 42: change refused, its epoch is 18446744073709551615, the last there is; it cannot change its \
             owner again",
        ),
        (
            Rejection::UnknownPartition { partition },
            "unknown_partition",
            "partition 42: change refused, there is no such partition; it was dropped or never created",
        ),
        (
            Rejection::UnknownNode { node_id: NodeId(3) },
            "unknown_node",
            "node 3: change refused, it is not registered; register it first",
        ),
        (
            Rejection::NodeExists { node_id: NodeId(3), state: NodeState::Failed },
            "node_exists",
            "node 3: registration refused, it is registered already (failed); choose another id, or name the state failed \
             as expected to register it again",
        ),
        (
            Rejection::NodeStateChanged {
                node_id: NodeId(3),
                expected: NodeState::Active,
                current: NodeState::Draining,
            },
            "node_state_changed",
            "node 3: change refused, it expects the state active and the node is draining; read the metadata and decide \
             again",
        ),
        (
            Rejection::AlreadyReleased { partition, current },
            "already_released",
            "partition 42: release refused, node 3 at epoch 9 has released it already; wait for the next owner",
        ),
        (
            Rejection::StaleCheckpoint { partition, given: mark(9, 4), latest: mark(9, 5) },
            "stale_checkpoint",
            "partition 42: checkpoint 4 of epoch 9 refused, checkpoint 5 of epoch 9 is the latest; commit newer checkpoints \
             only",
        ),
        (
            Rejection::ClusterEpochChanged { expected: 1, current: 2 },
            "cluster_epoch_changed",
            "cluster epoch 1 expected and 2 is current; read the metadata and decide again",
        ),
        (
            Rejection::StreamExists { path: path(), stream_id: StreamId(5) },
            "stream_exists",
            "stream /shop/orders: creation refused, it exists (stream id 5); open it or choose another path",
        ),
        (
            Rejection::UnknownStream { path: path() },
            "unknown_stream",
            "stream /shop/orders: change refused, there is no such stream; it was dropped or never created",
        ),
        (
            Rejection::StreamReplaced { path: path(), expected: StreamId(1), current: StreamId(5) },
            "stream_replaced",
            "stream /shop/orders: change refused, it expects stream id 1 and 5 is there; the stream was dropped and created \
             again",
        ),
        (
            Rejection::PartitionsShrunk { path: path(), current: 8, given: 4 },
            "partitions_shrunk",
            "stream /shop/orders: change refused, it has 8 partitions and the change asks for 4; partitions are only added, \
             ask for 8 or more",
        ),
        (
            Rejection::QueryChanged {
                path: path(),
                writer: "ingest".to_owned(),
                expected: None,
                current: Some("q".to_owned()),
            },
            "query_changed",
            "stream /shop/orders: change refused, it expects that writer \"ingest\" is bound to no query and it is to query \
             \"q\"; read the metadata and decide again",
        ),
        (
            Rejection::LimitReached { limit: Limit::BoundQueries },
            "limit_reached",
            "change refused, the cluster knows the queries of 65536 writers at most; use the name of one again, or drop a \
             stream",
        ),
        (
            invalid(InvalidChange::MachineName { name: "Sum".to_owned() }),
            "invalid",
            "change refused, machine name is \"Sum\"; it must be of letters from a to z, digits, _ or -, and neither log nor \
             kv",
        ),
        (
            Rejection::LimitReached { limit: Limit::Partitions },
            "limit_reached",
            "change refused, the cluster holds 1048576 partitions at most; drop a stream first",
        ),
        (
            invalid(InvalidChange::OutOfRange { bound: Bound::StreamPartitions, given: 0 }),
            "invalid",
            "change refused, number of partitions is 0; it must be from 1 to 100000",
        ),
        (
            invalid(InvalidChange::StreamPath { path: "/a b".to_owned(), fault: PathFault::Character(' ') }),
            "invalid",
            "change refused, stream path is \"/a b\"; ' ' is not a letter from a to z, a digit, ., _ or -",
        ),
        (
            invalid(InvalidChange::ServerId { node_id: NodeId(0) }),
            "invalid",
            "change refused, a server brought node id 0; it must be from 1 to 4294967295",
        ),
        (
            Rejection::InBatch {
                position: 3,
                reason: Box::new(Rejection::UnknownNode { node_id: NodeId(3) }),
            },
            "unknown_node",
            "batch refused at change 3: node 3: change refused, it is not registered; register it first",
        ),
        (
            Rejection::DuplicateRequest { first: Box::new(MetadataResponse::Applied { minted: vec![] }) },
            "duplicate_request",
            "request answered before (applied); use that answer",
        ),
    ];
    for (rejection, code, message) in cases {
        assert_eq!(rejection.code(), code);
        assert_eq!(rejection.to_string(), message);
    }
}
