"""Exports: one cut, each row once, whatever happened to the run before."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import laminar
from laminar.errors import InvalidError
from laminar.spark.jobs import Folder, export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema({"id": pa.int64(), "commit": pa.int64(), "name": pa.string()})

#: Exports in a process of its own, and is killed when all files are there and the manifest is not.
KILLED = """
import os, signal, sys
from laminar.spark.jobs import Folder, export
Folder.end = lambda folder, done: os.kill(os.getpid(), signal.SIGKILL)
export("/a", sys.argv[2], endpoint=sys.argv[1], rows_per_file=10)
"""


@pytest.fixture
def stream(endpoint: str) -> Iterator[laminar.Stream]:
    with laminar.connect(endpoint) as db:
        yield db.create_stream("/a", 3, SCHEMA, key="id")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def rows(first: int, count: int, commit: int = 0) -> list[dict[str, object]]:
    return [{"id": first + i, "commit": commit, "name": str(i)} for i in range(count)]


def exported(out: Path) -> list[int]:
    """The ids in all files that are there, counted by a manifest or not."""
    return sorted(id_ for file in out.rglob("*.parquet") for id_ in pq.read_table(file)["id"].to_pylist())


def counted(out: Path) -> list[int]:
    """The ids in the files that the manifests name."""
    files = [file for manifest in Folder(str(out)).manifests() for file in manifest.files]
    return sorted(id_ for file in files for id_ in pq.ParquetFile(out / file.path).read()["id"].to_pylist())


def test_rows_lie_by_partition_and_offsets_in_their_order(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, out: Path
) -> None:
    stream.append(rows(0, 100))
    done = export("/a", str(out), endpoint=endpoint, rows_per_file=10, metadata=True, spark=spark)
    assert done.rows == 100
    assert exported(out) == counted(out) == list(range(100))
    (manifest,) = done.manifests
    assert manifest.ends == {partition: end for partition, (_, end) in stream.offsets().items()}
    for file in manifest.files:
        assert file.path == f"partition={file.partition}/offsets={file.start}-{file.end}/rows.parquet"
        table = pq.ParquetFile(out / file.path).read()
        assert table["_offset"].to_pylist() == list(range(file.start, file.end))
        assert set(table["_partition"].to_pylist()) == {file.partition}
        assert file.bytes == (out / file.path).stat().st_size
    assert spark.read.parquet(str(out)).count() == 100


def test_second_export_goes_on_after_the_first_and_a_third_has_nothing_to_do(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, out: Path
) -> None:
    stream.append(rows(0, 30))
    export("/a", str(out), endpoint=endpoint, spark=spark)
    stream.append(rows(30, 12))
    assert export("/a", str(out), endpoint=endpoint, spark=spark).rows == 12
    assert exported(out) == counted(out) == list(range(42))
    again = export("/a", str(out), endpoint=endpoint, spark=spark)
    assert (again.rows, again.manifests) == (0, ())
    assert sorted(path.name for path in (out / "_manifests").iterdir()) == ["00000001.json", "00000002.json"]


def test_empty_stream_leaves_nothing(spark: SparkSession, endpoint: str, stream: laminar.Stream, out: Path) -> None:
    assert stream.offsets()
    assert export("/a", str(out), endpoint=endpoint, spark=spark).manifests == ()
    assert not out.exists()


def test_cut_has_commits_whole_while_others_write(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, out: Path
) -> None:
    ended = threading.Event()

    def write() -> None:
        commit = 0
        while not ended.is_set():
            stream.append(rows(commit * 20, 20, commit))
            commit += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while len(Folder(str(out)).manifests()) < 3:
            export("/a", str(out), endpoint=endpoint, spark=spark)
    finally:
        ended.set()
        writer.join()
    commits = Counter(
        commit for file in out.rglob("*.parquet") for commit in pq.ParquetFile(file).read()["commit"].to_pylist()
    )
    assert commits
    assert set(commits.values()) == {20}
    assert sorted(commits) == list(range(len(commits)))


def test_export_that_was_killed_is_finished_by_the_next_with_nothing_twice(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, out: Path
) -> None:
    stream.append(rows(0, 50))
    killed = subprocess.run([sys.executable, "-c", KILLED, endpoint, out], timeout=90, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert counted(out) == []
    begun = Folder(str(out)).begun()
    assert begun is not None
    # As of a task that was killed inside a file, and of a plan; a file of somebody else is not ours to remove.
    folder = next(out.glob("partition=*/offsets=*"))
    for left in (folder / f".rows.parquet.{'0a' * 16}", out / f"_manifests/.00000001.json.{'0b' * 16}"):
        left.write_bytes(b"half a file")
    (folder / ".rows.parquet.crc").write_bytes(b"of another program")
    stream.append(rows(50, 7))
    done = export("/a", str(out), endpoint=endpoint, rows_per_file=1000, spark=spark)
    assert [manifest.rows for manifest in done.manifests] == [50, 7]
    assert done.manifests[0].global_index == begun.global_index
    assert exported(out) == counted(out) == list(range(57))
    assert Folder(str(out)).begun() is None
    assert [path.name for path in out.rglob(".*")] == [".rows.parquet.crc"]


def test_rows_that_were_removed_are_an_error_or_a_gap(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, out: Path
) -> None:
    stream.append(rows(0, 30))
    export("/a", str(out), endpoint=endpoint, spark=spark)
    before = stream.offsets()
    for number in range(4):
        stream.append(rows(30 + 30 * number, 30))
    first, end = before[1][1], stream.offsets()[1][1]
    begins = stream.trim(1, end - 1)
    assert begins > first
    with pytest.raises(InvalidError, match=f"partition 1: rows {first} to {begins - 1} were removed") as error:
        export("/a", str(out), endpoint=endpoint, spark=spark)
    assert error.value.partition == 1
    (manifest,) = export("/a", str(out), endpoint=endpoint, allow_gaps=True, spark=spark).manifests
    assert [(gap.partition, gap.start, gap.end) for gap in manifest.gaps] == [(1, first, begins)]
    assert len(counted(out)) == 150 - (begins - first)


def test_folder_of_another_stream_is_refused(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, out: Path
) -> None:
    stream.append(rows(0, 3))
    export("/a", str(out), endpoint=endpoint, spark=spark)
    stream.cluster.drop_stream("/a")
    stream.cluster.create_stream("/a", 1, SCHEMA).append(rows(0, 3))
    with pytest.raises(InvalidError, match="it holds an export of /a"):
        export("/a", str(out), endpoint=endpoint, spark=spark)


def test_manifest_that_is_damaged_or_newer_is_refused(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, out: Path
) -> None:
    stream.append(rows(0, 3))
    export("/a", str(out), endpoint=endpoint, spark=spark)
    path = out / "_manifests/00000001.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "version": 2}))
    with pytest.raises(InvalidError, match="its version is 2, and this release reads 1"):
        export("/a", str(out), endpoint=endpoint, spark=spark)
    path.write_text("{}")
    with pytest.raises(InvalidError, match="it is not a manifest of an export"):
        export("/a", str(out), endpoint=endpoint, spark=spark)


def test_partitions_that_were_added_are_exported_too(spark: SparkSession, endpoint: str, out: Path) -> None:
    with laminar.connect(endpoint) as db:
        stream = db.create_stream("/b", 1, SCHEMA)
        stream.append(rows(0, 10))
        export("/b", str(out), endpoint=endpoint, spark=spark)
        stream.alter(partitions=4)
        for number in range(4):
            stream.append(rows(10 + 10 * number, 10))
        assert export("/b", str(out), endpoint=endpoint, spark=spark).rows == 40
    assert exported(out) == counted(out) == list(range(50))
