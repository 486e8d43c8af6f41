"""``laminar demo``: two Spark drivers, one checkpoint, one of them a zombie; once into laminar, once into Parquet."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from laminar.cli.demo_check import Verdict, check
from laminar.cli.demo_drivers import DriverProcess
from laminar.cli.demo_story import Story, StoryNode, ended_by_signals, uninterrupted
from laminar.cli.stories import story_shown
from laminar.errors import InternalError, UnavailableError

if TYPE_CHECKING:
    from rich.console import Console

    import laminar

_STREAM = "/demo/orders"
_PARTITIONS = 4
_FILES = 6
_FILE_ROWS = 1000
#: The batch that the first driver hangs in.
_HANGS_IN = 2
#: The files' times: the order in which Spark reads them.
_FIRST_FILE_TIME = 1_700_000_000


@dataclass(frozen=True)
class _Count:
    """What came out of a query, against what went in."""

    rows: int
    doubled: int
    lost: int


def run(console: Console, pause: float) -> dict[str, Any]:
    """Tell the story: a driver that hangs for at least ``pause`` seconds, the next one, and the counts."""
    return _SparkStory(console).run(pause)


class _SparkStory(Story):
    """The steps, in order."""

    def run(self, pause: float) -> dict[str, Any]:
        self.console.print(
            Panel.fit("[bold]Two Spark drivers, one checkpoint, one of them a zombie[/bold]", border_style="cyan")
        )
        with ended_by_signals(), ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="laminar-demo-"))
            node = stack.enter_context(StoryNode(folder))
            stream = self._prepare(node, folder)
            first = self._first(stack, folder, node.path)
            self._second(stack, folder, node.path, first, pause)
            refused = self._wake(folder, first)
            verdict, parquet = self._count(stream, folder)
            self._compare(verdict, parquet, first)
            self._why(node.db)
        seconds = time.monotonic() - self.begun
        self._end(verdict, seconds)
        return {
            "input": _FILES * _FILE_ROWS,
            "laminar": {"rows": verdict.rows, "doubled": len(verdict.doubled), "lost": len(verdict.lost)},
            "parquet": {"rows": parquet.rows, "doubled": parquet.doubled, "lost": parquet.lost},
            "behind_the_fence": len(verdict.behind_the_fence),
            "gaps": len(verdict.gaps),
            "refused": refused,
            "seconds": round(seconds, 3),
        }

    def _prepare(self, node: StoryNode, folder: str) -> laminar.Stream:
        self.step(f"{_FILES} files of {_FILE_ROWS:,} orders are the input, {_STREAM} has {_PARTITIONS} partitions")
        _write_input(Path(folder) / "input")
        pid = node.db.status(partitions=False).node.pid
        self.say(f"[dim]{escape(folder)}, node process {pid}[/dim]")
        return _created(node.db)

    def _first(self, stack: ExitStack, folder: str, endpoint: str) -> DriverProcess:
        self.step("the first driver runs two streaming queries over it, one file a micro-batch")
        self.say('one writes [bold]format("laminar")[/bold], the other appends to Parquet in foreachBatch')
        with uninterrupted():
            first = stack.enter_context(DriverProcess(folder, endpoint, _STREAM, "first", hangs_in=_HANGS_IN))
        first.hear_until(lambda: len(first.held) == 2, f"both queries in batch {_HANGS_IN}")
        self.say(f"process {first.pid}; both have committed batches 0 to {_HANGS_IN - 1}")
        first.pause()
        self.step(f"it hangs inside batch {_HANGS_IN} [dim](SIGSTOP)[/dim]")
        return first

    def _second(self, stack: ExitStack, folder: str, endpoint: str, first: DriverProcess, pause: float) -> None:
        paused_at = time.monotonic()
        self.step("its scheduler starts a second driver on the same checkpoints")
        with uninterrupted():
            second = stack.enter_context(DriverProcess(folder, endpoint, _STREAM, "second"))
        second.hear_until(lambda: len(second.ended) == 2, "the end of both queries")
        for name, ended in second.ended.items():
            if ended["error"] is not None:
                raise UnavailableError(f"the second driver's query {name} failed: {ended['message']}")
        second.hear_to_its_end()
        while (left := paused_at + pause - time.monotonic()) > 0:
            time.sleep(left)
        self.say(
            f"process {second.pid} did batch {_HANGS_IN} again and all that follow: the input is used up; "
            f"the first has hung for {time.monotonic() - paused_at:.0f} s"
        )
        if first.ended:
            raise InternalError("the first driver was to hang, and has ended; please report it")

    def _wake(self, folder: str, first: DriverProcess) -> dict[str, Any]:
        self.step("the first wakes up [dim](SIGCONT)[/dim] in the middle of its batch: it knows of nothing")
        (Path(folder) / "go").touch()
        first.wake()
        first.hear_until(lambda: len(first.ended) == 2, "the end of both queries")
        refused = first.ended["laminar"]
        self.say(f"laminar: [bold red]✗ {refused['error']}[/bold red] {escape(str(refused['message']))}")
        if refused["error"] != "StaleEpochError":
            raise InternalError(f"the zombie was to be refused as stale, and was told {refused['message']}")
        wrote = "its batch was written" if first.wrote else "its batch was not written"
        ended = first.ended["parquet"]
        after = f"; then Spark said {escape(str(ended['error']))}, too late" if ended["error"] else ""
        self.say(f"Parquet: [yellow]nobody stopped it, {wrote}[/yellow]{after}")
        return refused

    def _count(self, stream: laminar.Stream, folder: str) -> tuple[Verdict, _Count]:
        self.step("everything is read back and compared with the input, row for row")
        ids = range(_FILES * _FILE_ROWS)
        rows = stream.read(include_metadata=True).read_all().to_pylist()
        verdict = check(ids, [], rows)
        parquet = _count(_parquet_ids(Path(folder) / "parquet"), ids)
        self.result("laminar, no row of the first behind the fence: epochs that fall", len(verdict.behind_the_fence))
        self.result("laminar, offsets without gaps: gaps", len(verdict.gaps))
        return verdict, parquet

    def _compare(self, verdict: Verdict, parquet: _Count, first: DriverProcess) -> None:
        def number(value: int) -> str:
            return f"[green]{value:,}[/green]" if value == 0 else f"[bold red]{value:,}[/bold red]"

        table = Table(title="what came out", title_justify="left", show_edge=True)
        for head in ("", 'format("laminar")', "foreachBatch, Parquet"):
            table.add_column(head, justify="right" if head else "left")
        table.add_row("rows in the input", *[f"{_FILES * _FILE_ROWS:,}"] * 2)
        table.add_row("rows that came out", f"{verdict.rows:,}", f"{parquet.rows:,}")
        table.add_row("doubled", number(len(verdict.doubled)), number(parquet.doubled))
        table.add_row("lost", number(len(verdict.lost)), number(parquet.lost))
        table.add_row(
            "the driver that woke up", "[green]refused[/green]", "wrote again" if first.wrote else "did not write"
        )
        self.console.print()
        self.console.print(table)

    def _why(self, db: laminar.Cluster) -> None:
        stories = db.why(_STREAM)
        story = next((one for one in stories if one.refused), stories[0])
        self.step(f"laminar why {_STREAM} {story.partition} tells the same story")
        self.console.print(story_shown(story), soft_wrap=True)

    def _end(self, verdict: Verdict, seconds: float) -> None:
        if not verdict.holds:
            raise InternalError(
                f"the count is wrong: {len(verdict.lost)} lost, {len(verdict.doubled)} doubled, {len(verdict.unasked)} "
                f"unasked, {len(verdict.behind_the_fence)} behind the fence, {len(verdict.gaps)} gaps; please report it"
            )
        self.console.print(f"\n[bold green]✓ nothing lost, nothing doubled[/bold green] [dim]({seconds:.1f} s)[/dim]")


def _write_input(folder: Path) -> None:
    folder.mkdir()
    for number in range(_FILES):
        first = number * _FILE_ROWS
        lines = [json.dumps({"id": first + row, "amount": (row * 37 % 1000) / 10}) for row in range(_FILE_ROWS)]
        path = folder / f"orders-{number}.json"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (_FIRST_FILE_TIME + number, _FIRST_FILE_TIME + number))


def _created(db: laminar.Cluster) -> laminar.Stream:
    import pyarrow as pa  # noqa: PLC0415 - pyarrow is imported when rows are there

    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.float64())])
    return db.create_stream(_STREAM, _PARTITIONS, schema, key="id")


def _parquet_ids(folder: Path) -> list[int]:
    from pyarrow import dataset  # noqa: PLC0415 - pyarrow is imported when rows are there

    ids: list[int] = dataset.dataset(folder, format="parquet").to_table(columns=["id"])["id"].to_pylist()
    return ids


def _count(there: list[int], expected: Iterable[int]) -> _Count:
    counts = Counter(there)
    return _Count(
        rows=len(there),
        doubled=sum(1 for count in counts.values() if count > 1),
        lost=sum(1 for number in expected if number not in counts),
    )


__all__ = ["run"]
