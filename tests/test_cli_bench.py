"""``laminar bench``: every measurement runs, counts what it did, and cleans up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import Commands

import laminar
from laminar.cli import main
from laminar.cli.bench_load import Tally


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(str(tmp_path / "data"), monkeypatch, capsys)


@pytest.mark.parametrize(
    ("args", "rows"),
    [
        (("append", "--rows", "5000", "--batch-rows", "400", "--clients", "3"), 5000),
        (("latency", "--rows", "50", "--clients", "4"), 50),
        (("append", "--rows", "4000", "--batch-rows", "500", "--processes", "2"), 4000),
    ],
    ids=["append", "latency", "processes"],
)
def test_bench_writes_what_it_was_asked_for(cli: Commands, args: tuple[str, ...], rows: int) -> None:
    told = cli.json("bench", *args, "--seconds", 60)
    assert told["rows"] == rows
    assert told["rows_per_second"] > 0
    assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99"] <= told["latency_ms"]["max"]
    # Its stream is gone; the folder that was named stays.
    with laminar.open(cli.at) as db:
        assert db.streams() == []


def test_bench_reads_what_it_filled(cli: Commands) -> None:
    told = cli.json("bench", "read", "--rows", 20_000, "--clients", 2, "--seconds", "0.3")
    assert told["rows"] > 0
    assert "each reads its own" in cli.refused("bench", "read", "--clients", 4, "--partitions", 2)


def test_bench_without_a_folder_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(sys, "argv", ["laminar", "bench", "latency", "--rows", "20"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    text = capsys.readouterr().out
    assert "latency on a temporary folder: 1 client, 8 partitions" in text
    assert "p99.9" in text
    assert list(tmp_path.iterdir()) == []


def test_tally_tells_quantiles_and_travels() -> None:
    tally = Tally()
    for milliseconds in range(1, 1001):
        tally.add(2, 10, milliseconds / 1000)
    other = Tally.from_json(tally.to_json())
    assert other == tally
    other.merge(tally)
    assert (other.rows, other.calls, other.size, other.longest) == (4000, 2000, 20_000, 1.0)
    for part in (0.5, 0.9, 0.99):
        assert other.quantile(part) == pytest.approx(part, rel=0.03)
    assert Tally().quantile(0.5) == 0.0
