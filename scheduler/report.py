"""The HTML report of one job: a single file that needs nothing else and runs no script."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from ..placement.cluster import Cluster, NodeState
from ..placement.drawing.drawing_fabric import draw_fabric
from ..placement.drawing.drawing_placement import draw_placement
from ..placement.drawing.svg import bytes_text, plural
from ..placement.errors import InvalidInput
from ..placement.files import write_text_atomically
from ..placement.pcg import PCG
from ..placement.placement import Placement
from .account import Mark, Recovery, phases, recoveries, totals
from .effective import EffectiveTime, effective_time
from .lifecycle import JobState
from .pages import render_page
from .progress import Progress
from .records import AttemptRecord, EventRecord, JobRecord
from .timeline import COLOURS, draw_loss, draw_timeline, duration_text

MOST_ATTEMPTS_DRAWN = 12
MOST_EVENTS = 1000
MOST_RANKS_LISTED = 512
_TONES = {
    JobState.SUCCEEDED: "good",
    JobState.RUNNING: "good",
    JobState.FAILED: "bad",
    JobState.CANCELLED: "bad",
}


@dataclass(frozen=True)
class JobReport:
    """What is known of a job; all but the first four may be left out, and is then not shown.

    cluster: the nodes as they were before anything broke. pcg: what the ranks send each other.
    packed_traffic_bytes: bytes a step by tier, had the ranks been packed in order.
    progress: steps, losses and checkpoints, as `read_progress` finds them in the logs.
    marks: what was done to the job from outside, such as a node killed on purpose.
    """

    job: JobRecord
    attempts: Sequence[AttemptRecord]
    events: Sequence[EventRecord]
    now_s: float
    entrypoint: Sequence[str] = ()
    cluster: Cluster | None = None
    pcg: PCG | None = None
    packed_traffic_bytes: Mapping[str, float] | None = None
    progress: Progress = field(default_factory=Progress)
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class TierRow:
    """A line of the traffic table: bytes a step that meet at one tier."""

    tier: str
    spine: bool
    packed: float | None
    placed: tuple[float, ...]


def write_report(path: str | os.PathLike[str], report: JobReport) -> None:
    """Write the report of a job as one HTML file, whole or not at all. Raises OSError."""
    write_text_atomically(path, render_report(report))


def render_report(report: JobReport) -> str:
    """The report as HTML text. Every name and message in it is escaped, whatever it holds."""
    spans = phases(report.job, report.attempts, report.progress, report.marks, report.now_s)
    faults = recoveries(report.attempts, report.progress, report.marks)
    spent = totals(spans)
    whole_s = sum(spent.values()) or 1.0
    time = effective_time(report.job, report.attempts, report.progress, report.marks, report.now_s)
    state = report.job.state
    filters = {
        "bytes": bytes_text,
        "duration": lambda seconds: "–" if seconds is None else duration_text(seconds),
        "utc": _utc,
        "ratio": lambda value: f"{value:.1%}",
    }
    return render_page(
        "report.html.j2",
        filters,
        job=report.job,
        state=state.value,
        tone=_TONES.get(state, "busy"),
        entrypoint=" ".join(report.entrypoint),
        now_s=report.now_s,
        cards=_cards(report, faults, time),
        timeline=Markup(
            draw_timeline(spans, report.progress, faults, report.marks, state=state.value)
        ),
        spent=[
            (kind.value, seconds, seconds / whole_s, COLOURS[kind])
            for kind, seconds in spent.items()
        ],
        faults=faults,
        kinds=time.kinds,
        tiers=traffic_table(report.attempts, report.packed_traffic_bytes),
        traffic_columns=[f"attempt {a.number}" for a in _first_and_last(report.attempts)],
        bound=_bound(report),
        loss=_drawn(lambda: draw_loss(report.progress)),
        fabric=_drawn(lambda: draw_fabric(report.cluster) if report.cluster else None),
        attempts=[_attempt(report, attempt) for attempt in report.attempts],
        events=list(report.events[-MOST_EVENTS:]),
        events_left_out=max(0, len(report.events) - MOST_EVENTS),
    )


def traffic_table(
    attempts: Sequence[AttemptRecord], packed: Mapping[str, float] | None
) -> list[TierRow]:
    """Bytes a step by tier: packed in order, and as the first and the last attempt were placed."""
    placed = [_placement(attempt) for attempt in _first_and_last(attempts)]
    known = [placement for placement in placed if placement is not None]
    if not known or len(known) < len(placed):
        return []
    tiers = list(known[0].traffic_bytes)
    return [
        TierRow(
            tier,
            tier == tiers[-1],
            packed.get(tier, 0.0) if packed else None,
            tuple(placement.traffic_bytes.get(tier, 0.0) for placement in known),
        )
        for tier in tiers
    ]


def _first_and_last(attempts: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    return [attempts[0], attempts[-1]] if len(attempts) > 1 else list(attempts)


def _placement(attempt: AttemptRecord) -> Placement | None:
    """The placement of an attempt, or None where what is stored is not one."""
    try:
        return Placement.parse(attempt.placement)
    except InvalidInput:
        return None


def _bound(report: JobReport) -> str:
    """In words, how far the last placement is from the best there can be."""
    placement = _placement(report.attempts[-1]) if report.attempts else None
    if placement is None:
        return ""
    found = bytes_text(placement.cross_spine_bytes)
    if placement.proved_optimal:
        return f"{found} a step over the spine, proved to be the least possible."
    bound = bytes_text(placement.lower_bound_bytes)
    if placement.lower_bound_bytes == 0:
        return f"{found} a step over the spine; no bound above 0 is known."
    return (
        f"{found} a step over the spine; no placement can have less than {bound}, "
        f"so this one is at most {placement.gap:.1%} above the best."
    )


def _cards(
    report: JobReport, faults: list[Recovery], time: EffectiveTime
) -> list[tuple[str, str, str]]:
    """The numbers at the top: a value, what it is, and a note."""
    cards = []
    count = len(report.attempts)
    note = f"{plural(len(faults), 'fault')}" if faults else "no fault"
    cards.append((str(count), "attempt" if count == 1 else "attempts", note))
    detected = [fault.detect_s for fault in faults if fault.detect_s is not None]
    if detected:
        what = "from the fault until it was known"
        cards.append((duration_text(max(detected)), "to detect", _worst(detected) or what))
    restarted = [fault.restart_s for fault in faults if fault.restart_s is not None]
    if restarted:
        what = "from detection to training again"
        cards.append((duration_text(max(restarted)), "to restart", _worst(restarted) or what))
    lost = [fault.lost_steps for fault in faults if fault.lost_steps is not None]
    if lost:
        cards.append((f"{sum(lost):,}", "steps lost", "done again from the last checkpoint"))
    if report.progress.samples and time.wall_s:
        note = f"of {duration_text(time.wall_s)}"
        cards.append((f"{time.ratio:.0%}", "of its time training", note))
    rows = traffic_table(report.attempts, report.packed_traffic_bytes)
    if rows:
        spine = rows[-1]
        note = "a step"
        if spine.packed:
            change = spine.placed[-1] / spine.packed - 1
            note = f"a step, {change:+.0%} against packing in order"
            note = note.replace("-", "−").replace("+0%", "0%")
        cards.append((bytes_text(spine.placed[-1]), "over the spine", note))
    return cards


def _worst(values: list[float]) -> str:
    return f"the longest of {len(values)}" if len(values) > 1 else ""


def _attempt(report: JobReport, attempt: AttemptRecord) -> dict[str, Any]:
    """One attempt for the template: its times, where its ranks were, and a drawing of that."""
    placement = _placement(attempt)
    devices = placement.devices if placement else []
    drawing = None
    earlier = [a for a in report.attempts if a.number < attempt.number]
    cluster, pcg = report.cluster, report.pcg
    drawn = attempt.number > len(report.attempts) - MOST_ATTEMPTS_DRAWN
    if placement and cluster and pcg and (drawn or attempt is report.attempts[0]):
        drawing = _drawn(
            lambda: draw_placement(
                pcg,
                _without_broken(cluster, earlier),
                placement.devices,
                lower_bound_bytes=placement.lower_bound_bytes,
                title=f"Attempt {attempt.number}",
            )
        )
    by_node: dict[str, list[str]] = {}
    for rank, (node, device) in enumerate(devices[:MOST_RANKS_LISTED]):
        by_node.setdefault(node, []).append(f"{rank}→{device}")
    return {
        "number": attempt.number,
        "record": attempt,
        "nodes": [(node, ", ".join(ranks)) for node, ranks in by_node.items()],
        "more_ranks": max(0, len(devices) - MOST_RANKS_LISTED),
        "drawing": drawing,
        "last_lines": (attempt.cause or {}).get("last_lines") or (),
    }


def _without_broken(cluster: Cluster, earlier: Sequence[AttemptRecord]) -> Cluster:
    """The cluster as an attempt found it: with the nodes that broke in earlier ones marked."""
    causes = [attempt.cause or {} for attempt in earlier]
    broken = {cause.get("node") for cause in causes if cause.get("node_at_fault")}
    nodes = tuple(
        node.model_copy(update={"state": NodeState.FAULTY}) if node.name in broken else node
        for node in cluster.nodes
    )
    return cluster.with_nodes(nodes)


def _drawn(draw: Callable[[], str | None]) -> Markup | None:
    """A drawing, or None where there is nothing to draw or the parts do not fit together."""
    try:
        svg = draw()
    except InvalidInput:
        return None
    return None if svg is None else Markup(svg)


def _utc(time_s: float | None) -> str:
    if time_s is None:
        return "–"
    try:
        when = datetime.fromtimestamp(time_s, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_s:.0f} s"
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")
