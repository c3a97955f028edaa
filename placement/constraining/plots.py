"""Parts of a cluster in which the side constraints on domains hold wherever a job lies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..cluster import NODE_TIER, Cluster, Node
from ..constraints import Balanced, Constraints, Device, free_nodes

Plot = dict[str, tuple[int, ...]]
"""Free device indices by node."""
_MOST_COUNTS = 6


def plots(
    constraints: Constraints, tier: str | None, ranks: int, cluster: Cluster
) -> Iterator[Plot]:
    """Plots with room for `ranks` ranks, likely better ones first.

    cluster: with only the usable devices free. tier: that of `together`, if any. When nodes have
    to be spared, each plot comes once more without them.
    """
    maker = _Maker(constraints, tier, ranks, cluster)
    free = {node.name: node.usable_devices for node in cluster.nodes if node.usable_devices}
    for plot in maker.make(free):
        yield plot
    if constraints.spares:
        held = maker.held_back()
        for plot in maker.make({name: here for name, here in free.items() if name not in held}):
            yield plot


class _Maker:
    def __init__(
        self, constraints: Constraints, tier: str | None, ranks: int, cluster: Cluster
    ) -> None:
        self._want, self._tier, self._ranks, self._cluster = constraints, tier, ranks, cluster
        self._nodes = {node.name: node for node in cluster.nodes}
        self._order = {node.name: index for index, node in enumerate(cluster.nodes)}
        self._pins: defaultdict[str, list[int | None]] = defaultdict(list)
        for pin in constraints.pinned:
            self._pins[pin.node].append(pin.device)
        inner = [tier.name for tier in cluster.tiers[:-1]]
        self._path = {
            node.name: tuple(node.domains[t] for t in reversed(inner)) for node in cluster.nodes
        }

    def make(self, free: Plot) -> Iterator[Plot]:
        for together in self._together(free):
            for plot in self._balanced(self._at_most(together)):
                for option in self._in_pieces(plot):
                    if sum(map(len, option.values())) >= self._ranks:
                        yield option

    def held_back(self) -> set[str]:
        """Nodes to keep as spares: those in the domains with the least free devices."""
        names = free_nodes(self._want, self._cluster, set(self._pins))
        room: defaultdict[tuple[str, ...], int] = defaultdict(int)
        for node in self._cluster.nodes:
            for depth in range(len(self._path[node.name]) + 1):
                room[self._path[node.name][:depth]] += len(node.usable_devices)

        def key(name: str) -> tuple[list[int], int]:
            path = self._path[name]
            return [room[path[: d + 1]] for d in range(len(path))], self._order[name]

        return set(sorted(names, key=key)[: self._want.spares])

    def _domain(self, name: str, tier: str) -> str:
        if tier == self._cluster.spine:
            return tier
        return name if tier == NODE_TIER else self._nodes[name].domains[tier]

    def _by_domain(self, free: Plot, tier: str) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name in free:
            found[self._domain(name, tier)].append(name)
        return dict(found)

    def _together(self, free: Plot) -> Iterator[Plot]:
        if self._tier is None:
            yield free
            return
        choices = []
        for domain, names in self._by_domain(free, self._tier).items():
            room = sum(len(free[name]) for name in names)
            pinned = sum(name in self._pins for name in names)
            if room >= self._ranks and pinned == len(self._pins):
                choices.append((room, domain, names))
        for _, _, names in sorted(choices):
            yield {name: free[name] for name in names}

    def _most_useful(self, names: list[str], free: Plot) -> list[str]:
        """Pinned nodes first, then the fullest, near each other where that makes no difference."""
        room: defaultdict[tuple[str, ...], int] = defaultdict(int)
        for name in names:
            for depth in range(len(self._path[name]) + 1):
                room[self._path[name][:depth]] += len(free[name])

        def key(name: str) -> tuple[object, ...]:
            path = self._path[name]
            around = [(-room[path[: d + 1]], path[d]) for d in range(len(path))]
            return (name not in self._pins, -len(free[name]), around, self._order[name])

        return sorted(names, key=key)

    def _at_most(self, free: Plot) -> Plot:
        if self._want.at_most is None:
            return free
        kept: set[str] = set()
        for names in self._by_domain(free, self._want.at_most.tier).values():
            kept.update(self._most_useful(names, free)[: self._want.at_most.nodes])
        return {name: here for name, here in free.items() if name in kept}

    def _balanced(self, free: Plot) -> Iterator[Plot]:
        balanced = self._want.balanced
        if balanced is None:
            yield free
            return
        domains = self._by_domain(free, balanced.tier)
        needed = {self._domain(name, balanced.tier) for name in self._pins}
        tried = 0
        for count in self._counts(balanced, len(domains)):
            share = self._ranks // count
            filled = {d: self._share(names, free, share) for d, names in domains.items()}
            able = [d for d, part in filled.items() if part is not None]
            if len(able) < count or not needed <= set(able):
                continue
            chosen = self._near_each_other(able, domains, needed, free)[:count]
            if not needed <= set(chosen):
                continue
            plot: Plot = {}
            for d in chosen:
                plot |= filled[d] or {}
            yield plot
            tried += 1
            if tried == _MOST_COUNTS:
                return

    def _in_pieces(self, free: Plot) -> Iterator[Plot]:
        """First with only what whole segments can fill in each of their domains; then with all."""
        segments = self._want.segments
        if segments is not None and segments.ranks > 1:
            plot: Plot = {}
            for names in self._by_domain(free, segments.tier).values():
                room = sum(len(free[name]) for name in names)
                share = self._share(names, free, room // segments.ranks * segments.ranks)
                plot |= share or {}
            if plot != free:
                yield plot
        yield free

    def _counts(self, balanced: Balanced, domains: int) -> list[int]:
        if balanced.domains is not None:
            return [balanced.domains] if self._ranks % balanced.domains == 0 else []
        most = min(domains, self._ranks)
        return [m for m in range(1, most + 1) if self._ranks % m == 0]

    def _share(self, names: list[str], free: Plot, share: int) -> Plot | None:
        """Exactly `share` devices of a domain, on as few nodes as can be; None when it has not."""
        segments = self._want.segments
        piece = segments.ranks if segments and segments.tier == NODE_TIER else 1
        left, part = share, {}
        for name in self._most_useful(names, free):
            pins = [device for device in self._pins.get(name, []) if device is not None]
            here = sorted(free[name], key=lambda index: (index not in pins, index))
            take = min(len(here) // piece * piece, left)
            if take:
                part[name] = tuple(sorted(here[:take]))
                left -= take
        return part if left == 0 else None

    def _near_each_other(
        self, able: list[str], domains: dict[str, list[str]], needed: set[str], free: Plot
    ) -> list[str]:
        """Domains with pinned ranks first, then those whose outer domains have most of them."""
        count: defaultdict[tuple[str, ...], int] = defaultdict(int)
        path = {}
        for d in able:
            whole = self._path[domains[d][0]]
            depth = len(whole) if d == domains[d][0] else whole.index(d) if d in whole else 0
            path[d] = whole[:depth]
            for step in range(depth + 1):
                count[whole[:step]] += 1
        pinned_paths = {path[d][:step] for d in needed for step in range(1, len(path[d]) + 1)}

        def key(d: str) -> tuple[object, ...]:
            around = [
                (path[d][: s + 1] not in pinned_paths, -count[path[d][: s + 1]], path[d][s])
                for s in range(len(path[d]))
            ]
            return (d not in needed, around, min(self._order[name] for name in domains[d]))

        return sorted(able, key=key)


def nearest_spares(constraints: Constraints, cluster: Cluster, devices: list[Device]) -> list[str]:
    """The free nodes to keep for repairs: in the domains that hold most of the job, outer first."""
    inner = [tier.name for tier in cluster.tiers[:-1]]
    nodes: dict[str, Node] = {node.name: node for node in cluster.nodes}
    held: defaultdict[tuple[str, str], int] = defaultdict(int)
    for name, _ in devices:
        for tier in inner:
            held[tier, nodes[name].domains[tier]] += 1
    used = {name for name, _ in devices}

    def key(name: str) -> tuple[object, ...]:
        domains = nodes[name].domains
        return (*(-held[tier, domains[tier]] for tier in reversed(inner)), name)

    return sorted(free_nodes(constraints, cluster, used), key=key)[: constraints.spares]
