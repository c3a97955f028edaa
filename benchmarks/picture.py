"""The benchmark's pictures as SVG: ratios by family and method, growth with the cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from .measure import SOLVER, Result
from .table import cells, families, methods

COLOURS = ("#d1495b", "#7f7f7f", "#b5a642", "#3b7ea1", "#2a9d8f", "#8e6c8a", "#e08e45", "#1b4965")
FONT = 'font-family="system-ui, sans-serif" font-size="12"'
LEFT, TOP, ROW = 150, 56, 30
TICKS = (1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
FINEST = 0.01
"""Excess that takes as much width as its first doubling."""


def ratios(results: Sequence[Result]) -> str:
    """One line a family, one mark a method at its mean ratio to the least that any method found.

    The scale is logarithmic in the excess, and cut at 10.
    """
    table = cells(results)
    names, kinds = families(results), methods(results)
    width, plot = 900, 715
    height = TOP + ROW * len(names) + 40

    def x(value: float) -> float:
        excess = min(max(value, 1.0), 10.0) - 1.0
        return LEFT + plot * math.log1p(excess / FINEST) / math.log1p(9.0 / FINEST)

    parts = [_open(width, height, "Cross-spine bytes over the least that any method found")]
    for position, method in enumerate(kinds):
        column, line = position % 4, position // 4
        at, down = LEFT + 180 * column, 18 + 18 * line
        parts.append(_mark(at, down - 4, method, _colour(position)))
        parts.append(_text(at + 10, down, method))
    for tick in TICKS:
        parts.append(
            f'<line x1="{x(tick):.1f}" y1="{TOP - 8}" x2="{x(tick):.1f}" y2="{height - 30}" '
            'stroke="#888" stroke-width="0.5" stroke-dasharray="2 3"/>'
        )
        label = "≥ 10" if tick == 10.0 else f"{tick:g}"
        parts.append(_text(x(tick), height - 14, label, anchor="middle"))
    for row, family in enumerate(names):
        y = TOP + ROW * row + 12
        parts.append(_text(LEFT - 12, y + 4, family, anchor="end"))
        parts.append(
            f'<line x1="{LEFT}" y1="{y}" x2="{LEFT + plot}" y2="{y}" stroke="#bbb" '
            'stroke-width="0.5"/>'
        )
        for position, method in reversed(list(enumerate(kinds))):
            cell = table.get((method, family))
            if cell is not None and cell.over_least:
                ratio = cell.mean_over_least
                title = f"{method}, {family}: {ratio:.3f}"
                parts.append(_mark(x(ratio), y, method, _colour(position), title))
    return "\n".join([*parts, "</svg>"]) + "\n"


def growth(rows: Sequence[dict[str, Any]]) -> str:
    """Wall time and peak memory against devices, both scales logarithmic."""
    width, height = 900, 320
    parts = [_open(width, height, "Time and memory of place() against devices")]
    panels = (
        (70, "CPU time, s", [row["cpu_seconds"] for row in rows]),
        (520, "peak memory, GB", [row["peak_bytes"] / 1e9 for row in rows]),
    )
    sizes = [row["devices"] for row in rows]
    for left, title, values in panels:
        parts += _panel(left, title, sizes, values)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(left: int, title: str, sizes: Sequence[int], values: Sequence[float]) -> list[str]:
    top, width, height = 40, 340, 220
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))
    first, last = math.log10(min(sizes)), math.log10(max(sizes))

    def x(value: float) -> float:
        return left + width * (math.log10(value) - first) / max(last - first, 1e-9)

    def y(value: float) -> float:
        return top + height * (high - math.log10(value)) / (high - low)

    parts = [_text(left, top - 16, title)]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(
            f'<line x1="{left}" y1="{at:.1f}" x2="{left + width}" y2="{at:.1f}" '
            'stroke="#888" stroke-width="0.5" stroke-dasharray="2 3"/>'
        )
        parts.append(_text(left - 6, at + 4, f"{10.0**power:g}", anchor="end"))
    points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in zip(sizes, values, strict=True))
    parts.append(
        f'<polyline points="{points}" fill="none" stroke="{COLOURS[0]}" stroke-width="2"/>'
    )
    for size, value in zip(sizes, values, strict=True):
        parts.append(_mark(x(size), y(value), SOLVER, COLOURS[0], f"{size:,}: {value:.3g}"))
        parts.append(_text(x(size), y(value) - 10, f"{value:.2g}", anchor="middle"))
        parts.append(_text(x(size), top + height + 20, f"{size:,}", anchor="middle"))
    parts.append(_text(left + width / 2, top + height + 40, "devices", anchor="middle"))
    return parts


def _colour(position: int) -> str:
    return COLOURS[position % len(COLOURS)]


def _open(width: int, height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">\n<title>{escape(title)}</title>\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {FONT} fill="#222" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def _mark(x: float, y: float, method: str, colour: str, title: str = "") -> str:
    """The solver is a diamond, peers are dots."""
    name = f"<title>{escape(title)}</title>" if title else ""
    if method == SOLVER:
        corners = f"{x:.1f},{y - 7:.1f} {x + 7:.1f},{y:.1f} {x:.1f},{y + 7:.1f} {x - 7:.1f},{y:.1f}"
        return f'<polygon points="{corners}" fill="{colour}">{name}</polygon>'
    at = f'cx="{x:.1f}" cy="{y:.1f}" r="4.5"'
    return f'<circle {at} fill="{colour}" fill-opacity="0.85">{name}</circle>'
