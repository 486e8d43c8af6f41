"""Pipelines: sources, transforms, quality checks and sinks, run together and exactly once. See docs/pipelines.md.

A file is read and checked by ``load`` (``load.py``, ``conform.py``, ``model.py``, ``graph.py``, ``checked.py``) without
Spark; ``picture.py`` draws it. ``run`` (``run.py``) starts one streaming query for each output, made in ``build.py``.
"""

from __future__ import annotations

from laminar.spark.pipeline.load import load
from laminar.spark.pipeline.model import (
    Check,
    Create,
    DeltaSink,
    FilesSource,
    KafkaSource,
    ParquetSink,
    Pipeline,
    PipelineFile,
    PythonTransform,
    RateSource,
    SqlTransform,
    StreamSink,
    StreamSource,
)
from laminar.spark.pipeline.run import Ran, RanOutput, check_streams, run

__all__ = [
    "Check",
    "Create",
    "DeltaSink",
    "FilesSource",
    "KafkaSource",
    "ParquetSink",
    "Pipeline",
    "PipelineFile",
    "PythonTransform",
    "Ran",
    "RanOutput",
    "RateSource",
    "SqlTransform",
    "StreamSink",
    "StreamSource",
    "check_streams",
    "load",
    "run",
]
