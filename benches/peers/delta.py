"""Delta Lake beside us: on the newest PySpark that it supports, in an environment of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from peers import maven

PYSPARK = "4.2.0"
VERSION = "4.4.0"
COORDINATES = (
    f"io.delta:delta-spark_4.2_2.13:{VERSION}",
    f"io.delta:delta-storage:{VERSION}",
    f"io.delta:delta-kernel-api:{VERSION}",
    f"io.delta:delta-kernel-defaults:{VERSION}",
    f"io.delta:delta-kernel-unitycatalog:{VERSION}",
    "io.unitycatalog:unitycatalog-client:0.6.0",
    "io.unitycatalog:unitycatalog-hadoop:0.6.0",
)
CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Tuned: by default a micro-batch takes seconds.
    "spark.databricks.delta.snapshotPartitions": "2",
}


@dataclass(frozen=True)
class Delta:
    """What a driver needs for it."""

    python: Path
    jars: list[Path]


def get() -> Delta:
    """Delta's jars and a PySpark that they run on; gets them if they are not there."""
    name = f"delta-{VERSION}"
    jars = maven.jars("Delta", name, COORDINATES)
    return Delta(maven.interpreter("Delta", name, [f"pyspark=={PYSPARK}"]), jars)
