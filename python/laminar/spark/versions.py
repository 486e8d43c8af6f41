"""Which PySpark is there, and whether it will do."""

from __future__ import annotations

import re
from importlib import metadata

from laminar.errors import InvalidError

PYSPARK_MIN = (4, 2)


def check_pyspark() -> None:
    """Refuse a PySpark that lacks what the source and the sink are built on.

    Arrow writers for streams came with 4.1; read limits and ``Trigger.AvailableNow`` for Python sources with 4.2.
    """
    found = _pyspark_version()
    if found is None:
        raise InvalidError("laminar.spark needs PySpark, which is not installed; pip install 'laminar[spark]'")
    if _numbers(found) < PYSPARK_MIN:
        needed = ".".join(map(str, PYSPARK_MIN))
        raise InvalidError(
            f"laminar.spark needs PySpark {needed} or newer, and {found} is installed; pip install 'pyspark>={needed}'"
        )


def _pyspark_version() -> str | None:
    # Spark's own distributions and Spark Connect's client have the package without the metadata of pip.
    for name in ("pyspark", "pyspark-client", "pyspark-connect"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:  # noqa: PERF203 - three rounds
            continue
    try:
        from pyspark.version import __version__  # noqa: PLC0415 - only where the metadata is missing
    except ImportError:
        return None
    return str(__version__)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


__all__ = ["PYSPARK_MIN", "check_pyspark"]
