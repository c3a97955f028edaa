"""Ranks gathered into units: sets that stay together, and what the units then say to each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .index import ANY_KIND, PAIRS, RING, TREE, Demand, Floats, Ints

LEAST_GRIP = 0.25
"""A set is kept together when splitting it costs at least this part of what moving it can save."""
_FIRMEST = 1e-6
"""Moving costs are taken as at least this part of splitting costs, so that ratios are finite."""


@dataclass(frozen=True)
class UnitGraph:
    """Communication between units of equal size.

    Net e joins three or more units `member[start[e]:start[e + 1]]`; its form and weight mean what
    they mean for groups of ranks, and `ranks` gives how many ranks of it each member holds.
    Everything between two units only is a link `link[:, i]` that costs `link_weight[i]` when apart.
    kind: accelerator kind each unit needs, or ANY_KIND.
    """

    units: int
    form: Ints
    weight: Floats
    start: Ints
    member: Ints
    ranks: Ints
    link: Ints
    link_weight: Floats
    kind: Ints

    @property
    def nets(self) -> int:
        """How many nets there are."""
        return len(self.form)

    @cached_property
    def net_of(self) -> Ints:
        """For each entry of `member`, its net."""
        return np.repeat(np.arange(self.nets), np.diff(self.start))

    def members(self, net: int) -> Ints:
        """Units of one net, ascending."""
        return self.member[self.start[net] : self.start[net + 1]]


def unit_graph(demand: Demand) -> UnitGraph:
    """Every rank a unit of its own."""
    return _gather(
        demand.ranks,
        demand.form,
        demand.weight,
        demand.group_of,
        demand.member,
        np.ones(len(demand.member), dtype=np.int64),
        np.zeros((2, 0), dtype=np.int64),
        np.zeros(0),
        demand.kind,
    )


def contract(graph: UnitGraph, unit_of: Ints) -> UnitGraph:
    """The graph of larger units; `unit_of[u]` is the new unit of unit u.

    A new unit needs the kind that any of its parts needs.
    """
    units = int(unit_of.max()) + 1
    kind = np.full(units, ANY_KIND, dtype=np.int64)
    np.maximum.at(kind, unit_of, graph.kind)
    return _gather(
        units,
        graph.form,
        graph.weight,
        graph.net_of,
        unit_of[graph.member],
        graph.ranks,
        unit_of[graph.link],
        graph.link_weight,
        kind,
    )


def _gather(
    units: int,
    form: Ints,
    weight: Floats,
    net_of: Ints,
    member: Ints,
    ranks: Ints,
    link: Ints,
    link_weight: Floats,
    kind: Ints,
) -> UnitGraph:
    """Merge members of a net that are one unit, links that join the same two, and equal nets."""
    keys, inverse = np.unique(net_of * units + member, return_inverse=True)
    held = np.bincount(inverse, weights=ranks, minlength=len(keys)).astype(np.int64)
    owner, unit = keys // units, keys % units
    size = np.bincount(owner, minlength=len(form))
    first = np.concatenate([[0], np.cumsum(size)[:-1]]) if len(size) else size
    two = np.flatnonzero(size == 2)
    ends = first[two]
    cost = weight[two] * np.select(
        [form[two] == RING, form[two] == TREE], [2.0, 1.0], 2.0 * held[ends] * held[ends + 1]
    )
    pairs = np.concatenate([link, np.stack([unit[ends], unit[ends + 1]])], axis=1)
    pair_cost = np.concatenate([link_weight, cost])
    apart = pairs[0] != pairs[1]
    low, high = np.minimum(*pairs)[apart], np.maximum(*pairs)[apart]
    codes, which = np.unique(low * units + high, return_inverse=True)
    summed: Floats = np.bincount(which, weights=pair_cost[apart], minlength=len(codes)).astype(
        np.float64
    )
    nets: dict[tuple[int, bytes, bytes], tuple[float, Ints, Ints]] = {}
    for net in np.flatnonzero(size > 2).tolist():
        part = slice(first[net], first[net] + size[net])
        who, count = unit[part], held[part]
        kept = count if form[net] == PAIRS else np.ones_like(count)
        key = (int(form[net]), who.tobytes(), kept.tobytes())
        before = nets[key][0] if key in nets else 0.0
        nets[key] = (before + float(weight[net]), who, kept)
    sizes = np.array([len(entry[1]) for entry in nets.values()], dtype=np.int64)
    empty = [np.zeros(0, dtype=np.int64)]
    return UnitGraph(
        units=units,
        form=np.array([key[0] for key in nets], dtype=np.int64),
        weight=np.array([entry[0] for entry in nets.values()], dtype=np.float64),
        start=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)]),
        member=np.concatenate([*empty, *(entry[1] for entry in nets.values())]),
        ranks=np.concatenate([*empty, *(entry[2] for entry in nets.values())]),
        link=np.stack([codes // units, codes % units]),
        link_weight=summed,
        kind=kind,
    )


@dataclass(frozen=True)
class Gathering:
    """Units gathered into equal larger ones.

    unit_of: the larger unit of each unit. size: units in each of them.
    splitting: bytes that splitting a set costs at least; nets, links: the most that the nets and
        the links to other sets can cost when it is put back whole; by set.
    """

    unit_of: Ints
    size: int
    splitting: Floats
    nets: Floats
    links: Floats

    @cached_property
    def grip(self) -> float:
        """Least ratio of what splitting a set costs to the most that moving it whole can cost.

        At 1 or more, some best placement splits none of the sets, provided that whole sets fit; see
        `gather_heaviest`.
        """
        moving = self.nets + self.links
        ratio: Floats = self.splitting / np.maximum(moving, _FIRMEST * self.splitting)
        return float(ratio.min())

    def bearable(self) -> list[tuple[float, float]]:
        """Factors for the weights of nets and of links at which the grip is 1, the best few."""
        if self.grip >= 1.0:
            return [(1.0, 1.0)]
        split, nets, links = self.splitting, self.nets, self.links
        tiny = _FIRMEST * split
        whole_nets = max(0.0, float(((split - nets) / np.maximum(links, tiny)).min()))
        whole_links = max(0.0, float(((split - links) / np.maximum(nets, tiny)).min()))
        found = [(self.grip, self.grip)]
        if (nets <= split).all():
            found.append((1.0, min(1.0, whole_nets)))
        if (links <= split).all():
            found.append((min(1.0, whole_links), 1.0))
        return found


def gather_heaviest(graph: UnitGraph, most: int, in_nets: bool = False) -> Gathering | None:
    """The smallest equal sets of 2 to `most` units that cover all units and hold together.

    When no sets have a grip of 1, those with the firmest; None when there are none.
    in_nets: of the links, take those only that join two units of one net.

    Why a grip of 1 is enough: take a placement that splits m of the sets, take them all out and put
    each back whole wherever it fits. Taking out saves what the splits cost. Putting back costs each
    net that holds a whole set at most one weight a set (it already touched a second domain, for it
    held a split set), a ring that holds a part of it at most two, and a pair at most itself. Of the
    rings and links through parts of a set, those of one of its units were apart before.
    """
    firmest: Gathering | None = None
    for found in gatherings(graph, most, in_nets):
        if found.grip >= 1.0:
            return found
        if firmest is None or found.grip > firmest.grip:
            firmest = found
    return firmest


def gatherings(graph: UnitGraph, most: int, in_nets: bool = False) -> Iterator[Gathering]:
    """Equal sets of 2 to `most` units that cover all units, of each size the heaviest."""
    sizes = np.diff(graph.start)
    by_size: dict[int, list[tuple[float, int, Ints]]] = {}
    for net in np.flatnonzero(sizes <= most).tolist():
        entry = (_pull(graph, net), net, graph.members(net))
        by_size.setdefault(int(sizes[net]), []).append(entry)
    if most >= 2 and graph.link.shape[1]:
        taken = _sharing_a_net(graph) if in_nets else [True] * graph.link.shape[1]
        by_size[2] = [
            (weight / 2, -1 - i, graph.link[:, i])
            for i, weight in enumerate(graph.link_weight.tolist())
            if taken[i]
        ]
    for size in sorted(by_size):
        if graph.units % size:
            continue
        owner = _cover(graph.units, by_size[size])
        found = _gripped(graph, owner, size) if owner is not None else None
        if found is not None:
            yield found


def _sharing_a_net(graph: UnitGraph) -> list[bool]:
    """Of each link, whether its two units are in one net."""
    nets: list[set[int]] = [set() for _ in range(graph.units)]
    for net, unit in zip(graph.net_of.tolist(), graph.member.tolist(), strict=True):
        nets[unit].add(net)
    return [not nets[u].isdisjoint(nets[v]) for u, v in graph.link.T.tolist()]


def _cover(units: int, sets: list[tuple[float, int, Ints]]) -> Ints | None:
    """The set of each unit when the heaviest sets, none overlapping, cover them all."""
    owner = np.full(units, -1, dtype=np.int64)
    count = 0
    for _, _, members in sorted(sets, key=lambda entry: (-entry[0], entry[1])):
        claimed = owner[members]
        if (claimed >= 0).any():
            if (claimed == claimed[0]).all():
                continue
            return None
        owner[members] = count
        count += 1
        if count * len(members) == units:
            return owner
    return None


def _pull(graph: UnitGraph, net: int) -> float:
    """Bytes of a net that a member of it takes part in, about."""
    if graph.form[net] == PAIRS:
        held = graph.ranks[graph.start[net] : graph.start[net + 1]]
        return float(graph.weight[net] * held.mean() * (held.sum() - held.mean()))
    return float(graph.weight[net])


def _gripped(graph: UnitGraph, owner: Ints, size: int) -> Gathering | None:
    sets = graph.units // size
    keys, entry = np.unique(graph.net_of * sets + owner[graph.member], return_inverse=True)
    net, set_of = keys // sets, keys % sets
    count = np.bincount(entry, minlength=len(keys))
    inside = np.bincount(entry, weights=graph.ranks, minlength=len(keys))
    held: Floats = np.bincount(graph.net_of, weights=graph.ranks, minlength=graph.nets).astype(
        np.float64
    )
    touched = np.bincount(net, minlength=graph.nets)
    weight, form, alone = graph.weight[net], graph.form[net], touched[net] == 1
    whole = alone & (count == size)
    splitting = np.bincount(
        set_of[whole], weights=_least_split(graph, held)[net[whole]], minlength=sets
    ).astype(np.float64)
    costs = np.select(
        [form == PAIRS, (form == TREE) | (count == size)],
        [2 * weight * inside * (held[net] - inside), weight],
        2 * weight,
    )
    # Between whole sets a net of two of them is a link.
    linking, moving = (
        np.bincount(set_of[some], weights=costs[some], minlength=sets).astype(np.float64)
        for some in (touched[net] == 2, touched[net] > 2)
    )
    partly = (form == RING) & (count != size) & (touched[net] > 2)
    sparing = np.where(partly, 2 * weight, 0.0)[entry]
    spared = np.bincount(graph.member, weights=sparing, minlength=graph.units)
    one, other = owner[graph.link]
    within = one == other
    if size == 2:
        splitting += np.bincount(one[within], weights=graph.link_weight[within], minlength=sets)
    least_spared = np.full(sets, np.inf)
    np.minimum.at(least_spared, owner, spared)
    moving -= least_spared
    if not (splitting > 0).all():
        return None
    linking += _moving_links(graph, owner, sets, size)
    return Gathering(owner, size, splitting, moving, linking)


def _moving_links(graph: UnitGraph, owner: Ints, sets: int, size: int) -> Floats:
    """The most that the links of each set can cost when it is put back whole.

    Of a split set at least one unit was apart from any other set that is whole, and its links to
    that one crossed before. Two split sets share what lies between them, and half is not more.
    """
    ends = np.concatenate([graph.link[0], graph.link[1]])
    far = owner[np.concatenate([graph.link[1], graph.link[0]])]
    weight = np.tile(graph.link_weight, 2)
    outward = owner[ends] != far
    keys, which = np.unique(ends[outward] * sets + far[outward], return_inverse=True)
    by_unit = np.bincount(which, weights=weight[outward], minlength=len(keys))
    pairs, group = np.unique(owner[keys // sets] * sets + keys % sets, return_inverse=True)
    total = np.bincount(group, weights=by_unit, minlength=len(pairs))
    least = np.full(len(pairs), np.inf)
    np.minimum.at(least, group, by_unit)
    full = np.bincount(group, minlength=len(pairs)) == size
    moved = total - np.where(full, least, 0.0)
    return np.bincount(pairs // sets, weights=moved, minlength=sets).astype(np.float64)


def _least_split(graph: UnitGraph, held: Floats) -> Floats:
    """What each net costs at least where it is split; held: how many ranks of it there are."""
    if not graph.nets:
        return np.zeros(0)
    least = np.minimum.reduceat(graph.ranks, graph.start[:-1])
    edges = np.select(
        [graph.form == RING, graph.form == TREE], [2.0, 1.0], 2.0 * least * (held - least)
    )
    return np.asarray(graph.weight * edges)


def mixed_kinds(graph: UnitGraph, unit_of: Ints) -> bool:
    """Whether some larger unit would gather units that need different kinds (or some and any)."""
    units = int(unit_of.max()) + 1
    low = np.full(units, np.iinfo(np.int64).max)
    high = np.full(units, -2)
    np.minimum.at(low, unit_of, graph.kind)
    np.maximum.at(high, unit_of, graph.kind)
    return bool((low != high).any())
