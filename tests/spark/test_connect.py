"""Spark Connect: the same source from a client that has no JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import laminar

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
pytest.importorskip("grpc_status", reason="Spark Connect needs pyspark[connect]")
pytest.importorskip("zstandard", reason="Spark Connect needs pyspark[connect]")
pytestmark = pytest.mark.spark

CLIENT = Path(__file__).with_name("connect_client.py")
PACKAGES = Path(laminar.__file__).parent.parent


def test_a_client_of_spark_connect_reads_and_writes_batches_and_streams(endpoint: str, tmp_path: Path) -> None:
    with laminar.connect(endpoint) as db:
        stream = db.create_stream("/shop/orders", partitions=2, schema=pa.schema({"id": pa.int64()}), key="id")
        stream.append([{"id": number} for number in range(100)])
        db.create_stream("/shop/copy", partitions=2, schema=pa.schema({"id": pa.int64()}), key="id")
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ended = subprocess.run(
        [sys.executable, str(CLIENT), endpoint, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        env=environment,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith("found ")]
    assert lines, ended.stderr[-3000:]
    found = json.loads(lines[0].removeprefix("found "))
    assert found == {
        "batch": list(range(100)),
        "registered": 100,
        "stream": list(range(100)),
        "written": 150,
        "copied": list(range(150)),
    }
