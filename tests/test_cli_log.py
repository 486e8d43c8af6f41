"""``laminar log``: a replica of release 0.1 looked at, whole and damaged, as a person does it."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_cli import refused, run

import laminar
from laminar._native import inspect_log, verify_log
from laminar.cli import progress

GOLDEN = Path(__file__).parent / "data/0.1/replica.hex"


def write_golden(folder: Path) -> Path:
    """The folder that ``crates/laminar-log/tests/it/inspect.rs`` wrote down."""
    file = folder
    for line in GOLDEN.read_text().splitlines():
        if line.startswith("file "):
            _, name, length = line.split(" ")
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"")
            os.truncate(file, int(length))
            continue
        offset, data = line.split(": ")
        with file.open("r+b") as out:
            out.seek(int(offset, 16))
            out.write(bytes.fromhex(data))
    return folder


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    return write_golden(tmp_path / "replica")


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def flip(file: Path, offset: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1 << bit
    file.write_bytes(data)


def last_segment(replica: Path) -> Path:
    return max((replica / "raft").glob("*.seg"))


def as_json(*args: str, exit_code: int = 0) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run("log", *args, "--json", exit_code=exit_code).stdout)
    return report


def test_inspect_shows_the_tables(replica: Path) -> None:
    text = run("log", "inspect", str(replica), width=160).stdout
    for expected in (
        "a replica (formats: segments 1, records 1, snapshots 1)",
        "segmented log",
        "12 to 19",
        "node 1 in term 3, by a quorum",
        "3-11",
        "partitions",
        "1970-01-01 00:00:05",
        "snapshots",
        "3-14",
    ):
        assert expected in text


def test_inspect_as_json_is_the_report(replica: Path) -> None:
    report = as_json("inspect", str(replica))
    assert report["kind"] == "replica"
    assert report["first_error"] is None
    log = report["segmented_log"]
    assert log["vote"] == {"term": 3, "node": 1, "committed": True}
    assert (log["purged"], log["last"]) == ({"term": 3, "index": 11}, {"term": 3, "index": 19})
    assert log["committed"] == log["durable"] == log["last"]
    assert log["synced_end"] == log["end"] == log["segments"][-1]["end"]
    assert [partition["partition"] for partition in report["partitions"]] == [1, 2, 3, 5]
    one = report["partitions"][0]
    assert (one["end"], one["end_offset"], one["last_epoch"], one["owner"]) == (13, 33, 2, 2)
    assert (one["last_log_id"], one["last_time_ms"]) == ({"term": 3, "index": 19}, 5000)
    assert [snapshot["log_id"]["index"] for snapshot in report["snapshots"]] == [14]


def test_tables_can_be_limited(replica: Path) -> None:
    text = run("log", "inspect", str(replica), "--rows", "1", width=160).stdout
    assert "… and 3 more (--rows 4 shows all)" in text


def test_verify_reads_everything_and_says_so(replica: Path) -> None:
    assert "all of it is as it was written: 29 records" in run("log", "verify", str(replica)).stdout
    report = as_json("verify", str(replica))
    assert (report["ok"], report["records"], report["first_error"]) == (True, 29, None)
    assert report["bytes"] > 10_000
    assert (report["cuts"], report["ahead"]) == ([], [])


def test_nothing_is_changed(replica: Path) -> None:
    before = content(replica)
    run("log", "inspect", str(replica))
    run("log", "verify", str(replica))
    flip(last_segment(replica), 0)
    damaged = content(replica)
    run("log", "inspect", str(replica), exit_code=1)
    run("log", "verify", str(replica), exit_code=1)
    assert content(replica) == damaged
    assert damaged.keys() == before.keys()


def test_a_folder_that_cannot_be_written_to_is_no_obstacle(replica: Path) -> None:
    for path in [*replica.rglob("*"), replica]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        run("log", "verify", str(replica))
        run("log", "inspect", str(replica))
    finally:
        for path in [replica, *replica.rglob("*")]:
            path.chmod(0o755)


def test_bad_record_is_one_line_with_its_place(replica: Path) -> None:
    flip(last_segment(replica), 4096 + 64 + 20)
    line = refused("log", "verify", str(replica))
    assert line.startswith(f"laminar: {replica}/raft: segment ")
    for expected in ("record ", "at byte ", "checksum ", "expected "):
        assert expected in line
    error = as_json("verify", str(replica), exit_code=1)["first_error"]
    assert error["log"] == "raft"
    assert f"segment {error['segment']}, record {error['record']} at byte {error['byte']}" in line
    assert f"checksum {error['found']}, expected {error['expected']}" in line
    assert as_json("verify", str(replica), exit_code=1)["ok"] is False


def test_damaged_snapshot_is_found(replica: Path) -> None:
    flip(next((replica / "snapshots").iterdir()), 40)
    assert "the snapshot cannot be used" in refused("log", "verify", str(replica))


def test_damaged_partition_is_shown_among_the_others(replica: Path) -> None:
    flip(next((replica / "partitions/00000002").iterdir()), 0)
    done = run("log", "inspect", str(replica), exit_code=1, width=160)
    assert "damaged" in done.stdout
    assert "node 2" in done.stdout
    assert done.stderr.startswith(f"laminar: {replica}/partitions/00000002: segment 1, header at byte 0: checksum ")
    assert done.stderr.count("\n") == 1
    report = as_json("inspect", str(replica), exit_code=1)
    assert report["first_error"] == report["partitions"][1]["error"]


def test_stored_record_of_another_entry_is_named(replica: Path) -> None:
    """Another replica's raft folder beside these partitions: what a copy that went wrong leaves."""
    other = write_golden(replica.parent / "other")
    for path in (replica / "raft").iterdir():
        path.unlink()
    assert "the segmented log ends with none (LOG-1)" in refused("log", "verify", str(replica))
    assert as_json("verify", str(other))["ok"] is True


def test_unsynced_tail_is_told_and_is_no_error(replica: Path) -> None:
    segment = last_segment(replica)
    used = as_json("inspect", str(replica))["segmented_log"]["segments"][-1]["bytes"]
    flip(segment, used - 10)
    done = run("log", "verify", str(replica), width=200)
    assert "raft has an unsynced tail" in done.stdout
    [cut] = as_json("verify", str(replica))["cuts"]
    assert (cut["log"], cut["byte"]) == ("raft", used - 64)
    assert "something unsynced stands behind record" in run("log", "inspect", str(replica), width=160).stdout


def test_folder_of_one_log(replica: Path) -> None:
    assert as_json("inspect", str(replica / "raft"))["kind"] == "segmented_log"
    assert as_json("inspect", str(replica / "partitions/00000003"))["kind"] == "partition_log"
    assert as_json("verify", str(replica / "partitions/00000003"))["records"] > 0
    done = subprocess.run(
        [sys.executable, "-m", "laminar", "log", "inspect", "."],
        cwd=replica / "partitions/00000003",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "the log of one partition" in done.stdout


def test_what_is_no_log_is_refused_in_one_line(tmp_path: Path, replica: Path) -> None:
    for command in ("inspect", "verify"):
        assert "there is no log here; give the folder of a replica" in refused("log", command, str(tmp_path / ".."))
        assert "cannot be listed: No such file" in refused("log", command, str(tmp_path / "none"))
        assert "cannot be listed: Not a directory" in refused("log", command, str(last_segment(replica)))


@pytest.mark.parametrize(
    "args", [("log", "inspct"), ("log", "verify"), ("log", "inspect", ".", "--rows", "-1"), ("log", "verify", "--jsn")]
)
def test_bad_usage_exits_2(args: tuple[str, ...]) -> None:
    assert run(*args, exit_code=2).stdout == ""


def test_help_names_the_commands() -> None:
    text = run("log", "--help").stdout
    assert "inspect" in text
    assert "verify" in text
    assert "log" in run("--help").stdout


def make_long(replica: Path) -> None:
    """A segment with a torn tail, and terabytes of nothing behind it to be looked through."""
    segment = last_segment(replica)
    used = as_json("inspect", str(replica))["segmented_log"]["segments"][-1]["bytes"]
    flip(segment, used - 10)
    os.truncate(segment, 1 << 40)


@pytest.mark.parametrize(("command", "shown"), [("verify", b"verifying"), ("inspect", b"reading")])
def test_long_reading_shows_a_bar_on_a_terminal_and_stops_at_ctrl_c(replica: Path, command: str, shown: bytes) -> None:
    make_long(replica)
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "laminar", "log", command, str(replica)],
        stdout=subprocess.PIPE,
        stderr=end,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
    )
    os.close(end)
    seen = _read_until(terminal, shown)
    assert shown in seen
    assert b"TiB" in seen
    process.send_signal(signal.SIGINT)
    rest = _read_until(terminal, None)
    assert process.communicate(timeout=10)[0] == b""
    os.close(terminal)
    assert b"Traceback" not in rest
    assert process.returncode in (1, 130)


def _read_until(terminal: int, wanted: bytes | None) -> bytes:
    """What the other side writes until ``wanted`` is there, or until it is gone."""
    seen = b""
    while wanted is None or wanted not in seen:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # how a terminal says that nobody has it open any more
            break
        seen += part
    return seen


def test_bar_is_drawn_on_a_terminal_only_and_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(quiet_seconds: float, *, terminal: bool) -> str:
        monkeypatch.setattr(progress, "_QUIET_SECONDS", quiet_seconds)
        out = io.StringIO()
        with progress.reading_bar("reading", Console(file=out, force_terminal=terminal, width=100)) as bar:
            bar(1 << 20, 4 << 20)
            bar(2 << 20, 4 << 20)
        return out.getvalue()

    assert "reading" in drawn(0, terminal=True)
    assert drawn(0, terminal=False) == ""
    assert drawn(60, terminal=True) == ""


def test_native_functions_call_back_and_pass_on_what_is_raised(replica: Path) -> None:
    told: list[tuple[int, int]] = []
    for look in (inspect_log, verify_log):
        told.clear()
        json.loads(look(replica, lambda done, total: told.append((done, total))))
        assert told[-1][0] == told[-1][1] > 0
        assert told == sorted(told)

    def stop(_done: int, _total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        verify_log(str(replica), stop)
    with pytest.raises(laminar.InvalidError, match="path is 3; it must be a path"):
        verify_log(3)  # type: ignore[arg-type]
    with pytest.raises(laminar.InvalidError, match="no log here"):
        inspect_log(replica.parent)
