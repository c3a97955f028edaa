"""Where the parts of a drawing go: domains as nested boxes, nodes as cells in the innermost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto

from ..cluster import NODE_TIER
from ..domains import Domain, DomainTree

HEADER = 24.0
SLIM_HEADER = 15.0
PAD = 8.0
GUTTER = 14.0
GAP = 6.0
DEVICE = 22.0
DEVICE_GAP = 3.0
NIC = 6.0
DEVICES_A_ROW = 4
NODE_HEADER = 20.0
NODE_WIDTH = 96.0
ROOT_WIDTH = 300.0
DOT = 13.0
DOT_GAP = 2.0
DOTS_A_ROW = 10
SUMMARY_WIDTH = 150.0
SUMMARY_HEIGHT = 18.0
MOST_NODES_WITH_DEVICES = 128
MOST_DEVICES = 1024
MOST_NODES_WITH_DOTS = 4096
MOST_BOXES_WITH_HEADERS = 40


class Detail(Enum):
    """How far down a drawing goes."""

    DEVICES = auto()
    """Every device is a square in its node's box."""
    NODES = auto()
    """Every node is a dot in its innermost domain."""
    DOMAINS = auto()
    """Every innermost domain is a bar that sums up its nodes."""


@dataclass
class Box:
    """A domain's rectangle, and those inside it. Positions are absolute once `place` has run.

    header: height of its title bar; 0 for a node and for a bar that sums up a domain.
    gutter: room left of each column of children, for the line that feeds them; 0 without one.
    """

    domain: Domain
    width: float
    height: float
    header: float = 0.0
    children: tuple[Box, ...] = ()
    columns: int = 0
    gutter: float = 0.0
    gap: float = 0.0
    x: float = 0.0
    y: float = 0.0

    @property
    def centre(self) -> float:
        """The middle, along x."""
        return self.x + self.width / 2

    def column(self, number: int) -> tuple[Box, ...]:
        """The children of one column, from the top."""
        return self.children[number :: self.columns]


def detail_for(tree: DomainTree) -> Detail:
    """The most detail that stays readable for so many nodes and devices."""
    nodes, devices = len(tree.device_counts), sum(tree.device_counts.values())
    if nodes <= MOST_NODES_WITH_DEVICES and devices <= MOST_DEVICES:
        return Detail.DEVICES
    return Detail.NODES if nodes <= MOST_NODES_WITH_DOTS else Detail.DOMAINS


def lay_out(tree: DomainTree, detail: Detail, width: float) -> Box:
    """The boxes of all domains within about `width` pixels; wider only if one cell is."""
    innermost = len(tree.domains(tree.tiers[1]))
    slim = detail is not Detail.DEVICES and innermost > MOST_BOXES_WITH_HEADERS
    most_devices = max(tree.device_counts.values(), default=0)
    found = _Layout(tree, detail, slim, min(DEVICES_A_ROW, most_devices)).box(tree.root, width)
    found.width = max(found.width, ROOT_WIDTH)
    return found


def place(box: Box, x: float, y: float) -> None:
    """Give a box and all inside it their positions, its top left corner at (x, y)."""
    box.x, box.y = x, y
    if not box.children:
        return
    widths = [max(child.width for child in box.column(c)) for c in range(box.columns)]
    top = y + box.header + PAD / 2
    for start in range(0, len(box.children), box.columns):
        row = box.children[start : start + box.columns]
        left = x + PAD
        for child, column in zip(row, widths, strict=False):
            place(child, left + box.gutter, top)
            left += box.gutter + column + box.gap
        top += max(child.height for child in row) + box.gap


@dataclass(frozen=True)
class _Layout:
    tree: DomainTree
    detail: Detail
    slim: bool
    devices_a_row: int

    def box(self, domain: Domain, width: float) -> Box:
        below = self.tree.children(domain)
        innermost = not below or below[0].tier == NODE_TIER
        if innermost and self.detail is Detail.DOMAINS:
            return Box(domain, max(SUMMARY_WIDTH, min(width, 260.0)), SUMMARY_HEIGHT)
        if not below:
            return Box(domain, 120.0, HEADER + PAD, HEADER)
        if innermost:
            return self._of_nodes(domain, below, width)
        for most in range(_wished_columns(len(below)), 0, -1):
            columns = _even(len(below), most)
            share = (width - 2 * PAD - columns * GUTTER - (columns - 1) * GAP) / columns
            boxes = tuple(self.box(child, share) for child in below)
            gap = 3.0 if boxes[0].header == 0 else GAP
            found = _grid(Box(domain, 0, 0, HEADER, boxes, columns, GUTTER, gap))
            if found.width <= width:
                break
        return found

    def _of_nodes(self, domain: Domain, nodes: list[Domain], width: float) -> Box:
        if self.detail is Detail.DEVICES:
            cells = tuple(self._node_with_devices(node) for node in nodes)
            step, wished = cells[0].width + GUTTER + GAP, max(4, _near_square(len(nodes), 1.2))
            columns = _even(len(nodes), min(wished, max(1, int((width - PAD) / step))))
            return _grid(Box(domain, 0, 0, HEADER, cells, columns, GUTTER, GAP))
        cells = tuple(Box(node, DOT, DOT) for node in nodes)
        fitting = max(DOTS_A_ROW, int((width - 2 * PAD) / (DOT + DOT_GAP)))
        columns = _even(len(nodes), min(fitting, max(DOTS_A_ROW, _near_square(len(nodes), 3))))
        header = SLIM_HEADER if self.slim else HEADER
        return _grid(Box(domain, 0, 0, header, cells, columns, 0.0, DOT_GAP))

    def _node_with_devices(self, node: Domain) -> Box:
        rows = math.ceil(max(1, self.tree.device_counts[node.name]) / DEVICES_A_ROW)
        width = max(NODE_WIDTH, self.devices_a_row * (DEVICE + DEVICE_GAP) - DEVICE_GAP + 2 * PAD)
        return Box(node, width, NODE_HEADER + rows * (DEVICE + NIC + DEVICE_GAP) + PAD / 2)


def _wished_columns(count: int) -> int:
    return count if count <= 6 else _even(count, _near_square(count, 1.6))


def _near_square(count: int, wider: float) -> int:
    return math.ceil(math.sqrt(count * wider))


def _even(count: int, columns: int) -> int:
    """As many columns at most, so that all rows are about as long."""
    return math.ceil(count / math.ceil(count / columns))


def _grid(box: Box) -> Box:
    """The box with the size that its children in their columns need."""
    box.columns = min(box.columns, len(box.children))
    widths = [max(child.width for child in box.column(c)) for c in range(box.columns)]
    rows = [
        box.children[start : start + box.columns]
        for start in range(0, len(box.children), box.columns)
    ]
    inside = sum(widths) + box.columns * box.gutter + (box.columns - 1) * box.gap
    height = sum(max(child.height for child in row) for row in rows) + (len(rows) - 1) * box.gap
    box.width = max(inside + 2 * PAD, 90.0)
    box.height = box.header + height + PAD * 1.5
    return box
