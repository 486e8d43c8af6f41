"""Writes the micro-batches of a streaming query to a stream, each exactly once.

    plan     a process of the driver makes the writer: options and columns are checked before any task runs
    write    each task asks for the stream in the name of the run, for (query, batch), and stages its rows
    commit   a process of the driver makes the writer again and commits one entry: query, batch, run and epochs

Spark repeats a batch that is not in its own commit log, with the same query id and batch id, perhaps split differently
over tasks. So whole batches are recognised, never tasks. A run that was superseded is refused: the query fails with
``StaleEpochError``, and that run never gets the stream back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from laminar.errors import InternalError, InvalidError
from laminar.spark.columns import Columns
from laminar.spark.sink import begin, on_executor, stage, task_messages, watched
from laminar.spark.source import open_stream
from laminar.spark.task import Driver, MicroBatch, Run, TaskMessage, checkpoint_query, micro_batch
from laminar.spark.watch import Watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from laminar.spark.options import SinkOptions
    from laminar.stream import Stream


class StreamWriter(DataSourceStreamArrowWriter):
    """One ``df.writeStream``: made on the driver for a micro-batch, copied to its tasks, and made again to commit."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:  # noqa: FBT001 - Spark's
        self._writer = options.check_streaming()
        if overwrite:
            raise InvalidError(
                f"stream {options.place.stream}: output mode complete would rewrite the stream with every micro-batch; "
                "use outputMode append (with a watermark for aggregations), or foreachBatch with laminar.spark.fenced",
                stream=options.place.stream,
            )
        self._options = options
        stream = open_stream(options.place)
        self._stream_id = stream.stream_id
        self._columns = Columns.of(stream, schema)
        self._driver = Driver.here()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage what one task got, for the run that holds the stream."""
        of = micro_batch()
        stream = on_executor(self._options.place, self._stream_id)
        run = begin(stream, self._writer, of, self._driver, adopt_query=self._options.adopt_query)
        if run.committed:
            return TaskMessage(of, run, b"", 0)
        with Watch(stream, run, (of.query, of.batch)) as watch:
            batches = watched(iterator, watch)
            return TaskMessage(of, run, *stage(stream, self._columns, batches, self._options.block_bytes))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the micro-batch readable, in one entry; or recognise that it was."""
        stream = open_stream(self._options.place)
        tasks = task_messages(messages)
        if not tasks:
            self._check_order(stream, batchId)
            return
        of, run = self._agreed(tasks, batchId)
        if run is None:
            return
        if not any(task.rows for task in tasks):
            # Nothing is recorded, so nothing would be refused: a run that is over must fail all the same.
            stream._native.check_run(run.node_id, run.epochs, query=of.query, batch=of.batch)
            return
        stream._native.commit_batch(
            [task.staged for task in tasks],
            query=of.query,
            batch=of.batch,
            node_id=run.node_id,
            epochs=run.epochs,
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete nothing: Spark also aborts after a commit that failed, which may have landed all the same."""

    def _check_order(self, stream: Stream, batch: int) -> None:
        """A micro-batch without tasks writes and records nothing. That it does not go back can still be seen."""
        query = checkpoint_query(self._options.checkpoint_location)
        last = None if query is None else stream._native.last_batch(query)
        if last is not None and batch < last:
            raise InvalidError(
                f"stream {stream.path}: query {query} is at batch {batch} and batch {last} was committed; batches must "
                "not go back: another run goes on with this checkpoint, or the checkpoint was restored from a copy",
                stream=stream.path,
                value=batch,
                limit=last,
            )

    def _agreed(self, tasks: Sequence[TaskMessage], batch: int) -> tuple[MicroBatch, Run | None]:
        """What all tasks say; no run if the batch is committed, which only a task that began late may know.

        They ran in one job, so any other difference means that the stream changed meanwhile.
        """
        of, run = tasks[0].of, tasks[0].run
        if of is None or of.batch != batch or any(task.of != of for task in tasks):
            raise InternalError(f"batch {batch}: its tasks worked for {sorted({str(task.of) for task in tasks})}")
        if any(task.run.committed for task in tasks):
            return of, None
        if any(task.run != run for task in tasks):
            raise InvalidError(
                f"stream {self._options.place.stream}: the tasks of batch {batch} hold different epochs, so partitions "
                "were added meanwhile; start the query again, it repeats the batch",
                stream=self._options.place.stream,
            )
        return of, run


__all__ = ["StreamWriter"]
