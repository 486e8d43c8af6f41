"""Jars by Maven coordinates, and Python packages in an environment of their own: kept in the user's cache folder."""

# ruff: noqa: S603 - the commands are those of this file, found where the user has them

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

GET_TIMEOUT_SECONDS = 300.0


class PeerMissingError(Exception):
    """A peer cannot be had here; the message says which and why."""


def cache_folder() -> Path:
    """Where all that is fetched for the benches is kept from one run to the next."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "laminar-bench"


def _get(peer: str, what: str, command: Sequence[str], folder: Path) -> None:
    try:
        got = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=GET_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise PeerMissingError(f"{peer} is left out: {what} failed: {failed}") from None
    if got.returncode != 0:
        said = (got.stdout + got.stderr).strip().splitlines()
        told = next((line for line in said if "ERROR" in line), said[-1] if said else "no output")
        raise PeerMissingError(f"{peer} is left out: {what} failed: {told[:300]}")


def jars(peer: str, name: str, coordinates: Sequence[str]) -> list[Path]:
    """The jars of ``group:artifact:version``, and no others: what they need besides, Spark has."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise PeerMissingError(f"{peer} is left out: there is no {tool}")
    folder = cache_folder() / name
    libs, ready = folder / "libs", folder / "libs.ready"
    if not ready.exists() or ready.read_text().split() != list(coordinates):
        shutil.rmtree(libs, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        none = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        dependencies = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            f"{none}</dependency>"
            for group, artifact, version in (one.split(":") for one in coordinates)
        )
        (folder / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>laminar</groupId><artifactId>bench</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
        _get(peer, "Maven", command, folder)
        ready.write_text("\n".join(coordinates))
    return sorted(libs.glob("*.jar"))


def interpreter(peer: str, name: str, packages: Sequence[str]) -> Path:
    """The interpreter of an environment that has ``packages``; makes it if it is not there."""
    folder = cache_folder() / name
    python, ready = folder / "venv" / "bin" / "python", folder / "venv.ready"
    told = [f"{sys.version_info.major}.{sys.version_info.minor}", *packages]
    if not ready.exists() or ready.read_text().split() != told or not python.exists():
        shutil.rmtree(folder / "venv", ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        _get(peer, "venv", [sys.executable, "-m", "venv", str(folder / "venv")], folder)
        _get(peer, "pip", [str(python), "-m", "pip", "install", "--quiet", *packages], folder)
        ready.write_text("\n".join(told))
    return python
