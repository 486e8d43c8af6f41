"""The options of ``format("laminar")``, for the source and the sink.

Names follow Kafka's and Delta's connectors where those have one. Case does not matter. An option that is not known is
an error: a misspelt ``startingOffsets`` that is ignored would read everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from laminar.errors import InvalidError
from laminar.spark import clients
from laminar.spark.parsing import EARLIEST, LATEST, Given

_COMMON = ("endpoint", "path", "stream", "secret", "nodeLinger")
_SOURCE = (
    *_COMMON,
    "at",
    "columns",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "includeMetadata",
    "maxBytesPerTrigger",
    "maxRowsPerSplit",
    "maxRowsPerTrigger",
    "minPartitions",
    "startingOffsets",
    "startingTimestamp",
)
_SINK = (
    *_COMMON,
    "adoptQuery",
    "asyncProgressTrackingEnabled",
    "blockBytes",
    "checkpointLocation",
    "queryName",
    "txnAppId",
    "txnVersion",
    "writer",
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which stream of which cluster."""

    #: A folder as an absolute path, or addresses: what processes with another working directory can use.
    endpoint: str
    stream: str
    #: The secret of the node at an address; a folder has its own.
    secret: str | None = field(default=None, repr=False)
    #: How long a node that Spark starts stays after its last client, in seconds.
    node_linger: float = clients.LINGER_SECONDS

    @classmethod
    def _of(cls, given: Given) -> Place:
        stream, path = given.text("stream"), given.text("path")
        if stream is not None and path is not None and stream != path:
            raise InvalidError(f"the stream is {path} and option stream is {stream}; give one of the two")
        if stream is None and path is None:
            raise InvalidError("no stream is named; give it to load, save or start, as in load('/shop/orders')")
        hint = "give the folder of laminar.open, or host:port of a running node"
        linger = given.seconds("nodeLinger", clients.LINGER_SECONDS)
        return cls.at(given.needed("endpoint", hint), stream or path or "", given.text("secret"), linger)

    @classmethod
    def at(
        cls, endpoint: str, stream: str, secret: str | None = None, node_linger: float = clients.LINGER_SECONDS
    ) -> Place:
        """The place as users name it: a folder may be relative, and the secret may be in the environment."""
        return cls(
            endpoint=clients.absolute(endpoint),
            stream=stream,
            secret=secret or os.environ.get("LAMINAR_SECRET"),
            node_linger=node_linger,
        )


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What to read. Offsets are ``EARLIEST``, ``LATEST`` or by partition; a partition not named is read whole."""

    place: Place
    #: Where to begin: ``None`` if neither offsets nor a time are given.
    starting_offsets: int | dict[int, int] | None = None
    starting_time_ms: int | None = None
    ending_offsets: int | dict[int, int] | None = None
    ending_time_ms: int | None = None
    #: A global index, as of ``Stream.barrier``: all partitions as they were then.
    at: int | None = None
    columns: tuple[str, ...] | None = None
    include_metadata: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    rows_per_split_max: int | None = None
    rows_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """The options as Spark hands them over."""
        if "provider" in options:
            raise InvalidError(
                "tables of Spark's catalog lose the options of Python sources; use CREATE TEMPORARY VIEW name USING "
                "laminar OPTIONS (endpoint '…', stream '…')"
            )
        given = Given(options, _SOURCE, "source")
        for one, other in (
            ("startingOffsets", "startingTimestamp"),
            ("endingOffsets", "endingTimestamp"),
            ("at", "endingOffsets"),
            ("at", "endingTimestamp"),
        ):
            if given.text(one) is not None and given.text(other) is not None:
                raise InvalidError(f"{one} and {other} are both given; give one of the two")
        return cls(
            place=Place._of(given),
            starting_offsets=given.offsets("startingOffsets", {"earliest": EARLIEST, "latest": LATEST}),
            starting_time_ms=given.time_ms("startingTimestamp"),
            ending_offsets=given.offsets("endingOffsets", {"latest": LATEST}),
            ending_time_ms=given.time_ms("endingTimestamp"),
            at=given.number("at"),
            columns=given.names("columns"),
            include_metadata=given.flag("includeMetadata", default=False),
            fail_on_data_loss=given.flag("failOnDataLoss", default=True),
            min_partitions=given.number("minPartitions", 1),
            rows_per_split_max=given.number("maxRowsPerSplit", 1),
            rows_per_trigger_max=given.number("maxRowsPerTrigger", 1),
            bytes_per_trigger_max=given.bytes("maxBytesPerTrigger"),
        )

    def check_batch(self) -> None:
        """Refuse what only a streaming query has."""
        for name, value in (
            ("maxRowsPerTrigger", self.rows_per_trigger_max),
            ("maxBytesPerTrigger", self.bytes_per_trigger_max),
        ):
            if value is not None:
                raise InvalidError(f"{name} is for streaming queries; leave it out, or bound the read by endingOffsets")
        if self.starting_offsets == LATEST:
            raise InvalidError(
                "startingOffsets is latest, and a batch read would be empty; use readStream, or earliest"
            )

    def check_streaming(self) -> None:
        """Refuse what only a batch read has."""
        for name, value in (
            ("endingOffsets", self.ending_offsets),
            ("endingTimestamp", self.ending_time_ms),
            ("at", self.at),
        ):
            if value is not None:
                raise InvalidError(f"{name} is for batch reads; a streaming query ends by Trigger.AvailableNow")


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """Where to write, and as whom."""

    place: Place
    #: The name under which a run claims the stream.
    writer: str | None = None
    #: Of the streaming query, as Spark tells it.
    query_name: str | None = None
    checkpoint_location: str | None = None
    adopt_query: bool = False
    txn_app_id: str | None = None
    txn_version: int | None = None
    block_bytes: int | None = None
    async_progress: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """The options as Spark hands them over."""
        given = Given(options, _SINK, "sink")
        return cls(
            place=Place._of(given),
            writer=given.text("writer"),
            query_name=given.text("queryName"),
            checkpoint_location=given.text("checkpointLocation"),
            adopt_query=given.flag("adoptQuery", default=False),
            txn_app_id=given.text("txnAppId"),
            txn_version=given.number("txnVersion"),
            block_bytes=given.bytes("blockBytes"),
            async_progress=given.flag("asyncProgressTrackingEnabled", default=False),
        )

    def check_batch(self) -> None:
        """Refuse what does not go together in a batch write, and what only a streaming query has."""
        for name, given in (
            ("checkpointLocation", self.checkpoint_location is not None),
            ("queryName", self.query_name is not None),
            ("asyncProgressTrackingEnabled", self.async_progress),
            ("adoptQuery", self.adopt_query),
        ):
            if given:
                raise InvalidError(
                    f"{name} is for streaming queries, and a batch write goes by txnAppId and txnVersion; leave it "
                    "out, or use writeStream"
                )
        if (self.txn_app_id is None) != (self.txn_version is None):
            one, other = ("txnAppId", "txnVersion") if self.txn_version is None else ("txnVersion", "txnAppId")
            raise InvalidError(f"{one} is given without {other}; a write is known by both, give both or none")

    def check_streaming(self) -> str:
        """Refuse what a streaming write cannot do, and return the name that it owns the stream under."""
        if self.async_progress:
            raise InvalidError(
                "asyncProgressTrackingEnabled is true; with it Spark may repeat rows under other batch ids, "
                "and they would be doubled: leave it out"
            )
        if self.txn_app_id is not None or self.txn_version is not None:
            raise InvalidError(
                "txnAppId and txnVersion are for batch writes; a streaming query is known by its checkpoint: "
                "leave them out"
            )
        name = self.writer or self.query_name
        if name is None:
            raise InvalidError(
                f"stream {self.place.stream}: a streaming write needs a name to own the stream under, which stays the "
                'same over restarts; set option("writer", …) or queryName(…)',
                stream=self.place.stream,
            )
        return name


__all__ = ["Place", "SinkOptions", "SourceOptions"]
