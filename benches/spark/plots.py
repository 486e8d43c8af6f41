"""Draws what was measured into one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streams.report import Line

OURS, OTHERS = "#1f6f8b", "#b9c0c7"


def draw(lines: Sequence[Line], samples: Mapping[str, Sequence[float]], file: Path, subtitle: str) -> str:
    """Throughput as bars, micro-batch latency as a distribution. Returns a sentence about it."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - only for the picture; without it the table still comes

        mpl.use("Agg")
        import matplotlib.pyplot as plt  # noqa: PLC0415
    except ImportError:
        return "no plots: there is no matplotlib; install it with pip"
    bars = [line for line in lines if line.unit == "rows" and line.rounds]
    panels = len(bars) + bool(samples)
    if not panels:
        return "no plots: nothing was measured"
    figure, axes = plt.subplots(
        (panels + 1) // 2, min(2, panels), figsize=(15, 3.6 * ((panels + 1) // 2)), squeeze=False
    )
    flat = [axis for row in axes for axis in row]
    for axis, line in zip(flat, bars, strict=False):
        _bars(axis, line)
    if samples:
        _latency(flat[len(bars)], samples)
    for axis in flat[panels:]:
        axis.set_visible(False)
    figure.suptitle(f"laminar and Spark\n{subtitle}", fontsize=9)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    plt.close(figure)
    return f"plots: {file}"


def _bars(axis: Any, line: Line) -> None:
    medians = sorted(line.medians().items(), key=lambda one: one[1])
    names = [name for name, _ in medians]
    values = [value / 1e6 for _, value in medians]
    colours = [OURS if name.startswith("laminar") else OTHERS for name in names]
    drawn = axis.barh(names, values, color=colours)
    axis.bar_label(drawn, fmt="%.2f", padding=3, fontsize=8)
    for place, name in enumerate(names):
        rounds = [figure / 1e6 for figure in line.rounds[name]]
        axis.plot(rounds, [place] * len(rounds), "|", color="black", markersize=8)
    axis.set_title(line.title, fontsize=10)
    axis.set_xlabel("million rows a second; marks are rounds", fontsize=8)
    axis.margins(x=0.12)


def _latency(axis: Any, samples: Mapping[str, Sequence[float]]) -> None:
    for name, took in samples.items():
        ordered = sorted(took)
        shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
        ours = name.startswith("laminar")
        axis.step(ordered, shares, where="post", label=name, linewidth=2.2 if ours else 1.2)
    axis.set_xscale("log")
    axis.set_title("micro-batches of 100 rows: whole trigger", fontsize=10)
    axis.set_xlabel("milliseconds", fontsize=8)
    axis.set_ylabel("share of triggers at most this long", fontsize=8)
    axis.grid(visible=True, which="both", alpha=0.3)
    axis.legend(fontsize=8)
