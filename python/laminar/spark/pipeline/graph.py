"""What reads what: the outputs of pipelines, what they are made of, and in which order they start."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from laminar.errors import InvalidError
from laminar.spark.pipeline.model import (
    Check,
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
    aside: dict[tuple[str, str, str | None], list[Check]] = {}
    for check in pipeline.checks:
        if check.to is not None:
            aside.setdefault((check.on, check.to, check.endpoint), []).append(check)
    for (relation, stream, endpoint), checks in aside.items():
        # What one of them says counts for all.
        said = {name: _said(checks, name) for name in ("writer", "create", "adopt_query", "options")}
        sink = StreamSink(
            input=relation, stream=stream, endpoint=endpoint, **{name: one for name, one in said.items() if one}
        )
        found.append(Output(pipeline, sink, tuple(check.name for check in checks)))
    return found


def _said(checks: list[Check], name: str) -> Any:
    """What the checks of one output say; what they say differently is refused."""
    first: Check | None = None
    for check in checks:
        if not getattr(check, name):
            continue
        first = first or check
        if getattr(check, name) != getattr(first, name):
            raise InvalidError(
                f"checks {first.name} and {check.name} put rows of {check.on} aside in {check.to}, with different "
                f"{name}; give it in one of them"
            )
    return None if first is None else getattr(first, name)


def ordered(pipeline: Pipeline) -> list[Transform]:
    """The transforms, each after those that it reads."""
    by_name = {transform.name: transform for transform in pipeline.transforms}
    sorter = TopologicalSorter({transform.name: transform.inputs for transform in pipeline.transforms})
    try:
        return [by_name[name] for name in sorter.static_order() if name in by_name]
    except CycleError as error:
        raise InvalidError(
            f"pipeline {pipeline.name}: transforms read each other in a circle, {circle(error)}; take one out"
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


def circle(error: CycleError, *, last_word: bool = False) -> str:
    """What stands in a circle, as it goes round."""
    names = [name.split(" ")[-1] if last_word else name for name in error.args[1]]
    return " -> ".join(names)


__all__ = ["Output", "ancestors", "circle", "ordered", "outputs", "start_order"]
