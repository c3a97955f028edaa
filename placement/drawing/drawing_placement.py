"""Drawing a placement: ranks on their devices, and the bytes that cross the spine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ..cluster import Cluster, Node
from ..evaluate import Device, Evaluation, evaluate
from ..jobs.parts import rank_parts
from ..paths.flows import default_address, network_flows
from ..pcg import PCG, Op
from .drawing_fabric import (
    BOLD,
    MARGIN,
    FabricPicture,
    Part,
    device_state,
    draw_heading,
    draw_swatches,
)
from .drawing_layout import Box
from .svg import Svg, Theme, bytes_text, colours, fitted, plural, text_width

MOST_PARTS = 256
MOST_LEGEND_ENTRIES = 24
MOST_BOXES_WITH_ARCS = 8
MOST_FLOWS_LABELLED = 8
MOST_FLOWS_LISTED = 8
BAR_WIDTH = 300.0


class Crossing(NamedTuple):
    """Bytes a step between two domains just below the spine, both directions together."""

    one: str
    other: str
    bytes: float


def draw_placement(
    pcg: PCG,
    cluster: Cluster,
    devices: Sequence[Device],
    *,
    lower_bound_bytes: float | None = None,
    title: str | None = None,
    theme: Theme = "auto",
) -> str:
    """A placement as SVG text: devices coloured by pipeline stage (or group), spine traffic above.

    Rank r is on `devices[r]`. Arcs over the spine join the domains whose ranks send to each other
    across it, as wide as their bytes a step; `lower_bound_bytes`, where given, is marked beside the
    bytes at the spine. The text holds no script. Raises InvalidInput as `evaluate` does.
    """
    evaluation = evaluate(pcg, cluster, devices)
    crossings = spine_crossings(pcg, cluster, devices)
    parts = _Parts(pcg)
    picture = FabricPicture(cluster, show_rails=False)
    svg = Svg()
    heading = title or f"{plural(pcg.world_size, 'rank')} on {cluster.name}"
    nodes = len({node for node, _ in devices})
    subtitle = (
        f"{nodes:,} of {plural(len(cluster.nodes), 'node')}; "
        f"{bytes_text(evaluation.cross_spine_bytes)} a step over the {cluster.spine}"
    )
    y = draw_heading(svg, heading, subtitle, picture.width)
    y = _draw_traffic(svg, evaluation, lower_bound_bytes, y + 14)
    boxes = picture.box.children
    arcs = len(boxes) <= picture.box.columns and len(boxes) <= MOST_BOXES_WITH_ARCS
    top = y + 12 + (_arc_room(picture, crossings) if arcs else 0)
    bottom = picture.draw(svg, top, _RankCells(cluster, devices, parts))
    drawn = _draw_arcs(svg, boxes, crossings, top) if arcs else 0
    y = _draw_legend(svg, cluster, devices, parts, picture.width, bottom + 26)
    if drawn < len(crossings):
        y = _draw_list(svg, crossings, cluster.spine, y + 32)
    description = f"{subtitle}. Ranks are coloured by {parts.word}."
    return svg.render(picture.width, y + MARGIN, heading, description, theme)


def spine_crossings(pcg: PCG, cluster: Cluster, devices: Sequence[Device]) -> list[Crossing]:
    """Bytes that meet only at the last tier, by the pair of domains below it, most bytes first.

    Where different rails meet only at the spine, a domain may have traffic with itself there.
    """
    top = cluster.tiers[-2].name if len(cluster.tiers) > 1 else None
    address = default_address(cluster)
    domain_at = {
        address((node.name, rail)): node.domains[top] if top else node.name
        for node in cluster.nodes
        for rail in range(cluster.rails)
    }
    totals: defaultdict[tuple[str, str], float] = defaultdict(float)
    for flow in network_flows(pcg, cluster, devices):
        if flow.tier == cluster.spine:
            one, other = sorted((domain_at[flow.source], domain_at[flow.destination]))
            totals[one, other] += flow.bytes
    found = [Crossing(one, other, size) for (one, other), size in totals.items()]
    return sorted(found, key=lambda crossing: (-crossing.bytes, crossing.one, crossing.other))


class _Parts:
    """The parts that ranks are coloured by."""

    def __init__(self, pcg: PCG) -> None:
        self.of_rank = rank_parts(pcg)
        pipeline = any(group.op is Op.SEND_RECV for group in pcg.groups)
        if len(set(self.of_rank)) > MOST_PARTS:
            self.of_rank = [0] * pcg.world_size
        self.count = max(self.of_rank) + 1
        self.colours = colours(self.count)
        self.word = "rank" if self.count == 1 else "stage" if pipeline else "group"

    def name(self, part: int) -> str:
        return "ranks" if self.count == 1 else f"{self.word} {part}"

    def legend(self, part: int, size: int) -> str:
        ranks = plural(size, "rank")
        return ranks if self.count == 1 else f"{self.word} {part} ({ranks})"


class _RankCells:
    """Devices filled by the part of the rank on them, faint where no rank of the job is."""

    def __init__(self, cluster: Cluster, devices: Sequence[Device], parts: _Parts) -> None:
        self._ranks: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for rank, (node, index) in enumerate(devices):
            self._ranks[node][index] = rank
        self._parts = parts

    def device(self, node: Node, index: int) -> tuple[str, str, str, str]:
        """The device by its rank."""
        rank = self._ranks.get(node.name, {}).get(index)
        if rank is None:
            state = device_state(node, index)
            return _faint(state), "", "", f"{node.name} device {index}: not used, {state}"
        part = self._parts.of_rank[rank]
        about = f"rank {rank} ({self._parts.name(part)}) on {node.name} device {index}"
        return "", self._parts.colours[part], str(rank), about

    def shares(self, nodes: list[Node]) -> list[Part]:
        """Shares of devices by part, in the order of parts, then what is not used, by state."""
        by_part: defaultdict[int, list[int]] = defaultdict(list)
        unused: Counter[str] = Counter()
        for node in nodes:
            ranks = self._ranks.get(node.name, {})
            for index in range(node.devices):
                if index in ranks:
                    by_part[self._parts.of_rank[ranks[index]]].append(ranks[index])
                else:
                    unused[device_state(node, index)] += 1
        total = sum(node.devices for node in nodes) or 1
        found = []
        for part, ranks_here in sorted(by_part.items()):
            tip = f"{self._parts.name(part)}: ranks {_ranges(ranks_here)}"
            found.append(Part("", self._parts.colours[part], len(ranks_here) / total, tip))
        for state, count in sorted(unused.items()):
            found.append(Part(_faint(state), "", count / total, f"{count:,} not used, {state}"))
        return found or [Part("off-free", "", 1.0, "no devices")]


def _faint(state: str) -> str:
    return f"off-{state}"


def _ranges(numbers: list[int]) -> str:
    """`0-7, 12` of sorted or unsorted whole numbers; cut short after a few runs."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in runs[:6]]
    return ", ".join(shown) + (f" and {len(runs) - 6} more runs" if len(runs) > 6 else "")


def _draw_traffic(svg: Svg, evaluation: Evaluation, bound: float | None, y: float) -> float:
    """Bars of bytes a step by tier, spine first. Returns where they end."""
    tiers = list(evaluation.traffic_bytes.items())[::-1]
    largest = max(evaluation.traffic_bytes.values()) or 1.0
    label = max(text_width(name) for name, _ in tiers) + 14
    for number, (name, size) in enumerate(tiers):
        middle = y + number * 18
        width = BAR_WIDTH * size / largest
        style = "flowfill" if number == 0 else "busy"
        svg.text(MARGIN, middle + 4, name, "t t3 b" if number == 0 else "m t3")
        svg.rect(MARGIN + label, middle - 5, max(width, 1.0 if size else 0.0), 10, style, radius=2)
        text = bytes_text(size)
        if number == 0 and bound is not None:
            text += f" (no placement has less than {bytes_text(bound)})"
        svg.text(MARGIN + label + width + 8, middle + 4, text, "t t3")
    return y + len(tiers) * 18


def _arc_room(picture: FabricPicture, crossings: list[Crossing]) -> float:
    if not crossings:
        return 0.0
    positions = {box.domain.name: n for n, box in enumerate(picture.box.children)}
    widest = max(abs(positions[c.one] - positions[c.other]) for c in crossings)
    return _lift(widest) + 24


def _lift(steps: int) -> float:
    return 16.0 + 22.0 * steps


def _draw_arcs(svg: Svg, boxes: Sequence[Box], crossings: list[Crossing], y: float) -> int:
    """Arcs between boxes below the spine. Returns how many crossings they show."""
    by_name = {box.domain.name: (number, box) for number, box in enumerate(boxes)}
    most = max((crossing.bytes for crossing in crossings), default=1.0)
    labels: list[tuple[float, float, str]] = []
    for crossing in crossings:
        (first, one), (second, other) = by_name[crossing.one], by_name[crossing.other]
        left, right = one.centre, other.centre
        if first == second:
            left, right = left - 16, right + 16
        lift = _lift(abs(first - second))
        tip = f"{_between(crossing)}: {bytes_text(crossing.bytes)} a step"
        width = 1.5 + 6.5 * (crossing.bytes / most) ** 0.5
        svg.arc((left, y), (right, y), lift, "flow", width=width, tip=tip)
        if len(labels) < MOST_FLOWS_LABELLED:
            above = y - lift - (10 if first == second else 0)
            labels.append(((left + right) / 2, above, bytes_text(crossing.bytes)))
    taken: list[tuple[float, float, float]] = []
    for x, at, text in labels:
        half = text_width(text) * BOLD / 2 + 3
        while any(abs(x - px) < half + ph and abs(at - py) < 13 for px, py, ph in taken):
            at -= 13
        taken.append((x, at, half))
        svg.rect(x - half, at - 7, 2 * half, 14, "bg", radius=4)
        svg.text(x, at + 4, text, "t t3 b mid")
    return len(crossings)


def _between(crossing: Crossing) -> str:
    if crossing.one == crossing.other:
        return f"within {crossing.one}"
    return f"{crossing.one} and {crossing.other}"


def _draw_legend(
    svg: Svg,
    cluster: Cluster,
    devices: Sequence[Device],
    parts: _Parts,
    width: float,
    y: float,
) -> float:
    sizes = Counter(parts.of_rank)
    step = (
        1 if parts.count <= MOST_LEGEND_ENTRIES else -(-parts.count // (MOST_LEGEND_ENTRIES // 2))
    )
    shown = sorted({*range(0, parts.count, step), parts.count - 1})
    entries = [("", parts.colours[n], parts.legend(n, sizes[n])) for n in shown]
    used = set(devices)
    states: Counter[str] = Counter()
    for node in cluster.nodes:
        for index in range(node.devices):
            if (node.name, index) not in used:
                states[device_state(node, index)] += 1
    entries += [
        (_faint(state), "", f"not used, {state}: {count:,}") for state, count in states.items()
    ]
    return draw_swatches(svg, entries, MARGIN, y, width - 2 * MARGIN)


def _draw_list(svg: Svg, crossings: list[Crossing], spine: str, y: float) -> float:
    svg.text(MARGIN, y, f"Most bytes a step over the {spine}", "t t2 b")
    most = crossings[0].bytes
    for crossing in crossings[:MOST_FLOWS_LISTED]:
        y += 18
        svg.text(MARGIN, y, fitted(_between(crossing), 190), "t t3", tip=_between(crossing))
        width = BAR_WIDTH * crossing.bytes / most
        svg.rect(MARGIN + 200, y - 9, max(width, 1.0), 10, "flowfill", radius=2)
        svg.text(MARGIN + 208 + width, y, bytes_text(crossing.bytes), "t t3")
    if len(crossings) > MOST_FLOWS_LISTED:
        y += 18
        rest = crossings[MOST_FLOWS_LISTED:]
        more = bytes_text(sum(crossing.bytes for crossing in rest))
        svg.text(MARGIN, y, f"and {plural(len(rest), 'pair')} more with {more}", "m t3")
    return y
