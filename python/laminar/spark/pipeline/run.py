"""Runs the pipelines of a file together: one streaming query for each output.

Each output is a query with a checkpoint of its own, and so exactly once by itself, whatever becomes of the others:
there is no moment at which one of two outputs has a batch and the other must be made to have it. The price is that a
source is read once for each output; and that transforms must be deterministic, for a row to be in the same output in
both readings.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laminar.errors import InvalidError
from laminar.spark import clients
from laminar.spark.jobs.places import end_of, place_options, target
from laminar.spark.jobs.queries import Running, asked_to_stop, release, stop, watch
from laminar.spark.jobs.work import session, told
from laminar.spark.pipeline.build import Relations
from laminar.spark.pipeline.folders import writing
from laminar.spark.pipeline.graph import Output, start_order
from laminar.spark.pipeline.model import PipelineFile, PythonTransform, StreamSink, StreamSource
from laminar.spark.pipeline.picture import checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    import laminar
    from laminar.spark.fence import Fenced


@dataclass(frozen=True)
class RanOutput:
    """What one query did. ``rows_written`` is known of streams only."""

    pipeline: str
    target: str
    rows_read: int
    rows_written: int | None
    batches: int


@dataclass(frozen=True)
class Ran:
    """What a run did. ``stopped``: somebody asked it to."""

    outputs: tuple[RanOutput, ...]
    stopped: bool
    seconds: float


@dataclass
class _Started:
    """An output that runs."""

    output: Output
    running: Running
    stream: laminar.Stream | None
    fenced: Fenced | None
    end_before: int

    def release(self) -> None:
        """Give the target back, after it has ended as it should."""
        if self.fenced is not None:
            self.fenced.release()
        elif self.stream is not None:
            release(self.stream, self.running.query)

    def ran(self) -> RanOutput:
        written = None if self.stream is None else end_of(self.stream) - self.end_before
        return RanOutput(
            self.output.pipeline.name, self.output.target, self.running.rows, written, self.running.batches
        )


def run(
    file: PipelineFile,
    *,
    secret: str | None = None,
    spark: SparkSession | None = None,
    asked: threading.Event | None = None,
    drawn: Callable[[Sequence[Running]], None] | None = None,
) -> Ran:
    """Run all pipelines until those with ``once`` are done, one fails, or somebody asks: Ctrl-C, SIGTERM or ``asked``.

    A run after this one goes on where it ended, also if this one is killed. ``drawn`` is called now and then.
    """
    began = time.monotonic()
    check_streams(file, secret=secret)
    spark = session(spark, "laminar run")
    with told(), asked_to_stop() as signalled:
        over = asked or signalled
        _send_modules(spark, file)
        started = _start_all(spark, file, secret)
        running = [one.running for one in started]
        watch(running, over, None if drawn is None else lambda: drawn(running))
        for one in started:
            one.release()
        stopped = over.is_set()
    return Ran(tuple(one.ran() for one in started), stopped, time.monotonic() - began)


def check_streams(file: PipelineFile, *, secret: str | None = None) -> None:
    """Refuse streams that are not there and that nothing here makes, before Spark starts."""
    needed: list[tuple[str, str, str]] = []
    made: set[tuple[str, str]] = set()
    for output in start_order(file):
        sink, endpoint = output.sink, output.sink.endpoint or file.endpoint or ""
        if isinstance(sink, StreamSink) and sink.create is None:
            needed.append((endpoint, sink.stream, f"sink {sink.stream}"))
        made.add((endpoint, sink.stream if isinstance(sink, StreamSink) else sink.fence))
    for pipeline in file.pipelines:
        for source in pipeline.sources:
            endpoint = (source.endpoint if isinstance(source, StreamSource) else None) or file.endpoint or ""
            if isinstance(source, StreamSource) and (endpoint, source.stream) not in made:
                needed.append((endpoint, source.stream, f"pipeline {pipeline.name}, source {source.name}"))
    for endpoint, stream, what in needed:
        try:
            clients.stream_of(clients.driver(endpoint, secret=secret), stream)
        except InvalidError as error:  # noqa: PERF203 - each is asked for over the network
            raise InvalidError(f"{what}: {error}", stream=stream) from None


def _start_all(spark: SparkSession, file: PipelineFile, secret: str | None) -> list[_Started]:
    relations = {pipeline.name: Relations(spark, pipeline, file.endpoint, secret) for pipeline in file.pipelines}
    started: list[_Started] = []
    try:
        for output in start_order(file):
            frame = relations[output.pipeline.name].frame(output)
            started.append(_start(file, output, frame, secret))
    except BaseException:
        stop([one.running for one in started])
        raise
    return started


def _start(file: PipelineFile, output: Output, frame: DataFrame, secret: str | None) -> _Started:
    sink = output.sink
    endpoint = sink.endpoint or file.endpoint or ""
    writer: DataStreamWriter = _triggered(frame, output).option("checkpointLocation", checkpoint(file, output))
    name = f"pipeline {output.pipeline.name}, {output.place}"
    if isinstance(sink, StreamSink):
        db = clients.driver(endpoint, secret=secret, create=sink.create is not None)
        stream = target(db, sink.stream, frame, sink.create)
        before = end_of(stream)
        query: StreamingQuery = (
            writer.format("laminar")
            .options(**{**place_options(endpoint, secret), **sink.options})
            .option("writer", output.writer)
            .option("adoptQuery", str(sink.adopt_query).lower())
            .start(sink.stream)
        )
        return _Started(output, Running(name, query), stream, None, before)
    from laminar.spark import fenced  # noqa: PLC0415 - not a cycle: it needs no PySpark

    db = clients.driver(endpoint, secret=secret, create=True)
    if all(stream.path != sink.fence for stream in db.streams(sink.fence)):
        db.create_stream(sink.fence, exist_ok=True)
    function = fenced(
        sink.fence, output.writer, writing(sink), endpoint=endpoint, adopt_query=sink.adopt_query, secret=secret
    )
    return _Started(output, Running(name, writer.foreachBatch(function).start()), None, function, 0)


def _triggered(frame: DataFrame, output: Output) -> DataStreamWriter:
    pipeline = output.pipeline
    writer = frame.writeStream.queryName(f"{pipeline.name}:{output.place}")
    if pipeline.once:
        return writer.trigger(availableNow=True)
    return writer if pipeline.trigger is None else writer.trigger(processingTime=pipeline.trigger)


def _send_modules(spark: SparkSession, file: PipelineFile) -> None:
    """Functions of the user that run in executors are imported there: send the modules they stand in."""
    for pipeline in file.pipelines:
        for transform in pipeline.transforms:
            if isinstance(transform, PythonTransform) and isinstance(transform.python, str):
                module: Any = importlib.import_module(transform.python.partition(":")[0])
                source = getattr(module, "__file__", None)
                if source is not None and "." not in module.__name__ and "site-packages" not in Path(source).parts:
                    spark.sparkContext.addPyFile(source)


__all__ = ["Ran", "RanOutput", "check_streams", "run"]
