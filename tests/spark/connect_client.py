"""A Spark Connect client that reads and writes, in a process of its own: one process has one kind of session."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from laminar.spark import register


def main(endpoint: str, checkpoint: str) -> None:
    """Prints what it read and wrote, as JSON."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    found: dict[str, object] = {}
    reader = spark.read.format("laminar").option("endpoint", endpoint).option("includeMetadata", "true")
    found["batch"] = sorted(row["id"] for row in reader.load("/shop/orders").collect())
    register(spark)
    found["registered"] = reader.load("/shop/orders").count()
    stream = spark.readStream.format("laminar").option("endpoint", endpoint).option("startingOffsets", "earliest")
    query = (
        stream.load("/shop/orders")
        .writeStream.format("memory")
        .queryName("seen")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    found["stream"] = sorted(row["id"] for row in spark.table("seen").collect())
    more = spark.range(100, 150).select("id")
    more.write.format("laminar").option("endpoint", endpoint).mode("append").save("/shop/orders")
    found["written"] = reader.load("/shop/orders").count()
    copy = (
        stream.load("/shop/orders")
        .writeStream.format("laminar")
        .option("endpoint", endpoint)
        .option("writer", "copy")
        .option("checkpointLocation", f"{checkpoint}-copy")
        .trigger(availableNow=True)
        .start("/shop/copy")
    )
    copy.awaitTermination(60)
    found["copied"] = sorted(row["id"] for row in reader.load("/shop/copy").collect())
    sys.stdout.write(f"\nfound {json.dumps(found)}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
