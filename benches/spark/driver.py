"""A Spark driver of its own process: takes commands as lines of JSON, and answers each with one.

It imports PySpark alone, so that it also runs in the environment of a peer that needs another PySpark.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pyspark
from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: 100 bytes of two hashes: cheap, and they do not repeat.
PAYLOAD = (
    "substring(unhex(concat(sha2(cast(value as string), 512), sha2(concat('+', cast(value as string)), 512))), 1, 100)"
)
POLL_SECONDS = 0.1
#: How long a task of the takeover is held at most: far more than any budget, and still bounded.
HELD_SECONDS = 60.0
HELD_POLL_SECONDS = 0.01


class Driver:
    """The session, its cached input and its running query."""

    def __init__(self) -> None:
        self.spark: SparkSession
        self.input: DataFrame
        self.query: StreamingQuery

    def start(self, *, master: str, conf: dict[str, str], ceiling: bool) -> dict[str, Any]:
        """Start Spark; with ``ceiling`` the data source of that name is registered."""
        builder = SparkSession.builder.master(master).appName("laminar-bench")
        for name, value in conf.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        if ceiling:
            from spark.ceilings import Ceiling  # noqa: PLC0415 - needs pyarrow, which not every environment has

            self.spark.dataSource.register(Ceiling)
        return {"pyspark": pyspark.__version__}

    def cache(self, path: str) -> dict[str, Any]:
        """Read the input into memory: what is written comes from there."""
        # A file is a task: sizes are such that Spark neither splits nor packs them.
        self.spark.conf.set("spark.sql.files.maxPartitionBytes", str(max(_sizes(path)) + (1 << 20)))
        self.spark.conf.set("spark.sql.files.openCostInBytes", "0")
        self.spark.conf.set("spark.sql.files.minPartitionNum", "1")
        self.input = self.spark.read.parquet(path).cache()
        return {"rows": self.input.count(), "tasks": self.input.rdd.getNumPartitions()}

    def write(
        self, form: str, options: dict[str, str], path: str | None, columns: list[str], below: int | None
    ) -> dict[str, Any]:
        """Write the input, or its ids below a limit, timed."""
        table = self.input if below is None else self.input.where(f"id < {below}")
        writer = table.selectExpr(*columns).write.format(form).options(**options).mode("append")
        begin = time.perf_counter()
        writer.save(path)
        return {"seconds": time.perf_counter() - begin}

    def read(
        self, form: str, options: dict[str, str], path: str | None, columns: list[str], check: str | None
    ) -> dict[str, Any]:
        """Read everything and throw it away, timed; with ``check`` count the rows for which it holds instead."""
        table = self.spark.read.format(form).options(**options).load(path).selectExpr(*columns)
        begin = time.perf_counter()
        if check is not None:
            return {"rows": table.where(check).count()}
        table.write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - begin}

    def begin(  # noqa: PLR0913 - each is a property of the query
        self,
        *,
        form: str,
        options: dict[str, str],
        path: str | None,
        columns: list[str],
        rows: int,
        held: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """Start a query of micro-batches of ``rows`` rows, one after the other without a pause."""
        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
        table = source.load()
        if held is not None:
            table = table.mapInArrow(_held_at(held["value"], held["mark"]), table.schema)
        table = table.selectExpr("value as id", f"{PAYLOAD} as payload").selectExpr(*columns)
        begin = time.time()
        self.query = table.writeStream.format(form).options(**options).start(path)
        return {"begin": begin}

    def triggers(self, warm: int, count: int, seconds: float) -> dict[str, Any]:
        """Wait for ``count`` micro-batches after ``warm`` of them, stop the query, and tell what each took.

        After ``seconds`` those that came have to do, if it is any.
        """
        deadline = time.monotonic() + seconds
        while True:
            progress = self.query.lastProgress
            done = -1 if progress is None else progress["batchId"]
            if done >= warm + count or (time.monotonic() > deadline and done >= warm):
                break
            if self.query.awaitTermination(POLL_SECONDS):
                raise RuntimeError(f"the query ended: {self.query.exception()}")
        self.query.stop()
        told = [one for one in self.query.recentProgress if one["batchId"] >= warm][:count]
        steps = sorted({step for one in told for step in one["durationMs"]})
        return {
            "ms": [one["durationMs"]["triggerExecution"] for one in told],
            "rows": [one["numInputRows"] for one in told],
            "steps": {
                step: statistics.median([one["durationMs"].get(step, 0) for one in told])
                for step in steps
                if step != "triggerExecution"
            },
        }

    def refused(self, seconds: float) -> dict[str, Any]:
        """Wait until the query fails, and tell when it did and why."""
        try:
            ended = self.query.awaitTermination(seconds)
        except Exception as failed:  # noqa: BLE001 - whatever it is, it is the answer
            return {"time": time.time(), "why": _reason(str(failed))}
        self.query.stop()
        raise RuntimeError(f"the query was not refused within {seconds:.0f} s" if not ended else "the query just ended")


def _reason(text: str) -> str:
    """What Python said inside a long report of Spark's: the last line that looks like an error."""
    errors = re.findall(r"^(?:[\w.]+\.)?\w*(?:Error|Exception): .+$", text, re.MULTILINE)
    return str(errors[-1] if errors else text.strip())[:1500]


def _sizes(path: str) -> list[int]:
    return [file.stat().st_size for file in Path(path).glob("*.parquet")]


def _held_at(value: int, mark: str) -> Any:
    """A step that passes rows on until ``value`` comes, makes the file ``mark``, and waits until it is taken away."""

    def step(batches: Any) -> Any:
        for batch in batches:
            if batch.num_rows and batch.column("value")[0].as_py() >= value:
                Path(mark).touch()
                until = time.monotonic() + HELD_SECONDS
                while Path(mark).exists() and time.monotonic() < until:
                    time.sleep(HELD_POLL_SECONDS)
            yield batch

    return step


def main(answers: TextIO) -> None:
    """Take commands until there are no more."""
    driver = Driver()
    for line in sys.stdin:
        given = json.loads(line)
        verb = given.pop("verb")
        try:
            answer = getattr(driver, verb)(**given)
        except Exception as failed:  # noqa: BLE001 - told to the benches, which go on with the rest
            answer = {"error": f"{type(failed).__name__}: {_reason(str(failed))}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if hasattr(driver, "spark"):
        driver.spark.stop()


if __name__ == "__main__":
    # What libraries print must not come between the answers.
    private = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(private)
