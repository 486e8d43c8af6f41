"""Named scenarios of processes: forks, pickles, Ctrl-C, and a node that dies or starves while others append."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from nodes import Process, wait_until

import laminar
from laminar import LaminarError
from laminar.chaos import faults

SCHEMA = pa.schema({"n": pa.int64()})

NODE = """
db = laminar.open(folder)
stream = db.create_stream("/numbers", partitions=4, schema=pa.schema({"n": pa.int64()}), key="n")
say("node")
"""

#: A forked child and its parent append at the same time, with the handle that the parent made and has used.
FORK = """
def append(first):
    for n in range(first, first + 100):
        stream.append([{"n": n}])
stream.append([{"n": -1}])
child = os.fork()
if child == 0:
    code = 1
    try:
        append(1000)
        code = 0 if db.status().node.pid == node else 2
    finally:
        os._exit(code)
append(2000)
_, status = os.waitpid(child, 0)
append(3000)
say(os.waitstatus_to_exitcode(status))
wait()
"""
AFTER_FORK = Counter([-1, *range(1000, 1100), *range(2000, 2100), *range(3000, 3100)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def _numbers(stream: laminar.Stream) -> Counter[int]:
    return Counter(stream.read().read_all()["n"].to_pylist())


def test_forked_child_of_the_node_connects_as_a_client(folder: Path) -> None:
    with Process(NODE + "node = os.getpid()\n" + FORK, folder) as parent:
        assert parent.hear() == "node"
        assert parent.hear() == "0"
        with laminar.connect(folder) as db:
            assert db.status().node.pid == parent.pid
            assert _numbers(db.stream("/numbers")) == AFTER_FORK


def test_forked_child_of_a_client_has_a_producer_id_of_its_own(folder: Path) -> None:
    # A shared id would take one's rows for the other's repeats, or refuse them.
    script = 'db = laminar.connect(folder)\nnode = db.status().node.pid\nstream = db.stream("/numbers")\n' + FORK
    with laminar.open(folder) as db:
        stream = db.create_stream("/numbers", partitions=4, schema=SCHEMA, key="n")
        with Process(script, folder) as parent:
            assert parent.hear() == "0"
            assert _numbers(stream) == AFTER_FORK


def test_pickled_handle_used_in_other_processes_has_producer_ids_of_its_own(folder: Path) -> None:
    script = """
import pickle
stream = pickle.loads(bytes.fromhex(wait()))
say("ready")
for n in range(int(wait()), 10**9):
    stream.append([{"n": n}])
    if n % 1000 == 99:
        break
say("done")
wait()
"""
    with laminar.open(folder) as db, ExitStack() as running:
        stream = db.create_stream("/numbers", partitions=4, schema=SCHEMA, key="n")
        stream.append([{"n": -1}])
        # The same bytes for both.
        pickled = pickle.dumps(stream).hex()
        others = [running.enter_context(Process(script, folder)) for _ in range(2)]
        for other in others:
            other.tell(pickled)
            assert other.hear() == "ready"
        for first, other in zip((1000, 2000), others, strict=True):
            other.tell(str(first))
        for n in range(3000, 3100):
            stream.append([{"n": n}])
        assert [other.hear() for other in others] == ["done", "done"]
        assert _numbers(stream) == Counter([-1, *range(1000, 1100), *range(2000, 2100), *range(3000, 3100)])


#: Tells when the main thread is inside a call of laminar, so that Ctrl-C meets it there and nowhere else.
BLOCKED = """
import threading
main = threading.main_thread().ident
def watch(inside):
    while True:
        frame = sys._current_frames()[main]
        if frame.f_code.co_name == inside and "laminar" in frame.f_code.co_filename:
            since = time.monotonic()
            while sys._current_frames()[main] is frame and time.monotonic() < since + 0.3:
                time.sleep(0.01)
            if time.monotonic() >= since + 0.3:
                say("blocked")
                return
        time.sleep(0.01)
def interrupted(inside, call):
    threading.Thread(target=watch, args=(inside,), daemon=True).start()
    try:
        call()
        say("came back")
    except KeyboardInterrupt:
        say("interrupted")
"""

CALLS = {
    "append": ("append", 'lambda: stream.append([{"n": 7}], timeout=60.0)'),
    "append as a writer": ("append", 'lambda: writer.append([{"n": 7}])'),
    "barrier": ("barrier", "lambda: stream.barrier(timeout=60.0)"),
    "claim": ("writer", 'lambda: stream.writer("other", timeout=60.0)'),
    "offsets": ("offsets", "stream.offsets"),
}


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_a_call_to_a_stopped_node(folder: Path, call: str) -> None:
    inside, code = CALLS[call]
    script = f"""{BLOCKED}
stream = laminar.connect(folder, timeout=60.0).stream("/numbers")
stream.append([{{"n": 1}}])
stream.barrier()
writer = stream.writer("first", timeout=60.0)
say("ready")
wait()
interrupted({inside!r}, ({code}))
wait()
say(stream.offsets() != {{}})
"""
    with Process(NODE + "while True: wait()", folder) as node, ExitStack() as running:
        assert node.hear() == "node"
        process = running.enter_context(Process(script, folder))
        assert process.hear() == "ready"
        node.kill(signal.SIGSTOP)
        process.tell()
        assert process.hear() == "blocked"
        began = time.monotonic()
        process.kill(signal.SIGINT)
        assert process.hear(10.0) == "interrupted"
        assert time.monotonic() - began < 1.0
        # The handle is as good as before.
        node.kill(signal.SIGCONT)
        process.tell()
        assert process.hear() == "True"


def test_ctrl_c_ends_a_read_that_follows(folder: Path) -> None:
    script = f"""{BLOCKED}
stream = laminar.connect(folder).stream("/numbers")
interrupted("_batches", stream.read(follow=True).read_next_batch)
stream.append([{{"n": 1}}])
say(stream.read().read_all().num_rows)
"""
    with laminar.open(folder) as db:
        db.create_stream("/numbers", partitions=4, schema=SCHEMA, key="n")
        with Process(script, folder) as process:
            assert process.hear() == "blocked"
            began = time.monotonic()
            process.kill(signal.SIGINT)
            assert process.hear(10.0) == "interrupted"
            assert time.monotonic() - began < 1.0
            assert process.hear() == "1"


#: Appends without end until it is told to stop; tells what was acknowledged, refused, and what is unknown.
APPENDER = """
import json, threading
db = laminar.open(folder, detached=DETACHED, timeout=30.0, client_timeout=2.0)
stream = db.stream("/numbers")
told = {"done": [], "refused": [], "unknown": []}
stop = threading.Event()
first = int(wait())
def append():
    for n in range(first, first + 10**6):
        if stop.is_set():
            return
        try:
            stream.append([{"n": n}])
            told["done"].append(n)
        except laminar.LaminarError as error:
            told["unknown" if error.outcome_unknown else "refused"].append(n)
thread = threading.Thread(target=append)
thread.start()
while True:
    if wait() == "count":
        say(len(told["done"]))
    else:
        break
stop.set()
thread.join()
say(json.dumps(told))
wait()
"""


def _count(appender: Process) -> int:
    appender.tell("count")
    return int(appender.hear())


def _wait_for_more(appender: Process, before: int) -> None:
    wait_until(f"process {appender.pid} goes on", lambda: _count(appender) > before + 10, timeout=30.0)


@pytest.mark.parametrize("detached", [False, True])
def test_node_killed_in_the_middle_of_appends_of_others(folder: Path, *, detached: bool) -> None:
    """They go on by themselves, with the same handles, and nothing that was acknowledged is lost."""
    script = APPENDER.replace("DETACHED", str(detached))
    with ExitStack() as running:
        with laminar.open(folder, detached=detached) as db:
            db.create_stream("/numbers", partitions=4, schema=SCHEMA, key="n")
            appenders = [running.enter_context(Process(script, folder)) for _ in range(4)]
            for number, appender in enumerate(appenders):
                appender.tell(str(number * 10**6))
            for appender in appenders:
                _wait_for_more(appender, 0)
        killed: set[int] = set()
        for _ in range(3):
            pid = wait_until("there is a node", lambda: faults.node_pid(folder))
            assert faults.send(pid, signal.SIGKILL)
            killed.add(pid)
            left = [appender for appender in appenders if appender.pid not in killed]
            before = [_count(appender) for appender in left]
            for appender, count in zip(left, before, strict=True):
                _wait_for_more(appender, count)
        told: list[dict[str, list[int]]] = []
        for appender in appenders:
            if appender.pid not in killed:
                appender.tell("stop")
                told.append(json.loads(appender.hear()))
    with laminar.open(folder) as db:
        numbers = _numbers(db.stream("/numbers"))
    assert max(numbers.values()) == 1
    for one in told:
        assert set(one["done"]) <= set(numbers)
        assert not set(one["refused"]) & set(numbers)
    assert len(killed) == 3


def test_stopped_detached_node_outlives_the_process_that_started_it(folder: Path) -> None:
    # The kernel hangs up on a process group that is stopped when the last process that cared for it ends.
    with Process("db = laminar.open(folder, detached=True)\nsay(db.status().node.pid)\nwait()", folder) as starter:
        pid = int(starter.hear())
        assert faults.send(pid, signal.SIGSTOP)
        wait_until("the node is stopped", lambda: _state(pid) == "T")
        starter.kill()
        starter.ended()
    # The hang-up comes with a SIGCONT: a node that is still stopped was not hung up on yet.
    faults.send(pid, signal.SIGCONT)
    with laminar.open(folder, detached=True) as db:
        assert db.status().node.pid == pid


def _state(pid: int) -> str:
    shown = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607 - where it is differs
    return shown.stdout.strip()[:1]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the files of another process")
def test_disk_full_and_then_space_again(folder: Path) -> None:
    with laminar.open(folder, detached=True, client_timeout=2.0) as db:
        stream = db.create_stream("/numbers", partitions=4, schema=SCHEMA, key="n")
        stream.append([{"n": n} for n in range(1000)])
        done, open_outcome = list(range(1000)), list[int]()
        pid = faults.node_pid(folder)
        assert pid is not None
        with faults.disk_full(pid):
            errors: list[LaminarError] = []
            for n in range(1000, 1005):
                try:
                    stream.append([{"n": n}], timeout=1.0)
                    done.append(n)
                except LaminarError as error:
                    errors.append(error)
                    if error.outcome_unknown:
                        open_outcome.append(n)
            assert errors
            assert all(error.retryable for error in errors)
            # Whoever asks is told why.
            assert db.status(partitions=False).data_group.last_fault
        # The same process goes on: nobody has to start it again.
        stream.append([{"n": 2000}], timeout=60.0)
        assert faults.node_pid(folder) == pid
        with stream.writer("after") as writer:
            writer.append([{"n": 3000}])
        numbers = _numbers(stream)
        assert max(numbers.values()) == 1
        assert {*done, 2000, 3000} <= set(numbers) <= {*done, *open_outcome, 2000, 3000}
