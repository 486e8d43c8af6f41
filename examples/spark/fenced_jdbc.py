"""A database table that no paused driver can write to: a row with the epoch, compared in the transaction of the rows.

sqlite3 stands in for a database behind JDBC, so that this runs anywhere; the statements are the same in PostgreSQL.

What it guarantees: every batch is in the table once. The fence row and the rows of the batch change in one
transaction of the database, and only if no later epoch and no later batch were seen. A driver that was paused
anywhere, also inside the function, finds the epoch of its successor there, and its transaction changes nothing.

What it does not: rows must go through this one transaction. ``DataFrameWriter.jdbc`` opens connections of its own in
the executors and commits each by itself, so it cannot be used for the table; let it fill a staging table named for
``transaction.id`` and move the rows from there. And a reader sees batches when they are committed, not the stream's
order.
"""

import sqlite3
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import laminar
from laminar.spark import fenced
from laminar.spark.fence import Transaction
from laminar.spark.session import local_session

TABLES = """
create table orders (id integer primary key, amount real);
create table fences (name text primary key, epoch integer not null, app text not null, version integer not null);
"""
CLAIM = """
insert into fences values ('orders', :epoch, :app, :version)
on conflict (name) do update set epoch = excluded.epoch, app = excluded.app, version = excluded.version
where fences.epoch <= excluded.epoch and (fences.app <> excluded.app or fences.version < excluded.version)
"""


class Database:
    """The table and its fence."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with sqlite3.connect(path) as connection:
            connection.executescript(TABLES)

    def write(self, frame: DataFrame, _batch: int, transaction: Transaction) -> None:
        """One micro-batch, in one transaction of the database."""
        rows = [tuple(row) for row in frame.select("id", "amount").toLocalIterator()]
        fence = {"app": transaction.app_id, "epoch": transaction.epoch, "version": transaction.version}
        with sqlite3.connect(self.path) as connection:
            if connection.execute(CLAIM, fence).rowcount == 0:
                print(f"batch {transaction.version} refused under epoch {transaction.epoch}")
                return
            connection.executemany("insert into orders values (?, ?)", rows)

    def ids(self) -> list[int]:
        with sqlite3.connect(self.path) as connection:
            return [found for (found,) in connection.execute("select id from orders order by id")]


def main(folder: Path) -> None:
    with laminar.open(folder / "data", detached=True) as db:
        db.create_stream("/fences/orders")
        database = Database(folder / "shop.db")
        pq.write_table(pa.table({"id": range(100), "amount": [1.5] * 100}), folder / "orders.parquet")
        spark = local_session("fenced-jdbc")
        seen: list[tuple[DataFrame, Transaction]] = []

        def write(frame: DataFrame, batch: int, transaction: Transaction) -> None:
            seen.append((frame.localCheckpoint(), transaction))
            database.write(frame, batch, transaction)

        query = (
            spark.readStream.schema("id long, amount double")
            .parquet(f"{folder}/*.parquet")
            .writeStream.foreachBatch(fenced("/fences/orders", "orders", write, endpoint=str(folder / "data")))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

        # What a driver does that was paused in the function, while another took over and went on: the database says no.
        frame, transaction = seen[-1]
        successor = Transaction(transaction.app_id, transaction.version + 1, transaction.epoch + 1)
        database.write(frame.where("false"), successor.version, successor)
        database.write(frame, transaction.version, transaction)
        spark.stop()
    print(f"rows: {len(database.ids())}")
    assert database.ids() == list(range(100))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
