"""Units to be divided among sibling domains, and the traffic among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jobs.index import PAIRS, RING, TREE, Floats, Ints
from ..jobs.units import UnitGraph


class Local(NamedTuple):
    """Some units of a graph, or sets of them, to be divided among sibling domains.

    One value that compiled loops take.

    size: what each unit takes of a domain's room. kind, room, kind_room: as in Counts.
    The rest is the traffic among them, as nets of three or more units and links of two: for each
    unit its nets and links, and whether a net also has members elsewhere, so that its ring is open
    here. `net_ranks`, `unit_net_ranks`: ranks of a net that a member holds.
    """

    size: Ints
    kind: Ints
    room: Ints
    kind_room: Ints
    net_form: Ints
    net_weight: Floats
    net_open: Ints
    net_start: Ints
    net_member: Ints
    net_ranks: Ints
    unit_net_start: Ints
    unit_net: Ints
    unit_net_ranks: Ints
    unit_link_start: Ints
    unit_link: Ints
    unit_link_weight: Floats

    @classmethod
    def of(cls, graph: UnitGraph, units: Ints, room: Ints, kind_room: Ints) -> Local:
        """The part of a graph that a parent domain holds; unit i of it is `units[i]`."""
        local = np.full(graph.units, -1, dtype=np.int64)
        local[units] = np.arange(len(units))
        inside = local[graph.member]
        here = inside >= 0
        count = np.bincount(graph.net_of[here], minlength=graph.nets)
        link = local[graph.link]
        both = (link >= 0).all(axis=0)
        return _with_links(
            np.ones(len(units), dtype=np.int64),
            graph.kind[units],
            room,
            kind_room,
            graph.form,
            graph.weight,
            (count < np.diff(graph.start)).astype(np.int64),
            graph.net_of[here],
            inside[here],
            graph.ranks[here],
            link[:, both],
            graph.link_weight[both],
        )

    def pairs_as_links(self, most_members: int, most_links: int) -> Local:
        """The same with all-to-all nets of few members as links, the smallest first.

        It costs the same, but for a constant; a move then touches each neighbour once only.
        """
        count = np.diff(self.net_start)
        pairs = np.flatnonzero((self.net_form == PAIRS) & (count <= most_members))
        pairs = pairs[np.argsort(count[pairs], kind="stable")]
        pairs = pairs[np.cumsum(count[pairs] * (count[pairs] - 1) // 2) <= most_links]
        if not len(pairs):
            return self
        owner = np.repeat(np.arange(len(self.size)), np.diff(self.unit_link_start))
        once = owner < self.unit_link
        links = [np.stack([owner[once], self.unit_link[once]])]
        weights = [self.unit_link_weight[once]]
        for members in np.unique(count[pairs]).tolist():
            chosen = pairs[count[pairs] == members]
            entry = self.net_start[chosen][:, None] + np.arange(members)
            one, other = np.triu_indices(members, 1)
            unit, ranks = self.net_member[entry], self.net_ranks[entry]
            links.append(np.stack([unit[:, one].ravel(), unit[:, other].ravel()]))
            weight = 2.0 * self.net_weight[chosen][:, None] * ranks[:, one] * ranks[:, other]
            weights.append(weight.ravel())
        net_of = np.repeat(np.arange(len(count)), count)
        kept = np.ones(len(count), dtype=bool)
        kept[pairs] = False
        here = kept[net_of]
        return _with_links(
            self.size,
            self.kind,
            self.room,
            self.kind_room,
            self.net_form,
            self.net_weight,
            self.net_open,
            net_of[here],
            self.net_member[here],
            self.net_ranks[here],
            np.concatenate(links, axis=1),
            np.concatenate(weights),
        )

    def heaviest_links(self, each: int) -> Local:
        """The problem with the links that are among the `each` heaviest of one of their ends.

        Itself where that would leave out few.
        """
        units = len(self.size)
        if len(self.unit_link) <= 3 * each * units:
            return self
        owner = np.repeat(np.arange(units), np.diff(self.unit_link_start))
        by_weight = np.lexsort((-self.unit_link_weight, owner))
        rank = np.empty(len(owner), dtype=np.int64)
        rank[by_weight] = np.arange(len(owner)) - self.unit_link_start[owner[by_weight]]
        code = np.minimum(owner, self.unit_link) * units + np.maximum(owner, self.unit_link)
        kept = np.isin(code, code[rank < each])
        return self._replace(
            unit_link_start=_starts(owner[kept], units),
            unit_link=self.unit_link[kept],
            unit_link_weight=self.unit_link_weight[kept],
        )

    @property
    def entries(self) -> int:
        """Members of nets and ends of links: what a pass over everything touches."""
        return len(self.size) + len(self.net_member) + len(self.unit_link)

    def fits(self, where: Ints) -> bool:
        """Whether a division leaves every domain within its room."""
        domains = len(self.room)
        if (np.bincount(where, weights=self.size, minlength=domains) > self.room).any():
            return False
        return all(
            (
                np.bincount(where[self.kind == k], self.size[self.kind == k], minlength=domains)
                <= self.kind_room[:, k]
            ).all()
            for k in range(self.kind_room.shape[1])
        )

    def bytes_of(self, where: Ints) -> float:
        """Bytes that cross between the domains, up to a constant."""
        total = float(
            self.unit_link_weight[
                np.repeat(where, np.diff(self.unit_link_start)) != where[self.unit_link]
            ].sum()
            / 2
        )
        nets = len(self.net_form)
        if nets:
            domains = len(self.room)
            owner = np.repeat(np.arange(len(where)), np.diff(self.unit_net_start))
            held = np.bincount(
                self.unit_net * domains + where[owner],
                weights=self.unit_net_ranks,
                minlength=nets * domains,
            ).reshape(nets, domains)
            parts = (held > 0).sum(axis=1)
            edges = -(held**2).sum(axis=1)
            ring = self.net_form == RING
            closed = (parts < 2) & (self.net_open == 0)
            edges[ring] = np.where(closed, 0, parts)[ring]
            edges[self.net_form == TREE] = parts[self.net_form == TREE]
            total += float((edges * self.net_weight).sum())
        return total


def _with_links(
    size: Ints,
    kind: Ints,
    room: Ints,
    kind_room: Ints,
    form: Ints,
    weight: Floats,
    is_open: Ints,
    net_of: Ints,
    member: Ints,
    ranks: Ints,
    link: Ints,
    link_weight: Floats,
) -> Local:
    """Merge members of a net that are one unit, and links of the same two; nets of two are links.

    Nets of one unit cost the same wherever it is, and are left out.
    """
    units = len(size)
    keys, which = np.unique(net_of * units + member, return_inverse=True)
    held = np.bincount(which, weights=ranks, minlength=len(keys)).astype(np.int64)
    owner, unit = keys // units, keys % units
    count = np.bincount(owner, minlength=len(form))
    first = np.cumsum(count) - count
    two = np.flatnonzero(count == 2)
    ends = first[two]
    cost = weight[two] * np.select(
        [form[two] == PAIRS, (form[two] == RING) & (is_open[two] == 0)],
        [2.0 * held[ends] * held[np.minimum(ends + 1, len(held) - 1)], 2.0],
        1.0,
    )
    pairs = np.concatenate([link, np.stack([unit[ends], unit[ends + 1]])], axis=1)
    codes, which = np.unique(np.minimum(*pairs) * units + np.maximum(*pairs), return_inverse=True)
    summed = np.bincount(
        which, weights=np.concatenate([link_weight, cost]), minlength=len(codes)
    ).astype(np.float64)
    low, high = codes // units, codes % units
    source, target = np.concatenate([low, high]), np.concatenate([high, low])
    by_end = np.argsort(source, kind="stable")
    kept = np.flatnonzero(count > 2)
    renumber = np.full(len(form), -1, dtype=np.int64)
    renumber[kept] = np.arange(len(kept))
    chosen = renumber[owner] >= 0
    net, member, ranks = renumber[owner[chosen]], unit[chosen], held[chosen]
    by_unit = np.argsort(member, kind="stable")
    return Local(
        size=size,
        kind=kind,
        room=room,
        kind_room=kind_room,
        net_form=form[kept],
        net_weight=weight[kept],
        net_open=is_open[kept],
        net_start=_starts(net, len(kept)),
        net_member=member,
        net_ranks=ranks,
        unit_net_start=_starts(member, units),
        unit_net=net[by_unit],
        unit_net_ranks=ranks[by_unit],
        unit_link_start=_starts(source, units),
        unit_link=target[by_end],
        unit_link_weight=np.tile(summed, 2)[by_end],
    )


def _starts(owner: Ints, count: int) -> Ints:
    return np.concatenate(
        [np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(owner, minlength=count))]
    ).astype(np.int64)
