"""``laminar append`` and ``laminar read``: rows of every kind of file go in, come out, and a wrong one is named."""

from __future__ import annotations

import base64
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Commands
from nodes import wait_until
from rich.console import Console

import laminar
from laminar.cli import progress, text_sources
from laminar.cli.schema_spec import parse_schema
from laminar.cli.sinks import plain

SPEC = "id:int64,name:string?,at:timestamp[ms]?,day:date32?,price:decimal128(10,2)?,raw:binary?"
SCHEMA = parse_schema(SPEC)
ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "name": f"name {number}" if number % 3 else None,
        "at": "2026-01-31T12:00:00.500",
        "day": "2026-02-03",
        "price": "12.50",
        "raw": "bytes",
    }
    for number in range(250)
]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(str(tmp_path / "data"), monkeypatch, capsys)


@pytest.fixture
def orders(cli: Commands) -> Iterator[laminar.Stream]:
    with laminar.open(cli.at) as db:
        yield db.create_stream("/shop/orders", 4, SCHEMA, key="id")


def _json_lines(file: Path) -> None:
    # Empty lines, and none at the end.
    file.write_text("\n\n".join(json.dumps(row) for row in ROWS))


def _csv(file: Path) -> None:
    lines = [",".join(ROWS[0])] + [
        ",".join("" if value is None else str(value) for value in row.values()) for row in ROWS
    ]
    # A spreadsheet's mark at the front, and its line ends.
    file.write_bytes("\r\n".join(lines).encode("utf-8-sig"))


def _table() -> pa.Table:
    text = "\n".join(json.dumps(row) for row in ROWS).encode()
    (batch,) = text_sources.json_lines(io.BytesIO(text), SCHEMA, 1000, "here", None)
    return batch.table


def _parquet(file: Path) -> None:
    pq.write_table(_table(), file, row_group_size=100)


def _arrow(file: Path) -> None:
    with pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(_table().cast(SCHEMA))


def _arrow_stream(file: Path) -> None:
    with pa.ipc.new_stream(file, SCHEMA) as writer:
        writer.write_table(_table().cast(SCHEMA))


FILES: dict[str, Callable[[Path], None]] = {
    "rows.jsonl": _json_lines,
    "rows.csv": _csv,
    "rows.parquet": _parquet,
    "rows.arrow": _arrow,
    "stream.ipc": _arrow_stream,
}


def _read(cli: Commands, *args: str | int) -> list[dict[str, Any]]:
    return sorted(cli.rows("/shop/orders", *args), key=lambda row: row["id"])


@pytest.mark.parametrize("name", FILES)
def test_rows_of_a_file_come_back(cli: Commands, orders: laminar.Stream, tmp_path: Path, name: str) -> None:
    FILES[name](tmp_path / name)
    told = cli.json("append", orders.path, tmp_path / name, "--batch-rows", 40)
    assert (told["rows"], sorted(told["partitions"])) == (250, ["0", "1", "2", "3"])
    assert sum(end - first for first, end in told["partitions"].values()) == 250
    expected = [{**row, "name": row["name"] or ("" if name == "rows.csv" else None)} for row in ROWS]
    assert _read(cli) == expected
    text = cli.out("append", orders.path, tmp_path / name)
    assert "250 rows appended to /shop/orders, in 4 partitions, up to global index" in text


def test_stdin_is_json_lines(cli: Commands, orders: laminar.Stream) -> None:
    assert cli.json("append", orders.path, stdin='{"id": 1}\r\n{"id": 2}')["rows"] == 2
    assert cli.json("append", orders.path, "-", "--format", "csv", stdin="id\n3\n")["rows"] == 1
    assert cli.json("append", orders.path, stdin="")["rows"] == 0
    assert [row["id"] for row in _read(cli)] == [1, 2, 3]


GOOD = '{"id": 1}\n\n{"id": 2}\n'
WRONG_LINES = {
    "no json": ("jsonl", GOOD + '{"id": 3,,}\n', "line 4, character 10: not JSON"),
    "no object": ("jsonl", GOOD + "[3]\n", "line 4: it is [3]; it must be an object"),
    "no text": ("jsonl", GOOD + '{"id": 3, "name": 5}\n', "line 4, column 'name': 5 does not fit string"),
    "no number": ("jsonl", GOOD + '{"id": "x"}\n', "line 4, column 'id': 'x' does not fit int64"),
    "no day": ("jsonl", GOOD + '{"id": 3, "day": "soon"}\n', "line 4, column 'day': 'soon' does not fit date32"),
    "too large": ("jsonl", GOOD + f'{{"id": {10**30}}}\n', "line 4, column 'id'"),
    "no key": ("jsonl", GOOD + '{"name": "x"}\n', "line 4, column 'id': the value is missing"),
    "no column": ("jsonl", GOOD + '{"id": 3, "nmae": "x"}\n', "line 4: the stream has no column 'nmae' (did you mean"),
    "two on a line": ("jsonl", GOOD + '{"id": 3} {"id": 4}\n', "line 4, character 11: not JSON, Extra data"),
    "one on two lines": ("jsonl", GOOD + '{"id":\n3}\n', "line 4, character"),
    "nested beyond reason": ("jsonl", GOOD + "[" * 100_000 + "\n", "line 4: not JSON"),
    "of csv": ("csv", 'id,name\n1,"a\nb"\n2,c\nthree,d\n', "line 5, column 'id': 'three' does not fit int64"),
    "of csv, empty": ("csv", "id,name\n1,a\n2,b\n,c\n", "line 4, column 'id': the value is missing"),
    "of csv, short": ("csv", "id,name\n1,a\n2,b\n3\n", "line 4: 1 value, and line 1 names 2 columns"),
    "of csv, earlier column later": ("csv", "name,price,id\na,1,1\nb,2,2\nc,x,3\nd,3,x\n", "line 4, column 'price'"),
    "of csv, quotes": ("csv", 'id,name\n1,a\n2,b\n3,"c\n', "line 4: not CSV"),
}


@pytest.mark.parametrize("kind", WRONG_LINES)
def test_wrong_line_is_named_and_what_was_before_it_stays(cli: Commands, orders: laminar.Stream, kind: str) -> None:
    form, text, message = WRONG_LINES[kind]
    said = cli.refused("append", orders.path, "--format", form, stdin=text)
    assert said.startswith(f"laminar: stdin: {message}")
    assert "; 2 rows before it were appended, up to global index" in said
    assert [row["id"] for row in _read(cli)] == [1, 2]


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("csv", "id,nme\n1,x\n", "line 1: the stream has no column 'nme' (did you mean 'name'?)"),
        ("csv", "name\nx\n", "line 1, column 'id': the value is missing"),
        ("csv", "id,id\n1,2\n", "line 1: column 'id' is named twice"),
        ("parquet", "PAR1 and more", "cannot be read as parquet"),
        ("arrow", "ARROW1 and more", "cannot be read as arrow"),
        ("jsonl", '{"id": 1, "zzz": 2}', "has no column 'zzz' (there are id, name"),
    ],
)
def test_wrong_file_appends_nothing(cli: Commands, orders: laminar.Stream, form: str, text: str, message: str) -> None:
    said = cli.refused("append", orders.path, "--format", form, stdin=text)
    assert message in said
    assert "; nothing was appended" in said
    assert _read(cli) == []


def test_first_wrong_line_of_many_is_found(cli: Commands, orders: laminar.Stream) -> None:
    lines = [json.dumps({"id": number}) for number in range(3000)]
    lines[2345] = lines[2600] = '{"id": null}'
    said = cli.refused("append", orders.path, "--batch-rows", 1000, stdin="\n".join(lines))
    assert "line 2346, column 'id'" in said
    assert "2,345 rows before it were appended" in said
    assert [row["id"] for row in _read(cli)] == list(range(2345))


def test_row_that_the_node_refuses_is_told_with_its_lines(cli: Commands) -> None:
    cli.out("stream", "create", "/a", "--schema", "id:int64,text:string", "--row-bytes", "1KiB")
    lines = [json.dumps({"id": number, "text": "x" * (5000 if number == 7 else 1)}) for number in range(10)]
    said = cli.refused("append", "/a", "--batch-rows", 5, stdin="\n".join(lines))
    assert re.search(r"stdin: lines? (8|6 to 10):", said)
    assert "5 rows before it were appended" in said


def test_stream_is_created_from_the_file_and_only_then(cli: Commands, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,name\n1,a\n2,b\n")
    (tmp_path / "bad.jsonl").write_text("no json")
    told = cli.json("append", "/new", tmp_path / "rows.csv", "--create", "--partitions", 2, "--key", "id")
    assert told["rows"] == 2
    assert cli.json("append", "/new", tmp_path / "rows.csv", "--create")["rows"] == 2
    made = cli.json("stream", "describe", "/new")
    assert (made["schema"], made["key"], made["partitions"], made["rows"]) == (
        "id:int64?,name:string?",
        ["id"],
        2,
        4,
    )
    cli.refused("append", "/bad", tmp_path / "bad.jsonl", "--create")
    assert "create the stream first" in cli.refused("append", "/bad", "--create", stdin="{}")
    assert [told["path"] for told in cli.json("stream", "ls")] == ["/new"]


def test_writer_takes_the_stream_over(cli: Commands, orders: laminar.Stream) -> None:
    with orders.writer("first") as first:
        assert "first" in cli.refused("append", orders.path, stdin='{"id": 1}')
        assert cli.json("append", orders.path, "--writer", "second", stdin='{"id": 1}')["rows"] == 1
        with pytest.raises(laminar.StaleEpochError):
            first.append([{"id": 2}])
    assert "acquired by writer second" in cli.out("why", orders.path, 0)


def test_stream_of_bytes_takes_keys_and_values(cli: Commands) -> None:
    cli.out("stream", "create", "/bytes", "--partitions", 2)
    text = '{"key": "k", "value": "v"}\n{"value": "w"}\n'
    assert cli.json("append", "/bytes", stdin=text)["rows"] == 2
    rows = sorted(cli.rows("/bytes"), key=lambda row: row["value"])
    assert rows == [{"key": "k", "value": "v"}, {"key": None, "value": "w"}]


def test_read_chooses_partitions_places_columns_and_rows(cli: Commands, orders: laminar.Stream) -> None:
    index = orders.append([{"id": number} for number in range(40)]).global_index
    ends = {partition: end for partition, (_, end) in orders.offsets().items()}
    orders.append([{"id": number} for number in range(40, 50)])
    rows = cli.rows(orders.path, "--partition", 1, "--partition", 2, "--metadata", "--columns", "id")
    assert {row["_partition"] for row in rows} == {1, 2}
    assert set(rows[0]) == {"id", "_partition", "_offset", "_timestamp", "_epoch"}
    between = cli.rows(orders.path, "--partition", 1, "--start", 2, "--end", 4, "--metadata")
    assert [row["_offset"] for row in between] == [2, 3]
    assert [row["id"] for row in _read(cli, "--at-index", index)] == list(range(40))
    assert sum(ends.values()) == 40
    assert len(cli.rows(orders.path, "--limit", 7)) == 7
    assert cli.rows(orders.path, "--limit", 0) == []
    assert cli.rows(orders.path, "--start", "latest") == []
    assert len(cli.rows(orders.path, "--start", "1h")) == 50
    assert cli.rows(orders.path, "--end", "2020-01-01T00:00:00Z") == []
    for wrong in (("--columns", "none"), ("--partition", 9), ("--start", "soon"), ("--end", "earliest")):
        cli.refused("read", orders.path, *wrong)
    assert "give one of them" in cli.refused("read", orders.path, "--follow", "--end", 5)


def test_table_is_for_people(cli: Commands, orders: laminar.Stream) -> None:
    orders.append([{"id": number, "name": "[/red]\x1b[2J"} for number in range(150)])
    text = cli.out("read", orders.path, "--format", "table")
    assert text.splitlines()[0].split() == SCHEMA.names
    assert "[/red]·[2J" in text
    assert "\x1b" not in text
    assert "null" in text
    assert text.rstrip().endswith("the first 100; --limit shows more")
    assert cli.out("read", orders.path, "--format", "table", "--limit", 2).rstrip().endswith("2 rows")


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl"])
def test_rows_are_written_to_a_file_and_appended_from_it(
    cli: Commands, orders: laminar.Stream, tmp_path: Path, ending: str
) -> None:
    orders.append(_table())
    file = tmp_path / f"out.{ending}"
    assert f"250 rows written to {file}" in cli.out("read", orders.path, "--output", file)
    assert cli.json("read", orders.path, "--output", file) == {"rows": 250, "output": str(file)}
    cli.out("stream", "create", "/copy", "--schema", SPEC)
    cli.out("append", "/copy", file)
    assert sorted(cli.rows("/copy"), key=lambda row: row["id"]) == ROWS


def test_read_that_fails_leaves_the_file_that_was_there(cli: Commands, orders: laminar.Stream, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    file.write_text("before")
    cli.refused("read", orders.path, "--partition", 9, "--output", file)
    assert file.read_text() == "before"
    assert "cannot be written" in cli.refused("read", orders.path, "--output", tmp_path / "none" / "out.jsonl")
    assert "must end with" in cli.refused("read", orders.path, "--output", tmp_path / "out.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out.parquet"]


def test_parquet_goes_through_a_pipe(cli: Commands, orders: laminar.Stream) -> None:
    orders.append(_table())
    command = [sys.executable, "-m", "laminar", "read", orders.path, "--at", cli.at, "--format"]
    for form, read in (("parquet", pq.read_table), ("arrow", lambda file: pa.ipc.open_file(file).read_all())):
        done = subprocess.run([*command, form], capture_output=True, timeout=60, check=True)
        assert read(pa.BufferReader(done.stdout)).num_rows == 250


def test_follow_shows_rows_as_they_come_and_ends_with_ctrl_c(cli: Commands, orders: laminar.Stream) -> None:
    command = [sys.executable, "-m", "laminar", "read", orders.path, "--follow", "--at", cli.at]
    orders.append([{"id": 0}])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for number in range(3):
            assert json.loads(process.stdout.readline())["id"] == number
            orders.append([{"id": number + 1}])
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")


def test_follow_into_a_file_keeps_what_was_read(cli: Commands, orders: laminar.Stream, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    orders.append([{"id": number} for number in range(5)])
    cli.out("read", orders.path, "--follow", "--limit", 5, "--output", file)
    assert sorted(pq.read_table(file)["id"].to_pylist()) == list(range(5))


def test_values_that_json_does_not_know_are_plain(cli: Commands) -> None:
    with laminar.open(cli.at) as db:
        stream = db.create_stream("/a", schema=pa.schema({"x": pa.float64(), "raw": pa.binary()}))
        stream.append([{"x": float("inf"), "raw": b"\xff"}, {"x": 0.5, "raw": b"text"}])
    assert cli.rows("/a") == [{"x": None, "raw": {"base64": "/w=="}}, {"x": 0.5, "raw": "text"}]
    assert plain(float("nan")) is None
    assert plain([{"a": b"\xff"}]) == [{"a": {"base64": base64.b64encode(b"\xff").decode()}}]
    assert plain(b"text") == "text"


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("timestamp[s]", "2026-01-31T12:00:00"),
        ("timestamp[us]", "2026-01-31T12:00:00.500001"),
        ("timestamp[us]", "2026-01-31T12:00:00.500"),
        ("timestamp[ns]", "2026-01-31T12:00:00.123456789"),
        ("timestamp[ms,UTC]", "2026-01-31T12:00:00.500Z"),
        ("timestamp[ns,UTC]", "2026-01-31T12:00:00.123456789Z"),
        ("time32[ms]", "10:00:00.500"),
        ("time64[ns]", "10:00:00.123456789"),
        ("duration[ms]", 1500),
        ("list<struct<day:date32?,n:int8?>?>", [{"day": "2026-02-03", "n": 1}, None]),
        ("double", 1.5),
        ("bool", True),
        ("decimal256(40,3)", "1.500"),
        ("string", 'é \u2028 " \n'),
    ],
)
def test_values_are_appended_as_they_are_read(cli: Commands, spec: str, value: Any) -> None:
    with laminar.open(cli.at):
        cli.out("stream", "create", "/a", "--schema", f"v:{spec}?")
        cli.out("append", "/a", stdin=json.dumps({"v": value}) + '\n{"v": null}\n')
        assert cli.rows("/a") == [{"v": value}, {"v": None}]
        cli.out("read", "/a", "--format", "table")


def test_bar_shows_rows_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    for terminal in (True, False):
        out = io.StringIO()
        with progress.rows_bar("appending", Console(file=out, force_terminal=terminal, width=120)) as draw:
            draw(1234, 0.5)
            draw(2000, None)
        assert ("1,234 rows" in out.getvalue() or "2,000 rows" in out.getvalue()) == terminal


def test_terminal_gets_a_table(cli: Commands, orders: laminar.Stream) -> None:
    orders.append([{"id": 17}])
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "laminar", "read", orders.path, "--at", cli.at]
    process = subprocess.Popen(command, stdout=its, stderr=its, env={**os.environ, "NO_COLOR": "1", "TERM": "xterm"})
    os.close(its)
    said = b""

    def ended() -> bool:
        nonlocal said
        try:
            said += os.read(ours, 1 << 16)
        except OSError:
            return True
        return False

    wait_until("the terminal is closed", ended, timeout=60)
    os.close(ours)
    assert process.wait(60) == 0
    assert b"17" in said
    assert b"1 row" in said
    assert b"{" not in said
