"""``laminar demo --plain``: the story comes to its end, its count can fail, and nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nodes import wait_until

from laminar.cli import demo_plain, main
from laminar.cli.demo_check import Verdict, check

ROWS: list[dict[str, Any]] = [
    {"id": 1, "_partition": 0, "_offset": 0, "_epoch": 3},
    {"id": 2, "_partition": 0, "_offset": 1, "_epoch": 3},
    {"id": 5, "_partition": 0, "_offset": 2, "_epoch": 4},
    {"id": 3, "_partition": 1, "_offset": 0, "_epoch": 3},
    {"id": 6, "_partition": 1, "_offset": 1, "_epoch": 4},
]
ACKED = [1, 2, 3, 5]


def _demo(temporary: Path, *args: str) -> subprocess.Popen[str]:
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "laminar", "demo", "--plain", *args],
        env={**os.environ, "TMPDIR": str(temporary), "NO_COLOR": "1", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _processes_of(folder: Path) -> list[str]:
    """Command lines of the processes that were started with this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


def _assert_nothing_is_left(temporary: Path) -> None:
    assert list(temporary.iterdir()) == []
    if Path("/proc/self/cmdline").exists():
        wait_until("its processes are gone", lambda: not _processes_of(temporary))


def test_demo_tells_the_story_to_its_end_and_leaves_nothing(tmp_path: Path) -> None:
    process = _demo(tmp_path / "tmp")
    out, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (0, "")
    for expected in ("SIGSTOP", "SIGCONT", "✗ StaleEpochError", "second", "laminar why", "it had landed already"):
        assert expected in out
    assert "nothing lost, nothing doubled" in out
    assert "✗ StaleEpochError" in out
    assert out.count("✓") == 7
    _assert_nothing_is_left(tmp_path / "tmp")


def test_demo_as_json_tells_what_was_counted(tmp_path: Path) -> None:
    process = _demo(tmp_path / "tmp", "--json", "--pause", "0.2")
    out, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (0, "")
    told = json.loads(out)
    assert told["rows"] == told["acknowledged"] >= 800
    assert [told[name] for name in ("lost", "doubled", "unasked", "behind_the_fence", "gaps")] == [0] * 5
    assert (told["refused"]["refused"], told["refused"]["writer"]) == ("StaleEpochError", "second")
    assert told["refused"]["since_ms"] > 0
    assert told["seconds"] < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_that_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    process = _demo(tmp_path / "tmp", "--pause", "60")
    assert process.stdout is not None
    said = ""
    while "SIGSTOP" not in said:
        said = process.stdout.readline()
        assert said
    process.send_signal(number)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    _assert_nothing_is_left(tmp_path / "tmp")


def test_demo_whose_count_is_wrong_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_a_row(acked: list[int], in_doubt: list[int], rows: list[dict[str, Any]]) -> Verdict:
        return check(acked, in_doubt, rows[1:])

    monkeypatch.setattr(demo_plain, "check", lose_a_row)
    monkeypatch.setattr(sys, "argv", ["laminar", "demo", "--plain", "--pause", "0"])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert "the count is wrong: 1 lost" in said.err
    assert "nothing lost" not in said.out


def test_count_of_a_good_history_holds() -> None:
    assert check(ACKED, [6, 7], ROWS) == Verdict(rows=5)
    assert check(ACKED, [6, 7], ROWS).holds


def _changed(place: int, **fields: int) -> list[dict[str, Any]]:
    return [{**row, **fields} if at == place else row for at, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([*ROWS[:2], *ROWS[3:]], {"lost": [5]}),
        ([*ROWS, {"id": 2, "_partition": 1, "_offset": 2, "_epoch": 4}], {"doubled": [2]}),
        ([*ROWS, {"id": 9, "_partition": 1, "_offset": 2, "_epoch": 4}], {"unasked": [9]}),
        (_changed(4, _epoch=2), {"behind_the_fence": [(1, 1)]}),
        (_changed(2, _offset=3), {"gaps": [(0, 3)]}),
        (_changed(0, _offset=-1), {"gaps": [(0, -1), (0, 1)]}),
    ],
    ids=["lost", "doubled", "unasked", "behind the fence", "gap", "gap at the start"],
)
def test_count_of_a_corrupted_history_fails(rows: list[dict[str, Any]], wrong: dict[str, Any]) -> None:
    verdict = check(ACKED, [6], rows)
    assert not verdict.holds
    for name, value in wrong.items():
        assert getattr(verdict, name) == value
