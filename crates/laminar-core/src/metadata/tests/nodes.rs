use super::*;

const SERVER: NodeRole = NodeRole::Server;
const WORKER: NodeRole = NodeRole::Worker;

fn minted(state: &mut DeltaMetadata, change: MetadataChange) -> u64 {
    match apply(state, change).minted() {
        [Minted::Node(node_id)] => node_id.0,
        other => panic!("one node must be minted: {other:?}"),
    }
}

fn update(node: u64, state: NodeState, expected: Option<NodeState>) -> MetadataChange {
    MetadataChange::UpdateNodeState { node_id: NodeId(node), state, metadata: None, expected }
}

#[test]
fn a_registered_node_appears_with_the_time_of_its_entry() {
    let state = after([register(Some(3), SERVER, None)]);
    let node = state.node(NodeId(3)).unwrap();
    assert_eq!((node.role, node.state, node.rpc_address.as_str()), (SERVER, NodeState::Active, "host:7400"));
    assert_eq!((node.registered_at_ms, node.last_updated_ms), (10, 10));
    assert_eq!(state.node_states().len(), 1);
}

#[test]
fn the_assigner_sees_servers_and_no_workers() {
    let state = after([register(None, WORKER, None), register(Some(3), SERVER, None)]);
    let ids: Vec<_> = state.servers().into_iter().map(|node| (node.id.0, node.cores)).collect();
    assert_eq!(ids, [(3, 4)]);
}

#[test]
fn worker_ids_are_minted_and_never_given_out_again() {
    let mut state = DeltaMetadata::new();
    let first = NodeId::WORKER_MIN.0;
    assert_eq!(minted(&mut state, register(None, WORKER, None)), first);
    assert_eq!(minted(&mut state, register(None, WORKER, None)), first + 1);
    assert!(apply(&mut state, deregister(first + 1)).is_applied());
    assert_eq!(minted(&mut state, register(None, WORKER, None)), first + 2);
    let brought = NodeId(first + 9);
    assert_eq!(
        rejected(&mut state, register(Some(brought.0), WORKER, None)),
        Rejection::Invalid(InvalidChange::WorkerIdGiven { node_id: brought })
    );
}

#[test]
fn servers_bring_an_id_below_those_of_workers_or_get_the_next_one() {
    let mut state = DeltaMetadata::new();
    assert_eq!(minted(&mut state, register(None, SERVER, None)), 1);
    assert_eq!(minted(&mut state, register(Some(5), SERVER, None)), 5);
    assert_eq!(minted(&mut state, register(Some(4), SERVER, None)), 4);
    assert_eq!(minted(&mut state, register(None, SERVER, None)), 6);
    for id in [0, NodeId::WORKER_MIN.0, u64::MAX] {
        let invalid = InvalidChange::ServerId { node_id: NodeId(id) };
        assert_eq!(rejected(&mut state, register(Some(id), SERVER, None)), Rejection::Invalid(invalid));
    }
    let last = NodeId::WORKER_MIN.0 - 1;
    assert_eq!(minted(&mut state, register(Some(last), SERVER, None)), last);
    assert_eq!(
        rejected(&mut state, register(None, SERVER, None)),
        Rejection::LimitReached { limit: Limit::ServerIds }
    );
    assert_eq!(minted(&mut state, register(Some(7), SERVER, None)), 7);
    assert_eq!(minted(&mut state, register(None, WORKER, None)), NodeId::WORKER_MIN.0);
}

#[test]
fn a_new_node_never_finds_itself_owner_of_what_was_assigned_to_its_id() {
    let first = NodeId::WORKER_MIN.0;
    let mut state = after([create(0, owner(1, 1)), create(1, owner(first, 1))]);
    assert_eq!(minted(&mut state, register(None, SERVER, None)), 2);
    assert_eq!(minted(&mut state, register(None, WORKER, None)), first + 1);
}

#[test]
fn a_server_is_registered_again_only_from_the_state_it_is_in() {
    let mut state = after([register(Some(3), SERVER, None)]);
    let node_id = NodeId(3);
    assert_eq!(
        rejected(&mut state, register(Some(3), SERVER, None)),
        Rejection::NodeExists { node_id, state: NodeState::Active }
    );
    assert_eq!(
        rejected(&mut state, register(Some(3), SERVER, Some(NodeState::Failed))),
        Rejection::NodeStateChanged { node_id, expected: NodeState::Failed, current: NodeState::Active }
    );
    assert_eq!(
        rejected(&mut state, register(Some(4), SERVER, Some(NodeState::Failed))),
        Rejection::UnknownNode { node_id: NodeId(4) }
    );
    for role in [SERVER, WORKER] {
        assert_eq!(
            rejected(&mut state, register(None, role, Some(NodeState::Active))),
            Rejection::Invalid(InvalidChange::ReregistrationWithoutId)
        );
    }
    assert_eq!(minted(&mut state, register(Some(3), SERVER, Some(NodeState::Active))), 3);
    assert_eq!(state.node(node_id).unwrap().registered_at_ms, state.last_applied_time_ms());
}

#[test]
fn a_node_changes_its_state_if_it_is_in_the_expected_one() {
    let mut state = after([register(Some(3), SERVER, None)]);
    let node_id = NodeId(3);
    assert_eq!(
        rejected(&mut state, update(3, NodeState::Left, Some(NodeState::Draining))),
        Rejection::NodeStateChanged { node_id, expected: NodeState::Draining, current: NodeState::Active }
    );
    assert_eq!(
        rejected(&mut state, update(4, NodeState::Left, None)),
        Rejection::UnknownNode { node_id: NodeId(4) }
    );
    assert!(apply(&mut state, update(3, NodeState::Draining, Some(NodeState::Active))).is_applied());
    assert!(apply(&mut state, update(3, NodeState::Left, None)).is_applied());
    let node = state.node(node_id).unwrap();
    assert_eq!((node.state, node.metadata.cores), (NodeState::Left, 4));
    assert_eq!((node.registered_at_ms, node.last_updated_ms), (10, state.last_applied_time_ms()));

    let larger = NodeMetadata { cores: 16, ..NodeMetadata::default() };
    let change = MetadataChange::UpdateNodeState {
        node_id,
        state: NodeState::Active,
        metadata: Some(larger.clone()),
        expected: Some(NodeState::Left),
    };
    assert!(apply(&mut state, change).is_applied());
    assert_eq!(state.node(node_id).unwrap().metadata, larger);
}

#[test]
fn addresses_and_tags_beyond_their_bounds_are_rejected() {
    let mut state = DeltaMetadata::new();
    let mut try_register = |address: usize, domain: usize, tags: usize, tag: usize| {
        let change = MetadataChange::RegisterNode {
            node_id: None,
            role: SERVER,
            state: NodeState::Joining,
            rpc_address: String::new(),
            raft_address: "a".repeat(address),
            metadata: NodeMetadata {
                failure_domain: Some("d".repeat(domain)),
                tags: (0..tags).map(|t| (format!("{t:04}"), "v".repeat(tag - 4))).collect(),
                ..NodeMetadata::default()
            },
            expected: None,
        };
        apply(&mut state, change).rejection().cloned()
    };
    let too = |bound, given| Some(Rejection::Invalid(InvalidChange::OutOfRange { bound, given }));
    assert_eq!(try_register(1024, 1024, 64, 1024), None);
    assert_eq!(try_register(1025, 0, 0, 4), too(Bound::AddressBytes, 1025));
    assert_eq!(try_register(0, 1025, 0, 4), too(Bound::FailureDomainBytes, 1025));
    assert_eq!(try_register(0, 0, 65, 4), too(Bound::Tags, 65));
    assert_eq!(try_register(0, 0, 1, 1025), too(Bound::TagBytes, 1025));
}

#[test]
fn deregistering_a_node_takes_its_partitions_each_at_its_next_epoch() {
    let mut state = after([
        register(Some(3), SERVER, None),
        create(0, owner(3, 1)),
        create(1, owner(4, 7)),
        create(2, owner(3, 9)),
        release(2, owner(3, 9)),
        release(1, owner(4, 7)),
    ]);
    assert!(apply(&mut state, deregister(3)).is_applied());
    assert_eq!(state.node(NodeId(3)), None);
    let ownership = |partition| state.partition_ownership(PartitionId(partition)).unwrap().owner_epoch();
    assert_eq!((ownership(0), ownership(1), ownership(2)), (owner(0, 2), owner(4, 7), owner(0, 10)));
    assert_eq!(state.pending_releases().keys().collect::<Vec<_>>(), [&PartitionId(1)]);
    let last = state.history(PartitionId(2)).last().unwrap();
    assert_eq!((last.cause, last.previous_owner), (OwnershipCause::Unassigned, NodeId(3)));
}

#[test]
fn deregistering_a_node_increments_the_cluster_epoch() {
    let mut state = after([register(Some(3), SERVER, None)]);
    assert!(apply(&mut state, deregister(3)).is_applied());
    assert_eq!(state.cluster_epoch(), 1);
}

/// The guard compares its epoch with the metadata's; what it needs is that the epoch moved past its own.
#[test]
fn after_deregistration_the_epoch_is_past_every_guard_of_the_node() {
    let mut state = after([register(Some(3), SERVER, None), create(0, owner(3, 5))]);
    let held_by_guard = state.partition_epoch(PartitionId(0)).unwrap();
    assert!(apply(&mut state, deregister(3)).is_applied());
    assert!(state.partition_epoch(PartitionId(0)).unwrap() > held_by_guard);
    assert_ne!(state.partition_owner(PartitionId(0)), Some(NodeId(3)));
}

#[test]
fn a_node_that_is_not_registered_but_owns_something_can_be_deregistered() {
    let mut state = after([create(0, owner(3, 1))]);
    let expecting =
        |node, state| MetadataChange::DeregisterNode { node_id: NodeId(node), expected: Some(state) };
    let unknown = |node| Rejection::UnknownNode { node_id: NodeId(node) };
    assert_eq!(rejected(&mut state, expecting(3, NodeState::Active)), unknown(3));
    assert!(apply(&mut state, deregister(3)).is_applied());
    assert_eq!(state.partition_ownership(PartitionId(0)).unwrap().owner_epoch(), owner(0, 2));
    assert_eq!(rejected(&mut state, deregister(3)), unknown(3));

    assert!(apply(&mut state, register(Some(5), SERVER, None)).is_applied());
    assert_eq!(
        rejected(&mut state, expecting(5, NodeState::Left)),
        Rejection::NodeStateChanged {
            node_id: NodeId(5),
            expected: NodeState::Left,
            current: NodeState::Active
        }
    );
    assert!(apply(&mut state, expecting(5, NodeState::Active)).is_applied());
}

#[test]
fn nobody_cannot_be_deregistered() {
    let mut state = after([create_stream("/a", 2)]);
    assert_eq!(rejected(&mut state, deregister(0)), Rejection::Invalid(InvalidChange::NodeUnassigned));
}

#[test]
fn a_node_with_an_exhausted_partition_keeps_everything() {
    let mut state =
        after([register(Some(3), SERVER, None), create(0, owner(3, 1)), create(1, owner(3, u64::MAX))]);
    assert_eq!(rejected(&mut state, deregister(3)), Rejection::EpochExhausted { partition: PartitionId(1) });
}

#[test]
fn the_cluster_epoch_increments_if_the_expected_one_holds() {
    let increment = |expected| MetadataChange::IncrementClusterEpoch { expected };
    let mut state = after([increment(None), increment(Some(1))]);
    assert_eq!(state.cluster_epoch(), 2);
    assert_eq!(
        rejected(&mut state, increment(Some(1))),
        Rejection::ClusterEpochChanged { expected: 1, current: 2 }
    );
    state.cluster_epoch = u64::MAX;
    let limit = Limit::ClusterEpochs;
    assert_eq!(rejected(&mut state, increment(None)), Rejection::LimitReached { limit });
    apply(&mut state, register(Some(3), SERVER, None));
    assert_eq!(rejected(&mut state, deregister(3)), Rejection::LimitReached { limit });
}

#[test]
fn the_cluster_holds_so_many_nodes_and_no_more() {
    let registrations = vec![register(None, WORKER, None); NODES_MAX];
    let mut state = DeltaMetadata::new();
    assert!(state.apply(&MetadataLogEntry::batch(0, RequestId::NONE, registrations)).is_applied());
    assert_eq!(
        rejected(&mut state, register(None, SERVER, None)),
        Rejection::LimitReached { limit: Limit::Nodes }
    );
}
