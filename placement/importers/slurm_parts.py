"""What Slurm's topology files describe in either form: switches, blocks, rings and toruses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .declared_trees import NoTree, Tree, tree_of
from .facts import Network, TierFacts
from .fat_trees import fat_tree_of
from .hostlists import MOST_NAMES, HostlistError, expanded, folded
from .source import Source

MOST_RING_NODES = 16
"""Slurm's own limit of a ring."""
_MOST_SHOWN = 6


@dataclass
class Parts:
    """One topology. places: where each switch, or `block b1`, is described.

    children, nodes: by switch. groups: nodes by name, by kind (`block`, `ring`, `torus`).
    """

    source: Source
    children: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    groups: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    real_names: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _names: int = 0

    def place(self, key: str) -> str:
        """Where a switch or group is described."""
        return self.places.get(key, "undescribed")

    def names(self, place: str, text: str) -> list[str]:
        """A list of names written out, each once. Raises InvalidInput naming the place."""
        if not text or text == "(null)":
            return []
        try:
            names = expanded(text, MOST_NAMES - self._names)
        except HostlistError as error:
            fix = "write a list such as node[01-04,7]"
            raise self.source.refuse(place, str(error), fix) from error
        self._names += len(names)
        distinct = dict.fromkeys(names)
        if len(distinct) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            self.warnings.append(f"{place}: {twice!r} is listed more than once")
        return list(distinct)

    def add_switch(self, place: str, name: str, children: list[str], nodes: list[str]) -> None:
        """A switch with what is below it. Raises InvalidInput for one that is known already."""
        self._describe(place, "switch", name, name)
        self.children[name] = children
        if nodes:
            self.nodes[name] = nodes

    def add_group(self, place: str, kind: str, name: str, nodes: list[str]) -> None:
        """A block, ring or torus. Raises InvalidInput for one that is known already."""
        self._describe(place, kind, name, f"{kind} {name}")
        if not nodes:
            self.warnings.append(f"{place}: {kind} {name!r} has no nodes")
        if kind == "ring" and len(nodes) > MOST_RING_NODES:
            found = f"{place}: ring {name!r} has {len(nodes)} nodes"
            self.warnings.append(f"{found}; Slurm takes at most {MOST_RING_NODES}")
        self.groups.setdefault(kind, {})[name] = nodes

    def _describe(self, place: str, kind: str, name: str, key: str) -> None:
        if not name or "[" in name:
            found = f"{name!r} as the name of one {kind}" if name else f"a {kind} without a name"
            raise self.source.refuse(place, found, f"name each {kind} by itself")
        if key in self.places:
            found = f"{kind} {name!r} is described again, first at {self.places[key]}"
            raise self.source.refuse(place, found, "describe it once")
        self.places[key] = place

    @property
    def empty(self) -> bool:
        """Whether there is neither a switch nor a group."""
        return not (self.children or self.nodes or self.groups)

    def described(self) -> tuple[dict[str, Any], Network]:
        """The figures and the network; more warnings are added. Raises InvalidInput."""
        summary: dict[str, Any] = {}
        tree = self._tree() if self.children or self.nodes else None
        if tree is not None:
            summary |= tree_summary(tree, self.real_names)
            self.warnings += tree_warnings(tree)
        of_node: dict[str, Mapping[str, str]] = {}
        for kind, named in self.groups.items():
            of_node[kind] = self._membership(kind, named)
            summary |= {
                f"{kind}es" if kind.endswith("s") else f"{kind}s": len(named),
                f"nodes_per_{kind}": sorted({len(members) for members in named.values()}),
                f"nodes_of_{kind}": {name: folded(members) for name, members in named.items()},
            }
        if self.sizes:
            summary["block_sizes"] = self.sizes
        self._warn_of_sizes(self.groups.get("block", {}))
        network = _with_groups(tree.network() if tree else None, of_node)
        every = {"nodes": len(network.domains), "node_list": folded(network.domains)}
        return every | summary, network

    def _tree(self) -> Tree:
        known = set(self.children) | set(self.nodes)
        for switch, kids in self.children.items():
            for kid in kids:
                if kid not in known:
                    found = f"switch {kid!r} is named under {switch!r} and described nowhere"
                    fix = "add it; is the file whole?"
                    raise self.source.refuse(self.place(switch), found, fix)
        try:
            return tree_of(self.children, self.nodes, self.place)
        except NoTree as error:
            if error.kind in ("node", "depth"):
                raise self.source.refuse(error.place, error.found, error.fix) from error
            first = error
        try:
            tree = fat_tree_of(self.children, self.nodes, self.place)
        except NoTree as error:
            raise self.source.refuse(error.place, error.found, error.fix) from error
        self.warnings.append(f"{first.place}: {first.found}; what they join is taken as one part")
        return tree

    def _membership(self, kind: str, named: Mapping[str, Sequence[str]]) -> dict[str, str]:
        of_node: dict[str, str] = {}
        for name, members in named.items():
            for node in members:
                known = of_node.setdefault(node, name)
                if known != name:
                    place, there = self.place(f"{kind} {name}"), self.place(f"{kind} {known}")
                    found = f"node {node!r} lies in {kind} {name!r} and, {there}, in {known!r}"
                    raise self.source.refuse(place, found, "put it into one of them")
        return of_node

    def _warn_of_sizes(self, blocks: Mapping[str, Sequence[str]]) -> None:
        """What Slurm would not accept or could never use of the sizes of blocks."""
        total = sum(len(members) for members in blocks.values())
        never = [str(size) for size in self.sizes if size > total]
        if never and blocks:
            found = f"BlockSizes {', '.join(never)} can never be filled: there are {total} nodes"
            self.warnings.append(found)
        base = self.sizes[0] if self.sizes else 0
        small = [name for name, members in blocks.items() if 0 < len(members) < base]
        if small:
            shown = ", ".join(small[:_MOST_SHOWN])
            found = f"{len(small)} blocks have fewer nodes than the base size {base}: {shown}"
            self.warnings.append(found)
        for low, high in pairwise(self.sizes):
            factor = high // low if low else 0
            if not low or high % low or factor & (factor - 1) or factor < 2:
                found = f"BlockSizes {low},{high}: not a power of two times the one before"
                self.warnings.append(found)


def tree_summary(tree: Tree, real_names: Mapping[str, str]) -> dict[str, Any]:
    """The figures of a tree of switches."""
    members: dict[str, list[str]] = {}
    for node, switch in tree.above.items():
        members.setdefault(switch, []).append(node)
    by_level: dict[int, int] = {}
    for level in tree.level.values():
        by_level[level] = by_level.get(level, 0) + 1
    summary: dict[str, Any] = {
        "switches": len(tree.level) + len(tree.merged),
        "leaves": len(tree.leaves),
        "switches_by_tier": [by_level[level] for level in sorted(by_level)],
        "tiers": tree.height,
        "roots": list(tree.roots),
        "tiers_of_root": {root: tree.level[root] for root in tree.roots},
        "nodes_of_leaf": {switch: folded(names) for switch, names in members.items()},
    }
    if real_names:
        summary["real_names"] = {one: name for one, name in real_names.items() if one in tree.level}
    return summary


def tree_warnings(tree: Tree) -> list[str]:
    """What a reader of the tree should know."""
    warnings = []
    members: dict[str, int] = {}
    for switch in tree.above.values():
        root = tree.root_of(switch)
        members[root] = members.get(root, 0) + 1
    if len(members) > 1:
        trees = [f"{root} ({count} nodes)" for root, count in members.items()]
        most = max(members.values())
        warnings.append(
            f"{len(members)} trees that nothing joins: {', '.join(trees[:_MOST_SHOWN])}; jobs of "
            f"more than {most} nodes cannot stay in one tree"
        )
    if tree.height == 1 and len(tree.level) == 1:
        warnings.append("a flat cluster: one switch, so placement has no tier to choose by")
    leaves = set(tree.leaves)
    empty = [one for one, level in tree.level.items() if level == 1 and one not in leaves]
    if empty:
        warnings.append(f"{len(empty)} switches hold nothing: {', '.join(empty[:_MOST_SHOWN])}")
    both = [one for one in dict.fromkeys(tree.above.values()) if tree.level[one] > 1]
    if both:
        shown = ", ".join(both[:_MOST_SHOWN])
        warnings.append(f"{len(both)} switches hold both nodes and switches: {shown}")
    for one, kept in list(tree.merged.items())[:_MOST_SHOWN]:
        warnings.append(f"{one!r} and {kept!r} join the same below them: the two are taken as one")
    return warnings


def _with_groups(network: Network | None, groups: Mapping[str, Mapping[str, str]]) -> Network:
    """A network with one more tier for each kind of group, by node, nearest to the nodes."""
    tiers = tuple(TierFacts(kind) for kind in groups)
    known: Mapping[str, Mapping[str, str]] = network.domains if network else {}
    names = dict.fromkeys([*known, *(node for of_node in groups.values() for node in of_node)])
    domains = {
        node: {
            **{kind: of_node[node] for kind, of_node in groups.items() if node in of_node},
            **known.get(node, {}),
        }
        for node in names
    }
    if network is None:
        return Network(tiers, domains)
    return Network((*tiers, *network.tiers), domains, network.spine)
