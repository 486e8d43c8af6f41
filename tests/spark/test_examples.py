"""Every Spark example runs as it is, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.drivers import PACKAGES

_EXAMPLES = sorted((Path(__file__).parents[2] / "examples/spark").glob("*.py"))


@pytest.mark.spark
@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if done.stdout.startswith("skipped:"):
        pytest.skip(done.stdout.strip())
