"""Exclusive writers: exactly one for a partition, proven by its epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from laminar._native import WriterGuards
from laminar.errors import InvalidError

if TYPE_CHECKING:
    from typing_extensions import Self

    from laminar import _native
    from laminar.stream import Stream

Values = Iterable[bytes | tuple[bytes | None, bytes | None]]


@dataclass(frozen=True)
class Appended:
    """Where rows landed. They are on disk."""

    rows: int
    #: The place of the entry in the data group's log; 0 if there was nothing to append.
    global_index: int
    #: The offset of the first row and that after the last, by partition of the stream.
    offsets: Mapping[int, tuple[int, int]] = field(hash=False)
    #: They had landed before, and this is where.
    duplicate: bool = False


class Writer:
    """The one writer of its partitions, until it is closed or another takes over. Made by ``Stream.writer``.

    A writer belongs to the process that opened it: it is not pickled, and a forked child opens its own.
    """

    def __init__(self, stream: Stream, native: _native.Writer) -> None:
        self._stream = stream
        self._native = native

    @property
    def stream(self) -> Stream:
        """The stream that it writes."""
        return self._stream

    @property
    def name(self) -> str:
        """The writer's name; a later run of the same name takes over like any other."""
        return self._native.name

    @property
    def node_id(self) -> int:
        """The node id of this run, new for each."""
        return self._native.node_id

    @property
    def partitions(self) -> list[int]:
        """The partitions of the stream that it claimed."""
        return self._native.partitions

    @property
    def guards(self) -> WriterGuards:
        """Its guards, by the stream's partition numbers."""
        return self._native.guards

    @property
    def epochs(self) -> dict[int, int]:
        """The epoch under which each partition is written."""
        return self._native.guards.epochs

    def append(self, rows: Any) -> Appended:
        """Append rows as ``Stream.append`` does, under this writer's epochs.

        Raises ``StaleEpochError`` once another has taken over: it says who and since when.
        """
        return Appended(*self._native.append(self._stream._to_arrow(rows)))

    def append_bytes(self, partition: int | None, values: Values) -> Appended:
        """Append values to a stream of bytes, as ``Stream.append_bytes`` does."""
        return Appended(*self._native.append_bytes(partition, values))

    def batch(self, *, query: str, batch: int) -> WriterBatch:
        """Collect rows that are committed as one entry, exactly once for this query and number.

        >>> import laminar, tempfile, pyarrow as pa
        >>> with tempfile.TemporaryDirectory() as folder, laminar.open(folder) as db:
        ...     stream = db.create_stream("/a", partitions=2, schema=pa.schema({"n": pa.int64()}), key="n")
        ...     with stream.writer("ingest") as writer:
        ...         for _ in range(2):
        ...             with writer.batch(query="q", batch=7) as rows:
        ...                 rows.append([{"n": 1}, {"n": 2}])
        ...             print(rows.duplicate)
        False
        True
        """
        return WriterBatch(self, self._native.batch(query, batch), query, batch)

    def trim(self, partition: int, offset: int) -> int:
        """Remove the rows of a partition before an offset, and return where it begins now."""
        return self._native.trim(partition, offset)

    def release(self) -> None:
        """Give the partitions back. A second time does nothing."""
        self._native.close()

    def close(self) -> None:
        """Give the partitions back. A second time does nothing."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a writer cannot be pickled: it belongs to the process that opened it; pickle the stream and open a writer "
            "of its own there"
        )

    def __repr__(self) -> str:
        try:
            return f"Writer({self.name!r}, stream={self._stream.path!r}, node_id={self.node_id})"
        except InvalidError:
            return f"Writer(stream={self._stream.path!r}) <of another process>"


class WriterBatch:
    """Rows that are committed as one entry when its ``with`` block ends, and dropped if it raises.

    ``appended`` tells where they are, ``duplicate`` whether the batch had landed before.
    """

    def __init__(self, writer: Writer, native: _native.WriterBatch, query: str, batch: int) -> None:
        self._writer = writer
        self._native = native
        self._appended: Appended | None = None
        self.query = query
        self.batch = batch

    @property
    def appended(self) -> Appended | None:
        """Where the rows are; ``None`` before the commit."""
        return self._appended

    @property
    def duplicate(self) -> bool:
        """Whether the batch had landed before."""
        return self._appended is not None and self._appended.duplicate

    def append(self, rows: Any) -> None:
        """Collect rows as ``Stream.append`` takes them; nothing is sent."""
        self._open()
        self._native.append(self._writer.stream._to_arrow(rows))

    def append_bytes(self, partition: int | None, values: Values) -> None:
        """Collect values of a stream of bytes; nothing is sent."""
        self._open()
        self._native.append_bytes(partition, values)

    def commit(self) -> Appended:
        """Commit now. After an error whose ``outcome_unknown`` is true it may be called again: it lands once."""
        if self._appended is None:
            self._appended = Appended(*self._native.commit())
        return self._appended

    def _open(self) -> None:
        if self._appended is not None:
            raise InvalidError(f"batch {self.batch} of query {self.query!r} is committed; begin another")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()

    def __repr__(self) -> str:
        fate = "committed" if self._appended else "open"
        return f"WriterBatch(query={self.query!r}, batch={self.batch}) <{fate}>"


__all__ = ["Appended", "Values", "Writer", "WriterBatch", "WriterGuards"]
