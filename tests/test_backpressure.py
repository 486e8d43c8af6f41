"""A slow machine on one partition fills that partition's budget, and no other's."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

import laminar

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA = pa.schema([("id", pa.int64()), ("slow", pa.bool_())])
_OPS_MAX = 8


class Gate:
    """Applies a slow row only when the gate is open."""

    open: ClassVar[threading.Event] = threading.Event()

    def __init__(self) -> None:
        self.rows = 0

    def apply(self, batch: pa.RecordBatch) -> None:
        if any(batch["slow"].to_pylist()):
            assert Gate.open.wait(60)
        self.rows += batch.num_rows

    def snapshot(self) -> bytes:
        return str(self.rows).encode()

    def restore(self, state: bytes) -> None:
        self.rows = int(state)


def _rows(number: int, *, slow: bool) -> pa.Table:
    return pa.table({"id": [number], "slow": [slow]}, schema=_SCHEMA)


def _keys_of(stream: laminar.Stream, partition: int, count: int) -> list[int]:
    """Keys that go to a partition, found by appending quick rows."""
    keys: list[int] = []
    for number in range(1000):
        if partition in stream.append(_rows(number, slow=False)).offsets:
            keys.append(number)
            if len(keys) == count:
                return keys
    raise AssertionError(f"only {len(keys)} of 1000 keys go to partition {partition}")


def test_slow_partition_refuses_by_name_while_others_go_on_and_everything_lands_in_the_end(tmp_path: Path) -> None:
    Gate.open.clear()
    with laminar.open(tmp_path / "data", machines={"gate": Gate}, partition_ops_max=_OPS_MAX) as db:
        stream = db.create_stream("/s", partitions=2, schema=_SCHEMA, key="id", machine="gate")
        slow_keys, quick_keys = _keys_of(stream, 0, _OPS_MAX + 1), _keys_of(stream, 1, 20)
        before = stream.offsets()

        # Partition 0 is filled up by appends that nobody has applied; each has a handle and a thread of its own.
        landed: list[laminar.Appended] = []

        def append(key: int) -> None:
            landed.append(db.stream("/s").append(_rows(key, slow=True), timeout=60))

        threads = [threading.Thread(target=append, args=(key,), daemon=True) for key in slow_keys[:_OPS_MAX]]
        for thread in threads:
            thread.start()
        try:
            refused = _until_refused(db, slow_keys[-1])
            assert refused.partition == 0
            assert refused.stream == "/s"
            assert refused.limit == _OPS_MAX
            assert refused.retryable
            assert "log.partition_ops_max" in str(refused)

            # The other partition does not notice.
            other = db.stream("/s")
            for key in quick_keys:
                other.append(_rows(key, slow=False), timeout=5)
        finally:
            Gate.open.set()
        for thread in threads:
            thread.join(30)
        assert len(landed) == _OPS_MAX
        assert stream.offsets()[1] == (0, before[1][1] + len(quick_keys))
        # A client that was held back goes on by itself.
        stream.append(_rows(slow_keys[-1], slow=False), timeout=30)
        assert stream.offsets()[0][1] >= before[0][1] + _OPS_MAX + 1


def _until_refused(db: laminar.Cluster, key: int) -> laminar.BackpressureError:
    """What an append hears once the partition is full: until then it waits like the others, and gives up."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            db.stream("/s").append(_rows(key, slow=True), timeout=0.5)
        except laminar.BackpressureError as error:
            return error
        except laminar.UnavailableError:
            continue
    raise AssertionError("the partition took more than its budget")
