"""What Spark tells a task, and what a task tells whoever commits."""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from laminar.errors import InvalidError

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
RUN = "spark.jobGroup.id"

#: ``(partition, partition_id, epoch)`` of each partition that a run holds.
Epochs = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class MicroBatch:
    """Which batch of which query is worked on, by which run of the query."""

    query: str
    batch: int
    #: 32 hex digits.
    run: str


@dataclass(frozen=True)
class Driver:
    """Where the driver of a job runs: who to look for when it holds a stream."""

    host: str
    pid: int | None

    @classmethod
    def here(cls) -> Driver:
        """The driver that this process plans for. Spark forks such a process from a daemon that the driver started."""
        return cls(socket.gethostname(), _parent(os.getppid()))


@dataclass(frozen=True)
class Run:
    """What a run holds of a stream, and whether its batch was committed before it began."""

    #: The run as the cluster knows it; 0 if the write is managed, or the batch was committed before.
    node_id: int
    epochs: Epochs
    committed: bool


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What a task has staged, and for what."""

    #: ``None`` in a batch job, where the writer itself knows.
    of: MicroBatch | None
    run: Run
    #: What ``TaskWriter.finish`` returned: rows that are small, and where the others are staged.
    staged: bytes
    rows: int


def micro_batch() -> MicroBatch:
    """The micro-batch that this task is of."""
    context = TaskContext.get()
    properties = {name: None if context is None else context.getLocalProperty(name) for name in (QUERY, BATCH, RUN)}
    return micro_batch_of(properties)


def micro_batch_of(properties: dict[str, str | None]) -> MicroBatch:
    """The micro-batch that the local properties of a Spark job name."""
    query, batch, run = (properties.get(name) for name in (QUERY, BATCH, RUN))
    if not query or batch is None or not run:
        missing = ", ".join(name for name in (QUERY, BATCH, RUN) if not properties.get(name))
        raise InvalidError(
            f"this code does not run inside a micro-batch of a streaming query: Spark did not set {missing}; "
            "start it by writeStream, and do not change the job group in the query"
        )
    try:
        return MicroBatch(query, int(batch), UUID(run).hex)
    except ValueError as error:
        raise InvalidError(
            f"Spark's run id is {run!r} and its batch id {batch!r}; a UUID and a whole number were expected: "
            "do not change the job group in the query"
        ) from error


def checkpoint_query(location: str | None) -> str | None:
    """The query id in a checkpoint's metadata file; ``None`` if this process cannot read the checkpoint.

    A micro-batch without tasks has nobody else to tell it. A checkpoint in an object store is read by the JVM only.
    """
    if not location:
        return None
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc:
        return None
    try:
        text = (Path(unquote(parts.path) if parts.scheme else location) / "metadata").read_text(encoding="utf-8")
        return str(_field(json.loads(text), "id"))
    except (OSError, ValueError):
        return None


def _field(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise ValueError(name)
    return value[name]


def _parent(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:  # Linux only; elsewhere the host has to do
        return None
    found = re.search(r"^PPid:\s*(\d+)$", status, re.MULTILINE)
    return int(found.group(1)) if found else None


__all__ = ["Driver", "Epochs", "MicroBatch", "Run", "TaskMessage", "checkpoint_query", "micro_batch", "micro_batch_of"]
