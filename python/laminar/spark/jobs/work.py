"""What jobs share: a session, ranges of rows, a bar that follows Spark's tasks, and Spark's failures in one line."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from laminar import errors
from laminar.errors import InternalError, InvalidError, LaminarError
from laminar.spark.ranges import Range, ranges
from laminar.spark.session import activate, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Called with rows done, and the part of the whole from 0 to 1 if that is known.
Progress: TypeAlias = Callable[[int, float | None], None]

_POLL_SECONDS = 0.2
_OURS = re.compile(r"laminar\.errors\.(\w+): (.*)")
#: What Spark calls its errors, with what it says. Where one is told inside another, the inner one.
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ((?:(?!\[[A-Z][A-Z0-9_.]+\] ).)+?)\s*SQLSTATE: (\w{5})", re.DOTALL)
_RAISED = "USER_RAISED_EXCEPTION"
#: Says only which file it was; what was wrong with it is told as the cause.
_UNREADABLE = "FAILED_READ_FILE"
_CAUSES_MAX = 10
_HEADER = re.compile(
    r"CSV header does not conform to the schema\.\s+Header: (.*)\s+Schema: (.*)\s(?:.*\s)*?CSV file: (\S*)"
)
#: Classes of SQLSTATE that blame what was asked or the data: features that there are not, wrong values, wrong SQL.
_USERS_STATES = ("0A", "22", "23", "42", "P0")
_PYTHON = re.compile(r"[A-Za-z_.]+(Error|Exception): ")


def session(spark: SparkSession | None, name: str) -> SparkSession:
    """The session that was given, or a local one."""
    spark = spark or local_session(name)
    # This may be a thread of the caller.
    activate(spark)
    return spark


@contextmanager
def watched(spark: SparkSession, progress: Progress | None, rows: int = 0) -> Iterator[None]:
    """Tell ``progress`` how many of Spark's tasks are done, while the block runs."""
    tracker = _tracker(spark) if progress is not None else None
    if tracker is None or progress is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            tasks = sum(stage.numTasks for stage in stages if stage)
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            if tasks:
                progress(rows * done // tasks, done / tasks)

    watcher = threading.Thread(target=watch, daemon=True, name="laminar-progress")
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _tracker(spark: SparkSession) -> Any:
    try:
        return spark.sparkContext.statusTracker()
    except Exception:  # noqa: BLE001 - a session of Spark Connect has none, and says so in several ways
        return None


@contextmanager
def told() -> Iterator[None]:
    """Spark's failures as laminar's: what laminar raised in a worker, or the first line of what Spark says."""
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415 - PySpark is imported when a job runs

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise failure(error) from error


def failure(error: Exception) -> LaminarError:
    """What went wrong, in one line. Spark hands the errors of its workers on as text only."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        name, message = ours[-1]
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, LaminarError):
            return kind(message.strip())
    causes = _with_causes(error)
    header = _HEADER.search(causes)
    if header is not None:
        return InvalidError(
            f"{header[3]}: its header has the columns {header[1]}, and {header[2]} are expected; give all files the "
            "same columns in the same order"
        )
    conditions = list(_CONDITION.finditer(causes))
    if conditions:
        condition = next((one for one in conditions if not one[1].startswith(_UNREADABLE)), conditions[0])
        message = " ".join(condition[2].split())
        if condition[1] == _RAISED:
            return InvalidError(message)
        wrong = condition[3].startswith(_USERS_STATES)
        return InvalidError(f"Spark refused it: {message}") if wrong else InternalError(f"Spark failed: {message}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The last line of a traceback says what happened, the first only that something did.
    python = next((line for line in reversed(lines) if _PYTHON.match(line)), None)
    return InternalError(f"Spark failed: {python or (lines[0] if lines else type(error).__name__)}")


def _with_causes(error: BaseException | None) -> str:
    """What it says, and what was below it. Of a streaming query PySpark keeps the causes apart from the text."""
    texts: list[str] = []
    while error is not None and len(texts) < _CAUSES_MAX:
        texts.append(str(error))
        error = getattr(error, "_cause", None)
    return "\n".join(texts)


__all__ = ["Progress", "Range", "failure", "ranges", "session", "told", "watched"]
