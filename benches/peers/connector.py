"""Spark's connector to Kafka, for the newest PySpark: the mix of versions that resolves and runs."""

from __future__ import annotations

from pathlib import Path

from peers import maven

VERSION = "4.2.0"
COORDINATES = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def jars() -> list[Path]:
    """Its jars; gets them if they are not there."""
    return maven.jars("Kafka", f"kafka-connector-{VERSION}", COORDINATES)
