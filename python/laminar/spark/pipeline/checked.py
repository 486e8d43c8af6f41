"""Whether a file can run, told before Spark starts: inputs that are not there, circles, outputs with two writers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from laminar.errors import InvalidError
from laminar.spark.jobs.places import start_options
from laminar.spark.parsing import LATEST
from laminar.spark.pipeline.conform import nearest
from laminar.spark.pipeline.graph import Output, ancestors, circle, ordered, outputs
from laminar.spark.pipeline.model import (
    FilesSource,
    KafkaSource,
    Pipeline,
    PipelineFile,
    StreamSink,
    StreamSource,
)


def check_file(file: PipelineFile) -> None:
    """Raise ``InvalidError`` for the first thing that cannot run."""
    if not file.pipelines:
        raise InvalidError("the file has no pipeline; give at least one")
    _check_once([pipeline.name for pipeline in file.pipelines], "pipeline", "the file")
    for pipeline in file.pipelines:
        _check_names(pipeline)
        ordered(pipeline)
        _check_read(pipeline)
        _check_starts(pipeline)
        _check_endpoints(pipeline, file.endpoint)
    _check_cleaned(file)
    _check_owned(file)
    _check_no_loops(file)


def _check_once(names: Iterable[str], what: str, where: str) -> None:
    seen: set[str] = set()
    for name in names:
        # Spark's SQL does not tell upper from lower case.
        if name.lower() in seen:
            raise InvalidError(f"{where}: {what} {name} is there twice; give each a name of its own")
        seen.add(name.lower())


def _check_names(pipeline: Pipeline) -> None:
    where = f"pipeline {pipeline.name}"
    relations = [relation.name for relation in (*pipeline.sources, *pipeline.transforms)]
    _check_once(relations, "relation", where)
    _check_once([check.name for check in pipeline.checks], "check", where)
    named = [
        *((f"transform {transform.name}", name) for transform in pipeline.transforms for name in transform.inputs),
        *((f"check {check.name}", check.on) for check in pipeline.checks),
        *((f"sink {Output(pipeline, sink).target}", sink.input) for sink in pipeline.sinks),
    ]
    for what, name in named:
        if name not in relations:
            raise InvalidError(f"{where}, {what}: there is no relation {name!r}; {nearest(name, relations)}")


def _check_read(pipeline: Pipeline) -> None:
    read = set().union(*(ancestors(pipeline, output.sink.input) for output in outputs(pipeline)))
    for relation in (*pipeline.sources, *pipeline.transforms):
        if relation.name not in read:
            raise InvalidError(
                f"pipeline {pipeline.name}: no sink reads {relation.name}; name it in a sink or transform, or remove it"
            )


def _readers(pipeline: Pipeline, relation: str) -> list[str]:
    """The outputs that are made of a relation."""
    return [output.target for output in outputs(pipeline) if relation in ancestors(pipeline, output.sink.input)]


def _check_starts(pipeline: Pipeline) -> None:
    """Each output is a query of its own: two that begin at the latest row begin at different rows."""
    for source in pipeline.sources:
        if not isinstance(source, StreamSource | KafkaSource):
            continue
        where = f"pipeline {pipeline.name}, source {source.name}: start"
        if isinstance(source, StreamSource):
            start_options(source.start, where)
        reading = _readers(pipeline, source.name)
        if _begins_at_latest(source.start, where) and len(reading) > 1:
            raise InvalidError(
                f"{where} is {source.start.strip()}, and {', '.join(reading)} would begin at different rows; give "
                "offsets, a time or earliest"
            )


def _begins_at_latest(start: str, where: str) -> bool:
    """Whether any partition begins at its latest row. In offsets it is -1, for Kafka below the name of the topic."""
    if not start.strip().startswith("{"):
        return start.strip().lower() == "latest"
    try:
        found = json.loads(start)
    except ValueError as error:
        raise InvalidError(f"{where} is {start!r}, which is not JSON ({error})") from None
    by_topic = [value for value in found.values() if isinstance(value, dict)]
    return any(LATEST in offsets.values() for offsets in (found, *by_topic))


def _check_cleaned(file: PipelineFile) -> None:
    """A file that one query cleans away may be one that another has not read."""
    readers: dict[str, list[str]] = {}
    cleaned: dict[str, str] = {}
    for pipeline in file.pipelines:
        for source in pipeline.sources:
            if not isinstance(source, FilesSource):
                continue
            folder = _folder(source.path)
            readers.setdefault(folder, []).extend(_readers(pipeline, source.name))
            option = next((value for name, value in source.options.items() if name.lower() == "cleansource"), "off")
            if option.lower() != "off":
                cleaned[folder] = f"pipeline {pipeline.name}, source {source.name}: cleanSource is {option}"
    for folder, what in cleaned.items():
        if len(readers[folder]) > 1:
            raise InvalidError(
                f"{what}, and {', '.join(readers[folder])} all read {folder}: files would go before all have read "
                "them; leave it out, or give the source a single output"
            )


def _check_endpoints(pipeline: Pipeline, endpoint: str | None) -> None:
    if endpoint is not None:
        return
    for what, thing in _on_clusters(pipeline):
        if thing is None:
            raise InvalidError(
                f"pipeline {pipeline.name}, {what}: endpoint is missing; give it there, at the top of the file or "
                "by --at"
            )


def _on_clusters(pipeline: Pipeline) -> Iterator[tuple[str, str | None]]:
    for source in pipeline.sources:
        if isinstance(source, StreamSource):
            yield f"source {source.name}", source.endpoint
    for output in outputs(pipeline):
        yield f"sink {output.target}", output.sink.endpoint


def _owned(output: Output, endpoint: str | None) -> Iterator[tuple[str | None, str]]:
    """The streams (with their cluster) and folders that an output writes."""
    cluster = output.sink.endpoint or endpoint
    if isinstance(output.sink, StreamSink):
        yield cluster, output.sink.stream
    else:
        yield None, _folder(output.sink.path)
        yield cluster, output.sink.fence


def is_url(path: str) -> bool:
    """Whether it names an object store or the like: ``s3a://…``, ``dbfs:/…``."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path) is not None


def _folder(path: str) -> str:
    """One name for a folder, however it is written."""
    local = re.sub(r"^file:(//)?(?=/)", "", path)
    return local.rstrip("/") if is_url(local) else os.path.normpath(Path(local).absolute())


def _check_owned(file: PipelineFile) -> None:
    owners: dict[tuple[str | None, str], Output] = {}
    for pipeline in file.pipelines:
        for output in outputs(pipeline):
            for place in _owned(output, file.endpoint):
                first = owners.setdefault(place, output)
                if first is not output:
                    who = f"{first.pipeline.name} and {pipeline.name}"
                    both = "twice by pipeline " + pipeline.name if first.pipeline is pipeline else f"by pipelines {who}"
                    raise InvalidError(f"{place[1]} is written {both}; an output has one writer, give each its own")


def _check_no_loops(file: PipelineFile) -> None:
    """Rows that come back to where they were read would go round for ever."""
    reads: dict[str, set[str]] = {}
    for pipeline in file.pipelines:
        for output in outputs(pipeline):
            if not isinstance(output.sink, StreamSink):
                continue
            made_of = ancestors(pipeline, output.sink.input)
            target = f"{output.sink.endpoint or file.endpoint} {output.sink.stream}"
            reads.setdefault(target, set()).update(
                f"{source.endpoint or file.endpoint} {source.stream}"
                for source in pipeline.sources
                if isinstance(source, StreamSource) and source.name in made_of
            )
    try:
        TopologicalSorter(reads).prepare()
    except CycleError as error:
        shown = circle(error, last_word=True)
        raise InvalidError(f"streams are read to write each other in a circle, {shown}; rows would go round") from None


__all__ = ["check_file", "is_url"]
