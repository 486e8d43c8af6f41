"""What the processes of ``laminar demo`` say: JSON, an object a line."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable
from typing import IO, Any


class JsonLines:
    """The output of a child, read without waiting longer than one is asked to."""

    def __init__(self, out: IO[bytes] | None, heard: Callable[[dict[str, Any]], None]) -> None:
        self._out = out
        self._heard = heard
        self._half = b""

    def hear(self, seconds: float) -> bool:
        """Take in what is said within this time; false if the output has ended."""
        if self._out is None:
            return False
        ready, _, _ = select.select([self._out], [], [], seconds)
        if not ready:
            return True
        data = os.read(self._out.fileno(), 1 << 16)
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            # Java also writes here; only what begins as ours is ours.
            if line.startswith(b"{"):
                self._heard(json.loads(line))
        return bool(data)


__all__ = ["JsonLines"]
