from __future__ import annotations

import copy
import inspect
import pickle

import pytest
from support import guards_of, metadata_of

import laminar
from laminar import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]

TREE = {
    "LaminarError": "Exception",
    "EpochError": "LaminarError",
    "StaleEpochError": "EpochError",
    "UnknownPartitionError": "EpochError",
    "NotOwnedError": "EpochError",
    "ConditionalPutFailedError": "EpochError",
    "CoordinationError": "LaminarError",
    "RaftError": "CoordinationError",
    "NotLeaderError": "CoordinationError",
    "NotInitializedError": "CoordinationError",
    "SnapshotError": "CoordinationError",
    "NetworkError": "CoordinationError",
    "AssignmentError": "LaminarError",
    "NoActiveNodesError": "AssignmentError",
    "InsufficientCapacityError": "AssignmentError",
    "ConstraintViolationError": "AssignmentError",
    "MaxPartitionsExceededError": "AssignmentError",
    "AffinityConflictError": "AssignmentError",
    "EmptyPartitionListError": "AssignmentError",
    "BackpressureError": "LaminarError",
    "LeaseError": "LaminarError",
    "LeaseFencedError": "LeaseError",
    "LeaseSupersededError": "LeaseError",
    "InvalidFenceSignatureError": "LeaseError",
    "UnauthorizedFenceError": "LeaseError",
    "FenceBeforeLeaseError": "LeaseError",
    "FenceSupersededError": "LeaseError",
    "CorruptionError": "LaminarError",
    "UnavailableError": "LaminarError",
    "InvalidError": "LaminarError",
    "InternalError": "LaminarError",
}


def test_tree_is_the_one_that_is_documented() -> None:
    assert {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES} == TREE
    assert issubclass(laminar.InvalidError, ValueError)
    assert all(getattr(laminar, name) is getattr(errors, name) for name in TREE)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_pickles_with_its_fields(cls: type[laminar.LaminarError]) -> None:
    fields = {name: f"value of {name}" for name in cls._fields}
    error = cls("what happened", outcome_unknown=False, **fields)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is cls
        assert str(twin) == "what happened"
        assert {name: getattr(twin, name) for name in cls._fields} == fields
    assert error.kind in ("stale", "fenced", "overloaded", "unavailable", "invalid", "corrupt", "internal")
    assert isinstance(error.retryable, bool)
    assert inspect.getdoc(cls)


def test_unknown_field_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="has no field 'partitoin'; it has partition"):
        laminar.EpochError("x", partitoin=3)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_tells_whether_its_outcome_is_unknown(cls: type[laminar.LaminarError]) -> None:
    assert cls("x").outcome_unknown is False
    for twin in (pickle.loads(pickle.dumps(cls("x", outcome_unknown=True))), cls("x", outcome_unknown=True)):
        assert twin.outcome_unknown is True


def test_fields_of_a_newer_node_are_left_out() -> None:
    error = errors._from_node("StaleEpochError", "x", True, {"writer": "b", "since_ms": 7, "from_the_future": 1})
    assert isinstance(error, laminar.StaleEpochError)
    assert (error.writer, error.since_ms, error.partition, error.outcome_unknown) == ("b", 7, None, True)
    assert not hasattr(error, "from_the_future")


def _every_error_that_rust_raises() -> dict[str, object]:
    nodes = [laminar.NodeInfo(1), laminar.NodeInfo(2)]
    assigner = laminar.ConsistentHashAssigner()
    constraints = laminar.AssignmentConstraints

    def plan(partitions: int = 4, **fields: object) -> object:
        return assigner.initial_assignment(range(partitions), nodes, constraints(**fields))  # type: ignore[arg-type]

    return {
        "StaleEpochError": lambda: laminar.PartitionGuard(3, 1, 1).validate(metadata_of({3: (2, 2)})),
        "UnknownPartitionError": lambda: laminar.PartitionGuard(3, 1, 1).validate(laminar.DeltaMetadata()),
        "NotOwnedError": lambda: guards_of(1, {}).check(3),
        "NoActiveNodesError": lambda: assigner.initial_assignment([1], [laminar.NodeInfo(1, state="draining")]),
        "InsufficientCapacityError": lambda: plan(partition_memory_bytes=10, max_memory_per_node=15),
        "ConstraintViolationError": lambda: plan(anti_affinity_groups=[laminar.AntiAffinityGroup("g", [0, 1, 2])]),
        "MaxPartitionsExceededError": lambda: plan(max_partitions_per_node=1),
        "AffinityConflictError": lambda: plan(
            anti_affinity_groups=[laminar.AntiAffinityGroup("g", [0, 1])],
            affinity_hints=[laminar.AffinityHint("h", [0, 1], strength=1.0)],
        ),
        "EmptyPartitionListError": lambda: assigner.validate_plan(plan(0), nodes),  # type: ignore[arg-type]
        "CorruptionError": lambda: laminar.DeltaMetadata.restore(laminar.DeltaMetadata().snapshot()[:-1] + b"?"),
        "InvalidError": lambda: laminar.PartitionGuard(3, 0, 1),
    }


@pytest.mark.parametrize(("name", "call"), _every_error_that_rust_raises().items())
def test_every_error_raised_by_rust_pickles_and_says_what_to_do(name: str, call: object) -> None:
    with pytest.raises(laminar.LaminarError) as raised:
        call()  # type: ignore[operator]
    error = raised.value
    assert type(error).__name__ == name
    assert "; " in str(error)
    assert not str(error).endswith(".")
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))


def test_fields_of_assignment_errors_carry_value_and_limit() -> None:
    errors_raised = {}
    for name, call in _every_error_that_rust_raises().items():
        try:
            call()  # type: ignore[operator]
        except laminar.LaminarError as error:
            errors_raised[name] = {field: getattr(error, field) for field in error._fields}
    assert errors_raised["NoActiveNodesError"] == {"nodes": 1}
    assert errors_raised["InsufficientCapacityError"]["needed_bytes"] == 40
    assert errors_raised["InsufficientCapacityError"]["available_bytes"] == 30
    assert errors_raised["MaxPartitionsExceededError"] == {"partitions": 4, "limit": 2, "node": None}
    assert errors_raised["AffinityConflictError"] == {"hint": "h"}
    assert errors_raised["ConstraintViolationError"] == {"constraint": 'anti-affinity group "g"'}
