"""A stream to Parquet: one consistent cut, exactly once, going on where the last export ended."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from laminar.errors import InvalidError
from laminar.spark import clients
from laminar.spark.jobs.manifest import ExportedFile, Folder, Manifest
from laminar.spark.jobs.work import Progress, Range, ranges, session, told, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import laminar

_ROWS_PER_FILE = 1_000_000
_WRITTEN = "place long, path string, bytes long"


@dataclass(frozen=True)
class Exported:
    """What an export did. ``manifests`` are those that it wrote: none if there was nothing new."""

    stream: str
    out: str
    manifests: tuple[Manifest, ...]
    seconds: float

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return sum(manifest.rows for manifest in self.manifests)


def export(  # noqa: PLR0913 - each is an option of the command
    stream: str,
    out: str,
    *,
    endpoint: str,
    secret: str | None = None,
    rows_per_file: int = _ROWS_PER_FILE,
    metadata: bool = False,
    allow_gaps: bool = False,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write the rows since the last export, up to one cut of all partitions, as Parquet.

    A run that ended in the middle is finished first, with the ranges it had planned. Nothing counts before its manifest
    is there. Rows that retention removed before they were exported are an error, or with ``allow_gaps`` a gap that the
    manifest names. One export at a time may write to a folder.
    """
    began = time.monotonic()
    if rows_per_file < 1:
        raise InvalidError(f"rows_per_file is {rows_per_file}; it must be at least 1")
    source = clients.stream_of(clients.driver(endpoint, secret=secret), stream)
    folder = Folder(out)
    place = _Place(clients.absolute(endpoint), secret, stream, folder.address)
    job = _Export(source, folder, place, spark, progress, allow_gaps=allow_gaps)
    done = []
    begun = folder.begun()
    if begun is not None:
        done.append(job.run(begun))
    plan = _planned(source, folder.newest(), out, rows_per_file, metadata=metadata)
    if plan is not None:
        done.append(job.run(plan))
    return Exported(stream, out, tuple(done), time.monotonic() - began)


@dataclass(frozen=True)
class _Place:
    """What executors need to know of both ends."""

    endpoint: str
    secret: str | None
    stream: str
    out: str


def _planned(
    source: laminar.Stream, newest: Manifest | None, out: str, rows_per_file: int, *, metadata: bool
) -> Manifest | None:
    """The rows since the newest manifest, up to a cut; nothing if there are none."""
    if newest is not None:
        _check_same(source, newest, out)
    cut = source.barrier(timeout=30.0)
    offsets = source.offsets(cut)
    before = newest.ends if newest is not None else {p: first for p, (first, _) in offsets.items()}
    starts = {partition: before.get(partition, 0) for partition in offsets}
    ends = {partition: end for partition, (_, end) in offsets.items()}
    if starts == ends:
        return None
    return Manifest(
        number=1 if newest is None else newest.number + 1,
        stream=source.path,
        stream_id=source.stream_id,
        global_index=cut.global_index,
        rows_per_file=rows_per_file,
        metadata=metadata,
        starts=starts,
        ends=ends,
    )


def _check_same(source: laminar.Stream, manifest: Manifest, out: str) -> None:
    if (manifest.stream, manifest.stream_id) != (source.path, source.stream_id):
        raise InvalidError(
            f"{out}: it holds an export of {manifest.stream} (id {manifest.stream_id}), and {source.path} has id "
            f"{source.stream_id}; export to another folder",
            stream=source.path,
        )


def _gaps(source: laminar.Stream, plan: Manifest) -> list[Range]:
    """What was to be exported and is no longer there."""
    firsts = {partition: first for partition, (first, _) in source.offsets().items()}
    return [
        Range(partition, start, min(firsts[partition], plan.ends[partition]))
        for partition, start in sorted(plan.starts.items())
        if start < min(firsts[partition], plan.ends[partition])
    ]


@dataclass(frozen=True)
class _Export:
    """One call of ``export``, which runs a plan or two."""

    source: laminar.Stream
    folder: Folder
    place: _Place
    spark: SparkSession | None
    progress: Progress | None
    _: KW_ONLY
    allow_gaps: bool

    def run(self, plan: Manifest) -> Manifest:
        """Do what a plan says, and write down that it is done."""
        _check_same(self.source, plan, self.folder.out)
        gaps = _gaps(self.source, plan)
        if gaps and not self.allow_gaps:
            raise self._lost(gaps[0])
        self.folder.begin(plan)
        # The pieces are those of the plan, also where a part of one is gone: names must not change.
        pieces = ranges(plan.starts, plan.ends, plan.rows_per_file)
        work = [(piece, left) for piece in pieces if (left := _left(piece, gaps)) is not None]
        done = dataclasses.replace(plan, files=self._written(work, plan) if work else [], gaps=gaps)
        self.folder.end(done)
        return done

    def _written(self, work: list[tuple[Range, Range]], plan: Manifest) -> list[ExportedFile]:
        spark = session(self.spark, f"laminar export {plan.stream}")
        written: dict[int, ExportedFile] = {}
        with told(), watched(spark, self.progress, sum(left.rows for _, left in work)):
            write = partial(_write_pieces, self.place, work, plan.metadata)
            for row in spark.range(0, len(work), 1, len(work)).mapInArrow(write, _WRITTEN).collect():
                left = work[row.place][1]
                written[row.place] = ExportedFile(row.path, left.partition, left.start, left.end, row.bytes)
        return [written[number] for number in sorted(written)]

    def _lost(self, gap: Range) -> InvalidError:
        return InvalidError(
            f"stream {self.source.path}, partition {gap.partition}: rows {gap.start} to {gap.end - 1} were removed "
            "before they were exported; export more often than retention, or allow gaps",
            stream=self.source.path,
            partition=gap.partition,
        )


def _left(piece: Range, gaps: list[Range]) -> Range | None:
    """What is still there of a piece."""
    start = max([piece.start, *(gap.end for gap in gaps if gap.partition == piece.partition)])
    return Range(piece.partition, start, piece.end) if start < piece.end else None


def _write_pieces(
    place: _Place,
    work: list[tuple[Range, Range]],
    metadata: bool,  # noqa: FBT001
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In an executor: write the pieces whose numbers come in. A second attempt writes the same files again."""
    source = clients.worker(place.endpoint, secret=place.secret).stream(place.stream)
    folder = Folder(place.out)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            piece, left = work[number]
            path = f"partition={piece.partition}/offsets={piece.start}-{piece.end}/rows.parquet"
            size = folder.put(path, partial(_write_rows, source, left, metadata))
            yield pa.RecordBatch.from_pydict(
                {"place": pa.array([number], pa.int64()), "path": [path], "bytes": pa.array([size], pa.int64())}
            )


def _write_rows(source: laminar.Stream, left: Range, metadata: bool, file: pa.NativeFile) -> None:  # noqa: FBT001
    reader = source.read(
        [left.partition], {left.partition: left.start}, {left.partition: left.end}, include_metadata=metadata
    )
    rows = 0
    with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    if rows != left.rows:
        raise InvalidError(
            f"stream {source.path}, partition {left.partition}: {rows} rows were read from {left.start} to {left.end}, "
            f"and there are {left.rows}; were rows removed meanwhile?",
            stream=source.path,
            partition=left.partition,
        )


__all__ = ["Exported", "export"]
