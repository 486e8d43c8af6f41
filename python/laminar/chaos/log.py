"""The rows that are in a stream, kept as numbers: 16 bytes a row and one to count it."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from laminar.chaos.history import ROWS_OF_CLIENT

if TYPE_CHECKING:
    import pyarrow as pa

#: Where the rows of one client are counted; a number above it is not one that a client gave out.
ROWS_COUNTED_MAX = 100_000_000


def digest(ids: array[int], epochs: array[int]) -> str:
    """A short fingerprint of rows in order, with their epochs."""
    return hashlib.blake2b(ids.tobytes() + epochs.tobytes(), digest_size=8).hexdigest()


class Log:
    """The rows of a stream by partition: ids and epochs in the order of offsets."""

    def __init__(self) -> None:
        self.ids: dict[int, array[int]] = {}
        self.epochs: dict[int, array[int]] = {}
        #: Offsets that did not follow the one before: (partition, expected, found).
        self.breaks: list[tuple[int, int, int]] = []
        #: Ids that no client can have given out.
        self.strange: list[int] = []
        self._counts: dict[int, bytearray] = {}
        self._rows = 0

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, int]]) -> Log:
        """From (partition, offset, id, epoch), in the order in which they were read."""
        log = cls()
        for row in rows:
            log.add(*row)
        return log

    @classmethod
    def read(cls, reader: pa.RecordBatchReader) -> Log:
        """From a read of a stream that began at offset 0, with metadata."""
        log = cls()
        for batch in reader:
            columns = [batch[name].to_pylist() for name in ("_partition", "_offset", "id", "_epoch")]
            for row in zip(*columns, strict=True):
                log.add(*row)
        return log

    def add(self, partition: int, offset: int, row: int, epoch: int) -> None:
        """Add the next row of a partition."""
        ids = self.ids.setdefault(partition, array("q"))
        if offset != len(ids):
            self.breaks.append((partition, len(ids), offset))
        ids.append(row)
        self.epochs.setdefault(partition, array("q")).append(epoch)
        self._rows += 1
        client, number = divmod(row, ROWS_OF_CLIENT)
        if row < 0 or number >= ROWS_COUNTED_MAX:
            self.strange.append(row)
            return
        counts = self._counts.setdefault(client, bytearray())
        if number >= len(counts):
            counts.extend(bytes(max(1024, number + 1 - len(counts), len(counts))))
        counts[number] = min(counts[number] + 1, 255)

    def __len__(self) -> int:
        return self._rows

    def counts(self, ids: range) -> bytes:
        """How often each of these rows is there; the rows of one operation are of one client."""
        if not ids:
            return b""
        client, number = divmod(ids.start, ROWS_OF_CLIENT)
        return bytes(self._counts.get(client, b"")[number : number + len(ids)]).ljust(len(ids), b"\0")

    def places(self, ids: Collection[int]) -> dict[int, tuple[int, int]]:
        """Partition and offset of those of these rows that are there."""
        return {
            row: (partition, offset)
            for partition, rows in self.ids.items()
            for offset, row in enumerate(rows)
            if row in ids
        }

    def digest(self, partition: int, start: int, end: int) -> str:
        """The fingerprint of the rows from an offset to before another."""
        empty: array[int] = array("q")
        return digest(self.ids.get(partition, empty)[start:end], self.epochs.get(partition, empty)[start:end])
