"""The relations of a pipeline as DataFrames, with their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar.spark.jobs.files import FILE_DEFAULTS
from laminar.spark.jobs.places import place_options, start_options
from laminar.spark.pipeline.load import function_of
from laminar.spark.pipeline.model import (
    Check,
    FilesSource,
    KafkaSource,
    Pipeline,
    RateSource,
    Source,
    SqlTransform,
    StreamSource,
    Transform,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from laminar.spark.pipeline.graph import Output

#: The column that says which check a row failed first.
_VERDICT = "_check"
_SHOWN_ROW_LENGTH = 500


class Relations:
    """The relations of one pipeline, made when they are asked for. In a session of its own: its views are its own."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, endpoint: str | None, secret: str | None) -> None:
        self._spark = spark.newSession()
        self._pipeline = pipeline
        self._endpoint = endpoint
        self._secret = secret
        self._judged: dict[str, DataFrame] = {}
        self._passed: dict[str, DataFrame] = {}

    def frame(self, output: Output) -> DataFrame:
        """The rows that an output writes."""
        from pyspark.sql.functions import col  # noqa: PLC0415 - PySpark is imported when a pipeline runs

        if not output.rejected_by:
            return self._passing(output.sink.input)
        return self._judging(output.sink.input).where(col(_VERDICT).isin(*output.rejected_by))

    def _passing(self, name: str) -> DataFrame:
        """What whoever reads the relation sees."""
        from pyspark.sql.functions import col  # noqa: PLC0415

        found = self._passed.get(name)
        if found is None:
            judged = self._judging(name)
            checked = any(check.on == name for check in self._pipeline.checks)
            found = judged.where(col(_VERDICT).isNull()).drop(_VERDICT) if checked else judged
            found.createOrReplaceTempView(name)
            self._passed[name] = found
        return found

    def _judging(self, name: str) -> DataFrame:
        """All rows of the relation, with the name of the first check that each failed, if it has checks."""
        found = self._judged.get(name)
        if found is None:
            source = next((source for source in self._pipeline.sources if source.name == name), None)
            frame = self._transformed(name) if source is None else self._read(source)
            checks = [check for check in self._pipeline.checks if check.on == name]
            found = frame.withColumn(_VERDICT, _verdict(checks, frame)) if checks else frame
            self._judged[name] = found
        return found

    def _transformed(self, name: str) -> DataFrame:
        transform: Transform = next(one for one in self._pipeline.transforms if one.name == name)
        inputs = [self._passing(one) for one in transform.inputs]
        if isinstance(transform, SqlTransform):
            return self._spark.sql(transform.sql)
        frame: DataFrame = function_of(transform)(*inputs)
        return frame

    def _read(self, source: Source) -> DataFrame:
        reader = self._spark.readStream
        if isinstance(source, StreamSource):
            place = place_options(source.endpoint or self._endpoint or "", self._secret)
            start = start_options(source.start, f"source {source.name}: start")
            return reader.format("laminar").options(**{**place, **start, **source.options}).load(source.stream)
        if isinstance(source, FilesSource):
            options = {**FILE_DEFAULTS.get(source.format, {}), **source.options}
            return reader.format(source.format).schema(source.schema).options(**options).load(source.path)
        if isinstance(source, KafkaSource):
            options = {
                "kafka.bootstrap.servers": source.servers,
                "subscribe": source.topic,
                "startingOffsets": source.start,
            }
            return reader.format("kafka").options(**{**options, **source.options}).load()
        return _rate(self._spark, source)


def _rate(spark: SparkSession, source: RateSource) -> DataFrame:
    options = {"rowsPerSecond": str(source.rows_per_second), **source.options}
    return spark.readStream.format("rate").options(**options).load()


def _verdict(checks: list[Check], frame: DataFrame) -> Column:
    """The name of the first check that a row fails; null if it passes all. A check that fails the pipeline raises."""
    from pyspark.sql import functions  # noqa: PLC0415

    row = functions.substring(functions.to_json(functions.struct(*frame.columns)), 1, _SHOWN_ROW_LENGTH)
    verdict: Column | None = None
    for check in checks:
        # What is null is not true.
        failed = ~functions.coalesce(functions.expr(f"({check.expect})"), functions.lit(False))
        if check.otherwise == "fail":
            # Always true, which Spark does not know: so it judges every row, also those that are filtered out later.
            failed &= functions.rand() >= 0
            text = f"check {check.name} failed: {check.expect} is not true of the row "
            then = functions.raise_error(functions.concat(functions.lit(text), row)).cast("string")
        else:
            then = functions.lit(check.name)
        verdict = functions.when(failed, then) if verdict is None else verdict.when(failed, then)
    if verdict is None:
        raise AssertionError("a relation without checks has no verdict")
    return verdict


__all__ = ["Relations"]
