"""From where to where a read goes, by partition: options against what the stream has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from laminar.errors import InvalidError
from laminar.spark.parsing import EARLIEST, LATEST

if TYPE_CHECKING:
    from laminar.spark.options import SourceOptions
    from laminar.stream import Stream

#: How long partitions may take to apply what was acknowledged.
BARRIER_SECONDS = 30.0


def of_batch(stream: Stream, options: SourceOptions) -> dict[int, tuple[int, int]]:
    """The offsets that a batch read begins and ends with: at one cut, unless the options say otherwise."""
    now = stream.barrier(timeout=BARRIER_SECONDS).global_index
    there = stream.offsets(_cut(stream, options, now))
    if options.at is not None and options.at < now and options.fail_on_data_loss:
        _check_there_since(stream, options.at, there)
    starts = begin(stream, options, there)
    ends = _chosen(stream, options.ending_offsets, options.ending_time_ms, there, "endingOffsets")
    for partition, end in ends.items():
        first, last = there[partition]
        if end > last:
            raise _beyond(stream, "endingOffsets", partition, end, last)
        # Times may be in any order, and an end among the removed rows leaves nothing to read.
        if first <= end < starts[partition] and options.ending_offsets is not None:
            raise InvalidError(
                f"stream {stream.path}, partition {partition}: the read would end at offset {end}, before it begins "
                f"at {starts[partition]}; set endingOffsets to {starts[partition]} or more",
                stream=stream.path,
                partition=partition,
            )
    return {partition: (start, max(start, ends.get(partition, start))) for partition, start in starts.items()}


def _cut(stream: Stream, options: SourceOptions, now: int) -> int:
    if options.at is not None and options.at > now:
        # Reading would wait until the log is there.
        raise InvalidError(
            f"stream {stream.path}: at is {options.at}, and the log ends at index {now}; give the index of a barrier",
            stream=stream.path,
            value=options.at,
            limit=now,
        )
    return now if options.at is None else options.at


def _check_there_since(stream: Stream, at: int, there: Mapping[int, tuple[int, int]]) -> None:
    """Refuse a cut of which a partition has nothing left: what it had then is not known any more."""
    for partition, (first, last) in there.items():
        if first >= last > 0:
            raise InvalidError(
                f"stream {stream.path}, partition {partition}: rows before offset {first} were removed by retention, a "
                f"trim or an overwrite, so none up to index {at} is left; read a later index, or set "
                "failOnDataLoss=false to do without",
                stream=stream.path,
                partition=partition,
                value=at,
                limit=first,
            )


def begin(stream: Stream, options: SourceOptions, there: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The offsets that a read begins with, by partition. Rows that were removed are an error, if they are to be."""
    starts = _chosen(stream, options.starting_offsets, options.starting_time_ms, there, "startingOffsets")
    for partition, start in starts.items():
        if start > there[partition][1]:
            raise _beyond(stream, "startingOffsets", partition, start, there[partition][1])
    return kept(stream, starts, there, fail=options.fail_on_data_loss)


def kept(
    stream: Stream, starts: Mapping[int, int], there: Mapping[int, tuple[int, int]], *, fail: bool
) -> dict[int, int]:
    """The offsets, moved up to the first row there is; an error if they are not to be moved."""
    for partition, start in starts.items():
        first = there[partition][0]
        if start < first and fail:
            raise removed(stream, partition, start, first)
    return {partition: max(start, there[partition][0]) for partition, start in starts.items()}


def removed(stream: Stream, partition: int, start: int, first: int) -> InvalidError:
    """Rows that were to be read are not there any more."""
    return InvalidError(
        f"stream {stream.path}, partition {partition}: rows from offset {start} to {first - 1} were removed by "
        f"retention, a trim or an overwrite; begin at {first}, or set failOnDataLoss=false to do without",
        stream=stream.path,
        partition=partition,
        value=start,
        limit=first,
    )


def _chosen(
    stream: Stream,
    given: int | dict[int, int] | None,
    time_ms: int | None,
    there: Mapping[int, tuple[int, int]],
    option: str,
) -> dict[int, int]:
    """An offset for each partition. Those that are not named are read whole: from the first row, or to the last."""
    if time_ms is not None:
        at_time = stream._native.offsets_for_time(time_ms)
        return {
            partition: min(max(at_time.get(partition, last), first), last) for partition, (first, last) in there.items()
        }
    whole = EARLIEST if option == "startingOffsets" else LATEST
    offsets = given if isinstance(given, dict) else {}
    for partition in offsets:
        if partition not in there:
            raise InvalidError(
                f"stream {stream.path}: {option} has partition {partition}, and there are {len(there)}; "
                f"name partitions from 0 to {len(there) - 1}",
                stream=stream.path,
                partition=partition,
            )
    unnamed = given if isinstance(given, int) else whole
    return {
        partition: _resolved(offsets.get(partition, unnamed), first, last) for partition, (first, last) in there.items()
    }


def _resolved(offset: int, first: int, last: int) -> int:
    return {EARLIEST: first, LATEST: last}.get(offset, offset)


def _beyond(stream: Stream, option: str, partition: int, offset: int, end: int) -> InvalidError:
    return InvalidError(
        f"stream {stream.path}, partition {partition}: {option} is {offset}, and the partition ends at {end}; "
        f"give {end} or less",
        stream=stream.path,
        partition=partition,
        value=offset,
        limit=end,
    )


__all__ = ["BARRIER_SECONDS", "begin", "kept", "of_batch", "removed"]
