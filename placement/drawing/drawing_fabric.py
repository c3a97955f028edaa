"""Drawing a cluster: spine, domains, nodes, devices and rails, and links that are not healthy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..cluster import NODE_TIER, Cluster, CrossRail, Node, NodeState, Tier
from ..ctg import Link, build_ctg
from ..domains import Domain, DomainTree
from .drawing_layout import (
    DEVICE,
    DEVICE_GAP,
    DEVICES_A_ROW,
    GUTTER,
    HEADER,
    NIC,
    NODE_HEADER,
    PAD,
    SLIM_HEADER,
    Box,
    Detail,
    detail_for,
    lay_out,
    place,
)
from .svg import Svg, Theme, colours, fitted, ink_on, plural, rate_text, text_width

WIDTH = 1200.0
MARGIN = 20.0
MOST_DAMAGES_LISTED = 12
MOST_RAILS = 16
# Bold and narrow faces run wider than the average character the fitting reckons with.
BOLD = 1.1


def draw_fabric(
    cluster: Cluster,
    link_health: Mapping[Link, float] | None = None,
    *,
    title: str | None = None,
    theme: Theme = "auto",
) -> str:
    """A cluster as SVG text: its tiers as nested boxes below the spine, nodes by their state.

    Up to 128 nodes every device is drawn, up to 4,096 every node, beyond that the nearest domains.
    `link_health` (0 dead to 1 as built) marks links by their ends in the CTG (`nic_id`,
    `switch_id`). The text holds no script and no outside reference, and follows the page's light
    or dark theme. Raises InvalidInput when `link_health` names a link that does not exist.
    """
    picture = FabricPicture(cluster, link_health)
    svg = Svg()
    heading = title or f"Fabric {cluster.name}"
    counts = f"{plural(len(cluster.nodes), 'node')}, {plural(_device_count(cluster), 'device')}"
    y = draw_heading(svg, heading, f"{counts}; {_tier_summary(cluster)}", picture.width)
    y = picture.draw(svg, y + 8, StateCells(cluster))
    y = _draw_legend(svg, cluster, picture, y + 26)
    y = _draw_damages(svg, picture.damages, y)
    description = f"{counts} in {cluster.name}, grouped by {', '.join(cluster.tier_names[1:])}."
    return svg.render(picture.width, y + MARGIN, heading, description, theme)


class Part(NamedTuple):
    """A share (0..1) of some nodes' devices that is filled alike."""

    style: str
    fill: str
    share: float
    tip: str


class Cells(Protocol):
    """How nodes and devices are filled: by state, or by what a placement put there."""

    def device(self, node: Node, index: int) -> tuple[str, str, str, str]:
        """Class, fill (empty to leave it to the class), label and tip of one device."""

    def shares(self, nodes: list[Node]) -> list[Part]:
        """What the devices of some nodes are filled with, together."""


class StateCells:
    """Devices filled by whether a new job may take them."""

    def __init__(self, cluster: Cluster) -> None:
        self._rails = cluster.rails

    def device(self, node: Node, index: int) -> tuple[str, str, str, str]:
        """The device by its state, labelled with its index."""
        state = device_state(node, index)
        rail = f", rail {index % self._rails}" if self._rails > 1 else ""
        return state, "", str(index), f"{node.name} device {index}{rail}: {state}"

    def shares(self, nodes: list[Node]) -> list[Part]:
        """Shares of devices by state; a node without devices counts as one."""
        states: Counter[str] = Counter()
        for node in nodes:
            if node.devices == 0:
                states[node.state.value] += 1
            for index in range(node.devices):
                states[device_state(node, index)] += 1
        total = sum(states.values())
        return [
            Part(state.value, "", states[state] / total, f"{states[state]:,} {state}")
            for state in NodeState
            if states[state]
        ]


def device_state(node: Node, index: int) -> str:
    """The state of a device: its node's, or busy when another job has it."""
    if node.state is not NodeState.FREE:
        return node.state.value
    return "free" if index in node.usable_devices else "busy"


@dataclass
class Damage:
    """A link below full health, by the box whose uplink it is."""

    owner: Domain
    rail: int | None
    health: float
    text: str


class FabricPicture:
    """The boxes of a cluster, ready to be drawn with any filling of the cells."""

    def __init__(
        self,
        cluster: Cluster,
        link_health: Mapping[Link, float] | None = None,
        *,
        show_rails: bool = True,
    ) -> None:
        self.cluster = cluster
        self.tree = DomainTree.of(cluster)
        self.detail = detail_for(self.tree)
        self.box = lay_out(self.tree, self.detail, WIDTH - 2 * MARGIN)
        self.width = max(640.0, self.box.width + 2 * MARGIN)
        self.damages = _damages(cluster, link_health or {})
        self.rail_colours = (
            colours(cluster.rails) if show_rails and 1 < cluster.rails <= MOST_RAILS else []
        )
        self._nodes = {node.name: node for node in cluster.nodes}
        self._tiers = {tier.name: tier for tier in cluster.tiers}
        self._damages_of: defaultdict[Domain, list[Damage]] = defaultdict(list)
        for damage in self.damages:
            self._damages_of[damage.owner].append(damage)

    def draw(self, svg: Svg, y: float, cells: Cells) -> float:
        """Draw it with its top at y. Returns where it ends."""
        place(self.box, MARGIN, y)
        self._draw_domain(svg, self.box, 0, cells)
        return y + self.box.height

    def _draw_domain(self, svg: Svg, box: Box, depth: int, cells: Cells) -> None:
        if box.header == 0:
            self._draw_summary(svg, box, cells)
            return
        svg.rect(box.x, box.y, box.width, box.height, f"box{min(depth, 2)}", radius=6)
        if box.gutter:
            self._draw_feeders(svg, box)
        self._draw_header(svg, box, depth == 0)
        for child in box.children:
            if child.domain.tier != NODE_TIER:
                self._draw_domain(svg, child, depth + 1, cells)
            elif self.detail is Detail.DEVICES:
                self._draw_node(svg, child, cells)
            else:
                self._draw_dot(svg, child, cells)

    def _draw_header(self, svg: Svg, box: Box, root: bool) -> None:
        tier = self._tiers[box.domain.tier]
        name = tier.name if root else f"{tier.name} {box.domain.name}"
        about = self._about(box.domain, tier)
        tip = f"{name}: {about}"
        if box.header == SLIM_HEADER:
            svg.text(box.x + PAD, box.y + 11, fitted(name, box.width - 2 * PAD, 9), "t t4", tip=tip)
            return
        style = "upbar" if tier.scale_up else "bar"
        svg.rect(box.x, box.y, box.width, box.header - 4, style, radius=6)
        right = box.x + box.width - 8
        for rail in reversed(range(self._switch_count(tier))):
            right -= 6
            colour = self.rail_colours[rail] if self._switch_count(tier) > 1 else ""
            switch = f"{tier.name} switch of rail {rail}" if colour else f"{tier.name} switch"
            svg.rect(
                right, box.y + 5, 5, box.header - 14, "busy", radius=1.5, fill=colour, tip=switch
            )
        name = fitted(name, right - box.x - 14)
        svg.text(box.x + 8, box.y + 14, name, "t t3 b", tip=tip)
        left = box.x + 8 + text_width(name) * BOLD + 10
        if text_width(about, 9) * BOLD < right - left - 6:
            svg.text(left, box.y + 14, about, "m t4")

    def _switch_count(self, tier: Tier) -> int:
        last = tier.name == self.cluster.spine
        one = tier.scale_up or (last and self.cluster.cross_rail is CrossRail.SPINE)
        return 1 if one or not self.rail_colours else self.cluster.rails

    def _about(self, domain: Domain, tier: Tier) -> str:
        nodes = plural(len(self.tree.nodes(domain)), "node")
        rate = f"{rate_text(tier.bandwidth)} a {'device' if tier.scale_up else 'NIC'}"
        over = f", {tier.oversubscription:g}:1 oversubscribed" if tier.oversubscription > 1 else ""
        return f"{nodes}, {rate}{over}"

    def _draw_feeders(self, svg: Svg, box: Box) -> None:
        """A line down each column of children, with a branch to each."""
        for number in range(box.columns):
            members = box.column(number)
            x = members[0].x - GUTTER / 2
            svg.line([(x, box.y + HEADER - 4), (x, _branch_y(members[-1]))], "link", width=1.6)
            for child in members:
                damages = self._damages_of.get(child.domain, [])
                style, width = "link", 1.6
                if damages:
                    style, width = f"{_severity(min(d.health for d in damages))}line", 4.0
                tip = "; ".join(damage.text for damage in damages)
                y = _branch_y(child)
                svg.line([(x, y), (child.x, y)], style, width=width, tip=tip)

    def _draw_node(self, svg: Svg, box: Box, cells: Cells) -> None:
        node = self._nodes[box.domain.name]
        damages = self._damages_of.get(box.domain, [])
        tip = f"{node.name}: {plural(node.devices, 'device')} {node.accelerator}, {node.state}"
        svg.rect(box.x, box.y, box.width, box.height, "node", radius=4, tip=tip)
        note, style = _node_note(node, damages)
        room = box.width - 2 * PAD - (text_width(note, 9) + 6 if note else 0)
        svg.text(box.x + PAD, box.y + 13, fitted(node.name, room), "t t3", tip=tip)
        if note:
            svg.text(box.x + box.width - PAD, box.y + 13, note, f"{style} t4 end")
        for index in range(node.devices):
            x = box.x + PAD + index % DEVICES_A_ROW * (DEVICE + DEVICE_GAP)
            y = box.y + NODE_HEADER + index // DEVICES_A_ROW * (DEVICE + NIC + DEVICE_GAP)
            style, fill, label, about = cells.device(node, index)
            svg.rect(x, y, DEVICE, DEVICE, style, radius=3, fill=fill, tip=about)
            ink = ink_on(fill) if fill else ""
            svg.text(x + DEVICE / 2, y + DEVICE / 2 + 3.2, label, "t t4 mid", fill=ink, tip=about)
            self._draw_nic(svg, x, y + DEVICE + 1.5, index % self.cluster.rails, damages)

    def _draw_nic(self, svg: Svg, x: float, y: float, rail: int, damages: list[Damage]) -> None:
        health = min((d.health for d in damages if d.rail in (rail, None)), default=1.0)
        if health < 1:
            tip = f"NIC of rail {rail} at {health:.0%}"
            svg.rect(x, y, DEVICE, 4, _severity(health), radius=1, tip=tip)
        elif self.rail_colours:
            svg.rect(x + 4, y, DEVICE - 8, 2.5, "", radius=1, fill=self.rail_colours[rail])

    def _draw_dot(self, svg: Svg, box: Box, cells: Cells) -> None:
        node = self._nodes[box.domain.name]
        parts = cells.shares([node])
        tip = f"{node.name}: {', '.join(part.tip for part in parts)}"
        _draw_parts(svg, box.x, box.y, box.width, box.height, parts, tip)
        health = min((d.health for d in self._damages_of.get(box.domain, [])), default=1.0)
        if health < 1:
            svg.rect(box.x, box.y + box.height - 4, box.width, 4, _severity(health), tip=tip)

    def _draw_summary(self, svg: Svg, box: Box, cells: Cells) -> None:
        nodes = [self._nodes[name] for name in self.tree.nodes(box.domain)]
        parts = cells.shares(nodes)
        tip = f"{box.domain.name}: {', '.join(part.tip for part in parts)}"
        label = box.width * 0.4
        name = fitted(box.domain.name, label - 6, 9)
        svg.text(box.x + 2, box.y + 12, name, "t t4", tip=tip)
        _draw_parts(svg, box.x + label, box.y + 3, box.width - label, 12, parts, tip)


def _branch_y(box: Box) -> float:
    return box.y + (min(box.header, HEADER) / 2 - 2 if box.header else min(10.0, box.height / 2))


def _node_note(node: Node, damages: list[Damage]) -> tuple[str, str]:
    """What is said beside a node's name, and its class; its state shows in its devices, too."""
    if damages:
        worst = damages[0].health
        return ("dead link" if worst == 0 else f"link at {worst:.0%}"), _severity(worst)
    if node.state is not NodeState.FREE:
        return node.state.value, {"faulty": "bad", "drained": "warn"}.get(node.state.value, "m")
    return "", ""


def _draw_parts(
    svg: Svg, x: float, y: float, width: float, height: float, parts: list[Part], tip: str
) -> None:
    for part in parts:
        share = width * part.share
        svg.rect(x, y, share, height, part.style, radius=2, fill=part.fill, tip=tip)
        x += share


def draw_heading(svg: Svg, heading: str, subtitle: str, width: float) -> float:
    """The title lines of a drawing. Returns where they end."""
    svg.text(MARGIN, 34, fitted(heading, width - 2 * MARGIN, 19), "t t1", tip=heading)
    svg.text(MARGIN, 54, fitted(subtitle, width - 2 * MARGIN, 12.4), "m t2", tip=subtitle)
    return 64.0


def draw_swatches(
    svg: Svg, entries: list[tuple[str, str, str]], x: float, y: float, width: float
) -> float:
    """A legend of (class, fill, text) in as many lines as it takes. Returns its last baseline."""
    left = x
    for style, fill, text in entries:
        needed = 14 + 6 + text_width(text, 11) + 18
        if left > x and left + needed > x + width:
            left, y = x, y + 20
        svg.rect(left, y - 10, 12, 12, style, radius=2, fill=fill)
        svg.text(left + 18, y, text, "t t3")
        left += needed
    return y


def _draw_legend(svg: Svg, cluster: Cluster, picture: FabricPicture, y: float) -> float:
    present: Counter[str] = Counter()
    for node in cluster.nodes:
        for index in range(node.devices):
            present[device_state(node, index)] += 1
    entries = [
        (state.value, "", f"{state.value}: {plural(present[state.value], 'device')}")
        for state in NodeState
        if present[state.value]
    ]
    rails = [("", colour, f"rail {n}") for n, colour in enumerate(picture.rail_colours)]
    y = draw_swatches(svg, entries, MARGIN, y, picture.width - 2 * MARGIN)
    if rails:
        y = draw_swatches(svg, rails, MARGIN, y + 22, picture.width - 2 * MARGIN)
    return y


def _draw_damages(svg: Svg, damages: list[Damage], y: float) -> float:
    if not damages:
        return y
    svg.text(MARGIN, y + 30, f"{plural(len(damages), 'degraded link')}", "t t2 b")
    y += 30
    for damage in damages[:MOST_DAMAGES_LISTED]:
        y += 18
        svg.rect(MARGIN, y - 9, 10, 10, _severity(damage.health), radius=2)
        svg.text(MARGIN + 18, y, damage.text, "t t3")
    if len(damages) > MOST_DAMAGES_LISTED:
        y += 18
        svg.text(MARGIN + 18, y, f"and {len(damages) - MOST_DAMAGES_LISTED} more", "m t3")
    return y


def _damages(cluster: Cluster, link_health: Mapping[Link, float]) -> list[Damage]:
    """The links below full health, worst first."""
    if not link_health:
        return []
    graph = build_ctg(cluster, link_health)
    found = []
    for link in link_health:
        data = graph.edges[link]
        if data["health"] >= 1:
            continue
        lower, upper = sorted(
            (graph.nodes[end] for end in link), key=lambda end: end.get("level", -1)
        )
        rail = lower.get("rail", upper.get("rail"))
        owner = Domain(lower.get("tier", NODE_TIER), str(lower.get("domain", lower.get("node"))))
        place_of_lower = f"{owner.tier} {owner.name}"
        lane = f" rail {rail}" if rail is not None and cluster.rails > 1 else ""
        target = f"{upper['tier']} switch" if upper["kind"] == "switch" else upper["kind"]
        full = rate_text(data["bandwidth_bytes_per_s"])
        dead = data["health"] == 0
        state = f"dead ({full} when healthy)" if dead else f"at {data['health']:.0%} of {full}"
        text = f"{place_of_lower}{lane} to its {target}: {state}"
        found.append(Damage(owner, rail, data["health"], text))
    return sorted(found, key=lambda damage: (damage.health, damage.text))


def _severity(health: float) -> str:
    return "bad" if health < 0.5 else "warn"


def _device_count(cluster: Cluster) -> int:
    return sum(node.devices for node in cluster.nodes)


def _tier_summary(cluster: Cluster) -> str:
    tree = DomainTree.of(cluster)
    counts = [plural(len(tree.domains(tier.name)), tier.name) for tier in cluster.tiers[:-1]]
    rails = [plural(cluster.rails, "rail")] if cluster.rails > 1 else []
    spine = f"{cluster.spine} of {rate_text(cluster.tiers[-1].bandwidth)} a NIC"
    return ", ".join([*counts, *rails, spine])
