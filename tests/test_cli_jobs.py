"""Mistakes in the command line of the jobs: one line, before Spark starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Commands

import laminar
from laminar.cli.schema_spec import parse_schema

PIPELINE = """
[[pipeline]]
name = "copy"

[[pipeline.source]]
name = "raw"
stream = "/a"

[[pipeline.sink]]
input = "raw"
stream = "/b"
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    monkeypatch.chdir(tmp_path)
    # Whatever starts Spark fails: there is no Java here.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    return Commands(str(tmp_path / "data"), monkeypatch, capsys)


@pytest.fixture
def db(cli: Commands) -> Iterator[laminar.Cluster]:
    with laminar.open(cli.at) as db:
        db.create_stream("/a", 2, parse_schema("id:int64"))
        yield db


@pytest.mark.parametrize(
    "args",
    [
        ("ingest", "rows.csv", "/a"),
        ("export", "/a", "out"),
        ("replay", "/a", "--to", "/b", "--checkpoint", "c"),
        ("verify", "/a"),
        ("compact", "/a"),
    ],
    ids=lambda args: args[0],
)
def test_folder_that_is_not_there_is_not_made(cli: Commands, args: tuple[str, ...]) -> None:
    Path("rows.csv").write_text("id\n1\n")
    assert "there is no such folder; name another with --at" in cli.refused(*args)
    assert not Path(cli.at).exists()
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "args",
    [
        ("ingest", "rows.csv"),
        ("ingest",),
        ("export", "/a"),
        ("export", "/a", "out", "--rows-per-file", "0"),
        ("replay", "/a", "--to", "/b"),
        ("replay", "/a", "--checkpoint", "c"),
        ("verify",),
        ("compact",),
        ("run",),
        ("ingest", "rows.csv", "/a", "--partitions", "0"),
    ],
    ids=" ".join,
)
def test_bad_usage_ends_with_two(cli: Commands, args: tuple[str, ...]) -> None:
    cli.run(*args, exit_code=2)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("ingest", "rows.xyz", "/a"), "rows.xyz: its name does not say what it is; give the format"),
        (("ingest", "no.csv", "/a"), "no.csv: there is no such file or folder"),
        (("ingest", "rows.csv", "/a", "--follow"), "following needs a checkpoint"),
        (("ingest", "rows.csv", "/a", "--checkpoint", "c"), "a checkpoint is for following"),
        (("ingest", "rows.csv", "/a", "--follow", "--checkpoint", "c", "--txn-id", "t"), "a transaction id is for a"),
        (("ingest", "rows.csv", "/a", "--option", "header"), "--option is 'header'; it must be NAME=VALUE"),
        (("ingest", "rows.csv", "/a", "--conf", "=3"), "--conf is '=3'; it must be NAME=VALUE"),
        (("ingest", "rows.csv", "/a", "--key", "id"), "are for a stream that is made; give --create too"),
        (("ingest", "rows.csv", "/a", "--create", "--machine", "kv"), "a kv stream keeps the newest row of each key"),
        (("ingest", "rows.csv", "/a", "--create", "--machine", "kx"), "machine is 'kx'; it must be log or kv"),
        (("ingest", "rows.csv", "/no"), "/no"),
        (("export", "/no", "out"), "there is no stream /no at"),
        (("export", "/aa", "out"), "did you mean /a?"),
        (("verify", "/no"), "/no"),
        (("compact", "/no"), "/no"),
        (("compact", "/a"), "this stream has machine 'log'; only streams with machine 'kv' are compacted"),
        (("compact", "/a", "--grace", "soon"), "--grace is 'soon'; it must be a number with ms, s, m, h, d or w"),
        (("compact", "/a", "--keep-removed", "1"), "--keep-removed is '1'; it must be a number with"),
        (("replay", "/a", "--to", "/no", "--checkpoint", "c"), "/no"),
        (("replay", "/a", "--to", "/a", "--checkpoint", "c", "--from", "noon"), "--from is 'noon'; it must be"),
        (("replay", "/a", "--to", "/a", "--checkpoint", "c", "--from", "5"), "offsets are given by partition"),
        (("verify", "/a"), "which has no bin/java; point it at a JDK"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.usefixtures("db")
def test_mistake_is_told_in_one_line(cli: Commands, args: tuple[str, ...], said: str) -> None:
    Path("rows.csv").write_text("id\n1\n")
    assert said in cli.refused(*args)
    assert not Path("out").exists()


def test_format_of_a_folder_is_that_of_its_files(cli: Commands) -> None:
    Path("in").mkdir()
    Path("in/a.csv").write_text("id\n1\n")
    assert "there is no such folder" in cli.refused("ingest", "in", "/a")
    Path("in/b.json").write_text("{}")
    assert "its name does not say what it is" in cli.refused("ingest", "in", "/a")


def test_run_tells_mistakes_of_the_file(cli: Commands) -> None:
    assert "no.toml: there is no such file" in cli.refused("run", "no.toml")
    Path("p.toml").write_text(PIPELINE.replace("stream", "steam", 1))
    assert "source raw: there is no key 'steam'; did you mean stream?" in cli.refused("run", "p.toml")
    Path("p.toml").write_text(PIPELINE)
    assert "there is no pipeline cop; did you mean copy?" in cli.refused("run", "p.toml", "--only", "cop")


def test_dry_run_shows_the_plan_and_touches_nothing(cli: Commands) -> None:
    Path("p.toml").write_text(PIPELINE)
    shown = cli.out("run", "p.toml", "--dry-run")
    assert "=> /b  writer copy" in shown
    told = cli.json("run", "p.toml", "--dry-run")
    assert told[0]["queries"][0]["target"] == "/b"
    assert told[0]["queries"][0]["endpoint"] == cli.at
    assert sorted(path.name for path in Path().iterdir()) == ["p.toml"]


def test_run_on_a_folder_that_is_not_there_does_not_make_it(cli: Commands) -> None:
    Path("p.toml").write_text(PIPELINE)
    assert "there is no such folder" in cli.refused("run", "p.toml")
    assert not Path(cli.at).exists()
