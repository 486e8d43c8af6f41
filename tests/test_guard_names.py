"""EPOCH-3 through every name a guard has in Python: itself, its set, removed, replaced, put back, pickled."""

from __future__ import annotations

import pickle
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from support import metadata_of

import laminar
from laminar import PartitionGuard, PartitionGuardSet

PARTITIONS = st.integers(0, 2)
EPOCHS = st.integers(1, 4)
VIEWS = st.dictionaries(PARTITIONS, st.tuples(st.integers(1, 2), EPOCHS))


def _passes(check: Any, *args: Any) -> bool:
    try:
        check(*args)
    except laminar.EpochError:
        return False
    return True


class GuardNames(RuleBasedStateMachine):
    """Whatever is done to guards and sets, a guard that failed once never passes again.

    A guard is followed by every object that stands for it. What a set finds fresh must be fresh by every name.
    """

    guards = Bundle("guards")
    sets = Bundle("sets")

    def __init__(self) -> None:
        super().__init__()
        self.all_guards: list[PartitionGuard] = []
        self.all_sets: list[PartitionGuardSet] = []
        self.ended: set[int] = set()

    @rule(target=guards, partition=PARTITIONS, epoch=EPOCHS)
    def make_guard(self, partition: int, epoch: int) -> PartitionGuard:
        return self._follow(PartitionGuard(partition, epoch, 1))

    @rule(target=sets)
    def make_set(self) -> PartitionGuardSet:
        self.all_sets.append(PartitionGuardSet(1))
        return self.all_sets[-1]

    @rule(guard=guards, guard_set=sets)
    def insert(self, guard: PartitionGuard, guard_set: PartitionGuardSet) -> None:
        guard_set.insert(guard)
        assert _passes(guard_set.check, guard.partition_id) == _passes(guard.check)

    @rule(target=guards, guard_set=sets, partition=PARTITIONS, takes=st.booleans())
    def take_out(self, guard_set: PartitionGuardSet, partition: int, takes: bool) -> Any:  # noqa: FBT001
        fresh = _passes(guard_set.check, partition)
        guard = guard_set.remove(partition) if takes else guard_set.get(partition)
        if guard is None:
            return self.make_guard(partition, 1)
        assert _passes(guard.check) == fresh
        return self._follow(guard)

    @rule(guard=guards, view=VIEWS)
    def refresh_guard(self, guard: PartitionGuard, view: dict[int, tuple[int, int]]) -> None:
        assert guard.refresh(metadata_of(view)) == _passes(guard.check)

    @rule(guard_set=sets, view=VIEWS, validates=st.booleans())
    def refresh_set(self, guard_set: PartitionGuardSet, view: dict[int, tuple[int, int]], validates: bool) -> None:  # noqa: FBT001
        metadata = metadata_of(view)
        if validates:
            guard_set.validate_all(metadata)
        else:
            guard_set.refresh_all(metadata)

    @rule(target=guards, guard=guards)
    def pickle_guard(self, guard: PartitionGuard) -> PartitionGuard:
        twin: PartitionGuard = pickle.loads(pickle.dumps(guard))
        assert twin == guard
        return self._follow(twin)

    @rule(target=sets, guard_set=sets)
    def pickle_set(self, guard_set: PartitionGuardSet) -> PartitionGuardSet:
        twin: PartitionGuardSet = pickle.loads(pickle.dumps(guard_set))
        assert twin == guard_set
        probe, twin_probe = pickle.loads(pickle.dumps((guard_set, twin)))
        for partition in range(3):
            if partition not in guard_set:
                for target in (probe, twin_probe):
                    target.insert(PartitionGuard(partition, 1, 1))
                assert _passes(probe.check, partition) == _passes(twin_probe.check, partition)
        self.all_sets.append(twin)
        return twin

    @invariant()
    def what_ended_never_comes_back(self) -> None:
        for number, guard in enumerate(self.all_guards):
            if number in self.ended:
                assert not _passes(guard.check), guard
            elif not _passes(guard.check):
                self.ended.add(number)

    @invariant()
    def set_and_members_agree(self) -> None:
        for guard_set in self.all_sets:
            for partition in guard_set.partition_ids():
                member = guard_set.get(partition)
                assert member is not None
                if _passes(guard_set.check, partition):
                    assert _passes(member.check), (guard_set, member)

    def _follow(self, guard: PartitionGuard) -> PartitionGuard:
        self.all_guards.append(guard)
        return guard


TestGuardNames = GuardNames.TestCase


@pytest.mark.parametrize("view", [{1: (2, 2)}, {}], ids=["superseded", "vanished"])
def test_stale_guard_stays_stale_when_removed_replaced_or_put_back(view: dict[int, tuple[int, int]]) -> None:
    guard, guards = PartitionGuard(1, 1, 1), PartitionGuardSet(1)
    guards.insert(guard)
    guards.refresh_all(metadata_of(view))
    guards.remove(1)
    assert not _passes(guard.check)
    guards.insert(guard)
    assert not _passes(guards.check, 1)
    guards.insert(PartitionGuard(1, 3, 1))
    assert _passes(guards.check, 1)
    assert not _passes(guard.check)


def test_fresh_guard_ends_when_its_set_takes_a_later_one() -> None:
    guard, guards = PartitionGuard(1, 1, 1), PartitionGuardSet(1)
    guards.insert(guard)
    guards.insert(PartitionGuard(1, 3, 1))
    with pytest.raises(laminar.StaleEpochError):
        guard.check()
