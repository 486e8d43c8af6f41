"""A local Spark for our own jobs, the demo and the tests."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from laminar.errors import InvalidError
from laminar.spark.versions import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Two hundred tasks for a shuffle are for clusters.
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
}


def local_session(app_name: str, master: str = "local[2]", **conf: str) -> SparkSession:
    """A Spark session on this machine. If this process has one already, that one, untouched.

    ``conf`` are settings of Spark, with ``_`` for ``.``: ``spark_sql_shuffle_partitions="8"``. Names with dots can be
    given as ``**{"spark.speculation": "true"}``. Where there is a session already, they are set in a new one beside it;
    those that count for all of Spark are refused by Spark then.
    """
    check_pyspark()
    from pyspark import SparkContext  # noqa: PLC0415 - importing laminar.spark needs no PySpark
    from pyspark.sql import SparkSession  # noqa: PLC0415

    given = {_dotted(name): value for name, value in conf.items()}
    if SparkContext._active_spark_context is not None:
        # In a thread without an active session, the first of the process.
        return _beside(SparkSession.getActiveSession() or SparkSession.Builder().getOrCreate(), given)
    _check_java()
    # Without these Spark runs the system's Python, which may have neither laminar nor the same version.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Spark would look for the address of this machine's name, and complain about it.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().appName(app_name).master(master)
    for name, value in {**_SETTINGS, **given}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def activate(spark: SparkSession) -> None:
    """Make it the active session of this thread, if there is none: that is where Spark looks for Python formats."""
    if spark.getActiveSession() is None:
        # Making a frame of Python's rows is what sets it.
        spark.createDataFrame([], "place long")


def _beside(there: SparkSession, given: Mapping[str, str]) -> SparkSession:
    """The session that is there: who has it does not expect that it changes."""
    if not given:
        return there
    own = there.newSession()
    for name, value in given.items():
        own.conf.set(name, value)
    return own


def _dotted(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else None
    if java is not None and not java.exists():
        raise InvalidError(f"JAVA_HOME is {home}, which has no bin/java; point it at a JDK of version 17 or newer")
    if java is None and shutil.which("java") is None:
        raise InvalidError(
            "Spark needs Java, and there is none; install a JDK of version 17 or newer, or set JAVA_HOME"
        )


__all__ = ["activate", "local_session"]
