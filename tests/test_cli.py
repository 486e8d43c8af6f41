"""The command line, run as a person runs it: a process with arguments, two outputs and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import laminar

ROOT = Path(__file__).parent.parent
THREE_ZONES = "examples/clusters/three-zones.toml"


def run(*args: str, exit_code: int = 0, width: int = 100) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "laminar", *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "COLUMNS": str(width), "NO_COLOR": "1"},
    )
    assert done.returncode == exit_code, done.stderr
    if exit_code == 0:
        assert done.stderr == ""
    assert "Traceback" not in done.stderr
    return done


def refused(*args: str) -> str:
    """The one line on stderr of a command that is refused."""
    done = run(*args, exit_code=1)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_version() -> None:
    assert run("--version").stdout == f"laminar {laminar.__version__}\n"


def test_installed_command_is_the_same() -> None:
    script = Path(sys.executable).parent / "laminar"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"laminar {laminar.__version__}\n"


def test_help_lists_the_commands() -> None:
    text = run("--help").stdout
    for command in ("demo", "status", "stream", "append", "read", "why", "plan", "bench", "--show-completion"):
        assert command in text
    assert "CLUSTER.toml" in run("plan", "--help").stdout


@pytest.mark.parametrize(
    "args",
    [
        ("plna",),
        ("plan",),
        ("plan", THREE_ZONES, "--laeve", "3"),
        ("plan", THREE_ZONES, "--leave", "three"),
        ("plan", THREE_ZONES, "--moves", "-1"),
    ],
)
def test_bad_usage_exits_2(args: tuple[str, ...]) -> None:
    assert run(*args, exit_code=2).stdout == ""


def test_plan_shows_moves_spread_and_domains() -> None:
    text = run("plan", THREE_ZONES, "--leave", "5").stdout
    assert "three zones: 96 partitions on 8 nodes, 11 moves" in text
    assert text.count("node 5  node ") == 11
    assert "partitions by node" in text
    assert "partitions by failure domain" in text
    assert "az-2" in text
    assert "█" in text
    assert "all constraints are met" in text


def test_plan_can_be_limited_to_some_moves() -> None:
    text = run("plan", THREE_ZONES, "--leave", "5", "--moves", "2").stdout
    assert "… and 9 more (--moves 11 shows all)" in text


def test_plan_as_json_is_the_plan() -> None:
    plan = json.loads(run("plan", THREE_ZONES, "--join", "10:8:az-1", "--json").stdout)
    assert plan["stats"]["total_partitions"] == 96
    assert {move["to_node"] for move in plan["moves"]} == {10}
    assert plan["bands"]["10"]["low"] == len(plan["moves"])
    assert sum(plan["failure_domains"].values()) == 96
    rebuilt = laminar.AssignmentPlan.from_json(
        json.dumps({key: plan[key] for key in ("assignments", "moves", "stats")})
    )
    assert len(rebuilt.assignments) == 96


def test_plan_without_a_change_is_the_initial_assignment() -> None:
    plan = json.loads(run("plan", THREE_ZONES, "--json").stdout)
    assert plan["moves"] == []
    assert {assigned["epoch"] for assigned in plan["assignments"].values()} == {1}


def test_plan_from_a_current_map_moves_what_must_move() -> None:
    plan = json.loads(run("plan", "examples/clusters/current-map.toml", "--json").stdout)
    assert {move["from_node"] for move in plan["moves"]} == {2}
    assert plan["stats"]["distribution"] == {"1": 16, "3": 16}
    assert next(move for move in plan["moves"] if move["partition_id"] == 31)["new_epoch"] == 8


def test_plan_names_the_hint_it_dropped() -> None:
    text = run("plan", "examples/clusters/constraints.toml", width=200).stdout
    assert "not all wishes are met" in text
    assert "orders together" in text


def test_several_changes_make_one_plan() -> None:
    plan = json.loads(
        run("plan", THREE_ZONES, "--leave", "5", "--join", "10:8:az-2", "--weight", "1=0.5", "--json").stdout
    )
    assert {move["new_epoch"] for move in plan["moves"]} == {2}
    assert "5" not in plan["stats"]["distribution"]
    assert plan["stats"]["distribution"]["1"] < plan["stats"]["distribution"]["2"]


def test_partitions_missing_from_the_current_map_are_new(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[cluster]\npartitions = 3\n[[nodes]]\nid = 1\n[current]\n"0-1" = [1, 4]\n')
    plan = json.loads(run("plan", str(file), "--json").stdout)
    assert [(move["partition_id"], move["from_node"]) for move in plan["moves"]] == [(2, 0)]


NODE = "[[nodes]]\nid = 1\n"

BAD_FILES = {
    "endless number": (f"[cluster]\npartitions = {'9' * 5000}\n{NODE}", "is not TOML"),
    "endless range": (f"[cluster]\npartitions = ['{'9' * 5000}']\n{NODE}", "it must be a partition id"),
    "nested beyond reason": (f"x = {'[' * 5000}{']' * 5000}\n{NODE}", "is not TOML"),
    "many overlapping ranges": (
        f"[cluster]\npartitions = ['0-299999', 299999]\n{NODE}",
        "names partition 299999 twice",
    ),
    "too many ranges": (f"[cluster]\npartitions = ['0-999999', '1000000-1000001']\n{NODE}", "at most 1000000"),
    "epoch zero": (
        f"[cluster]\npartitions = 2\n{NODE}[current]\n0 = [1, 0]\n",
        "current.0 is [1, 0]; the node must be",
    ),
    "memory twice": (
        f"[cluster]\npartitions = 4\n[constraints]\npartition_memory_bytes = {{ '0-3' = 5, 2 = 7 }}\n{NODE}",
        "names partition 2 twice",
    ),
    "not toml": ("[cluster", "is not TOML"),
    "unknown table": (f"[cluser]\npartitions = 1\n{NODE}", "unknown key 'cluser'; did you mean 'cluster'?"),
    "unknown key": (
        f"[cluster]\npartitons = 1\n{NODE}",
        "[cluster] has the unknown key 'partitons'; did you mean 'partitions'?",
    ),
    "unknown node key": (
        "[cluster]\npartitions = 1\n[[nodes]]\nid = 1\ncors = 3\n",
        "unknown key 'cors'; did you mean 'cores'?",
    ),
    "key like no other": (
        "[cluster]\npartitions = 1\n[[nodes]]\nid = 1\nzzz = 3\n",
        "unknown key 'zzz'; known are id, cores",
    ),
    "unknown constraint": (
        f"[cluster]\npartitions = 1\n[constraints]\nmax_partition_per_node = 1\n{NODE}",
        "did you mean 'max_partitions_per_node'?",
    ),
    "no partitions": (NODE, "cluster.partitions is missing"),
    "negative partitions": (
        f"[cluster]\npartitions = -1\n{NODE}",
        "cluster.partitions is -1; it must be from 0 to 1000000",
    ),
    "partitions of text": (f"[cluster]\npartitions = 'x'\n{NODE}", "cluster.partitions is 'x'"),
    "falling range": (f"[cluster]\npartitions = ['9-3']\n{NODE}", "cluster.partitions has '9-3'"),
    "huge range": (f"[cluster]\npartitions = ['0-99999999999']\n{NODE}", "cluster.partitions has '0-99999999999'"),
    "partition twice": (f"[cluster]\npartitions = ['0-3', 2]\n{NODE}", "names partition 2 twice"),
    "cluster of a number": (f"cluster = 3\n{NODE}", "cluster is not a table"),
    "nodes of a number": ("nodes = 3\n[cluster]\npartitions = 1\n", "nodes is not a list of tables"),
    "node without an id": ("[cluster]\npartitions = 1\n[[nodes]]\ncores = 1\n", "node 1 of [[nodes]]: node id is None"),
    "node zero": ("[cluster]\npartitions = 1\n[[nodes]]\nid = 0\n", "node id is 0"),
    "node twice": (f"[cluster]\npartitions = 1\n{NODE}{NODE}", "node 2 of [[nodes]]: id 1 is used twice"),
    "negative weight": ("[cluster]\npartitions = 1\n[[nodes]]\nid = 1\nweight = -1.0\n", "node 1: weight is -1"),
    "weight of nan": ("[cluster]\npartitions = 1\n[[nodes]]\nid = 1\nweight = nan\n", "node 1: weight is NaN"),
    "bad strength": (
        (
            "[cluster]\npartitions = 2\n"
            f"[[constraints.affinity_hints]]\nname = 'h'\npartition_ids = [0]\nstrength = 7\n{NODE}"
        ),
        "strength is 7",
    ),
    "group without ids": (
        f"[cluster]\npartitions = 2\n[[constraints.anti_affinity_groups]]\nname = 'g'\n{NODE}",
        "partition_ids is missing",
    ),
    "group of strangers": (
        f"[cluster]\npartitions = 2\n[[constraints.anti_affinity_groups]]\nname = 'g'\npartition_ids = [7]\n{NODE}",
        "'g' names partition 7",
    ),
    "bad current": (f"[cluster]\npartitions = 2\n{NODE}[current]\n0 = 3\n", "current.0 is 3; it must be [node, epoch]"),
    "current of a list": (f"current = []\n[cluster]\npartitions = 2\n{NODE}", "current is not a table"),
    "current twice": (
        f"[cluster]\npartitions = 2\n{NODE}[current]\n0 = [1, 1]\n'0-1' = [1, 1]\n",
        "current names partition 0 twice",
    ),
    "current of strangers": (
        f"[cluster]\npartitions = 2\n{NODE}[current]\n7 = [1, 1]\n",
        "current names partition 7, which is not in cluster.partitions",
    ),
    "no node": ("[cluster]\npartitions = 2\n", "none of 0 nodes is active"),
    "impossible cap": (f"[cluster]\npartitions = 20\n[constraints]\nmax_partitions_per_node = 3\n{NODE}", "20"),
    "impossible domains": (
        f"[cluster]\npartitions = 20\n[constraints]\nmin_failure_domains = 3\n{NODE}",
        "3 failure domains are required",
    ),
    "impossible group": (
        f"[cluster]\npartitions = 2\n[[constraints.anti_affinity_groups]]\nname = 'g'\npartition_ids = [0, 1]\n{NODE}",
        "2 partitions must be on different nodes",
    ),
    "impossible memory": (
        f"[cluster]\npartitions = 2\n[constraints]\nmax_memory_per_node = 5\npartition_memory_bytes = 3\n{NODE}",
        "partitions need 6 bytes",
    ),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_file_is_refused_in_one_clear_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(content)
    line = refused("plan", str(file))
    assert line.startswith("laminar: ")
    assert message in line


def test_missing_file_unreadable_file_and_folder_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refused("plan", str(tmp_path / "none.toml"))
    assert "cannot be read" in refused("plan", str(tmp_path))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "is not TOML" in refused("plan", str(binary))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--leave", "77"), "--leave 77: the cluster has no node 77; it has 1, 2, 3"),
        (("--join", "5"), "--join 5: node 5 is in the cluster already"),
        (("--join", "a:b"), "--join a:b: must be ID, ID:CORES or ID:CORES:DOMAIN"),
        (("--join", "0"), "node id is 0"),
        (("--weight", "77=1"), "--weight 77: the cluster has no node 77"),
        (("--weight", "5"), "--weight 5: must be ID=WEIGHT"),
        (("--weight", "5=heavy"), "--weight 5=heavy: must be ID=WEIGHT"),
        (("--join", "9" * 5000), "must be ID, ID:CORES or ID:CORES:DOMAIN"),
        (("--weight", "5=nan"), "node 5: weight is NaN"),
    ],
)
def test_change_that_cannot_be_is_refused_in_one_clear_line(args: tuple[str, ...], message: str) -> None:
    assert message in refused("plan", THREE_ZONES, *args)


def test_reader_that_goes_away_is_no_error_worth_a_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "laminar", "plan", THREE_ZONES, "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)


def test_names_are_shown_as_they_are_and_never_read_as_markup(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        "[cluster]\nname = '[/x]'\npartitions = 2\n[[nodes]]\nid = 1\nfailure_domain = '[red]z'\n[[nodes]]\nid = 2\n"
        "[[constraints.anti_affinity_groups]]\nname = '[/g]'\npartition_ids = [0, 1]\n"
        "[[constraints.affinity_hints]]\nname = '[/h]'\npartition_ids = [0, 1]\n"
    )
    text = run("plan", str(file), width=200).stdout
    for name in ("[/x]", "[red]z", "[/g]", "[/h]"):
        assert name in text


def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "laminar", "plan", THREE_ZONES, "--json"]
        done = subprocess.run(
            command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (1, "laminar: the output could not be written, No space left on device\n")


def test_terminal_without_blocks_and_arrows_gets_question_marks() -> None:
    command = [sys.executable, "-m", "laminar", "demo", "--plain"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
