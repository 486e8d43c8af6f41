"""What reads what, checked before Spark starts: inputs that are not there, cycles, and outputs that two would write."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from laminar.errors import InvalidError
from laminar.spark.pipeline.conform import nearest
from laminar.spark.pipeline.model import (
    Check,
    KafkaSource,
    Pipeline,
    PipelineFile,
    Sink,
    StreamSink,
    StreamSource,
    Transform,
)


@dataclass(frozen=True)
class Output:
    """What one streaming query writes: the rows of a relation that passed its checks, or those put aside."""

    pipeline: Pipeline
    sink: Sink
    #: The checks whose rows were put aside; none if these are the rows that passed.
    rejected_by: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The stream or folder."""
        return self.sink.stream if isinstance(self.sink, StreamSink) else self.sink.path

    @property
    def place(self) -> str:
        """The target, with its cluster if the sink names one: two clusters may have streams of the same name."""
        if isinstance(self.sink, StreamSink) and self.sink.endpoint is not None:
            return f"{self.target} at {self.sink.endpoint}"
        return self.target

    @property
    def name(self) -> str:
        """Names the folder of its checkpoint: the same as long as it writes to the same place."""
        plain = re.sub(r"[^A-Za-z0-9]+", "-", self.target).strip("-")[-60:]
        return f"{plain}-{hashlib.blake2s(self.place.encode(), digest_size=4).hexdigest()}"

    @property
    def writer(self) -> str:
        """Who claims it."""
        return self.sink.writer or self.pipeline.name


def outputs(pipeline: Pipeline) -> list[Output]:
    """What a pipeline writes. Checks that put rows of one relation aside in one stream share an output."""
    found = [Output(pipeline, sink) for sink in pipeline.sinks]
    aside: dict[tuple[str, str], list[Check]] = {}
    for check in pipeline.checks:
        if check.to is not None:
            aside.setdefault((check.on, check.to), []).append(check)
    for (relation, stream), checks in aside.items():
        writer = next((check.writer for check in checks if check.writer), None)
        create = next((check.create for check in checks if check.create), None)
        sink = StreamSink(input=relation, stream=stream, writer=writer, create=create)
        found.append(Output(pipeline, sink, tuple(check.name for check in checks)))
    return found


def ordered(pipeline: Pipeline) -> list[Transform]:
    """The transforms, each after those that it reads."""
    by_name = {transform.name: transform for transform in pipeline.transforms}
    sorter = TopologicalSorter({transform.name: transform.inputs for transform in pipeline.transforms})
    try:
        return [by_name[name] for name in sorter.static_order() if name in by_name]
    except CycleError as error:
        raise InvalidError(
            f"pipeline {pipeline.name}: transforms read each other in a circle, {_circle(error)}; take one out"
        ) from None


def ancestors(pipeline: Pipeline, relation: str) -> set[str]:
    """A relation and all that it is made of."""
    inputs = {transform.name: transform.inputs for transform in pipeline.transforms}
    found, left = set(), [relation]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left.extend(inputs.get(name, ()))
    return found


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


def _check_starts(pipeline: Pipeline) -> None:
    """Each output is a query of its own: two that begin at the latest row begin at different rows."""
    for source in pipeline.sources:
        if not isinstance(source, StreamSource | KafkaSource) or source.start != "latest":
            continue
        reading = [
            output.target for output in outputs(pipeline) if source.name in ancestors(pipeline, output.sink.input)
        ]
        if len(reading) > 1:
            raise InvalidError(
                f"pipeline {pipeline.name}, source {source.name}: start is latest, and {', '.join(reading)} would "
                "begin at different rows; give offsets, a time or earliest"
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
    return local.rstrip("/") if is_url(local) else os.path.abspath(local)


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
        shown = _circle(error, last_word=True)
        raise InvalidError(f"streams are read to write each other in a circle, {shown}; rows would go round") from None


def start_order(file: PipelineFile) -> list[Output]:
    """All outputs, each after those that write a stream it reads: it may be made only when they start."""
    found = [output for pipeline in file.pipelines for output in outputs(pipeline)]
    makers = {
        (output.sink.endpoint or file.endpoint, output.sink.stream): number
        for number, output in enumerate(found)
        if isinstance(output.sink, StreamSink)
    }
    needs: dict[int, set[int]] = {}
    for number, output in enumerate(found):
        made_of = ancestors(output.pipeline, output.sink.input)
        streams = [
            (source.endpoint or file.endpoint, source.stream)
            for source in output.pipeline.sources
            if isinstance(source, StreamSource) and source.name in made_of
        ]
        needs[number] = {makers[stream] for stream in streams if stream in makers}
    return [found[number] for number in TopologicalSorter(needs).static_order()]


def _circle(error: CycleError, *, last_word: bool = False) -> str:
    names = [name.split(" ")[-1] if last_word else name for name in error.args[1]]
    return " -> ".join(names)


__all__ = ["Output", "ancestors", "check_file", "is_url", "ordered", "outputs", "start_order"]
