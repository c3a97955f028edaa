"""Switches as a file lists them, each with what is below it, as tiers and domains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .facts import Network, TierFacts
from .switch_graph import MOST_TIERS
from .tier_names import tier_names

_SHOWN = 4


class NoTree(ValueError):
    """Why the switches are no tree: `place` and `found`, for an error that names the line.

    kind: `node` or `switch` for what lies under two switches, `circle` for what lies below itself.
    """

    def __init__(self, kind: str, place: str, found: str, fix: str) -> None:
        super().__init__(found)
        self.kind, self.place, self.found, self.fix = kind, place, found, fix


@dataclass(frozen=True)
class Tree:
    """Switches under switches, nodes under switches; several roots make a forest.

    level: 1 for a switch without child switches, else one more than the highest child.
    parent: of every switch but the roots. above: the switch of each node.
    merged: switches that have the same children as another, by that one, which stands for them.
    """

    roots: tuple[str, ...]
    level: Mapping[str, int]
    parent: Mapping[str, str]
    above: Mapping[str, str]
    merged: Mapping[str, str]

    @property
    def height(self) -> int:
        """Tiers of the highest tree."""
        return max(self.level.values(), default=0)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Switches that hold nodes and no switches."""
        holding = set(self.above.values())
        return tuple(one for one, level in self.level.items() if level == 1 and one in holding)

    def root_of(self, switch: str) -> str:
        """The root above a switch."""
        while switch in self.parent:
            switch = self.parent[switch]
        return switch

    def network(self) -> Network:
        """Tiers and domains: at tier k a node's domain is its highest switch of level k or less.

        Nodes that hang on a switch above tier k meet there and are one domain of tier k too.
        """
        roots = {self.root_of(switch) for switch in set(self.above.values())}
        joined = len(roots) == 1
        top = max((self.level[root] for root in roots), default=0) - joined
        names = tier_names(top)
        path_of: dict[str, tuple[str, ...]] = {}
        for switch in set(self.above.values()):
            path, at = [], switch
            for tier in range(1, top + 1):
                while at in self.parent and self.level[self.parent[at]] <= tier:
                    at = self.parent[at]
                path.append(at)
            path_of[switch] = tuple(path)
        domains = {
            node: dict(zip(names, path_of[switch], strict=True))
            for node, switch in self.above.items()
        }
        return Network(
            tuple(TierFacts(name) for name in names),
            domains,
            TierFacts("spine") if joined else None,
        )


def tree_of(
    children: Mapping[str, Sequence[str]],
    nodes: Mapping[str, Sequence[str]],
    place: Callable[[str], str],
) -> Tree:
    """The tree of what is below what.

    children: child switches of each switch, all switches being keys of it or children. nodes: of
    each switch. place: where a switch is described, for messages. Switches with the same children
    (parallel planes or rails) are one. Raises NoTree for a node or switch under two others, or one
    above itself.
    """
    below = {one: tuple(dict.fromkeys(kids)) for one, kids in children.items()}
    for kids in list(below.values()):
        for kid in kids:
            below.setdefault(kid, ())
    for one in nodes:
        below.setdefault(one, ())
    holds = {one: tuple(dict.fromkeys(names)) for one, names in nodes.items()}
    merged: dict[str, str] = {}
    while True:
        shared = _shared(below, holds, place)
        if not shared:
            break
        merged |= shared
        below = {
            one: tuple(dict.fromkeys(shared.get(kid, kid) for kid in kids))
            for one, kids in below.items()
            if one not in shared
        }
        holds = {one: names for one, names in holds.items() if one not in shared}
    merged = {one: _last(merged, one) for one in merged}
    parent = {kid: one for one, kids in below.items() for kid in kids}
    level = _levels(below, parent, place)
    deepest = max(level, key=lambda one: level[one], default="")
    if level and level[deepest] > MOST_TIERS:
        found = (
            f"{level[deepest]} tiers of switches below {deepest!r}; at most {MOST_TIERS} are read"
        )
        raise NoTree("depth", place(deepest), found, "hand in a fabric, not a chain")
    return Tree(
        roots=tuple(one for one in below if one not in parent),
        level=level,
        parent=parent,
        above={name: one for one, names in holds.items() for name in names},
        merged=merged,
    )


def _last(merged: Mapping[str, str], one: str) -> str:
    while one in merged:
        one = merged[one]
    return one


def _shared(
    below: Mapping[str, tuple[str, ...]],
    holds: Mapping[str, tuple[str, ...]],
    place: Callable[[str], str],
) -> dict[str, str]:
    """Switches to drop for others that have just the same below them. Raises NoTree otherwise."""
    first: dict[tuple[str, str], str] = {}
    dropped: dict[str, str] = {}
    content: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def all_below(one: str) -> tuple[frozenset[str], frozenset[str]]:
        if one not in content:
            content[one] = frozenset(below.get(one, ())), frozenset(holds.get(one, ()))
        return content[one]

    for kind, lists in (("switch", below), ("node", holds)):
        for one, kids in lists.items():
            for kid in kids:
                known = first.setdefault((kind, kid), one)
                if known == one or known == dropped.get(one):
                    continue
                if kid == one or all_below(known) != all_below(one):
                    where, there = place(one), place(known)
                    raise NoTree(
                        kind,
                        where,
                        f"{kind} {kid!r} lies under {one!r} and, {there}, under {known!r}",
                        "put it under one of them",
                    )
                dropped[one] = known
    return dropped


def _levels(
    below: Mapping[str, tuple[str, ...]],
    parent: Mapping[str, str],
    place: Callable[[str], str],
) -> dict[str, int]:
    waiting = {one: len(kids) for one, kids in below.items()}
    ready = [one for one, count in waiting.items() if not count]
    level = dict.fromkeys(ready, 1)
    for one in ready:
        above = parent.get(one)
        if above is None:
            continue
        level[above] = max(level.get(above, 1), level[one] + 1)
        waiting[above] -= 1
        if not waiting[above]:
            ready.append(above)
    stuck = {one for one, count in waiting.items() if count}
    if stuck:
        raise circle_in(stuck, below, place)
    return level


def circle_in(
    stuck: set[str], below: Mapping[str, Sequence[str]], place: Callable[[str], str]
) -> NoTree:
    """The error that names a circle among switches each of which has one of them below it."""
    at = next(one for one in below if one in stuck)
    position: dict[str, int] = {}
    path: list[str] = []
    while at not in position:
        position[at] = len(path)
        path.append(at)
        at = next(kid for kid in below[at] if kid in stuck)
    circle = [*path[position[at] :], at]
    shown = " > ".join(circle[:_SHOWN]) + (" > ..." if len(circle) > _SHOWN else "")
    return NoTree(
        "circle", place(circle[0]), f"switches lie below themselves: {shown}", "break the circle"
    )
