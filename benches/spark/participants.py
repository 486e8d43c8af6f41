"""Who is measured: for each what Spark is told to write to it, and to read from it."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from peers import kafka

    import laminar

#: Partitions of streams and topics; files of the input, so tasks of a write.
PARTS = 4
SCHEMA = pa.schema([("id", pa.int64()), ("payload", pa.binary())])
LAMINAR, LAMINAR_UNKEYED = "laminar", "laminar, without a key"
PARQUET, DELTA, KAFKA = "Parquet, no fsync", "Delta, no fsync", "Kafka, fsync"
DISCARD, MADE, NOOP = "Python writer that discards", "Python reader from nothing", "Spark's noop"


@dataclass
class Place:
    """What one write made, as Spark is told of it: for writing and for reading."""

    form: str
    path: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    columns: list[str] = field(default_factory=lambda: ["id", "payload"])
    read_options: dict[str, str] = field(default_factory=dict)
    #: Holds for every row that was written.
    check: str = "length(payload) = 100"
    read_columns: list[str] = field(default_factory=lambda: ["*"])

    def writing(self) -> dict[str, Any]:
        return {"form": self.form, "options": self.options, "path": self.path, "columns": self.columns}

    def reading(self) -> dict[str, Any]:
        options = {**self.options, **self.read_options}
        return {"form": self.form, "options": options, "path": self.path, "columns": self.read_columns}


class Participant(ABC):
    """One that is written to and read from."""

    #: The driver that it runs on.
    driver = "spark"
    reads = streams = True

    def __init__(self, name: str, *, read_name: str | None = None) -> None:
        self.name = name
        self.read_name = read_name or name

    @abstractmethod
    def place(self, rows: int) -> Place:
        """A new, empty place for ``rows`` rows."""

    def streaming(self, checkpoint: Path) -> Place:
        """A new place for a streaming query."""
        place = self.place(0)
        place.options = {**place.options, "checkpointLocation": str(checkpoint)}
        return place

    def written(self, place: Place, rows: int) -> None:  # noqa: B027 - most have nothing to look at
        """Look whether all rows are there, where that is cheap."""

    def drop(self, place: Place) -> None:  # noqa: B027 - most keep nothing
        """Remove what was written."""


class Files(Participant):
    """Parquet or Delta in a folder."""

    def __init__(self, name: str, form: str, root: Path, *, driver: str = "spark") -> None:
        super().__init__(name)
        self._form, self._root, self.driver = form, root, driver
        # Spark's sink of files keeps a log of its own for streams; nothing is asked about it.
        self.streams = form == "delta"

    def place(self, rows: int) -> Place:  # noqa: ARG002 - files grow
        return Place(self._form, str(Path(tempfile.mkdtemp(prefix=f"{self._form}-", dir=self._root)) / "table"))

    def drop(self, place: Place) -> None:
        if place.path is not None:
            shutil.rmtree(Path(place.path).parent, ignore_errors=True)


class Kafka(Participant):
    """A topic that syncs every batch before it acknowledges."""

    def __init__(self, broker: kafka.Broker) -> None:
        super().__init__(KAFKA)
        self._broker = broker

    def place(self, rows: int) -> Place:  # noqa: ARG002 - topics grow
        topic = self._broker.create(PARTS, fsync=True)
        return Place(
            "kafka",
            options={
                "kafka.bootstrap.servers": self._broker.address,
                "topic": topic,
                "kafka.acks": "all",
                "kafka.linger.ms": "5",
                "kafka.batch.size": "1000000",
                "kafka.buffer.memory": "67108864",
            },
            columns=["cast(cast(id as string) as binary) as key", "payload as value"],
            read_options={
                "subscribe": topic,
                "startingOffsets": "earliest",
                "endingOffsets": "latest",
                "kafka.max.poll.records": "10000",
                "kafka.max.partition.fetch.bytes": "8388608",
                "kafka.fetch.max.bytes": "67108864",
            },
            # A new topic has a short record in each partition.
            check="length(value) = 100",
            read_columns=["key", "value"],
        )


class Ceiling(Participant):
    """PySpark's API with nothing behind it: writes are thrown away, reads are made from nothing."""

    def __init__(self) -> None:
        super().__init__(DISCARD, read_name=MADE)

    def place(self, rows: int) -> Place:
        return Place("ceiling", read_options={"rows": str(rows), "parts": str(PARTS)})


class Noop(Participant):
    """Spark's own sink that does nothing, with no Python."""

    reads = False

    def __init__(self) -> None:
        super().__init__(NOOP)

    def place(self, rows: int) -> Place:  # noqa: ARG002 - nothing is kept
        return Place("noop")


class Laminar(Participant):
    """A stream in a folder, whose node is a process of its own."""

    def __init__(self, cluster: laminar.Cluster, folder: Path, *, keyed: bool) -> None:
        super().__init__(LAMINAR if keyed else LAMINAR_UNKEYED)
        self._cluster, self._folder, self._key = cluster, folder, "id" if keyed else None
        self._numbers = itertools.count(1)
        # A hundred rows are hashed in no time: one of the two is enough.
        self.streams = keyed

    def place(self, rows: int) -> Place:  # noqa: ARG002 - streams grow
        path = f"/bench/{'keyed' if self._key else 'unkeyed'}-{next(self._numbers)}"
        self._cluster.create_stream(path, partitions=PARTS, schema=SCHEMA, key=self._key)
        return Place("laminar", path, {"endpoint": str(self._folder)})

    def streaming(self, checkpoint: Path) -> Place:
        place = super().streaming(checkpoint)
        place.options["writer"] = "bench"
        return place

    def written(self, place: Place, rows: int) -> None:
        offsets = self._cluster.stream(str(place.path)).offsets()
        there = sum(end for _, end in offsets.values())
        if there != rows:
            raise ValueError(f"{place.path} has {there} rows, not {rows}")

    def claimed(self, place: Place) -> float:
        """When the partitions were claimed the last time, by the node's clock."""
        return max(story.steps[-1].time.timestamp() for story in self._cluster.why(str(place.path)))

    def drop(self, place: Place) -> None:
        self._cluster.drop_stream(str(place.path))
