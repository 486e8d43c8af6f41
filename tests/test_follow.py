"""Followers of a stream whose partitions become more, in other processes and across the end of a node."""

from __future__ import annotations

import ast
import json
import secrets
import signal
import subprocess
import sys
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
