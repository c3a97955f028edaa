"""Blocks that may be split over domains: what each domain pays for the parts that it holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..bounds.class_cost import together
from ..jobs.gather import Gathered
from ..jobs.index import ANY_KIND, PAIRS, RING, TREE, Floats, Ints
from ..jobs.units import UnitGraph
from ..loops.compiled import lean
from .counts import Counts
from .structure import Chains

_MOST_NESTED = 20_000_000
"""Squares of the atoms of a class up to which pairs of their roles are told."""


@dataclass
class _Stage:
    """What the nets of one class of blocks cost, by what a domain holds of it.

    blocks: how many blocks the class has, of `size` atoms each.
    inside: `[a]`, a domain's share of the cost of a block of which it holds a atoms; the shares of
        the domains add up to the cost, and it is concave in a, with nothing at 0 and at all atoms.
    whole: `[y]`, its share of the nets that join all atoms of the class, if it holds y of them.
    families: nets that divide the class into equal sets of roles, c atoms of every block to a net:
        (c, weight of the cheapest net, form).
    pairs: weight of a pair of nets that do so with one atom of every block, all with all.
    known: costs by balance that were asked for before.
    """

    blocks: int
    size: int
    inside: Floats
    whole: Floats
    families: list[tuple[int, float, int]] = field(default_factory=list)
    pairs: float = 0.0
    known: dict[float, Floats] = field(default_factory=dict)

    def cost(self, balance: float) -> Floats:
        """`[y]`: the least that a domain with y atoms of the class pays, however it chooses them.

        Let its fullest block have `high` atoms and its emptiest `low`. Then at least `high` roles
        are touched and at most `low` are complete, which is what the families see.
        """
        if balance in self.known:
            return self.known[balance]
        # Between these the families see no difference, and the loosest of each costs least.
        levels = sorted(
            {0, self.size}.union(*(range(0, self.size, c) for c, _, _ in self.families))
        )
        high, low = np.array([(h, low) for h in levels for low in levels if low <= h]).T
        share = self.inside + balance * self.balancing()
        a = np.arange(self.size + 1)
        allowed = (low[:, None] <= a) & (a <= high[:, None])
        least = together(np.where(allowed, share, np.inf), self.blocks)
        least += np.array([self._roles(int(a), int(b)) for a, b in zip(low, high, strict=True)])[
            :, None
        ]
        paid = least.min(axis=0)
        if self.pairs > 0 and self.blocks**2 * self.size**2 <= _MOST_NESTED:
            nested = np.full(len(paid), np.inf)
            scratch = np.full((2, self.size + 1, len(paid)), np.inf)
            _nest(share, self.blocks, self.pairs, scratch, nested)
            paid = np.maximum(paid, nested)
        self.known[balance] = paid + self.whole
        return self.known[balance]

    def balancing(self) -> Floats:
        """Prices of parts, by size, that add up to at most 0 over the parts of any one block.

        A part of more than half a block pays what the rest would pay as one part, and those of
        less than half get what they pay: no block has two of the former, and `inside` is concave,
        so that a rest in several parts gets more. This tells domains that large parts need small
        ones elsewhere.
        """
        a = np.arange(self.size + 1)
        return np.where(
            2 * a > self.size, self.inside[::-1], np.where(2 * a < self.size, -self.inside, 0.0)
        )

    def _roles(self, low: int, high: int) -> float:
        total = 0.0
        for per_block, weight, form in self.families:
            touched, complete = -(-high // per_block), low // per_block
            total += weight * (touched if form == TREE else touched - complete)
        return total


@lean
def _nest(share: Floats, blocks: int, pairs: float, levels: Floats, least: Floats) -> None:
    """Fill `least[y]` with the least that y atoms of so many blocks cost, and pairs of their roles.

    share: `[a]`, what a atoms of a block cost. Every role that b of the blocks have costs
    `pairs * b * (blocks - b)`. Whatever number of atoms each block has, it costs least that those
    of a smaller block have roles that a larger one has too, as squares add up to most then. So
    blocks are gone through from the fullest to the emptiest: the b-th adds 2 b - 1 to the square.
    levels: `[2, a, y]`, infinite; scratch.
    """
    size = len(share) - 1
    for a in range(size + 1):
        levels[0, a, a] = share[a] + pairs * (blocks - 1) * a
    for b in range(2, blocks + 1):
        now, after = levels[b % 2], levels[1 - b % 2]
        for a in range(size, -1, -1):
            here = share[a] + pairs * (blocks - (2 * b - 1)) * a
            for y in range(len(least)):
                after[a, y] = np.inf
            for y in range((b - 1) * size + 1):
                if a < size and now[a + 1, y] < now[a, y]:
                    now[a, y] = now[a + 1, y]
                after[a, y + a] = now[a, y] + here
    last = levels[(blocks - 1) % 2]
    for a in range(size + 1):
        for y in range(len(least)):
            if last[a, y] < least[y]:
                least[y] = last[a, y]


@dataclass(frozen=True)
class SplitCounts:
    """A job of blocks that may be split, as counts of atoms by class and domain.

    No placement of whole atoms costs less across the domains than `counts(balance, rooms)` says of
    its spread of atoms, `constant` added, at any `balance` from 0 on. Each domain pays for itself:
    a ring for being touched but not complete, a pair net for the pairs between its own members and
    others; a domain's least payment is taken over all ways to choose which atoms of a class it
    holds (`_Stage.cost`). Links that join the atoms of two neighbouring classes one to one can save
    at most one crossing for each atom that the smaller of the two has in a domain. Traffic of any
    other shape is left out, and no traffic is negative.

    height, link: as in Counts. size: atoms of a block.
    """

    height: Ints
    link: Floats
    size: int
    constant: float
    stages: list[_Stage]

    @property
    def even_balance(self) -> float:
        """The balance at which a block less one atom is as dear whole as in single atoms."""
        return (self.size - 2) / self.size

    def counts(self, balance: float, rooms: Ints) -> Counts:
        """The problem with `rooms[j]` atoms of room in each domain, large and small parts priced.

        balance: 0 for no prices; see `_Stage.balancing`.
        """
        classes = len(self.height)
        cost = np.zeros((classes, max(len(stage.whole) for stage in self.stages)))
        for p, stage in enumerate(self.stages):
            paid = stage.cost(balance)
            cost[p, : len(paid)] = paid
        return Counts(
            height=self.height,
            cost=cost,
            link=self.link,
            room=rooms,
            kind=np.full(classes, ANY_KIND, dtype=np.int64),
            kind_room=np.zeros((len(rooms), 0), dtype=np.int64),
        )

    def part(self, classes: Ints, height: Ints) -> SplitCounts:
        """Some of the classes, and `height[i]` of the blocks of each; costs are of all classes."""
        joined = np.append(np.diff(classes) == 1, len(classes) == len(self.height))
        link = np.where(joined, self.link[classes], 0.0)
        stages = [self.stages[p] for p in classes.tolist()]
        return SplitCounts(height * self.size, link, self.size, 0.0, stages)

    def mended(self, spread: Ints, parts: list[Ints]) -> float:
        """What `parts` of split blocks cost more than the least that domains pay for the atoms."""
        total = 0.0
        for stage, blocks, row in zip(self.stages, parts, spread, strict=True):
            total += float(stage.inside[blocks].sum() - stage.inside[row % self.size].sum())
        return total


def split_counts(gathered: Gathered, chains: Chains) -> SplitCounts | None:
    """The job's atoms by class, and what domains pay for them; None where blocks are atoms."""
    graph, block_of, size = gathered.atoms, gathered.block_of, gathered.block
    if size < 2:
        return None
    class_of_block = np.empty(gathered.blocks.units, dtype=np.int64)
    for p, members in enumerate(chains.members):
        class_of_block[members] = p
    stages, constant = _stages(graph, block_of, class_of_block, chains, size)
    alike: dict[tuple[object, ...], _Stage] = {}
    for p, stage in enumerate(stages):
        told = stage.inside.tobytes(), stage.whole.tobytes(), stage.pairs
        key = (stage.blocks, *told, *stage.families)
        stages[p] = alike.setdefault(key, stage)
    height = chains.height * size
    link = _links(graph, class_of_block[block_of], height)
    if chains.link[-1] > 0 and height[-1] == height[0]:
        link[-1] = _joined(graph, class_of_block[block_of], len(height) - 1, 0)
    return SplitCounts(height, link, size, constant + float((link * height).sum()), stages)


def _stages(
    graph: UnitGraph, block_of: Ints, class_of_block: Ints, chains: Chains, size: int
) -> tuple[list[_Stage], float]:
    """The nets of every class, and what to add to the payments of the domains."""
    constant = 0.0
    stages = [
        _Stage(len(m), size, np.zeros(size + 1), np.zeros(len(m) * size + 1))
        for m in chains.members
    ]
    inside = [np.zeros((len(m), size + 1)) for m in chains.members]
    place_in_class = np.empty(len(class_of_block), dtype=np.int64)
    for members in chains.members:
        place_in_class[members] = np.arange(len(members))
    roles: dict[tuple[int, int, int], list[tuple[Ints, float]]] = {}
    a = np.arange(size + 1, dtype=np.float64)
    for net in range(graph.nets):
        members = graph.members(net)
        weight, form = float(graph.weight[net]), int(graph.form[net])
        held = graph.ranks[graph.start[net] : graph.start[net + 1]]
        if form == PAIRS and (held != held[0]).any():
            continue
        blocks, count = np.unique(block_of[members], return_counts=True)
        stage = int(class_of_block[blocks[0]])
        if (class_of_block[blocks] != stage).any() or (count != count[0]).any():
            continue
        if len(blocks) == 1 and count[0] == size:
            inside[stage][place_in_class[blocks[0]]] += _share(form, weight, int(held[0]), a)
        elif len(blocks) == stages[stage].blocks and count[0] == size:
            y = np.arange(len(members) + 1, dtype=np.float64)
            stages[stage].whole += _share(form, weight, int(held[0]), y)
        elif len(blocks) == stages[stage].blocks and (form != PAIRS or count[0] == 1):
            weight *= float(held[0]) ** 2 if form == PAIRS else 1.0
            roles.setdefault((stage, int(count[0]), form), []).append((members, weight))
    one, other = block_of[graph.link]
    if size == 2:
        within = one == other
        for block, weight in zip(one[within].tolist(), graph.link_weight[within], strict=True):
            inside[class_of_block[block]][place_in_class[block], 1] += weight / 2
    between = (one != other) & (class_of_block[one] == class_of_block[other])
    for ends, weight in zip(graph.link[:, between].T, graph.link_weight[between], strict=True):
        stage = int(class_of_block[block_of[ends[0]]])
        if stages[stage].blocks == 2:
            # A link is a ring of two, each of whose ends costs half of it.
            roles.setdefault((stage, 1, RING), []).append((ends, float(weight) / 2))
    for stage_number, found in enumerate(inside):
        stages[stage_number].inside = found.min(axis=0)
    for (stage, per_block, form), nets in sorted(roles.items()):
        touched = np.concatenate([members for members, _ in nets])
        if len(touched) != stages[stage].blocks * size or len(np.unique(touched)) != len(touched):
            continue
        weight = min(weight for _, weight in nets)
        if form == PAIRS:
            stages[stage].pairs = weight
            continue
        stages[stage].families.append((per_block, weight, form))
        constant -= weight * len(nets) if form == TREE else 0.0
    return stages, constant


def _share(form: int, weight: float, held: int, y: Floats) -> Floats:
    """What a domain with y of a net's members pays; the payments of all domains are its cost."""
    total = y[-1]
    paid: Floats = weight * held**2 * y * (total - y)
    if form == RING:
        paid = weight * ((y > 0) & (y < total))
    elif form == TREE:
        paid = weight * ((y > 0) - y / total)
    return paid


def _links(graph: UnitGraph, class_of: Ints, height: Ints) -> Floats:
    """For each class, bytes of the links that join it one to one with the next."""
    classes = len(height)
    link = np.zeros(classes)
    for p in range(classes - 1):
        if height[p] == height[p + 1]:
            link[p] = _joined(graph, class_of, p, p + 1)
    return link


def _joined(graph: UnitGraph, class_of: Ints, one: int, other: int) -> float:
    """Bytes of the links between two classes of one size, if they join all atoms evenly, else 0."""
    first, second = class_of[graph.link]
    between = ((first == one) & (second == other)) | ((first == other) & (second == one))
    ends = graph.link[:, between].ravel()
    if not len(ends):
        return 0.0
    degree = np.bincount(ends, minlength=graph.units)[(class_of == one) | (class_of == other)]
    if (degree != degree[0]).any():
        return 0.0
    # A regular bipartite graph is made of perfect matchings.
    return float(degree[0]) * float(graph.link_weight[between].min())
