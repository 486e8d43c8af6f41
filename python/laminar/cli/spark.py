"""What the commands that run on Spark share: their options, a session that is quiet, and how they end."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from laminar.errors import InternalError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = typer.Option(
    "local[*]",
    "--master",
    envvar="LAMINAR_SPARK_MASTER",
    metavar="URL",
    help="Spark's master. This machine by default.",
)
CONF = typer.Option([], "--conf", metavar="NAME=VALUE", help="A setting of Spark. May be repeated.")
PACKAGE = typer.Option(
    [], "--package", metavar="GROUP:NAME:VERSION", help="A connector by its Maven coordinates. May be repeated."
)
CREATE = typer.Option(False, "--create", help="Create the stream if it is not there, with the columns of the rows.")
PARTITIONS = typer.Option(1, "--partitions", min=1, help="With --create: how many partitions.")
KEY = typer.Option(
    [], "--key", metavar="COLUMN", help="With --create: rows of equal keys go to one partition. May be repeated."
)
MACHINE = typer.Option("log", "--machine", metavar="log|kv", help="With --create: kv keeps the newest row of each key.")


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` of an option that may be repeated."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidError(f"{option} is {text!r}; it must be NAME=VALUE")
        found[name.strip()] = value
    return found


@contextmanager
def session(name: str, master: str, conf: Sequence[str], packages: Sequence[str] = ()) -> Iterator[SparkSession]:
    """A Spark session that ends with the block. What the JVM and its workers say goes to a file.

    The file is removed at the end, unless something failed that only Spark can explain: then the error names it.
    """
    settings = pairs(conf, "--conf")
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
    from laminar.spark.session import local_session  # noqa: PLC0415 - help needs no Spark

    descriptor, log = tempfile.mkstemp(prefix="laminar-spark-", suffix=".log")
    try:
        with _stderr_to(descriptor):
            spark = _started(lambda: local_session(name, master, **settings), log)
        try:
            yield spark
        finally:
            spark.stop()
    except InternalError as error:
        error.args = (f"{error}; Spark's log is {log}",)
        log = ""
        raise
    finally:
        os.close(descriptor)
        if log:
            Path(log).unlink(missing_ok=True)


def _started(start: object, log: str) -> SparkSession:
    try:
        return start()  # type: ignore[operator,no-any-return]
    except InvalidError:
        raise
    except Exception as error:
        # PySpark raises whatever its gateway meets; the reason stands in the JVM's own words.
        said = [line.strip() for line in Path(log).read_text(errors="replace").splitlines()]
        reason = next((line for line in said if "Exception" in line or "Error" in line or "error" in line), str(error))
        raise InternalError(f"Spark did not start: {reason}") from error


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """A process that is started in the block has this as its stderr, and keeps it."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


__all__ = ["CONF", "CREATE", "KEY", "MACHINE", "MASTER", "PACKAGE", "PARTITIONS", "pairs", "session"]
