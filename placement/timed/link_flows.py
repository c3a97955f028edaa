"""The bytes that groups of ranks put on ports and NICs, end by end, with ranks on given nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .link_rates import Floats, Ints, LinkRates

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Flows:
    """Ends of what is sent and received.

    group: whose bytes. inward: 1 for what is received, 0 for what is sent. level: where the two
    ends meet. node, rail: the NIC, for network levels; rank: whose port, for scale-up levels.
    """

    group: Ints
    inward: Ints
    level: Ints
    node: Ints
    rail: Ints
    rank: Ints
    bytes: Floats

    @classmethod
    def of(
        cls,
        group: Ints,
        inward: int,
        level: Ints | int,
        node: Ints,
        rail: Ints,
        rank: Ints,
        size: Floats,
    ) -> Flows:
        """Flows in one direction; those without bytes are dropped."""
        kept = size > 0
        levels = np.broadcast_to(np.asarray(level, dtype=np.int64), group.shape)
        return cls(
            group[kept],
            np.full(int(kept.sum()), inward, dtype=np.int64),
            levels[kept],
            node[kept],
            rail[kept],
            rank[kept],
            size[kept],
        )

    @classmethod
    def joined(cls, parts: list[Flows]) -> Flows:
        """All flows of several."""
        none = np.zeros(0, dtype=np.int64)
        parts = [cls(none, none, none, none, none, none, np.zeros(0)), *parts]
        return cls(
            group=np.concatenate([part.group for part in parts]),
            inward=np.concatenate([part.inward for part in parts]),
            level=np.concatenate([part.level for part in parts]),
            node=np.concatenate([part.node for part in parts]),
            rail=np.concatenate([part.rail for part in parts]),
            rank=np.concatenate([part.rank for part in parts]),
            bytes=np.concatenate([part.bytes for part in parts]),
        )


@dataclass(frozen=True)
class Members:
    """Groups of one pattern (`group`, by number in the PCG) and their ranks laid end to end.

    owner: for each entry of `rank`, its place in `group`.
    """

    group: Ints
    edge_bytes: Floats
    back_bytes: Floats
    owner: Ints
    rank: Ints


@dataclass(frozen=True)
class Runs:
    """Members of groups gathered by node, groups after each other, each in ring order.

    Run i has the ranks `rank[start[i]:start[i + 1]]` on node `node[i]`, of the group with place
    `owner[i]` and number `group[i]`. first_of_group, last_of_group: by group, its end runs.
    rail: by entry of `rank`.
    """

    owner: Ints
    group: Ints
    node: Ints
    start: Ints
    rank: Ints
    rail: Ints
    first_of_group: Ints
    last_of_group: Ints

    @property
    def count(self) -> int:
        """How many runs there are."""
        return len(self.node)

    @property
    def size(self) -> Ints:
        """Members of each run."""
        return np.diff(self.start)

    def entries(self, runs: Ints) -> tuple[Ints, Ints]:
        """Entries of `rank` of the runs named, and for each of them which name it stands for."""
        size = self.size[runs]
        which = np.repeat(np.arange(len(runs)), size)
        first = np.cumsum(size) - size
        return self.start[runs][which] + np.arange(len(which)) - first[which], which


def runs_of(members: Members, node: Ints, rail: Ints, order: Ints, split: bool = False) -> Runs:
    """Gather members by node. split: every member a run of its own, in the order given."""
    entry = np.arange(len(members.rank))
    if not split:
        entry = np.lexsort((members.rank, order[members.rank], members.owner))
    rank, owner = members.rank[entry], members.owner[entry]
    fresh = np.ones(len(rank), dtype=bool)
    if not split:
        fresh[1:] = (owner[1:] != owner[:-1]) | (node[rank[1:]] != node[rank[:-1]])
    first = np.flatnonzero(fresh)
    places = np.arange(len(members.group))
    return Runs(
        owner=owner[first],
        group=members.group[owner[first]],
        node=node[rank[first]],
        start=np.append(first, len(rank)),
        rank=rank,
        rail=rail[rank],
        first_of_group=np.searchsorted(owner[first], places),
        last_of_group=np.searchsorted(owner[first], places, side="right") - 1,
    )


def within(runs: Runs, size: Floats, closed: bool) -> Flows:
    """What members of a node pass each other along a ring (closed) or a chain, by run `size`.

    A ring wholly inside a node has an edge for each member, any other stretch one fewer.
    """
    held = runs.size
    alone = runs.first_of_group[runs.owner] == runs.last_of_group[runs.owner]
    edges = np.where(alone & closed, held, held - 1) * (held > 1)
    each = np.repeat(size * edges / held, held)
    group, node = np.repeat(runs.group, held), np.repeat(runs.node, held)
    sides = [Flows.of(group, inward, 0, node, runs.rail, runs.rank, each) for inward in (0, 1)]
    return Flows.joined(sides)


def between(
    rates: LinkRates, runs: Runs, senders: Ints, receivers: Ints, size: Floats, aligned: bool
) -> Flows:
    """What runs send to others, spread evenly over the members at both ends.

    aligned: rails meet at the last level only; else bytes travel on the receiver's rail.
    """
    home, far = runs.node[senders], runs.node[receivers]
    level = (rates.domain[:, home] != rates.domain[:, far]).sum(axis=0)
    near = level < rates.first_network
    parts = []
    for inward, own, other in ((0, senders, receivers), (1, receivers, senders)):
        for chosen, mine in ((near, True), (~near, aligned or inward == 1)):
            pick = np.flatnonzero(chosen)
            # A run sends through its own members' ports and rails, or on the rails of the peer.
            entry, which = runs.entries(own[pick] if mine else other[pick])
            pair = pick[which]
            share = size[pair] / runs.size[own[pair] if mine else other[pair]]
            group, node = runs.group[own[pair]], runs.node[own[pair]]
            rail, rank = runs.rail[entry], runs.rank[entry]
            if aligned and chosen is not near:
                part = _matched(runs, own[pair], other[pair], rail)
                parts.append(Flows.of(group, inward, level[pair], node, rail, rank, share * part))
                parts.append(
                    Flows.of(group, inward, rates.last, node, rail, rank, share * (1 - part))
                )
            else:
                parts.append(Flows.of(group, inward, level[pair], node, rail, rank, share))
    return Flows.joined(parts)


def _matched(runs: Runs, own: Ints, other: Ints, rail: Ints) -> Floats:
    """The part of what a rail of run `own` has for run `other` that a like rail can take there."""
    width = int(runs.rail.max()) + 1
    keys, count = np.unique(
        np.repeat(np.arange(runs.count), runs.size) * width + runs.rail, return_counts=True
    )

    def portion(run: Ints) -> Floats:
        wanted = run * width + rail
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found: Floats = np.where(keys[at] == wanted, count[at], 0) / runs.size[run]
        return found

    part: Floats = np.minimum(1.0, portion(other) / portion(own))
    return part


def all_pairs(
    rates: LinkRates, members: Members, node: Ints, rail: Ints, order: Ints, aligned: bool
) -> Flows:
    """What every member sends to every other, in sums by node, rail and level."""
    runs = runs_of(members, node, rail, order)
    held = runs.size
    size = members.edge_bytes[runs.owner]
    group, owner = np.repeat(runs.group, held), np.repeat(runs.owner, held)
    home, each = np.repeat(runs.node, held), np.repeat(size, held)
    width = int(runs.rail.max()) + 1
    parts: list[Flows] = []

    def add(inward: int, level: int, met: Ints) -> None:
        """Each member exchanges with `met` others at the level, through itself or its rail."""
        parts.append(Flows.of(group, inward, level, home, runs.rail, runs.rank, each * met))

    nearer = np.ones(len(home), dtype=np.int64)
    for level in range(rates.first_network):
        inside = _sharing(owner, rates.domain[level, home], np.zeros_like(home), 1)
        add(0, level, inside - nearer)
        add(1, level, inside - nearer)
        nearer = inside
    last_near = rates.first_network - 1
    same = _sharing(owner, rates.domain[last_near, home], runs.rail, width)
    lanes = _by_rail(runs, owner, rates.domain[last_near], width)
    for level in range(rates.first_network, rates.last + 1):
        inside = _sharing(owner, rates.domain[level, home], np.zeros_like(home), 1)
        if aligned:
            same_before, same = same, _sharing(owner, rates.domain[level, home], runs.rail, width)
            met = same - same_before if level < rates.last else inside - nearer
            add(0, level, met)
            add(1, level, met)
            nearer = nearer + met
            continue
        add(1, level, inside - nearer)
        lanes_before, lanes = lanes, _by_rail(runs, owner, rates.domain[level], width)
        run, lane = np.nonzero(lanes - lanes_before)
        sent = (lanes - lanes_before)[run, lane] * held[run] * size[run]
        first = runs.rank[runs.start[run]]
        parts.append(Flows.of(runs.group[run], 0, level, runs.node[run], lane, first, sent))
        nearer = inside
    return Flows.joined(parts)


def _sharing(owner: Ints, domain: Ints, rail: Ints, width: int) -> Ints:
    """By entry, how many of its group are in its domain on its rail, itself too."""
    keys = (owner * (int(domain.max()) + 1) + domain) * width + rail
    _, which, count = np.unique(keys, return_inverse=True, return_counts=True)
    found: Ints = count[which]
    return found


def _by_rail(runs: Runs, owner: Ints, domain: Ints, width: int) -> Ints:
    """`[run, rail]`: members of the run's group in the run's domain, on each rail."""
    span = int(domain.max()) + 1
    keys, which = np.unique(
        owner * span + np.repeat(domain[runs.node], runs.size), return_inverse=True
    )
    table = np.bincount(which * width + runs.rail, minlength=len(keys) * width)
    at = np.searchsorted(keys, runs.owner * span + domain[runs.node])
    found: Ints = table.reshape(len(keys), width)[at]
    return found
