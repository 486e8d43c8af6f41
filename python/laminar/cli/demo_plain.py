"""``laminar demo --plain``: a zombie is refused. Two writer processes, one folder, and a count that can fail."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.panel import Panel

from laminar.cli.demo_check import Verdict, check
from laminar.cli.demo_process import WriterProcess
from laminar.cli.demo_story import Story, StoryNode, ended_by_signals, uninterrupted
from laminar.cli.stories import story_shown
from laminar.cli.units import counted, shown_time
from laminar.errors import InternalError

if TYPE_CHECKING:
    from rich.console import Console

    import laminar

_STREAM = "/demo/orders"
_PARTITIONS = 8
_ROWS_BEFORE = 400
_ROWS_AFTER = 400
_SECOND_FIRST_ID = 1_000_000
_BATCH_FIRST_ID = 2_000_000
_BATCH_ROWS = 100


def run(console: Console, pause: float) -> dict[str, Any]:
    """Tell the story: a writer that hangs for ``pause`` seconds, the next one, and the count."""
    return _PlainStory(console).run(pause)


class _PlainStory(Story):
    """The steps, in order."""

    def run(self, pause: float) -> dict[str, Any]:
        self.console.print(Panel.fit("[bold]Two writers, one stream, one of them a zombie[/bold]", border_style="cyan"))
        with ended_by_signals(), ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="laminar-demo-"))
            self.step(f"a folder is opened: its node is a process of its own, {_STREAM} has {_PARTITIONS} partitions")
            db = stack.enter_context(StoryNode(folder)).db
            stream = _created(db)
            self.say(f"[dim]{escape(folder)}, node process {db.status(partitions=False).node.pid}[/dim]")
            first, second = self._two_writers(stack, folder, pause)
            refused = self._wake(first, second)
            verdict = self._count(stream, first, second)
            self._why(db)
            once = self._batch_twice(stream, verdict)
        seconds = time.monotonic() - self.begun
        self._end(verdict, once=once, seconds=seconds)
        return {
            "acknowledged": len(first.acked) + len(second.acked),
            "rows": verdict.rows,
            "lost": len(verdict.lost),
            "doubled": len(verdict.doubled),
            "unasked": len(verdict.unasked),
            "behind_the_fence": len(verdict.behind_the_fence),
            "gaps": len(verdict.gaps),
            "batch_rows": _BATCH_ROWS,
            "refused": refused,
            "seconds": round(seconds, 3),
        }

    def _two_writers(self, stack: ExitStack, folder: str, pause: float) -> tuple[WriterProcess, WriterProcess]:
        self.step("the first writer claims all partitions and writes")
        with uninterrupted():
            first = stack.enter_context(WriterProcess(f"{folder}/data", _STREAM, "first", 0))
        first.hear_until_acked(_ROWS_BEFORE)
        self.say(f"process {first.pid}, {counted(len(first.acked), 'row')} acknowledged")
        self.step("it hangs in the middle of it [dim](SIGSTOP)[/dim]; a second writer is started in its place")
        first.pause()
        paused_at = time.monotonic()
        with uninterrupted():
            second = stack.enter_context(WriterProcess(f"{folder}/data", _STREAM, "second", _SECOND_FIRST_ID))
        second.hear_until_acked(_ROWS_AFTER)
        while time.monotonic() < paused_at + pause:
            second.hear(0.05)
        self.say(
            f"process {second.pid} took over: every partition has the next epoch, "
            f"{counted(len(second.acked), 'row')} acknowledged"
        )
        return first, second

    def _wake(self, first: WriterProcess, second: WriterProcess) -> dict[str, Any]:
        self.step("the first wakes up [dim](SIGCONT)[/dim] and goes on where it stood: it knows of nothing")
        first.wake()
        first.hear_until_refused()
        refused = first.refused or {}
        self.say(f"[bold red]✗ {refused['refused']}[/bold red] {escape(refused['message'])}")
        if refused["refused"] != "StaleEpochError":
            raise InternalError(f"the zombie was to be refused as stale, and was told {refused['message']}")
        if refused.get("since_ms"):
            since = datetime.fromtimestamp(refused["since_ms"] / 1000, tz=timezone.utc)
            self.say(
                f"it was told who took over, [bold]{escape(str(refused['writer']))}[/bold], and when: "
                f"{shown_time(since)}"
            )
        second.stop()
        return refused

    def _count(self, stream: laminar.Stream, first: WriterProcess, second: WriterProcess) -> Verdict:
        self.step("everything is read back and compared with what the writers were told")
        rows = stream.read(include_metadata=True).read_all().to_pylist()
        verdict = check(first.acked + second.acked, first.in_doubt + second.in_doubt, rows)
        acked = len(first.acked) + len(second.acked)
        self.say(f"{acked:,} acknowledged ({len(first.acked):,} + {len(second.acked):,}), {verdict.rows:,} read")
        self.result("every acknowledged row is there: lost", len(verdict.lost))
        self.result("none is there twice: doubled", len(verdict.doubled))
        self.result("none that nobody was told of", len(verdict.unasked))
        self.result(
            "no row of the first behind the fence: epochs that fall along offsets", len(verdict.behind_the_fence)
        )
        self.result("offsets without gaps: gaps", len(verdict.gaps))
        return verdict

    def _why(self, db: laminar.Cluster) -> None:
        stories = db.why(_STREAM)
        story = next((one for one in stories if one.refused), stories[0])
        self.step(f"laminar why {_STREAM} {story.partition} tells the same story")
        self.console.print(story_shown(story), soft_wrap=True)

    def _batch_twice(self, stream: laminar.Stream, verdict: Verdict) -> bool:
        self.step("a batch is committed, the answer is lost, it is committed again")
        rows = [{"id": _BATCH_FIRST_ID + number, "writer": "third"} for number in range(_BATCH_ROWS)]
        told = []
        with stream.writer("third") as writer:
            for _ in range(2):
                with writer.batch(query="demo", batch=7) as batch:
                    batch.append(rows)
                told.append(batch.duplicate)
        count = stream.read().read_all().num_rows - verdict.rows
        for number, duplicate in enumerate(told, 1):
            words = "[yellow]it had landed already[/yellow]" if duplicate else "it lands"
            self.say(f"commit {number} of (query demo, batch 7), {_BATCH_ROWS} rows: {words}")
        self.result(
            f"{count} rows are there, of {2 * _BATCH_ROWS} sent: rows too many or too few", abs(count - _BATCH_ROWS)
        )
        return told == [False, True] and count == _BATCH_ROWS

    def _end(self, verdict: Verdict, *, once: bool, seconds: float) -> None:
        if not verdict.holds:
            raise InternalError(
                f"the count is wrong: {len(verdict.lost)} lost, {len(verdict.doubled)} doubled, {len(verdict.unasked)} "
                f"unasked, {len(verdict.behind_the_fence)} behind the fence, {len(verdict.gaps)} gaps; please report it"
            )
        if not once:
            raise InternalError("a batch that was committed twice did not land once; please report it")
        self.console.print(f"\n[bold green]✓ nothing lost, nothing doubled[/bold green] [dim]({seconds:.1f} s)[/dim]")


def _created(db: laminar.Cluster) -> laminar.Stream:
    import pyarrow as pa  # noqa: PLC0415 - pyarrow is imported when rows are there

    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("writer", pa.string(), nullable=False)])
    return db.create_stream(_STREAM, _PARTITIONS, schema, key="id")


__all__ = ["run"]
