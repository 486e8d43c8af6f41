"""Makes ``format("laminar")`` known to Spark, which looks for modules ``pyspark_…`` that have a ``DefaultSource``."""

from laminar.spark.datasource import LaminarDataSource as DefaultSource

__all__ = ["DefaultSource"]
