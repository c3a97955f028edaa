"""Switches of which some lie under several others, as the tree of what they join."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .declared_trees import NoTree, Tree, circle_in, tree_of
from .switch_graph import MOST_TIERS, Cable, levels


def fat_tree_of(
    children: Mapping[str, Sequence[str]],
    nodes: Mapping[str, Sequence[str]],
    place: Callable[[str], str],
) -> Tree:
    """The tree of parts: switches of one level that something below joins are one.

    A level is the number of hops from the nodes. A link that both of its switches list counts once,
    where all links above the leaves are listed so. Raises NoTree where switches otherwise lie
    below themselves, or a node under two switches.
    """
    _refuse_circles(children, place)
    hosts = [name for names in nodes.values() for name in names]
    cables = [
        Cable(one, kid)
        for lists in (children, nodes)
        for one, kids in lists.items()
        for kid in kids
    ]
    level = levels(hosts, cables)
    top = max(level.values(), default=0)
    if top > MOST_TIERS:
        deepest = max(level, key=lambda one: level[one])
        found = f"{top} tiers of switches; at most {MOST_TIERS} are read"
        raise NoTree("depth", place(deepest), found, "hand in a fabric, not a chain")
    own = {one: _Parts() for one in range(1, top + 1)}
    for height, parts in own.items():
        for cable in cables:
            low, high = sorted((level.get(cable.a, height + 1), level.get(cable.b, height + 1)))
            if high < height or (high == height and low < height):
                parts.join(cable.a, cable.b)
    stands: dict[str, str] = {}
    first: dict[tuple[int, str], str] = {}
    for one in dict.fromkeys([*children, *nodes]):
        height = level.get(one, 0)
        if height:
            stands[one] = first.setdefault((height, own[height].root(one)), one)
    joined: dict[str, dict[str, None]] = {kept: {} for kept in stands.values()}
    for cable in cables:
        lower, upper = sorted((cable.a, cable.b), key=lambda end: level.get(end, 0))
        if lower in stands and upper in stands and level[lower] < level[upper]:
            joined[stands[upper]][stands[lower]] = None
    held: dict[str, list[str]] = {}
    for one, names in nodes.items():
        held.setdefault(stands.get(one, one), []).extend(names)
    tree = tree_of({one: list(kids) for one, kids in joined.items()}, held, place)
    merged = {one: kept for one, kept in stands.items() if one != kept}
    return Tree(tree.roots, tree.level, tree.parent, tree.above, {**merged, **tree.merged})


class _Parts:
    """Which ends hang together."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, end: str) -> str:
        parent = self._parent
        while parent.setdefault(end, end) != end:
            parent[end] = parent.setdefault(parent[end], parent[end])
            end = parent[end]
        return end

    def join(self, a: str, b: str) -> None:
        self._parent[self.root(a)] = self.root(b)


def _refuse_circles(children: Mapping[str, Sequence[str]], place: Callable[[str], str]) -> None:
    below = {one: set(kids) for one, kids in children.items()}
    both = {(one, kid) for one, kids in below.items() for kid in kids if one in below.get(kid, ())}
    above_leaves = [(one, kid) for one, kids in below.items() for kid in kids if below.get(kid)]
    if len(both) >= 4 and all(link in both for link in above_leaves):
        return
    waiting = {one: len(kids) for one, kids in below.items()}
    parents: dict[str, list[str]] = {}
    for one, kids in below.items():
        for kid in kids:
            parents.setdefault(kid, []).append(one)
            waiting.setdefault(kid, 0)
    ready = [one for one, count in waiting.items() if not count]
    for one in ready:
        for parent in parents.get(one, ()):
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)
    stuck = {one for one, count in waiting.items() if count}
    if stuck:
        raise circle_in(stuck, children, place)
