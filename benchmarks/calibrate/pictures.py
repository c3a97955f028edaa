"""Predicted against measured, as pictures in docs/pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from railweave.placement.cost import CONSTANTS
from railweave.placement.drawing.svg import Svg, colours, plural

from .measured import Exchange, Step
from .parameters import predicted_exchanges, predicted_steps

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SIDE, MARGIN, TOP = 360, 62, 74
DOT = 3.0
BAND = 1.2
MOST_TIPS = 200
NAMES = {
    "vtrain_single": "vTrain, one node",
    "vtrain_multi": "vTrain, 8 to 64 nodes",
    "megatron": "Megatron-LM",
    "sc21_zero3": "ZeRO-3 without model parallelism",
    "dgxc": "DGX Cloud recipes",
    "torchtitan": "torchtitan",
    "megatron_core": "Megatron Core",
    "bridge": "Megatron Bridge, dense",
    "bridge_sparse": "Megatron Bridge, mixtures and hybrids",
    "gb200": "Megatron Bridge on GB200, not fitted",
}
PANELS = (
    ("A100", ("vtrain_single", "vtrain_multi", "megatron", "sc21_zero3")),
    ("H100 and GB200", ("dgxc", "torchtitan", "megatron_core", "bridge", "bridge_sparse", "gb200")),
)
CURVES = (("nccl-h100", 8), ("nccl-a100", 8), ("nccl-a100", 4), ("nccl-a100", 2))


def draw(steps: Sequence[Step], rows: Sequence[Exchange]) -> None:
    """Write `cost-steps.svg` and `cost-collectives.svg`."""
    PICTURES.mkdir(exist_ok=True)
    for name, text in (
        ("cost-steps.svg", steps_picture(steps)),
        ("cost-collectives.svg", collectives_picture(rows)),
    ):
        (PICTURES / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/pictures/{name}")


def steps_picture(steps: Sequence[Step]) -> str:
    """Predicted against measured step times, one panel an accelerator; both axes logarithmic."""
    predicted = predicted_steps(steps, CONSTANTS)
    drawing = Svg()
    drawing.text(MARGIN, 30, "Predicted against measured seconds a step", "t t2 b")
    drawing.text(MARGIN, 48, "Thin lines: 20 % above and below.", "m t3")
    for place, (title, families) in enumerate(PANELS):
        rows = [
            (step.family, step.step_s, float(seconds))
            for step, seconds in zip(steps, predicted, strict=True)
            if step.family in families
        ]
        left = MARGIN + place * (SIDE + 90)
        _steps_panel(drawing, left, title, families, rows)
    width = MARGIN + 2 * SIDE + 90 + 24
    return drawing.render(width, TOP + SIDE + 160, "Step times", "Predicted against measured.")


def _steps_panel(
    drawing: Svg,
    left: float,
    title: str,
    families: tuple[str, ...],
    rows: Sequence[tuple[str, float, float]],
) -> None:
    values = [value for _, *pair in rows for value in pair]
    low, high = math.log10(min(values) * 0.8), math.log10(max(values) * 1.25)

    def at(seconds: float) -> float:
        return (math.log10(seconds) - low) / (high - low) * SIDE

    def corner(measured: float, seconds: float) -> tuple[float, float]:
        return left + at(measured), TOP + SIDE - at(seconds)

    drawing.rect(left, TOP, SIDE, SIDE, "box1")
    drawing.text(left + 8, TOP + 18, title, "t t2 b")
    for tick in _ticks(10**low, 10**high):
        drawing.line([corner(tick, 10**low), corner(tick, 10**high)], "link", width=0.4)
        drawing.line([corner(10**low, tick), corner(10**high, tick)], "link", width=0.4)
        drawing.text(left + at(tick), TOP + SIDE + 16, f"{tick:g}", "m t3 mid")
        drawing.text(left - 6, TOP + SIDE - at(tick) + 4, f"{tick:g}", "m t3 end")
    ends = 10**low, 10**high
    drawing.line([corner(ends[0], ends[0]), corner(ends[1], ends[1])], "link", width=1.2)
    for factor in (BAND, 1 / BAND):
        inner = (ends[0] * max(1, 1 / factor), ends[1] / max(1, factor))
        drawing.line([corner(end, end * factor) for end in inner], "link", width=0.8)
    shades = dict(zip(families, colours(len(families)), strict=True))
    for family, measured, seconds in rows:
        x, y = corner(measured, seconds)
        tip = f"{measured:.4g} s, predicted {seconds:.4g} s" if len(rows) < MOST_TIPS else ""
        drawing.rect(
            x - DOT / 2, y - DOT / 2, DOT, DOT, "", radius=DOT / 2, fill=shades[family], tip=tip
        )
    drawing.text(left + SIDE / 2, TOP + SIDE + 34, "measured, s", "m t3 mid")
    for line, family in enumerate(families):
        y = TOP + SIDE + 56 + 16 * line
        count = sum(row[0] == family for row in rows)
        drawing.rect(left, y - 8, 8, 8, "", radius=4, fill=shades[family])
        drawing.text(left + 14, y, f"{NAMES[family]}, {plural(count, 'step')}", "t t3")


def collectives_picture(rows: Sequence[Exchange]) -> str:
    """Bus bandwidth of all-reduces inside a node by size: measured dots, predicted lines."""
    drawing = Svg()
    width, height = 2 * SIDE, SIDE - 60
    drawing.text(MARGIN, 30, "Bus bandwidth of an all-reduce inside a node, GB/s", "t t2 b")
    drawing.text(MARGIN, 48, "Dots measured with nccl-tests, lines predicted.", "m t3")
    predicted = predicted_exchanges(rows, CONSTANTS)
    low, high = math.log10(1024.0), math.log10(max(row.size for row in rows))
    most = 500.0

    def corner(size: float, rate: float) -> tuple[float, float]:
        x = MARGIN + (math.log10(size) - low) / (high - low) * width
        return x, TOP + height - rate / most * height

    drawing.rect(MARGIN, TOP, width, height, "box1")
    for rate in range(0, 501, 100):
        _, y = corner(1024, rate)
        drawing.line([(MARGIN, y), (MARGIN + width, y)], "link", width=0.4)
        drawing.text(MARGIN - 6, y + 4, str(rate), "m t3 end")
    for power, name in (
        (10, "1 KiB"),
        (15, "32 KiB"),
        (20, "1 MiB"),
        (25, "32 MiB"),
        (30, "1 GiB"),
    ):
        x, _ = corner(2.0**power, 0)
        drawing.line([(x, TOP), (x, TOP + height)], "link", width=0.4)
        drawing.text(x, TOP + height + 16, name, "m t3 mid")
    for shade, (family, ranks) in zip(colours(len(CURVES)), CURVES, strict=True):
        points = []
        for row, seconds in zip(rows, predicted, strict=True):
            if row.family != family or row.span.ranks != ranks or row.size < 1024:
                continue
            carried = 2 * (ranks - 1) / ranks * row.size / 1e9
            points.append(corner(row.size, carried / float(seconds)))
            x, y = corner(row.size, carried / row.seconds)
            tip = f"{row.size} bytes: measured {row.seconds * 1e6:.1f} us, "
            tip += f"predicted {float(seconds) * 1e6:.1f} us"
            drawing.rect(x - 2, y - 2, 4, 4, "", radius=2, fill=shade, tip=tip)
        drawing.line(points, "", width=1.5, stroke=shade)
    for line, (shade, (family, ranks)) in enumerate(zip(colours(len(CURVES)), CURVES, strict=True)):
        y = TOP + height + 40 + 16 * line
        drawing.rect(MARGIN, y - 8, 8, 8, "", radius=4, fill=shade)
        drawing.text(MARGIN + 14, y, f"{ranks} {family[-4:].upper()}", "t t3")
    return drawing.render(
        MARGIN + width + 24, TOP + height + 112, "All-reduces", "Bus bandwidth by size."
    )


def _ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return [value for value in values if low <= value <= high]
