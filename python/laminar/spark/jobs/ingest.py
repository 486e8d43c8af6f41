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
from laminar.spark.jobs.files import SUFFIXES, Reader, guess_format
from laminar.spark.jobs.places import existing, fitted, place_options, target
from laminar.spark.jobs.queries import Running, asked_to_stop, release, watch
from laminar.spark.jobs.work import Progress, session, told, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import laminar
    from laminar.spark.pipeline.model import Create


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
    adopt_query: bool = False,
    txn_id: str | None = None,
    follow: bool = False,
    checkpoint: str | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Ingested:
    """Write what Spark reads from ``source`` into a stream: all rows or none, or with ``follow`` batch by batch.

    ``format`` is guessed from the name; of Kafka the source is the topic. Text is cast to the types of the stream's
    columns of the same name; a value that cannot be told in them without loss ends the job. The same ``txn_id`` lands
    once, however often it is sent. Following goes on from ``checkpoint``, each row exactly once; ``adopt_query`` lets
    it go on under the writer's name with another one.
    """
    began = time.monotonic()
    kind = check_ingest(source, format, follow=follow, checkpoint=checkpoint, txn_id=txn_id)
    db = clients.driver(endpoint, secret=secret, create=create is not None)
    is_new = existing(db, stream, create) is None
    spark = session(spark, f"laminar ingest {stream}")
    reader = Reader(spark, source, kind, options or {}, schema)
    with told():
        sample = reader.sample(infer=is_new)
        there = target(db, stream, sample, create)
        write = _Write(there, place_options(endpoint, secret), writer, progress, adopt_query)
        if follow:
            rows, batches = write.follow(fitted(reader.streaming(sample, there), there), str(checkpoint))
            return Ingested(stream, rows, batches, duplicate=False, seconds=time.monotonic() - began)
        landed = write.once(fitted(sample if is_new else reader.batch(sample, there), there), txn_id)
    seconds = time.monotonic() - began
    return Ingested(stream, landed or 0, 0 if landed is None else 1, duplicate=landed is None, seconds=seconds)


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
    is_path = kind in SUFFIXES.values() and not re.search(r"[*?\[{,]|:/", source)
    if is_path and not Path(source).exists():
        raise InvalidError(f"{source}: there is no such file or folder")
    return kind


@dataclass(frozen=True)
class _Write:
    """Where rows go, and as whose."""

    stream: laminar.Stream
    options: Mapping[str, str]
    writer: str | None
    progress: Progress | None
    adopt_query: bool = False

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
                .option("adoptQuery", str(self.adopt_query).lower())
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


__all__ = ["Ingested", "check_ingest", "ingest"]
