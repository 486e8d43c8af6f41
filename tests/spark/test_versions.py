"""Which PySpark will do, and what is said about one that will not."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import laminar
from laminar.spark import session, versions

PACKAGES = Path(laminar.__file__).parent.parent


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.1", "5.0.0.dev1"])
def test_a_pyspark_of_4_2_or_newer_will_do(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda _name: version)
    versions.check_pyspark()


@pytest.mark.parametrize("version", ["3.5.4", "4.0.1", "4.1.0"])
def test_an_older_pyspark_is_told(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda _name: version)
    with pytest.raises(laminar.InvalidError, match=rf"needs PySpark 4\.2 or newer, and {version} is installed"):
        versions.check_pyspark()


def test_no_pyspark_is_told() -> None:
    # Without the packages of this environment there is laminar and nothing else.
    script = f"import sys; sys.path.insert(0, {str(PACKAGES)!r}); import laminar.spark; laminar.spark.register(None)"
    ended = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert "needs PySpark, which is not installed; pip install 'laminar[spark]'" in ended.stderr


def test_no_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(laminar.InvalidError, match=r"JAVA_HOME is .*, which has no bin/java"):
        session.local_session("tests")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(laminar.InvalidError, match="Spark needs Java, and there is none"):
        session.local_session("tests")


def test_importing_laminar_imports_no_pyspark() -> None:
    script = "import sys, laminar, laminar.spark, laminar.spark.options; print('pyspark' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert ended.stdout.strip() == "False"
