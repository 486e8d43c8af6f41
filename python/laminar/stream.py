"""Streams: named, partitioned logs of rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from laminar import _native
from laminar.errors import InvalidError
from laminar.writer import Appended, Values, Writer

if TYPE_CHECKING:
    import pyarrow as pa

    from laminar.cluster import Cluster

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SIZE_MAX = 2**64 - 1

Position: TypeAlias = int | Mapping[int, int] | datetime


class _Unchanged(Enum):
    """Tells a setting that was not given from one that is ``None``."""

    UNCHANGED = "unchanged"


UNCHANGED = _Unchanged.UNCHANGED


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long the rows of a partition are kept: up to an age, up to a size, or for ever if neither is given.

    Rows that were appended together go together. A size counts the rows as they were written, wherever they are.
    """

    age: timedelta | None = None
    #: Of each partition.
    bytes: int | None = None

    def __post_init__(self) -> None:
        if self.age is not None and (not isinstance(self.age, timedelta) or self.age <= timedelta()):
            raise InvalidError(f"retention.age is {self.age!r}; it must be a timedelta above 0")
        _check_size(self.bytes, "retention.bytes")

    def _native(self) -> tuple[int | None, int | None]:
        age = None if self.age is None else max(1, self.age // timedelta(milliseconds=1))
        return (age, self.bytes)


@dataclass(frozen=True, kw_only=True)
class StreamLimits:
    """Limits of a stream's rows."""

    #: The largest row, in bytes.
    row_bytes: int | None = None

    def __post_init__(self) -> None:
        _check_size(self.row_bytes, "limits.row_bytes")


@dataclass(frozen=True)
class Barrier:
    """Everything up to a global index is applied. ``read(at=barrier)`` reads that cut of all partitions."""

    global_index: int


class Stream:
    """A stream of a cluster. Made by ``Cluster.create_stream`` and ``Cluster.stream``.

    It pickles, and a forked child may use it: each process has a connection and a producer id of its own.
    """

    def __init__(
        self, cluster: Cluster, path: str, stream_id: int | None = None, native: _native.Stream | None = None
    ) -> None:
        self._cluster = cluster
        self._path = path
        self._native = native or _native.Stream(cluster._native, path, stream_id)
        self._stream_id = stream_id
        self._known: dict[str, Any] | None = None

    def _described(self, *, refresh: bool = False) -> dict[str, Any]:
        if self._known is None or refresh:
            self._known = self._native.describe(refresh)
        return self._known

    @property
    def cluster(self) -> Cluster:
        """The cluster that it is of."""
        return self._cluster

    @property
    def path(self) -> str:
        """Its name."""
        return self._path

    @property
    def stream_id(self) -> int:
        """Tells it from streams of the same name before and after it."""
        return self._described()["stream_id"]  # type: ignore[no-any-return]

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows; those of a stream of bytes are key and value."""
        return self._described()["schema"]

    @property
    def is_bytes(self) -> bool:
        """Whether it was created without a schema: keys and values are bytes."""
        return self._described()["is_bytes"]  # type: ignore[no-any-return]

    @property
    def key(self) -> list[str]:
        """The columns that say which partition a row goes to."""
        return list(self._described()["key"])

    @property
    def partitions(self) -> int:
        """How many partitions it has, as the node says now."""
        return len(self._described(refresh=True)["partition_ids"])

    @property
    def machine(self) -> str:
        """log, kv, or the name of an application's machine."""
        return self._described()["machine"]  # type: ignore[no-any-return]

    @property
    def retention(self) -> Retention | None:
        """How long rows are kept, as the node says now; ``None`` for ever."""
        known = self._described(refresh=True)
        age, size = known["retention_age_ms"], known["retention_bytes"]
        if age is None and size is None:
            return None
        return Retention(age=None if age is None else timedelta(milliseconds=age), bytes=size)

    @property
    def limits(self) -> StreamLimits:
        """Limits of its rows, as the node says now."""
        return StreamLimits(row_bytes=self._described(refresh=True)["row_bytes_max"])

    @property
    def created_at(self) -> datetime:
        """When it was created."""
        return _EPOCH + timedelta(milliseconds=self._described()["created_at_ms"])

    def _to_arrow(self, rows: Any) -> Any:
        from laminar import _rows  # noqa: PLC0415 - pyarrow is imported when rows are there

        return _rows.to_arrow(rows, self.schema, self._path)

    def append(self, rows: Any, timeout: float | None = None) -> Appended:
        """Append rows, each to the partition of its key; without a key to one partition, another each time.

        ``rows`` are a list of dicts, a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars frame, or
        anything else that speaks the Arrow C stream interface. They land all or not at all, and are on disk when the
        call returns. It retries by itself until ``timeout`` (seconds), and lands them once. An error with
        ``outcome_unknown`` means that they may have landed.
        """
        return Appended(*self._native.append(self._to_arrow(rows), timeout))

    def append_bytes(self, partition: int | None, values: Values, timeout: float | None = None) -> Appended:
        """Append to a stream of bytes: values, or pairs (key, value).

        They go to ``partition``, or with ``None`` each to that of its key. A value that is ``None`` removes the key of
        a kv stream.
        """
        return Appended(*self._native.append_bytes(partition, values, timeout))

    def read(  # noqa: PLR0913 - each is a question that readers have
        self,
        partitions: Sequence[int] | None = None,
        start: Literal["earliest", "latest"] | Position = "earliest",
        end: Literal["latest"] | Position = "latest",
        *,
        at: Barrier | int | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        include_metadata: bool = False,
        batch_rows: int | None = None,
        timeout: float | None = None,
    ) -> pa.RecordBatchReader:
        """Read rows, partition after partition, each in its order; or with ``follow`` as they come, without end.

        ``start`` and ``end`` are an offset, ``{partition: offset}``, or a time with a time zone; rows from ``start``
        and before ``end``. Partitions that ``{partition: offset}`` does not name are read from their first row, or to
        their last. ``at`` reads all partitions as of one cut. ``include_metadata`` adds the columns
        ``_partition``, ``_offset``, ``_timestamp`` and ``_epoch``. ``timeout`` is how long the node may be silent: rows
        may take longer to come, and a node that does not answer for so long is an ``UnavailableError``.

        A start or an end beyond the last row of a partition is an ``InvalidError``; exactly behind it is where the next
        row will be. A read with ``follow`` ends with ``close()`` of the reader, also from another thread: whoever waits
        for rows gets ``StopIteration``, as at the end of rows.

        Whoever follows all partitions also gets those that are added later (``alter``), each from its first row and
        within about a second; whoever follows chosen ones stays with them. A stream that is dropped ends it with
        ``UnknownPartitionError``.
        """
        import pyarrow as pa  # noqa: PLC0415 - importing laminar needs no pyarrow

        chosen = None if partitions is None else list(partitions)
        reader = self._native.read(
            partitions=chosen,
            start=start if isinstance(start, str) else self._position(start, "start", chosen),
            end=end if isinstance(end, str) else self._position(end, "end", chosen),
            at=at.global_index if isinstance(at, Barrier) else at,
            columns=None if columns is None else _names(columns, "columns"),
            follow=follow,
            include_metadata=include_metadata,
            batch_rows=batch_rows,
            timeout=timeout,
        )
        batches = self._batches(reader, batch_rows)
        if follow:
            from laminar._follow import Follower  # noqa: PLC0415 - importing laminar needs no pyarrow

            return Follower(reader.schema, batches, reader.close)
        return pa.RecordBatchReader.from_batches(reader.schema, batches)

    def _batches(self, reader: _native.Reader, rows_max: int | None = None) -> Iterator[pa.RecordBatch]:
        # A method, so that whoever reads keeps the stream and its node.
        try:
            while (batch := reader.next()) is not None:
                # What was appended together comes together; parts of it share its memory.
                step = rows_max or batch.num_rows
                for begin in range(0, batch.num_rows, step):
                    yield batch.slice(begin, step)
        finally:
            reader.close()

    def _position(self, position: Any, what: str, partitions: list[int] | None) -> dict[int, int] | int:
        if isinstance(position, datetime):
            if position.utcoffset() is None:
                raise InvalidError(
                    f"{what} is {position!r}, which has no time zone; give one, as datetime.timezone.utc"
                )
            return max(0, (position - _EPOCH) // timedelta(milliseconds=1))
        if isinstance(position, Mapping):
            return dict(position)
        if isinstance(position, int) and not isinstance(position, bool):
            return dict.fromkeys(range(self.partitions) if partitions is None else partitions, position)
        raise InvalidError(
            f"{what} is {position!r}; it must be a word, an offset, {{partition: offset}} or a time with a time zone"
        )

    def offsets(self, at: Barrier | int | None = None) -> dict[int, tuple[int, int]]:
        """The offset of the first row and that after the last, by partition; as of a cut, if one is given."""
        return self._native.offsets(at.global_index if isinstance(at, Barrier) else at)

    def barrier(self, timeout: float = 2.0) -> Barrier:
        """Wait until all partitions have applied what was acknowledged before the call: a cut to read at."""
        return Barrier(self._native.barrier(timeout))

    def get(self, key: Any) -> Any:
        """The newest row of a key of a ``kv`` stream, as a dict; ``None`` if there is none. Linearizable.

        The key is a value, a tuple in the order of the key columns, or a dict. Of a stream of bytes, the newest value
        of a key, both as bytes.
        """
        if self.is_bytes:
            return self._native.get_bytes(key)
        if self.machine != "kv":
            raise InvalidError(
                f'stream {self._path}: get needs machine "kv", and it has {self.machine!r}; read it instead',
                stream=self._path,
            )
        from laminar import _rows  # noqa: PLC0415 - pyarrow is imported when rows are there

        row = self._native.get(_rows.key_batch(key, self.schema, self.key, self._path))
        return None if row is None else row.to_pylist()[0]

    def scan(self) -> pa.Table:
        """The newest row of every key of a ``kv`` stream. Linearizable for each partition.

        A key that was written before and after partitions were added (``alter``) has a row in its old partition too.
        """
        import pyarrow as pa  # noqa: PLC0415 - importing laminar needs no pyarrow

        reader = self._native.scan()
        return pa.Table.from_batches(self._batches(reader), schema=reader.schema)

    def trim(self, partition: int, offset: int) -> int:
        """Remove the rows of a partition before an offset, and return where it begins now."""
        return self._native.trim(partition, offset)

    def alter(
        self,
        *,
        partitions: int | None = None,
        retention: Retention | Literal[_Unchanged.UNCHANGED] | None = UNCHANGED,
        limits: StreamLimits | Literal[_Unchanged.UNCHANGED] | None = UNCHANGED,
    ) -> None:
        """Change the stream; what is not given stays. ``retention=None`` keeps rows for ever.

        There can only be more partitions, not fewer. Of a stream with a key, rows then go to other partitions than
        before: the rows of one key are in order before and after the change, but not across it, and ``get`` of a kv
        stream finds only what was written since to the key's partition. A ``UserWarning`` says so. Readers with
        ``follow`` get the new partitions by themselves, unless they chose partitions.
        """
        if partitions is not None and self.key and partitions > self.partitions:
            warnings.warn(
                f"stream {self._path}: with {partitions} partitions keys go to other partitions than before; the rows "
                "of a key are in order before and after the change, not across it",
                UserWarning,
                stacklevel=2,
            )
        self._cluster._native.alter(
            self._native,
            partitions=partitions,
            retention=None if retention is UNCHANGED else (retention or Retention())._native(),
            row_bytes_max=None if limits is UNCHANGED else ((limits or StreamLimits()).row_bytes,),
        )
        self._known = None

    def writer(self, name: str, partitions: Iterable[int] | None = None, timeout: float = 30.0) -> Writer:
        """Claim partitions (all if none is named) for this process: the one writer they have from now on.

        Whoever held them is fenced: its writes are refused with ``StaleEpochError``. Managed appends to them are
        refused with ``NotOwnedError`` until the writer is closed. ``timeout`` holds for each call of the writer.
        """
        chosen = None if partitions is None else list(partitions)
        return Writer(self, self._native.writer(name, partitions=chosen, timeout=timeout))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Stream, (self._cluster, self._path, self.stream_id))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self._cluster, self._path, self.stream_id) == (other._cluster, other._path, other.stream_id)

    def __hash__(self) -> int:
        return hash(self._path)

    def __repr__(self) -> str:
        return f"Stream({self._path!r})"


def _check_size(value: Any, what: str) -> None:
    if value is not None and not (isinstance(value, int) and 1 <= value <= _SIZE_MAX):
        raise InvalidError(f"{what} is {value!r}; it must be a whole number from 1 to {_SIZE_MAX}")


def _names(names: Sequence[str], what: str) -> list[str]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidError(f"{what} is {names!r}; it must be a list of names")
    return list(names)


__all__ = ["UNCHANGED", "Barrier", "Retention", "Stream", "StreamLimits"]
