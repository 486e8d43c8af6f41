"""Parquet files that hold every batch once: each attempt writes to a folder of its own, and a marker says which counts.

What it guarantees: whoever reads through the markers sees every batch once and whole. An attempt writes to a folder
named for its epoch and batch, which no other attempt uses. Then it creates the batch's marker, which can be created
once only: the first attempt that gets there counts, whichever driver it was. A paused driver that goes on finds the
marker, or its successor does; both hold the rows of the same offsets.

What it does not: files have no owner, so a paused driver can still write its folder, which then lies there unread;
remove folders without a marker when no query runs. ``spark.read.parquet`` of the whole folder reads those too, so
read by the markers. The marker needs a store that can create a file only if it is not there: a local or shared file
system, as here, or an object store with conditional writes.
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import laminar
from laminar.spark import fenced
from laminar.spark.fence import Transaction
from laminar.spark.session import local_session


class Table:
    """A folder of batches, and the markers that say which attempt of each counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.markers = folder / "_markers"
        self.markers.mkdir(parents=True)

    def write(self, frame: DataFrame, batch: int, transaction: Transaction) -> None:
        """One micro-batch."""
        marker = self.markers / f"{batch:020d}"
        if marker.exists():
            print(f"batch {batch} is there, epoch {transaction.epoch} writes nothing")
            return
        frame.write.mode("overwrite").parquet(str(self.folder / transaction.id))
        waiting = self.markers / f".{transaction.id}"
        waiting.write_text(transaction.id)
        try:
            # A link, unlike a rename, fails if the marker is there; and what it names is written by then.
            marker.hardlink_to(waiting)
        except FileExistsError:
            print(f"batch {batch} is there, what epoch {transaction.epoch} wrote is not read")
        waiting.unlink()

    def ids(self) -> list[int]:
        """What a reader sees."""
        attempts = [marker.read_text() for marker in sorted(self.markers.glob("[0-9]*"))]
        return sorted(pa.concat_tables(pq.read_table(self.folder / attempt) for attempt in attempts)["id"].to_pylist())


def main(folder: Path) -> None:
    with laminar.open(folder / "data", detached=True) as db:
        db.create_stream("/fences/orders")
        table = Table(folder / "orders")
        pq.write_table(pa.table({"id": range(100)}), folder / "orders.parquet")
        spark = local_session("fenced-parquet")
        seen: list[tuple[DataFrame, Transaction]] = []

        def write(frame: DataFrame, batch: int, transaction: Transaction) -> None:
            seen.append((frame.localCheckpoint(), transaction))
            table.write(frame, batch, transaction)

        query = (
            spark.readStream.schema("id long")
            .parquet(f"{folder}/*.parquet")
            .writeStream.foreachBatch(fenced("/fences/orders", "orders", write, endpoint=str(folder / "data")))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

        # What a driver does that was paused in the function, while another took over and wrote the batch.
        frame, transaction = seen[-1]
        late = Transaction(transaction.app_id, transaction.version, transaction.epoch - 1)
        table.write(frame, late.version, late)
        spark.stop()
    print(f"rows: {len(table.ids())}")
    assert table.ids() == list(range(100))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
