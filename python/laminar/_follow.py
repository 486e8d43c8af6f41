"""The reader of whoever follows: one of Arrow's, whose ``close`` ends a read that waits for rows.

Arrow's reader of batches from Python has nothing to close, and cannot be derived from: only Arrow makes it. That of an
IPC stream can. So a follower is one of those, over a file that is not there: calls from Python get batches as they are,
and C++ code that is handed the reader reads them as messages, which costs a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa


class Follower(pa.RecordBatchStreamReader):  # type: ignore[misc]
    """Batches as they come, until it is closed."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], close: Callable[[], None]) -> None:
        self._batches = batches
        self._close = close
        super().__init__(_Messages(schema, batches))

    def read_next_batch(self) -> pa.RecordBatch:
        """The next batch; ``StopIteration`` once it is closed."""
        return next(self._batches)

    def close(self) -> None:
        """End it, also for a thread that waits in it: that one gets ``StopIteration``."""
        self._close()


class _Messages:
    """A file of an IPC stream, of which each batch is a message and is made when it is asked for."""

    closed = False

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left = memoryview(schema.serialize())

    def read(self, size: int) -> memoryview:
        if not self._left:
            batch = next(self._batches, None)
            self._left = memoryview(b"" if batch is None else batch.serialize())
        piece, self._left = self._left[:size], self._left[size:]
        return piece


__all__ = ["Follower"]
