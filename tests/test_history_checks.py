"""The rules of a chaos run can fail: each is fed a history or a log that breaks it, and a good one passes."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laminar.chaos import History, HistoryWriter, Log, Operation, Report, check, checks
from laminar.chaos.history import ROWS_OF_CLIENT

ONE, TWO, THREE = ROWS_OF_CLIENT, 2 * ROWS_OF_CLIENT, 3 * ROWS_OF_CLIENT

Row = tuple[int, int, int, int]

# Two partitions. Client 1 appends as a managed client and then is fenced by client 2, which claims both under epoch 2
# and commits a batch. Client 3 was killed in the middle of an append that landed.
ROWS: list[Row] = [
    (0, 0, ONE, 1),
    (0, 1, ONE + 1, 1),
    (0, 2, TWO, 2),
    (0, 3, TWO + 3, 2),
    (1, 0, ONE + 2, 1),
    (1, 1, THREE, 1),
    (1, 2, TWO + 1, 2),
]


def _seen(ends: dict[int, int]) -> dict[int, tuple[int, int, str]]:
    log = Log.of(ROWS)
    return {partition: (0, end, log.digest(partition, 0, end)) for partition, end in ends.items()}


HISTORY = {
    operation.name: operation
    for operation in [
        Operation(
            client=1,
            number=0,
            kind="append",
            called=1.0,
            ended=2.0,
            outcome="done",
            first_row=ONE,
            rows=3,
            offsets={0: (0, 2), 1: (0, 1)},
            global_index=10,
        ),
        Operation(client=3, number=0, kind="append", called=2.0, first_row=THREE, rows=1),
        Operation(
            client=1,
            number=1,
            kind="barrier",
            called=2.5,
            ended=2.6,
            outcome="done",
            global_index=11,
            seen=_seen({0: 2, 1: 2}),
        ),
        Operation(client=2, number=0, kind="claim", called=3.0, ended=4.0, outcome="done", epochs={0: 2, 1: 2}),
        Operation(
            client=2,
            number=1,
            kind="batch",
            called=4.1,
            ended=4.5,
            outcome="done",
            first_row=TWO,
            rows=2,
            offsets={0: (2, 3), 1: (2, 3)},
            epochs={0: 2, 1: 2},
            global_index=20,
            query="q",
            batch=7,
        ),
        Operation(
            client=2,
            number=2,
            kind="batch",
            called=4.6,
            ended=4.7,
            outcome="done",
            first_row=TWO + 2,
            rows=1,
            offsets={0: (2, 3), 1: (2, 3)},
            epochs={0: 2, 1: 2},
            global_index=20,
            query="q",
            batch=7,
            duplicate=True,
        ),
        Operation(
            client=1,
            number=2,
            kind="append",
            called=4.8,
            ended=4.9,
            outcome="refused",
            error="NotOwnedError: held by another",
            first_row=ONE + 3,
            rows=2,
        ),
        Operation(
            client=2,
            number=3,
            kind="append",
            called=5.0,
            ended=5.1,
            outcome="done",
            first_row=TWO + 3,
            rows=1,
            offsets={0: (3, 4)},
            epochs={0: 2, 1: 2},
            global_index=21,
        ),
        Operation(client=1, number=3, kind="read", called=6.0, ended=6.1, outcome="done", seen=_seen({0: 4, 1: 3})),
        Operation(
            client=1,
            number=4,
            kind="barrier",
            called=6.2,
            ended=6.3,
            outcome="done",
            global_index=21,
            seen=_seen({0: 4, 1: 3}),
        ),
        Operation(client=2, number=4, kind="claim", called=7.0, ended=7.1, outcome="done", epochs={0: 3}),
    ]
}


def _broken(rule: checks.Rule, rows: list[Row] | None = None, **changed: Operation | None) -> list[str]:
    operations = {name.replace(" ", "_"): operation for name, operation in HISTORY.items()} | changed
    history = History(operation for operation in operations.values() if operation is not None)
    return list(rule(history, Log.of(ROWS if rows is None else rows)))


def _with(name: str, **values: Any) -> dict[str, Operation]:
    return {name.replace(" ", "_"): replace(HISTORY[name], **values)}


def _without(row: int) -> list[Row]:
    return [there for there in ROWS if there[2] != row]


def test_good_history_passes() -> None:
    assert check(History(HISTORY.values()), Log.of(ROWS)) == []


def test_unknown_append_may_be_absent() -> None:
    # The row was the second of its partition: the one after it takes its place.
    rows = [(p, o - 1 if p == 1 and o == 2 else o, row, epoch) for p, o, row, epoch in _without(THREE)]
    for rule in (
        checks.operations_are_whole_or_absent,
        checks.rows_are_of_somebody,
        checks.offsets_have_no_gaps,
        checks.acknowledged_rows_are_there,
    ):
        assert _broken(rule, rows) == []


def test_writer_that_claims_again_by_itself_writes_under_its_new_epoch() -> None:
    changed = _with("append 3 of client 2", epochs={0: 1, 1: 1}, epochs_after={0: 2, 1: 2})
    assert _broken(checks.superseded_writers_write_nothing, None, **changed) == []


CORRUPTED: list[tuple[checks.Rule, list[Row] | None, dict[str, Operation], str]] = [
    (checks.acknowledged_rows_are_there, _without(ONE + 1), {}, "append 0 of client 1 .* 1 of its 3 rows are lost"),
    (checks.acknowledged_rows_are_there, _without(TWO), {}, "batch 1 of client 2"),
    (
        checks.acknowledged_rows_are_where_it_was_said,
        None,
        _with("append 0 of client 1", offsets={0: (0, 1), 1: (0, 2)}),
        "append 0 of client 1",
    ),
    (checks.no_row_is_there_twice, [*ROWS, (1, 3, ONE, 2)], {}, "append 0 of client 1 .*doubled"),
    (checks.no_row_is_there_twice, [*ROWS, (1, 3, THREE, 2)], {}, r"\(unknown\).*doubled"),
    (checks.refused_rows_are_absent, [*ROWS, (1, 3, ONE + 4, 2)], {}, "append 2 of client 1 .*NotOwnedError"),
    (checks.operations_are_whole_or_absent, [*ROWS, (1, 3, ONE + 4, 2)], {}, "1 of its 2 rows are missing"),
    (
        checks.operations_are_whole_or_absent,
        None,
        _with("append 0 of client 3", rows=2),
        r"append 0 of client 3 \(unknown\)",
    ),
    (checks.rows_are_of_somebody, [*ROWS, (1, 3, 9 * ROWS_OF_CLIENT, 2)], {}, "8 rows are there, and 7"),
    (checks.rows_are_of_somebody, [*ROWS, (1, 3, -1, 2)], {}, "row -1"),
    (checks.offsets_have_no_gaps, [*ROWS, (1, 4, THREE + 1, 2)], {}, "partition 1: after offset 2 comes 4"),
    (checks.offsets_have_no_gaps, [*ROWS, (1, 2, THREE + 1, 2)], {}, "partition 1: after offset 2 comes 2"),
    (checks.epochs_never_decrease, [*ROWS, (1, 3, THREE + 1, 1)], {}, "epoch 1 at offset 3 comes after epoch 2"),
    (checks.batches_land_once, [*ROWS, (1, 3, TWO + 2, 2)], {}, "batch 7 of query q has landed 2 times"),
    (checks.batches_land_once, [row for row in ROWS if row[2] not in (TWO, TWO + 1)], {}, "batch 7 .*lost"),
    (
        checks.reads_see_what_is_there,
        [(p, o, THREE + 5 if row == ONE + 1 else row, epoch) for p, o, row, epoch in ROWS],
        {},
        "partition 0 from 0 to 4 had other rows",
    ),
    (checks.reads_see_what_is_there, ROWS[:-1], {}, "partition 1"),
    (
        checks.reads_see_acknowledged_rows,
        None,
        _with("read 3 of client 1", seen=_seen({0: 3, 1: 3})),
        "partition 0 ended at 3, and 4 rows",
    ),
    (
        checks.reads_see_acknowledged_rows,
        None,
        _with("barrier 1 of client 1", seen=_seen({0: 1, 1: 2})),
        "barrier 1 of client 1: partition 0 ended at 1",
    ),
    (
        checks.barrier_reads_are_one_cut,
        None,
        _with("barrier 4 of client 1", seen=_seen({0: 4, 1: 2})),
        "rows up to 3 belong to the cut",
    ),
    (
        checks.barrier_reads_are_one_cut,
        None,
        _with("barrier 1 of client 1", seen=_seen({0: 3, 1: 2})),
        "the row at 2 came later",
    ),
    (
        checks.barrier_reads_are_one_cut,
        None,
        _with("barrier 4 of client 1", global_index=11),
        "at 11: partition 0 ends at 4",
    ),
    (
        checks.claims_have_epochs_of_their_own,
        None,
        _with("claim 4 of client 2", epochs={0: 2}),
        "both got epoch 2",
    ),
    (
        checks.claims_have_epochs_of_their_own,
        None,
        _with("claim 4 of client 2", epochs={0: 1}),
        "got epoch 1 after a greater one",
    ),
    (
        # The zombie's row lies before any row of the new epoch, so that the log alone does not tell.
        checks.superseded_writers_write_nothing,
        None,
        _with("append 0 of client 1", called=4.05, ended=4.06),
        "under epoch 1, and was called after the claim of epoch 2",
    ),
    (
        # Also where the answer was lost.
        checks.superseded_writers_write_nothing,
        None,
        _with("append 0 of client 3", called=4.05),
        "append 0 of client 3 wrote to partition 1 under epoch 1",
    ),
    (
        checks.superseded_writers_write_nothing,
        None,
        _with("append 3 of client 2", epochs={0: 1, 1: 1}),
        "lies under epoch 2, its own is 1",
    ),
    (
        # A row under a later epoch than the writer ever held.
        checks.superseded_writers_write_nothing,
        None,
        _with("append 3 of client 2", epochs={0: 0, 1: 0}, epochs_after={0: 1, 1: 1}),
        "lies under epoch 2, its own is 0",
    ),
    (
        checks.errors_are_those_of_the_design,
        None,
        _with("append 2 of client 1", error="InternalError: a bug"),
        "a bug",
    ),
]


@pytest.mark.parametrize(("rule", "rows", "changed", "told"), CORRUPTED)
def test_corrupted_history_is_caught(
    rule: checks.Rule, rows: list[Row] | None, changed: dict[str, Operation], told: str
) -> None:

    found = _broken(rule, rows, **changed)
    assert any(re.search(told, what) for what in found), found


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, *_ in CORRUPTED} == set(checks.RULES)


def test_violations_are_bounded_and_fail_the_report() -> None:
    history = History(
        Operation(client=1, number=n, kind="append", called=n, ended=n, outcome="done", first_row=ONE + n, rows=1)
        for n in range(100)
    )
    violations = check(history, Log())
    assert [violation.rule for violation in violations] == ["acknowledged_rows_are_there"] * checks.VIOLATIONS_MAX
    report = Report(seed=1, command="laminar chaos --seed 1", seconds=1.0, violations=violations)
    assert not report.is_good
    report.count(history, Log())
    assert (report.lost, report.doubled, report.outcome("done")) == (100, 0, 100)
    assert "lost 100" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["lost"] == 100


def test_history_comes_back_from_disk(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "00001.jsonl", 1)
    first = writer.begin("append", first_row=ONE, rows=2, epochs={3: 4})
    second = writer.begin("batch", query="q", batch=7, first_row=ONE + 2, rows=1)
    read = writer.begin("read")
    writer.end(read, "done", seen={0: (0, 2, "ab")})
    writer.end(first, "done", offsets={3: (0, 2)}, global_index=5)
    writer.close()
    with (tmp_path / "00001.jsonl").open("a") as file:
        file.write('{"number": 1, "outco')
    operations = {operation.number: operation for operation in History(tmp_path)}
    assert operations[first].outcome == "done"
    assert operations[first].offsets == {3: (0, 2)}
    assert operations[first].epochs == {3: 4}
    assert operations[read].seen == {0: (0, 2, "ab")}
    # It never heard the answer.
    assert (operations[second].outcome, operations[second].ended) == ("unknown", None)
    assert operations[first].called <= (operations[first].ended or 0.0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_client_leaves_what_it_began(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        HistoryWriter(tmp_path / "00001.jsonl", 1).begin("append", first_row=ONE, rows=1)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert [(operation.kind, operation.outcome) for operation in History(tmp_path)] == [("append", "unknown")]
