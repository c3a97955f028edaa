"""Probes of bandwidth, aimed with the tree in hand: own links, quiet paths, full links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .clusters import Ints

Pairs = list[tuple[int, int]]
_QUIET_ROUNDS = 4
_ENOUGH_QUIET = 24
"""Quiet pairs of a tier: the median of so many lies within 4 % at 10 % noise, 95 times of 100."""


def in_rounds(
    own: Sequence[Pairs], quiet: Sequence[Pairs], nearest: Ints, most: int
) -> list[Pairs]:
    """Rounds of own links and of quiet paths, apart where that takes at most `most` rounds.

    Else nodes that have no quiet path to measure are paired inside their nearest domains
    meanwhile, whose links quiet paths do not share; what even then does not fit is left out.
    nearest: labels of the nearest domains.
    """
    if len(own) + len(quiet) <= most:
        return [*own, *quiet]
    found = [list(pairs) for pairs in quiet[:most]]
    ends = {end for pairs in own for pair in pairs for end in pair}
    left = ends - {end for pairs in found for pair in pairs for end in pair}
    for pairs in found:
        busy = {end for pair in pairs for end in pair}
        waiting: dict[int, int] = {}
        for node in sorted(ends - busy, key=lambda node: (node not in left, node)):
            domain = int(nearest[node])
            other = waiting.pop(domain, None)
            if other is not None:
                pairs.append((other, node))
                left -= {other, node}
            elif node in left:
                waiting[domain] = node
    rest = [pair for pair in own[0] if left & set(pair)] if own else []
    return [*found, rest] if rest and len(found) < most else found


def own_links(tiers: Sequence[Ints], free: NDArray[np.bool_], seed: int) -> list[Pairs]:
    """Rounds in which every free node is in a pair once, with a node as near as there is.

    tiers: labels of the domains, farthest tier first; none in a flat network.
    """
    random = np.random.default_rng(seed)
    left = random.permutation(np.flatnonzero(free))
    first: Pairs = []
    for labels in [*reversed(tiers), np.zeros(len(free), dtype=np.int64)]:
        lone: dict[int, int] = {}
        for node in left.tolist():
            other = lone.pop(int(labels[node]), None)
            if other is None:
                lone[int(labels[node])] = node
            else:
                first.append((other, node))
        left = np.asarray(list(lone.values()), dtype=np.int64)
    rounds = [first] if first else []
    if len(left) and first:
        rounds.append([(int(left[0]), first[0][0])])
    return rounds


def quiet_paths(tiers: Sequence[Ints], free: NDArray[np.bool_], seed: int) -> list[Pairs]:
    """Rounds of pairs of every tier beyond the nearest, at most one pair out of any domain."""
    found: list[Pairs] = []
    had = [0] * len(tiers)
    for number in range(_QUIET_ROUNDS):
        random = np.random.default_rng((seed, number))
        used: list[set[int]] = [set() for _ in tiers]
        taken: set[int] = set()
        pairs: Pairs = []
        for at in range(len(tiers)):
            if had[at] >= _ENOUGH_QUIET:
                continue
            outer = tiers[at - 1] if at else np.zeros(len(free), dtype=np.int64)
            waiting: dict[int, int] = {}
            for node in random.permutation(np.flatnonzero(free)).tolist():
                group = int(outer[node])
                crossed = [(k, int(tiers[k][node])) for k in range(at, len(tiers))]
                if node in taken or any(domain in used[k] for k, domain in crossed):
                    continue
                other = waiting.get(group)
                if other is None or tiers[at][other] == tiers[at][node]:
                    waiting.setdefault(group, node)
                    continue
                del waiting[group]
                pairs.append((other, node))
                had[at] += 1
                for end in (other, node):
                    taken.add(end)
                    for k in range(at, len(tiers)):
                        used[k].add(int(tiers[k][end]))
        if pairs:
            found.append(pairs)
    return found


def full_links(
    tiers: Sequence[Ints], free: NDArray[np.bool_], seed: int, at_once: int | None = None
) -> list[Pairs]:
    """For each tier beyond the nearest, farthest first: a round in which domains meet two by two,
    all their nodes at once. at_once: the most pairs of a round; whole domains are left out first.
    """
    found: list[Pairs] = []
    random = np.random.default_rng(seed)
    for at in range(len(tiers)):
        outer = tiers[at - 1] if at else np.zeros(len(free), dtype=np.int64)
        members: dict[int, list[int]] = {}
        for node in random.permutation(np.flatnonzero(free)).tolist():
            members.setdefault(int(tiers[at][node]), []).append(node)
        by_group: dict[int, list[list[int]]] = {}
        for nodes in members.values():
            by_group.setdefault(int(outer[nodes[0]]), []).append(nodes)
        pairs: Pairs = []
        for domains in by_group.values():
            domains.sort(key=len, reverse=True)
            for one, two in zip(domains[::2], domains[1::2], strict=False):
                meeting = list(zip(one, two, strict=False))
                if at_once is None or len(pairs) + len(meeting) <= at_once:
                    pairs += meeting
                elif not pairs:
                    pairs += meeting[:at_once]
        found += [pairs] if len(pairs) > 1 else []
    return found
