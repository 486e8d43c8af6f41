"""Durations, sizes and times as people write them, and as they are shown."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from laminar.errors import InvalidError

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {
    "b": 1,
    "": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)", re.ASCII)


def duration(text: str, option: str) -> timedelta:
    """``7d``, ``12h``, ``30m``, ``90s``, ``500ms``, ``2w``."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2].lower() not in _SECONDS:
        raise InvalidError(f"{option} is {text!r}; it must be a number with ms, s, m, h, d or w, such as 7d")
    try:
        return timedelta(seconds=float(match[1]) * _SECONDS[match[2].lower()])
    except OverflowError:
        raise InvalidError(f"{option} is {text!r}; that is longer than {timedelta.max.days} days") from None


def size(text: str, option: str) -> int:
    """``10GiB``, ``500MB``, ``4096``."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2].lower() not in _BYTES:
        raise InvalidError(f"{option} is {text!r}; it must be bytes, or a number with KiB, MiB, GiB or TiB")
    unit = _BYTES[match[2].lower()]
    return int(match[1]) * unit if "." not in match[1] else int(float(match[1]) * unit)


def position(text: str, option: str, words: tuple[str, ...]) -> str | int | datetime:
    """A word, an offset, a time (UTC if it has no zone), or a duration: that long ago."""
    text = text.strip()
    if text in words:
        return text
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return int(text)
    if _NUMBER.fullmatch(text):
        try:
            return datetime.now(timezone.utc) - duration(text, option)
        except OverflowError:
            return datetime(1970, 1, 1, tzinfo=timezone.utc)
    try:
        # Python 3.10 does not know the Z.
        time = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)
    except ValueError:
        raise InvalidError(
            f"{option} is {text!r}; it must be {', '.join(words)}, an offset, a time such as 2026-01-31T12:00:00Z, or "
            "how long ago, such as 15m"
        ) from None
    return time if time.utcoffset() is not None else time.replace(tzinfo=timezone.utc)


def shown_duration(age: timedelta) -> str:
    """As ``duration`` reads it, in the largest unit that leaves nothing over."""
    milliseconds = age // timedelta(milliseconds=1)
    for unit in ("w", "d", "h", "m", "s"):
        whole, over = divmod(milliseconds, int(_SECONDS[unit] * 1000))
        if not over:
            return f"{whole}{unit}"
    return f"{milliseconds}ms"


def shown_bytes(count: int) -> str:
    """With the unit that leaves the fewest digits."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def shown_time(time: datetime) -> str:
    """To the millisecond, in UTC."""
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03d}Z"


def counted(number: int, noun: str) -> str:
    """``1 row``, ``2 rows``, ``1,000 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def printable(text: str) -> str:
    """What others wrote must not move the cursor."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "·" for letter in text)


__all__ = ["counted", "duration", "position", "printable", "shown_bytes", "shown_duration", "shown_time", "size"]
