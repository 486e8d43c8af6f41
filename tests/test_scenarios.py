"""Named scenarios of ownership: zombies, races, retries and names used again. Real processes on real folders.

Each states what must hold by counting: what was acknowledged is there once, what was refused is not there.
"""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from nodes import Process, wait_until

import laminar
from laminar import EpochError, InvalidError, LaminarError, StaleEpochError

SCHEMA = pa.schema({"n": pa.int64()})
PARTITIONS = 4

# A program that writes one row after the other until it is refused, and tells what became of each.
WRITER = """
import json
first = int(wait())
writer = laminar.connect(folder).stream("/numbers").writer("ingest", timeout=20.0)
say(json.dumps(writer.epochs))
done = []
n = first
while True:
    try:
        writer.append([{"n": n}])
        done.append(n)
        if len(done) == 20:
            say("busy")
    except laminar.StaleEpochError as error:
        say(json.dumps({"done": done, "refused": n, "by": error.writer, "owner": error.owner}))
        break
    n += 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def db(folder: Path) -> Iterator[laminar.Cluster]:
    with laminar.open(folder) as db:
        yield db


@pytest.fixture
def stream(db: laminar.Cluster) -> laminar.Stream:
    return db.create_stream("/numbers", partitions=PARTITIONS, schema=SCHEMA, key="n")


def _rows(*numbers: int) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def _numbers(stream: laminar.Stream) -> Counter[int]:
    return Counter(stream.read().read_all()["n"].to_pylist())


def _assert_epochs_never_decrease(stream: laminar.Stream) -> None:
    rows = stream.read(include_metadata=True).read_all().to_pylist()
    for partition in range(PARTITIONS):
        those = [row for row in rows if row["_partition"] == partition]
        assert [row["_offset"] for row in those] == list(range(len(those)))
        epochs = [row["_epoch"] for row in those]
        assert epochs == sorted(epochs)


def test_paused_owner_wakes_after_a_new_owner_committed(folder: Path, stream: laminar.Stream) -> None:
    with Process(WRITER, folder) as zombie:
        zombie.tell("0")
        zombie.hear()
        assert zombie.hear() == "busy"
        zombie.kill(signal.SIGSTOP)
        with stream.writer("second") as second:
            second.append(_rows(*range(1_000_000, 1_000_100)))
            zombie.kill(signal.SIGCONT)
            told = json.loads(zombie.hear())
            assert (told["by"], told["owner"]) == ("second", second.node_id)
            # It is refused for good, and the new owner is not disturbed.
            second.append(_rows(2_000_000))
    expected = [*told["done"], *range(1_000_000, 1_000_100), 2_000_000]
    numbers = _numbers(stream)
    # What was under way when it was stopped has landed before the fence, if it was acknowledged at all.
    assert numbers == Counter(expected)
    _assert_epochs_never_decrease(stream)


def test_program_restarted_while_its_earlier_process_still_writes(folder: Path, stream: laminar.Stream) -> None:
    with Process(WRITER, folder) as earlier, Process(WRITER, folder) as later:
        earlier.tell("0")
        first_epochs = json.loads(earlier.hear())
        assert earlier.hear() == "busy"
        # Not paused: it writes all the time while the same program starts again under the same name.
        later.tell("1000000")
        later_epochs = json.loads(later.hear())
        told = json.loads(earlier.hear())
        assert told["by"] == "ingest"
        assert all(later_epochs[partition] > epoch for partition, epoch in first_epochs.items())
        assert later.hear() == "busy"
        with stream.writer("end"):
            told_later = json.loads(later.hear())
    assert _numbers(stream) == Counter([*told["done"], *told_later["done"]])
    _assert_epochs_never_decrease(stream)


def test_fence_racing_appends_in_flight(folder: Path, stream: laminar.Stream) -> None:
    """Many threads append as one writer while another process claims; every append is there whole, or was refused."""
    claimant = """
stream = laminar.connect(folder).stream("/numbers")
say("ready")
wait()
with stream.writer("claimant") as writer:
    writer.append([{"n": -n} for n in range(1, 101)])
    say("claimed")
    wait()
"""
    writer = stream.writer("threads")
    done: list[int] = []
    refused: list[int] = []
    unknown: list[int] = []

    def append(thread: int) -> None:
        for first in range(thread * 1_000_000, (thread + 1) * 1_000_000, 5):
            numbers = list(range(first, first + 5))
            try:
                writer.append(_rows(*numbers))
            except EpochError as error:
                (unknown if error.outcome_unknown else refused).extend(numbers)
                return
            done.extend(numbers)

    threads = [threading.Thread(target=append, args=(thread,)) for thread in range(16)]
    with Process(claimant, folder) as other:
        assert other.hear() == "ready"
        for thread in threads:
            thread.start()
        wait_until("appends are under way", lambda: len(done) > 500)
        other.tell()
        assert other.hear() == "claimed"
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        other.tell()
        other.ended()
    assert len(refused) + len(unknown) == 16 * 5
    numbers = _numbers(stream)
    assert max(numbers.values()) == 1
    there = set(numbers) - set(unknown)
    assert there == {*done, *range(-100, 0)}
    for first in unknown[::5]:
        assert sum(number in numbers for number in range(first, first + 5)) in (0, 5)
    _assert_epochs_never_decrease(stream)


def test_stream_dropped_and_created_again_with_an_old_writer_alive(db: laminar.Cluster, stream: laminar.Stream) -> None:
    old = stream.writer("old")
    old.append(_rows(1))
    batch = old.batch(query="q", batch=1)
    batch.append(_rows(2))
    db.drop_stream("/numbers")
    again = db.create_stream("/numbers", partitions=PARTITIONS, schema=SCHEMA, key="n")
    again.append(_rows(3))
    for _ in range(3):
        with pytest.raises(LaminarError) as raised:
            old.append(_rows(4))
        assert not raised.value.outcome_unknown
    with pytest.raises(LaminarError):
        batch.commit()
    # A managed handle of the stream that is gone does not write to the one that took its name.
    with pytest.raises(LaminarError):
        stream.append(_rows(5))
    old.close()
    assert _numbers(again) == Counter([3])
    # Closing the old writer did not release what is not its own.
    with again.writer("new") as new:
        new.append(_rows(6))
    assert _numbers(again) == Counter([3, 6])


def test_late_create_after_a_destroy_begins_with_ids_of_its_own(db: laminar.Cluster) -> None:
    seen_streams: set[int] = set()
    seen_partitions: set[int] = set()
    for round_number in range(5):
        stream = db.create_stream("/again", partitions=3, schema=SCHEMA, key="n")
        ids = {partition.partition_id for partition in db.status("/again").partitions}
        assert len(ids) == 3
        assert stream.stream_id not in seen_streams
        assert not ids & seen_partitions
        seen_streams.add(stream.stream_id)
        seen_partitions |= ids
        assert _numbers(stream) == Counter()
        stream.append(_rows(round_number))
        assert _numbers(stream) == Counter([round_number])
        db.drop_stream("/again")
        with pytest.raises(LaminarError):
            stream.append(_rows(99))
    assert [stream.path for stream in db.streams()] == []


def test_delayed_retry_of_a_batch_while_the_next_is_open(stream: laminar.Stream) -> None:
    with stream.writer("ingest") as writer:
        with writer.batch(query="q", batch=5) as batch:
            batch.append(_rows(1, 2))
        following = writer.batch(query="q", batch=6)
        following.append(_rows(3))
        # The retry finds that it has landed, and disturbs nothing.
        with writer.batch(query="q", batch=5) as retry:
            retry.append(_rows(1, 2))
        assert retry.duplicate
        following.append(_rows(4))
        assert not following.commit().duplicate
        # After the next one has landed it goes backwards.
        with pytest.raises(InvalidError, match="5"), writer.batch(query="q", batch=5) as late:
            late.append(_rows(1, 2))
    assert _numbers(stream) == Counter([1, 2, 3, 4])


def test_delayed_retry_by_a_superseded_run_while_the_next_batch_is_open(stream: laminar.Stream) -> None:
    old = stream.writer("ingest")
    with old.batch(query="q", batch=5) as batch:
        batch.append(_rows(1))
    with stream.writer("ingest") as writer:
        following = writer.batch(query="q", batch=6)
        following.append(_rows(2))
        retry = old.batch(query="q", batch=5)
        retry.append(_rows(1))
        with pytest.raises(StaleEpochError) as raised:
            retry.commit()
        assert raised.value.batch_committed is True
        following.commit()
    assert _numbers(stream) == Counter([1, 2])


def test_batch_refused_as_stale_says_whether_it_had_landed(folder: Path, stream: laminar.Stream) -> None:
    script = """
writer = laminar.connect(folder).stream("/numbers").writer("ingest")
with writer.batch(query="q", batch=1) as batch:
    batch.append([{"n": 1}])
say("committed")
wait()
for number in (1, 2):
    try:
        with writer.batch(query="q", batch=number) as batch:
            batch.append([{"n": number}])
        say("landed")
    except laminar.StaleEpochError as error:
        say(error.batch_committed, error.outcome_unknown)
"""
    with Process(script, folder) as zombie:
        assert zombie.hear() == "committed"
        zombie.kill(signal.SIGSTOP)
        with stream.writer("second") as second:
            second.append(_rows(3))
            zombie.kill(signal.SIGCONT)
            zombie.tell()
            # Batch 1 is there, batch 2 is not; both are refused.
            assert zombie.hear() == "True False"
            assert zombie.hear() == "False False"
    assert _numbers(stream) == Counter([1, 3])


def test_stale_batch_that_was_passed_over_is_not_said_to_have_landed(stream: laminar.Stream) -> None:
    old = stream.writer("ingest")
    open_batch = old.batch(query="q", batch=5)
    open_batch.append(_rows(5))
    with stream.writer("ingest") as writer:
        # Numbers may skip: an empty batch leaves no trace.
        with writer.batch(query="q", batch=6) as batch:
            batch.append(_rows(6))
        with pytest.raises(StaleEpochError) as raised:
            open_batch.commit()
        assert not raised.value.batch_committed
    assert _numbers(stream) == Counter([6])


def test_batch_of_a_run_that_was_not_heard_and_replaced_says_whether_it_had_landed(folder: Path) -> None:
    # It is never heard, and claims again only when it is refused: that must not hide what the refusal says.
    with laminar.open(folder, heartbeat_interval=60.0, worker_timeout=0.2) as db:
        stream = db.create_stream("/numbers", partitions=PARTITIONS, schema=SCHEMA, key="n")
        first = stream.writer("ingest")
        with first.batch(query="q", batch=1) as batch:
            batch.append(_rows(1))
        wait_until("its registration ends", lambda: all(node.state != "active" for node in _workers(db)))
        stream.writer("second").close()
        for number, landed in ((1, True), (2, False)):
            again = first.batch(query="q", batch=number)
            again.append(_rows(number))
            with pytest.raises(StaleEpochError) as raised:
                again.commit()
            assert (raised.value.batch_committed, raised.value.outcome_unknown) == (landed, False)
        assert _numbers(stream) == Counter([1])


def _workers(db: laminar.Cluster) -> list[laminar.NodeStatus]:
    return [node for node in db.nodes() if node.role == "worker"]


CLAIMANT = """
import json
stream = laminar.connect(folder).stream("/numbers")
say("ready")
while True:
    wait()
    try:
        writer = stream.writer("claimant")
        say(json.dumps({"node": writer.node_id, "epochs": writer.epochs}))
    except laminar.StaleEpochError as error:
        writer = None
        say(json.dumps({"error": str(error), "unknown": error.outcome_unknown}))
    numbers = json.loads(wait())
    try:
        if writer is not None:
            writer.append([{"n": n} for n in numbers])
        say("landed" if writer is not None else "refused")
    except laminar.StaleEpochError:
        say("refused")
"""


def test_two_claimants_at_once_one_has_all_and_the_other_nothing(
    folder: Path, db: laminar.Cluster, stream: laminar.Stream
) -> None:
    expected: list[int] = []
    lost_races = 0
    with Process(CLAIMANT, folder) as one, Process(CLAIMANT, folder) as two:
        for claimant in (one, two):
            assert claimant.hear() == "ready"
        for round_number in range(20):
            for claimant in (one, two):
                claimant.tell()
            told = [json.loads(claimant.hear()) for claimant in (one, two)]
            owners = {partition.owner for partition in db.status("/numbers").partitions}
            # All partitions are with one of them.
            assert len(owners) == 1
            assert owners <= {claim.get("node") for claim in told}
            lost_races += sum("error" in claim for claim in told)
            # Both claims may have won, one after the other: then the epochs of one are all below those of the other.
            won = sorted(list(claim["epochs"].values()) for claim in told if "epochs" in claim)
            if len(won) == 2:
                assert max(won[0]) < min(won[1]) or all(a < b for a, b in zip(*won, strict=True))
            rows = [list(range(place, place + 40)) for place in (round_number * 1000, round_number * 1000 + 500)]
            answers = []
            for claimant, numbers in zip((one, two), rows, strict=True):
                claimant.tell(json.dumps(numbers))
                answers.append(claimant.hear())
            assert sorted(answers) == ["landed", "refused"]
            expected += rows[answers.index("landed")]
    assert lost_races <= 20
    with stream.writer("end"):
        pass
    assert _numbers(stream) == Counter(expected)
    _assert_epochs_never_decrease(stream)
