"""``laminar demo``: the zombie driver is refused, the same done to Parquet doubles rows, and nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.drivers import PACKAGES


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_demo_counts_what_both_sinks_made_of_a_zombie_driver(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "laminar", "demo", "--json", "--pause", "0"],
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(PACKAGES)},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["laminar"] == {"rows": told["input"], "doubled": 0, "lost": 0}
    assert told["parquet"]["doubled"] == told["parquet"]["rows"] - told["input"] > 0
    assert (told["behind_the_fence"], told["gaps"]) == (0, 0)
    assert told["refused"]["error"] == "StaleEpochError"
    assert "orders-ingest" in told["refused"]["message"]
    assert not [left for left in tmp_path.iterdir() if left.name.startswith("laminar-demo-")]
