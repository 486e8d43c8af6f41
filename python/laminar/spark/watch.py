"""Stops a task whose run was superseded, instead of letting it finish for nothing.

This saves work and is not what keeps the stream safe: a task that is not stopped in time has its commit refused.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from laminar.errors import LaminarError, StaleEpochError

if TYPE_CHECKING:
    from typing_extensions import Self

    from laminar.spark.task import Run
    from laminar.stream import Stream

#: Seconds between two looks: four a second end a doomed task within a second.
INTERVAL = 0.25
#: Seconds one look may take before the next is tried.
PATIENCE = 1.0

# Neither Python nor PySpark uses it. Its handler raises in the main thread, also out of a read from the JVM.
_SIGNAL = signal.SIGUSR2


class Watch:
    """While it is entered, a takeover of the run's partitions raises ``StaleEpochError`` in the thread that entered.

    In the main thread, where Spark runs tasks, the error comes at once, also while that thread waits for the JVM or a
    disk. In any other thread it comes with the next ``check``.
    """

    def __init__(self, stream: Stream, run: Run, batch: tuple[str, int] | None) -> None:
        self._stream = stream
        self._run = run
        # The query and the batch, so that the error can tell whether it had landed.
        self._batch = batch
        self._ended = threading.Event()
        self._error: StaleEpochError | None = None
        self._armed = False
        self._lock = threading.Lock()
        self._task = threading.get_ident()
        self._before: Any = None

    def check(self) -> None:
        """Raise if a takeover was seen; asks nobody."""
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        self._task = threading.get_ident()
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(_SIGNAL)
            # None is a handler that was not set from Python, which could not be set again.
            if before is not None:
                self._before = before
                signal.signal(_SIGNAL, self._interrupt)
                self._armed = True
        threading.Thread(target=self._look, name="laminar-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # First, so that a signal on its way raises nothing in here.
        armed, self._armed = self._armed, False
        self._ended.set()
        with self._lock:  # the thread sends no signal from here on
            pass
        if armed:
            signal.signal(_SIGNAL, self._before)
        if kind is None:
            self.check()

    def _look(self) -> None:
        query, batch = self._batch or (None, None)
        while not self._ended.wait(INTERVAL):
            try:
                self._stream._native.check_run(
                    self._run.node_id, self._run.epochs, query=query, batch=batch, timeout=PATIENCE
                )
            except StaleEpochError as error:  # noqa: PERF203 - four rounds a second
                self._stop(error)
                return
            except LaminarError:
                # A node that does not answer says nothing about the run; the commit will.
                continue

    def _stop(self, error: StaleEpochError) -> None:
        self._error = error
        # Again until it is over: an error that is raised while Python runs a finalizer is lost.
        while not self._ended.is_set():
            with self._lock:
                if self._armed:
                    signal.pthread_kill(self._task, _SIGNAL)
            self._ended.wait(INTERVAL)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed:
            self.check()


__all__ = ["INTERVAL", "Watch"]
