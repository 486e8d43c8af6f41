"""What files of rows are, by name. Nothing here needs pyarrow, so that help and completion are quick."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path

from laminar.errors import InvalidError


class Format(str, Enum):
    """What a file of rows is that is read."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


class Form(str, Enum):
    """How rows are written."""

    TABLE = "table"
    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


_FORMATS = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
}
_FORMS = {".jsonl": Form.JSONL, ".ndjson": Form.JSONL, ".parquet": Form.PARQUET, ".arrow": Form.ARROW}


def guess_format(file: Path | None, given: Format | None) -> Format:
    """The format that was given, or that the name says; of stdin JSON lines."""
    if given is not None or file is None:
        return given or Format.JSONL
    found = _FORMATS.get(file.suffix.lower())
    if found is None:
        names = ", ".join(one.value for one in Format)
        raise InvalidError(f"{file}: its name does not say what it is; it must be one of {names}")
    return found


def guess_form(output: Path | None, given: Form | None) -> Form:
    """The form that was given, or that the file's name says; to a terminal a table, else JSON lines."""
    if output is None:
        if given in (Form.PARQUET, Form.ARROW) and sys.stdout.isatty():
            raise InvalidError(f"--format {given.value} is not for a terminal; give --output, or send it on")
        return given or (Form.TABLE if sys.stdout.isatty() else Form.JSONL)
    found = given or _FORMS.get(output.suffix.lower())
    if found is None or found is Form.TABLE:
        raise InvalidError(f"--output {output}: its name must end with {', '.join(_FORMS)}, or give --format")
    return found


__all__ = ["Form", "Format", "guess_form", "guess_format"]
