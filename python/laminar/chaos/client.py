"""A client process of a chaos run: appends, claims, commits batches, reads and waits at barriers until its time is up.

It writes its history as it goes, so that it may be killed at any moment. Run as ``python -m laminar.chaos.client``.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import laminar
from laminar.chaos.history import ROWS_OF_CLIENT, HistoryWriter, Kind, Outcome
from laminar.chaos.log import digest
from laminar.errors import LaminarError, StaleEpochError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

STREAM = "/chaos"
#: Beside the histories: once it is there, clients end.
STOP_FILE = "stop"
#: Rows before the end of a partition that a read looks at. Every row is read again at the end of the run.
READ_BACK = 200
#: Numbers of batches that there are for each query.
BATCHES_PER_SECOND = 20
#: Writers that were superseded and are tried again all the same.
ZOMBIES_MAX = 4


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """What a client process is told."""

    folder: str
    histories: str
    client: int
    seed: str
    #: embedded, detached or client
    role: str
    #: The latest that it goes on, on the monotonic clock, should nobody tell it to stop.
    until: float
    call_timeout: float
    queries: int
    settings: dict[str, Any] = field(default_factory=dict)

    def command(self) -> list[str]:
        """How the process is started."""
        return [sys.executable, "-m", "laminar.chaos.client", json.dumps(asdict(self))]


def schema() -> pa.Schema:
    """The rows of a chaos run: an id that no other row has, and something to carry."""
    import pyarrow as pa  # noqa: PLC0415 - importing laminar needs no pyarrow

    return pa.schema({"id": pa.int64(), "load": pa.binary()})


class Client:
    """One run of a client."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._chance = random.Random(config.seed)  # noqa: S311 - repeatable
        self._history = HistoryWriter(Path(config.histories) / f"{config.client:05}.jsonl", config.client)
        self._next_row = config.client * ROWS_OF_CLIENT
        self._writer: laminar.Writer | None = None
        self._zombies: list[laminar.Writer] = []
        self._batches: dict[str, int] = {}

    def run(self) -> None:
        """Ask for one thing after the other until the time is up."""
        cluster = self._until_available(self._open)
        if cluster is None:
            return
        with cluster:
            stream = self._until_available(lambda: cluster.stream(STREAM))
            steps: list[tuple[Callable[[laminar.Stream], None], int]] = [
                (self._append, 40),
                (self._claim, 6),
                (self._append_as_writer, 25),
                (self._commit_batch, 15),
                (self._append_as_zombie, 3),
                (self._read, 6),
                (self._read_at_barrier, 6),
                (self._release, 10),
            ]
            names, weights = zip(*steps, strict=True)
            while stream is not None and self._has_time():
                self._chance.choices(names, weights)[0](stream)
            if self._writer is not None:
                self._call("release", self._writer.close)

    def _has_time(self) -> bool:
        return time.monotonic() < self._config.until and not (Path(self._config.histories) / STOP_FILE).exists()

    def _open(self) -> laminar.Cluster:
        config = self._config
        if config.role == "client":
            return laminar.connect(Path(config.folder), timeout=config.call_timeout)
        detached = config.role == "detached"
        return laminar.open(config.folder, detached=detached, timeout=config.call_timeout, **config.settings)

    def _until_available(self, ask: Callable[[], Any]) -> Any:
        while self._has_time():
            try:
                return ask()
            except UnavailableError:  # noqa: PERF203 - it waits anyway
                # The node may be stopped or gone just now; asking waits, so this does not spin.
                time.sleep(0.02)
        return None

    def _call(self, kind: Kind, ask: Callable[[], dict[str, Any] | None], **values: Any) -> LaminarError | None:
        """Ask, and write down what came of it."""
        number = self._history.begin(kind, **values)
        try:
            told = ask() or {}
        except LaminarError as error:
            outcome, more = _outcome(error)
            self._history.end(number, outcome, error=f"{type(error).__name__}: {error}", **more)
            return error
        except Exception as error:
            self._history.end(number, "unknown", error=f"! {type(error).__name__}: {error}")
            raise
        self._history.end(number, "done", **told)
        return None

    def _rows(self) -> tuple[dict[str, int], list[dict[str, Any]]]:
        count = self._chance.choice((1, 1, 1, 2, 5, 20))
        first = self._next_row
        self._next_row += count
        size = self._chance.choice((0, 20, 200, 2000))
        rows = [{"id": first + place, "load": self._chance.randbytes(size)} for place in range(count)]
        return {"first_row": first, "rows": count}, rows

    def _append(self, stream: laminar.Stream) -> None:
        values, rows = self._rows()
        error = self._call("append", lambda: _told(stream.append(rows, timeout=self._config.call_timeout)), **values)
        if isinstance(error, laminar.NotOwnedError) and self._chance.random() < 0.1:
            # The holder may be dead: without somebody who takes over and lets go, managed appends end for good.
            self._claim(stream)
            self._release(stream)

    def _claim(self, stream: laminar.Stream) -> None:
        partitions = list(range(stream.partitions))
        if self._chance.random() < 0.3:
            partitions = sorted(self._chance.sample(partitions, max(1, len(partitions) // 2)))
        before, self._writer = self._writer, None
        if before is not None:
            # Superseded by its own process: not closed, so that it can be tried again.
            self._zombies = [*self._zombies, before][-ZOMBIES_MAX:]

        def claim() -> dict[str, Any]:
            self._writer = stream.writer(
                f"writer-{self._config.client % 7}", partitions=partitions, timeout=self._config.call_timeout
            )
            return {"epochs": self._writer.epochs}

        self._call("claim", claim)

    def _append_as_writer(self, _: laminar.Stream) -> None:
        writer = self._writer
        if writer is None:
            return
        values, rows = self._rows()
        error = self._call("append", lambda: _told(writer.append(rows), writer), epochs=writer.epochs, **values)
        self._superseded(error)

    def _append_as_zombie(self, _: laminar.Stream) -> None:
        if not self._zombies:
            return
        writer = self._chance.choice(self._zombies)
        values, rows = self._rows()
        self._call("append", lambda: _told(writer.append(rows), writer), epochs=writer.epochs, **values)

    def _commit_batch(self, _: laminar.Stream) -> None:
        writer = self._writer
        if writer is None:
            return
        # Clients share queries, as runs of one program do. Numbers grow with time, so that two meet now and then; and
        # sometimes one is sent again that landed long ago, or never.
        query = f"query-{self._chance.randrange(self._config.queries)}"
        number = int(time.monotonic() * BATCHES_PER_SECOND)
        if self._chance.random() < 0.25:
            number = self._batches.get(query, number)
        self._batches[query] = number
        values, rows = self._rows()

        def commit() -> dict[str, Any]:
            batch = writer.batch(query=query, batch=number)
            batch.append(rows)
            try:
                return _told(batch.commit(), writer)
            except LaminarError as error:
                if not error.outcome_unknown:
                    raise
            # As its documentation says: it may be called again, and lands once.
            try:
                return _told(batch.commit(), writer)
            except StaleEpochError as error:
                error.outcome_unknown |= error.batch_committed is None
                raise
            except LaminarError as error:
                error.outcome_unknown = True
                raise

        error = self._call("batch", commit, query=query, batch=number, epochs=writer.epochs, **values)
        self._superseded(error)

    def _superseded(self, error: LaminarError | None) -> None:
        if isinstance(error, StaleEpochError) and self._writer is not None:
            self._zombies = [*self._zombies, self._writer][-ZOMBIES_MAX:]
            self._writer = None

    def _release(self, _: laminar.Stream) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._call("release", writer.close, epochs=writer.epochs)

    def _read(self, stream: laminar.Stream) -> None:
        def read() -> dict[str, Any]:
            starts = _starts(stream.offsets())
            reader = stream.read(start=starts, include_metadata=True, timeout=self._config.call_timeout)
            return {"seen": _seen(reader, starts)}

        self._call("read", read)

    def _read_at_barrier(self, stream: laminar.Stream) -> None:
        def read() -> dict[str, Any]:
            barrier = stream.barrier(timeout=self._config.call_timeout)
            starts = _starts(stream.offsets(at=barrier))
            reader = stream.read(start=starts, at=barrier, include_metadata=True, timeout=self._config.call_timeout)
            return {"seen": _seen(reader, starts), "global_index": barrier.global_index}

        self._call("barrier", read)


def _told(appended: laminar.Appended, writer: laminar.Writer | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {"global_index": appended.global_index, "duplicate": appended.duplicate}
    if writer is not None:
        told["epochs_after"] = writer.epochs
    return told | {"offsets": {partition: list(place) for partition, place in appended.offsets.items()}}


def _outcome(error: LaminarError) -> tuple[Outcome, dict[str, Any]]:
    if isinstance(error, StaleEpochError) and error.batch_committed:
        # Refused as stale, but the batch is there: by this attempt or by another.
        return "done", {"duplicate": True}
    return ("unknown" if error.outcome_unknown else "refused"), {}


def _starts(offsets: dict[int, tuple[int, int]]) -> dict[int, int]:
    return {partition: max(start, end - READ_BACK) for partition, (start, end) in offsets.items()}


def _seen(reader: pa.RecordBatchReader, starts: dict[int, int]) -> dict[int, tuple[int, int, str]]:
    ids: dict[int, array[int]] = {partition: array("q") for partition in starts}
    epochs: dict[int, array[int]] = {partition: array("q") for partition in starts}
    for batch in reader:
        columns = [batch[name].to_pylist() for name in ("_partition", "_offset", "id", "_epoch")]
        for partition, offset, row, epoch in zip(*columns, strict=True):
            expected = starts[partition] + len(ids[partition])
            if offset != expected:
                raise AssertionError(f"partition {partition}: a read has offset {offset} in place of {expected}")
            ids[partition].append(row)
            epochs[partition].append(epoch)
    return {
        partition: (start, start + len(ids[partition]), digest(ids[partition], epochs[partition]))
        for partition, start in starts.items()
    }


def main() -> int:
    """Run the client that the command line describes."""
    config = ClientConfig(**json.loads(sys.argv[1]))
    try:
        Client(config).run()
    except LaminarError:
        # Closing a node that is stopped, or a stream that could not be found in time. The history says the rest.
        traceback.print_exc()
    except Exception:  # noqa: BLE001 - the run reports it: what a client says here is a violation
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
