//! The bytes of entries, answers and snapshots: those of release 0.1 stay readable, damage is found, sizes hold.
//!
//! `LAMINAR_WRITE_GOLDEN=1 cargo test --release -p laminar-core --test it format_metadata` writes `tests/data/0.1/`
//! anew. That is right only as long as 0.1 is not released.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use laminar_core::error::{ErrorKind, FormatError};
use laminar_core::ids::{
    CheckpointId, DataGroupId, Epoch, LogIndex, NodeId, OwnerEpoch, PartitionId, RequestId, StreamId,
};
use laminar_core::metadata::{
    CheckpointRef, DeltaMetadata, MetadataChange, MetadataLogEntry, MetadataResponse, Release, Retention,
    SourceOffsets, StreamLimits, StreamMachine,
};
use laminar_core::node::{NodeMetadata, NodeRole, NodeState};

fn owner(node: u64, epoch: u64) -> OwnerEpoch {
    OwnerEpoch { node_id: NodeId(node), epoch: Epoch::new(epoch).unwrap() }
}

fn offsets() -> SourceOffsets {
    [("orders".to_owned(), [(0, 1_000_000), (1, 999_999)].into()), ("carts".to_owned(), BTreeMap::new())]
        .into()
}

fn assign(partition: u32, expected: Option<OwnerEpoch>, next: OwnerEpoch) -> MetadataChange {
    let OwnerEpoch { node_id, epoch } = next;
    MetadataChange::AssignPartition { partition_id: PartitionId(partition), node_id, epoch, expected }
}

fn acquire(partition: u32, expected: OwnerEpoch, next: OwnerEpoch) -> MetadataChange {
    let OwnerEpoch { node_id, epoch } = next;
    MetadataChange::AcquirePartition { partition_id: PartitionId(partition), node_id, epoch, expected }
}

fn release(partition: u32, expected: OwnerEpoch) -> MetadataChange {
    MetadataChange::ReleasePartition {
        partition_id: PartitionId(partition),
        expected,
        release: Release {
            final_index: LogIndex(123_456),
            state_hash: 0x0123_4567_89AB_CDEF,
            next_offset: 99,
            checkpoint_id: Some(CheckpointId(4)),
            source_offsets: offsets(),
        },
    }
}

fn commit(partition: u32, expected: OwnerEpoch, id: u64) -> MetadataChange {
    MetadataChange::CommitCheckpoint {
        partition_id: PartitionId(partition),
        expected,
        checkpoint: CheckpointRef {
            checkpoint_id: CheckpointId(id),
            partition_id: PartitionId(partition),
            epoch: expected.epoch,
            storage_path: format!("p/{partition}/checkpoints/{id:020}"),
            source_offsets: offsets(),
            size_bytes: 1 << 30,
            created_at_ms: 1_771_200_000_000,
        },
    }
}

fn register(node_id: Option<u64>, role: NodeRole, expected: Option<NodeState>) -> MetadataChange {
    MetadataChange::RegisterNode {
        node_id: node_id.map(NodeId),
        role,
        state: NodeState::Active,
        rpc_address: "node-3.cluster.internal:7400".to_owned(),
        raft_address: "node-3.cluster.internal:7402".to_owned(),
        metadata: NodeMetadata {
            cores: 8,
            memory_bytes: 32 << 30,
            failure_domain: Some("az-1".to_owned()),
            tags: [("disk".to_owned(), "nvme".to_owned())].into(),
        },
        expected,
    }
}

fn create_stream(path: &str, partitions: u32) -> MetadataChange {
    MetadataChange::CreateStream {
        path: path.to_owned(),
        partitions,
        schema: (0..=255).collect(),
        key: vec!["order_id".to_owned(), "region".to_owned()],
        machine: StreamMachine::Kv,
        data_group: DataGroupId(2),
        retention: Retention::default(),
        limits: StreamLimits::default(),
    }
}

/// Every kind of change, accepted or rejected for every reason that a short log can give.
fn every_entry() -> Vec<MetadataLogEntry> {
    let update = |node, state, metadata: Option<NodeMetadata>, expected| MetadataChange::UpdateNodeState {
        node_id: NodeId(node),
        state,
        metadata,
        expected,
    };
    let deregister = |node, expected| MetadataChange::DeregisterNode { node_id: NodeId(node), expected };
    let increment = |expected| MetadataChange::IncrementClusterEpoch { expected };
    let drop_stream = |path: &str, expected: Option<u64>| MetadataChange::DropStream {
        path: path.to_owned(),
        expected: expected.map(StreamId),
    };
    let active = Some(NodeState::Active);
    let changes = vec![
        assign(70, None, owner(3, 7)),
        assign(70, None, owner(3, 7)),
        assign(70, Some(owner(3, 7)), owner(4, 8)),
        assign(70, Some(owner(3, 7)), owner(4, 8)),
        assign(70, Some(owner(5, 8)), owner(4, 9)),
        assign(70, Some(owner(4, 8)), owner(4, 10)),
        assign(71, Some(owner(4, 8)), owner(4, 9)),
        assign(72, None, owner(9, u64::MAX)),
        assign(72, Some(owner(9, u64::MAX)), owner(1, 1)),
        release(70, owner(4, 8)),
        release(70, owner(4, 8)),
        acquire(70, owner(4, 8), owner(5, 9)),
        acquire(70, owner(5, 9), owner(0, 10)),
        commit(70, owner(5, 9), 3),
        commit(70, owner(5, 9), 3),
        release(70, owner(5, 9)),
        register(None, NodeRole::Server, None),
        register(Some(3), NodeRole::Server, None),
        register(Some(3), NodeRole::Server, None),
        register(Some(3), NodeRole::Server, active),
        register(Some(0), NodeRole::Server, None),
        register(Some(1 << 40), NodeRole::Worker, None),
        register(None, NodeRole::Worker, active),
        register(None, NodeRole::Worker, None),
        register(None, NodeRole::Worker, None),
        update(3, NodeState::Draining, Some(NodeMetadata::default()), active),
        update(3, NodeState::Left, None, active),
        update(9, NodeState::Left, None, None),
        deregister(3, Some(NodeState::Draining)),
        deregister(9, None),
        increment(None),
        increment(Some(1)),
        create_stream("/shop/orders", 4),
        create_stream("/shop/orders", 4),
        create_stream("/shop/carts", 2),
        create_stream("/shop/../carts", 1),
        create_stream("/shop orders", 1),
        create_stream("shop", 1),
        create_stream("/shop/", 1),
        create_stream("/a", 0),
        drop_stream("/shop/carts", Some(9)),
        drop_stream("/shop/carts", Some(2)),
        drop_stream("/shop/carts", None),
        MetadataChange::CommitCheckpoint {
            partition_id: PartitionId(70),
            expected: owner(5, 9),
            checkpoint: match commit(71, owner(5, 8), 9) {
                MetadataChange::CommitCheckpoint { checkpoint, .. } => checkpoint,
                _ => unreachable!("commit makes a commit"),
            },
        },
    ];
    let mut entries: Vec<_> = (1..)
        .zip(changes)
        .map(|(at, change)| MetadataLogEntry::one(1_771_200_000_000 + at, RequestId(at as u128), change))
        .collect();
    let batch = |id, changes| MetadataLogEntry::batch(-1, RequestId(id), changes);
    entries.push(batch(u128::MAX, vec![acquire(0, owner(0, 1), owner(1 << 32, 2)), increment(None)]));
    entries.push(batch(1 << 64, vec![increment(None), assign(0, None, owner(1, 1))]));
    entries.push(batch(0, vec![]));
    entries.push(entries[0].clone());
    entries
}

/// What streams can hold and have done to them since they can be altered: retention, limits, machines of applications.
fn every_stream_entry() -> Vec<MetadataLogEntry> {
    let create = |path: &str, name: &str, retention, limits| {
        let mut change = create_stream(path, 2);
        if let MetadataChange::CreateStream { machine, retention: r, limits: l, .. } = &mut change {
            *machine = StreamMachine::Custom(name.to_owned());
            (*r, *l) = (retention, limits);
        }
        change
    };
    let alter = |expected, partitions, retention, limits| MetadataChange::AlterStream {
        path: "/shop/orders".to_owned(),
        expected: StreamId(expected),
        partitions,
        retention,
        limits,
    };
    let week = Retention { age_ms: Some(604_800_000), bytes: Some(u64::MAX) };
    let row = StreamLimits { row_bytes_max: Some(1 << 20) };
    let changes = vec![
        create("/shop/orders", "window_5-min", week, row),
        create("/shop/carts", "Window", week, row),
        create("/shop/carts", "", week, row),
        create("/shop/carts", "w", Retention { age_ms: Some(0), bytes: None }, row),
        create("/shop/carts", "w", Retention { age_ms: None, bytes: Some(0) }, row),
        create("/shop/carts", "w", week, StreamLimits { row_bytes_max: Some(0) }),
        create_stream("/shop/carts", 1),
        alter(1, Some(5), None, None),
        alter(1, Some(4), None, None),
        alter(2, None, None, None),
        alter(1, None, Some(Retention { age_ms: None, bytes: Some(1) }), None),
        alter(1, Some(6), None, Some(StreamLimits::default())),
    ];
    (1..)
        .zip(changes)
        .map(|(at, change)| MetadataLogEntry::one(1_771_200_000_000 + at, RequestId(at as u128), change))
        .collect()
}

/// Bindings of writers to queries, and checks of owners.
fn every_query_entry() -> Vec<MetadataLogEntry> {
    let bind = |path: &str, id, expected: Option<&str>, query: &str| MetadataChange::BindQuery {
        path: path.to_owned(),
        stream_id: StreamId(id),
        writer: "orders-ingest".to_owned(),
        query: query.to_owned(),
        expected: expected.map(str::to_owned),
    };
    let check = |expected| MetadataChange::CheckOwner { partition_id: PartitionId(0), expected };
    let query = "0b5c4f3e-7a1d-4d6b-9c55-0f2f3f1f9a10";
    let changes = vec![
        create_stream("/shop/orders", 2),
        create_stream("/shop/carts", 1),
        bind("/shop/orders", 1, None, query),
        bind("/shop/orders", 1, None, "q"),
        bind("/shop/orders", 1, Some("r"), "q"),
        bind("/shop/orders", 1, Some(query), "q"),
        bind("/shop/orders", 2, None, "q"),
        bind("/shop/carts", 2, Some("q"), "q"),
        bind("/shop/carts", 2, None, ""),
        bind("/shop/carts", 2, None, "q"),
        check(owner(0, 1)),
        check(owner(0, 2)),
    ];
    (1..)
        .zip(changes)
        .map(|(at, change)| MetadataLogEntry::one(1_771_200_000_000 + at, RequestId(at as u128), change))
        .collect()
}

fn golden_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/0.1").join(name)
}

/// One message a line, in hexadecimal. Written anew only when asked to.
fn golden(name: &str, now: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let path = golden_path(name);
    if std::env::var_os("LAMINAR_WRITE_GOLDEN").is_some() {
        let line =
            |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, now.iter().map(line).collect::<String>()).unwrap();
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    text.lines().map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

#[test]
fn bytes_of_release_0_1_are_read_and_written_as_they_were() {
    bytes_stay_as_they_were("metadata", &every_entry());
}

#[test]
fn bytes_of_altered_streams_are_read_and_written_as_they_were() {
    bytes_stay_as_they_were("metadata_streams", &every_stream_entry());
}

#[test]
fn bytes_of_bound_queries_are_read_and_written_as_they_were() {
    bytes_stay_as_they_were("metadata_queries", &every_query_entry());
}

#[track_caller]
fn bytes_stay_as_they_were(name: &str, entries: &[MetadataLogEntry]) {
    let mut state = DeltaMetadata::new();
    let responses: Vec<_> = entries.iter().map(|entry| state.apply(entry)).collect();

    let entry_bytes: Vec<_> = entries.iter().map(MetadataLogEntry::encode).collect();
    let golden_entries = golden(&format!("{name}_entries.hex"), &entry_bytes);
    assert_eq!(golden_entries, entry_bytes);
    let decoded: Result<Vec<_>, _> =
        golden_entries.iter().map(|bytes| MetadataLogEntry::decode(bytes)).collect();
    assert_eq!(decoded.as_deref(), Ok(entries));

    let response_bytes: Vec<_> = responses.iter().map(MetadataResponse::encode).collect();
    let golden_responses = golden(&format!("{name}_responses.hex"), &response_bytes);
    assert_eq!(golden_responses, response_bytes);
    let decoded: Result<Vec<_>, _> =
        golden_responses.iter().map(|bytes| MetadataResponse::decode(bytes)).collect();
    assert_eq!(decoded, Ok(responses));

    let golden_snapshot = golden(&format!("{name}_snapshot.hex"), &[state.snapshot()]).remove(0);
    assert_eq!(golden_snapshot, state.snapshot());
    assert_eq!(DeltaMetadata::restore(&golden_snapshot), Ok(state));
}

#[test]
fn the_entries_of_the_golden_log_meet_every_kind_of_answer() {
    let mut state = DeltaMetadata::new();
    let codes: std::collections::BTreeSet<_> = every_entry()
        .iter()
        .map(|entry| state.apply(entry).rejection().map_or("applied", |reason| reason.code()))
        .collect();
    // `limit_reached` needs a full cluster; the unit tests have it.
    let expected = "already_released applied cluster_epoch_changed duplicate_request epoch_exhausted epoch_skipped invalid \
                    node_exists node_state_changed not_owner stale_checkpoint stale_epoch stream_exists stream_replaced \
                    unknown_node unknown_partition unknown_stream";
    assert_eq!(codes, expected.split_whitespace().collect());
}

#[test]
fn a_typical_entry_is_smaller_than_a_kilobyte() {
    for entry in every_entry() {
        assert!(entry.encode().len() < 1024, "{entry:?}");
    }
    assert!(
        MetadataLogEntry::one(
            1_771_200_000_000,
            RequestId(u128::MAX),
            acquire(9, owner(1 << 32, 5), owner(1 << 33, 6))
        )
        .encode()
        .len()
            < 64
    );
}

/// 1000 partitions, each with a full history, a release and a checkpoint, and as many requests as are remembered.
#[test]
fn a_snapshot_of_a_thousand_partitions_is_smaller_than_a_megabyte() {
    let mut state = DeltaMetadata::new();
    // More requests than are remembered, spread over the whole width of an id.
    let mut request = 0_u128;
    let mut apply = |change| {
        request = request.wrapping_add(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let entry =
            MetadataLogEntry::one(1_771_200_000_000 + (request as i64 & 0xFFFF), RequestId(request), change);
        assert!(state.apply(&entry).is_applied(), "{entry:?}");
    };
    for node in 1..=10 {
        apply(register(Some(node), NodeRole::Server, None));
    }
    apply(create_stream("/shop/orders", 1000));
    let worker = |at: u64, partition: u32| (1 << 32) + at * 1000 + u64::from(partition);
    for partition in 0..1000 {
        apply(assign(partition, Some(owner(0, 1)), owner(worker(1, partition), 2)));
    }
    for at in 2..20 {
        for partition in 0..1000 {
            apply(acquire(
                partition,
                owner(worker(at - 1, partition), at),
                owner(worker(at, partition), at + 1),
            ));
        }
    }
    for partition in 0..1000 {
        apply(commit(partition, owner(worker(19, partition), 20), 77));
        apply(release(partition, owner(worker(19, partition), 20)));
    }
    let bytes = state.snapshot();
    assert!(bytes.len() < 1 << 20, "{} bytes", bytes.len());
    assert_eq!(DeltaMetadata::restore(&bytes), Ok(state));
}

/// A snapshot with everything in it, and small enough to be damaged in every bit.
fn small_snapshot() -> Vec<u8> {
    let mut state = DeltaMetadata::new();
    for entry in &every_entry()[..20] {
        state.apply(entry);
    }
    state.snapshot()
}

#[test]
fn every_flipped_bit_of_a_snapshot_is_found() {
    let mut bytes = small_snapshot();
    assert!(DeltaMetadata::restore(&bytes).is_ok());
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let error = DeltaMetadata::restore(&bytes).expect_err("a flipped bit must be found");
        let right = match bit / 8 {
            0..8 => error == FormatError::NotASnapshot,
            8..28 => matches!(error, FormatError::Checksum { part: "header", .. }),
            _ => matches!(error, FormatError::Checksum { part: "body", .. }),
        };
        assert!(right, "bit {bit}: {error:?}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_truncation_of_a_snapshot_is_found() {
    let bytes = small_snapshot();
    for length in 0..bytes.len() {
        let expected = if length < 28 { 28 } else { bytes.len() as u64 };
        assert_eq!(
            DeltaMetadata::restore(&bytes[..length]),
            Err(FormatError::Truncated { found: length as u64, expected })
        );
    }
    let longer = [bytes.as_slice(), b"\0"].concat();
    assert!(matches!(DeltaMetadata::restore(&longer), Err(FormatError::Malformed { .. })));
}

fn header(version: u32, length: u64) -> Vec<u8> {
    let mut bytes = b"LAMIMETA".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

#[test]
fn a_snapshot_of_a_newer_release_is_invalid_and_a_foreign_file_corrupt() {
    let newer = DeltaMetadata::restore(&header(2, 0)).unwrap_err();
    assert_eq!(newer, FormatError::VersionTooNew { what: "metadata snapshot", found: 2, newest: 1 });
    assert_eq!(newer.kind(), ErrorKind::Invalid);
    assert_eq!(DeltaMetadata::restore(b"PAR1").unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(matches!(DeltaMetadata::restore(&header(0, 0)), Err(FormatError::Malformed { .. })));
    let cut = DeltaMetadata::restore(&header(1, u64::MAX)).unwrap_err();
    assert_eq!(cut, FormatError::Truncated { found: 28, expected: u64::MAX });
    assert_eq!(cut.kind(), ErrorKind::Corrupt);
    // Field 1, the version, is 2.
    let entry = MetadataLogEntry::decode(&[0x08, 0x02]).unwrap_err();
    assert_eq!(entry, FormatError::VersionTooNew { what: "metadata entry", found: 2, newest: 1 });
}

#[test]
fn bytes_that_are_no_entry_or_answer_are_corrupt() {
    for bytes in [&[][..], &[0x08, 0x01], &[0xFF, 0xFF], &[0x22, 0x7F]] {
        assert_eq!(MetadataLogEntry::decode(bytes).unwrap_err().kind(), ErrorKind::Corrupt, "{bytes:?}");
    }
    for bytes in [&[][..], &[0x12, 0x00], &[0xFF]] {
        assert_eq!(MetadataResponse::decode(bytes).unwrap_err().kind(), ErrorKind::Corrupt, "{bytes:?}");
    }
}

#[test]
fn an_entry_with_epoch_0_or_an_unknown_state_or_a_nested_batch_is_malformed() {
    let reason = |bytes: &[u8]| match MetadataLogEntry::decode(bytes) {
        Err(FormatError::Malformed { what: "metadata entry", reason }) => reason,
        other => panic!("the entry must be malformed: {other:?}"),
    };
    // version 1, one { assign_partition { partition_id 1, node_id 1 } }
    assert_eq!(reason(&[0x08, 1, 0x22, 6, 0x0A, 4, 0x08, 1, 0x10, 1]), "an epoch is 0");
    // version 1, one { update_node_state { state 9 } }
    assert_eq!(reason(&[0x08, 1, 0x22, 4, 0x2A, 2, 0x10, 9]), "a node is in no known state");
    // version 1, one { create_stream { machine 1, machine_name "a" } }
    assert_eq!(
        reason(&[0x08, 1, 0x22, 7, 0x4A, 5, 0x28, 1, 0x3A, 1, b'a']),
        "a machine of our own has a name beside it"
    );
    // version 1, batch { changes { field 99 {} } }
    assert_eq!(
        reason(&[0x08, 1, 0x2A, 5, 0x0A, 3, 0x9A, 0x06, 0]),
        "a change is of no kind this release knows"
    );
}

/// Pins the wording that users search for.
#[test]
fn format_errors_read_as_documented() {
    let message = |error: FormatError| error.to_string();
    assert_eq!(
        message(FormatError::NotASnapshot),
        "not a metadata snapshot: it does not start with \"LAMIMETA\"; check which file or object this is"
    );
    assert_eq!(
        message(FormatError::VersionTooNew { what: "metadata snapshot", found: 2, newest: 1 }),
        "metadata snapshot has version 2 and this release reads up to 1; upgrade laminar on this node"
    );
    assert_eq!(
        message(FormatError::Checksum { part: "body", found: 0x9f3c_11a2, expected: 0x1b77_e004 }),
        "metadata snapshot: body checksum 9f3c11a2, expected 1b77e004; fetch it again from a replica"
    );
    assert_eq!(
        message(FormatError::Truncated { found: 27, expected: 28 }),
        "metadata snapshot: 27 bytes, expected 28; fetch it again from a replica"
    );
    assert_eq!(
        message(FormatError::Malformed { what: "metadata entry", reason: "an epoch is 0" }),
        "metadata entry: an epoch is 0; fetch it again from a replica"
    );
}
