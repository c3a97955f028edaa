"""`python -m fabric.wire_picture`: run the comparison and draw it into docs/pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from railweave.placement.drawing.svg import Svg, bytes_text, colours

from .fabric import Fabric
from .topology import Plan
from .wire import IN_ORDER, RAILWEAVE, OnTheWire, compare

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "prediction-meets-wire.svg"
_LEFT, _TOP, _WIDTH, _BAR, _GAP = 140, 70, 300, 18, 16
_PANEL = _LEFT + _WIDTH + 110


def main() -> None:
    """Bring a fabric up, run both jobs, and write the picture."""
    plan = Plan()
    with Fabric(plan) as fabric:
        found = compare(fabric)
    PICTURE.write_text(picture(plan, found), encoding="utf-8")
    for name, job in found.items():
        print(
            f"{name}: {job.predicted_spine_bytes:.0f} bytes a step predicted over the spines, "
            f"{job.spine_bytes:.0f} counted; {job.predicted_step_s:.4f} s a step predicted, "
            f"{job.step_s:.4f} s measured"
        )
    factors = [
        getattr(found[IN_ORDER], what) / getattr(found[RAILWEAVE], what)
        for what in ("predicted_step_s", "step_s")
    ]
    print(f"faster by {factors[0]:.2f} predicted, {factors[1]:.2f} measured")


def picture(plan: Plan, found: Mapping[str, OnTheWire]) -> str:
    """Bytes over the spines and time a step, predicted and measured, of each placement."""
    drawing = Svg()
    title = "Prediction meets wire"
    drawing.text(20, 30, title, "t t1")
    drawing.text(
        20,
        50,
        f"{plan.leaves} leaves, {plan.spines} spines, {plan.hosts_per_leaf} hosts a leaf; hosts at "
        f"{plan.host_mbit:g} Mbit/s, links to the spines at {plan.spine_mbit:g} Mbit/s. "
        "A pipeline of two stages of three gloo ranks.",
        "m t3",
    )
    _panel(
        drawing,
        0,
        "bytes over the spines, a step",
        {name: (job.predicted_spine_bytes, job.spine_bytes) for name, job in found.items()},
        bytes_text,
    )
    _panel(
        drawing,
        _PANEL,
        "time of a step",
        {name: (job.predicted_step_s, job.step_s) for name, job in found.items()},
        lambda seconds: f"{1000 * seconds:.0f} ms",
    )
    height = _TOP + 50 + len(found) * (2 * _BAR + _GAP)
    told = "; ".join(
        f"{name}: {bytes_text(job.predicted_spine_bytes)} predicted, "
        f"{bytes_text(job.spine_bytes)} counted, {1000 * job.predicted_step_s:.0f} ms predicted, "
        f"{1000 * job.step_s:.0f} ms measured"
        for name, job in found.items()
    )
    return drawing.render(2 * _PANEL, height, title, told)


def _panel(
    drawing: Svg,
    x: float,
    title: str,
    values: Mapping[str, tuple[float, float]],
    shown: Callable[[float], str],
) -> None:
    predicted, measured = colours(2)
    most = max(max(pair) for pair in values.values())
    drawing.text(x + _LEFT, _TOP + 14, title, "t t2 b")
    y = _TOP + 28.0
    for name, pair in values.items():
        drawing.text(x + _LEFT - 10, y + _BAR + 4, name, "t t3 end")
        for value, what, colour in zip(
            pair, ("predicted", "measured"), (predicted, measured), strict=True
        ):
            width = max(1.0, _WIDTH * value / most)
            drawing.rect(
                x + _LEFT, y, width, _BAR - 2, "", fill=colour, tip=f"{what} {shown(value)}"
            )
            drawing.text(x + _LEFT + width + 6, y + _BAR - 5, f"{shown(value)} {what}", "m t3")
            y += _BAR
        y += _GAP


if __name__ == "__main__":
    main()
