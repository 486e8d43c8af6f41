"""``laminar why``, ``resume``, ``skip`` and ``trim``: what happened to a partition, and what is done about it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from laminar.cli.target import AT, JSON, SECRET, STREAM, YES, confirm, opened
from laminar.cli.units import counted, printable, shown_time
from laminar.errors import InvalidError

if TYPE_CHECKING:
    from laminar.status import PartitionStatus, PartitionStory

_PARTITION = typer.Argument(..., metavar="PARTITION", min=0, help="The stream's partition, from 0.")


def why(
    stream: str = STREAM,
    partition: int | None = typer.Argument(None, metavar="[PARTITION]", min=0, help="Only this one, from 0."),
    *,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Tell who owned partitions when, at which epoch, who fenced whom, and which writes were refused."""
    with opened(at, secret) as db:
        stories = db.why(stream, partition)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(story, dict_factory=_dated) for story in stories], indent=2))
        return
    console = Console(highlight=False)
    for story in stories:
        console.print(story_shown(story), soft_wrap=True)


def story_shown(story: PartitionStory) -> RenderableType:
    """A story in colours: what was refused is red."""
    head, *_ = str(story).splitlines()
    lines = [Text(printable(head), style="bold")]
    lines += [Text(printable(f"  {step}")) for step in story.steps]
    if story.refused:
        count = counted(story.refused, "write")
        lines.append(Text(f"  {count} refused since {shown_time(story.refused_since)}, the last:", style="red"))
        lines += [Text(printable(f"  {refused}"), style="red") for refused in story.last_refused]
    return Group(*lines)


def resume(
    stream: str = STREAM,
    partition: int = _PARTITION,
    *,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Let a paused partition try again."""
    with opened(at, secret) as db:
        resumed = db.resume(stream, partition)
    if as_json:
        typer.echo(json.dumps({"stream": stream, "partition": partition, "resumed": resumed}))
    else:
        typer.echo(f"partition {partition} of {stream} {'tries again' if resumed else 'was not paused'}")


def skip(  # noqa: PLR0913 - one argument an option
    stream: str = STREAM,
    partition: int = _PARTITION,
    index: int = typer.Argument(..., metavar="INDEX", min=0, help="The record, as laminar status shows it."),
    *,
    yes: bool = YES,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Leave out a record that its machine cannot apply, for good."""
    with opened(at, secret) as db:
        _check_stands_at(db.status(stream).partitions, stream, partition, index)
        confirm(f"Leave out record {index} of partition {partition} of {stream}, for good?", yes=yes)
        db.skip(stream, partition, index)
    if as_json:
        typer.echo(json.dumps({"stream": stream, "partition": partition, "skipped": index}))
    else:
        typer.echo(f"record {index} of partition {partition} of {stream} is left out")


def _check_stands_at(told: Sequence[PartitionStatus], stream: str, partition: int, index: int) -> None:
    """A record that its machine would apply is not to be lost by a slip of the hand."""
    found = next((one for one in told if one.partition == partition), None)
    if found is None:
        raise InvalidError(f"stream {stream}: there is no partition {partition}; it has {len(told)}, from 0")
    if not found.paused:
        raise InvalidError(f"partition {partition} of {stream} is not paused; there is nothing to leave out")
    if found.paused_at != index:
        raise InvalidError(
            f"partition {partition} of {stream} stands at record {found.paused_at}, not at {index}; name that one"
        )


def trim(  # noqa: PLR0913 - one argument an option
    stream: str = STREAM,
    partition: int = _PARTITION,
    offset: int = typer.Argument(..., metavar="OFFSET", min=0, help="The first row that stays."),
    *,
    yes: bool = YES,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Remove the rows of a partition before an offset, for good."""
    with opened(at, secret) as db:
        target = db.stream(stream)
        first = target.offsets().get(partition, (0, 0))[0]
        rows = counted(max(0, offset - first), "row")
        confirm(f"Remove {rows} of partition {partition} of {stream}, those before offset {offset}?", yes=yes)
        begins = target.trim(partition, offset)
    if as_json:
        typer.echo(json.dumps({"stream": stream, "partition": partition, "start_offset": begins}))
    else:
        typer.echo(f"partition {partition} of {stream} begins at offset {begins}")


def _dated(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in items}


__all__ = ["resume", "skip", "story_shown", "trim", "why"]
