"""What an export has written: numbered manifests. Only the files that they name count.

```text
OUT/_manifests/00000001.json        what is done: the cut, and every file with its range
OUT/_manifests/00000002.plan.json   what was begun: a run that finds it finishes the same ranges under the same names
OUT/partition=3/offsets=0-1000000/rows.parquet
```

A file is written under a hidden name and renamed, so whoever reads the folder sees whole files, and each range once.
What was left under hidden names by attempts that were killed goes when the plan is done.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import fs

from laminar.errors import InvalidError
from laminar.spark.jobs.work import Range

_VERSION = 1
_DONE = re.compile(r"(\d{8})\.json")
_HIDDEN = re.compile(r"\..+\.[0-9a-f]{32}")
_PLAN = re.compile(r"(\d{8})\.plan\.json")


@dataclass(frozen=True)
class ExportedFile:
    """A file, and the rows that are in it. Its path is relative to the folder."""

    path: str
    partition: int
    start: int
    end: int
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """What one run exported, or as a plan is about to: one cut of all partitions, after that of the manifest before."""

    number: int
    stream: str
    stream_id: int
    global_index: int
    rows_per_file: int
    metadata: bool
    starts: dict[int, int]
    ends: dict[int, int]
    files: list[ExportedFile] = field(default_factory=list)
    #: Rows that retention had removed before they were exported.
    gaps: list[Range] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows its files have."""
        return sum(file.end - file.start for file in self.files)

    def to_json(self) -> str:
        """As it is stored."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str, where: str) -> Manifest:
        """As it was stored."""
        try:
            told = json.loads(text)
            version = told.pop("version")
            if version != _VERSION:
                raise InvalidError(f"{where}: its version is {version}, and this release reads {_VERSION}")
            told["starts"] = {int(partition): offset for partition, offset in told["starts"].items()}
            told["ends"] = {int(partition): offset for partition, offset in told["ends"].items()}
            told["files"] = [ExportedFile(**file) for file in told["files"]]
            told["gaps"] = [Range(**gap) for gap in told["gaps"]]
            return cls(**told)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, InvalidError):
                raise
            raise InvalidError(f"{where}: it is not a manifest of an export, {error}") from None


class Folder:
    """The folder of an export: on a disk, or an address that Arrow knows (``s3://``, ``gs://``, ``hdfs://``)."""

    def __init__(self, out: str) -> None:
        self.out = out
        try:
            found: tuple[Any, str] = (
                fs.FileSystem.from_uri(out) if "://" in out else (fs.LocalFileSystem(), str(Path(out).absolute()))
            )
        except (ValueError, OSError) as error:
            raise InvalidError(f"{out}: not a folder that can be written, {error}") from None
        self.files = found[0]
        self.root = found[1].rstrip("/")

    @property
    def address(self) -> str:
        """The folder as other processes can use it."""
        return self.out if "://" in self.out else self.root

    def newest(self) -> Manifest | None:
        """The newest manifest, if there is one."""
        return self._newest(_DONE)

    def begun(self) -> Manifest | None:
        """The plan of a run that did not end, if there is one."""
        plan, done = self._newest(_PLAN), self.newest()
        return None if plan is None or (done is not None and done.number >= plan.number) else plan

    def manifests(self) -> list[Manifest]:
        """All of them, oldest first."""
        return [self._read(name) for name in self._names(_DONE)]

    def begin(self, plan: Manifest) -> Manifest:
        """Write down what is to be exported, before it is."""
        self._write(f"{plan.number:08d}.plan.json", plan.to_json())
        return plan

    def end(self, done: Manifest) -> None:
        """Write down what was exported: from now on it counts."""
        self._write(f"{done.number:08d}.json", done.to_json())
        self.files.delete_file(f"{self.root}/_manifests/{done.number:08d}.plan.json")
        self._clear({"_manifests", *(file.path.rpartition("/")[0] for file in done.files)})

    def _clear(self, folders: Iterable[str]) -> None:
        """Remove what attempts that were killed left under hidden names. Nobody writes there any more."""
        for folder in folders:
            selector = fs.FileSelector(f"{self.root}/{folder}", allow_not_found=True)
            for info in self.files.get_file_info(selector):
                if _HIDDEN.fullmatch(info.base_name):
                    with contextlib.suppress(FileNotFoundError):
                        self.files.delete_file(info.path)

    def put(self, path: str, write: Any) -> int:
        """A file by a function that takes an open one, whole or not at all; how many bytes it has."""
        final = f"{self.root}/{path}"
        folder, name = final.rsplit("/", 1)
        self.files.create_dir(folder, recursive=True)
        hidden = f"{folder}/.{name}.{uuid.uuid4().hex}"
        with self.files.open_output_stream(hidden) as file:
            write(file)
        self._sync(hidden)
        size = int(self.files.get_file_info(hidden).size)
        self.files.move(hidden, final)
        self._sync(folder)
        return size

    def _newest(self, pattern: re.Pattern[str]) -> Manifest | None:
        names = self._names(pattern)
        return self._read(names[-1]) if names else None

    def _names(self, pattern: re.Pattern[str]) -> list[str]:
        selector = fs.FileSelector(f"{self.root}/_manifests", allow_not_found=True)
        return sorted(
            info.base_name for info in self.files.get_file_info(selector) if pattern.fullmatch(info.base_name)
        )

    def _read(self, name: str) -> Manifest:
        with self.files.open_input_stream(f"{self.root}/_manifests/{name}") as file:
            return Manifest.from_json(file.read().decode(), f"{self.out}/_manifests/{name}")

    def _write(self, name: str, text: str) -> None:
        self.put(f"_manifests/{name}", lambda file: file.write(text.encode()))

    def _sync(self, path: str) -> None:
        """On disk, as far as this is a disk: a manifest must not outlive its files."""
        if isinstance(self.files, fs.LocalFileSystem):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


__all__ = ["ExportedFile", "Folder", "Manifest"]
