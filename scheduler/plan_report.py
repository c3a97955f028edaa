"""The HTML report of a plan: a single file that needs nothing else and runs no script."""

from __future__ import annotations

import os
from typing import Any

from markupsafe import Markup

from ..placement.cluster import Cluster
from ..placement.drawing.drawing_placement import draw_placement
from ..placement.drawing.svg import bytes_text
from ..placement.files import write_text_atomically
from ..placement.planning.planned import Plan, Run
from ..placement.planning.why import part_name, seconds_text
from .pages import render_page
from .plan_drawing import draw_breakdown, draw_points

MOST_RANKS_DRAWN = 4096
_REASONS = {
    "estimated": "worked out in full, and they fit",
    "memory": "do not fit into a device's memory",
    "bound": "cannot be better than the best found, by a bound",
}


def write_plan_report(
    path: str | os.PathLike[str], found: Plan, cluster: Cluster, run: Run | None = None
) -> None:
    """Write the report of a plan as one HTML file, whole or not at all. Raises OSError."""
    write_text_atomically(path, render_plan_report(found, cluster, run))


def render_plan_report(found: Plan, cluster: Cluster, run: Run | None = None) -> str:
    """The report as HTML text. Every name in it is escaped, whatever it holds."""
    filters = {
        "bytes": bytes_text,
        "seconds": lambda value: "–" if value is None else seconds_text(value),
        "ratio": lambda value: f"{value:.1%}",
        "part": part_name,
    }
    best = found.best
    return render_page(
        "plan_report.html.j2",
        filters,
        plan=found,
        best=best,
        work=best.workload,
        cards=_cards(found, run),
        breakdown=Markup(draw_breakdown(found)),
        points=Markup(draw_points(found)),
        placement=_placement(found, cluster),
        reasons=[
            (_REASONS.get(name, f"break the rule {name.replace('_', ' ')}"), count)
            for name, count in found.considered.items()
            if count and name != "considered"
        ],
        memory=[(name, size) for name, size in best.estimate.memory.items() if size],
        settings=_settings(found),
    )


def _cards(found: Plan, run: Run | None) -> list[tuple[str, str, str]]:
    """The numbers at the top: a value, what it is, and a note."""
    best = found.best.estimate
    cards = [
        (seconds_text(best.step_s), "a step", f"on {best.devices:,} devices"),
        (
            f"{best.tokens_per_s:,.0f}",
            "tokens a second",
            f"{best.tokens_per_s_per_device:,.0f} a device",
        ),
        (f"{best.mfu:.1%}", "MFU", f"predicted for {best.software}"),
        (
            bytes_text(best.memory_bytes),
            "in the fullest device",
            f"of {bytes_text(best.memory_limit_bytes)}",
        ),
        (bytes_text(found.best.placement.cross_spine_bytes), "over the spine", "a step"),
    ]
    ratios = [rule.times_as_long for rule in found.rules_of_thumb if rule.times_as_long]
    if ratios:
        text = f"{min(ratios):.2f} x"
        cards.append((text, "the better rule of thumb", "its step over the best one's"))
    if run is not None:
        whole = run.of(best)
        cards.append((f"{whole['days']:.3g}", "days", f"for {run.tokens:.3g} tokens"))
        if whole["cost"] is not None:
            cards.append(
                (f"{whole['cost']:,.0f}", "cost", f"{whole['device_hours']:,.0f} device hours")
            )
        if whole["energy_kwh"] is not None:
            cards.append((f"{whole['energy_kwh'] / 1e3:,.3g} MWh", "energy", f"PUE {run.pue:g}"))
    return cards


def _settings(found: Plan) -> list[tuple[str, str]]:
    """The best strategy as settings of a training program, those that are not the plainest."""
    work = found.best.workload
    split = work.parallelism.model_dump(mode="json", exclude_none=True)
    rows = [(name.replace("_", " "), _setting(value)) for name, value in split.items()]
    rows += [
        ("micro batch", str(work.micro_batch)),
        ("micro-batches a step", str(work.micro_batches)),
        ("global batch", f"{work.global_batch:,}"),
        ("sequence", f"{work.sequence:,}"),
        ("recompute", work.recompute),
        ("precision", work.precision),
        ("rank order", work.rank_order),
    ]
    return rows


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _placement(found: Plan, cluster: Cluster) -> Markup | None:
    best = found.best
    if best.estimate.devices > MOST_RANKS_DRAWN:
        return None
    bound = best.placement.lower_bound_bytes if best.placed else None
    return Markup(
        draw_placement(best.pcg, cluster, best.placement.devices, lower_bound_bytes=bound)
    )
