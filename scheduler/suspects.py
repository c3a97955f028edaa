"""Which node is to be blamed for transfers between nodes that came to nothing. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

Pair = tuple[str, str]


def rounds_of_neighbours(nodes: Sequence[str]) -> list[list[Pair]]:
    """Two rounds of disjoint pairs that join the nodes in their order; one for a single pair."""
    pairs = list(pairwise(nodes))
    return [found for found in (pairs[::2], pairs[1::2]) if found]


def undecided(results: Mapping[Pair, bool]) -> list[str]:
    """Nodes that failed in all their pairs, next to others of which that is true as well.

    Either of them may be the bad one: each must be tried with a node that is known to be well.
    """
    well = _well(results)
    ends = {node for pair, ok in results.items() if not ok for node in pair}
    return sorted(
        node
        for node in ends - well
        if not any(other in well for pair in results if node in pair for other in pair)
    )


def blamed(results: Mapping[Pair, bool], among: Collection[str]) -> list[str]:
    """Those `among` which no transfer succeeded with, though one that is well was tried.

    Where nobody is known to be well, everybody who failed is to be blamed: nothing else is left.
    """
    well = _well(results)
    failed = {node for pair, ok in results.items() if not ok for node in pair} - well
    tried = {
        node
        for pair, ok in results.items()
        if not ok and any(other in well for other in pair)
        for node in pair
    }
    return sorted((failed & tried if well else failed).intersection(among))


def _well(results: Mapping[Pair, bool]) -> set[str]:
    return {node for pair, ok in results.items() if ok for node in pair}


def witness_pairs(nodes: Collection[str], witnesses: Sequence[str]) -> list[Pair]:
    """Each of those nodes with a witness of its own, as far as there are any."""
    free = [name for name in witnesses if name not in nodes]
    return list(zip(sorted(nodes), free, strict=False))
