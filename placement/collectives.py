"""What a collective puts on links: the bytes between neighbours, and the steps that wait in turn.

Formulas for n ranks and S bytes as in the PCG (NCCL, src/graph/tuning.cc; Thakur 2005):

| pattern | operations | bytes of an edge | steps |
|---|---|---|---|
| closed ring | all_reduce | 2(n-1)/n S | 2(n-1) |
| closed ring | all_gather, reduce_scatter | (n-1)/n S | n-1 |
| open chain, both ways | all_reduce by tree | S each way | 2 ceil(log2 n) |
| open chain, one way | broadcast | S | ceil(log2 n); n-1 by ring; 1 direct |
| all pairs | all_to_all | S/n | 1 |
| one edge | send_recv | S | 1 |

A tree loads links as a chain does: two complementary binary trees that carry half each let every
member send and receive as much as a chain would, in logarithmically many steps (Sanders 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from .pcg import Algorithm, Group, Op


class Pattern(IntEnum):
    """Which members of a group send to which."""

    RING = 0
    """Each to the next in ring order, the last to the first."""
    CHAIN = 1
    """Neighbours in ring order, without closing the ring."""
    ALL_PAIRS = 2
    """Every member to every other."""
    ONE_EDGE = 3
    """The first to the second."""


@dataclass(frozen=True)
class Exchange:
    """A group's pattern, with bytes of every edge.

    back_bytes: bytes of the edges the other way, which only chains have.
    steps: messages that must wait for each other.
    """

    pattern: Pattern
    edge_bytes: float
    back_bytes: float
    steps: int


def exchange(group: Group) -> Exchange:
    """What a group of the PCG does."""
    return exchange_of(group.op, len(group.ranks), group.bytes, group.resolved_algorithm)


def exchange_of(op: Op, n: int, size: float, algorithm: Algorithm) -> Exchange:
    """What n ranks do with `size` bytes by an algorithm that is not `auto`."""
    levels = (n - 1).bit_length()
    match op:
        case Op.ALL_REDUCE if algorithm is Algorithm.TREE:
            return Exchange(Pattern.CHAIN, size, size, 2 * levels)
        case Op.ALL_REDUCE:
            return Exchange(Pattern.RING, 2 * (n - 1) / n * size, 0.0, 2 * (n - 1))
        case Op.ALL_GATHER | Op.REDUCE_SCATTER:
            return Exchange(Pattern.RING, (n - 1) / n * size, 0.0, n - 1)
        case Op.ALL_TO_ALL:
            return Exchange(Pattern.ALL_PAIRS, size / n, 0.0, 1)
        case Op.BROADCAST:
            steps = {Algorithm.RING: n - 1, Algorithm.DIRECT: 1}.get(algorithm, levels)
            return Exchange(Pattern.CHAIN, size, 0.0, steps)
        case Op.SEND_RECV:
            return Exchange(Pattern.ONE_EDGE, size, 0.0, 1)
