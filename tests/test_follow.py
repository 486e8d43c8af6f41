"""Followers of a stream whose partitions become more, in other processes and across the end of a node."""

from __future__ import annotations

import ast
import json
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from nodes import Process, wait_until

import laminar
from laminar import InvalidError

SCHEMA = pa.schema({"id": pa.int64()})

# Rows without a key go to the partitions in turn, so that twice as many as there are partitions fill all.
FOLLOWS = """
db = laminar.open(folder)
reader = db.stream("/a").read(follow=True, include_metadata=True)
say("ready")
for count in (1, 8, 12):
    rows = []
    while len(rows) < count:
        rows += [(row["id"], row["_partition"], row["_offset"]) for row in reader.read_next_batch().to_pylist()]
    say(rows)
wait()
"""

GROWS = """
with laminar.open(folder) as db:
    stream = db.create_stream("/a", partitions=2, schema=pa.schema({"id": pa.int64()}))
    stream.append([{"id": 0}])
    say("ready")
    wait()
    stream.alter(partitions=4)
    for number in range(1, 9):
        stream.append([{"id": number}])
    say("grown")
    wait()
"""


def _stored(stream: laminar.Stream) -> list[tuple[int, int, int]]:
    rows = stream.read(include_metadata=True).read_all().to_pylist()
    return sorted((row["id"], row["_partition"], row["_offset"]) for row in rows)


def test_follower_in_another_process_gets_added_partitions_also_after_the_node_was_killed(tmp_path: Path) -> None:
    with Process(GROWS, tmp_path) as node:
        assert node.hear() == "ready"
        with Process(FOLLOWS, tmp_path) as follower:
            assert follower.hear() == "ready"
            seen = ast.literal_eval(follower.hear())
            node.tell()
            assert node.hear() == "grown"
            seen += ast.literal_eval(follower.hear())
            assert {partition for _, partition, _ in seen} == set(range(4))
            node.kill()
            node.ended()
            # One of those left becomes the node; the follower goes on either way.
            with laminar.open(tmp_path) as db:
                stream = db.stream("/a")
                stream.alter(partitions=6)
                for number in range(9, 21):
                    stream.append([{"id": number}])
                seen += ast.literal_eval(follower.hear())
                assert sorted(seen) == _stored(stream)
                assert {partition for _, partition, _ in seen} == set(range(6))


def test_read_follow_of_the_command_line_gets_added_partitions(tmp_path: Path) -> None:
    laminar_command = [sys.executable, "-m", "laminar"]
    place = ["--at", str(tmp_path)]
    with laminar.open(tmp_path) as db:
        stream = db.create_stream("/a", schema=SCHEMA)
        stream.append([{"id": 0}])
        command = [*laminar_command, "read", "/a", "--follow", "--metadata", *place]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert json.loads(process.stdout.readline())["id"] == 0
                subprocess.run(
                    [*laminar_command, "stream", "alter", "/a", "--partitions", "2", *place],
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
                stream = db.stream("/a")
                for number in (1, 2):
                    stream.append([{"id": number}])
                rows = [json.loads(process.stdout.readline()) for _ in range(2)]
                assert {row["id"] for row in rows} == {1, 2}
                assert {row["_partition"] for row in rows} == {0, 1}
            finally:
                process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


def test_close_from_another_thread_ends_a_follower_that_waits(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "data") as db:
        stream = db.create_stream("/a", schema=SCHEMA)
        stream.append([{"id": 0}])
        reader = stream.read(follow=True)
        assert isinstance(reader, pa.RecordBatchReader)
        assert reader.schema == SCHEMA
        seen: list[int] = []

        def follow() -> None:
            # It ends as any loop over batches does.
            for batch in reader:
                seen.extend(batch["id"].to_pylist())

        follows = threading.Thread(target=follow, daemon=True)
        follows.start()
        wait_until("it has read the row that is there, and waits for the next", lambda: seen == [0])
        reader.close()
        follows.join(10)
        assert not follows.is_alive()
        with pytest.raises(StopIteration):
            reader.read_next_batch()
        reader.close()
        with stream.read(follow=True) as never_read:
            pass
        assert list(never_read) == []


def test_follower_that_is_handed_to_arrow_gives_the_same_rows(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "data") as db:
        stream = db.create_stream("/a", schema=SCHEMA)
        stream.append([{"id": 0}, {"id": 1}])
        reader = stream.read(follow=True, include_metadata=True)
        imported = pa.RecordBatchReader.from_stream(reader)
        assert imported.schema == reader.schema
        assert imported.read_next_batch()["id"].to_pylist() == [0, 1]
        stream.append([{"id": 2}])
        assert reader.read_next_batch()["id"].to_pylist() == [2]
        stream.append([{"id": 3}])
        assert imported.read_next_batch()["id"].to_pylist() == [3]
        reader.close()
        with pytest.raises(StopIteration):
            imported.read_next_batch()


def test_follower_of_a_stopped_node_fails_at_its_timeout(tmp_path: Path) -> None:
    with Process(GROWS, tmp_path) as node:
        assert node.hear() == "ready"
        with laminar.connect(tmp_path) as db:
            reader = db.stream("/a").read(follow=True, timeout=2.0)
            assert reader.read_next_batch()["id"].to_pylist() == [0]
            node.kill(signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(
                laminar.UnavailableError, match=f"process {node.pid} .* did not answer within 2"
            ) as raised:
                reader.read_next_batch()
            assert time.monotonic() - began < 5
            assert not raised.value.outcome_unknown
            node.kill(signal.SIGCONT)


def test_follower_of_an_idle_stream_outlives_its_timeout(tmp_path: Path) -> None:
    with Process(GROWS, tmp_path) as node:
        assert node.hear() == "ready"
        with laminar.connect(tmp_path) as db:
            stream = db.stream("/a")
            reader = stream.read(follow=True, timeout=0.5)
            assert reader.read_next_batch()["id"].to_pylist() == [0]
            began = time.monotonic()
            appends = threading.Timer(2.0, lambda: stream.append([{"id": 1}]))
            appends.start()
            assert reader.read_next_batch()["id"].to_pylist() == [1]
            assert time.monotonic() - began > 1.5
            appends.join()


@pytest.mark.parametrize("follow", [False, True])
def test_start_beyond_the_end_names_partition_offset_and_end(tmp_path: Path, follow: bool) -> None:  # noqa: FBT001
    with laminar.open(tmp_path / "data") as db:
        stream = db.create_stream("/a", partitions=2, schema=SCHEMA)
        stream.append([{"id": 0}])
        stream.append([{"id": 1}])
        stream.append([{"id": 2}])
        end = {partition: end for partition, (_, end) in stream.offsets().items()}
        longer = max(end, key=lambda partition: end[partition])
        wrong: list[tuple[object, str]] = [
            ({longer: 3}, f"partition {longer} of /a: read from offset 3 was asked and it ends at 2"),
            (2, f"partition {1 - longer} of /a: read from offset 2 was asked and it ends at 1"),
            ({2: 1}, "partition 2 of /a: read from offset 1 was asked and it ends at 0"),
        ]
        for start, message in wrong:
            with pytest.raises(InvalidError, match=message) as refused:
                stream.read(start=start, follow=follow)  # type: ignore[arg-type]
            assert refused.value.stream == "/a"
        # Exactly the end is where the next row will be.
        reader = stream.read(start=end, follow=follow)
        stream.append([{"id": 3}])
        if follow:
            assert reader.read_next_batch().to_pylist() == [{"id": 3}]
        else:
            assert reader.read_all().num_rows == 0


def test_rows_that_are_trimmed_before_a_follower_read_them_are_told_as_that(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "data", retention_interval=0.05) as db:
        schema = pa.schema({"n": pa.int64(), "text": pa.string()})
        stream = db.create_stream("/short", schema=schema, retention=laminar.Retention(bytes=20_000))

        def append(count: int) -> None:
            for number in range(count):
                stream.append([{"n": number, "text": secrets.token_hex(40)} for _ in range(20)])

        def drain(reader: pa.RecordBatchReader) -> None:
            while True:
                reader.read_next_batch()

        append(400)
        start = stream.offsets()[0][0]
        reader = stream.read(follow=True, batch_rows=10)
        reader.read_next_batch()
        append(400)
        wait_until("rows that it has not read are trimmed", lambda: stream.offsets()[0][0] > start + 4_000)
        # What was on its way comes first.
        with pytest.raises(InvalidError, match="trimmed"):
            drain(reader)
