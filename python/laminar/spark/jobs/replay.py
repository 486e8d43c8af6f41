"""One stream derived from another by SQL, exactly once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar.errors import InvalidError
from laminar.spark import clients
from laminar.spark.jobs.places import end_of, existing, place_options, start_options, target
from laminar.spark.jobs.queries import Running, asked_to_stop, release, watch
from laminar.spark.jobs.work import Progress, session, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar.spark.pipeline.model import Create


@dataclass(frozen=True)
class Replayed:
    """What a replay did: rows that it read, and rows that are new in the stream it writes."""

    stream: str
    to: str
    rows_read: int
    rows_written: int
    batches: int
    seconds: float


def replay(  # noqa: PLR0913 - each is an option of the command
    stream: str,
    to: str,
    *,
    endpoint: str,
    checkpoint: str,
    secret: str | None = None,
    start: str = "earliest",
    sql: str | None = None,
    create: Create | None = None,
    writer: str | None = None,
    adopt_query: bool = False,
    follow: bool = False,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Replayed:
    """Write what ``sql`` makes of a stream, as ``input``, into another; without it the rows as they are.

    It ends with what was there at the start, or with ``follow`` when somebody asks. A run with the same checkpoint goes
    on where the last ended, and lands each batch once; ``start`` counts for the first only. ``start`` is earliest,
    latest, offsets as JSON, or a time. ``adopt_query`` lets it go on under the writer's name with another checkpoint.
    """
    began = time.monotonic()
    if stream == to:
        raise InvalidError(f"{stream} is to be replayed into itself; name another stream to write to", stream=stream)
    reading = {**place_options(endpoint, secret), **start_options(start, "start")}
    db = clients.driver(endpoint, secret=secret)
    clients.stream_of(db, stream)
    existing(db, to, create)
    # A session of its own, so that a view named input disturbs nobody.
    own = session(spark, f"laminar replay {stream}").newSession()
    with told(), asked_to_stop() as asked:
        frame = own.readStream.format("laminar").options(**reading).load(stream)
        if sql is not None:
            frame.createOrReplaceTempView("input")
            frame = own.sql(sql)
        there = target(db, to, frame, create)
        before = end_of(there)
        name = writer or f"replay-{stream}"
        query = (
            frame.writeStream.format("laminar")
            .options(**place_options(endpoint, secret))
            .option("writer", name)
            .option("adoptQuery", str(adopt_query).lower())
            .option("checkpointLocation", checkpoint)
            .trigger(**({"processingTime": "0 seconds"} if follow else {"availableNow": True}))
            .start(to)
        )
        running = Running(to, query)
        watch([running], asked, None if progress is None else lambda: progress(running.rows, None))
        release(there, query)
    return Replayed(stream, to, running.rows, end_of(there) - before, running.batches, time.monotonic() - began)


__all__ = ["Replayed", "replay"]
