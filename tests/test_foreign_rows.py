"""Arrow data that nobody checked: what readers would refuse is refused at once, and the partition stays readable."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import laminar
from laminar import InvalidError

NOT_NULL = pa.field("a", pa.int64(), nullable=False)
ITEM = pa.field("item", pa.int64(), nullable=False)
PLACES = pa.array([0, 2], pa.int32())


@pytest.fixture
def db(tmp_path: Path) -> Iterator[laminar.Cluster]:
    with laminar.open(tmp_path / "data") as cluster:
        yield cluster


def _damaged(kind: pa.DataType = pa.string()) -> pa.Array:
    """``good``, and two bytes that are no text."""
    offsets = struct.pack("<3q" if kind == pa.large_string() else "<3i", 0, 4, 6)
    return pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"good\xff\xfe")])


COLUMNS: dict[str, tuple[Any, str]] = {
    "string": (_damaged(), "column v, row 1: its bytes are no UTF-8"),
    "large string": (_damaged(pa.large_string()), "column v, row 1: its bytes are no UTF-8"),
    "string view": (
        pa.Array.from_buffers(pa.string_view(), 1, [None, pa.py_buffer(struct.pack("<i12s", 2, b"\xff\xfe"))]),
        "column v: its values are not valid Arrow data",
    ),
    "dictionary": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), _damaged()),
        "column v, row 1: its bytes are no UTF-8",
    ),
    "list of strings": (
        pa.ListArray.from_arrays(PLACES, _damaged()),
        r"column v\.item, row 0: its bytes are no UTF-8",
    ),
    "struct": (
        pa.StructArray.from_arrays([pa.array([1, None], pa.int64())], fields=[NOT_NULL]),
        r"column v\.a, row 1: it is null, and the column may not be",
    ),
    "list": (
        pa.ListArray.from_arrays(PLACES, pa.array([1, None], pa.int64()), type=pa.list_(ITEM)),
        r"column v\.item, row 0: it is null",
    ),
    "list of structs": (
        pa.ListArray.from_arrays(
            PLACES, pa.StructArray.from_arrays([pa.array([1, None], pa.int64())], fields=[NOT_NULL])
        ),
        r"column v\.item\.a, row 0: it is null",
    ),
    "map": (
        pa.MapArray.from_arrays(
            PLACES,
            pa.array(["a", "b"]),
            pa.array([1, None], pa.int64()),
            type=pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
        ),
        r"column v\.entries\.value, row 0: it is null",
    ),
}


@pytest.mark.parametrize("machine", ["log", "kv"])
@pytest.mark.parametrize("name", COLUMNS)
def test_column_that_no_reader_takes_is_refused(db: laminar.Cluster, name: str, machine: str) -> None:
    column, message = COLUMNS[name]
    schema = pa.schema({"k": pa.int64(), "v": column.type})
    stream = db.create_stream("/foreign", schema=schema, key="k", machine=machine)
    rows = pa.table([pa.array(range(len(column))), column], schema=schema)
    with pytest.raises(InvalidError, match=message):
        stream.append(rows)
    with stream.writer("w") as writer, pytest.raises(InvalidError, match=message):
        writer.append(rows)
    with pytest.raises(InvalidError, match=message):
        stream._native.task_writer().add(rows.to_batches()[0])
    stream.append([{"k": 7}])
    assert stream.read().read_all()["k"].to_pylist() == [7]


def test_key_that_is_no_text_is_refused(db: laminar.Cluster) -> None:
    schema = pa.schema({"k": pa.string()})
    stream = db.create_stream("/foreign", schema=schema, key="k", machine="kv")
    with pytest.raises(InvalidError, match="column k, row 1: its bytes are no UTF-8"):
        stream.append(pa.table([_damaged()], schema=schema))
    assert stream.scan().num_rows == 0


def test_dict_without_a_value_inside_is_refused(db: laminar.Cluster) -> None:
    city = pa.field("city", pa.string(), nullable=False)
    stream = db.create_stream("/people", schema=pa.schema({"address": pa.struct([city, ("zip", pa.string())])}))
    stream.append([{"address": {"city": "Bonn"}}, {"address": None}])
    with pytest.raises(InvalidError, match=r"address\.city|city"):
        stream.append([{"address": {"zip": "10115"}}])
    assert stream.read().read_all().num_rows == 2


def test_slices_of_good_rows_are_taken(db: laminar.Cluster) -> None:
    schema = pa.schema({"v": pa.string()})
    stream = db.create_stream("/foreign", schema=schema)
    stream.append(pa.table([_damaged()], schema=schema).slice(0, 1))
    assert stream.read().read_all().to_pylist() == [{"v": "good"}]
