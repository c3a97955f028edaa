"""Drawings of a job's life as SVG text: the timeline of its attempts, and its loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..placement.drawing.svg import Svg, Theme, fitted, plural, text_width
from .account import Mark, Phase, PhaseKind, Recovery
from .progress import Progress, Sample

Item = TypeVar("Item")

WIDTH = 1120.0
LEFT = 92.0
RIGHT = 24.0
LANE = 46.0
BAR = 18.0
MOST_LANES = 40
MOST_TICKS = 240
CURVE_HEIGHT = 260.0
MOST_POINTS = 1500
MOST_MARKS = 8
MOST_CURVES_NAMED = 8

# Mid tones, readable on light and on dark pages.
COLOURS = {
    PhaseKind.QUEUED: "#9aa6b4",
    PhaseKind.LAUNCHING: "#4a7fb5",
    PhaseKind.STARTING: "#7fa8d1",
    PhaseKind.TRAINING: "#4f9f55",
    PhaseKind.LOST: "#d8a13a",
    PhaseKind.UNNOTICED: "#d9534f",
    PhaseKind.STOPPING: "#b05a9c",
    PhaseKind.PLACING: "#8d7bc4",
}
_ATTEMPT_COLOURS = ("#4a7fb5", "#ee8a2e", "#4f9f55", "#8d6bb8", "#35a3a3", "#c2628f")


def draw_timeline(
    phases: Sequence[Phase],
    progress: Progress,
    faults: Sequence[Recovery],
    marks: Sequence[Mark] = (),
    *,
    state: str,
    theme: Theme = "auto",
) -> str:
    """A job's phases over time, a lane an attempt, with its checkpoints and what broke.

    phases: without gaps, first to last. Beyond 40 attempts only the last 40 are drawn.
    """
    svg = Svg()
    if not phases:
        svg.text(LEFT, 30, "nothing has happened yet", "m t2")
        return svg.render(WIDTH, 50, "Timeline", "The job has no history yet.", theme)
    start_s, end_s = phases[0].start_s, phases[-1].end_s
    attempts = sorted({phase.attempt for phase in phases})
    lanes = attempts[-MOST_LANES:]
    scale = (WIDTH - LEFT - RIGHT) / max(end_s - start_s, 1e-6)

    def x_of(time_s: float) -> float:
        return LEFT + (min(max(time_s, start_s), end_s) - start_s) * scale

    y = _draw_legend(svg, phases, bool(progress.saves), 22) + 16
    if len(lanes) < len(attempts):
        y += 14
        hidden = plural(len(attempts) - len(lanes), "earlier attempt")
        svg.text(LEFT, y, f"{hidden} not drawn", "m t3")
    top = y + (34 if marks else 10)
    bottom = top + LANE * len(lanes)
    _draw_axis(svg, start_s, end_s, top, bottom, x_of)
    _draw_marks(svg, marks, top, bottom, x_of)
    for number, lane in enumerate(lanes):
        base = top + number * LANE + 14
        own = [phase for phase in phases if phase.attempt == lane]
        svg.text(LEFT - 10, base + 13, f"attempt {lane}", "t t3 end")
        for phase in own:
            left, right = x_of(phase.start_s), x_of(phase.end_s)
            tip = f"attempt {lane}: {phase.kind}, {duration_text(phase.took_s)}"
            width = max(right - left, 0.8)
            svg.rect(left, base, width, BAR, "", fill=COLOURS[phase.kind], tip=tip)
            label = fitted(phase.kind.value, right - left - 8, 10)
            if len(label) == len(phase.kind.value):
                svg.text(left + 5, base + 12.5, label, "t4", fill="#ffffff", tip=tip)
        _draw_saves(svg, progress, lane, base, x_of)
        for fault in faults:
            if fault.attempt == lane:
                _draw_fault(svg, fault, x_of(fault.seen_s), base + BAR + 12)
    last = x_of(end_s)
    svg.text(last, bottom + 34, state, "t t3 b end")
    words = f"{plural(len(attempts), 'attempt')} over {duration_text(end_s - start_s)}, now {state}"
    return svg.render(WIDTH, bottom + 46, "Timeline", words, theme)


def draw_loss(progress: Progress, *, theme: Theme = "auto") -> str | None:
    """Loss by step, a line an attempt, with the checkpoints; None when no loss was told.

    Where two attempts did the same step their lines lie on each other if both got the same loss.
    """
    points = [s for s in progress.samples if s.loss is not None]
    if not points:
        return None
    svg = Svg()
    losses = [s.loss for s in points if s.loss is not None]
    low, high = min(losses), max(losses)
    room = (high - low) * 0.08 or max(abs(high) * 0.05, 0.5)
    low, high = low - room, high + room
    first, last = min(s.step for s in points), max(s.step for s in points)
    top, bottom = 24.0, CURVE_HEIGHT - 40

    def x_of(step: float) -> float:
        return LEFT + (step - first) / max(last - first, 1) * (WIDTH - LEFT - RIGHT)

    def y_of(loss: float) -> float:
        return bottom - (loss - low) / (high - low) * (bottom - top)

    for value in nice_ticks(low, high, 5):
        svg.line([(LEFT, y_of(value)), (WIDTH - RIGHT, y_of(value))], "link", width=0.5)
        svg.text(LEFT - 8, y_of(value) + 4, f"{value:g}", "m t3 end")
    for value in nice_ticks(first, last, 10):
        if value == int(value):
            svg.text(x_of(value), bottom + 18, f"{int(value):,}", "m t3 mid")
    svg.text(LEFT, top - 8, "loss", "m t3")
    svg.text(WIDTH - RIGHT, bottom + 34, "step", "m t3 end")
    attempts = sorted({s.attempt for s in points})
    for number, attempt in enumerate(attempts):
        own = thinned([s for s in points if s.attempt == attempt], MOST_POINTS)
        colour = _ATTEMPT_COLOURS[number % len(_ATTEMPT_COLOURS)]
        _draw_curve(svg, own, x_of, y_of, attempt, colour)
        if number < MOST_CURVES_NAMED:
            svg.rect(LEFT + 60 + number * 110, top - 18, 10, 10, "", radius=2, fill=colour)
            svg.text(LEFT + 76 + number * 110, top - 9, f"attempt {attempt}", "t t3")
    saves = thinned(sorted({s.step for s in progress.saves if first <= s.step <= last}), MOST_TICKS)
    for step in saves:
        svg.rect(x_of(step) - 1, bottom - 4, 2, 8, "flowfill", tip=f"checkpoint of step {step}")
    words = f"Loss from {losses[0]:.4g} to {losses[-1]:.4g} over {plural(last - first + 1, 'step')}"
    return svg.render(WIDTH, CURVE_HEIGHT, "Loss", words, theme)


def duration_text(seconds: float) -> str:
    """A duration for people: `0.42 s`, `12.3 s`, `3 min 05 s`, `2 h 14 min`."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{seconds / 86400:.1f} days"


def nice_ticks(low: float, high: float, about: int) -> list[float]:
    """Round values between low and high, about as many as asked for."""
    if high <= low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    width = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first = math.ceil(low / width - 1e-9)
    count = math.floor(high / width + 1e-9) - first + 1
    return [round((first + number) * width, 12) for number in range(max(count, 0))]


def _time_ticks(length_s: float) -> list[float]:
    """Round times from 0 to a length: whole seconds, minutes, hours."""
    widths = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600)
    width = next((w for w in widths if length_s / w <= 12), None)
    if width is None:
        width = 86400 * max(1, math.ceil(length_s / 86400 / 12))
    return [number * width for number in range(int(length_s / width) + 1)]


def _tick_text(time_s: float, length_s: float) -> str:
    if length_s < 120:
        return f"{time_s:g} s"
    if length_s < 7200:
        minutes, seconds = divmod(round(time_s), 60)
        return f"{minutes} min" + (f" {seconds:02d}" if seconds else "")
    if length_s < 48 * 3600:
        hours, minutes = divmod(round(time_s / 60), 60)
        return f"{hours} h" + (f" {minutes:02d}" if minutes else "")
    return f"{time_s / 86400:g} d"


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """At most about `most` of the items, evenly chosen, with the first and the last."""
    if len(items) <= most:
        return list(items)
    stride = math.ceil(len(items) / most)
    return [*items[:-1:stride], items[-1]]


def _draw_legend(svg: Svg, phases: Sequence[Phase], saves: bool, y: float) -> float:
    x = LEFT
    present = {phase.kind for phase in phases}
    for kind in PhaseKind:
        if kind not in present:
            continue
        width = 18 + text_width(kind.value) + 18
        if x + width > WIDTH - RIGHT:
            x, y = LEFT, y + 18
        svg.rect(x, y - 10, 12, 12, "", radius=2, fill=COLOURS[kind])
        svg.text(x + 18, y, kind.value, "t t3")
        x += width
    if saves:
        if x + 90 > WIDTH - RIGHT:
            x, y = LEFT, y + 18
        svg.rect(x + 4, y - 11, 2.5, 13, "flowfill")
        svg.text(x + 14, y, "checkpoint", "t t3")
    return y


def _draw_axis(
    svg: Svg,
    start_s: float,
    end_s: float,
    top: float,
    bottom: float,
    x_of: Callable[[float], float],
) -> None:
    length_s = end_s - start_s
    for tick_s in _time_ticks(length_s):
        x = x_of(start_s + tick_s)
        svg.line([(x, top), (x, bottom)], "link", width=0.5)
        svg.text(x, bottom + 14, _tick_text(tick_s, length_s), "m t3 mid")
    svg.text(LEFT, bottom + 32, "since it was submitted", "m t3")


def _draw_marks(
    svg: Svg, marks: Sequence[Mark], top: float, bottom: float, x_of: Callable[[float], float]
) -> None:
    for mark in marks[:MOST_MARKS]:
        x = x_of(mark.time_s)
        svg.line([(x, top - 8), (x, bottom)], "badline", width=1.4, tip=mark.text)
        # Beside the line, on the side that has more room.
        right = x < (LEFT + WIDTH) / 2
        room = WIDTH - RIGHT - x if right else x - LEFT
        text = fitted(mark.text, room - 8)
        svg.text(x + (6 if right else -6), top - 10, text, f"bad t3 b{'' if right else ' end'}")


def _draw_saves(
    svg: Svg, progress: Progress, lane: int, base: float, x_of: Callable[[float], float]
) -> None:
    own = [save for save in progress.saves if save.attempt == lane]
    for save in thinned(own, MOST_TICKS):
        if save.time_s is not None:
            tip = f"checkpoint of step {save.step}"
            svg.rect(x_of(save.time_s) - 1, base - 4, 2, BAR + 8, "flowfill", tip=tip)


def _draw_fault(svg: Svg, fault: Recovery, x: float, y: float) -> None:
    right = x < (LEFT + WIDTH) / 2
    room = WIDTH - RIGHT - x if right else x - LEFT
    text = fitted(fault.message, room - 10, 9)
    svg.text(x, y, text, f"bad t4{'' if right else ' end'}", tip=fault.message)


def _draw_curve(
    svg: Svg,
    points: Sequence[Sample],
    x_of: Callable[[float], float],
    y_of: Callable[[float], float],
    attempt: int,
    colour: str,
) -> None:
    where = [(x_of(p.step), y_of(p.loss)) for p in points if p.loss is not None]
    if len(where) == 1:
        ((x, y),) = where
        svg.rect(x - 2, y - 2, 4, 4, "", radius=2, fill=colour, tip=f"attempt {attempt}")
        return
    svg.line(where, "", width=2, stroke=colour, tip=f"attempt {attempt}")
