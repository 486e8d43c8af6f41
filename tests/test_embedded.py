"""The node of a folder in this process, in another, killed, stopped, detached; forks, pickles and Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from nodes import Count, Process, wait_until

import laminar
from laminar import InvalidError, UnavailableError

SCHEMA = pa.schema({"n": pa.int64()})
# A machine that fails is given up on soon.
QUICK: dict[str, Any] = {"apply_attempts_max": 2, "apply_backoff_max": 0.01}

NODE = """
db = laminar.open(folder)
stream = db.create_stream("/numbers", partitions=2, schema=pa.schema({"n": pa.int64()}), key="n", exist_ok=True)
say("node")
while True:
    stream.append([{"n": int(wait())}])
    say("appended")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def _numbers(stream: laminar.Stream) -> list[int]:
    return sorted(stream.read().read_all()["n"].to_pylist())


def _pid(folder: Path) -> int:
    pid: int = json.loads((folder / "node.json").read_text())["pid"]
    return pid


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _exit_code(child: int) -> int | None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def test_rows_are_there_after_opening_again(folder: Path) -> None:
    with laminar.open(folder) as db:
        db.create_stream("/numbers", schema=SCHEMA).append([{"n": 1}])
    assert not (folder / "node.json").exists()
    with laminar.open(folder) as db:
        assert _numbers(db.stream("/numbers")) == [1]
        assert db.status().node.folder_epoch == 2


def test_two_handles_of_a_process_share_the_node(folder: Path) -> None:
    first, second = laminar.open(folder), laminar.open(folder)
    first.create_stream("/numbers", schema=SCHEMA).append([{"n": 1}])
    first.close()
    first.close()
    assert _numbers(second.stream("/numbers")) == [1]
    with pytest.raises(InvalidError, match="closed"):
        first.streams()
    second.close()
    assert not (folder / "node.json").exists()


def test_handle_that_is_dropped_lets_the_node_go(folder: Path) -> None:
    db = laminar.open(folder)
    reader = db.create_stream("/numbers", schema=SCHEMA).read()
    del db
    # Whoever reads keeps the node.
    assert reader.read_all().num_rows == 0
    del reader
    wait_until("the node is gone", lambda: not (folder / "node.json").exists())


def test_second_process_joins_and_takes_over_when_the_first_is_killed(folder: Path) -> None:
    with Process(NODE, folder) as node:
        assert node.hear() == "node"
        with laminar.open(folder) as db:
            assert db.status().node.pid == node.pid
            stream = db.stream("/numbers")
            stream.append([{"n": 1}])
            node.tell("2")
            assert node.hear() == "appended"
            assert _numbers(stream) == [1, 2]
            node.kill()
            node.ended()
            # The same handle: it finds that nobody is the node, and becomes it.
            stream.append([{"n": 3}])
            assert _numbers(stream) == [1, 2, 3]
            assert db.status().node.pid == os.getpid()


def test_node_that_ends_cleanly_is_replaced(folder: Path) -> None:
    with Process(NODE + "\n", folder) as node:
        node.hear()
        with laminar.open(folder) as db:
            stream = db.stream("/numbers")
            stream.append([{"n": 1}])
            # End of its input: it exits.
            node.kill(signal.SIGTERM)
            node.ended()
            stream.append([{"n": 2}])
            assert _numbers(stream) == [1, 2]


def test_writer_of_a_killed_node_is_fenced_by_the_next(folder: Path) -> None:
    script = NODE.replace('say("node")', 'writer = stream.writer("first")\nwriter.append([{"n": 1}])\nsay("node")')
    with Process(script, folder) as node:
        node.hear()
        node.kill()
        node.ended()
    with laminar.open(folder) as db:
        stream = db.stream("/numbers")
        # Claims outlive the process: safety does not depend on who is alive.
        with pytest.raises(laminar.NotOwnedError) as raised:
            stream.append([{"n": 2}], timeout=5.0)
        assert raised.value.writer == "first"
        with stream.writer("second") as writer:
            writer.append([{"n": 3}])
        assert _numbers(stream) == [1, 3]


def test_stopped_node_is_named_at_the_deadline(folder: Path) -> None:
    with Process(NODE, folder) as node:
        node.hear()
        with laminar.open(folder) as db:
            stream = db.stream("/numbers")
            stream.append([{"n": 1}])
            node.kill(signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(UnavailableError, match=f"{node.pid}") as raised:
                stream.append([{"n": 2}], timeout=1.0)
            assert time.monotonic() - began < 10
            assert raised.value.pid == node.pid
            assert raised.value.outcome_unknown
            node.kill(signal.SIGCONT)
            stream.append([{"n": 3}])
            assert set(_numbers(stream)) >= {1, 3}


def test_paused_writer_wakes_and_is_refused(folder: Path) -> None:
    script = """
db = laminar.connect(folder)
writer = db.stream("/numbers").writer("first")
writer.append([{"n": 1}])
say("paused")
wait()
try:
    writer.append([{"n": 2}])
    say("landed")
except laminar.StaleEpochError as error:
    say("refused", error.writer)
"""
    with laminar.open(folder) as db:
        stream = db.create_stream("/numbers", partitions=2, schema=SCHEMA, key="n")
        with Process(script, folder) as zombie:
            assert zombie.hear() == "paused"
            zombie.kill(signal.SIGSTOP)
            with stream.writer("second") as writer:
                writer.append([{"n": 3}])
                zombie.kill(signal.SIGCONT)
                zombie.tell()
                assert zombie.hear() == "refused second"
        assert _numbers(stream) == [1, 3]


def test_connect_to_what_is_no_laminar_folder_fails_at_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("text")
    wrong = {
        "data": "no such folder",
        "empty": "not a laminar folder",
        "other": "not a laminar",
        "file": "not a folder",
    }
    for name, why in wrong.items():
        began = time.monotonic()
        with pytest.raises(InvalidError, match=why):
            laminar.connect(str(tmp_path / name))
        assert time.monotonic() - began < 10, name
    assert not folder.exists()
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["letter.txt"]


def test_connect_waits_for_a_node_that_comes_back(folder: Path) -> None:
    laminar.open(folder).close()
    found: list[int] = []
    waits = threading.Thread(target=lambda: found.append(laminar.connect(folder).status().node.pid))
    waits.start()
    with laminar.open(folder):
        waits.join(30)
    assert found == [os.getpid()]


@pytest.mark.parametrize("how", ["open", "detached", "connect", "link"])
def test_folder_whose_name_is_not_utf8_is_refused_at_once(tmp_path: Path, how: str) -> None:
    wrong = tmp_path / os.fsdecode(b"data\xff")
    open_it = {"detached": lambda: laminar.open(wrong, detached=True), "connect": lambda: laminar.connect(wrong)}
    if how == "link":
        wrong.mkdir()
        (tmp_path / "link").symlink_to(wrong)
        open_it["link"] = lambda: laminar.open(tmp_path / "link" / "data")
    began = time.monotonic()
    with pytest.raises(InvalidError, match="not UTF-8"):
        open_it.get(how, lambda: laminar.open(wrong))()
    assert time.monotonic() - began < 10
    assert list(wrong.iterdir()) == [] if how == "link" else not wrong.exists()


@pytest.mark.parametrize("command", [["status"], ["stream", "create", "/a"]])
def test_command_line_refuses_a_folder_whose_name_is_not_utf8_in_one_line(tmp_path: Path, command: list[str]) -> None:
    wrong = os.fsencode(tmp_path) + b"/data\xff"
    done = subprocess.run(
        [sys.executable, "-m", "laminar", *command, "--at", wrong], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"not UTF-8" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not Path(os.fsdecode(wrong)).exists()


def test_connect_never_makes_a_folder_or_a_node(folder: Path) -> None:
    for wrong in (folder, str(folder)):
        with pytest.raises(InvalidError):
            laminar.connect(wrong, timeout=0.5)
    assert not folder.exists()
    with laminar.open(folder) as db:
        db.create_stream("/numbers", schema=SCHEMA)
        with laminar.connect(folder) as client:
            client.stream("/numbers").append([{"n": 1}])
            assert client.status().node.pid == os.getpid()
    with pytest.raises(UnavailableError):
        laminar.connect(folder, timeout=0.5)
    assert not (folder / "node.json").exists()


def test_connect_by_address_needs_the_secret(folder: Path) -> None:
    with laminar.open(folder) as db:
        db.create_stream("/numbers", schema=SCHEMA)
        endpoint = json.loads((folder / "node.json").read_text())
        with laminar.connect(endpoint["address"], secret=endpoint["secret"]) as client:
            assert [stream.path for stream in client.streams()] == ["/numbers"]
        for secret in (None, "wrong"):
            with pytest.raises(InvalidError):
                laminar.connect(endpoint["address"], secret=secret, timeout=5.0)
        assert (folder / "node.json").stat().st_mode & 0o077 == 0
    with pytest.raises(InvalidError, match="host:port"):
        laminar.connect("nonsense")


def _appends_to(node: Process, folder: Path, number: int) -> None:
    with laminar.connect(folder, timeout=10.0) as client:
        client.stream("/numbers").append([{"n": number}])
        assert client.status().node.pid == node.pid


def test_other_processes_come_through_a_socket_in_the_folder_that_only_this_user_can_use(folder: Path) -> None:
    with Process(NODE, folder) as node:
        node.hear()
        endpoint = folder / "node.json"
        socket = folder / json.loads(endpoint.read_text())["socket"]
        assert socket.is_socket()
        assert socket.stat().st_mode & 0o077 == 0
        told = endpoint.read_text()
        # Nobody listens at the port that the file names now.
        endpoint.write_text(json.dumps(json.loads(told) | {"address": "127.0.0.1:1"}))
        _appends_to(node, folder, 1)
        endpoint.write_text(told)
        # Without the socket the port serves.
        socket.unlink()
        _appends_to(node, folder, 2)
    with laminar.open(folder) as db:
        assert _numbers(db.stream("/numbers")) == [1, 2]
        # A connection to the node of before must not find this one: it asks for another secret.
        assert [path.name for path in folder.glob("*.sock")] == ["node.2.sock"]
    assert not list(folder.glob("*.sock"))


def test_folder_whose_path_is_too_long_for_a_socket_is_reached_through_the_port(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    with Process(NODE, folder) as node:
        node.hear()
        assert not list(folder.glob("*.sock"))
        _appends_to(node, folder, 1)


def test_folders_that_are_not_ours_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("text")
    for wrong in ("other", "file"):
        with pytest.raises(InvalidError):
            laminar.open(tmp_path / wrong)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["letter.txt"]


def test_unknown_settings_offer_the_nearest(folder: Path) -> None:
    with pytest.raises(InvalidError, match="did you mean inline_bytes_max"):
        laminar.open(folder, inline_byte_max=3)
    with pytest.raises(InvalidError, match="worker_timeout"):
        laminar.open(folder, worker_timeout="soon")
    with pytest.raises(InvalidError, match="timeout"):
        laminar.open(folder, timeout=-1)
    assert not folder.exists()


def test_detached_node_outlives_its_first_client_and_ends_after_the_last(folder: Path) -> None:
    with laminar.open(folder, detached=True, client_timeout=1.0) as db:
        pid = db.status().node.pid
        assert pid not in (0, os.getpid())
        stream = db.create_stream("/numbers", schema=SCHEMA)
        stream.append([{"n": 1}])
        with laminar.open(folder, detached=True) as second:
            assert second.status().node.pid == pid
            assert _numbers(second.stream("/numbers")) == [1]
    wait_until("the node's process has ended", lambda: not _is_alive(pid), timeout=30)
    assert "is the node" in (folder / "node.log").read_text()
    with laminar.open(folder) as db:
        assert _numbers(db.stream("/numbers")) == [1]


def test_detached_node_that_is_killed_is_started_again(folder: Path) -> None:
    with laminar.open(folder, detached=True, client_timeout=1.0) as db:
        stream = db.create_stream("/numbers", schema=SCHEMA)
        stream.append([{"n": 1}])
        pid = _pid(folder)
        os.kill(pid, signal.SIGKILL)
        stream.append([{"n": 2}])
        assert _pid(folder) != pid
        assert _numbers(stream) == [1, 2]
        pid = _pid(folder)
        os.kill(pid, signal.SIGTERM)
        wait_until("the node's process has ended", lambda: not _is_alive(pid), timeout=30)


def test_detached_node_has_the_machines_that_it_can_import(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with laminar.open(folder, detached=True, machines={"count": Count}, client_timeout=1.0, **QUICK) as db:
        stream = db.create_stream("/counts", schema=SCHEMA, machine="count")
        assert stream.append([{"n": 1}]).rows == 1
        assert db.status().paused == []
    with pytest.raises(InvalidError, match="cannot import"):
        laminar.open(folder, detached=True, machines={"count": type("Local", (Count,), {"__module__": "__main__"})})


def test_detached_node_that_cannot_import_a_machine_is_told_at_once(folder: Path) -> None:
    nowhere = type("Nowhere", (Count,), {"__module__": "nowhere_to_be_found"})
    began = time.monotonic()
    with pytest.raises(InvalidError, match="ModuleNotFoundError: No module named 'nowhere_to_be_found'"):
        laminar.open(folder, detached=True, machines={"count": nowhere})
    assert time.monotonic() - began < 20


def test_detached_node_that_cannot_start_is_tried_a_few_times_and_its_reason_told(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=f"cannot listen on {address}") as raised:
            laminar.open(folder, detached=True, listen=address, timeout=6.0)
    assert not raised.value.outcome_unknown
    assert 1 <= (folder / "node.log").read_text().count("failed: cannot listen") <= 3
    with laminar.open(folder) as db:
        assert db.streams() == []


def test_node_process_that_finds_another_to_be_the_node_says_so(folder: Path) -> None:
    with laminar.open(folder):
        done = subprocess.run([sys.executable, "-m", "laminar.node", folder], check=False, timeout=60)
        assert done.returncode == 75
    assert not (folder / "node.log").exists()


def test_detached_node_whose_start_met_a_lock_for_a_moment_is_started_again(folder: Path) -> None:
    """Somebody has the lock just while the first process looks for it; nobody is the node then."""
    folder.mkdir()
    opened: list[laminar.Cluster] = []
    opens = threading.Thread(target=lambda: opened.append(laminar.open(folder, detached=True, client_timeout=1.0)))
    opens.start()
    (started,) = wait_until("a process is started", lambda: _processes_of(folder))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wait_until("it has given up", lambda: started not in _processes_of(folder))
    opens.join(15)
    assert len(opened) == 1
    assert opened[0].status().node.pid != started
    opened[0].close()


def _processes_of(folder: Path) -> list[int]:
    """The processes that are to be the node of a folder."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = line.read_bytes().split(b"\0")
            if b"laminar.node" in words and os.fsencode(folder) in words:
                found.append(int(line.parent.name))
    return found


def test_pickled_handles_work_here_and_in_another_process(folder: Path) -> None:
    with laminar.open(folder) as db:
        stream = db.create_stream("/numbers", partitions=2, schema=SCHEMA, key="n")
        stream.append([{"n": 1}])
        twin = pickle.loads(pickle.dumps(stream))
        assert (twin, twin.stream_id, twin.cluster) == (stream, stream.stream_id, db)
        twin.append([{"n": 2}])
        script = """
import pickle
stream = pickle.loads(bytes.fromhex(wait()))
stream.append([{"n": 3}])
say(stream.cluster.status().node.pid)
"""
        with Process(script, folder) as other:
            other.tell(pickle.dumps(stream).hex())
            assert int(other.hear()) == os.getpid()
            assert other.ended() == 0
        assert _numbers(stream) == [1, 2, 3]
        twin.cluster.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_uses_its_parents_stream_and_not_its_writer(folder: Path) -> None:
    with laminar.open(folder) as db:
        stream = db.create_stream("/numbers", partitions=2, schema=SCHEMA, key="n")
        other = db.create_stream("/other", schema=SCHEMA)
        stream.append([{"n": 1}])
        writer = other.writer("parent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                stream.append([{"n": 2}])
                same = db.status().node.pid == os.getppid()
                try:
                    writer.append([{"n": 3}])
                except InvalidError as error:
                    code = 0 if same and "belongs to the process" in str(error) else 2
            finally:
                os._exit(code)
        assert _exit_code(child) == 0
        writer.append([{"n": 4}])
        writer.close()
        stream.append([{"n": 5}])
        assert (_numbers(stream), _numbers(other)) == ([1, 2, 5], [4])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_while_threads_append_leave_the_child_free(folder: Path) -> None:
    with laminar.open(folder) as db:
        stream = db.create_stream("/numbers", partitions=2, schema=SCHEMA, key="n")
        stop = threading.Event()
        count = [0, 0]

        def append(thread: int) -> None:
            while not stop.is_set():
                stream.append([{"n": thread}])
                count[thread] += 1

        threads = [threading.Thread(target=append, args=(thread,)) for thread in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        stream.append([{"n": 9}])
                        code = 0
                    finally:
                        os._exit(code)
                assert _exit_code(child) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        numbers = _numbers(stream)
        assert [numbers.count(n) for n in (0, 1, 9)] == [*count, 5]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_a_folder_is_opened_and_closed_leaves_the_child_free_to_open(tmp_path: Path) -> None:
    """Whose turn it is to open a folder must not be remembered in a child: nobody there will give it back."""
    stop = threading.Event()

    def open_and_close() -> None:
        while not stop.is_set():
            laminar.open(tmp_path / "parent").close()

    opens = threading.Thread(target=open_and_close)
    opens.start()
    try:
        wait_until("it has begun", (tmp_path / "parent" / "folder.json").exists)
        for number in range(5):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    with laminar.open(tmp_path / f"child-{number}", timeout=20.0) as db:
                        code = 0 if db.streams() == [] else 2
                finally:
                    os._exit(code)
            assert _exit_code(child) == 0
    finally:
        stop.set()
        opens.join()


def test_child_that_forked_does_not_keep_the_folder(folder: Path) -> None:
    script = """
db = laminar.open(folder)
child = os.fork()
if child == 0:
    time.sleep(60)
say(child)
wait()
"""
    with Process(script, folder) as node:
        child = int(node.hear())
        try:
            node.kill()
            node.ended()
            with laminar.open(folder, timeout=10.0) as db:
                assert db.status().node.pid == os.getpid()
        finally:
            os.kill(child, signal.SIGKILL)


def test_ctrl_c_ends_a_read_that_follows(folder: Path) -> None:
    script = """
db = laminar.open(folder)
stream = db.create_stream("/numbers", schema=pa.schema({"n": pa.int64()}))
stream.append([{"n": 1}])
reader = stream.read(follow=True)
reader.read_next_batch()
try:
    say("follows")
    reader.read_next_batch()
except KeyboardInterrupt:
    say("interrupted")
stream.append([{"n": 2}])
say(stream.read().read_all().num_rows)
"""
    with Process(script, folder) as process:
        assert process.hear() == "follows"
        process.kill(signal.SIGINT)
        assert process.hear(5.0) == "interrupted"
        assert process.hear() == "2"
        assert process.ended() == 0
    assert not (folder / "node.json").exists()


class Sum:
    """Adds up what it is given, and refuses a negative number."""

    def __init__(self) -> None:
        self.total = 0

    def apply(self, batch: pa.RecordBatch) -> None:
        numbers = batch["n"].to_pylist()
        if min(numbers) < 0:
            raise ValueError(f"negative: {min(numbers)}")
        self.total += sum(numbers)
        SUMS.append(self.total)

    def snapshot(self) -> bytes:
        return str(self.total).encode()

    def restore(self, state: bytes) -> None:
        self.total = int(state)


SUMS: list[int] = []


def _paused(db: laminar.Cluster) -> list[laminar.PartitionStatus]:
    return db.status("/sums").paused


def test_failing_machine_pauses_its_partition_alone(folder: Path) -> None:
    SUMS.clear()
    with laminar.open(folder, machines={"sum": Sum}, **QUICK) as db:
        stream = db.create_stream("/sums", schema=SCHEMA, machine="sum")
        other = db.create_stream("/other", schema=SCHEMA)
        stream.append([{"n": 5}])
        thread = threading.Thread(target=_append_quietly, args=(stream, -1))
        thread.start()
        (paused,) = wait_until("the partition pauses", lambda: _paused(db))
        assert (paused.stream, paused.partition) == ("/sums", 0)
        assert "ValueError: negative: -1" in paused.paused
        assert other.append([{"n": 1}]).rows == 1
        assert db.resume("/sums", 0)
        (paused,) = wait_until("it pauses again", lambda: _paused(db))
        db.skip("/sums", 0, paused.paused_at)
        wait_until("it goes on", lambda: not _paused(db))
        stream.append([{"n": 7}])
        thread.join()
        assert SUMS[-1] == 12
        db.snapshot()
    with laminar.open(folder, machines={"sum": Sum}, **QUICK) as db:
        db.stream("/sums").append([{"n": 1}])
        assert SUMS[-1] == 13


def _append_quietly(stream: laminar.Stream, number: int) -> None:
    with contextlib.suppress(laminar.LaminarError):
        stream.append([{"n": number}], timeout=20.0)


def test_machine_that_the_node_does_not_have_says_so(folder: Path) -> None:
    with laminar.open(folder, machines={"sum": Sum}) as db:
        db.create_stream("/sums", schema=SCHEMA, machine="sum").append([{"n": 5}])
    with laminar.open(folder, **QUICK) as db:
        thread = threading.Thread(target=_append_quietly, args=(db.stream("/sums"), 1))
        thread.start()
        (paused,) = wait_until("the partition pauses", lambda: _paused(db))
        assert 'machines={"sum"' in paused.paused
    thread.join()


def test_machines_that_cannot_be_are_refused(folder: Path) -> None:
    for machines in ({"log": Sum}, {"a": int}, {"": Sum}):
        with pytest.raises(InvalidError, match="machine"):
            laminar.open(folder, machines=machines)  # type: ignore[arg-type]
    with laminar.open(folder) as db, pytest.raises(InvalidError):
        db.create_stream("/a", machine="sum")


EXITS = """
import threading
stream = laminar.open(folder).create_stream("/numbers", schema=pa.schema({"n": pa.int64()}))
rows = threading.Semaphore(0)
def append():
    while True:
        stream.append([{"n": 1}])
        rows.release()
def follow():
    for _ in stream.read(follow=True):
        pass
for work in [append] * 6 + [follow] * 2:
    threading.Thread(target=work, daemon=True).start()
for _ in range(50):
    rows.acquire()
sys.exit(5)
"""


def test_interpreter_ends_cleanly_while_daemon_threads_are_in_calls(tmp_path: Path) -> None:
    # What it would say goes to a pipe that the test reads.
    script = "import os, sys\nos.dup2(1, 2)\n" + EXITS
    for place in range(4):
        with Process(script, tmp_path / str(place)) as exits:
            assert exits.hear(60.0) == ""
            assert exits.ended() == 5
