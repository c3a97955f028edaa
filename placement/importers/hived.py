"""HiveD's cells: types of cells within cells, and the physical ones with nodes and devices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..quantities import MOST_DEVICES_A_NODE
from .declared_trees import NoTree, tree_of
from .facts import Facts, Machine
from .hostlists import MOST_NAMES
from .network_summary import network_summary
from .reading import list_of, mapping_of, name_of, shown, values_of
from .registry import Importer
from .source import Source

NAME = "hived-cells"
_MOST_SHOWN = 6


@dataclass(frozen=True)
class _Type:
    child: str
    count: int
    is_node: bool


@dataclass
class _Cells:
    """children, nodes: cells above nodes. devices: `[node][kind]` device indices as given."""

    types: dict[str, _Type]
    children: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    devices: dict[str, dict[str, Sequence[int]]] = field(default_factory=dict)
    alone: list[str] = field(default_factory=list)
    pinned: list[str] = field(default_factory=list)
    node_cells: int = 0
    places: dict[str, str] = field(default_factory=dict)


def certainty(source: Source) -> float:
    """How sure it is: types of cells and physical cells."""
    return 0.95 if "physicalCells" in source.text and "cellTypes" in source.text else 0.0


def read(source: Source) -> Facts:
    """Nodes, their devices and the cells above them. Raises InvalidInput."""
    config = mapping_of(source, values_of(source)[0], "the configuration")
    physical = mapping_of(source, config.get("physicalCluster", config), "physicalCluster")
    cells = _Cells(_types(source, physical.get("cellTypes")))
    tops = list_of(source, physical.get("physicalCells"), "physicalCells")
    used: list[str] = []
    for index, value in enumerate(tops):
        place = f"physicalCells[{index}]"
        kind = name_of(source, mapping_of(source, value, place).get("cellType"), place)
        used.append(kind)
        if kind not in cells.types:
            raise source.refuse(place, f"unknown cellType {kind!r}", "describe it in cellTypes")
        _walk(source, cells, place, kind, value, None)
    if not cells.devices:
        raise source.refuse("physicalCells", "no cells", "hand in the whole configuration")
    warnings: list[str] = []
    machines = _machines(cells, warnings)
    # A node that is a cell by itself and lies in a larger one too lies in that one.
    inside = {node for names in cells.nodes.values() for node in names}
    try:
        tree = tree_of(cells.children, cells.nodes, lambda cell: cells.places.get(cell, cell))
    except NoTree as error:
        raise source.refuse(error.place, error.found, error.fix) from error
    network = tree.network()
    lonely: dict[str, dict[str, str]] = {node: {} for node in cells.alone if node not in inside}
    domains = {**network.domains, **lonely}
    parts = type(network)(network.tiers, domains, None if lonely else network.spine)
    virtual = mapping_of(source, config.get("virtualClusters") or {}, "virtualClusters")
    unused = _unused(cells.types, used)
    if unused:
        warnings.append(f"{len(unused)} cell types are not used: {', '.join(unused)}")
    warnings += _virtual_warnings(source, cells, virtual)
    leaves: Counter[str] = Counter()
    for kinds in cells.devices.values():
        leaves.update({kind: len(indices) for kind, indices in kinds.items()})
    summary = {
        "cell_types": len(cells.types),
        "cell_types_not_used": unused,
        "top_cells": len(tops),
        "node_cells": cells.node_cells,
        "nodes": len(cells.devices),
        "devices": sum(leaves.values()),
        "devices_by_kind": dict(leaves),
        "virtual_clusters": len(virtual),
        "pinned_cells": len(cells.pinned),
        "pinned": cells.pinned,
        **network_summary(parts),
    }
    return Facts(NAME, summary, parts, machines, warnings=tuple(warnings))


def _types(source: Source, value: Any) -> dict[str, _Type]:
    types: dict[str, _Type] = {}
    for key, body in mapping_of(source, value, "cellTypes").items():
        name = name_of(source, key, "cellTypes")
        place = f"cellTypes.{name}"
        told = mapping_of(source, body, place)
        count = told.get("childCellNumber")
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_NAMES:
            raise source.refuse(f"{place}.childCellNumber", shown(count), "give a whole number")
        child = name_of(source, told.get("childCellType"), f"{place}.childCellType")
        types[name] = _Type(child, count, told.get("isNodeLevel") is True)
    done: set[str] = set()
    for name in types:
        path: dict[str, None] = {}
        at = name
        while at in types and at not in done:
            if at in path:
                found = f"cell types lie within themselves: {' > '.join([*path, at][:6])}"
                raise source.refuse(f"cellTypes.{at}", found, "break the circle")
            path[at] = None
            at = types[at].child
        done |= path.keys()
    return types


def _walk(
    source: Source, cells: _Cells, place: str, kind: str, value: Any, above: str | None
) -> None:
    """Take in a cell at or above the level of nodes."""
    waiting: list[tuple[str, str, Any, str | None]] = [(place, kind, value, above)]
    while waiting:
        place, kind, value, above = waiting.pop()
        cell = mapping_of(source, value if value is not None else {}, place)
        if cell.get("pinnedCellId") is not None:
            cells.pinned.append(name_of(source, cell["pinnedCellId"], place))
        told = cells.types.get(kind)
        if told is None or not _holds_nodes(cells.types, kind):
            found = f"cells of {kind!r} lie in no cell of node level"
            raise source.refuse(place, found, "set isNodeLevel on the type that is a node")
        if told.is_node:
            _take_node(source, cells, place, kind, cell, above)
            continue
        kids = _children(source, place, cell, told)
        if len(kids) != told.count:
            found = f"a cell of {kind!r} with {len(kids)} children; its type has {told.count}"
            raise source.refuse(place, found, "name every node below it")
        cells.children.setdefault(place, [])
        cells.places[place] = place
        if above is not None:
            cells.children[above].append(place)
        waiting += [
            (f"{place}.cellChildren[{index}]", told.child, kid, place)
            for index, kid in reversed(list(enumerate(kids)))
        ]


def _holds_nodes(types: Mapping[str, _Type], kind: str) -> bool:
    """Whether a cell of the kind is a node or is made of nodes."""
    while kind in types:
        if types[kind].is_node:
            return True
        kind = types[kind].child
    return False


def _children(source: Source, place: str, cell: Mapping[str, Any], told: _Type) -> list[Any]:
    kids = list_of(source, cell.get("cellChildren"), f"{place}.cellChildren")
    if kids and len(kids) != told.count:
        found = f"{len(kids)} children; its type has {told.count}"
        raise source.refuse(place, found, "correct cellChildren or childCellNumber")
    return kids


def _take_node(
    source: Source,
    cells: _Cells,
    place: str,
    kind: str,
    cell: Mapping[str, Any],
    above: str | None,
) -> None:
    node = name_of(source, cell.get("cellAddress"), f"{place}.cellAddress")
    cells.node_cells += 1
    if above is None:
        cells.alone.append(node)
    else:
        cells.nodes.setdefault(above, []).append(node)
    leaf, indices = _devices(source, cells, place, kind, cell)
    there = cells.devices.setdefault(node, {})
    if leaf in there:
        found = f"node {node!r} has cells of {leaf!r} twice"
        raise source.refuse(place, found, "describe each node once a kind")
    taken = {index: other for other, known in there.items() for index in known}
    twice = [index for index in indices if index in taken]
    if twice:
        found = f"device {twice[0]} of node {node!r} is both {leaf!r} and {taken[twice[0]]!r}"
        raise source.refuse(place, found, "give other addresses")
    there[leaf] = indices


def _devices(
    source: Source, cells: _Cells, place: str, kind: str, cell: Mapping[str, Any]
) -> tuple[str, Sequence[int]]:
    """The kind of the devices of a node cell, and their indices: as given, else from 0 on."""
    leaf, count = kind, 1
    while leaf in cells.types:
        count *= cells.types[leaf].count
        leaf = cells.types[leaf].child
        if count > MOST_DEVICES_A_NODE:
            found = f"more than {MOST_DEVICES_A_NODE} devices in a node of {kind!r}"
            raise source.refuse(place, found, "correct childCellNumber")
    indices: list[int] = []
    waiting: list[tuple[str, str, Any]] = [(place, kind, cell)]
    while waiting:
        at, each, value = waiting.pop()
        told = cells.types.get(each)
        body = mapping_of(source, value if value is not None else {}, at)
        if body.get("pinnedCellId") is not None and at != place:
            cells.pinned.append(name_of(source, body["pinnedCellId"], at))
        if told is None:
            address = body.get("cellAddress")
            if address is None:
                continue
            if not re.fullmatch(r"\d{1,4}", str(address)):
                raise source.refuse(at, f"device {shown(address)}", "give its index")
            indices.append(int(address))
            continue
        waiting += [
            (f"{at}.cellChildren[{index}]", told.child, kid)
            for index, kid in enumerate(_children(source, at, body, told))
        ]
    if len(set(indices)) < len(indices):
        raise source.refuse(place, "a device is listed twice", "give each index once")
    if indices and len(indices) != count:
        found = f"{len(indices)} of {count} devices have an address"
        raise source.refuse(place, found, "give all or none")
    return leaf, sorted(indices) or range(count)


def _machines(cells: _Cells, warnings: list[str]) -> dict[str, Machine]:
    machines = {}
    for node, kinds in cells.devices.items():
        counts = {kind: len(indices) for kind, indices in kinds.items()}
        most = max(counts, key=lambda kind: counts[kind])
        machines[node] = Machine(accelerator=most, devices=counts[most])
        if len(counts) > 1:
            told = ", ".join(f"{kind} {count}" for kind, count in counts.items())
            warnings.append(
                f"node {node!r} has devices of several kinds ({told}); those of {most} are taken"
            )
    return machines


def _unused(types: Mapping[str, _Type], used: list[str]) -> list[str]:
    seen: set[str] = set()
    for kind in used:
        while kind in types and kind not in seen:
            seen.add(kind)
            kind = types[kind].child
    return [kind for kind in types if kind not in seen]


def _virtual_warnings(source: Source, cells: _Cells, virtual: Mapping[str, Any]) -> list[str]:
    warnings = []
    for name, value in virtual.items():
        body = mapping_of(source, value or {}, f"virtualClusters.{name}")
        for each in list_of(source, body.get("virtualCells"), f"virtualClusters.{name}"):
            path = str(mapping_of(source, each, f"virtualClusters.{name}").get("cellType"))
            kinds = path.split(".")
            wrong = [kind for kind in kinds if kind not in cells.types]
            if wrong and not (len(wrong) == 1 and wrong[0] == kinds[-1]):
                warnings.append(f"virtual cluster {name!r} asks for unknown cells {path!r}")
        for each in list_of(source, body.get("pinnedCells"), f"virtualClusters.{name}"):
            pin = mapping_of(source, each, f"virtualClusters.{name}").get("pinnedCellId")
            if pin not in cells.pinned:
                warnings.append(f"virtual cluster {name!r} has pin {pin!r}, which no cell has")
    return warnings


IMPORTERS: tuple[Importer, ...] = (
    Importer(NAME, "HiveD cells", "hivedscheduler.yaml", certainty, read),
)
