"""A Delta table written by one query: Delta keeps a batch once, and laminar sees to it that one driver writes.

What it guarantees: every batch is in the table once. Delta remembers the version of each ``txnAppId`` and leaves out
a write of one it has; two drivers that commit the same batch at the same time conflict, and one of them fails.
laminar adds an owner: a driver that was superseded is refused before it begins a batch and after, and says by whom.

What it does not: Delta does not compare epochs. A driver that is paused inside the function, and goes on before its
successor has written that batch, still writes it. The rows are those of the same offsets, so nothing is lost or
doubled, but it was not the owner who wrote them; if your function is not deterministic, its result is the one that
stays.

Needs delta-spark for the PySpark that is installed, and its jar by Maven coordinates. Without it this says so and
ends.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import laminar
from laminar.spark import fenced
from laminar.spark.fence import Transaction
from laminar.spark.session import local_session


def main(folder: Path) -> None:
    from delta import configure_spark_with_delta_pip  # noqa: PLC0415 - looked for first

    packages = configure_spark_with_delta_pip(SparkSession.builder)._options["spark.jars.packages"]  # noqa: SLF001
    spark = local_session(
        "fenced-delta",
        **{
            "spark.jars.packages": packages,
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    )
    orders = str(folder / "orders")

    def write(frame: DataFrame, _batch: int, transaction: Transaction) -> None:
        (
            frame.write.format("delta")
            .option("txnAppId", transaction.app_id)
            .option("txnVersion", transaction.version)
            .mode("append")
            .save(orders)
        )

    with laminar.open(folder / "data", detached=True) as db:
        db.create_stream("/fences/orders")
        pq.write_table(pa.table({"id": range(100)}), folder / "orders.parquet")
        query = (
            spark.readStream.schema("id long")
            .parquet(f"{folder}/*.parquet")
            .writeStream.foreachBatch(fenced("/fences/orders", "orders", write, endpoint=str(folder / "data")))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = sorted(row.id for row in spark.read.format("delta").load(orders).collect())
        spark.stop()
    print(f"rows: {len(found)}")
    assert found == list(range(100))


if __name__ == "__main__":
    if importlib.util.find_spec("delta") is None:
        print("skipped: delta-spark is not installed; pip install delta-spark, in the version for your PySpark")
        sys.exit(0)
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
