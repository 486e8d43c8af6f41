"""What a pipeline is: sources, transforms, checks and sinks. The tables of a TOML file have the same names and keys.

A relation is a table by name: a source or a transform. Transforms and sinks name the relations that they read. Checks
stand on a relation: whatever reads it sees only the rows that passed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from laminar.errors import InvalidError
from laminar.spark.pipeline.conform import conform
from laminar.spark.pipeline.reserved import check_options

_RELATION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PIPELINE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_NAME_LENGTH_MAX = 100
_ACTIONS = ("drop", "quarantine", "fail")
#: What a check says of the stream that it puts rows aside in.
_ASIDE = ("to", "endpoint", "writer", "create", "adopt_query", "options")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

Options: TypeAlias = Mapping[str, str]


def _check_relation(name: str, where: str) -> None:
    if not _RELATION.fullmatch(name) or len(name) > _NAME_LENGTH_MAX:
        raise InvalidError(
            f"{where}: the name {name!r} cannot stand in SQL; it must be letters, digits and _, at most "
            f"{_NAME_LENGTH_MAX} of them, and not begin with a digit"
        )


def _check_path(path: str, where: str) -> None:
    if not path.startswith("/"):
        raise InvalidError(f"{where} is {path!r}; the name of a stream begins with /, such as /shop/orders")


@dataclass(frozen=True, kw_only=True)
class Create:
    """How a stream is made that is not there. Its columns are those of the rows that go to it."""

    partitions: int = 1
    key: tuple[str, ...] = ()
    machine: str = "log"

    def __post_init__(self) -> None:
        conform(self, "create")
        if self.partitions < 1:
            raise InvalidError(f"create: partitions is {self.partitions}; it must be at least 1")
        if self.machine not in ("log", "kv"):
            raise InvalidError(f"create: machine is {self.machine!r}; it must be log or kv")
        if self.machine == "kv" and not self.key:
            raise InvalidError("create: a kv stream keeps the newest row of each key; give key")


def _conform_source(source: Source) -> None:
    where = f"source {source.name}"
    conform(source, where)
    _check_relation(source.name, "source")
    check_options(source.options, type(source), where)


@dataclass(frozen=True, kw_only=True)
class StreamSource:
    """A laminar stream. ``start`` is earliest, latest, ``{"0": 5}`` as JSON, or a time."""

    kind: ClassVar[str] = "laminar"

    name: str
    stream: str
    endpoint: str | None = None
    start: str = "earliest"
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        _conform_source(self)
        _check_path(self.stream, f"source {self.name}: stream")


@dataclass(frozen=True, kw_only=True)
class FilesSource:
    """A folder that files come into. ``schema`` is Spark's, as ``id long, name string``."""

    kind: ClassVar[str] = "files"

    name: str
    path: str
    format: str
    schema: str
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        _conform_source(self)


@dataclass(frozen=True, kw_only=True)
class KafkaSource:
    """A Kafka topic. Spark's Kafka connector must be there: ``laminar run --package …``."""

    kind: ClassVar[str] = "kafka"

    name: str
    servers: str
    topic: str
    start: str = "earliest"
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        _conform_source(self)


@dataclass(frozen=True, kw_only=True)
class RateSource:
    """Rows (timestamp, value) made by Spark, to try things."""

    kind: ClassVar[str] = "rate"

    name: str
    rows_per_second: int = 10
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        _conform_source(self)
        if self.rows_per_second < 1:
            raise InvalidError(f"source {self.name}: rows_per_second is {self.rows_per_second}; it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class SqlTransform:
    """A relation made by SQL over other relations."""

    name: str
    inputs: tuple[str, ...]
    sql: str

    def __post_init__(self) -> None:
        _conform_transform(self)


@dataclass(frozen=True, kw_only=True)
class PythonTransform:
    """A relation made by a function of DataFrames, in the order of ``inputs``: itself, or as ``module:function``."""

    name: str
    inputs: tuple[str, ...]
    python: str | Callable[..., Any]

    def __post_init__(self) -> None:
        _conform_transform(self)
        if isinstance(self.python, str) and not _FUNCTION.fullmatch(self.python):
            raise InvalidError(
                f"transform {self.name}: python is {self.python!r}; it must be module:function, such as rules:clean"
            )


def _conform_transform(transform: Transform) -> None:
    where = f"transform {transform.name}"
    conform(transform, where)
    _check_relation(transform.name, "transform")
    if not transform.inputs:
        raise InvalidError(f"{where}: inputs is empty; name the relations that it reads")


@dataclass(frozen=True, kw_only=True)
class Check:
    """Rows of a relation for which the SQL expression is not true are dropped, put aside, or end the pipeline.

    An expression that is null is not true. A row goes by the first check that it fails. Rows put aside go to the stream
    ``to``, with the name of the check in the column ``_check``; the other fields are those of a ``StreamSink``.
    """

    name: str
    on: str
    expect: str
    otherwise: str = "drop"
    to: str | None = None
    endpoint: str | None = None
    writer: str | None = None
    create: Create | None = None
    adopt_query: bool = False
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"check {self.name}"
        conform(self, where)
        _check_relation(self.name, "check")
        if self.otherwise not in _ACTIONS:
            raise InvalidError(f"{where}: otherwise is {self.otherwise!r}; it must be {', '.join(_ACTIONS)}")
        if self.otherwise == "quarantine" and self.to is None:
            raise InvalidError(f"{where}: to is missing; name the stream that rows are put aside in")
        aside = [name for name in _ASIDE if getattr(self, name)]
        if self.otherwise != "quarantine" and aside:
            raise InvalidError(
                f"{where}: {' and '.join(aside)} is for rows put aside, and otherwise is {self.otherwise}; leave it "
                "out, or set otherwise to quarantine"
            )
        if self.to is not None:
            _check_path(self.to, f"{where}: to")
        check_options(self.options, StreamSink, where)


@dataclass(frozen=True, kw_only=True)
class StreamSink:
    """A laminar stream. The pipeline claims it as ``writer``; if none is given, by the name of the pipeline."""

    kind: ClassVar[str] = "laminar"

    input: str
    stream: str
    endpoint: str | None = None
    writer: str | None = None
    create: Create | None = None
    adopt_query: bool = False
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        conform(self, "sink")
        _check_path(self.stream, "sink: stream")
        check_options(self.options, type(self), f"sink {self.stream}")


@dataclass(frozen=True, kw_only=True)
class FencedSink:
    """What is no stream, at a path. A laminar stream, ``fence``, keeps who may write and which batches are done."""

    input: str
    path: str
    fence: str
    endpoint: str | None = None
    writer: str | None = None
    adopt_query: bool = False
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        conform(self, "sink")
        _check_path(self.fence, f"sink {self.path}: fence")
        check_options(self.options, type(self), f"sink {self.path}")


@dataclass(frozen=True, kw_only=True)
class ParquetSink(FencedSink):
    """A folder of Parquet on a local or mounted disk, one folder for each batch. Fenced by a laminar stream."""

    kind: ClassVar[str] = "parquet"

    def __post_init__(self) -> None:
        super().__post_init__()
        if "://" in self.path:
            raise InvalidError(
                f"sink {self.path}: a batch is put in place by a rename, which object stores do not have; "
                'give a folder, or use kind = "delta"'
            )


@dataclass(frozen=True, kw_only=True)
class DeltaSink(FencedSink):
    """A Delta table. Fenced by a laminar stream, and each batch once by Delta's txnAppId and txnVersion."""

    kind: ClassVar[str] = "delta"


Source: TypeAlias = StreamSource | FilesSource | KafkaSource | RateSource
Transform: TypeAlias = SqlTransform | PythonTransform
Sink: TypeAlias = StreamSink | ParquetSink | DeltaSink

SOURCES: dict[str, type] = {kind.kind: kind for kind in (StreamSource, FilesSource, KafkaSource, RateSource)}
SINKS: dict[str, type] = {kind.kind: kind for kind in (StreamSink, ParquetSink, DeltaSink)}


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Sources to sinks. With ``once`` it ends when what was there at the start is done, else it follows.

    ``trigger`` is how often a batch begins, as ``10 seconds``; without it, as soon as the one before is done.
    """

    name: str
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    transforms: tuple[Transform, ...] = ()
    checks: tuple[Check, ...] = ()
    once: bool = False
    trigger: str | None = None

    def __post_init__(self) -> None:
        where = f"pipeline {self.name}"
        conform(self, where)
        if not _PIPELINE.fullmatch(self.name) or len(self.name) > _NAME_LENGTH_MAX:
            raise InvalidError(
                f"pipeline: the name {self.name!r} cannot name a folder; it must be letters, digits, _, . and -, at "
                f"most {_NAME_LENGTH_MAX} of them"
            )
        for what, things in (("source", self.sources), ("sink", self.sinks)):
            if not things:
                raise InvalidError(f"{where}: it has no {what}; give at least one")
        if self.once and self.trigger is not None:
            raise InvalidError(f"{where}: once and trigger are both given; give one of them")


@dataclass(frozen=True, kw_only=True)
class PipelineFile:
    """The pipelines that run together, the cluster they work on, and the folder of their checkpoints."""

    pipelines: tuple[Pipeline, ...]
    endpoint: str | None = None
    checkpoints: str = "./checkpoints"

    def __post_init__(self) -> None:
        conform(self, "file")


__all__ = [
    "SINKS",
    "SOURCES",
    "Check",
    "Create",
    "DeltaSink",
    "FilesSource",
    "KafkaSource",
    "ParquetSink",
    "Pipeline",
    "PipelineFile",
    "PythonTransform",
    "RateSource",
    "Sink",
    "Source",
    "SqlTransform",
    "StreamSink",
    "StreamSource",
    "Transform",
]
