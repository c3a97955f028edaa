"""Pictures of a plan: what steps are made of, and time against memory of all worked out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..placement.drawing.svg import Svg, Theme, bytes_text, colours, fitted, ink_on
from ..placement.planning.planned import Plan, PlannedStrategy
from ..placement.planning.search import Point
from ..placement.planning.why import part_name, seconds_text

WIDTH = 1160.0
_LEFT, _RIGHT = 330.0, 90.0
_ROW, _BAR = 40.0, 24.0
_PLOT_HEIGHT = 380.0
_MOST_TIMES_THE_BEST = 12.0
_MOST_TIMES_THE_MEMORY = 2.6
_SHOWN = 0.98
"""So large a part of the points decides how far the picture reaches."""
_CELL = 3.0
"""Points nearer to each other than so many pixels are drawn as one."""
_NEAR_LINE = 24.0
_UNIT = 13.0


def draw_breakdown(found: Plan, theme: Theme = "auto") -> str:
    """Steps of the strategies told and of the rules of thumb as bars by part, as SVG text."""
    rows = [(str(rank), one) for rank, one in enumerate(found.strategies, 1)]
    rows += [("thumb", rule.strategy) for rule in found.rules_of_thumb if rule.strategy is not None]
    parts = [
        name
        for name in found.best.estimate.breakdown
        if any(_share(one, name) >= 0.002 for _, one in rows)
    ]
    paint = dict(zip(parts, colours(len(parts)), strict=True))
    longest = max(one.estimate.step_s for _, one in rows)
    svg = Svg()
    y = _legend(svg, parts, paint, 34.0)
    for rank, one in rows:
        _draw_bar(svg, rank, one, paint, y, (WIDTH - _LEFT - _RIGHT) / longest)
        y += _ROW
    return svg.render(WIDTH, y + 12, "Steps by what they are made of", "A bar a strategy.", theme)


def draw_points(found: Plan, theme: Theme = "auto") -> str:
    """Seconds of a step against bytes of a rank for all strategies worked out, as SVG text."""
    best = found.best.estimate
    limit = best.memory_limit_bytes
    thumbs = [(r.name, r.strategy.estimate) for r in found.rules_of_thumb if r.strategy]
    most_bytes = limit * _MOST_TIMES_THE_MEMORY
    low = sorted(p.step_s for p in found.points if p.memory_bytes <= most_bytes)
    usual_s = low[int(_SHOWN * (len(low) - 1))] if low else best.step_s
    slowest_s = max([usual_s, *(estimate.step_s for _, estimate in thumbs)])
    most_s = max(1.2 * best.step_s, min(1.04 * slowest_s, _MOST_TIMES_THE_BEST * best.step_s))
    axes = _Axes(best.step_s / 1.03, most_s, most_bytes)
    svg = Svg()
    axes.draw(svg)
    shown = [p for p in found.points if axes.holds(p)]
    for point in _apart(shown, axes):
        x, y = axes.at(point.step_s, point.memory_bytes)
        tip = f"{_degrees(point)}: {seconds_text(point.step_s)}, {bytes_text(point.memory_bytes)}"
        svg.rect(x - 2, y - 2, 4, 4, "free" if point.fits else "busy", radius=2, tip=tip)
    edge = [axes.at(p.step_s, p.memory_bytes) for p in pareto(shown)]
    if len(edge) > 1:
        svg.line(edge, "flow", width=1.6)
    svg.line([axes.at(axes.least_s, limit), axes.at(axes.most_s, limit)], "badline", width=1.2)
    right, top = axes.at(axes.most_s, limit)
    svg.text(right - 6, top - 6, f"memory of a device, {bytes_text(limit)}", "bad t3 end")
    for name, estimate in thumbs:
        if estimate.step_s <= axes.most_s:
            x, y = axes.at(estimate.step_s, estimate.memory_bytes)
            svg.rect(x - 4, y - 4, 8, 8, "t", tip=name)
            svg.text(x + 9, y + 4, name, "t t3")
    x, y = axes.at(best.step_s, best.memory_bytes)
    svg.rect(x - 5, y - 5, 10, 10, "flowfill", radius=5, tip=f"the best: {found.best}")
    near_the_limit = abs(y - axes.at(axes.least_s, limit)[1]) < _NEAR_LINE
    svg.text(
        x + 2,
        y + 19 if near_the_limit else y - 10,
        f"the best, {seconds_text(best.step_s)}",
        "t t2 b",
    )
    height = _PLOT_HEIGHT + 92
    title = "Time against memory of the strategies worked out"
    return svg.render(WIDTH, height, title, f"{len(found.points)} strategies.", theme)


def pareto(points: Sequence[Point]) -> list[Point]:
    """Of those that fit, the ones that none beats in both time and memory, fastest first."""
    found: list[Point] = []
    for point in sorted(p for p in points if p.fits):
        if not found or point.memory_bytes < found[-1].memory_bytes:
            found.append(point)
    return found


class _Axes:
    """Seconds to the right, by their logarithm; bytes upwards."""

    def __init__(self, least_s: float, most_s: float, most_bytes: float) -> None:
        self.least_s, self.most_s, self._most_bytes = least_s, most_s, most_bytes
        self._left, self._top = 86.0, 24.0
        self._width = WIDTH - self._left - 36

    def holds(self, point: Point) -> bool:
        return point.step_s <= self.most_s and point.memory_bytes <= self._most_bytes

    def at(self, seconds: float, size: float) -> tuple[float, float]:
        share = math.log(seconds / self.least_s) / math.log(self.most_s / self.least_s)
        return (
            self._left + share * self._width,
            self._top + (1 - size / self._most_bytes) * _PLOT_HEIGHT,
        )

    def draw(self, svg: Svg) -> None:
        svg.rect(self._left, self._top, self._width, _PLOT_HEIGHT, "box1")
        bottom = self._top + _PLOT_HEIGHT
        for seconds in _ticks(self.least_s, self.most_s):
            x, _ = self.at(seconds, 0)
            svg.line([(x, self._top), (x, bottom)], "link", width=0.4)
            svg.text(x, bottom + 18, f"{seconds:.3g} s", "m t3 mid")
        step = _round_step(self._most_bytes / 5)
        for k in range(int(self._most_bytes / step) + 1):
            _, y = self.at(self.least_s, k * step)
            svg.line([(self._left, y), (self._left + self._width, y)], "link", width=0.4)
            svg.text(self._left - 8, y + 4, bytes_text(k * step), "m t3 end")
        middle = self._left + self._width / 2
        svg.text(
            middle, bottom + 40, "seconds of a step (each step of the axis a factor)", "m t3 mid"
        )
        y = bottom + 60
        x = self._left
        for classes, text in (
            ("free", "fits"),
            ("busy", "does not fit"),
            ("flowfill", "no other is both faster and leaner"),
        ):
            svg.rect(x, y - 8, 9, 9, classes, radius=4.5)
            svg.text(x + 15, y, text, "t t3")
            x += 34 + len(text) * 6.6


def _draw_bar(
    svg: Svg, rank: str, one: PlannedStrategy, paint: dict[str, str], y: float, scale: float
) -> None:
    thumb = rank == "thumb"
    label = one.name if thumb else f"{rank}  {one}"
    svg.text(
        _UNIT,
        y + 11,
        fitted(label, _LEFT - 24, 11),
        "t t3 b" if rank == "1" else "t t3",
        tip=str(one),
    )
    split = one.workload.parallelism
    below = (
        str(one)
        if thumb
        else f"{split.world_size:,} devices" + (f" · {one.name}" if one.name else "")
    )
    svg.text(_UNIT, y + 25, fitted(below, _LEFT - 24, 11), "m t3", tip=str(one))
    x = _LEFT
    for name, seconds in one.estimate.breakdown.items():
        width = seconds * scale
        if name not in paint or width < 0.15:
            continue
        tip = f"{part_name(name)}: {seconds:.4g} s, {seconds / one.estimate.step_s:.1%}"
        svg.rect(x, y, width, _BAR, "", fill=paint[name], tip=tip)
        text = f"{seconds:.3g}"
        if width > 7 * len(text) + 6:
            svg.text(x + width / 2, y + 16, text, "t3 mid", fill=ink_on(paint[name]))
        x += width
    svg.text(x + 8, y + 16, seconds_text(one.estimate.step_s), "t t3 b" if rank == "1" else "t t3")


def _legend(svg: Svg, parts: Sequence[str], paint: dict[str, str], y: float) -> float:
    x = _UNIT
    for name in parts:
        text = part_name(name)
        width = 32 + len(text) * 6.4
        if x + width > WIDTH - _UNIT:
            x, y = _UNIT, y + 20
        svg.rect(x, y - 10, 11, 11, "", fill=paint[name], radius=3)
        svg.text(x + 17, y, text, "t t3")
        x += width
    return y + 22


def _share(one: PlannedStrategy, name: str) -> float:
    return one.estimate.breakdown[name] / one.estimate.step_s


def _apart(points: Sequence[Point], axes: _Axes) -> list[Point]:
    """One point of those that would be drawn over each other; those that fit last, on top."""
    seen: dict[tuple[int, int, bool], Point] = {}
    for point in points:
        x, y = axes.at(point.step_s, point.memory_bytes)
        seen.setdefault((int(x / _CELL), int(y / _CELL), point.fits), point)
    return sorted(seen.values(), key=lambda point: point.fits)


def _degrees(point: Point) -> str:
    names = ("tp", "pp", "dp", "cp", "ep")
    told = [f"{n} {d}" for n, d in zip(names, point.degrees, strict=False) if d > 1]
    return " x ".join(told) or "one device"


def _ticks(least: float, most: float) -> list[float]:
    """Round numbers between two, few enough to stand beside each other on a logarithmic axis."""
    found: list[float] = []
    step = (most / least) ** (1 / 8)
    value = least * step**0.5
    while value < most:
        rounded = float(f"{value:.2g}")
        if least < rounded < most and rounded not in found:
            found.append(rounded)
        value *= step
    return found


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return min(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
