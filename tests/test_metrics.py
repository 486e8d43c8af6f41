"""What a node counts, and how it is asked for it: by a call, by the command line, and over HTTP."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands import Commands
from nodes import Process, wait_until

import laminar
from laminar import InvalidError

ROOT = Path(__file__).parent.parent
SCHEMA = pa.schema({"id": pa.int64()})
SAMPLE = re.compile(r"(laminar_\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')
SUFFIX = re.compile(r"_(bucket|sum|count)$")


class Page:
    """A page of figures, read as Prometheus does and checked meanwhile."""

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {}
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        assert text.endswith("\n")
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in self.kinds, f"{name} stands in two places"
                self.kinds[name] = kind
            elif not line.startswith("# HELP "):
                self._take(line)
        for name, kind in self.kinds.items():
            if kind == "histogram":
                self._check_histogram(name)

    def _take(self, line: str) -> None:
        found = SAMPLE.fullmatch(line)
        assert found is not None, line
        name, labels, value = found[1], found[2] or "", found[3]
        assert LABEL.sub("", labels) == "", line
        family = name if name in self.kinds else SUFFIX.sub("", name)
        assert family in self.kinds, f"{line}: nothing says what it is"
        key = name, frozenset(LABEL.findall(labels))
        assert key not in self._values, f"{line}: a second time"
        self._values[key] = float(value)

    def _check_histogram(self, name: str) -> None:
        buckets = [(float(dict(labels)["le"]), value) for labels, value in self.all(f"{name}_bucket")]
        counts = [value for _, value in sorted(buckets)]
        assert counts == sorted(counts)
        assert counts[-1] == self(f"{name}_count")

    def all(self, name: str) -> list[tuple[frozenset[tuple[str, str]], float]]:
        return [(labels, value) for (found, labels), value in self._values.items() if found == name]

    def __call__(self, name: str, **labels: object) -> float:
        """The value of one sample; that of a count which has not begun is 0."""
        return self._values.get((name, frozenset((key, str(value)) for key, value in labels.items())), 0.0)


def _page(db: laminar.Cluster) -> Page:
    return Page(db.metrics())


@pytest.fixture
def db(tmp_path: Path) -> Iterator[laminar.Cluster]:
    with laminar.open(tmp_path / "data", metrics_address="127.0.0.1:0") as db:
        yield db


def _ask(address: str | None, path: str, method: str = "GET") -> tuple[int, str, dict[str, str]]:
    """Status, body and headers."""
    assert address is not None
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, response.read().decode(), headers
    finally:
        connection.close()


def test_appends_and_reads_are_counted(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", partitions=2, schema=SCHEMA)
    before = _page(db)
    for begin in range(0, 30, 10):
        stream.append([{"id": number} for number in range(begin, begin + 10)])
    assert stream.read().read_all().num_rows == 30
    after = _page(db)
    for name, more in {
        "laminar_appends_total": 3,
        "laminar_append_rows_total": 30,
        "laminar_append_seconds_count": 3,
        "laminar_read_rows_total": 30,
        "laminar_append_duplicates_total": 0,
        "laminar_staged_parts_total": 0,
    }.items():
        assert after(name) - before(name) == more, name
    for name in ("laminar_append_bytes_total", "laminar_append_seconds_sum", "laminar_segmented_fsync_seconds_count"):
        assert after(name) > before(name), name
    assert after("laminar_calls_total", method="Append", outcome="ok") == 3
    offsets = [value for _, value in after.all("laminar_partition_next_offset")]
    assert sum(offsets) == 30
    assert len(offsets) == 2
    for ordinal in range(2):
        partition = stream._native.partition_id(ordinal)
        assert after("laminar_partition_info", partition=partition, stream="/a", ordinal=ordinal) == 1
        assert after("laminar_partition_epoch", group=0, partition=partition) > 0
    for group in ("metadata", "data"):
        assert after("laminar_raft_serving", group=group) == 1
        assert after("laminar_raft_leader", group=group) == 1
        assert after("laminar_raft_applied_index", group=group) > 0
    assert after("laminar_raft_last_index", group="data") > before("laminar_raft_last_index", group="data")
    assert after("laminar_build_info", version=laminar.__version__) == 1
    assert after("laminar_node_uptime_seconds") > 0
    assert (after("laminar_streams"), after("laminar_partitions")) == (1, 2)


def test_refusals_claims_and_takeovers_are_counted(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", schema=SCHEMA)
    with stream.writer("ingest") as writer:
        writer.append([{"id": 1}])
        with pytest.raises(laminar.NotOwnedError):
            stream.append([{"id": 2}])
        page = _page(db)
        assert (page("laminar_claims_total"), page("laminar_takeovers_total")) == (1, 0)
        assert page("laminar_append_refusals_total", **{"class": "NotOwnedError"}) == 1
        assert page("laminar_calls_total", method="Append", outcome="NotOwnedError") == 1
        assert page("laminar_writers", state="active") == 1
        with stream.writer("ingest") as successor:
            successor.append([{"id": 3}])
            page = _page(db)
            assert (page("laminar_claims_total"), page("laminar_takeovers_total")) == (2, 1)
    with pytest.raises(InvalidError):
        db.stream("/nothing")
    assert _page(db)("laminar_calls_total", method="DescribeStream", outcome="InvalidError") == 1


def test_batch_of_a_run_counts_as_a_claim_once(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", schema=SCHEMA)
    with stream.writer("ingest") as writer:
        for number in range(3):
            with writer.batch(query="q", batch=number) as batch:
                batch.append([{"id": number}])
    page = _page(db)
    assert (page("laminar_claims_total"), page("laminar_appends_total")) == (1, 3)


def test_batches_that_tasks_begin_count_as_one_claim_of_their_run(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", schema=SCHEMA)
    for run, claims, takeovers in (("1" * 32, 1, 0), ("2" * 32, 2, 1)):
        for _ in range(3):
            stream._native.begin_batch("ingest", run, "q", 0)
        page = _page(db)
        assert (page("laminar_claims_total"), page("laminar_takeovers_total")) == (claims, takeovers)


def test_readers_are_those_that_read_now(db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", partitions=3, schema=SCHEMA)
    for number in range(3):
        stream.append([{"id": number}])
    reader = stream.read(follow=True)
    # One row of each partition: then all three are read.
    rows = 0
    while rows < 3:
        rows += reader.read_next_batch().num_rows
    assert _page(db)("laminar_node_readers") == 3
    reader.close()
    del reader
    wait_until("nobody reads", lambda: _page(db)("laminar_node_readers") == 0)


def test_staged_rows_are_counted(tmp_path: Path) -> None:
    with laminar.open(tmp_path, inline_bytes_max=1024) as db:
        db.create_stream("/a").append_bytes(0, [b"x" * 5000])
        page = _page(db)
        assert page("laminar_staged_parts_total") == 1
        assert page("laminar_staged_bytes_total") == page("laminar_append_bytes_total") > 5000


class Refuses:
    """A machine that applies nothing."""

    def apply(self, _batch: Any) -> None:
        raise ValueError("no")

    def snapshot(self) -> bytes:
        return b""

    def restore(self, _state: bytes) -> None:
        pass


def test_partition_that_stops_is_counted_and_one_that_is_dropped_is_gone(tmp_path: Path) -> None:
    machines = {"refuses": Refuses}
    with laminar.open(tmp_path, machines=machines, apply_attempts_max=3, apply_backoff_max=0.01) as db:
        stream = db.create_stream("/a", schema=SCHEMA, machine="refuses")
        partition = stream._native.partition_id(0)
        with pytest.raises(laminar.UnavailableError):
            stream.append([{"id": 1}], timeout=1.0)
        page = wait_until(
            "the partition is paused",
            lambda: (page := _page(db))("laminar_partition_pauses", partition=partition) and page,
        )
        assert page("laminar_partition_apply_retries", partition=partition) == 2
        assert page("laminar_dispatcher_partitions", group=0, state="paused") == 1
        db.drop_stream("/a")
        assert not [labels for labels, _ in _page(db).all("laminar_partition_info") if ("stream", "/a") in labels]


def test_nodes_of_one_process_have_figures_of_their_own(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "one") as one, laminar.open(tmp_path / "two") as two:
        one.create_stream("/a", schema=SCHEMA).append([{"id": 1}])
        assert (_page(one)("laminar_appends_total"), _page(two)("laminar_appends_total")) == (1, 0)
        two.create_stream("/b", schema=SCHEMA).append([{"id": 1}, {"id": 2}])
        assert (_page(one)("laminar_append_rows_total"), _page(two)("laminar_append_rows_total")) == (1, 2)
        synced = [_page(node)("laminar_segmented_fsync_seconds_count") for node in (one, two)]
        for number in range(20):
            two.stream("/b").append([{"id": number}])
        assert _page(two)("laminar_segmented_fsync_seconds_count") >= synced[1] + 20
        assert _page(one)("laminar_segmented_fsync_seconds_count") < synced[0] + 20
        assert one.metrics_address is None


def test_clients_and_the_command_line_see_the_figures_of_the_node(
    db: laminar.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    db.create_stream("/a", schema=SCHEMA).append([{"id": 1}])
    cli = Commands(str(tmp_path / "data"), monkeypatch, capsys)
    with laminar.connect(tmp_path / "data") as client:
        assert _page(client)("laminar_appends_total") == 1
        client.stream("/a").append([{"id": 2}])
        page = _page(client)
        assert page("laminar_appends_total") == page("laminar_calls_total", method="Append", outcome="ok") == 2
        assert client.metrics_address == db.metrics_address
    for place in ((), (cli.at,)):
        assert Page(cli.out("metrics", *place))("laminar_appends_total") == 2
    assert "no such folder" in cli.refused("metrics", tmp_path / "nothing")


def test_pages_are_answered_over_http(db: laminar.Cluster) -> None:
    db.create_stream("/a", schema=SCHEMA).append([{"id": 1}])
    status, text, headers = _ask(db.metrics_address, "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert Page(text)("laminar_appends_total") == 1
    assert _ask(db.metrics_address, "/health")[:2] == (200, "the node serves\n")
    for path in ("/", "/metrics/", "/health/x", "/node.json"):
        assert _ask(db.metrics_address, path)[0] == 404, path
    for method in ("POST", "PUT", "DELETE", "HEAD"):
        status, _, headers = _ask(db.metrics_address, "/metrics", method)
        assert (status, headers["allow"]) == (405, "GET"), method


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\x00" * 9000, b"\xff" * 20, b"GET /metrics\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"A" * 100_000],
)
def test_garbage_on_the_port_harms_nothing(db: laminar.Cluster, garbage: bytes) -> None:
    assert db.metrics_address is not None
    host, port = db.metrics_address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert _ask(db.metrics_address, "/health")[0] == 200


def test_connections_that_say_nothing_keep_nobody_out_for_long(db: laminar.Cluster) -> None:
    assert db.metrics_address is not None
    host, port = db.metrics_address.split(":")
    silent = [socket.create_connection((host, int(port)), timeout=20) for _ in range(100)]
    try:
        wait_until("the silent ones are closed", lambda: _answers(db))
        db.create_stream("/a", schema=SCHEMA).append([{"id": 1}])
    finally:
        for connection in silent:
            connection.close()


def _answers(db: laminar.Cluster) -> bool:
    try:
        return _ask(db.metrics_address, "/health")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_health_says_that_the_node_does_not_serve_while_its_disk_fails(tmp_path: Path) -> None:
    control = tmp_path / "faults"
    folder = tmp_path / "data"
    with laminar.open(folder, metrics_address="127.0.0.1:0", disk_faults=str(control)) as db:
        stream = db.create_stream("/a", schema=SCHEMA)
        address = db.metrics_address
        control.write_text("writes")
        wait_until("an append fails", lambda: _fails(stream))
        status, text, _ = wait_until("it does not serve", lambda: (got := _ask(address, "/health"))[0] != 200 and got)
        assert status == 503
        assert re.match(r"the (data|metadata) group does not serve \(.*\)\n", text), text
        # Figures are told all the same.
        assert "laminar_raft_serving" in Page(_ask(address, "/metrics")[1]).kinds
        control.unlink()
        wait_until("it serves again", lambda: _ask(address, "/health")[0] == 200)
        assert Page(_ask(address, "/metrics")[1])("laminar_raft_serving", group="data") == 1


def _fails(stream: laminar.Stream) -> bool:
    try:
        stream.append([{"id": 1}], timeout=1.0)
    except laminar.LaminarError:
        return True
    return False


def test_address_is_free_when_the_node_is_closed_and_must_be_to_open_it(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "one", metrics_address="127.0.0.1:0") as one:
        address = one.metrics_address
        assert address is not None
        with pytest.raises(InvalidError, match=f"metrics_address is {address}, where the node cannot listen"):
            laminar.open(tmp_path / "two", metrics_address=address)
        for wrong in ("9464", "nowhere", 9464):
            with pytest.raises(InvalidError, match="metrics_address is"):
                laminar.open(tmp_path / "three", metrics_address=wrong)
    for _ in range(3):
        with laminar.open(tmp_path / "two", metrics_address=address) as two:
            assert two.metrics_address == address
            assert _ask(two.metrics_address, "/health")[0] == 200


FORKS = """
db = laminar.open(folder, metrics_address="127.0.0.1:0")
address = db.metrics_address
child = os.fork()
if child == 0:
    time.sleep(600)
    os._exit(0)
say(address, child)
wait()
"""


def test_forked_child_does_not_keep_the_address_of_a_node_that_was_killed(tmp_path: Path) -> None:
    with Process(FORKS, tmp_path) as process:
        address, child = process.hear().split()
        try:
            process.kill()
            process.ended()
            with laminar.open(tmp_path, metrics_address=address) as db:
                assert _ask(db.metrics_address, "/health")[0] == 200
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_detached_node_answers_too(tmp_path: Path) -> None:
    with laminar.open(tmp_path, detached=True, metrics_address="127.0.0.1:0") as db:
        db.create_stream("/a", schema=SCHEMA).append([{"id": 1}])
        assert Page(_ask(db.metrics_address, "/metrics")[1])("laminar_appends_total") == 1


def test_every_figure_stands_in_the_documentation(db: laminar.Cluster) -> None:
    table = re.findall(r"^\| `(laminar_\w+)` \| (\w+) \|", (ROOT / "docs/operating.md").read_text(), re.MULTILINE)
    assert len(table) == len(dict(table))
    assert dict(table) == _page(db).kinds
