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
    """Layers of each piece such that the most costly piece costs the least possible, and the others
    are as even as that allows.

    layer_costs: of each layer in order. first, last: what the first and the last piece do besides.
    Exact: bisection for the least cost at which filling the pieces from the end still places all
    layers. Only the first and the last piece may be without layers; [] where there are too few.
    """
    sums = [0.0, *accumulate(layer_costs)]
    ends = [0.0] * pieces
    ends[0] += first
    ends[-1] += last
    low, high = 0.0, sums[-1] + first + last
    limits = _filled(sums, ends, high)
    for _ in range(_HALVINGS):
        bound = (low + high) / 2
        found = _filled(sums, ends, bound)
        low, high = (low, bound) if found else (bound, high)
        limits = found or limits
    return _levelled(sums, ends, high, limits) if limits else []


_HALVINGS = 60
_ROUNDING = 1 + 1e-12


def _filled(sums: Sequence[float], ends: Sequence[float], bound: float) -> list[int] | None:
    """The first layer that each piece may have at the earliest, None where not all layers fit.

    Pieces are filled from the last to the first, each up to the bound.
    """
    pieces, start = len(ends), len(sums) - 1
    found = []
    for piece in range(pieces - 1, -1, -1):
        end, room = start, (bound - ends[piece]) * _ROUNDING
        least = max(0, piece - 1)  # a layer for every inner piece before this one
        while start > least and sums[end] - sums[start - 1] <= room:
            start -= 1
        if room < 0 or (0 < piece < pieces - 1 and start == end):
            return None
        found.append(start)
    return found[::-1] if start == 0 else None


def _levelled(
    sums: Sequence[float], ends: Sequence[float], bound: float, earliest: Sequence[int]
) -> list[int]:
    """Each piece takes what is nearest to an even part of what is left, within the bound."""
    pieces, layers = len(ends), len(sums) - 1
    start, counts = 0, []
    for piece in range(pieces - 1):
        left = sums[-1] - sums[start] + sum(ends[piece:])
        even = left / (pieces - piece) - ends[piece]
        room = (bound - ends[piece]) * _ROUNDING
        first = max(earliest[piece + 1], start + (piece > 0))
        inner_after = pieces - 2 - piece
        ways = [
            end for end in range(first, layers - inner_after + 1) if sums[end] - sums[start] <= room
        ]
        end = min(ways, key=lambda end: abs(sums[end] - sums[start] - even))
        counts.append(end - start)
        start = end
    return [*counts, layers - start]
