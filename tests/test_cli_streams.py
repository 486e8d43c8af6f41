"""The command line on streams, with a real node: created, described, looked at, repaired, dropped."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Commands
from nodes import wait_until

import laminar
from laminar.cli.schema_spec import parse_schema, schema_text
from laminar.cli.units import duration, position, shown_duration, size

SPEC = "id:int64,name:string?,at:timestamp[ms]?"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(str(tmp_path / "data"), monkeypatch, capsys)


@pytest.fixture
def db(cli: Commands) -> Iterator[laminar.Cluster]:
    """The node stays while the commands of a test come and go."""
    with laminar.open(cli.at) as db:
        yield db


@pytest.fixture
def orders(db: laminar.Cluster) -> laminar.Stream:
    return db.create_stream("/shop/orders", 4, parse_schema(SPEC), key="id")


@pytest.mark.parametrize(
    "args",
    [
        ("status",),
        ("partitions",),
        ("nodes",),
        ("metrics",),
        ("stream", "ls"),
        ("stream", "describe", "/a"),
        ("stream", "alter", "/a", "--partitions", "2"),
        ("stream", "drop", "/a", "--yes"),
        ("append", "/a"),
        ("read", "/a"),
        ("why", "/a"),
        ("resume", "/a", "0"),
        ("skip", "/a", "0", "1", "--yes"),
        ("trim", "/a", "0", "1", "--yes"),
    ],
    ids=" ".join,
)
def test_folder_that_is_not_there_is_not_made(cli: Commands, args: tuple[str, ...]) -> None:
    assert "there is no such folder; name another with --at" in cli.refused(*args)
    assert not Path(cli.at).exists()
    Path(cli.at).mkdir()
    assert "not a laminar folder" in cli.refused(*args)
    assert list(Path(cli.at).iterdir()) == []


@pytest.mark.parametrize(
    "args",
    [
        ("read",),
        ("read", "/a", "--limit", "-1"),
        ("append", "/a", "--format", "xml"),
        ("stream", "create", "/a", "--partitions", "0"),
        ("stream", "sing"),
        ("trim", "/a", "x", "1"),
        ("bench", "append", "--clients", "0"),
    ],
    ids=" ".join,
)
def test_bad_usage_exits_2(cli: Commands, args: tuple[str, ...]) -> None:
    assert cli.run(*args, exit_code=2)[0] == ""
    assert not Path(cli.at).exists()


def test_stream_is_created_described_listed_and_dropped(cli: Commands) -> None:
    made = cli.json(
        *("stream", "create", "/shop/orders", "--partitions", 4, "--schema", SPEC, "--key", "id"),
        *("--retention-age", "7d", "--retention-bytes", "10GiB", "--row-bytes", "64KiB"),
    )
    assert (made["partitions"], made["key"], made["machine"], made["schema"]) == (4, ["id"], "log", SPEC)
    assert made["retention_age_ms"] == 7 * 86_400_000
    assert (made["retention_bytes"], made["row_bytes"]) == (10 << 30, 64 << 10)
    assert cli.json("stream", "describe", "/shop/orders") == made
    text = cli.out("stream", "describe", "/shop/orders")
    for expected in ("/shop/orders", SPEC, "for 1w, up to 10.0 GiB a partition", "64.0 KiB"):
        assert expected in text
    cli.out("stream", "create", "/bytes")
    assert [told["path"] for told in cli.json("stream", "ls")] == ["/bytes", "/shop/orders"]
    assert [told["path"] for told in cli.json("stream", "ls", "/shop/")] == ["/shop/orders"]
    assert "key and value as bytes" in cli.out("stream", "ls")
    assert "no streams begin with /none" in cli.out("stream", "ls", "/none")
    assert "give --yes" in cli.refused("stream", "drop", "/shop/orders")
    assert "is dropped, with 0 rows" in cli.out("stream", "drop", "/shop/orders", "--yes")
    assert "there is no such stream" in cli.refused("stream", "describe", "/shop/orders")


def test_stream_that_is_there_is_refused_unless_that_is_fine(cli: Commands, orders: laminar.Stream) -> None:
    create = ("stream", "create", orders.path, "--partitions", 4, "--schema", SPEC, "--key", "id")
    assert "exists already" in cli.refused(*create)
    assert cli.json(*create, "--exist-ok")["stream_id"] == orders.stream_id
    cli.refused("stream", "create", orders.path, "--schema", "other:int64", "--exist-ok")


def test_schema_is_taken_from_a_file(cli: Commands, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("when", pa.timestamp("us", "UTC"))])
    pq.write_table(pa.Table.from_pylist([], schema=schema), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "tags": ["a"]}\n')
    (tmp_path / "rows.txt").write_text("id\n")
    made = cli.json("stream", "create", "/a", "--schema-file", tmp_path / "rows.parquet")
    assert made["schema"] == "id:int32,when:timestamp[us,UTC]?"
    made = cli.json("stream", "create", "/b", "--schema-file", tmp_path / "rows.jsonl")
    assert made["schema"] == "id:int64?,tags:list<string?>?"
    assert "does not say what it is" in cli.refused("stream", "create", "/c", "--schema-file", tmp_path / "rows.txt")
    assert "cannot be opened" in cli.refused("stream", "create", "/c", "--schema-file", tmp_path / "none.csv")
    both = ("--schema", SPEC, "--schema-file", tmp_path / "rows.jsonl")
    assert "give one of them" in cli.refused("stream", "create", "/c", *both)


@pytest.mark.parametrize(
    "text",
    [
        SPEC,
        "a:list<int32?>?,b:struct<x:int64,y:list<string>?>,c:decimal128(10,2),d:timestamp[us,Europe/Berlin]?",
        "e:binary[16],f:binary,g:bool,h:date32[day],i:time32[s],j:duration[ms],k:decimal256(40,3)?",
    ],
)
def test_schema_is_read_back_as_it_is_shown(text: str) -> None:
    assert schema_text(parse_schema(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "character 1: expected the name of a column, and it ends there"),
        ("id", "character 3: expected a colon and the type of 'id'"),
        ("id:", "character 4: expected a type"),
        ("id:int65", "character 4: 'int65' is no type"),
        ("id:int64,", "character 10: expected the name of a column"),
        ("id:int64 name:string", "character 10: expected a comma or the end, and there is 'name:string'"),
        ("id:int64,id:string", "column 'id' is named twice"),
        ("at:timestamp[fortnights]", "'timestamp[fortnights]' is no type"),
        ("a:decimal128(99,2)", "'decimal128(99,2)' is no type"),
        ("a:list<int64", "expected >"),
        ("a:" + "list<" * 5000, "nested 16 deep"),
    ],
)
def test_wrong_schema_is_refused_with_its_place(cli: Commands, text: str, message: str) -> None:
    assert message in cli.refused("stream", "create", "/a", "--schema", text)
    assert not Path(cli.at).exists()


def test_alter_says_what_it_does_to_the_order_of_keys(cli: Commands, orders: laminar.Stream) -> None:
    out, err = cli.run("stream", "alter", orders.path, "--partitions", 6, "--json")
    assert json.loads(out)["partitions"] == 6
    assert "keys go to other partitions than before" in err
    cli.out("stream", "alter", orders.path, "--retention-age", "90m", "--retention-bytes", "1MiB")
    assert orders.retention == laminar.Retention(age=duration("90m", ""), bytes=1 << 20)
    cli.out("stream", "alter", orders.path, "--retention-age", "forever", "--row-bytes", "4096")
    assert orders.retention == laminar.Retention(bytes=1 << 20)
    assert orders.limits.row_bytes == 4096
    assert "nothing to change" in cli.refused("stream", "alter", orders.path)
    assert "only added" in cli.refused("stream", "alter", orders.path, "--partitions", 2)
    assert "such as 7d" in cli.refused("stream", "alter", orders.path, "--retention-age", "soon")


def test_drop_asks_on_a_terminal(cli: Commands, orders: laminar.Stream) -> None:
    for answer, code in ((b"n\n", 1), (b"y\n", 0)):
        ours, its = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "laminar", "stream", "drop", orders.path, "--at", cli.at], stdin=its, stdout=its
        )
        os.write(ours, answer)
        assert process.wait(60) == code
        os.close(ours)
        os.close(its)
    assert cli.json("stream", "ls") == []


def test_status_partitions_and_nodes_tell_of_a_writer(cli: Commands, orders: laminar.Stream) -> None:
    with orders.writer("[red]ingest") as writer:
        writer.append([{"id": number} for number in range(100)])
        told = cli.json("status")
        assert told["node"]["pid"] == os.getpid()
        assert (told["streams"], told["partition_count"], len(told["partitions"])) == (1, 4, 4)
        text = cli.out("status")
        # A name is shown as it is, and never read as markup.
        for expected in ("node 1", "1 stream, 4 partitions", "metadata", "data", "[red]ingest", orders.path):
            assert expected in text
        found = cli.json("partitions", orders.path)
        assert sum(one["next_offset"] for one in found) == 100
        assert {one["writer"] for one in found} == {"[red]ingest"}
        assert "[red]ingest" in cli.out("partitions")
        runs = cli.json("nodes")
        assert [one["role"] for one in runs] == ["server", "worker"]
        assert runs[1]["node_id"] == writer.node_id
        assert "[red]ingest" in cli.out("nodes")
    assert "there is no such stream" in cli.refused("partitions", "/none")


def test_why_tells_of_a_takeover(cli: Commands, orders: laminar.Stream) -> None:
    first = orders.writer("first")
    with orders.writer("second"):
        text = cli.out("why", orders.path, 2)
        assert text.startswith("partition 2 of /shop/orders: epoch 4, writer second")
        assert "acquired by writer second" in text
        assert "before writer first" in text
        stories = cli.json("why", orders.path)
        assert [story["partition"] for story in stories] == [0, 1, 2, 3]
        assert [step["epoch"] for step in stories[0]["steps"]] == [1, 2, 3, 4]
    first.close()
    assert "there is no partition 9" in cli.refused("why", orders.path, 9)


def test_trim_removes_rows_only_with_a_yes(cli: Commands, db: laminar.Cluster) -> None:
    stream = db.create_stream("/a", schema=pa.schema({"n": pa.int64()}))
    stream.append([{"n": number} for number in range(10)])
    assert "Remove 4 rows" in cli.refused("trim", "/a", 0, 4)
    assert stream.offsets() == {0: (0, 10)}
    assert cli.json("trim", "/a", 0, 4, "--yes") == {"stream": "/a", "partition": 0, "start_offset": 4}
    assert stream.offsets() == {0: (4, 10)}


class Choosy:
    """Applies everything but 7."""

    def apply(self, batch: pa.RecordBatch) -> None:
        if 7 in batch.column(0).to_pylist():
            raise ValueError("seven is too much")

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


def test_paused_partition_is_shown_and_its_record_left_out(cli: Commands) -> None:
    with laminar.open(cli.at, machines={"choosy": Choosy}) as db:
        stream = db.create_stream("/a", schema=pa.schema({"n": pa.int64()}), machine="choosy")
        assert cli.json("resume", "/a", 0)["resumed"] is False
        assert "is not paused" in cli.refused("skip", "/a", 0, 1, "--yes")
        with pytest.raises(laminar.LaminarError):
            stream.append([{"n": 7}], timeout=2.0)
        paused = wait_until("the partition pauses", lambda: db.status().paused)[0]
        text = cli.out("status")
        assert "1 partition paused" in text
        assert "seven is too much" in text
        assert "paused at" in cli.out("partitions")
        assert "tries again" in cli.out("resume", "/a", 0)
        wait_until("it pauses again", lambda: db.status().paused)
        assert f"stands at record {paused.paused_at}" in cli.refused("skip", "/a", 0, paused.paused_at + 1, "--yes")
        assert "Nobody can be asked" in cli.refused("skip", "/a", 0, paused.paused_at)
        assert "is left out" in cli.out("skip", "/a", 0, paused.paused_at, "--yes")
        wait_until("it goes on", lambda: not db.status().paused)
        stream.append([{"n": 8}])


def test_watch_looks_again_until_it_is_interrupted(cli: Commands, orders: laminar.Stream) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "laminar", "status", "--watch", "--json", "--at", cli.at],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [one["streams"] for one in told] == [1, 1]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert orders.partitions == 4


def test_address_is_connected_to_with_its_secret(cli: Commands, orders: laminar.Stream) -> None:
    node = json.loads((Path(cli.at) / "node.json").read_text())
    orders.append([{"id": 1}])
    cli.at = node["address"]
    assert cli.json("stream", "describe", orders.path, "--secret", node["secret"])["rows"] == 1
    cli.refused("stream", "ls", "--secret", "wrong")
    cli.at = "127.0.0.1:1"
    assert "no node listens at 127.0.0.1:1" in cli.refused("status")


def test_units_are_read_as_people_write_them() -> None:
    for text in ("2w", "3d", "12h", "90m", "61s", "500ms"):
        assert shown_duration(duration(text, "--x")) == text
    assert [size(text, "--x") for text in ("4096", "64KiB", "1.5 GiB", "2MB")] == [4096, 65536, 3 << 29, 2_000_000]
    for wrong in ("", "d", "-1d", "1y", "9" * 40 + "d", "999999999999999d"):
        with pytest.raises(laminar.InvalidError, match="--x is"):
            duration(wrong, "--x")
    with pytest.raises(laminar.InvalidError, match="--x is"):
        size("many", "--x")
    assert position("latest", "--x", ("latest",)) == "latest"
    assert position("42", "--x", ()) == 42
    assert str(position("2026-01-31T12:00:00Z", "--x", ())) == "2026-01-31 12:00:00+00:00"
    assert str(position("2026-01-31", "--x", ())) == "2026-01-31 00:00:00+00:00"
    for wrong in ("", "soon", "-5"):
        with pytest.raises(laminar.InvalidError, match="--x is"):
            position(wrong, "--x", ("latest",))
