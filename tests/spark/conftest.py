"""Spark for the tests: one session a module, and a fresh folder for each test."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import laminar
from laminar.errors import LaminarError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
PACKAGES = Path(laminar.__file__).parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on this machine, ended with the module."""
    from laminar.spark.session import local_session  # noqa: PLC0415 - tests without Spark run without PySpark

    # Workers import laminar, and what tests hand to them.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGES), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    with warnings.catch_warnings():
        # What PySpark and py4j leave open at the end is theirs.
        warnings.simplefilter("ignore")
        session = local_session("tests", **{"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))})
        yield session
        session.stop()


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """A fresh folder with a node in a process of its own, which is ended with the test."""
    folder = tmp_path / "data"
    laminar.open(folder, detached=True, client_timeout=60.0).close()
    yield str(folder)
    end_node(folder)


@pytest.fixture
def db(endpoint: str) -> Iterator[laminar.Cluster]:
    """A client of that folder."""
    with laminar.connect(Path(endpoint)) as db:
        yield db


def end_node(folder: Path) -> None:
    """Ends the node of a folder, whoever started it, and waits until it has let go of the folder."""
    try:
        with laminar.connect(folder, timeout=5.0) as cluster:
            pid = cluster._native.hello()["pid"]
    except LaminarError:
        return
    os.kill(pid, signal.SIGTERM)
    # Opening waits until the process has let go.
    laminar.open(folder).close()
