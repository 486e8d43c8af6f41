"""Pipeline files: what is read, what is refused and how it is said, and the picture. None of it starts Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from laminar.errors import InvalidError
from laminar.spark.pipeline import (
    Check,
    Create,
    Pipeline,
    PipelineFile,
    PythonTransform,
    RateSource,
    SqlTransform,
    StreamSink,
    StreamSource,
    load,
)
from laminar.spark.pipeline.checked import check_file
from laminar.spark.pipeline.graph import ordered, outputs, start_order
from laminar.spark.pipeline.picture import graph_tree, plan, plan_table

DOCS = Path(__file__).parent.parent.parent / "docs" / "pipelines.md"

HEAD = """
endpoint = "./data"

[[pipeline]]
name = "orders"
"""
SOURCE = """
[[pipeline.source]]
name = "raw"
stream = "/raw"
"""
SINK = """
[[pipeline.sink]]
input = "raw"
stream = "/out"
"""
KAFKA = SOURCE.replace('stream = "/raw"', 'kind = "kafka"\nservers = "host:9092"\ntopic = "orders"')
FILES = SOURCE.replace('stream = "/raw"', 'kind = "files"\npath = "in"\nformat = "json"\nschema = "a int"')
RATE = SOURCE.replace('stream = "/raw"', 'kind = "rate"')
DELTA = SINK.replace('stream = "/out"', 'kind = "delta"\npath = "table"\nfence = "/fence"')


def written(folder: Path, text: str, name: str = "pipeline.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(InvalidError) as error:
        load(written(folder, text))
    said = str(error.value)
    assert said.startswith(f"{folder / 'pipeline.toml'}: ")
    assert "\n" not in said
    return said


def example() -> str:
    found = re.search(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_example_of_the_documentation_is_valid(tmp_path: Path) -> None:
    file = load(written(tmp_path, example()))
    assert [pipeline.name for pipeline in file.pipelines] == ["orders", "totals"]
    assert file.endpoint == str(tmp_path / "data")


def test_python_example_of_the_documentation_is_valid(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found is not None
    file = load(written(tmp_path, found[1], "pipeline.py"))
    assert [output.target for output in outputs(file.pipelines[0])] == ["/numbers/even"]


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    text = HEAD + SOURCE.replace('stream = "/raw"', 'kind = "files"\npath = "in"\nformat = "json"\nschema = "a int"')
    monkeypatch.chdir(tmp_path)
    written(folder, text + SINK)
    file = load("here/pipeline.toml")
    assert file.endpoint == str(folder / "data")
    assert file.checkpoints == str(folder / "checkpoints")
    assert plan(file)[0]["sources"][0]["path"] == str(folder / "in")


def test_delta_table_is_relative_to_the_file_unless_it_is_an_address(tmp_path: Path) -> None:
    for given, meant in (
        ("table", str(tmp_path / "table")),
        ("s3a://bucket/table", "s3a://bucket/table"),
        ("dbfs:/table", "dbfs:/table"),
    ):
        file = load(written(tmp_path, HEAD + SOURCE + DELTA.replace('"table"', f'"{given}"')))
        assert plan(file)[0]["queries"][0]["target"] == meant


@pytest.mark.parametrize("other", ["table/", "./sub/../table", "file:FOLDER/table", "file://FOLDER/table"])
def test_folder_that_two_sinks_write_is_refused_however_it_is_written(tmp_path: Path, other: str) -> None:
    second = DELTA.replace('"table"', f'"{other.replace("FOLDER", str(tmp_path))}"').replace("/fence", "/fence2")
    assert "table is written twice by pipeline orders" in refused(tmp_path, HEAD + SOURCE + DELTA + second)


def test_addresses_and_object_stores_stay_as_they_are(tmp_path: Path) -> None:
    text = (HEAD + SOURCE + SINK).replace('"./data"', '"host:7400,other:7400"\ncheckpoints = "s3a://bucket/c"')
    file = load(written(tmp_path, text))
    assert (file.endpoint, file.checkpoints) == ("host:7400,other:7400", "s3a://bucket/c")
    assert plan(file)[0]["queries"][0]["checkpoint"].startswith("s3a://bucket/c/orders/out-")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pipeline = 3", "pipeline is 3; write it as [[…]] with keys below"),
        ("endpoint = 3", "file: endpoint is 3; it must be a text"),
        ('endpont = "./data"', "file: there is no key 'endpont'; did you mean endpoint?"),
        ("= 3", "it is not TOML"),
        ("", "the file has no pipeline; give at least one"),
        ("[[pipeline]]", "pipeline 1: name is missing; give it"),
        (HEAD + SINK, "pipeline orders: it has no source; give at least one"),
        (HEAD + SOURCE, "pipeline orders: it has no sink; give at least one"),
        (HEAD + "ones = true" + SOURCE + SINK, "pipeline orders: there is no key 'ones'; did you mean once?"),
        (HEAD + 'once = "yes"' + SOURCE + SINK, "pipeline orders: once is 'yes'; it must be true or false"),
        (HEAD + 'once = true\ntrigger = "1 second"' + SOURCE + SINK, "once and trigger are both given"),
        (HEAD.replace("orders", "a/b") + SOURCE + SINK, "the name 'a/b' cannot name a folder"),
        (HEAD + SOURCE.replace("raw", "1raw") + SINK, "source: the name '1raw' cannot stand in SQL"),
        (HEAD + SOURCE + 'kind = "laminer"' + SINK, "source raw: there is no kind 'laminer'; did you mean laminar?"),
        (HEAD + SOURCE + 'strat = "x"' + SINK, "source raw: there is no key 'strat'; did you mean start?"),
        (HEAD + SOURCE + "options = 3" + SINK, "source raw: options is 3; it must be a table such as"),
        (HEAD + SOURCE.replace('"/raw"', '"raw"') + SINK, "source raw: stream is 'raw'; the name of a stream begins"),
        (HEAD + '[[pipeline.source]]\nname = "raw"' + SINK, "pipeline orders, source raw: stream is missing; give it"),
        (HEAD + SOURCE + SINK.replace("raw", "row"), "sink /out: there is no relation 'row'; did you mean raw?"),
        (HEAD + SOURCE + SINK + "create = { partitions = 0 }", "create: partitions is 0; it must be at least 1"),
        (HEAD + SOURCE + SINK + 'create = { keys = ["a"] }', "there is no key 'keys'; did you mean key?"),
        (HEAD + SOURCE + SINK + 'create = { machine = "kv" }', "a kv stream keeps the newest row of each key"),
        (HEAD + SOURCE + SINK.replace("/out", "/raw"), "in a circle, /raw -> /raw; rows would go round"),
        (HEAD + SOURCE + SINK + SINK, "/out is written twice by pipeline orders; an output has one writer"),
        (
            HEAD + SOURCE + SINK + HEAD.partition('"./data"')[2] + SOURCE + SINK,
            "the file: pipeline orders is there twice",
        ),
        (
            (HEAD + SOURCE + SINK + '[[pipeline]]\nname = "more"' + SOURCE + SINK),
            "/out is written by pipelines orders and more; an output has one writer, give each its own",
        ),
        (
            HEAD + SOURCE + SINK.replace('stream = "/out"', 'kind = "parquet"\npath = "s3a://b"\nfence = "/f"'),
            "a batch is put in place by a rename, which object stores do not have",
        ),
        ((HEAD + SOURCE + SINK).replace('endpoint = "./data"', ""), "source raw: endpoint is missing; give it there"),
    ],
)
def test_mistake_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        ('name = "a"', "transform a: give one of sql and python"),
        ('name = "a"\nsgl = "x"', "transform a: there is no key 'sgl'; did you mean sql?"),
        ('name = "a"\nsql = "x"\npython = "m:f"', "transform a: give one of sql and python"),
        ('name = "a"\nsql = "select 1"', "transform a: inputs is missing; give it"),
        ('name = "a"\ninputs = "raw"\nsql = "select 1"', "transform a: inputs is 'raw'; it must be a list"),
        ('name = "a"\ninputs = []\nsql = "select 1"', "transform a: inputs is empty"),
        (
            'name = "a"\ninputs = ["rav"]\nsql = "select 1"',
            "transform a: there is no relation 'rav'; did you mean raw?",
        ),
        ('name = "a"\ninputs = ["a"]\nsql = "select 1"', "transforms read each other in a circle, a -> a"),
        ('name = "a"\ninputs = ["raw"]\nsql = "select 1"', "no sink reads a; name it in a sink or transform"),
        ('name = "RAW"\ninputs = ["raw"]\nsql = "select 1"', "relation RAW is there twice"),
        ('name = "a"\ninputs = ["raw"]\npython = "f"', "python is 'f'; it must be module:function"),
    ],
)
def test_wrong_transform_is_refused(tmp_path: Path, transform: str, said: str) -> None:
    assert said in refused(tmp_path, HEAD + SOURCE + "[[pipeline.transform]]\n" + transform + SINK)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ('otherwise = "ignore"', "check good: otherwise is 'ignore'; it must be drop, quarantine, fail"),
        ('otherwise = "quarantine"', "check good: to is missing; name the stream that rows are put aside in"),
        ('to = "/bad"', "check good: to is for rows put aside, and otherwise is drop"),
        ('otherwise = "quarantine"\nto = "/out"', "/out is written twice by pipeline orders"),
        ("adopt_query = true", "check good: adopt_query is for rows put aside, and otherwise is drop"),
        (
            'otherwise = "quarantine"\nto = "/bad"\noptions = { writer = "x" }',
            "check good: options has writer, which the pipeline sets",
        ),
        ('otherwise = "quarantine"\nto = "bad"', "check good: to is 'bad'; the name of a stream begins with /"),
    ],
)
def test_wrong_check_is_refused(tmp_path: Path, check: str, said: str) -> None:
    table = '[[pipeline.check]]\nname = "good"\non = "raw"\nexpect = "a > 0"\n'
    assert said in refused(tmp_path, HEAD + SOURCE + table + check + SINK)


@pytest.mark.parametrize(
    "source",
    [
        SOURCE + 'start = "latest"',
        SOURCE + 'start = " latest "',
        SOURCE + """start = '{"0": -1}'""",
        SOURCE + """start = ' { "0": 5, "1": -1 }'""",
        KAFKA + 'start = "Latest"',
        KAFKA + """start = '{"orders": {"0": -1}}'""",
    ],
)
def test_start_at_the_latest_row_needs_a_single_output(tmp_path: Path, source: str) -> None:
    text = HEAD + source + SINK
    load(written(tmp_path, text))
    assert "/out, /other would begin at different rows" in refused(tmp_path, text + SINK.replace("/out", "/other"))


def test_start_that_is_no_place_is_refused(tmp_path: Path) -> None:
    assert "source raw: start is 'noon'; it must be" in refused(tmp_path, HEAD + SOURCE + 'start = "noon"' + SINK)
    assert "which is not JSON" in refused(tmp_path, HEAD + SOURCE + """start = '{"0": '""" + SINK)


def test_files_that_are_cleaned_away_need_a_single_output(tmp_path: Path) -> None:
    text = HEAD + FILES + 'options = { cleansource = "delete" }' + SINK
    load(written(tmp_path, text))
    second = SINK.replace("/out", "/other")
    said = "cleanSource is delete, and /out, /other all read"
    assert said in refused(tmp_path, text + second)
    # Also if another pipeline reads them.
    assert said in refused(tmp_path, text + '[[pipeline]]\nname = "more"' + FILES + second)
    load(written(tmp_path, HEAD + FILES + 'options = { cleanSource = "off" }' + SINK + second))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SOURCE + 'options = { startingoffsets = "latest" }' + SINK, "source raw: options has startingoffsets, which"),
        (SOURCE + "options = { startingTimestamp = 5 }" + SINK, "the pipeline sets; use the key start"),
        (
            SOURCE + 'options = { Endpoint = "./other" }' + SINK,
            "options has Endpoint, which the pipeline sets; use the",
        ),
        (SOURCE + 'options = { secret = "hush" }' + SINK, "give --secret, or set LAMINAR_SECRET"),
        (KAFKA + 'options = { Subscribe = "other" }' + SINK, "use the key topic"),
        (KAFKA + 'options = { "kafka.bootstrap.servers" = "other:1" }' + SINK, "use the key servers"),
        (FILES + 'options = { PATH = "other" }' + SINK, "use the key path"),
        (RATE + "options = { rowspersecond = 5 }" + SINK, "use the key rows_per_second"),
        (
            SOURCE + SINK + 'options = { Writer = "me" }',
            "sink /out: options has Writer, which the pipeline sets; use the",
        ),
        (SOURCE + SINK + "options = { adoptquery = true }", "use the key adopt_query"),
        (SOURCE + SINK + 'options = { checkpointLocation = "c" }', "use the key checkpoints of the file"),
        (SOURCE + DELTA + 'options = { txnappid = "me" }', "leave it out, batches are known by the checkpoint"),
        (FILES + "options = { header = true, Header = false }" + SINK, "options has header and Header, which are the"),
    ],
)
def test_option_that_the_pipeline_sets_is_refused_with_the_key_to_use(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, HEAD + text)


def test_module_or_function_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rules_of_test.py").write_text("def clean(frame):\n    return frame\n")
    text = (
        HEAD
        + SOURCE
        + '[[pipeline.transform]]\nname = "a"\ninputs = ["raw"]\npython = "M:f"'
        + SINK.replace("raw", "a")
    )
    assert "no_such_module cannot be imported" in refused(tmp_path, text.replace("M:f", "no_such_module:f"))
    assert "did you mean clean?" in refused(tmp_path, text.replace("M:f", "rules_of_test:clear"))
    load(written(tmp_path, text.replace("M:f", "rules_of_test:clean")))


def test_only_named_pipelines_are_kept_and_a_wrong_name_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, example())
    assert [pipeline.name for pipeline in load(path, only=["totals"]).pipelines] == ["totals"]
    with pytest.raises(InvalidError, match="there is no pipeline total; did you mean totals"):
        load(path, only=["total"])


def test_file_that_is_not_there_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="there is no such file"):
        load(tmp_path / "no.toml")
    with pytest.raises(InvalidError, match="there is no such file"):
        load(tmp_path / "no.py")
    with pytest.raises(InvalidError, match=r"its name must end with .toml or .py"):
        load(tmp_path / "pipeline.yaml")


PYTHON = """
from laminar.spark.pipeline import Pipeline, PythonTransform, StreamSink, StreamSource

endpoint = "./data"

def upper(frame):
    return frame

pipelines = [
    Pipeline(
        name="orders",
        sources=[StreamSource(name="raw", stream="/raw")],
        transforms=[PythonTransform(name="clean", inputs=["raw"], python=upper)],
        sinks=[StreamSink(input="clean", stream="/out", create={"partitions": 2})],
    )
]
"""


def test_python_file_has_the_same_dataclasses(tmp_path: Path) -> None:
    file = load(written(tmp_path, PYTHON, "pipeline.py"))
    sink = file.pipelines[0].sinks[0]
    assert isinstance(sink, StreamSink)
    assert sink.create == Create(partitions=2)
    assert file.endpoint == str(tmp_path / "data")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "it must have pipelines, a list of laminar.spark.pipeline.Pipeline"),
        ("pipelines = [1]", "it must have pipelines, a list of laminar.spark.pipeline.Pipeline"),
        ("\n1 / 0", "line 2: ZeroDivisionError: division by zero"),
        ("def", "SyntaxError"),
        (PYTHON.replace('stream="/raw"', "stream=7"), "source raw: stream is 7; it must be a text"),
        (PYTHON.replace('endpoint = "./data"', "endpoint = 7"), "file: endpoint is 7; it must be a text"),
    ],
)
def test_mistake_in_a_python_file_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidError) as error:
        load(written(tmp_path, text, "pipeline.py"))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def _pipeline(name: str, reads: str, writes: str) -> Pipeline:
    return Pipeline(
        name=name, sources=(StreamSource(name="raw", stream=reads),), sinks=(StreamSink(input="raw", stream=writes),)
    )


def test_circle_through_the_streams_of_several_pipelines_is_refused() -> None:
    file = PipelineFile(
        pipelines=(_pipeline("a", "/1", "/2"), _pipeline("b", "/2", "/3"), _pipeline("c", "/3", "/1")),
        endpoint="./data",
    )
    with pytest.raises(InvalidError, match="streams are read to write each other in a circle"):
        check_file(file)


def test_outputs_start_after_those_that_make_their_streams() -> None:
    file = PipelineFile(
        pipelines=(_pipeline("c", "/3", "/4"), _pipeline("b", "/2", "/3"), _pipeline("a", "/1", "/2")),
        endpoint="./data",
    )
    assert [output.pipeline.name for output in start_order(file)] == ["a", "b", "c"]


def test_transforms_are_ordered_by_what_they_read() -> None:
    pipeline = Pipeline(
        name="p",
        sources=(RateSource(name="raw"),),
        transforms=(
            SqlTransform(name="c", inputs=("b", "raw"), sql="select 1"),
            PythonTransform(name="b", inputs=("a",), python=len),
            SqlTransform(name="a", inputs=("raw",), sql="select 1"),
        ),
        sinks=(StreamSink(input="c", stream="/out"),),
    )
    assert [transform.name for transform in ordered(pipeline)] == ["a", "b", "c"]


def test_checks_that_share_a_stream_share_an_output_whose_name_lasts() -> None:
    def check(name: str) -> Check:
        return Check(name=name, on="raw", expect="true", otherwise="quarantine", to="/bad/rows")

    pipeline = Pipeline(
        name="p",
        sources=(RateSource(name="raw"),),
        checks=(check("one"), check("two")),
        sinks=(StreamSink(input="raw", stream="/out"),),
    )
    rows, aside = outputs(pipeline)
    assert (rows.target, rows.rejected_by, rows.writer) == ("/out", (), "p")
    assert (aside.target, aside.rejected_by) == ("/bad/rows", ("one", "two"))
    # It names the folder of the checkpoint: another name would begin anew.
    assert aside.name == "bad-rows-9a105e95"


def test_quarantine_has_what_a_sink_has(tmp_path: Path) -> None:
    table = '[[pipeline.check]]\nname = "NAME"\non = "raw"\nexpect = "a > 0"\notherwise = "quarantine"\nto = "/bad"\n'
    given = 'endpoint = "./other"\nadopt_query = true\noptions = { blockBytes = "1m" }\n'
    text = HEAD + SOURCE + table.replace("NAME", "one") + given + SINK
    _, aside = outputs(load(written(tmp_path, text)).pipelines[0])
    assert aside.sink == StreamSink(
        input="raw",
        stream="/bad",
        endpoint=str(tmp_path / "other"),
        adopt_query=True,
        options={"blockBytes": "1m"},
    )
    both = text + table.replace("NAME", "two") + 'endpoint = "./other"\noptions = { blockBytes = "2m" }\n'
    assert "checks one and two put rows of raw aside in /bad, with different options" in refused(tmp_path, both)


def test_streams_of_the_same_name_on_two_clusters_have_checkpoints_of_their_own(tmp_path: Path) -> None:
    sinks = SINK + 'endpoint = "./one"' + SINK + 'endpoint = "host:7400"' + SINK
    file = load(written(tmp_path, HEAD + SOURCE + sinks))
    checkpoints = [query["checkpoint"] for query in plan(file)[0]["queries"]]
    assert len(set(checkpoints)) == 3
    # As it was where the sink names no cluster: it goes on where it ended.
    assert checkpoints[2].endswith("/orders/out-23fec70e")


def test_picture_shows_every_relation_check_and_output(tmp_path: Path) -> None:
    file = load(written(tmp_path, example()))
    console = Console(width=200, record=True, file=(tmp_path / "out").open("w"))
    console.print(plan_table(file))
    for pipeline in file.pipelines:
        console.print(graph_tree(pipeline))
    console.file.close()
    shown = console.export_text()
    for pipeline in file.pipelines:
        names = [one.name for one in (*pipeline.sources, *pipeline.transforms, *pipeline.checks)]
        for name in (*names, *(output.target for output in outputs(pipeline))):
            assert name in shown


def test_file_is_checked_without_starting_java_or_importing_pyspark(tmp_path: Path) -> None:
    script = (
        "import sys; from laminar.spark.pipeline import load; load(sys.argv[1]); assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, written(tmp_path, example())], check=True, timeout=60)
