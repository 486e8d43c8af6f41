"""The examples of README and of the Spark page run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark.conftest import end_node
from spark.drivers import PACKAGES

_ROOT = Path(__file__).parents[2]
_COUNTS = """
query.processAllAvailable()
query.stop()
with laminar.open("./data", detached=True) as db:
    print("rows", db.stream("/shop/large").read().read_all().num_rows)
spark.stop()
"""


def _blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (_ROOT / page).read_text(), re.DOTALL)


@pytest.mark.spark
def test_quick_start_and_the_readme_run_one_after_the_other(tmp_path: Path) -> None:
    quick_start, *_ = _blocks("docs/spark.md")
    (in_readme,) = [block for block in _blocks("README.md") if "spark." in block]
    script = tmp_path / "example.py"
    script.write_text(quick_start + in_readme + _COUNTS)
    try:
        done = subprocess.run(
            [sys.executable, script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
            env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        )
    finally:
        end_node(tmp_path / "data")
    assert done.returncode == 0, done.stderr
    # Amounts are half the number, and those above 100 are kept: the same ones after the second query.
    assert "1000 rows" in done.stdout
    assert "rows 799" in done.stdout
