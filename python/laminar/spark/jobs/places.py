"""Where jobs read from and write to: options of the format, streams that are made, frames that fit them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from laminar.errors import InvalidError
from laminar.spark import clients
from laminar.spark.jobs.text import cast_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    import laminar
    from laminar.spark.pipeline.model import Create


def place_options(endpoint: str, secret: str | None) -> dict[str, str]:
    """The options of ``format("laminar")`` that say which cluster."""
    return {"endpoint": clients.absolute(endpoint), **({} if secret is None else {"secret": secret})}


def start_options(start: str, where: str) -> dict[str, str]:
    """The options of the source that say where to begin: earliest, latest, offsets as JSON, or a time."""
    start = start.strip()
    if start in ("earliest", "latest") or start.startswith("{"):
        return {"startingOffsets": start}
    try:
        # Python 3.10 does not know the Z.
        time = datetime.fromisoformat(start[:-1] + "+00:00" if start[-1:] in ("Z", "z") else start)
    except ValueError:
        raise InvalidError(
            f'{where} is {start!r}; it must be earliest, latest, offsets such as {{"0": 5}}, or a time such as '
            "2026-01-31T12:00:00Z"
        ) from None
    zoned = time if time.utcoffset() is not None else time.replace(tzinfo=timezone.utc)
    return {"startingTimestamp": zoned.isoformat()}


def existing(db: laminar.Cluster, path: str, create: Create | None) -> laminar.Stream | None:
    """The stream, if it is there. One that is not there and that nobody is to make is an error."""
    if create is None:
        return clients.stream_of(db, path)
    return next((stream for stream in db.streams(path) if stream.path == path), None)


def target(db: laminar.Cluster, path: str, frame: DataFrame, create: Create | None) -> laminar.Stream:
    """The stream that a frame goes to. With ``create`` it is made if it is not there, with the frame's columns."""
    from laminar.spark.schemas import to_arrow  # noqa: PLC0415 - needs PySpark

    there = existing(db, path, create)
    if there is not None:
        return there
    if create is None:
        raise AssertionError("a stream that is not there and is not to be made was refused")
    for column in create.key:
        if column not in frame.columns:
            raise InvalidError(
                f"stream {path}: its key is {column!r}, and the rows have {', '.join(frame.columns)}; name one of them",
                stream=path,
                column=column,
            )
    return db.create_stream(
        path, create.partitions, to_arrow(frame.schema), list(create.key) or None, create.machine, exist_ok=True
    )


def end_of(stream: laminar.Stream) -> int:
    """Where its partitions end, added up: the difference of two is how many rows came between."""
    return sum(end for _, end in stream.offsets().values())


def fitted(frame: DataFrame, stream: laminar.Stream) -> DataFrame:
    """The frame with its columns of text cast to the types that columns of that name have in the stream.

    Text that cannot be told in the type without loss ends the job, also where Spark is set to make nulls of it. Columns
    of other types go as they are: the sink refuses what does not fit.
    """
    from pyspark.sql.functions import col  # noqa: PLC0415 - PySpark is imported when a job runs
    from pyspark.sql.types import AtomicType, StringType  # noqa: PLC0415

    from laminar.spark.schemas import to_spark  # noqa: PLC0415

    there = {field.name: field.dataType for field in to_spark(stream.schema, stream.path)}
    columns = []
    for field in frame.schema:
        column, kind = col(_quoted(field.name)), there.get(field.name)
        is_cast = isinstance(field.dataType, StringType) and isinstance(kind, AtomicType) and kind != field.dataType
        where = f"stream {stream.path}, column {field.name}"
        columns.append(cast_text(column, kind, where).alias(field.name) if is_cast and kind is not None else column)
    return frame.select(*columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


__all__ = ["end_of", "existing", "fitted", "place_options", "start_options", "target"]
