"""A driver of its own: ``python -m spark.driver ARGUMENTS``, with the arguments of a query as JSON.

It says ``jvm PID`` when Spark is there, comes to the place ``start``, says ``run ID`` when the query has started
(``run none`` if it has not), and ``done`` or ``failed TEXT`` when it has ended.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from laminar.spark.session import local_session
from spark.holding import Control, HoldingSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "id long, text string"


def start(
    spark: SparkSession,
    *,
    source: str,
    endpoint: str,
    stream: str,
    checkpoint: str,
    control: str,
    tasks: int = 2,
    writer: str = "ingest",
    **options: str,
) -> StreamingQuery:
    """A query that writes each file of a folder as a batch, split over tasks."""
    spark.dataSource.register(HoldingSource)
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(source)
    return (
        frame.repartition(tasks, "id")
        .writeStream.format("holding")
        .option("endpoint", endpoint)
        .option("checkpointLocation", checkpoint)
        .option("control", control)
        .option("writer", writer)
        .options(**options)
        .trigger(availableNow=True)
        .start(stream)
    )


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - how it talks to the test


def main() -> None:
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    spark = local_session("driver", arguments.pop("master"), **arguments.pop("conf", {}))
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    say("jvm", gateway.proc.pid)
    Control(arguments["control"]).come("start")
    query = None
    try:
        query = start(spark, **arguments)
        say("run", query.runId)
        query.awaitTermination()
        say("done")
    except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at its text
        if query is None:
            # Spark itself refuses one of two that make the same checkpoint at the same time.
            say("run", "none")
        say("failed", json.dumps(str(error)))


if __name__ == "__main__":
    main()
