"""Numbers out of range, in every call of a cluster, a stream, a writer and a batch, are told with their range."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import laminar as typed

# What follows is wrong on purpose, also in the eyes of the type checker.
laminar: Any = typed

# Each may be wrong in any of these ways, and is shown as Python shows it.
WRONG_NUMBERS = [-1, 2**64, 10**400, 1.5, math.nan, "7"]
WRONG_TIMES = [-1, -0.5, math.nan, math.inf, -math.inf, 10**400, 10**9, "7"]


class Handles(NamedTuple):
    """What is called."""

    folder: Path
    db: Any
    rows: Any
    bytes: Any
    keyed: Any
    writer: Any
    batch: Any


@pytest.fixture(scope="module")
def handles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handles]:
    folder = tmp_path_factory.mktemp("calls") / "data"
    with laminar.open(folder) as db:
        rows = db.create_stream("/rows", schema=pa.schema({"n": pa.int64()}))
        rows.append([{"n": 1}])
        keyed = db.create_stream("/keyed", schema=pa.schema({"n": pa.int64()}), key="n", machine="kv")
        with db.create_stream("/written").writer("one") as writer:
            batch = writer.batch(query="q", batch=1)
            yield Handles(folder, db, rows, db.create_stream("/bytes"), keyed, writer, batch)


Call = Callable[[Handles, Any], Any]
# The argument as the error names it, by call and argument: all numbers that people can give.
NUMBERS: dict[str, tuple[str, Call]] = {
    "Cluster.create_stream partitions": ("partitions", lambda on, n: on.db.create_stream("/new", partitions=n)),
    "Cluster.why partition": ("partition", lambda on, n: on.db.why("/rows", n)),
    "Cluster.resume partition": ("partition", lambda on, n: on.db.resume("/rows", n)),
    "Cluster.skip partition": ("partition", lambda on, n: on.db.skip("/rows", n, 1)),
    "Cluster.skip index": ("index", lambda on, n: on.db.skip("/rows", 0, n)),
    "Stream.append_bytes partition": ("partition", lambda on, n: on.bytes.append_bytes(n, [b"a"])),
    "Stream.read partitions": ("partition", lambda on, n: on.rows.read(partitions=[n])),
    "Stream.read start": ("offset", lambda on, n: on.rows.read(start={0: n})),
    "Stream.read end": ("offset", lambda on, n: on.rows.read(end={0: n})),
    "Stream.read at": ("at", lambda on, n: on.rows.read(at=n)),
    "Stream.read at a barrier": ("at", lambda on, n: on.rows.read(at=laminar.Barrier(n))),
    "Stream.read batch_rows": ("batch_rows", lambda on, n: on.rows.read(batch_rows=n)),
    "Stream.offsets at": ("at", lambda on, n: on.rows.offsets(at=n)),
    "Stream.trim partition": ("partition", lambda on, n: on.rows.trim(n, 0)),
    "Stream.trim offset": ("offset", lambda on, n: on.rows.trim(0, n)),
    "Stream.alter partitions": ("partitions", lambda on, n: on.rows.alter(partitions=n)),
    "Stream.writer partitions": ("partition", lambda on, n: on.rows.writer("two", partitions=[n])),
    "Writer.append_bytes partition": ("partition", lambda on, n: on.writer.append_bytes(n, [b"a"])),
    "Writer.batch batch": ("batch", lambda on, n: on.writer.batch(query="q", batch=n)),
    "Writer.trim partition": ("partition", lambda on, n: on.writer.trim(n, 0)),
    "Writer.trim offset": ("offset", lambda on, n: on.writer.trim(0, n)),
    "WriterBatch.append_bytes partition": ("partition", lambda on, n: on.batch.append_bytes(n, [b"a"])),
    "Retention bytes": ("retention.bytes", lambda _, n: laminar.Retention(bytes=n)),
    "StreamLimits row_bytes": ("limits.row_bytes", lambda _, n: laminar.StreamLimits(row_bytes=n)),
    "open inline_bytes_max": ("inline_bytes_max", lambda on, n: laminar.open(on.folder, inline_bytes_max=n)),
}
TIMES: dict[str, tuple[str, Call]] = {
    "open timeout": ("timeout", lambda on, s: laminar.open(on.folder, timeout=s)),
    "open call_timeout": ("call_timeout", lambda on, s: laminar.open(on.folder, call_timeout=s)),
    "connect timeout": ("timeout", lambda on, s: laminar.connect(on.folder, timeout=s)),
    "connect by address timeout": ("timeout", lambda _, s: laminar.connect("127.0.0.1:1", timeout=s)),
    "Stream.append timeout": ("timeout", lambda on, s: on.rows.append([{"n": 2}], timeout=s)),
    "Stream.append_bytes timeout": ("timeout", lambda on, s: on.bytes.append_bytes(0, [b"a"], timeout=s)),
    "Stream.read timeout": ("timeout", lambda on, s: on.rows.read(timeout=s)),
    "Stream.barrier timeout": ("timeout", lambda on, s: on.rows.barrier(timeout=s)),
    "Stream.writer timeout": ("timeout", lambda on, s: on.rows.writer("two", timeout=s)),
}
CASES = [
    pytest.param(name, call, value, id=f"{case} of {str(value)[:12]}")
    for table, values in ((NUMBERS, WRONG_NUMBERS), (TIMES, WRONG_TIMES))
    for case, (name, call) in table.items()
    for value in values
]


@pytest.mark.parametrize(("name", "call", "value"), CASES)
def test_number_out_of_range_is_an_invalid_error_with_name_value_and_range(
    handles: Handles, name: str, call: Call, value: Any
) -> None:
    with pytest.raises(laminar.InvalidError) as raised:
        call(handles, value)
    told = str(raised.value)
    assert told.startswith(f"{name} is {repr(value)[:12]}")
    assert " from " in told
    assert " to " in told


def test_nothing_was_done_by_calls_that_were_refused(handles: Handles) -> None:
    assert {stream.path for stream in handles.db.streams()} == {"/rows", "/bytes", "/keyed", "/written"}
    assert (handles.rows.offsets(), handles.rows.partitions) == ({0: (0, 1)}, 1)


def test_every_argument_that_is_a_number_is_in_the_table() -> None:
    wanted = set()
    for owner in (laminar.Cluster, laminar.Stream, laminar.Writer, laminar.WriterBatch):
        for method, function in inspect.getmembers(owner, inspect.isfunction):
            if method.startswith("_"):
                continue
            for name, parameter in inspect.signature(function).parameters.items():
                if re.search(r"\b(int|float|Position)\b", str(parameter.annotation)):
                    wanted.add(f"{owner.__name__}.{method} {name}")
    assert wanted <= {*NUMBERS, *TIMES}


def test_numbers_at_the_edge_are_taken(handles: Handles) -> None:
    assert laminar.Retention(bytes=2**64 - 1, age=timedelta.max).bytes == 2**64 - 1
    assert laminar.StreamLimits(row_bytes=1).row_bytes == 1
    assert handles.rows.append([], timeout=365 * 24 * 3600).rows == 0
    assert handles.rows.read(start=1, batch_rows=1).read_all().num_rows == 0
    for start in (-1, 2**64):
        with pytest.raises(laminar.InvalidError, match=f"offset is {start}; it must be a whole number from 0 to"):
            handles.rows.read(start=start)
