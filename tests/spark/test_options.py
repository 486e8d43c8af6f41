"""Options of format("laminar"): what they mean, and what is said about mistakes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import laminar
from laminar.spark import clients, options
from laminar.spark.options import SinkOptions, SourceOptions
from laminar.spark.parsing import EARLIEST, LATEST

PLACE = {"endpoint": "./data", "path": "/shop/orders"}


def source(**options: str) -> SourceOptions:
    return SourceOptions.of({**PLACE, **options})


def refused(of: Any, **options: str) -> str:
    with pytest.raises(laminar.InvalidError) as caught:
        of.of({**PLACE, **options})
    return str(caught.value)


def test_a_folder_becomes_absolute_and_addresses_stay() -> None:
    assert source().place.endpoint == str(Path("data").absolute())
    assert source(endpoint="one:7400, two:7400").place.endpoint == "one:7400, two:7400"
    assert clients.is_address("[::1]:7400")
    assert not clients.is_address("./host:7400")


def test_names_of_options_have_no_case() -> None:
    given = source(STARTINGOFFSETS="Earliest", includemetadata="TRUE", failondataloss="false")
    assert given.starting_offsets == EARLIEST
    assert given.include_metadata
    assert not given.fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("startingOffset", "startingOffsets"), ("maxRowPerTrigger", "maxRowsPerTrigger"), ("endpont", "endpoint")],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(given: str, nearest: str) -> None:
    assert (
        refused(SourceOptions, **{given: "1"}) == f"the source has no option {given.lower()}; did you mean {nearest}?"
    )


def test_an_option_like_no_other_is_refused_with_all_names() -> None:
    assert "there are adoptQuery, " in refused(SinkOptions, zzz="1")


def test_options_of_the_sink_are_not_those_of_the_source() -> None:
    assert "the source has no option writer" in refused(SourceOptions, writer="ingest")
    assert "the sink has no option startingoffsets" in refused(SinkOptions, startingOffsets="earliest")


def test_the_endpoint_and_the_stream_are_needed() -> None:
    with pytest.raises(laminar.InvalidError, match="option endpoint is missing; give the folder"):
        SourceOptions.of({"path": "/a"})
    with pytest.raises(laminar.InvalidError, match="no stream is named; give it to load, save or start"):
        SourceOptions.of({"endpoint": "./data"})
    assert SourceOptions.of({"endpoint": "./data", "stream": "/a"}).place.stream == "/a"
    assert "give one of the two" in refused(SourceOptions, stream="/other")


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ('{"0": 5, "12": -1, "3": -2}', {0: 5, 12: LATEST, 3: EARLIEST}),
        ("{}", {}),
    ],
)
def test_starting_offsets_are_words_or_json(text: str, offsets: Any) -> None:
    assert source(startingOffsets=text).starting_offsets == offsets


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("first", "it must be earliest or latest, or JSON"),
        ("5", "it must be earliest or latest, or JSON"),
        ('{"0": 5', "which is not JSON"),
        ('{"0": 1, "0": 2}', "a name is there twice"),
        ('{"a": 5}', "partition 'a'; it must be a number from 0"),
        ('{"-1": 5}', "partition '-1'; it must be a number from 0"),
        ('{"0": -3}', "offset -3 for partition 0; it must be a number from 0, or -2 for earliest, or -1 for latest"),
        ('{"0": 1.5}', "offset 1.5 for partition 0"),
        ('{"0": true}', "offset True for partition 0"),
        ('{"0": "5"}', "offset '5' for partition 0"),
        ('{"/shop/orders": {"0": 5}}', "partition '/shop/orders'"),
    ],
)
def test_bad_starting_offsets_are_refused(text: str, what: str) -> None:
    assert what in refused(SourceOptions, startingOffsets=text)


def test_a_read_cannot_end_with_earliest() -> None:
    assert "it must be latest, or JSON" in refused(SourceOptions, endingOffsets="earliest")
    assert "or -1 for latest" in refused(SourceOptions, endingOffsets='{"0": -2}')


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1970-01-01T00:00:00.0011Z", 2),
        ("1960-01-01T00:00:00Z", 0),
    ],
)
def test_times_are_milliseconds_or_have_a_zone(text: str, time_ms: int) -> None:
    assert source(startingTimestamp=text).starting_time_ms == time_ms


@pytest.mark.parametrize("text", ["yesterday", "2026-01-01T00:00:00", "-5"])
def test_a_time_without_a_zone_is_refused(text: str) -> None:
    assert "a time with a zone, such as 2026-01-31T12:00:00Z" in refused(SourceOptions, endingTimestamp=text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"startingOffsets": "earliest"}, {"startingTimestamp": "5"}),
        ({"endingOffsets": "latest"}, {"endingTimestamp": "5"}),
        ({"at": "7"}, {"endingOffsets": "latest"}),
        ({"at": "7"}, {"endingTimestamp": "5"}),
    ],
)
def test_options_that_contradict_each_other_are_refused(one: dict[str, str], other: dict[str, str]) -> None:
    assert "are both given; give one of the two" in refused(SourceOptions, **one, **other)


@pytest.mark.parametrize(
    ("option", "text", "what"),
    [
        ("includeMetadata", "yes", "it must be true or false"),
        ("minPartitions", "0", "it must be a whole number of at least 1"),
        ("maxRowsPerTrigger", "1e6", "it must be a whole number of at least 1"),
        ("at", "-1", "it must be a whole number of at least 0"),
        ("maxBytesPerTrigger", "0", "it must be a size above 0, such as 1048576, 64m or 1g"),
        ("maxBytesPerTrigger", "5x", "it must be a size above 0"),
        ("columns", "a,,b", "it must be different names"),
        ("columns", "a,a", "it must be different names"),
        ("columns", "[1]", "it must be a JSON list of names"),
        ("nodeLinger", "soon", "it must be seconds, above 0"),
        ("nodeLinger", "nan", "it must be seconds, above 0"),
    ],
)
def test_bad_values_are_refused_with_what_they_must_be(option: str, text: str, what: str) -> None:
    message = refused(SourceOptions, **{option: text})
    assert message.startswith(f"{option} is {text!r}; {what}")


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("64k", 65_536), ("1MB", 1 << 20), ("2 gib", 2 << 30)])
def test_sizes_have_units_as_in_spark(text: str, size: int) -> None:
    assert source(maxBytesPerTrigger=text).bytes_per_trigger_max == size


def test_columns_are_names_with_commas_or_a_json_list() -> None:
    assert source(columns="id, amount").columns == ("id", "amount")
    assert source(columns='["a,b", "c"]').columns == ("a,b", "c")


def test_what_is_for_streaming_is_refused_in_a_batch_and_the_other_way_round() -> None:
    with pytest.raises(laminar.InvalidError, match="maxRowsPerTrigger is for streaming queries"):
        source(maxRowsPerTrigger="5").check_batch()
    with pytest.raises(laminar.InvalidError, match="a batch read would be empty; use readStream"):
        source(startingOffsets="latest").check_batch()
    with pytest.raises(laminar.InvalidError, match="endingOffsets is for batch reads"):
        source(endingOffsets="latest").check_streaming()
    with pytest.raises(laminar.InvalidError, match=r"at is for batch reads.*Trigger.AvailableNow"):
        source(at="7").check_streaming()


def test_the_secret_is_taken_from_the_environment_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given, other = "hush", "louder"
    monkeypatch.setenv("LAMINAR_SECRET", given)
    assert source().place.secret == given
    assert source(secret=other).place.secret == other


def test_options_of_the_sink() -> None:
    given = SinkOptions.of({**PLACE, "writer": "ingest", "txnAppId": "job", "txnVersion": "7", "adoptQuery": "true"})
    assert (given.writer, given.txn_app_id, given.txn_version, given.adopt_query) == ("ingest", "job", 7, True)


@pytest.mark.parametrize(
    ("option", "text"),
    [("checkpointLocation", "./c"), ("queryname", "orders"), ("asyncProgressTrackingEnabled", "true")],
)
def test_what_only_a_streaming_query_has_is_refused_in_a_batch_write(option: str, text: str) -> None:
    with pytest.raises(laminar.InvalidError, match=r"is for streaming queries.*leave it out, or use writeStream"):
        SinkOptions.of({**PLACE, option: text}).check_batch()
    SinkOptions.of({**PLACE, "asyncProgressTrackingEnabled": "false"}).check_batch()


def test_each_node_linger_has_a_handle_of_its_own(endpoint: str) -> None:
    first, second, again = (clients.driver(endpoint, linger=linger) for linger in (7.0, 9.0, 7.0))
    assert first is again
    assert first is not second


@pytest.mark.parametrize(
    ("page", "known"), [("spark-source.md", options._SOURCE), ("spark.md", options._SINK)], ids=["source", "sink"]
)
def test_the_documentation_has_every_option(page: str, known: tuple[str, ...]) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    table = text[text.index("| option | for |") :].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(documented) == sorted(known)


def test_a_folder_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    laminar.open(tmp_path / "data").close()
    with pytest.raises(laminar.InvalidError, match=r"there is no such folder; did you mean .*/data\?"):
        clients.driver(str(tmp_path / "dat"))
    assert not (tmp_path / "dat").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(laminar.InvalidError, match="not a laminar folder"):
        clients.driver(str(tmp_path / "empty"))
