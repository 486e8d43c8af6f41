"""``laminar demo``: a zombie is refused. Two writer processes, one folder, and a count that can fail."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

import laminar
from laminar.cli.demo_check import Verdict, check
from laminar.cli.demo_process import WriterProcess, end_node
from laminar.cli.stories import story_shown
from laminar.cli.units import counted, shown_time
from laminar.errors import InternalError, LaminarError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_STREAM = "/demo/orders"
_PARTITIONS = 8
_ROWS_BEFORE = 400
_ROWS_AFTER = 400
_SECOND_FIRST_ID = 1_000_000
_BATCH_FIRST_ID = 2_000_000
_BATCH_ROWS = 100


def demo(
    *,
    pause: float = typer.Option(2.0, "--pause", min=0.0, max=60.0, help="How long the first writer hangs, in seconds."),
    as_json: bool = typer.Option(False, "--json", help="Print what was counted as JSON."),
) -> None:
    """A paused writer wakes up after another took over, and is refused. Then every row is counted.

    It runs in a temporary folder with processes of its own, and leaves nothing behind.
    """
    told = _Story(Console(highlight=False, quiet=as_json)).run(pause)
    if as_json:
        typer.echo(json.dumps(told, indent=2))


class _Story:
    """The steps, told with the time that has passed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = time.monotonic()
        self._number = 0

    def run(self, pause: float) -> dict[str, Any]:
        self._console.print(
            Panel.fit("[bold]Two writers, one stream, one of them a zombie[/bold]", border_style="cyan")
        )
        with _ended_by_signals(), ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="laminar-demo-"))
            self._step(f"a folder is opened: its node is a process of its own, {_STREAM} has {_PARTITIONS} partitions")
            db = stack.enter_context(_Node(folder)).db
            stream = _created(db)
            self._say(f"[dim]{escape(folder)}, node process {db.status(partitions=False).node.pid}[/dim]")
            first, second = self._two_writers(stack, folder, pause)
            refused = self._wake(first, second)
            verdict = self._count(stream, first, second)
            self._why(db)
            once = self._batch_twice(stream, verdict)
        seconds = time.monotonic() - self._begun
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
        self._step("the first writer claims all partitions and writes")
        first = stack.enter_context(WriterProcess(f"{folder}/data", _STREAM, "first", 0))
        first.hear_until_acked(_ROWS_BEFORE)
        self._say(f"process {first.pid}, {counted(len(first.acked), 'row')} acknowledged")
        self._step("it hangs in the middle of it [dim](SIGSTOP)[/dim]; a second writer is started in its place")
        first.pause()
        paused_at = time.monotonic()
        second = stack.enter_context(WriterProcess(f"{folder}/data", _STREAM, "second", _SECOND_FIRST_ID))
        second.hear_until_acked(_ROWS_AFTER)
        while time.monotonic() < paused_at + pause:
            second.hear(0.05)
        self._say(
            f"process {second.pid} took over: every partition has the next epoch, "
            f"{counted(len(second.acked), 'row')} acknowledged"
        )
        return first, second

    def _wake(self, first: WriterProcess, second: WriterProcess) -> dict[str, Any]:
        self._step("the first wakes up [dim](SIGCONT)[/dim] and goes on where it stood: it knows of nothing")
        first.wake()
        first.hear_until_refused()
        refused = first.refused or {}
        self._say(f"[bold red]✗ {refused['refused']}[/bold red] {escape(refused['message'])}")
        if refused["refused"] != "StaleEpochError":
            raise InternalError(f"the zombie was to be refused as stale, and was told {refused['message']}")
        if refused.get("since_ms"):
            since = datetime.fromtimestamp(refused["since_ms"] / 1000, tz=timezone.utc)
            self._say(
                f"it was told who took over, [bold]{escape(str(refused['writer']))}[/bold], and when: "
                f"{shown_time(since)}"
            )
        second.stop()
        return refused

    def _count(self, stream: laminar.Stream, first: WriterProcess, second: WriterProcess) -> Verdict:
        self._step("everything is read back and compared with what the writers were told")
        rows = stream.read(include_metadata=True).read_all().to_pylist()
        verdict = check(first.acked + second.acked, first.in_doubt + second.in_doubt, rows)
        acked = len(first.acked) + len(second.acked)
        self._say(f"{acked:,} acknowledged ({len(first.acked):,} + {len(second.acked):,}), {verdict.rows:,} read")
        self._result("every acknowledged row is there: lost", len(verdict.lost))
        self._result("none is there twice: doubled", len(verdict.doubled))
        self._result("none that nobody was told of", len(verdict.unasked))
        self._result(
            "no row of the first behind the fence: epochs that fall along offsets", len(verdict.behind_the_fence)
        )
        self._result("offsets without gaps: gaps", len(verdict.gaps))
        return verdict

    def _why(self, db: laminar.Cluster) -> None:
        stories = db.why(_STREAM)
        story = next((one for one in stories if one.refused), stories[0])
        self._step(f"laminar why {_STREAM} {story.partition} tells the same story")
        self._console.print(story_shown(story), soft_wrap=True)

    def _batch_twice(self, stream: laminar.Stream, verdict: Verdict) -> bool:
        self._step("a batch is committed, the answer is lost, it is committed again")
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
            self._say(f"commit {number} of (query demo, batch 7), {_BATCH_ROWS} rows: {words}")
        self._result(
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
        self._console.print(f"\n[bold green]✓ nothing lost, nothing doubled[/bold green] [dim]({seconds:.1f} s)[/dim]")

    def _step(self, text: str) -> None:
        self._number += 1
        passed = time.monotonic() - self._begun
        self._console.print(
            f"\n[bold cyan]{self._number}[/bold cyan] [bold]{text}[/bold] [dim]{passed:.1f} s[/dim]", soft_wrap=True
        )

    def _say(self, text: str) -> None:
        self._console.print(f"   {text}", soft_wrap=True)

    def _result(self, text: str, wrong: int) -> None:
        mark = "[green]✓[/green]" if wrong == 0 else "[bold red]✗[/bold red]"
        self._say(f"{mark} {text} [bold]{wrong}[/bold]")


class _Node:
    """The detached node of a folder, which is gone when the story is."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) / "data"

    def __enter__(self) -> Self:
        try:
            self.db = laminar.open(self._folder, detached=True)
        except BaseException:
            # Also after a Ctrl-C: it may have been started by then.
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.db.close()
        except LaminarError:
            # What ends the story was said before; the node goes all the same.
            pass
        finally:
            self._end()

    def _end(self) -> None:
        pid = _node_pid(self._folder)
        if pid is not None:
            end_node(pid)


def _node_pid(folder: Path) -> int | None:
    try:
        pid: int = json.loads((folder / "node.json").read_text())["pid"]
    except (OSError, ValueError, KeyError):
        return None
    return pid


def _created(db: laminar.Cluster) -> laminar.Stream:
    import pyarrow as pa  # noqa: PLC0415 - pyarrow is imported when rows are there

    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("writer", pa.string(), nullable=False)])
    return db.create_stream(_STREAM, _PARTITIONS, schema, key="id")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A SIGTERM ends the story as a Ctrl-C does: processes and folder go."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


__all__ = ["demo"]
