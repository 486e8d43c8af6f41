"""Files, a Kafka topic, or whatever Spark reads, into a stream: once, or as it comes."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laminar.errors import InvalidError
from laminar.spark import clients
from laminar.spark.jobs.places import fitted, place_options, target
from laminar.spark.jobs.queries import Running, asked_to_stop, release, watch
from laminar.spark.jobs.work import Progress, session, told, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import laminar
    from laminar.spark.pipeline.model import Create

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".avro": "avro",
    ".txt": "text",
}
#: Spark's defaults turn what they cannot read into nulls.
_DEFAULTS = {
    "csv": {"header": "true", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
}
_KAFKA_COLUMNS = ("key", "value")


@dataclass(frozen=True)
class Ingested:
    """What an ingest did. ``duplicate``: the transaction had landed before, and nothing was written."""

    stream: str
    rows: int
    batches: int
    duplicate: bool
    seconds: float


def ingest(  # noqa: PLR0913 - each is an option of the command
    source: str,
    stream: str,
    *,
    endpoint: str,
    secret: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name for it
    options: Mapping[str, str] | None = None,
    schema: str | None = None,
    create: Create | None = None,
    writer: str | None = None,
    txn_id: str | None = None,
    follow: bool = False,
    checkpoint: str | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Ingested:
    """Write what Spark reads from ``source`` into a stream: all rows or none, or with ``follow`` batch by batch.

    ``format`` is guessed from the name; of Kafka the source is the topic. Columns are cast to the types of the stream's
    columns of the same name. The same ``txn_id`` lands once, however often it is sent. Following goes on from
    ``checkpoint``, each row exactly once.
    """
    began = time.monotonic()
    kind = check_ingest(source, format, follow=follow, checkpoint=checkpoint, txn_id=txn_id)
    db = clients.driver(endpoint, secret=secret, create=create is not None)
    if create is None:
        db.stream(stream)
    spark = session(spark, f"laminar ingest {stream}")
    reader = _Reader(spark, source, kind, {**_DEFAULTS.get(kind, {}), **(options or {})}, schema)
    with told():
        sample = reader.batch(infer=create is not None)
        there = target(db, stream, sample, create)
        write = _Write(there, place_options(endpoint, secret), writer, progress)
        if follow:
            rows, batches = write.follow(fitted(reader.streaming(sample), there), str(checkpoint))
            return Ingested(stream, rows, batches, duplicate=False, seconds=time.monotonic() - began)
        landed = write.once(fitted(sample, there), txn_id)
    seconds = time.monotonic() - began
    return Ingested(stream, landed or 0, 0 if landed is None else 1, duplicate=landed is None, seconds=seconds)


def guess_format(source: str, given: str | None) -> str:
    """The format that was given, or that the name of the source says, or those of the files in it."""
    if given is not None:
        return given
    path = Path(source.rstrip("*"))
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None and path.is_dir():
        kinds = {_SUFFIXES.get(one.suffix.lower()) for one in path.rglob("*.*") if one.name[0] not in "._"}
        found = kinds.pop() if len(kinds) == 1 else None
    if found is None:
        known = ", ".join(sorted(set(_SUFFIXES.values())))
        raise InvalidError(
            f"{source}: its name does not say what it is; give the format: {known}, kafka, or any of Spark's"
        )
    return found


def check_ingest(
    source: str,
    format: str | None,  # noqa: A002 - Spark's name for it
    *,
    follow: bool,
    checkpoint: str | None,
    txn_id: str | None,
) -> str:
    """Refuse what cannot work, before Spark starts; the format."""
    if follow and checkpoint is None:
        raise InvalidError("following needs a checkpoint, from which it goes on exactly once; give a folder for it")
    if not follow and checkpoint is not None:
        raise InvalidError("a checkpoint is for following; give --txn-id to write a batch once")
    if follow and txn_id is not None:
        raise InvalidError("a transaction id is for a batch; following writes each row once by its checkpoint")
    kind = guess_format(source, format)
    # Patterns and addresses are Spark's to read.
    is_path = kind in _SUFFIXES.values() and not re.search(r"[*?\[{,]|:/", source)
    if is_path and not Path(source).exists():
        raise InvalidError(f"{source}: there is no such file or folder")
    return kind


@dataclass(frozen=True)
class _Reader:
    """What Spark is told to read."""

    spark: SparkSession
    source: str
    kind: str
    options: Mapping[str, str]
    schema: str | None

    def batch(self, *, infer: bool) -> DataFrame:
        """What is there now. CSV that goes to a stream that is there is cast to its types, else they are guessed."""
        reader = self.spark.read.format(self.kind).options(**self._asked())
        if self.schema is not None:
            reader = reader.schema(self.schema)
        elif self.kind == "csv" and infer:
            reader = reader.option("inferSchema", "true")
        return self._columns(reader.load() if self.kind == "kafka" else reader.load(self.source))

    def streaming(self, sample: DataFrame) -> DataFrame:
        """What comes. Files need to be told their columns: those of what is there now."""
        reader = self.spark.readStream.format(self.kind).options(**self._asked())
        if self.kind in _SUFFIXES.values():
            reader = reader.schema(self.schema or sample.schema)
        return self._columns(reader.load() if self.kind == "kafka" else reader.load(self.source))

    def _asked(self) -> dict[str, str]:
        asked = {"subscribe": self.source, "startingOffsets": "earliest"} if self.kind == "kafka" else {}
        return {**asked, **self.options}

    def _columns(self, frame: DataFrame) -> DataFrame:
        return frame.select(*_KAFKA_COLUMNS) if self.kind == "kafka" else frame


@dataclass(frozen=True)
class _Write:
    """Where rows go, and as whose."""

    stream: laminar.Stream
    options: Mapping[str, str]
    writer: str | None
    progress: Progress | None

    def once(self, frame: DataFrame, txn_id: str | None) -> int | None:
        """How many rows landed; ``None`` if the transaction had landed before."""
        from pyspark.sql import Observation  # noqa: PLC0415 - PySpark is imported when a job runs
        from pyspark.sql.functions import count, lit  # noqa: PLC0415

        if txn_id is not None and self.stream._native.last_batch(txn_id) is not None:
            return None
        counted = Observation()
        writing = frame.observe(counted, count(lit(1)).alias("rows")).write.format("laminar").mode("append")
        if self.writer is not None:
            writing = writing.option("writer", self.writer)
        if txn_id is not None:
            writing = writing.option("txnAppId", txn_id).option("txnVersion", "0")
        with watched(frame.sparkSession, self.progress):
            writing.options(**self.options).save(self.stream.path)
        return int(counted.get["rows"])

    def follow(self, frame: DataFrame, checkpoint: str) -> tuple[int, int]:
        """Until somebody asks it to stop: how many rows, in how many batches."""
        writer = self.writer or f"ingest-{self.stream.path}"
        with asked_to_stop() as asked:
            query = (
                frame.writeStream.format("laminar")
                .options(**self.options)
                .option("writer", writer)
                .option("checkpointLocation", checkpoint)
                .start(self.stream.path)
            )
            running = Running(self.stream.path, query)
            watch([running], asked, lambda: self._draw(running))
            release(self.stream, query)
        return running.rows, running.batches

    def _draw(self, running: Running) -> None:
        if self.progress is not None:
            self.progress(running.rows, None)


__all__ = ["Ingested", "check_ingest", "guess_format", "ingest"]
