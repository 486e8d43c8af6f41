"""Values of Python objects land as they were given, or are refused."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import laminar
from laminar import InvalidError


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 1.9),
        (pa.int8(), decimal.Decimal("1.5")),
        (pa.float32(), 1e300),
        (pa.timestamp("s"), dt.datetime(2020, 1, 1, 0, 0, 0, 5)),  # noqa: DTZ001 - the column has no zone
        (pa.date32(), dt.datetime(2020, 1, 1, 5)),  # noqa: DTZ001
        (pa.time32("s"), dt.time(1, 2, 3, 4)),
        (pa.duration("ms"), dt.timedelta(microseconds=5)),
        (pa.list_(pa.int32()), [1, 2.5]),
        (pa.struct({"a": pa.int32()}), {"a": 2.5}),
        (pa.map_(pa.string(), pa.int32()), {"a": 2.5}),
    ],
    ids=str,
)
def test_values_of_dicts_that_arrow_would_change_are_refused(tmp_path: Path, kind: pa.DataType, value: Any) -> None:
    with laminar.open(tmp_path / "data") as db:
        stream = db.create_stream("/values", schema=pa.schema({"v": kind}))
        with pytest.raises(InvalidError, match=r"row 1, column 'v'.*it would become"):
            stream.append([{"v": None}, {"v": value}])
        assert stream.read().read_all().num_rows == 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 2.0),
        (pa.float32(), 0.1),
        (pa.float32(), float("inf")),
        (pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=5)))),
        (pa.date32(), dt.date(2020, 1, 1)),
        (pa.timestamp("s"), 5),
        (pa.list_(pa.int32()), [1, None]),
        (pa.struct({"a": pa.int32(), "b": pa.string()}), {"a": 2}),
    ],
    ids=str,
)
def test_values_of_dicts_that_arrow_keeps_are_taken(tmp_path: Path, kind: pa.DataType, value: Any) -> None:
    with laminar.open(tmp_path / "data") as db:
        stream = db.create_stream("/values", schema=pa.schema({"v": kind}))
        stream.append([{"v": value}, {"v": None}])
        expected = pa.array([value, None], type=kind).to_pylist()
        assert stream.read().read_all()["v"].to_pylist() == expected


def test_key_that_arrow_would_change_is_not_looked_up(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "data") as db:
        stream = db.create_stream("/kv", schema=pa.schema({"k": pa.int64()}), key="k", machine="kv")
        with pytest.raises(InvalidError, match="it would become 1"):
            stream.get(1.9)


def test_index_of_a_pandas_frame_that_is_named_like_a_column_is_that_column(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with laminar.open(tmp_path / "data") as db:
        stream = db.create_stream("/values", schema=pa.schema({"k": pa.int64(), "v": pa.string()}), key="k")
        stream.append(pandas.DataFrame({"v": ["a"]}, index=pandas.Index([5], name="k")))
        assert stream.read().read_all().to_pylist() == [{"k": 5, "v": "a"}]
