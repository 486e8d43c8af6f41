from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from support import assign, metadata_of

import laminar
from laminar import MetadataLogEntry as Entry


def test_new_metadata_is_empty() -> None:
    metadata = laminar.DeltaMetadata()
    assert (metadata.partition_map, metadata.node_states, metadata.streams()) == ({}, {}, [])
    assert (metadata.cluster_epoch, metadata.last_applied_log) == (0, 0)
    assert (metadata.partition_epoch(3), metadata.partition_owner(3), metadata.partition_ownership(3)) == (None,) * 3


def test_assignment_with_nothing_expected_creates_the_record() -> None:
    metadata = laminar.DeltaMetadata()
    assert assign(metadata, 3, 1, 7).applied
    assert metadata.partition_ownership(3) == laminar.PartitionOwnership(1, 7, 1)
    assert (metadata.partition_epoch(3), metadata.partition_owner(3)) == (7, 1)
    assert metadata.partitions_for_node(1) == [3]
    assert metadata.ownership() == {3: (1, 7)}


@pytest.mark.parametrize(
    ("node", "epoch", "expected", "reason"),
    [
        (2, 8, None, "stale_epoch"),
        (2, 7, (1, 6), "stale_epoch"),
        (2, 8, (3, 7), "not_owner"),
        (2, 7, (1, 7), "stale_epoch"),
        (2, 9, (1, 7), "epoch_skipped"),
    ],
)
def test_change_that_expects_something_else_is_rejected_and_changes_nothing(
    node: int, epoch: int, expected: tuple[int, int] | None, reason: str
) -> None:
    metadata = metadata_of({3: (1, 7)})
    answer = assign(metadata, 3, node, epoch, expected)
    assert (answer.applied, answer.success, answer.reason) == (False, False, reason)
    assert "partition 3" in (answer.message or "")
    assert metadata.ownership() == {3: (1, 7)}


def test_unknown_partition_is_rejected() -> None:
    assert assign(laminar.DeltaMetadata(), 3, 1, 2, expected=(1, 1)).reason == "unknown_partition"


@pytest.mark.parametrize(
    "request_id", [0, 7, "retry-7", b"retry-7", uuid.UUID(int=7)], ids=lambda value: type(value).__name__
)
def test_repeated_request_changes_nothing_and_gets_the_first_answer(request_id: object) -> None:
    metadata = laminar.DeltaMetadata()
    entry = Entry.register_node(role="worker", request_id=request_id)  # type: ignore[arg-type]
    first = metadata.apply(entry)
    again = metadata.apply(entry)
    assert first.applied
    assert (again.applied, again.reason, again.first) == (False, "duplicate_request", first)
    assert list(metadata.node_states) == [first.node_id]


def test_move_releases_and_acquires() -> None:
    metadata = metadata_of({3: (1, 7)})
    release = Entry.release_partition(
        partition_id=3,
        expected=(1, 7),
        final_index=99,
        state_hash=2**64 - 1,
        next_offset=1_000,
        checkpoint_id=5,
        source_offsets={"kafka": {0: 17}},
        time_ms=20,
    )
    assert metadata.apply(release).applied
    left = metadata.get_release_info(3, 7)
    assert left == laminar.ReleaseInfo(
        partition_id=3,
        node_id=1,
        epoch=7,
        released_at_ms=20,
        final_index=99,
        state_hash=2**64 - 1,
        next_offset=1_000,
        checkpoint_id=5,
        source_offsets={"kafka": {0: 17}},
    )
    assert metadata.get_release_info(3, 8) is None
    assert metadata.apply(release).reason == "already_released"
    assert metadata.apply(Entry.acquire_partition(partition_id=3, node_id=2, epoch=8, expected=(1, 7))).applied
    assert (metadata.pending_releases, metadata.partition_owner(3)) == ({}, 2)
    causes = [(event.cause, event.owner, event.epoch) for event in metadata.history(3)]
    assert causes == [("created", 1, 7), ("released", 1, 7), ("acquired", 2, 8)]


def test_checkpoint_of_the_owner_becomes_the_latest() -> None:
    metadata = metadata_of({3: (1, 7)})
    checkpoint = laminar.CheckpointRef(
        checkpoint_id=1,
        partition_id=3,
        epoch=7,
        storage_path="p/3/m/1",
        source_offsets={"kafka": {0: 1}},
        size_bytes=10,
        created_at_ms=5,
    )
    stale = Entry.commit_checkpoint(partition_id=3, checkpoint=checkpoint, expected=(1, 6))
    assert metadata.apply(stale).reason == "stale_epoch"
    commit = Entry.commit_checkpoint(partition_id=3, checkpoint=checkpoint, expected=(1, 7))
    assert metadata.apply(commit).applied
    assert metadata.latest_checkpoint(3) == checkpoint
    assert metadata.latest_checkpoints == {3: checkpoint}
    assert metadata.apply(commit).reason == "stale_checkpoint"


def test_nodes_register_change_and_leave() -> None:
    metadata = laminar.DeltaMetadata()
    size = laminar.NodeMetadata(cores=8, memory_bytes=2**40, failure_domain="az-1", tags={"disk": "nvme"})
    register = Entry.register_node(node_id=4, rpc_address="a:1", raft_address="a:2", metadata=size, time_ms=5)
    assert metadata.apply(register).node_id == 4
    assert metadata.apply(register).reason == "node_exists"
    worker = metadata.apply(Entry.register_node(role="worker")).node_id
    assert worker is not None
    assert [node.id for node in metadata.servers()] == [4]
    assert metadata.servers()[0] == size.to_node_info(4, address="a:1")
    assert assign(metadata, 3, 4, 1).applied
    assert metadata.apply(Entry.update_node_state(node_id=4, state="draining", expected="active", time_ms=6)).applied
    registered = metadata.node(4)
    assert registered is not None
    assert (registered.state, registered.role, registered.last_updated_ms) == ("draining", "server", 6)
    assert metadata.apply(Entry.deregister_node(node_id=4, expected="active")).reason == "node_state_changed"
    assert metadata.apply(Entry.deregister_node(node_id=4)).applied
    assert (metadata.node(4), metadata.partition_owner(3), metadata.partition_epoch(3)) == (None, 0, 2)
    assert metadata.cluster_epoch == 1
    assert metadata.apply(Entry.increment_cluster_epoch(expected=0)).reason == "cluster_epoch_changed"
    assert metadata.apply(Entry.increment_cluster_epoch(expected=1)).applied


def test_partitions_claimed_by_workers_are_not_for_the_assigner() -> None:
    metadata = metadata_of({3: (1, 1), 4: (1, 1)})
    worker = metadata.apply(Entry.register_node(role="worker")).node_id
    assert worker is not None
    assert metadata.apply(Entry.acquire_partition(partition_id=4, node_id=worker, epoch=2, expected=(1, 1))).applied
    assert metadata.ownership() == {3: (1, 1)}


def test_streams_come_and_go_and_their_ids_never_return() -> None:
    metadata = laminar.DeltaMetadata()
    schema = pa.schema([("order_id", pa.int64())])
    create = Entry.create_stream(path="/shop/orders", partitions=4, schema=schema, key="order_id", machine="kv")
    first = metadata.apply(create)
    assert first.partition_ids == [0, 1, 2, 3]
    stream = metadata.stream("/shop/orders")
    assert stream is not None
    assert (stream.stream_id, list(stream.key), stream.machine) == (first.stream_id, ["order_id"], "kv")
    assert pa.ipc.read_schema(pa.py_buffer(stream.schema)) == schema
    assert metadata.stream_of(3) == stream
    assert metadata.streams("/shop/") == [stream]
    assert metadata.apply(create).reason == "stream_exists"
    assert metadata.ownership() == {0: (0, 1), 1: (0, 1), 2: (0, 1), 3: (0, 1)}
    assert metadata.apply(Entry.drop_stream(path="/shop/orders", expected=first.stream_id)).applied
    assert metadata.apply(create).partition_ids == [4, 5, 6, 7]
    assert metadata.apply(Entry.drop_stream(path="/shop/orders", expected=first.stream_id)).reason == "stream_replaced"
    assert assign(metadata, 0, 1, 1).reason == "unknown_partition"


def test_streams_are_altered_and_only_grow() -> None:
    metadata = laminar.DeltaMetadata()
    create = Entry.create_stream(path="/a", partitions=2, machine="window", retention_ms=1000, row_bytes_max=64)
    first = metadata.apply(create)
    assert first.stream_id is not None
    grown = metadata.apply(Entry.alter_stream(path="/a", expected=first.stream_id, partitions=4))
    assert (grown.applied, grown.partition_ids) == (True, [2, 3])
    stream = metadata.stream("/a")
    assert stream is not None
    assert (list(stream.partition_ids), stream.machine) == ([0, 1, 2, 3], "window")
    assert (stream.retention_ms, stream.retention_bytes, stream.row_bytes_max) == (1000, None, 64)
    bytes_only = Entry.alter_stream(path="/a", expected=first.stream_id, retention_bytes=9, row_bytes_max=65)
    assert metadata.apply(bytes_only).applied
    stream = metadata.stream("/a")
    assert stream is not None
    assert (stream.retention_ms, stream.retention_bytes, stream.row_bytes_max) == (None, 9, 65)
    assert metadata.apply(Entry.alter_stream(path="/a", expected=first.stream_id, keep_forever=True)).applied
    stream = metadata.stream("/a")
    assert stream is not None
    assert (stream.retention_ms, stream.retention_bytes, stream.row_bytes_max) == (None, None, 65)
    shrink = Entry.alter_stream(path="/a", expected=first.stream_id, partitions=3)
    assert metadata.apply(shrink).reason == "partitions_shrunk"
    assert metadata.apply(Entry.alter_stream(path="/a", expected=9)).reason == "stream_replaced"
    assert metadata.apply(Entry.create_stream(path="/b", partitions=1, retention_ms=0)).reason == "invalid"
    assert Entry.decode(bytes_only.encode()) == bytes_only
    with pytest.raises(laminar.InvalidError, match="one or the other"):
        Entry.alter_stream(path="/a", expected=1, keep_forever=True, retention_ms=1)


def test_batch_is_all_or_nothing() -> None:
    metadata = metadata_of({1: (1, 1), 2: (1, 5)})
    claim = [
        Entry.acquire_partition(partition_id=1, node_id=9, epoch=2, expected=(1, 1)),
        Entry.acquire_partition(partition_id=2, node_id=9, epoch=2, expected=(1, 1)),
    ]
    answer = metadata.apply(Entry.batch(claim, request_id=1))
    assert (answer.applied, answer.reason) == (False, "stale_epoch")
    assert metadata.ownership() == {1: (1, 1), 2: (1, 5)}
    claim[1] = Entry.acquire_partition(partition_id=2, node_id=9, epoch=6, expected=(1, 5))
    assert metadata.apply(Entry.batch(claim, request_id=2)).applied
    assert metadata.partitions_for_node(9) == [1, 2]
    with pytest.raises(laminar.InvalidError, match="cannot hold a batch"):
        Entry.batch([Entry.batch([])])
    with pytest.raises(laminar.InvalidError):
        Entry.batch(["no entry"])  # type: ignore[list-item]


def test_snapshot_restores_and_a_changed_one_is_refused() -> None:
    metadata = metadata_of({partition: (1 + partition % 3, 1) for partition in range(100)})
    snapshot = metadata.snapshot()
    assert laminar.DeltaMetadata.restore(snapshot) == metadata
    assert laminar.DeltaMetadata.restore(snapshot).snapshot() == snapshot
    assert metadata != laminar.DeltaMetadata()
    for bad in (b"", snapshot[:-1], b"x" + snapshot, snapshot[:60] + bytes([snapshot[60] ^ 1]) + snapshot[61:]):
        with pytest.raises(laminar.CorruptionError):
            laminar.DeltaMetadata.restore(bad)


def test_entries_and_answers_survive_their_bytes() -> None:
    entry = Entry.assign_partition(partition_id=3, node_id=1, epoch=1, time_ms=5, request_id="a")
    assert Entry.decode(entry.encode()) == entry
    assert (entry.kind, entry.time_ms, len(entry.encode()) < 1_000) == ("assign_partition", 5, True)
    assert entry != Entry.assign_partition(partition_id=3, node_id=1, epoch=1, time_ms=5, request_id="b")
    answer = laminar.DeltaMetadata().apply(entry)
    assert laminar.MetadataResponse.decode(answer.encode()) == answer
    assert hash(entry) == hash(Entry.decode(entry.encode()))
    assert hash(answer) == hash(laminar.MetadataResponse.decode(answer.encode()))
    with pytest.raises(laminar.CorruptionError):
        Entry.decode(b"\xff\xff")
    with pytest.raises(laminar.CorruptionError):
        laminar.MetadataResponse.decode(b"\xff\xff")


def test_same_entries_give_the_same_bytes() -> None:
    one, other = laminar.DeltaMetadata(), laminar.DeltaMetadata()
    for metadata in (one, other):
        metadata.apply(Entry.register_node(node_id=1, metadata=laminar.NodeMetadata(tags={"b": "1", "a": "2"})))
        metadata.apply(Entry.create_stream(path="/a", partitions=3))
    assert one.snapshot() == other.snapshot()


def test_reprs_are_readable() -> None:
    metadata = metadata_of({3: (1, 7)})
    assert repr(metadata) == "DeltaMetadata <1 partitions, 0 nodes, 0 streams, cluster epoch 0, 1 entries applied>"
    entry = Entry.assign_partition(partition_id=3, node_id=1, epoch=8, expected=(1, 7))
    assert repr(entry) == "MetadataLogEntry <assign partition 3 to node 1 at epoch 8, expecting node 1 at epoch 7>"
    assert repr(metadata.apply(entry)) == "MetadataResponse <applied>"
    assert repr(metadata.apply(entry)).startswith("MetadataResponse <rejected, stale_epoch: partition 3: ")
