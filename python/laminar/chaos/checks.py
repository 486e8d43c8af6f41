"""The rules: what must hold between what clients were told and the rows that are there. One function a rule.

Outcomes are done, refused or unknown. Unknown is never read as refused: such rows may be there once, or not at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from laminar.chaos.history import History, Operation
from laminar.chaos.log import Log

#: The most violations of one rule that are told: after a fault in earnest there are as many as rows.
VIOLATIONS_MAX = 20


@dataclass(frozen=True)
class Violation:
    """A rule that does not hold, and where."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


Rule = Callable[[History, Log], Iterator[str]]


def acknowledged_rows_are_there(history: History, log: Log) -> Iterator[str]:
    """LOG-3: every row of a done append or batch is there."""
    for operation in history:
        if _landed(operation):
            missing = log.counts(operation.row_ids).count(0)
            if missing:
                yield f"{operation.name} was acknowledged, and {missing} of its {operation.rows} rows are lost"


def acknowledged_rows_are_where_it_was_said(history: History, log: Log) -> Iterator[str]:
    """LOG-2: the offsets that an answer tells are those of its rows."""
    for operation in history:
        if not _landed(operation) or not operation.offsets:
            continue
        found: list[int] = []
        for partition, (first, end) in operation.offsets.items():
            found += log.ids.get(partition, [])[first:end]
        if sorted(found) != list(operation.row_ids):
            yield f"{operation.name} was told {dict(operation.offsets)}, where its rows are not"


def no_row_is_there_twice(history: History, log: Log) -> Iterator[str]:
    """TXN-2: an append is applied once, however often it was sent."""
    for operation in history:
        if operation.writes:
            doubled = sum(count > 1 for count in log.counts(operation.row_ids))
            if doubled:
                yield f"{operation.name} ({operation.outcome}): {doubled} of its {operation.rows} rows are doubled"


def refused_rows_are_absent(history: History, log: Log) -> Iterator[str]:
    """What was refused has not landed."""
    for operation in history:
        if operation.writes and operation.outcome == "refused":
            there = operation.rows - log.counts(operation.row_ids).count(0)
            if there:
                yield f"{operation.name} was refused ({operation.error}), and {there} of its rows are there"


def operations_are_whole_or_absent(history: History, log: Log) -> Iterator[str]:
    """TXN-1: all rows of an append or batch are there, or none, whatever its outcome."""
    for operation in history:
        if operation.writes:
            missing = log.counts(operation.row_ids).count(0)
            if 0 < missing < operation.rows:
                yield f"{operation.name} ({operation.outcome}): {missing} of its {operation.rows} rows are missing"


def rows_are_of_somebody(history: History, log: Log) -> Iterator[str]:
    """No row is there that nobody appended."""
    known = sum(sum(log.counts(operation.row_ids)) for operation in history if operation.writes)
    if known != len(log):
        yield f"{len(log)} rows are there, and {known} of them were appended by clients"
    for row in log.strange:
        yield f"row {row} is of no client"


def offsets_have_no_gaps(_: History, log: Log) -> Iterator[str]:
    """LOG-2: offsets follow one another from 0."""
    for partition, expected, found in log.breaks:
        yield f"partition {partition}: after offset {expected - 1} comes {found}"


def epochs_never_decrease(_: History, log: Log) -> Iterator[str]:
    """EPOCH-2: no row of a superseded epoch lies after a row of a newer one."""
    for partition, epochs in log.epochs.items():
        for offset, (before, after) in enumerate(pairwise(epochs), start=1):
            if after < before:
                yield f"partition {partition}: epoch {after} at offset {offset} comes after epoch {before}"


def batches_land_once(history: History, log: Log) -> Iterator[str]:
    """TXN-1: of all attempts at a (query, batch), one has landed if any was acknowledged, and never two."""
    landed: dict[tuple[str, int], int] = {}
    acknowledged: set[tuple[str, int]] = set()
    for operation in history:
        if operation.kind != "batch":
            continue
        key = (operation.query, operation.batch)
        landed[key] = landed.get(key, 0) + any(log.counts(operation.row_ids))
        if operation.outcome == "done":
            acknowledged.add(key)
    for (query, batch), count in landed.items():
        if count > 1:
            yield f"batch {batch} of query {query} has landed {count} times"
        if count == 0 and (query, batch) in acknowledged:
            yield f"batch {batch} of query {query} was acknowledged, and is lost"


def reads_see_what_is_there(history: History, log: Log) -> Iterator[str]:
    """What a read saw at an offset is what is there now: earlier reads are prefixes of later ones."""
    for operation in _reads(history):
        for partition, (start, end, seen) in operation.seen.items():
            if log.digest(partition, start, end) != seen or end > len(log.ids.get(partition, [])):
                yield f"{operation.name}: partition {partition} from {start} to {end} had other rows than now"


def reads_see_acknowledged_rows(history: History, _: Log) -> Iterator[str]:
    """A read, or a barrier, that begins after an acknowledgement sees its rows."""
    reads = sorted(_reads(history), key=lambda operation: operation.called)
    appends = (
        sorted(
            (operation.ended or 0.0, operation.offsets)
            for operation in history
            if _landed(operation) and operation.offsets
        )
        if reads
        else []
    )
    ends: dict[int, int] = {}
    place = 0
    for read in reads:
        while place < len(appends) and appends[place][0] < read.called:
            for partition, (_first, end) in appends[place][1].items():
                ends[partition] = max(end, ends.get(partition, 0))
            place += 1
        for partition, (_start, end, _digest) in read.seen.items():
            if end < ends.get(partition, 0):
                yield (
                    f"{read.name}: partition {partition} ended at {end}, and {ends[partition]} rows of it had been "
                    "acknowledged before"
                )


def barrier_reads_are_one_cut(history: History, _: Log) -> Iterator[str]:
    """A read at a barrier has exactly the rows whose global index is at most the barrier's, in every partition."""
    barriers = sorted(
        (operation for operation in _reads(history) if operation.kind == "barrier"),
        key=lambda operation: operation.global_index,
    )
    entries = sorted(
        (operation.global_index, tuple(operation.offsets.items()))
        for operation in history
        if barriers and _landed(operation) and operation.offsets
    )
    before: dict[int, int] = {}
    place = 0
    for barrier in barriers:
        while place < len(entries) and entries[place][0] <= barrier.global_index:
            for partition, (_first, end) in entries[place][1]:
                before[partition] = max(end, before.get(partition, 0))
            place += 1
        for partition, (_start, end, _digest) in barrier.seen.items():
            if end < before.get(partition, 0):
                yield (
                    f"{barrier.name} at {barrier.global_index}: partition {partition} ends at {end}, and rows up to "
                    f"{before[partition]} belong to the cut"
                )
    yield from _rows_after_the_cut(barriers, entries)
    for earlier, later in pairwise(barriers):
        for partition, (_start, end, _digest) in earlier.seen.items():
            then = later.seen[partition][1] if partition in later.seen else end
            if then < end or (then != end and earlier.global_index == later.global_index):
                yield (
                    f"{later.name} at {later.global_index}: partition {partition} ends at {then}, and at "
                    f"{earlier.global_index} it ended at {end}"
                )


def _rows_after_the_cut(
    barriers: list[Operation], entries: list[tuple[int, tuple[tuple[int, tuple[int, int]], ...]]]
) -> Iterator[str]:
    after: dict[int, int] = {}
    place = len(entries) - 1
    for barrier in reversed(barriers):
        while place >= 0 and entries[place][0] > barrier.global_index:
            for partition, (first, _end) in entries[place][1]:
                after[partition] = min(first, after.get(partition, first))
            place -= 1
        for partition, (_start, end, _digest) in barrier.seen.items():
            if partition in after and end > after[partition]:
                yield (
                    f"{barrier.name} at {barrier.global_index}: partition {partition} ends at {end}, and the row at "
                    f"{after[partition]} came later"
                )


def claims_have_epochs_of_their_own(history: History, _log: Log) -> Iterator[str]:
    """EPOCH-1: no two claims get the same epoch of a partition, and a claim that begins later gets a greater one."""
    claims: dict[int, list[tuple[float, float, int, str]]] = {}
    for operation in history:
        if operation.kind == "claim" and operation.outcome == "done" and operation.ended is not None:
            for partition, epoch in operation.epochs.items():
                claims.setdefault(partition, []).append((operation.called, operation.ended, epoch, operation.name))
    for partition, those in claims.items():
        those.sort(key=lambda claim: claim[2])
        for (_, _, epoch, name), (_, _, next_epoch, next_name) in pairwise(those):
            if epoch == next_epoch:
                yield f"partition {partition}: {name} and {next_name} both got epoch {epoch}"
        # Going down in epochs: none may have begun after one of a greater epoch had been acknowledged.
        first_ended = float("inf")
        for called, ended, epoch, name in reversed(those):
            if called > first_ended:
                yield f"partition {partition}: {name} got epoch {epoch} after a greater one was acknowledged"
            first_ended = min(first_ended, ended)


def superseded_writers_write_nothing(history: History, log: Log) -> Iterator[str]:
    """What is asked for after a claim was acknowledged lands under that claim's epoch or a later one.

    And the rows of a writer lie under the epoch that its claim gave it.
    """
    acknowledged = _acknowledged_claims(history)
    lost_answers = {
        operation.first_row for operation in history if operation.writes and operation.rows and not operation.offsets
    }
    places = log.places(lost_answers) if lost_answers else {}
    for operation in history:
        if not operation.writes:
            continue
        first_places = dict(operation.offsets)
        if not first_places and operation.first_row in places:
            partition, offset = places[operation.first_row]
            first_places = {partition: (offset, offset + 1)}
        for partition, (first, _end) in first_places.items():
            rows: Sequence[int] = log.ids.get(partition, ())
            if first >= len(rows) or rows[first] not in operation.row_ids:
                # Another rule tells this.
                continue
            epoch = log.epochs[partition][first]
            own, last = _own_epochs(operation, partition, epoch)
            if not own <= epoch <= last:
                yield f"{operation.name}: its row in partition {partition} lies under epoch {epoch}, its own is {own}"
            times, epochs = acknowledged.get(partition, ([], []))
            claims_before = bisect_left(times, operation.called)
            if claims_before and epochs[claims_before - 1] > epoch:
                yield (
                    f"{operation.name} wrote to partition {partition} under epoch {epoch}, and was called after the "
                    f"claim of epoch {epochs[claims_before - 1]} was acknowledged"
                )


def _own_epochs(operation: Operation, partition: int, epoch: int) -> tuple[int, int]:
    """The epochs under which a row of an operation may lie, from the first to the last."""
    if not operation.epochs:
        # Managed: the node knows the epoch.
        return epoch, epoch
    # One that it did not hold is none.
    own = operation.epochs.get(partition, epoch + 1)
    if operation.outcome == "done" and operation.offsets:
        return own, operation.epochs_after.get(partition, own)
    # It may have claimed again before it was answered, or killed.
    return own, max(own, epoch)


def _acknowledged_claims(history: History) -> dict[int, tuple[list[float], list[int]]]:
    """By partition: when claims were acknowledged, and the greatest epoch up to then."""
    claims: dict[int, list[tuple[float, int]]] = {}
    for operation in history:
        if operation.kind == "claim" and operation.outcome == "done" and operation.ended is not None:
            for partition, epoch in operation.epochs.items():
                claims.setdefault(partition, []).append((operation.ended, epoch))
    greatest: dict[int, tuple[list[float], list[int]]] = {}
    for partition, those in claims.items():
        times: list[float] = []
        epochs: list[int] = []
        for ended, epoch in sorted(those):
            times.append(ended)
            epochs.append(max(epoch, epochs[-1] if epochs else 0))
        greatest[partition] = (times, epochs)
    return greatest


def errors_are_those_of_the_design(history: History, _: Log) -> Iterator[str]:
    """Faults end in errors that say what to do, never in a bug's or a corruption's."""
    for operation in history:
        if operation.error.startswith(("!", "InternalError", "CorruptionError")):
            yield f"{operation.name}: {operation.error}"


def _landed(operation: Operation) -> bool:
    # A batch that had landed before may have done so with the rows of another attempt.
    return operation.writes and operation.outcome == "done" and not (operation.kind == "batch" and operation.duplicate)


def _reads(history: History) -> Iterator[Operation]:
    return (operation for operation in history if operation.kind in ("read", "barrier") and operation.outcome == "done")


RULES: tuple[Rule, ...] = (
    acknowledged_rows_are_there,
    acknowledged_rows_are_where_it_was_said,
    no_row_is_there_twice,
    refused_rows_are_absent,
    operations_are_whole_or_absent,
    rows_are_of_somebody,
    offsets_have_no_gaps,
    epochs_never_decrease,
    batches_land_once,
    reads_see_what_is_there,
    reads_see_acknowledged_rows,
    barrier_reads_are_one_cut,
    claims_have_epochs_of_their_own,
    superseded_writers_write_nothing,
    errors_are_those_of_the_design,
)


def check(history: History, log: Log) -> list[Violation]:
    """All violations of all rules, at most ``VIOLATIONS_MAX`` of each."""
    return [Violation(rule.__name__, what) for rule in RULES for what in islice(rule(history, log), VIOLATIONS_MAX)]
