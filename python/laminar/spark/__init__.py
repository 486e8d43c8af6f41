"""Spark: ``format("laminar")`` reads and writes streams, in batches and as streaming queries.

``pip install laminar[spark]`` is all it takes. ``register`` is for set-ups in which Spark does not find the format by
itself: threads of your own that write, and a Spark Connect client without laminar on the server's path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar.spark.session import activate, local_session
from laminar.spark.versions import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar.spark.fence import Fenced, FencedFunction


def register(spark: SparkSession) -> None:
    """Make ``format("laminar")`` known to this session, and the session to this thread if that has none.

    Spark looks for formats that are written in Python in the active session of the thread that writes.
    """
    check_pyspark()
    from laminar.spark.datasource import LaminarDataSource  # noqa: PLC0415 - needs PySpark, which was checked

    spark.dataSource.register(LaminarDataSource)
    activate(spark)


def fenced(  # noqa: PLR0913 - each is a question that users have
    stream: str,
    name: str,
    fn: FencedFunction,
    *,
    endpoint: str,
    adopt_query: bool = False,
    secret: str | None = None,
) -> Fenced:
    """Wrap a function for ``foreachBatch``: one run of one query calls it, and not again for a batch that it finished.

    ``fn(frame, batch, transaction)`` writes the batch. ``stream`` is where ownership and finished batches are kept,
    ``name`` the writer. ``adopt_query`` lets a query with another checkpoint go on under the name. A run that was
    superseded fails with ``StaleEpochError``: before ``fn`` if the takeover came before, else after it. What a target
    must do to refuse a run that was paused inside ``fn`` is told in ``laminar.spark.fence``.
    """
    check_pyspark()
    from laminar.spark.fence import Fenced  # noqa: PLC0415 - needs PySpark, which was checked
    from laminar.spark.options import Place  # noqa: PLC0415

    return Fenced(Place.at(endpoint, stream, secret), name, fn, adopt_query=adopt_query)


__all__ = ["fenced", "local_session", "register"]
