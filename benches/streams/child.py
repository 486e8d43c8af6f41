"""What one process of the benches does with laminar: ``python child.py VERB JSON``. Each answer is a line of JSON.

A process that opens a folder without a node becomes the node, so the same verb measures calls inside the node's
process and, beside a process that runs ``node``, calls from another one. Times are of the monotonic clock, which all
processes of a machine share.
"""

# ruff: noqa: S311 - payloads must be the same in every run, not secret

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import laminar

sys.path.insert(0, str(Path(__file__).parent.parent))
from peers import disk

BYTES = "/bench/bytes"
ROWS = "/bench/rows"
PARTITIONS = 8
ROW_SCHEMA = pa.schema({"id": pa.int64(), "payload": pa.binary()})
#: With the eight bytes of the id, 100 bytes a row.
ARROW_PAYLOAD_BYTES = 92
ARROW_ROWS = 10_000
#: Appends, then bare writes, in turns. In turns of 25 appends from another process took a third longer: a core that has
#: slept needs several of them to be awake again, and that is told apart.
TURN = 100


def say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def heard() -> str:
    """The next line of whoever started this process; empty at the end."""
    return sys.stdin.readline().strip()


def resident_kib() -> int:
    with open("/proc/self/status") as status:  # noqa: PTH123 - one line of a virtual file
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def summary(took_us: list[float]) -> dict[str, float]:
    took_us.sort()
    return {
        "p10_us": took_us[len(took_us) // 10],
        "p50_us": statistics.median(took_us),
        "p99_us": took_us[len(took_us) * 99 // 100],
        "max_us": took_us[-1],
    }


def arrow_batch(number: int, seed: int) -> pa.RecordBatch:
    """Rows that no other batch has."""
    payload = random.Random(f"{seed}/{number}").randbytes(ARROW_ROWS * ARROW_PAYLOAD_BYTES)
    ends = pa.py_buffer(
        memoryview(
            bytearray(b"".join((at * ARROW_PAYLOAD_BYTES).to_bytes(4, "little") for at in range(ARROW_ROWS + 1)))
        )
    )
    values = pa.Array.from_buffers(pa.binary(), ARROW_ROWS, [None, ends, pa.py_buffer(payload)])
    ids = pa.array(range(number * ARROW_ROWS, (number + 1) * ARROW_ROWS), pa.int64())
    return pa.RecordBatch.from_arrays([ids, values], schema=ROW_SCHEMA)


def node(folder: str) -> None:
    """Be the node until the input ends."""
    with laminar.open(folder) as db:
        db.create_stream(BYTES, partitions=PARTITIONS, exist_ok=True)
        db.create_stream(ROWS, partitions=PARTITIONS, schema=ROW_SCHEMA, exist_ok=True)
        say(ready=True, resident_kib=resident_kib())
        heard()


def latency(folder: str, count: int, size: int, seed: int, rows: str = "bytes") -> None:
    """One client, one row an append, each on disk before the next; in turns with bare writes to the same disk.

    The turns are short, so that whatever else the machine does disturbs both alike.
    """
    with (
        laminar.open(folder) as db,
        disk.written_file(Path(folder).parent / f"{Path(folder).name}.floor", 4 << 20) as bare,
    ):
        if rows == "bytes":
            stream = db.create_stream(BYTES, partitions=PARTITIONS, exist_ok=True)
        else:
            stream = db.create_stream(ROWS, partitions=PARTITIONS, schema=ROW_SCHEMA, exist_ok=True)
        random_bytes = random.Random(seed)
        took: list[float] = []
        floor: list[float] = []
        waited = 0.0
        for number in range(count + count // 4):
            payload, other = random_bytes.randbytes(size), random_bytes.randbytes(size)
            begin = time.perf_counter_ns()
            if rows == "bytes":
                stream.append_bytes(0, [payload])
            else:
                stream.append([{"id": number, "payload": payload}])
            took.append((time.perf_counter_ns() - begin) / 1e3)
            if len(took) % TURN == 0:
                before = disk.waited_us()
                floor += [
                    disk.synced_write(bare, other, (number * TURN + turn) * size % (4 << 20)) for turn in range(TURN)
                ]
                waited += disk.waited_us() - before
        # A floor that waited for a core is the scheduler's, not the disk's.
        share = waited / sum(floor)
        # The node had nothing to do while the bare writes took their turn.
        after_pause_us = statistics.median(took[TURN::TURN])
        say(
            **summary(took[count // 4 :]),
            after_pause_us=after_pause_us,
            floor={**summary(floor[count // 4 :]), "waited_share": share},
        )


def clients(  # noqa: PLR0913, PLR0917 - each is a number of the measurement
    folder: str, threads: int, count: int, size: int, seed: int, first: int = 0
) -> None:
    """Threads that each append one row after the other. Says when it began and ended."""
    with laminar.open(folder) as db:
        stream = db.create_stream(BYTES, partitions=PARTITIONS, exist_ok=True)
        each = max(1, count // threads)
        warm = max(1, each // 10)
        warmed = threading.Barrier(threads + 1)
        start = threading.Barrier(threads + 1)
        failed: list[BaseException] = []

        def append(client: int) -> None:
            random_bytes = random.Random(seed * 1_000 + first + client)
            payloads = [random_bytes.randbytes(size) for _ in range(each + warm)]
            try:
                for payload in payloads[:warm]:
                    stream.append_bytes(client % PARTITIONS, [payload])
                warmed.wait()
                start.wait()
                for payload in payloads[warm:]:
                    stream.append_bytes(client % PARTITIONS, [payload])
            except BaseException as error:  # noqa: BLE001 - told by the main thread
                failed.append(error)
                warmed.abort()
                start.abort()

        running = [threading.Thread(target=append, args=(client,)) for client in range(threads)]
        for thread in running:
            thread.start()
        warmed.wait()
        say(ready=True)
        heard()
        start.wait()
        begin = time.monotonic()
        for thread in running:
            thread.join()
        if failed:
            raise failed[0]
        say(begin=begin, end=time.monotonic(), rows=each * threads)


def arrow(folder: str, batches: int, seed: int, keyed: bool = False, read: bool = True) -> None:  # noqa: FBT001, FBT002
    """Append batches of 10,000 rows, each on disk before the next; then read all of them back, twice."""
    with laminar.open(folder) as db:
        path = ROWS + "/keyed" if keyed else ROWS
        key = "id" if keyed else None
        stream = db.create_stream(path, partitions=PARTITIONS, schema=ROW_SCHEMA, key=key, exist_ok=True)
        warm = max(1, batches // 5)
        made = [arrow_batch(number, seed) for number in range(batches + warm)]
        for batch in made[:warm]:
            stream.append(batch)
        begin = time.perf_counter()
        for batch in made[warm:]:
            stream.append(batch)
        answer = {"rows_per_second": batches * ARROW_ROWS / (time.perf_counter() - begin)}
        if read:
            answer["read_rows_per_second"] = [read_all(stream, len(made) * ARROW_ROWS) for _ in range(2)][1]
        say(**answer)


def read_all(stream: laminar.Stream, wanted: int) -> float:
    begin = time.perf_counter()
    rows = sum(batch.num_rows for batch in stream.read())
    seconds = time.perf_counter() - begin
    if rows != wanted:
        raise RuntimeError(f"read {rows} rows of {wanted}")
    return rows / seconds


def claim(folder: str, partitions: int, count: int) -> None:
    """Claim all partitions of a stream, again and again: from the call to the first append accepted."""
    with laminar.open(folder) as db:
        stream = db.create_stream(f"/bench/claim/{partitions}", partitions=partitions, exist_ok=True)
        took, claimed, writers = [], [], []
        for number in range(count):
            begin = time.perf_counter()
            writer = stream.writer(f"claimant-{number}")
            claimed.append((time.perf_counter() - begin) * 1e3)
            writer.append_bytes(number % partitions, [b"first"])
            took.append((time.perf_counter() - begin) * 1e3)
            writers.append(writer)
        say(ms=statistics.median(took), first_ms=took[0], max_ms=max(took), claim_ms=statistics.median(claimed))
        for writer in writers:
            writer.close()


def takeover(folder: str, name: str) -> None:
    """Claim when told, then watch the guard until another process has taken over."""
    with laminar.open(folder) as db:
        stream = db.create_stream("/bench/takeover", partitions=PARTITIONS, exist_ok=True)
        say(ready=True)
        while heard() == "claim":
            begin = time.monotonic()
            writer = stream.writer(name)
            end = time.monotonic()
            say(begin=begin, end=end)
            guards = writer.guards
            try:
                while True:
                    guards.check(0)
                    # A busy loop would take one of few cores from those that are measured.
                    time.sleep(0.0001)
            except laminar.EpochError:
                say(poisoned=time.monotonic())
            writer.close()


def metadata(folder: str, count: int) -> None:
    """The calls whose cost is that of the metadata group: a change of a limit, and a list of no streams."""
    with laminar.open(folder) as db:
        stream = db.create_stream("/bench/metadata", partitions=1, exist_ok=True)
        writes, reads = [], []
        for number in range(count):
            begin = time.perf_counter_ns()
            stream.alter(limits=laminar.StreamLimits(row_bytes=1_000 + number))
            writes.append((time.perf_counter_ns() - begin) / 1e3)
            begin = time.perf_counter_ns()
            db.streams(prefix="/none")
            reads.append((time.perf_counter_ns() - begin) / 1e3)
        say(write=summary(writes), read=summary(reads))


def fill(folder: str, total: int, seed: int) -> None:
    """Write so many bytes in batches of 10,000 rows, and die without closing anything."""
    db = laminar.open(folder)
    stream = db.create_stream(ROWS, partitions=PARTITIONS, schema=ROW_SCHEMA, exist_ok=True)
    batches = -(-total // (ARROW_ROWS * (ARROW_PAYLOAD_BYTES + 8)))
    for number in range(batches):
        stream.append(arrow_batch(number, seed))
    say(rows=batches * ARROW_ROWS)
    os.kill(os.getpid(), signal.SIGKILL)


def opening(folder: str, rows: int = 0) -> None:
    """Open a folder, and say how long it took until its rows can be had. Dies without closing."""
    begin = time.perf_counter()
    db = laminar.open(folder)
    opened = time.perf_counter()
    if rows:
        ends = db.stream(ROWS).offsets().values()
        if sum(end - start for start, end in ends) != rows:
            raise RuntimeError(f"{ends} are not {rows} rows")
    answered = time.perf_counter()
    say(ms=(opened - begin) * 1e3, answered_ms=(answered - begin) * 1e3, resident_kib=resident_kib())
    os.kill(os.getpid(), signal.SIGKILL)


def memory(folder: str, partitions: int) -> None:
    """Resident memory above the interpreter with pyarrow: with an idle node whose partitions each have a row."""
    before = resident_kib()
    with laminar.open(folder) as db:
        path = f"/bench/idle/{partitions}"
        stream = db.create_stream(path, partitions=partitions, exist_ok=True)
        if not any(end for _, end in stream.offsets().values()):
            for partition in range(partitions):
                stream.append_bytes(partition, [b"one"])
        stream.barrier(10.0)
        # Idle means that what runs behind is done: the least of some looks.
        looks = []
        for _ in range(20):
            time.sleep(0.1)
            looks.append(resident_kib())
        threads = len(list(Path("/proc/self/task").iterdir()))
        say(mb=(min(looks) - before) * 1024 / 1e6, before_mb=before * 1024 / 1e6, threads=threads)


VERBS = {
    verb.__name__: verb for verb in (node, latency, clients, arrow, claim, takeover, metadata, fill, opening, memory)
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](**json.loads(sys.argv[2]))
