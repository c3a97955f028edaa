"""Walks in which all that a net has in one domain moves as one."""

from __future__ import annotations

import numpy as np

from ..jobs.index import PAIRS, Ints
from .contract_local import contracted
from .local import Local
from .polish import MOVES_PER_WORK, polished

_MOVES, _MOST_MOVES = 200, 12_000
"""Moves of a walk for each piece, and in all."""
_HEATS = (1.0, 2.0, 4.0)
_LEAST_HELD = 0.5
"""Part of the units that must have a net for walks to be worth their work."""


def heaviest_nets(local: Local) -> Ints | None:
    """For each unit the net with most to say to it among those that fit a domain, -1 for none.

    None where too few units have any.
    """
    units, nets = len(local.size), len(local.net_form)
    if not nets:
        return None
    net_of = np.repeat(np.arange(nets), np.diff(local.net_start))
    held = np.bincount(net_of, weights=local.net_ranks, minlength=nets)
    taken = np.bincount(net_of, weights=local.size[local.net_member], minlength=nets)
    weight = local.net_weight * np.where(local.net_form == PAIRS, 2.0 * held, 1.0)
    weight[taken > local.room.max(initial=0)] = 0.0
    pull = weight[net_of] * np.where(local.net_form[net_of] == PAIRS, local.net_ranks, 1)
    heaviest = np.full(units, -1, dtype=np.int64)
    rising = np.argsort(pull, kind="stable")
    rising = rising[pull[rising] > 0]
    heaviest[local.net_member[rising]] = net_of[rising]
    return heaviest if (heaviest >= 0).mean() >= _LEAST_HELD else None


def moved_in_pieces(
    local: Local, where: Ints, net: Ints, seed: int, chance: np.random.Generator
) -> tuple[Ints, float]:
    """A division after a walk from one that fits, never a dearer one, and the work done.

    net: the net of each unit, as `heaviest_nets` tells; its units in one domain are a piece. Single
    moves cannot take a net from one domain to another where every step on the way costs more.
    """
    key = where * (len(local.net_form) + 1) + net + 1
    _, first, piece = np.unique(key, return_index=True, return_inverse=True)
    if (local.kind[first][piece] != local.kind).any():
        return where, 0.0
    count = len(first)
    small = contracted(local, piece, count)
    moves = min(_MOST_MOVES, _MOVES * count)
    heat = float(chance.choice(_HEATS))
    found = polished(small, where[first], moves, seed, heat)
    return found[piece], moves / MOVES_PER_WORK
