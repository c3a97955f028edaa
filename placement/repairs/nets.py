"""What items (ranks that move as one) say to each other: nets of several, and links of two."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jobs.index import PAIRS, RING, Demand, Floats, Ints

_MOST_PAIRED = 16
"""Items up to which an exchange of all with all is told pair by pair."""


class Nets(NamedTuple):
    """Several items each: net n pays `weight[n]` by `form[n]`.

    Entry e says that `held[e]` ranks of `item[e]` are in `net[e]`.
    """

    net: Ints
    item: Ints
    held: Ints
    form: Ints
    weight: Floats

    def only(self, chosen: np.ndarray) -> Nets:
        """The nets of a mask, numbered anew."""
        number = np.cumsum(chosen) - 1
        kept = chosen[self.net]
        return Nets(
            number[self.net[kept]],
            self.item[kept],
            self.held[kept],
            self.form[chosen],
            self.weight[chosen],
        )


class Links(NamedTuple):
    """Pairs of items that pay `weight` when apart; those of item i from `start[i]` on."""

    start: Ints
    item: Ints
    weight: Floats


def nets_and_links(demand: Demand, item_of: Ints, wanted: np.ndarray) -> tuple[Nets, Links]:
    """What the groups of a job are for items, as far as it concerns those `wanted` (a mask).

    item_of: of each rank, or -1.
    """
    count = len(wanted)
    every = _merged(demand, *_entries(demand, item_of, count), count)
    concerned = np.bincount(every.net[wanted[every.item]], minlength=len(every.form)) > 0
    return _paired(every.only(concerned), count)


def _entries(demand: Demand, item_of: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    """(group, item, ranks) for each item of each group that lies in several."""
    owner = item_of[demand.member]
    known = owner >= 0
    keys, held = np.unique(demand.group_of[known] * count + owner[known], return_counts=True)
    group = keys // count
    several = np.bincount(group, minlength=demand.groups)[group] > 1
    return group[several], (keys % count)[several], held[several].astype(np.int64)


def _merged(demand: Demand, group: Ints, item: Ints, held: Ints, count: int) -> Nets:
    """Groups with the same ranks of the same items as one net that pays for all of them."""
    if not len(group):
        none = np.zeros(0, dtype=np.int64)
        return Nets(none, none, none, none, np.zeros(0))
    chance = np.random.default_rng(0)
    marks = chance.integers(1, 2**63, size=(2, count), dtype=np.uint64)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1])
    which = group[starts]
    ranks = held.astype(np.uint64)
    # Sums of random numbers stand for the members: equal only for equal ones, but for one in 2^120.
    sums = [np.add.reduceat(mark[item] * ranks, starts) for mark in marks]
    order = np.lexsort((sums[1], sums[0], demand.form[which]))
    new = np.zeros(len(order), dtype=bool)
    new[0] = True
    for column in (sums[0], sums[1], demand.form[which]):
        new[1:] |= column[order][1:] != column[order][:-1]
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    weight = np.bincount(number, weights=demand.weight[which])
    leader = np.zeros(len(which), dtype=bool)
    leader[order[new]] = True
    lengths = np.diff(np.concatenate([starts, [len(group)]]))
    kept = np.repeat(leader, lengths)
    form = np.empty(len(weight), dtype=np.int64)
    form[number[leader]] = demand.form[which[leader]]
    merged: Ints = np.repeat(number, lengths)[kept]
    return Nets(merged, item[kept], held[kept], form, weight.astype(np.float64))


def _paired(nets: Nets, count: int) -> tuple[Nets, Links]:
    """Nets of two items, and small exchanges of all with all, as links; and the other nets."""
    order = np.argsort(nets.net, kind="stable")
    net, item, held = nets.net[order], nets.item[order], nets.held[order]
    form, weight = nets.form, nets.weight
    members = np.bincount(net, minlength=len(form))
    starts = np.concatenate([[0], np.cumsum(members)]).astype(np.int64)
    pairable = (members == 2) | ((form == PAIRS) & (members <= _MOST_PAIRED))
    ones: list[Ints] = [np.zeros(0, dtype=np.int64)]
    others = list(ones)
    costs: list[Floats] = [np.zeros(0)]
    for width in np.unique(members[pairable]).tolist():
        some = np.flatnonzero(pairable & (members == width))
        rows = starts[some][:, None] + np.arange(width)
        for i in range(width):
            for j in range(i + 1, width):
                one, other = rows[:, i], rows[:, j]
                apart = np.where(form[some] == RING, 2.0, 1.0)
                both = 2.0 * held[one] * held[other]
                apart = np.where(form[some] == PAIRS, both, apart)
                ones.append(item[one])
                others.append(item[other])
                costs.append(weight[some] * apart)
    links = _links(np.concatenate(ones), np.concatenate(others), np.concatenate(costs), count)
    return Nets(net, item, held, form, weight).only(~pairable), links


def _links(one: Ints, other: Ints, weight: Floats, count: int) -> Links:
    """Pairs as rows by item, in both directions, equal ones summed."""
    keys = np.concatenate([one * count + other, other * count + one])
    pairs, index = np.unique(keys, return_inverse=True)
    summed = np.bincount(index, weights=np.concatenate([weight, weight]), minlength=len(pairs))
    start: Ints = np.searchsorted(pairs // count, np.arange(count + 1)).astype(np.int64)
    return Links(start, pairs % count, summed.astype(np.float64))
