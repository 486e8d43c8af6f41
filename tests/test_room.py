"""Room on the disk: old rows and staged blocks go when they may, and never before."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from nodes import wait_until

import laminar
from laminar import InvalidError, Retention, UnavailableError

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
#: Small enough that every append of the tests is staged.
INLINE_BYTES = 4096
ROWS = 2000


def _rows(begin: int) -> pa.Table:
    numbers = range(begin, begin + ROWS)
    return pa.table({"n": numbers, "text": [f"{number * 7919:032x}" for number in numbers]}, schema=SCHEMA)


def _blocks(folder: Path) -> set[str]:
    return {block.name for block in (folder / "objects" / "stage").iterdir()}


def test_block_behind_more_than_a_thousand_in_use_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with laminar.open(folder, inline_bytes_max=1024) as db:
        stream = db.create_stream("/numbers")
        for _ in range(1001):
            stream.append_bytes(0, [b"x" * 2000])
        used = _blocks(folder)
        assert len(used) == 1001
        writer = stream._native.task_writer(block_bytes=64 << 10)
        writer.add(pa.table({"value": [b"never committed" * 10_000]}))
        writer.finish()
        assert len(_blocks(folder)) == 1002
    with laminar.open(folder, stage_interval=0.05, stage_age=0.0) as db:
        wait_until("the block that nothing names is gone", lambda: _blocks(folder) == used)
        assert db.stream("/numbers").read().read_all().num_rows == 1001


def test_blocks_of_a_partition_whose_log_is_damaged_stay(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with laminar.open(folder, inline_bytes_max=INLINE_BYTES) as db:
        stream = db.create_stream("/numbers", partitions=2, schema=SCHEMA, key="n")
        stream.append(_rows(0))
        db.snapshot()
        # From here on the partition's own log is the only one that has its rows.
        wait_until("there is a snapshot", lambda: db.status().data_group.snapshot_index > 0)
        damaged = next(folder.glob(f"data/partitions/{stream._native.partition_id(0):08x}"))
    used = _blocks(folder)
    kept = tmp_path / "kept"
    shutil.copytree(damaged, kept)
    for segment in damaged.iterdir():
        segment.unlink()
    with laminar.open(folder, timeout=1.0, stage_interval=0.05, stage_age=0.0) as db:
        with pytest.raises(UnavailableError):
            db.stream("/numbers").read(partitions=[0]).read_all()
        # Some twenty rounds of the collector; one is enough to lose them.
        for _ in range(20):
            assert _blocks(folder) == used
            time.sleep(0.05)
    shutil.rmtree(damaged)
    shutil.copytree(kept, damaged)
    with laminar.open(folder) as db:
        assert db.stream("/numbers").read().read_all().num_rows == ROWS


def test_bytes_that_are_kept_count_staged_rows(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with laminar.open(
        folder, inline_bytes_max=INLINE_BYTES, retention_interval=0.05, stage_interval=0.05, stage_age=0.5
    ) as db:
        stream = db.create_stream("/numbers", schema=SCHEMA, key="n")
        stream.append(_rows(0))
        (only,) = ((folder / "objects" / "stage") / name for name in _blocks(folder))
        size = only.stat().st_size
        stream.alter(retention=Retention(bytes=size * 3))
        for begin in range(ROWS, 10 * ROWS, ROWS):
            stream.append(_rows(begin))
        wait_until("old rows are gone", lambda: stream.offsets()[0][0] >= 6 * ROWS)
        wait_until("their blocks are gone", lambda: len(_blocks(folder)) <= 4)
        assert stream.offsets()[0][0] % ROWS == 0
        kept = stream.read().read_all()["n"].to_pylist()
        assert kept == list(range(stream.offsets()[0][0], 10 * ROWS))
        # At most what may stay, and not much less.
        assert 2 <= len(kept) // ROWS <= 3
        # One append that is larger than what may stay does stay.
        stream.alter(retention=Retention(bytes=1))
        wait_until("all but the newest are gone", lambda: stream.offsets()[0][0] == 9 * ROWS)
        assert stream.read().read_all().num_rows == ROWS


def test_retention_bounds_the_log_of_all_partitions_too(tmp_path: Path) -> None:
    # 160 MB in entries of nearly a megabyte: far too few for a snapshot that counts entries.
    folder, row = tmp_path / "data", b"x" * 1000
    with laminar.open(folder, snapshot_bytes=4 << 20, retention_interval=0.05) as db:
        stream = db.create_stream("/numbers", retention=Retention(bytes=4 << 20))
        for _ in range(5):
            for _ in range(40):
                stream.append_bytes(0, [row] * 800)
            wait_until("the log is short", lambda: _bytes_in(folder / "data" / "raft") < 12 << 20)
        begin, end = stream.offsets()[0]
        assert (begin > 0, end) == (True, 200 * 800)
    with laminar.open(folder) as db:
        assert db.stream("/numbers").read().read_all().num_rows == end - db.stream("/numbers").offsets()[0][0]


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        # It may go while it is looked at.
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


@pytest.mark.parametrize("given", [0, 65_535, (1 << 40) + 1])
def test_bytes_between_snapshots_have_a_range(tmp_path: Path, given: int) -> None:
    with pytest.raises(InvalidError, match="snapshot_bytes"):
        laminar.open(tmp_path / "data", snapshot_bytes=given)
