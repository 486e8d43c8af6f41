"""Where jobs read from and write to: options of the format, streams that are made, frames that fit them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from laminar.errors import InvalidError
from laminar.spark import clients

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


def target(db: laminar.Cluster, path: str, frame: DataFrame, create: Create | None) -> laminar.Stream:
    """The stream that a frame goes to. With ``create`` it is made if it is not there, with the frame's columns."""
    from laminar.spark.schemas import to_arrow  # noqa: PLC0415 - needs PySpark

    if create is None:
        return db.stream(path)
    there = next((stream for stream in db.streams(path) if stream.path == path), None)
    if there is not None:
        return there
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


def fitted(frame: DataFrame, stream: laminar.Stream) -> DataFrame:
    """The frame with its columns cast to the types that columns of that name have in the stream.

    A value that cannot be cast ends the job: Spark's casts are strict. Which columns there may be is the sink's to say.
    """
    from pyspark.sql.functions import col  # noqa: PLC0415 - PySpark is imported when a job runs

    from laminar.spark.schemas import to_spark  # noqa: PLC0415

    there = {field.name: field.dataType for field in to_spark(stream.schema, stream.path)}
    columns = [
        col(_quoted(field.name)).cast(there[field.name]).alias(field.name)
        if field.name in there and there[field.name] != field.dataType
        else col(_quoted(field.name))
        for field in frame.schema
    ]
    return frame.select(*columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


__all__ = ["fitted", "place_options", "start_options", "target"]
