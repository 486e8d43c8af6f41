"""Chaos runs against real folders: clients and the node are killed, paused and starved, and no rule breaks.

``make soak`` does the same for ten minutes: ``laminar chaos --seconds 600 --clients 6``.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from nodes import wait_until
from typer.testing import CliRunner

from laminar.chaos import History, Log, Report, Violation, check, faults, workload
from laminar.chaos.client import ClientConfig
from laminar.chaos.history import ROWS_OF_CLIENT
from laminar.chaos.workload import Chaos, ChaosConfig
from laminar.cli.chaos import chaos

SECONDS = float(os.environ.get("LAMINAR_CHAOS_SECONDS", "12"))

app = typer.Typer()
app.command("chaos")(chaos)


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("detached", [True, False])
def test_no_rule_breaks_under_faults(tmp_path: Path, *, detached: bool) -> None:
    report = Chaos(ChaosConfig(seconds=SECONDS, clients=4, detached=detached, keep=tmp_path / "run")).run()
    assert report.is_good, str(report)
    assert sum(report.faults.values()) >= 3, str(report)
    # A run in which nothing got through would prove nothing.
    for kind in ("append", "claim", "batch", "read", "barrier"):
        assert report.operations[kind, "done"] > 0, str(report)
    assert report.rows > 100
    assert not list((tmp_path / "run" / "data").glob("node.json"))


def test_history_of_a_real_run_fails_once_it_is_corrupted(tmp_path: Path) -> None:
    """The checker is not content with whatever a run wrote: a lie in a client's file is found."""
    kept: list[Log] = []

    class Keeping(Chaos):
        def _write_and_read(self, report: Report) -> Log:
            kept.append(super()._write_and_read(report))
            return kept[0]

    report = Keeping(ChaosConfig(seconds=3.0, clients=2, seed=7, keep=tmp_path / "run")).run()
    assert report.is_good, str(report)
    histories = tmp_path / "run" / "histories"
    operations = list(History(histories))
    told = next(one for one in operations if one.kind == "append" and one.outcome == "done")
    others = [one for one in operations if one is not told]
    # Nobody has appended this.
    invented = replace(told, client=99, first_row=99 * ROWS_OF_CLIENT)
    lies = {
        "refused_rows_are_absent": [*others, replace(told, outcome="refused")],
        "acknowledged_rows_are_there": [*operations, invented],
        "rows_are_of_somebody": others,
        "operations_are_whole_or_absent": [*others, replace(told, rows=told.rows + 1_000_000)],
    }
    for rule, corrupted in lies.items():
        assert rule in {violation.rule for violation in check(History(corrupted), kept[0])}
    assert check(History(operations), kept[0]) == []


def test_report_tells_the_command_that_repeats_the_run() -> None:
    assert ChaosConfig(seed=5, detached=False).command() == (
        "laminar chaos --seconds 30 --clients 4 --partitions 4 --seed 5 --embedded"
    )
    assert ChaosConfig().seed != ChaosConfig().seed


def test_command_reports_as_json_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = CliRunner().invoke(app, ["--seconds", "2", "--clients", "2", "--seed", "3", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["seed"], told["lost"], told["doubled"], told["violations"], told["kept"]) == (3, 0, 0, [], "")
    assert told["operations"]["append"]["done"] > 0
    assert "--seed 3" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_broken_rule_fails_the_command_and_keeps_the_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(workload, "check", lambda *_: [Violation("a_rule", "row [7] is lost")])
    result = CliRunner().invoke(app, ["--seconds", "1", "--clients", "1", "--embedded"])
    assert result.exit_code == 1
    assert "a_rule: row [7] is lost" in result.stdout
    kept = re.search(r"kept in (\S+)", result.stdout)
    assert kept is not None
    assert list((Path(kept[1]) / "histories").glob("*.jsonl"))


def test_folder_that_holds_something_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    result = CliRunner().invoke(app, ["--seconds", "1", "--keep", str(tmp_path)])
    assert result.exit_code == 1
    assert "letter.txt" in [path.name for path in tmp_path.iterdir()]


def test_only_processes_of_the_run_are_hurt(tmp_path: Path) -> None:
    # A stale file names a process that has nothing to do with the folder.
    (tmp_path / "node.json").write_text(json.dumps({"pid": os.getppid()}))
    assert faults.node_pid(tmp_path) is None
    (tmp_path / "node.json").write_text("torn")
    assert faults.node_pid(tmp_path) is None


def test_interrupted_run_leaves_no_process(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from laminar.chaos.workload import Chaos, ChaosConfig\n"
        "Chaos(ChaosConfig(seconds=60, clients=2, keep=pathlib.Path(sys.argv[1]))).run()"
    )
    run = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")], stderr=subprocess.DEVNULL)
    histories = tmp_path / "run" / "histories"
    wait_until("clients are at work", lambda: len(list(histories.glob("*.jsonl"))) >= 2)
    run.send_signal(signal.SIGINT)
    assert run.wait(60) != 0
    assert faults.node_pid(tmp_path / "run" / "data") is None
    if sys.platform == "linux":
        left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(histories).encode() in _read(path)]
        assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_client_is_started_as_a_module() -> None:
    config = ClientConfig(
        folder="/f", histories="/h", client=1, seed="1", role="client", until=0.0, call_timeout=1.0, queries=1
    )
    assert config.command()[1:3] == ["-m", "laminar.chaos.client"]
