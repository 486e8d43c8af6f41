"""``laminar ingest``, ``export``, ``replay`` and ``verify``: jobs on Spark."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from laminar.cli.progress import rows_bar
from laminar.cli.spark import CONF, CREATE, KEY, MACHINE, MASTER, PACKAGE, PARTITIONS, pairs, session
from laminar.cli.target import AT, JSON, SECRET, STREAM, check_target
from laminar.cli.units import position, shown_bytes
from laminar.errors import CorruptionError, InvalidError

if TYPE_CHECKING:
    from datetime import datetime

    from laminar.spark.jobs import Exported, Verified
    from laminar.spark.pipeline.model import Create

_WRITER = typer.Option(None, "--writer", "-w", metavar="NAME", help="Claim the stream as this writer.")
_ADOPT = typer.Option(False, "--adopt-query", help="Go on under the writer's name with another checkpoint.")
_FOLLOW = typer.Option(False, "--follow", help="Go on with what comes, until Ctrl-C.")
_CHECKPOINT = typer.Option(None, "--checkpoint", metavar="FOLDER", help="Where it notes how far it is, to go on from.")


def ingest(  # noqa: PLR0913 - one argument an option
    source: str = typer.Argument(..., metavar="SRC", help="A file, a folder, a pattern, a table, or a Kafka topic."),
    stream: str = STREAM,
    *,
    format_: str | None = typer.Option(
        None, "--format", "-f", metavar="FORMAT", help="parquet, csv, json, kafka, or any of Spark's; else by the name."
    ),
    option: list[str] = typer.Option([], "--option", "-o", metavar="NAME=VALUE", help="An option of the format."),
    schema: str | None = typer.Option(None, "--schema", metavar="DDL", help="Its columns, as: id long, name string."),
    create: bool = CREATE,
    partitions: int = PARTITIONS,
    key: list[str] = KEY,
    machine: str = MACHINE,
    txn_id: str | None = typer.Option(None, "--txn-id", metavar="ID", help="However often it is sent, it lands once."),
    follow: bool = _FOLLOW,
    checkpoint: str | None = _CHECKPOINT,
    writer: str | None = _WRITER,
    adopt_query: bool = _ADOPT,
    master: str = MASTER,
    conf: list[str] = CONF,
    package: list[str] = PACKAGE,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Write what Spark reads into a stream: all rows or none; or with --follow as they come, exactly once.

    Columns are cast to the types of the stream's columns of the same name.
    """
    from laminar.spark import jobs  # noqa: PLC0415 - help needs no Spark

    made = _create(create=create, partitions=partitions, key=key, machine=machine)
    options = pairs(option, "--option")
    jobs.check_ingest(source, format_, follow=follow, checkpoint=checkpoint, txn_id=txn_id)
    check_target(at, create=create)
    if not create:
        _check_stream(at, secret, stream)
    with session(f"laminar ingest {stream}", master, conf, package) as spark, rows_bar("ingesting") as draw:
        done = jobs.ingest(
            source,
            stream,
            endpoint=at,
            secret=secret,
            format=format_,
            options=options,
            schema=schema,
            create=made,
            writer=writer,
            adopt_query=adopt_query,
            txn_id=txn_id,
            follow=follow,
            checkpoint=checkpoint,
            spark=spark,
            progress=draw,
        )
    note = "it had landed before; nothing was written" if done.duplicate else None
    _summary(dataclasses.asdict(done), as_json=as_json, note=note)


def export(  # noqa: PLR0913 - one argument an option
    stream: str = STREAM,
    out: str = typer.Argument(..., metavar="OUT", help="The folder, or s3://, gs:// or hdfs://."),
    *,
    rows_per_file: int = typer.Option(1_000_000, "--rows-per-file", min=1, help="The most rows of a file."),
    metadata: bool = typer.Option(False, "--metadata", "-m", help="Add _partition, _offset, _timestamp and _epoch."),
    allow_gaps: bool = typer.Option(False, "--allow-gaps", help="Rows that were removed before are no error."),
    master: str = MASTER,
    conf: list[str] = CONF,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Write the rows since the last export as Parquet, up to one consistent cut of all partitions.

    A run that was killed is finished by the next. Only what the manifests in OUT name counts.
    """
    from laminar.spark import jobs  # noqa: PLC0415 - help needs no Spark

    _check_stream(at, secret, stream)
    with session(f"laminar export {stream}", master, conf) as spark, rows_bar("exporting") as draw:
        done = jobs.export(
            stream,
            out,
            endpoint=at,
            secret=secret,
            rows_per_file=rows_per_file,
            metadata=metadata,
            allow_gaps=allow_gaps,
            spark=spark,
            progress=draw,
        )
    told = _exported(done)
    gaps = sum(len(manifest.gaps) for manifest in done.manifests)
    note = "nothing is new" if not done.manifests else f"{gaps} gaps: rows removed before the export" if gaps else None
    _summary(told, as_json=as_json, note=note)


def _exported(done: Exported) -> dict[str, Any]:
    files = [file for manifest in done.manifests for file in manifest.files]
    return {
        "stream": done.stream,
        "out": done.out,
        "rows": done.rows,
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
        "global_index": done.manifests[-1].global_index if done.manifests else None,
        "seconds": done.seconds,
    }


def replay(  # noqa: PLR0913 - one argument an option
    stream: str = STREAM,
    *,
    to: str = typer.Option(..., "--to", metavar="STREAM", help="The stream to write."),
    checkpoint: str = typer.Option(..., "--checkpoint", metavar="FOLDER", help="Where it notes how far it is."),
    start: str = typer.Option(
        "earliest",
        "--from",
        metavar="PLACE",
        help='earliest, latest, offsets such as {"0": 5}, a time, or how long ago (15m). Counts for the first run.',
    ),
    sql: str | None = typer.Option(None, "--sql", metavar="SQL", help="What becomes of it: select … from input."),
    create: bool = CREATE,
    partitions: int = PARTITIONS,
    key: list[str] = KEY,
    machine: str = MACHINE,
    follow: bool = _FOLLOW,
    writer: str | None = _WRITER,
    adopt_query: bool = _ADOPT,
    master: str = MASTER,
    conf: list[str] = CONF,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Derive a stream from another, exactly once; a run with the same checkpoint goes on where the last ended."""
    from laminar.spark import jobs  # noqa: PLC0415 - help needs no Spark

    made = _create(create=create, partitions=partitions, key=key, machine=machine)
    place = _start(start)
    _check_stream(at, secret, stream)
    if not create:
        _check_stream(at, secret, to)
    with session(f"laminar replay {stream}", master, conf) as spark, rows_bar("replaying") as draw:
        done = jobs.replay(
            stream,
            to,
            endpoint=at,
            checkpoint=checkpoint,
            secret=secret,
            start=place,
            sql=sql,
            create=made,
            writer=writer,
            adopt_query=adopt_query,
            follow=follow,
            spark=spark,
            progress=draw,
        )
    _summary(dataclasses.asdict(done), as_json=as_json)


def _start(text: str) -> str:
    if text.strip().startswith("{"):
        return text
    place: str | int | datetime = position(text, "--from", ("earliest", "latest"))
    if isinstance(place, int):
        raise InvalidError(f'--from is {text}; offsets are given by partition, such as {{"0": {text}}}')
    return place if isinstance(place, str) else place.isoformat()


def verify(  # noqa: PLR0913 - one argument an option
    stream: str = STREAM,
    *,
    rows_per_split: int = typer.Option(1_000_000, "--rows-per-split", min=1, help="The most rows of a task."),
    master: str = MASTER,
    conf: list[str] = CONF,
    at: str = AT,
    secret: str | None = SECRET,
    as_json: bool = JSON,
) -> None:
    """Read and check every block, record, offset and epoch of a stream. Exit 1 with the first bad place."""
    from laminar.spark import jobs  # noqa: PLC0415 - help needs no Spark

    _check_stream(at, secret, stream)
    with session(f"laminar verify {stream}", master, conf) as spark, rows_bar("verifying") as draw:
        done = jobs.verify(
            stream, endpoint=at, secret=secret, rows_per_split=rows_per_split, spark=spark, progress=draw
        )
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(done), indent=2))
    else:
        Console(highlight=False).print(_verified(done))
    fault = done.fault
    if fault is not None:
        raise CorruptionError(
            f"stream {stream}, partition {fault.partition}, offset {fault.offset}: {fault.what}",
            stream=stream,
            partition=fault.partition,
        )


def _verified(done: Verified) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("partition", "offsets", "rows", "records", "blocks", "bytes", "epochs", "misplaced"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for one in done.partitions:
        epochs = "none" if one.first_epoch is None else f"{one.first_epoch} to {one.last_epoch}"
        table.add_row(
            str(one.partition),
            f"{one.start} to {one.end}",
            f"{one.rows:,}",
            f"{one.records:,}",
            f"{one.blocks:,}",
            shown_bytes(one.bytes),
            epochs,
            f"{one.misplaced:,}",
            Text("sound", style="green") if one.fault is None else Text("bad", style="red"),
        )
    return table


def _check_stream(at: str, secret: str | None, stream: str) -> None:
    """Refuse a stream that is not there before Spark starts, which takes seconds."""
    from laminar.spark import clients  # noqa: PLC0415 - help needs no Spark

    check_target(at)
    clients.stream_of(clients.driver(at, secret=secret), stream)


def _create(*, create: bool, partitions: int, key: list[str], machine: str) -> Create | None:
    from laminar.spark.pipeline.model import Create  # noqa: PLC0415 - help needs no Spark

    if create:
        return Create(partitions=partitions, key=tuple(key), machine=machine)
    if key or partitions != 1 or machine != "log":
        raise InvalidError("--partitions, --key and --machine are for a stream that is made; give --create too")
    return None


def _summary(told: dict[str, Any], *, as_json: bool, note: str | None = None) -> None:
    """What was done: a table for people."""
    told["seconds"] = round(told["seconds"], 3)
    if as_json:
        typer.echo(json.dumps(told))
        return
    console = Console(highlight=False)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in told.items():
        if name == "bytes":
            shown = shown_bytes(value)
        elif isinstance(value, bool):
            shown = "yes" if value else "no"
        else:
            shown = f"{value:,}" if isinstance(value, int) else "none" if value is None else str(value)
        grid.add_row(name.replace("_", " "), Text(shown))
    console.print(grid)
    if note:
        console.print(Text(note, style="yellow"))


__all__ = ["export", "ingest", "replay", "verify"]
