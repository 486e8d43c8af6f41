"""Bar charts for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar_chart(rows: Sequence[tuple[str, int, str, int, int]], most: int) -> Table:
    """One bar a row of (label, value, note, low, high), full at ``most``.

    A value outside low to high is coloured as a warning. Labels are shown as they are, never read as markup.
    """
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", no_wrap=True)
    for label, value, note, low, high in rows:
        colour = "green" if low <= value <= high else "yellow"
        table.add_row(Text(label), Text(_bar(value, most), style=colour), str(value), note)
    return table


def _bar(value: int, most: int) -> str:
    eighths = round(8 * _WIDTH * value / most) if most else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
