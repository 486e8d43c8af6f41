"""Options of Spark as texts, read into values. Every mistake is an ``InvalidError`` that names the option."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from laminar.errors import InvalidError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_INTEGER_MAX = 2**63 - 1
_BYTES = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

#: In offsets, as Kafka has them: from the first row there is, and after the last.
EARLIEST, LATEST = -2, -1
#: What names the stream beside the offsets of a streaming query.
STREAM_ID = "streamId"


class Given:
    """The options that were given, whatever the case of their names."""

    def __init__(self, options: Mapping[str, str], names: Collection[str], what: str) -> None:
        self._names = {name.lower(): name for name in names}
        self._given = {name.lower(): value for name, value in options.items()}
        for name in self._given:
            if name not in self._names:
                raise InvalidError(self._unknown(name, what))

    def _unknown(self, name: str, what: str) -> str:
        near = difflib.get_close_matches(name, self._names, n=1)
        known = ", ".join(sorted(self._names.values()))
        hint = f"did you mean {self._names[near[0]]}?" if near else f"there are {known}"
        return f"the {what} has no option {name}; {hint}"

    def text(self, name: str) -> str | None:
        """The option as it was given; one that is empty was not."""
        return self._given.get(name.lower()) or None

    def needed(self, name: str, hint: str) -> str:
        """The option, which must be given."""
        value = self.text(name)
        if value is None:
            raise InvalidError(f"option {name} is missing; {hint}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise InvalidError(f"{name} is {value!r}; it must be true or false")
        return value.lower() == "true"

    def number(self, name: str, least: int = 0) -> int | None:
        """A whole number."""
        value = self.text(name)
        if value is None:
            return None
        number = int(value) if re.fullmatch(r"-?\d{1,19}", value) else None
        if number is None or not least <= number <= _INTEGER_MAX:
            raise InvalidError(f"{name} is {value!r}; it must be a whole number of at least {least}")
        return number

    def bytes(self, name: str) -> int | None:
        """A size: bytes, or with k, m, g or t as Spark has them."""
        value = self.text(name)
        if value is None:
            return None
        found = _BYTES.fullmatch(value.strip())
        size = int(found[1]) << _SHIFTS[found[2].lower()] if found else 0
        if not 0 < size <= _INTEGER_MAX:
            raise InvalidError(f"{name} is {value!r}; it must be a size above 0, such as 1048576, 64m or 1g")
        return size

    def seconds(self, name: str, default: float) -> float:
        """A time in seconds."""
        value = self.text(name)
        if value is None:
            return default
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= 7 * 86400:
            raise InvalidError(f"{name} is {value!r}; it must be seconds, above 0 and up to a week")
        return seconds

    def names(self, name: str) -> tuple[str, ...] | None:
        """Names with commas between them, or as a JSON list, for names that have commas."""
        value = self.text(name)
        if value is None:
            return None
        if value.lstrip().startswith("["):
            found = _json(name, value)
            if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
                raise InvalidError(f'{name} is {value!r}; it must be a JSON list of names, such as ["id", "amount"]')
        else:
            found = [one.strip() for one in value.split(",")]
        if not found or not all(found) or len(set(found)) < len(found):
            raise InvalidError(f"{name} is {value!r}; it must be different names with commas between them")
        return tuple(found)

    def offsets(self, name: str, words: Mapping[str, int]) -> int | dict[int, int] | None:
        """One of the words, as its number, or offsets by partition as JSON."""
        value = self.text(name)
        if value is None:
            return None
        if value.lower() in words:
            return words[value.lower()]
        if not value.lstrip().startswith("{"):
            raise InvalidError(f'{name} is {value!r}; it must be {" or ".join(words)}, or JSON such as {{"0": 42}}')
        return _offsets(name, _json(name, value), words)

    def time_ms(self, name: str) -> int | None:
        """A time: milliseconds since 1970, or ISO 8601 with a zone."""
        value = self.text(name)
        if value is None:
            return None
        if re.fullmatch(r"\d{1,18}", value):
            return int(value)
        try:
            # Python before 3.11 does not know the Z.
            time = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", value.strip()))
        except ValueError:
            time = None
        if time is None or time.utcoffset() is None:
            raise InvalidError(
                f"{name} is {value!r}; it must be milliseconds since 1970, or a time with a zone, such as "
                "2026-01-31T12:00:00Z"
            )
        # Rows are stamped in whole milliseconds: the first at or after the time.
        return max(0, -((_EPOCH - time) // timedelta(milliseconds=1)))


def _json(name: str, value: str) -> Any:
    try:
        return json.loads(value, object_pairs_hook=_once)
    except ValueError as error:
        raise InvalidError(f"{name} is {value!r}, which is not JSON ({error})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _offsets(name: str, found: Any, words: Mapping[str, int]) -> dict[int, int]:
    offsets = {}
    for partition, offset in found.items():
        if partition == STREAM_ID:
            # Somebody gives back what the progress of a query said.
            continue
        if not re.fullmatch(r"\d{1,9}", partition):
            raise InvalidError(f"{name} has partition {partition!r}; it must be a number from 0")
        is_number = isinstance(offset, int) and not isinstance(offset, bool)
        if not is_number or (offset < 0 and offset not in words.values()) or offset > _INTEGER_MAX:
            special = ", or ".join(f"{number} for {word}" for word, number in words.items())
            raise InvalidError(
                f"{name} has offset {offset!r} for partition {partition}; it must be a number from 0, or {special}"
            )
        offsets[int(partition)] = offset
    return offsets


__all__ = ["EARLIEST", "LATEST", "STREAM_ID", "Given"]
