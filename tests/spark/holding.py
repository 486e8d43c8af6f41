"""The sink as it is, with places at which a test can hold it, or have it fail.

A test puts a file named for a place into a folder; whoever comes to that place says so by a file of its own, and waits
until the test takes the first away. Imported by Spark's workers, so it stands on their path.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict

from laminar.spark.datasource import LaminarDataSource
from laminar.spark.options import SinkOptions
from laminar.spark.stream_sink import StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

DEADLINE_SECONDS = 100.0


class Control:
    """The folder in which tests and held processes meet."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def hold(self, place: str) -> None:
        """For tests: whoever comes to the place from now on waits."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / place).touch()

    def let_go(self, place: str) -> None:
        """For tests: nobody waits at the place any longer."""
        (self.folder / place).unlink()

    def break_at(self, place: str) -> None:
        """For tests: whoever comes to the place from now on fails; ``let_go`` of ``fail-PLACE`` ends it."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"fail-{place}").touch()

    def held(self, place: str) -> list[int]:
        """For tests: the processes that came to the place while it was held."""
        return sorted(int(path.suffix[1:]) for path in self.folder.glob(f"{place}.*"))

    def come(self, place: str) -> None:
        """For whoever is tested: wait here if the test says so."""
        until = time.monotonic() + DEADLINE_SECONDS
        while (self.folder / place).exists():
            (self.folder / f"{place}.{os.getpid()}").touch()
            if time.monotonic() > until:
                raise TimeoutError(f"held at {place} for too long")
            time.sleep(0.02)

    def fail(self, place: str) -> None:
        """For whoever is tested: fail here if the test says so."""
        if (self.folder / f"fail-{place}").exists():
            raise RuntimeError(f"told to fail at {place}")


class HoldingWriter(StreamWriter):
    """The streaming writer. What a test can hold or fail, for batch N.

    In tasks: ``write-N`` with the first rows, ``staged-N`` when all are staged, ``first-task-N`` the same for the first
    attempt of the first task. In the driver's process: ``commit-N`` before the commit, ``committed-N`` after it.
    """

    def __init__(self, control: str, options: SinkOptions, schema: StructType, overwrite: bool) -> None:  # noqa: FBT001
        super().__init__(options, schema, overwrite)
        self._control = Control(control)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        message = super().write(self._held(iterator, f"write-{batch}"))
        self._control.come(f"staged-{batch}")
        if context.attemptNumber() == 0:
            self._control.fail(f"staged-{batch}")
            if context.partitionId() == 0:
                self._control.come(f"first-task-{batch}")
        return message

    def _held(self, iterator: Iterator[pa.RecordBatch], place: str) -> Iterator[pa.RecordBatch]:
        self._control.come(place)
        self._control.fail(place)
        yield from iterator

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._control.come(f"commit-{batchId}")
        super().commit(messages, batchId)
        self._control.come(f"committed-{batchId}")
        self._control.fail(f"committed-{batchId}")


class HoldingSource(LaminarDataSource):
    """``format("holding")``: with option ``control``, the folder."""

    def __init__(self, options: dict[str, str]) -> None:
        given: Any = CaseInsensitiveDict(options)
        self._control = given.pop("control")
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "holding"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802 - Spark's
        return HoldingWriter(self._control, SinkOptions.of(self.options), schema, overwrite)
