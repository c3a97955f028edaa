"""How layers are divided over pipeline stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..workload import Parallelism


def piece_layers(layers: int, split: Parallelism) -> tuple[int, ...]:
    """Layers of each of the pp x virtual_pp stages in the model's order.

    Where they do not divide evenly, which the rules refuse, the first stages have one more.
    """
    if split.stage_layers is not None:
        return split.stage_layers
    first, last = int(split.embedding_as_layer), int(split.head_as_layer)
    each, over = divmod(layers + first + last, split.stages)
    counts = [each + (stage < over) for stage in range(split.stages)]
    counts[0] -= first
    counts[-1] -= last
    return tuple(counts)


def starts(pieces: Sequence[int]) -> list[tuple[int, int]]:
    """The first layer of each piece, and the one after its last."""
    return list(pairwise(accumulate(pieces, initial=0)))


def balanced(layer_costs: Sequence[float], first: float, last: float, pieces: int) -> list[int]:
    """Layers of each piece such that the most costly piece costs the least possible.

    layer_costs: of each layer in order. first, last: what the first and the last piece do besides.
    Exact: the least bound that a greedy filling meets is found among sums by bisection. A piece
    may have no layers only where it is the first or the last.
    """
    sums = [0.0, *accumulate(layer_costs)]
    low, high = 0.0, sums[-1] + first + last
    best = _filled(sums, first, last, pieces, high)
    for _ in range(60):
        bound = (low + high) / 2
        found = _filled(sums, first, last, pieces, bound)
        low, high = (low, bound) if found else (bound, high)
        best = found or best
    return best or []


def _filled(
    sums: Sequence[float], first: float, last: float, pieces: int, bound: float
) -> list[int] | None:
    """Pieces filled up to a bound from the end, None where the layers do not fit."""
    # From the end, as the last piece has the head; each leaves a layer for every inner piece.
    layers, counts = len(sums) - 1, []
    for piece in range(pieces - 1, -1, -1):
        room = bound - (last if piece == pieces - 1 else 0.0) - (first if piece == 0 else 0.0)
        keep = max(0, piece - 1)
        inner = 0 < piece < pieces - 1
        count = 0
        while count < layers - keep and sums[layers] - sums[layers - count - 1] <= room * (
            1 + 1e-12
        ):
            count += 1
        if room < 0 or (inner and not count):
            return None
        layers -= count
        counts.append(count)
    return counts[::-1] if layers == 0 else None
